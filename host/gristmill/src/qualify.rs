//! A candidate held against the component in force, on this machine: `gristmill ledger qualify`, and the
//! control plane's verb.
//!
//! Both are composed as a host would compose them and asked the same, in turn: the conformance suite,
//! and then the same prompts, the two interleaved so that what else the machine does meets both alike.
//! The report becomes evidence, the medians a performance record and, in a candidate that passes, the pin's
//! guardrail. A candidate that fails a check, no longer passes one that the pin in force passes, or whose
//! paired ratios are below the tolerance, is withdrawn: it is no candidate any more, and report and record
//! stay. One whose measurements were not steady stays as it was, without the guardrail it had.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::{Result, bail, ensure};
use clap::Args;
use gristmill_api::control::view::{Outcome, Ratio};
use gristmill_core::{
    event::{Event, Timings, Usage},
    request::{Message, Prompt, Request, Role},
};
use gristmill_ledger::{
    Date, Kind, Ledger, LedgerError, Pin, candidate,
    evidence::{self, Statement, Verdict},
    guardrail::{Guardrail, Measured, Rates},
    is_kept,
    performance::{Record, ResultClass},
    prove::tryable,
};
use gristmill_router::Router;

use crate::{
    compose::{Composed, Places, Plugins, compose_of, engine_config, runtime},
    conformance,
    ledger::{fingerprint, keeper},
    promote::Promoter,
    settings::Settings,
};

/// What to qualify, and how.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The candidate's name
    pub(crate) name: String,
    /// The model to test and measure with: MODEL, or BACKEND/MODEL where several back-ends are this plugin
    #[arg(long)]
    pub(crate) model: String,
    /// Pairs of measured answers
    #[arg(long, default_value_t = ROUNDS, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// How much slower it may be than what is in force, as a share
    #[arg(long, default_value_t = TOLERANCE)]
    pub(crate) tolerance: f64,
    /// Sign the report with this secret key, which nobody else may read
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
}

pub(crate) const ROUNDS: u32 = 8;
pub(crate) const TOLERANCE: f64 = 0.05;

/// Tokens of a measured answer.
const ANSWER: u32 = 64;

/// What came of it. Report and measurement are kept in any case.
pub(crate) struct Compared {
    /// The candidate, as it was left.
    pub(crate) pin: Pin,
    pub(crate) verdict: Outcome,
    /// Why it must not be promoted.
    pub(crate) lost: Vec<String>,
    /// Its speed as a share of that of what is in force.
    pub(crate) ratios: Vec<Ratio>,
    /// File and digest of the report.
    pub(crate) evidence: (PathBuf, String),
    /// File of the measurement, and what it says.
    pub(crate) performance: (PathBuf, Record),
}

/// `gristmill ledger qualify`: does it, and says what came of it.
pub(crate) fn qualify(settings: &Settings, places: &Places, arguments: &Arguments) -> Result<()> {
    let Compared { pin, verdict, lost, ratios, evidence, performance } =
        compared(settings, places, arguments, None)?;
    for Ratio { what, ratio, pairs } in ratios {
        println!("{what} {ratio:.3} of what is in force (median of {pairs} pairs)");
    }
    println!("evidence {}", evidence.0.display());
    println!("performance {}", performance.0.display());
    match verdict {
        Outcome::Qualified => {
            println!(
                "qualified {} {}; sign it if keys are asked for, then promote it",
                pin.name,
                pin.digest()
            );
            Ok(())
        }
        Outcome::Changed => bail!("not qualified: the candidate was changed meanwhile"),
        Outcome::Lost => bail!("not qualified, and withdrawn: {}", lost.join("; ")),
        Outcome::Unsteady => bail!(
            "not qualified: the measurements were not steady within {:.1} %; measure on a quieter machine, or with more --rounds",
            arguments.tolerance * 100.0
        ),
    }
}

/// Holds a candidate against what is in force and writes down what was found. Within a running host
/// (`promoter`) nobody else decides on a change while the ledger is read or written; while it is tested
/// and measured, anybody may.
pub(crate) fn compared(
    settings: &Settings,
    places: &Places,
    arguments: &Arguments,
    promoter: Option<&Promoter>,
) -> Result<Compared> {
    let Arguments { name, tolerance, .. } = arguments;
    ensure!(
        (0.0..1.0).contains(tolerance),
        "--tolerance: expected 0 to below 1, found {tolerance}"
    );
    let key = arguments.key.as_deref().map(gristmill_ledger::keys::secret).transpose()?;
    let turn = promoter.map(Promoter::turn);
    let ledger = keeper(places)?;
    let filed = candidate(&places.ledger, name)?.ok_or_else(|| LedgerError::Refused {
        code: "no-candidate",
        path: ledger.candidate(name),
        reason: "no candidate: pin it first".to_owned(),
    })?;
    let mut pin = filed.pin.clone();
    ensure!(
        pin.kind == Kind::Backend,
        "{name} is a {}: back-ends are qualified, and with them what they serve",
        pin.kind
    );
    let before = ledger.in_force(name)?.map(|filed| filed.pin);
    if is_kept(&places.ledger) {
        // Whoever may write to this folder decides what runs here; an operator's key alone does not.
        let signed = promoter.is_some();
        tryable(&places.ledger, &filed, signed, Date::now())?;
    }
    drop((ledger, turn));

    let found = runtime()?.block_on(async {
        let theirs = with(settings, places, &pin).await?;
        let ours = match &before {
            Some(pin) => Some(with(settings, places, pin).await?),
            None => None,
        };
        compare(arguments, &theirs, ours.as_ref()).await
    })?;

    let json = match &key {
        Some(key) => serde_json::to_vec_pretty(&found.report.sign(key)?)?,
        None => serde_json::to_vec_pretty(&found.report)?,
    };
    let _turn = promoter.map(Promoter::turn);
    let evidence = evidence::store(&places.ledger, name, &json)?;
    let record = record(settings, &pin, &found)?;
    let performance = (record.store(&places.ledger)?, record);
    let Found { lost, ratios, .. } = found;
    let ledger = keeper(places)?;
    let there = candidate(&places.ledger, name)?.map(|filed| filed.text);
    let verdict = if there.as_ref() != Some(&filed.text) {
        Outcome::Changed
    } else if !lost.is_empty() {
        ledger.withdraw(name)?;
        Outcome::Lost
    } else if let Some(Rates { prefill, decode }) = performance.1.baseline() {
        // What was signed was another text.
        pin.signatures.clear();
        pin.evidence = vec![evidence.1.clone()];
        let host_class = performance.1.host.class();
        pin.guardrail = Some(Guardrail {
            tolerance: *tolerance,
            measured: vec![Measured { host_class, prefill, decode }],
        });
        ledger.propose(&pin)?;
        Outcome::Qualified
    } else {
        if pin.guardrail.take().is_some() {
            pin.signatures.clear();
            ledger.propose(&pin)?;
        }
        Outcome::Unsteady
    };
    Ok(Compared { pin, verdict, lost, ratios, evidence, performance })
}

/// The rooms as they would be with this pin.
async fn with(settings: &Settings, places: &Places, pin: &Pin) -> Result<Composed> {
    let pins = match is_kept(&places.ledger) {
        true => Ledger::in_force(&places.ledger)?,
        false => Ledger::open(&places.ledger)?,
    };
    let others = pins.pins().filter(|other| other.name != pin.name).cloned();
    let ledger = Ledger::from_pins(others.chain([pin.clone()]))?;
    compose_of(settings, places, Plugins::of(places, ledger)?).await
}

/// What was found.
struct Found {
    report: Statement,
    model_digest: String,
    quantization: String,
    prefill: Vec<f64>,
    decode: Vec<f64>,
    tokens: (u64, u64),
    tolerance: f64,
    ratios: Vec<Ratio>,
    /// Why it must not be promoted.
    lost: Vec<String>,
}

async fn compare(
    arguments: &Arguments,
    theirs: &Composed,
    ours: Option<&Composed>,
) -> Result<Found> {
    let Arguments { name, model, rounds, tolerance, .. } = arguments;
    let backends: Vec<_> = theirs.configured.names().collect();
    let (backend, model) = subject(&backends, name, model)?;
    let report = conformance::report(theirs, backend, model).await?;
    let mut lost = Vec::new();
    let failed = &report.predicate.failed_tests;
    if !failed.is_empty() {
        lost.push(format!("it fails {}", failed.join(", ")));
    } else if report.predicate.result == Verdict::Unproven {
        lost.push("nothing is proven: no check applied to it".to_owned());
    }
    if let Some(ours) = ours {
        let before = conformance::report(ours, backend, model).await?;
        let gone =
            |id: &&String| !report.predicate.passed_tests.contains(id) && !failed.contains(id);
        let gone: Vec<_> = before.predicate.passed_tests.iter().filter(gone).cloned().collect();
        if !gone.is_empty() {
            lost.push(format!("it no longer passes {}", gone.join(", ")));
        }
    }

    let mut samples: [Vec<Sample>; 2] = Default::default();
    for round in 0..*rounds {
        let mut sides = [(0, Some(theirs)), (1, ours)];
        if round % 2 == 1 {
            sides.reverse();
        }
        for (side, composed) in sides {
            let Some(composed) = composed else { continue };
            let sample = ask(&composed.router, &format!("{backend}/{model}"), round).await?;
            if let Some(samples) = samples.get_mut(side) {
                samples.push(sample);
            }
        }
    }
    let [theirs, ours] = samples;
    let mut compared = Vec::new();
    for (what, rate) in [
        ("prefill", (|sample: &Sample| sample.prefill) as fn(&Sample) -> f64),
        ("decode", |sample| sample.decode),
    ] {
        let ratios = theirs.iter().zip(&ours).map(|(a, b)| rate(a) / rate(b)).collect();
        let Some(ratio) = median(ratios) else { continue };
        compared.push(Ratio { what: what.to_owned(), ratio, pairs: ours.len() });
        if ratio < 1.0 - tolerance {
            lost.push(format!("{what} is at {ratio:.3} of what is in force"));
        }
    }
    let predicate = &report.predicate;
    let digest = predicate.model.digest.clone().unwrap_or_default();
    Ok(Found {
        model_digest: digest.strip_prefix("sha256:").unwrap_or(&digest).to_owned(),
        quantization: predicate.model.quantization.clone().unwrap_or_default(),
        prefill: theirs.iter().map(|sample| sample.prefill).collect(),
        decode: theirs.iter().map(|sample| sample.decode).collect(),
        tokens: theirs.iter().fold((0, 0), |(read, written), sample| {
            (read + sample.tokens.0, written + sample.tokens.1)
        }),
        tolerance: *tolerance,
        ratios: compared,
        report,
        lost,
    })
}

/// The back-end that is this plugin, and the model's name there; `backends`: names and plugins.
fn subject<'a>(
    backends: &[(&'a str, &str)],
    plugin: &str,
    model: &'a str,
) -> Result<(&'a str, &'a str)> {
    let mut of_it = backends.iter().filter(|(_, own)| *own == plugin).map(|(name, _)| *name);
    if let Some((name, rest)) = model.split_once('/')
        && backends.iter().any(|(known, _)| *known == name)
    {
        ensure!(of_it.any(|own| own == name), "--model: {name} is not {plugin}");
        return Ok((name, rest));
    }
    match (of_it.next(), of_it.next()) {
        (Some(name), None) => Ok((name, model)),
        (Some(_), Some(_)) => {
            bail!("--model: several back-ends are {plugin}; say BACKEND/{model}")
        }
        (None, _) => {
            bail!("no configured back-end is {plugin}: see plugins.backend and [backends]")
        }
    }
}

struct Sample {
    prefill: f64,
    decode: f64,
    /// Read and written.
    tokens: (u64, u64),
}

/// One measured answer. No prompt is like another, so that nothing of it is remembered.
async fn ask(router: &Router, model: &str, round: u32) -> Result<Sample> {
    let plan = router.resolve(model).await?;
    let line = format!("{round} sheep went over the bridge to the mill, and each carried a sack. ");
    let text = format!("{}Write a long story about them.", line.repeat(12));
    let prompt = Prompt::Chat(vec![Message::text(Role::User, text)]);
    let mut request = Request::new("qualify", plan.provenance().model, prompt);
    request.sampling.temperature = Some(0.0);
    request.max_tokens = Some(ANSWER);
    let (mut usage, mut timings) = (Usage::default(), Timings::default());
    let mut running = router.generate(&plan, request, None).await?;
    while let Some(events) = running.next(64).await? {
        for event in events {
            match event {
                Event::Usage(counts) => usage = counts,
                Event::Timings(times) => timings = times,
                _ => {}
            }
        }
    }
    let read = usage.prompt.saturating_sub(usage.cached);
    if read == 0 || usage.completion == 0 || timings.prefill == 0 || timings.decode == 0 {
        bail!("an answer without counts and times cannot be compared: the back-end tells none");
    }
    Ok(Sample {
        prefill: f64::from(read) * 1e6 / timings.prefill as f64,
        decode: f64::from(usage.completion) * 1e6 / timings.decode as f64,
        tokens: (read.into(), usage.completion.into()),
    })
}

fn median(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied()
}

/// Whether the middle half lies within the tolerance of the median.
fn steady(mut numbers: Vec<f64>, tolerance: f64) -> bool {
    numbers.sort_by(f64::total_cmp);
    let at = |share: usize| numbers.get(numbers.len() * share / 4).copied();
    match (at(1), at(2), at(3)) {
        (Some(low), Some(middle), Some(high)) => high - low <= tolerance * middle,
        _ => false,
    }
}

fn record(settings: &Settings, pin: &Pin, found: &Found) -> Result<Record> {
    let steady = steady(found.prefill.clone(), found.tolerance)
        && steady(found.decode.clone(), found.tolerance);
    let threads =
        engine_config(settings)?.threads.unwrap_or_else(gristmill_kernels::Pool::available);
    let resident = gristmill_engine::memory::resident();
    Ok(Record {
        component: pin.name.clone(),
        component_digest: pin.sha256.clone(),
        host: fingerprint(),
        model: found.report.predicate.model.id.clone(),
        model_digest: found.model_digest.clone(),
        quantization: found.quantization.clone(),
        placement: "cpu".to_owned(),
        threads: u32::try_from(threads).unwrap_or(u32::MAX),
        prefill_tokens: found.tokens.0,
        decode_tokens: found.tokens.1,
        prefill_per_second: median(found.prefill.clone()).unwrap_or(0.0),
        decode_per_second: median(found.decode.clone()).unwrap_or(0.0),
        memory: resident
            .map(|bytes| ("resident".to_owned(), bytes))
            .into_iter()
            .collect::<BTreeMap<_, _>>(),
        result: if steady { ResultClass::Steady } else { ResultClass::Unsteady },
        date: Date::now(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_back_end_of_the_candidate_is_the_one_that_is_measured() {
        let all = [("cpu", "cpu"), ("fast", "vllm"), ("one", "ollama"), ("two", "ollama")];
        for (plugin, model, found) in [
            ("cpu", "m", Some(("cpu", "m"))),
            ("vllm", "m", Some(("fast", "m"))),
            ("vllm", "fast/m", Some(("fast", "m"))),
            ("vllm", "team/m", Some(("fast", "team/m"))),
            ("ollama", "two/a/m", Some(("two", "a/m"))),
            ("ollama", "m", None),
            ("vllm", "cpu/m", None),
            ("mlx", "m", None),
        ] {
            assert_eq!(subject(&all, plugin, model).ok(), found, "{plugin} {model}");
        }
    }

    #[test]
    fn the_middle_half_says_whether_it_was_steady() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(Vec::new()), None);
        assert!(steady(vec![100.0, 101.0, 102.0, 99.0, 10.0, 500.0], 0.05));
        assert!(!steady(vec![100.0, 140.0, 60.0, 99.0, 10.0, 500.0], 0.05));
        assert!(!steady(Vec::new(), 0.05));
    }
}
