//! A probe with one check: an answer of a back-end ends, and says why. Add the checks of yours.
#![cfg_attr(target_arch = "wasm32", no_std)]

use gristmill_plugin::{prelude::*, probe::serving};

/// The plugin.
pub struct Plugin;

gristmill_plugin::export_probe!(Plugin);

impl Probe for Plugin {
    fn checks() -> Vec<&'static str> {
        vec!["answer-ends"]
    }

    fn run(check: &str, plan: &Plan) -> Check {
        let mut request = Request::new(&*plan.model, Prompt::Text("Say yes.".to_owned()));
        request.max_tokens = Some(16);
        judge(check, events(&request)).of("inference.text")
    }
}

/// All events of an answer.
fn events(request: &Request) -> Result<Vec<Event>> {
    let answer = serving::generate(request)?;
    let mut events = Vec::new();
    while let Some(batch) = answer.next(64)? {
        events.extend(batch);
    }
    Ok(events)
}

/// What the events show.
fn judge(check: &str, events: Result<Vec<Event>>) -> Check {
    match events {
        Err(error) => Check::failed(check, "the answer failed", error.code),
        Ok(events) => match events.last() {
            Some(Event::Finish(finish)) => Check::passed(check, &*finish.reason),
            _ => Check::failed(check, "no finish at the end", format!("{} events", events.len())),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_plugin::probe::Outcome;

    #[test]
    fn an_answer_without_an_end_fails() {
        let good = judge("answer-ends", Ok(vec![Event::finish("stop")]));
        assert_eq!((good.outcome, &*good.evidence), (Outcome::Passed, "stop"));
        let bad = judge("answer-ends", Ok(vec![Event::Text("yes".to_owned())]));
        assert!(matches!(bad.outcome, Outcome::Failed(_)));
    }
}
