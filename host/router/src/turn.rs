//! One request's turn on one generation: it is counted there, timed, and ended when the
//! generation's time is over.
//!
//! Only what the component is waited for is timed. How the turn ended goes into the generation's
//! window and, if the plugin was at fault, against its digest; either may swap generations, at once
//! and without a wait.

use std::{sync::Arc, time::Duration};

use gristmill_core::{Error, Result};
use tokio::time::Instant;

use crate::{
    generation::Generation,
    live::{Backends, Slot},
    swap::guard::{Sample, blames},
};

/// A turn. Dropping it ends it.
pub(crate) struct Turn {
    backends: Arc<Backends>,
    slot: Arc<Slot>,
    generation: Arc<Generation>,
    waited: Duration,
    /// Wait for the first events, and how many came then.
    first: Option<(Duration, usize)>,
    events: usize,
    over: bool,
}

impl Turn {
    pub(crate) fn begin(
        backends: &Arc<Backends>,
        slot: &Arc<Slot>,
        generation: Arc<Generation>,
    ) -> Self {
        generation.life.begin();
        Self {
            backends: Arc::clone(backends),
            slot: Arc::clone(slot),
            generation,
            waited: Duration::ZERO,
            first: None,
            events: 0,
            over: false,
        }
    }

    pub(crate) fn generation(&self) -> &Arc<Generation> {
        &self.generation
    }

    /// Waits for the component.
    ///
    /// # Errors
    /// Its own; `drained` when the generation's time is over.
    pub(crate) async fn wait<T>(&mut self, call: impl Future<Output = Result<T>>) -> Result<T> {
        let waiting = Waiting { waited: &mut self.waited, since: Instant::now() };
        let outcome = self.generation.life.until(call).await;
        drop(waiting);
        if let Err(error) = &outcome {
            self.end(Some(error));
        }
        outcome
    }

    /// So many events came.
    pub(crate) fn heard(&mut self, events: usize) {
        self.events += events;
        self.first.get_or_insert((self.waited, events));
    }

    /// The answer ended well.
    pub(crate) fn finish(&mut self) {
        self.end(None);
    }

    fn end(&mut self, error: Option<&Error>) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        let Self { backends, slot, generation, .. } = self;
        if let Some(error) = error {
            backends.fault(&generation.digest, error);
        }
        let failed = error.is_some_and(blames);
        if error.is_some() && !failed {
            return;
        }
        let first = self.first.map(|(time, _)| time);
        let each = self.first.and_then(|(time, events)| {
            let later = u32::try_from(self.events - events).ok().filter(|later| *later > 0)?;
            Some((self.waited - time) / later)
        });
        backends.observe(slot, generation, Sample { failed, first, each });
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // A caller who gave up says something of a component that kept him waiting, else nothing.
        if !self.over && self.first.is_none() && self.generation.window.is_late(self.waited) {
            let first = Some(self.waited);
            let sample = Sample { first, ..Sample::default() };
            self.backends.observe(&self.slot, &self.generation, sample);
        }
        self.generation.life.end();
        self.backends.drained(&self.slot.name, &self.generation);
    }
}

/// Adds up the time, also of a wait that is dropped.
struct Waiting<'a> {
    waited: &'a mut Duration,
    since: Instant,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        *self.waited += self.since.elapsed();
    }
}
