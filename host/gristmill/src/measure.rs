//! How fast a back-end is on this machine.
//!
//! It is composed as a host would compose it and asked for answers of one length, whose counts and times are
//! its own word. The medians are a performance record, and what a guardrail is held against.

use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};
use gristmill_core::{
    event::{Event, Timings, Usage},
    request::{Message, Prompt, Request, Role},
};
use gristmill_ledger::{
    Date, Kind, Ledger, Pin,
    evidence::{Evidence, Model, Statement},
    guardrail::Rates,
    is_kept,
    performance::{Record, ResultClass, latest},
};
use gristmill_router::Router;

use crate::{
    compose::{Composed, Places, Plugins, compose_of, engine_config, measured, runtime},
    ledger::fingerprint,
    settings::Settings,
};

/// Measured answers, where nobody says how many.
pub(crate) const ROUNDS: u32 = 8;
/// How much slower than what is in force a candidate may be, and how unsteady a measurement, where nobody
/// says: five percent.
pub(crate) const TOLERANCE: f64 = 0.05;

/// Tokens of a measured answer.
const ANSWER: u32 = 64;

/// The rooms as they would be with this pin.
pub(crate) async fn with(settings: &Settings, places: &Places, pin: &Pin) -> Result<Composed> {
    let pins = match is_kept(&places.ledger) {
        true => Ledger::in_force(&places.ledger)?,
        false => Ledger::open(&places.ledger)?,
    };
    let others = pins.pins().filter(|other| other.name != pin.name).cloned();
    let ledger = Ledger::from_pins(others.chain([pin.clone()]))?;
    compose_of(settings, places, Plugins::of(places, ledger)?).await
}

/// The back-end that is this plugin, and the model's name there; `backends`: names and plugins.
pub(crate) fn subject<'a>(
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

/// What a pin does on this machine: measured with the model that a report of it was made with, and kept
/// as a record. For who promotes a pin that was measured elsewhere.
///
/// # Errors
/// Why it could not be measured, and when the numbers were not steady enough to hold anything against.
pub(crate) fn now(settings: &Settings, places: &Places, pin: &Pin) -> Result<Record> {
    let name = &pin.name;
    ensure!(
        pin.kind == Kind::Backend,
        "{name} is a {}, and back-ends alone are measured",
        pin.kind
    );
    let reports = Evidence::open(&places.ledger)?;
    let reports: Vec<_> = pin.evidence.iter().filter_map(|digest| reports.file(digest)).collect();
    ensure!(
        !reports.is_empty(),
        "no report says with which model: `gristmill ledger qualify {name}` makes one"
    );
    let (model, samples) = runtime()?.block_on(async {
        let composed = with(settings, places, pin).await?;
        let mut why = Vec::new();
        for report in reports {
            let model = &report.predicate.model;
            match samples(&composed, name, report).await {
                Ok(samples) => return Ok((model.clone(), samples)),
                Err(error) => why.push(format!("{}: {error:#}", model.id)),
            }
        }
        bail!("with no model of its reports: {}", why.join("; "))
    })?;
    let tolerance = pin.guardrail.as_ref().map_or(TOLERANCE, |own| own.tolerance);
    let record = record(settings, pin, &model, &samples, tolerance)?;
    let file = record.store(&places.ledger)?;
    ensure!(
        record.baseline().is_some(),
        "the measurements were not steady within {:.1} %: try it again when this machine has less to do ({})",
        tolerance * 100.0,
        file.display()
    );
    Ok(record)
}

/// What this component did on this class of host with the model of a measurement, when that was last
/// measured steadily.
pub(crate) fn earlier(places: &Places, component: &str, with: &Record) -> Option<Rates> {
    let records = measured(places).ok()?;
    latest(records.iter().filter(|record| {
        record.component_digest == component
            && (&record.model, &record.model_digest) == (&with.model, &with.model_digest)
    }))
}

/// Answers of the model that a report was made with.
async fn samples(composed: &Composed, plugin: &str, report: &Statement) -> Result<Samples> {
    let named = named(composed, plugin, report)?;
    let digest = report.predicate.model.digest.as_deref();
    let mut samples = Samples::default();
    for round in 0..ROUNDS {
        samples.0.push(ask(&composed.router, &named, digest, round).await?);
    }
    Ok(samples)
}

/// `BACKEND/MODEL` of a report, on this host: the back-end it was made with, where that is this plugin here too.
fn named(composed: &Composed, plugin: &str, report: &Statement) -> Result<String> {
    let backends: Vec<_> = composed.configured.names().collect();
    let (tested, model) = (&report.predicate.backend.name, &report.predicate.model.id);
    let same = backends.iter().find(|(name, own)| name == tested && *own == plugin);
    let backend = match same {
        Some((name, _)) => name,
        None => subject(&backends, plugin, model)?.0,
    };
    Ok(format!("{backend}/{model}"))
}

/// One measured answer.
pub(crate) struct Sample {
    /// Tokens a second while the prompt is read, and while the answer is written.
    rates: Rates,
    /// Read and written.
    tokens: (u64, u64),
}

/// Measured answers.
#[derive(Default)]
pub(crate) struct Samples(pub(crate) Vec<Sample>);

impl Samples {
    /// One rate of each.
    pub(crate) fn rates(&self, rate: fn(&Rates) -> f64) -> Vec<f64> {
        self.0.iter().map(|sample| rate(&sample.rates)).collect()
    }

    fn tokens(&self) -> (u64, u64) {
        self.0.iter().fold((0, 0), |(read, written), Sample { tokens, .. }| {
            (read + tokens.0, written + tokens.1)
        })
    }
}

/// One measured answer of a model that has this digest, where one is known. No prompt is like another, so
/// that nothing of it is remembered.
pub(crate) async fn ask(
    router: &Router,
    model: &str,
    digest: Option<&str>,
    round: u32,
) -> Result<Sample> {
    let plan = router.resolve(model).await?;
    if let Some(expected) = digest {
        let found = plan.info().digest.as_deref().unwrap_or("unknown");
        ensure!(expected == found, "{model} is {found} here; the report is of {expected}");
    }
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
        rates: Rates {
            prefill: f64::from(read) * 1e6 / timings.prefill as f64,
            decode: f64::from(usage.completion) * 1e6 / timings.decode as f64,
        },
        tokens: (read.into(), usage.completion.into()),
    })
}

pub(crate) fn median(mut numbers: Vec<f64>) -> Option<f64> {
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

/// The samples of a pin with this model, as the ledger keeps them.
pub(crate) fn record(
    settings: &Settings,
    pin: &Pin,
    model: &Model,
    samples: &Samples,
    tolerance: f64,
) -> Result<Record> {
    let (prefill, decode) = (samples.rates(|it| it.prefill), samples.rates(|it| it.decode));
    let steady = [&prefill, &decode].into_iter().all(|rates| steady(rates.clone(), tolerance));
    let threads =
        engine_config(settings)?.threads.unwrap_or_else(gristmill_kernels::Pool::available);
    let resident = gristmill_engine::memory::resident();
    let digest = model.digest.as_deref();
    let (read, written) = samples.tokens();
    Ok(Record {
        component: pin.name.clone(),
        component_digest: pin.sha256.clone(),
        host: fingerprint(),
        model: model.id.clone(),
        model_digest: digest.map(|it| it.strip_prefix("sha256:").unwrap_or(it).to_owned()),
        quantization: model.quantization.clone().unwrap_or_default(),
        placement: "cpu".to_owned(),
        threads: u32::try_from(threads).unwrap_or(u32::MAX),
        prefill_tokens: read,
        decode_tokens: written,
        prefill_per_second: median(prefill).unwrap_or(0.0),
        decode_per_second: median(decode).unwrap_or(0.0),
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
