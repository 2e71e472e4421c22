//! An answer under way, and what it holds until it ends.

use std::time::Duration;

use gristmill_core::{Result, event::Event};
use gristmill_policies::Judgement;
use gristmill_sandbox::backend::Generation as Running;

use super::{Plan, Provenance};
use crate::{keep::Lease, queue::Permit, swap::shadow::Tap, turn::Turn};

/// An answer under way. Dropping it stops the work, gives the place in the queue to the next and
/// starts the model's keep-alive time, in this order.
pub struct Answer {
    running: Option<Box<dyn Running>>,
    turn: Option<Turn>,
    held: Option<Held>,
    tap: Option<Tap>,
    queued: Duration,
    plan: Plan,
    provenance: Provenance,
    judgement: Judgement,
}

/// What a request holds from the queue to its end. Dropped in this order.
pub(super) struct Held {
    pub(super) permit: Permit,
    pub(super) _lease: Option<Lease>,
}

impl Answer {
    pub(super) fn new(
        running: Box<dyn Running>,
        turn: Turn,
        held: Held,
        tap: Option<Tap>,
        plan: Plan,
        judgement: Judgement,
    ) -> Self {
        let queued = held.permit.waited();
        let provenance = plan.provenance();
        let (running, turn, held) = (Some(running), Some(turn), Some(held));
        Self { running, turn, held, tap, queued, plan, provenance, judgement }
    }

    /// What policies and profiles did to the request.
    #[must_use]
    pub fn judgement(&self) -> &Judgement {
        &self.judgement
    }

    /// Who answers.
    #[must_use]
    pub fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    /// The plan that it was settled on: further answers to the same request that are asked for with
    /// it come from the same generation.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Waits for at least one event and returns at most `max`; `None`: finished. What the answer
    /// held is free as soon as it has ended, well or badly.
    ///
    /// # Errors
    /// The failure that ended the answer, `drained` when its generation was replaced and its time is
    /// over; nothing follows it.
    pub async fn next(&mut self, max: u32) -> Result<Option<Vec<Event>>> {
        let (Some(running), Some(turn)) = (self.running.as_mut(), self.turn.as_mut()) else {
            return Ok(None);
        };
        match turn.wait(running.next(max)).await {
            Ok(Some(mut events)) => {
                turn.heard(events.len());
                if let Some(tap) = &mut self.tap {
                    tap.hear(&events);
                }
                for event in &mut events {
                    if let Event::Timings(timings) = event {
                        let queued = u64::try_from(self.queued.as_micros()).unwrap_or(u64::MAX);
                        timings.queue = timings.queue.saturating_add(queued);
                    }
                }
                Ok(Some(events))
            }
            Ok(None) => {
                turn.finish();
                if let Some(tap) = &mut self.tap {
                    tap.finish();
                }
                self.free();
                Ok(None)
            }
            Err(error) => {
                if let Some(tap) = &mut self.tap {
                    tap.fail(&error);
                }
                self.free();
                Err(self.provenance.naming(error))
            }
        }
    }

    fn free(&mut self) {
        self.running = None;
        self.turn = None;
        self.held = None;
    }
}
