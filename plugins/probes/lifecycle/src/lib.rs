//! Probe: a back-end says whether it can serve, answers for the model it was asked for and no other,
//! lets go of what was cancelled wherever it was, and goes on after a failure.
#![cfg_attr(target_arch = "wasm32", no_std)]

mod cancel;
mod crash;

use gristmill_plugin::{prelude::*, probe::serving};
use probe_kit::{
    Bench, Verdict,
    ask::{Answer, ask},
    failed, not_applicable, short,
};

probe_kit::suite! {
    "lifecycle.health" of "conduct.lifecycle" if Always => health,
    "lifecycle.unknown-model" of "conduct.identity" if Always => unknown_model,
    "lifecycle.answering-model" of "conduct.identity" if Generates => answering_model,
    "lifecycle.cancel-queue" of "conduct.lifecycle" if Generates => cancel::queue,
    "lifecycle.cancel-prefill" of "conduct.lifecycle" if Generates => cancel::prefill,
    "lifecycle.cancel-decode" of "conduct.lifecycle" if Generates => cancel::decode,
    "lifecycle.recovery" of "conduct.lifecycle" if Generates => recovery,
    "lifecycle.crash" of "conduct.lifecycle" if Generates => crash::crash,
    "lifecycle.interleaved" of "conduct.identity" if Generates => interleaved,
}

/// Health is told, and a back-end that says it is ready answers.
fn health(bench: &Bench) -> Verdict {
    let health = serving::health()?;
    if health.detail.is_empty() {
        return failed("expected a sentence on its health", format!("ready: {}", health.ready));
    }
    if !health.ready {
        return failed("the back-end is not ready", health.detail);
    }
    if bench.ready_for("inference.text", probe_kit::When::Generates).is_ok() {
        ask(&bench.request("Hello.", 1))?;
    }
    Ok(health.detail)
}

/// Nobody answers for a model that is not there, by a name of its own or by one that is nearly right,
/// whatever is asked of it.
fn unknown_model(bench: &Bench) -> Verdict {
    let near = format!("{}-conformance-gone", bench.model);
    let seen = absent(bench, "conformance-no-such-model")?;
    absent(bench, &near)?;
    Ok(seen)
}

fn absent(bench: &Bench, absent: &str) -> Verdict {
    let mut request = bench.request("Hello.", 1);
    absent.clone_into(&mut request.model);
    // A bridge to a server that answers to any name finds out from the answer: an upstream's failure.
    let seen = match ask(&request) {
        Ok(answer) => return failed("another model answered", short(&answer.text)),
        Err(error) if matches!(&*error.code, "not-found" | "unsupported" | "upstream-error") => {
            format!("{}: {}", error.code, error.message)
        }
        Err(error) => {
            return failed("expected not-found", format!("{}: {}", error.code, error.message));
        }
    };
    if serving::tokenize(absent, "a", false).is_ok() {
        return failed("tokens of a model that is not there", absent);
    }
    let embedding = serving::embed(&EmbedRequest {
        model: absent.to_owned(),
        inputs: vec!["a".to_owned()],
        dimensions: None,
        truncate: false,
        extras: Vec::new(),
    });
    if embedding.is_ok() {
        return failed("a vector of a model that is not there", absent);
    }
    let ranking = serving::rerank(&RerankRequest {
        model: absent.to_owned(),
        query: "a".to_owned(),
        documents: vec!["a".to_owned(), "b".to_owned()],
        top_n: None,
        extras: Vec::new(),
    });
    if ranking.is_ok() {
        return failed("a ranking of a model that is not there", absent);
    }
    Ok(seen)
}

/// Where an answer names its model, it is the one that was asked, each time. Which weights computed is
/// not seen from here.
fn answering_model(bench: &Bench) -> Verdict {
    let answer = ask(&bench.request("Hello.", 2))?;
    let mut named = answer.others.iter().filter(|(name, _)| name == "model").map(|(_, name)| name);
    let names = bench.info.as_ref().map(|info| info.names.as_slice()).unwrap_or_default();
    let id = bench.info.as_ref().map(|info| info.id.as_str());
    let own = |name: &String| *name == bench.model || id == Some(name) || names.contains(name);
    let told = named.clone().count();
    match named.find(|name| !own(name)) {
        Some(other) => {
            failed("another model answered", format!("{other} instead of {}", bench.model))
        }
        None if told == 0 => not_applicable("answers do not name their model; the host does"),
        None => Ok(format!("{}, named {told} times", bench.model)),
    }
}

/// Requests that must fail do, and the next one is served.
fn recovery(bench: &Bench) -> Verdict {
    let mut bad = bench.request("Hello.", 4);
    bad.constraint = Some(Constraint::JsonSchema("{".to_owned()));
    let first = ask(&bad).err().map(|error| error.code);
    let mut gone = bench.request("Hello.", 4);
    gone.model.push_str("-gone");
    let second = ask(&gone).err().map(|error| error.code);
    let answer = ask(&bench.request("Hello.", 4))?;
    if first.is_none() && second.is_none() {
        return not_applicable("no request failed, so there was nothing to recover from");
    }
    let health = serving::health()?;
    if !health.ready {
        return failed("not ready after requests that failed", health.detail);
    }
    Ok(format!("{first:?}, {second:?}, then {}", short(&answer.seen())))
}

/// Two answers at a time are what each is alone.
fn interleaved(bench: &Bench) -> Verdict {
    let counting = bench.request("Count from one to ten in words.", 20);
    let naming = bench.request("Name the months of the year.", 20);
    let alone = [ask(&counting)?.seen(), ask(&naming)?.seen()];
    if let [one, other] = &alone
        && one == other
    {
        return not_applicable(format!("both answers are {}: nothing could be mixed", short(one)));
    }
    if alone.first() != Some(&ask(&counting)?.seen()) {
        return not_applicable("greedy answers do not repeat, so there is nothing to compare with");
    }
    let mut running = [serving::generate(&counting)?, serving::generate(&naming)?].map(Some);
    let mut answers = [Answer::default(), Answer::default()];
    while running.iter().any(Option::is_some) {
        for (slot, answer) in running.iter_mut().zip(&mut answers) {
            let Some(generation) = slot else { continue };
            match generation.next(1)? {
                Some(events) => events.into_iter().for_each(|event| answer.add(event)),
                None => *slot = None,
            }
        }
    }
    for (one, other) in alone.iter().zip(&answers) {
        if *one != other.seen() {
            let seen = format!("{} | {}", short(one), short(&other.seen()));
            return failed("an answer beside another is not what it is alone", seen);
        }
    }
    Ok("both are what they are alone".to_owned())
}
