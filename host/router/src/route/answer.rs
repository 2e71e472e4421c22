//! An answer under way, and what it holds until it ends.

use std::{sync::Arc, time::Duration};

use gristmill_core::{Result, event::Event};
use gristmill_sandbox::backend::Generation as Running;

use super::Provenance;
use crate::{keep::Lease, live::Generation, queue::Permit};

/// An answer under way. Dropping it stops the work, gives the place in the queue to the next and
/// starts the model's keep-alive time, in this order.
pub struct Answer {
    pub(super) running: Option<Box<dyn Running>>,
    pub(super) provenance: Provenance,
    pub(super) queued: Duration,
    pub(super) held: Option<Held>,
}

/// Dropped in this order.
pub(super) struct Held {
    pub(super) _permit: Permit,
    pub(super) _lease: Option<Lease>,
    pub(super) _generation: Arc<Generation>,
}

impl Answer {
    /// Who answers.
    #[must_use]
    pub fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    /// Waits for at least one event and returns at most `max`; `None`: finished. What the answer
    /// held is free as soon as it has ended, well or badly.
    ///
    /// # Errors
    /// The failure that ended the answer; nothing follows it.
    pub async fn next(&mut self, max: u32) -> Result<Option<Vec<Event>>> {
        let Some(running) = self.running.as_mut() else { return Ok(None) };
        let mut result = running.next(max).await;
        if let Ok(Some(events)) = &mut result {
            for event in events {
                if let Event::Timings(timings) = event {
                    let queued = u64::try_from(self.queued.as_micros()).unwrap_or(u64::MAX);
                    timings.queue = timings.queue.saturating_add(queued);
                }
            }
        } else {
            self.running = None;
            self.held = None;
        }
        result.map_err(|error| self.provenance.naming(error))
    }
}
