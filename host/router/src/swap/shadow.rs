//! A copy of a request for a candidate in the shadow: answered, compared with the real answer, and
//! dropped.
//!
//! The copy runs in a task of its own, outside the queue, with its own bound; beyond it nothing is
//! copied. The real answer never waits for it: all it does is to hash what it says. Text, reasoning,
//! calls (without their ids, which are made up) and the reason of the end are compared, however they
//! are cut into events; of failures the code. A real answer that nobody reads to its end is not
//! compared, and its copy is dropped with it.

use std::{pin::pin, sync::Arc};

use futures_util::future::{Either, select};
use gristmill_core::{Code, Error, event::Event, request::Request};
use tokio::sync::oneshot;

use super::{Trial, trial::Copying};
use crate::{
    keep::Lease,
    live::{Backends, Slot},
    turn::Turn,
};

/// Most events taken from a copy at a time.
const BATCH: u32 = 64;

/// What came of a request, as far as it is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    Said(Said),
    Failed(Code),
}

/// What was said, as running FNV-1a hashes: text, reasoning, calls, end.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Said([u64; 4]);

impl Said {
    fn new() -> Self {
        Self([0xcbf2_9ce4_8422_2325; 4])
    }

    fn hear(&mut self, event: &Event) {
        let Self([text, reasoning, calls, end]) = self;
        match event {
            Event::Text(piece) => mix(text, piece.as_bytes()),
            Event::Reasoning(piece) => mix(reasoning, piece.as_bytes()),
            Event::ToolStart(start) => {
                mix(calls, &start.index.to_le_bytes());
                mix(calls, start.name.as_bytes());
                mix(calls, &[0]);
            }
            Event::ToolArguments(_, piece) => mix(calls, piece.as_bytes()),
            Event::ToolEnd(_) => mix(calls, &[0]),
            Event::Finish(finish) => mix(end, finish.reason.as_bytes()),
            Event::Tokens(_) | Event::Usage(_) | Event::Timings(_) | Event::Other(..) => {}
        }
    }
}

fn mix(hash: &mut u64, bytes: &[u8]) {
    *hash = bytes
        .iter()
        .fold(*hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
}

/// Listens to the real answer. Dropped without an end, the copy is dropped too.
pub(crate) struct Tap {
    said: Said,
    end: Option<oneshot::Sender<Outcome>>,
}

impl Tap {
    pub(crate) fn hear(&mut self, events: &[Event]) {
        events.iter().for_each(|event| self.said.hear(event));
    }

    pub(crate) fn finish(&mut self) {
        self.send(Outcome::Said(self.said.clone()));
    }

    pub(crate) fn fail(&mut self, error: &Error) {
        self.send(Outcome::Failed(error.code.clone()));
    }

    fn send(&mut self, outcome: Outcome) {
        if let Some(end) = self.end.take() {
            // Nobody listens any more: the copy was withdrawn.
            let _ = end.send(outcome);
        }
    }
}

/// A place for a copy of the request with this id, if the candidate wants one and has room.
pub(crate) fn place(slot: &Slot, id: &str) -> Option<Copying> {
    let lineup = slot.lineup();
    let candidate = lineup.candidate.as_ref()?;
    let shadow = matches!(candidate.trial, Trial::Shadow { .. });
    (shadow && candidate.takes(id)).then(|| candidate.copy())?
}

/// Lets the copy run beside the real answer. `lease` keeps its model in memory meanwhile.
pub(crate) fn run(
    backends: &Arc<Backends>,
    slot: &Arc<Slot>,
    place: Copying,
    request: Request,
    lease: Option<Lease>,
) -> Tap {
    let (end, real) = oneshot::channel();
    let turn = Turn::begin(backends, slot, Arc::clone(&place.0.generation));
    let (backends, slot) = (Arc::clone(backends), Arc::clone(slot));
    tokio::spawn(async move {
        let _lease = lease;
        let copy = pin!(answered(turn, request));
        let (copy, real) = match select(copy, real).await {
            Either::Left((copy, real)) => (copy, real.await),
            Either::Right((Ok(real), copy)) => (copy.await, Ok(real)),
            Either::Right((Err(_), _)) => return,
        };
        let Ok(real) = real else { return };
        if copy != Outcome::Failed(Code::Drained) && real != Outcome::Failed(Code::Drained) {
            backends.compared(&slot, &place.0, copy != real);
        }
    });
    Tap { said: Said::new(), end: Some(end) }
}

async fn answered(mut turn: Turn, request: Request) -> Outcome {
    let backend = Arc::clone(&turn.generation().backend);
    let mut running = match turn.wait(backend.generate(request)).await {
        Ok(running) => running,
        Err(error) => return Outcome::Failed(error.code),
    };
    let mut said = Said::new();
    loop {
        match turn.wait(running.next(BATCH)).await {
            Ok(Some(events)) => {
                events.iter().for_each(|event| said.hear(event));
                turn.heard(events.len());
            }
            Ok(None) => {
                turn.finish();
                return Outcome::Said(said);
            }
            Err(error) => return Outcome::Failed(error.code),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_core::event::{Finish, ToolStart};

    fn said(events: &[Event]) -> Said {
        let mut said = Said::new();
        events.iter().for_each(|event| said.hear(event));
        said
    }

    #[test]
    fn what_is_said_counts_and_not_how_it_is_cut() {
        let text = |text: &str| Event::Text(text.into());
        let call = |id: &str, name: &str| {
            Event::ToolStart(ToolStart { index: 0, id: id.into(), name: name.into() })
        };
        let end = |reason: &str| Event::Finish(Finish::because(reason));
        let same = said(&[text("one two"), call("a", "f"), Event::ToolEnd(0), end("stop")]);
        let cut =
            said(&[text("one"), text(" two"), call("b", "f"), Event::ToolEnd(0), end("stop")]);
        assert_eq!(same, cut);
        for other in [
            vec![text("one"), call("a", "f"), Event::ToolEnd(0), end("stop")],
            vec![text("one two"), call("a", "g"), Event::ToolEnd(0), end("stop")],
            vec![text("one two"), call("a", "f"), Event::ToolEnd(0), end("length")],
            vec![
                Event::Reasoning("one two".into()),
                call("a", "f"),
                Event::ToolEnd(0),
                end("stop"),
            ],
        ] {
            assert_ne!(said(&other), same, "{other:?}");
        }
    }
}
