//! A candidate held against the component in force, on this machine: `gristmill ledger qualify`, and the
//! control plane's verb.
//!
//! Both are composed as a host would compose them and asked the same, in turn: the conformance suite,
//! and then the same prompts, the two interleaved so that what else the machine does meets both alike.
//! The report becomes evidence, the medians a performance record and, in a candidate that passes, the pin's
//! guardrail. A candidate that fails a check, no longer passes one that the pin in force passes, or whose
//! paired ratios are below the tolerance, is withdrawn: it is no candidate any more, and report and record
//! stay. One whose measurements were not steady stays as it was, without the guardrail it had.

use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use clap::Args;
use gristmill_api::control::view::{Outcome, Ratio};
use gristmill_ledger::{
    Date, Kind, LedgerError, Pin, candidate,
    evidence::{self, Statement, Verdict},
    guardrail::{Guardrail, Measured, Rates},
    is_kept,
    performance::Record,
    prove::tryable,
};

use crate::{
    compose::{Composed, Places, runtime},
    conformance,
    ledger::keeper,
    measure::{ROUNDS, Samples, TOLERANCE, ask, median, record, subject, with},
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
    let record = record(settings, &pin, &found.report.predicate.model, &found.samples, *tolerance)?;
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

/// What was found.
struct Found {
    report: Statement,
    samples: Samples,
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

    let named = format!("{backend}/{model}");
    let mut samples = [Samples::default(), Samples::default()];
    for round in 0..*rounds {
        let mut sides = [(0, Some(theirs)), (1, ours)];
        if round % 2 == 1 {
            sides.reverse();
        }
        for (side, composed) in sides {
            let Some(composed) = composed else { continue };
            let sample = ask(&composed.router, &named, None, round).await?;
            if let Some(Samples(samples)) = samples.get_mut(side) {
                samples.push(sample);
            }
        }
    }
    let [theirs, ours] = samples;
    let mut ratios = Vec::new();
    for (what, rate) in [
        ("prefill", (|rates| rates.prefill) as fn(&Rates) -> f64),
        ("decode", |rates| rates.decode),
    ] {
        let pairs: Vec<_> =
            theirs.rates(rate).iter().zip(ours.rates(rate)).map(|(a, b)| a / b).collect();
        let count = pairs.len();
        let Some(ratio) = median(pairs) else { continue };
        ratios.push(Ratio { what: what.to_owned(), ratio, pairs: count });
        if ratio < 1.0 - tolerance {
            lost.push(format!("{what} is at {ratio:.3} of what is in force"));
        }
    }
    Ok(Found { report, samples: theirs, ratios, lost })
}
