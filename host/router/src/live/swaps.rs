//! How line-ups change: installation, promotion, the way back, retirement, quarantine.
//!
//! Whatever has to be asked of a component is asked before the writer's lock is taken; under it
//! pointers change and nothing waits. Each change is told while the lock is held, so that the events
//! come in the order of the changes; only that a generation has drained is told without it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use gristmill_core::{
    Code, Error, Result,
    capability::{Descriptor, ModelInfo},
};
use gristmill_sandbox::backend::Backend;

use super::{Backends, Limits, Lineup, Slot, Source};
use crate::{
    generation::{Generation, listed},
    swap::{
        Happened, Named, Rollout, Standing, SwapError, SwapEvent, Swapped, Trial, Why,
        guard::Sample, trial::Candidate,
    },
};

/// Longest wait for a candidate's word on what it is.
const DESCRIBE_PATIENCE: Duration = Duration::from_secs(10);

/// A component that has said what it is and what it serves.
struct Proven {
    backend: Arc<dyn Backend>,
    descriptor: Descriptor,
    models: Option<Arc<[ModelInfo]>>,
}

impl Proven {
    async fn of(
        name: &str,
        source: Source,
        backend: Arc<dyn Backend>,
    ) -> std::result::Result<Self, SwapError> {
        let failed = |step, error| SwapError::Candidate { backend: name.to_owned(), step, error };
        let descriptor = tokio::time::timeout(DESCRIBE_PATIENCE, backend.describe())
            .await
            .unwrap_or_else(|_| {
                let patience = DESCRIBE_PATIENCE.as_secs();
                Err(Error::new(Code::UpstreamTimeout, format!("no word within {patience} s")))
            })
            .map_err(|error| failed("say what it is", error))?;
        let models = match source {
            Source::Store => None,
            Source::Listed => {
                let models = listed(&*backend).await;
                Some(models.map_err(|error| failed("list its models", error))?)
            }
        };
        Ok(Self { backend, descriptor, models })
    }

    fn generation(
        self,
        numbers: &mut HashMap<String, u64>,
        name: &str,
        rollout: Rollout,
    ) -> Arc<Generation> {
        let number = numbers.entry(name.to_owned()).or_default();
        *number += 1;
        let generation = Generation::new(*number, self.descriptor, self.backend, rollout);
        if let Some(models) = self.models {
            generation.knows(models);
        }
        Arc::new(generation)
    }
}

impl Backends {
    /// Makes this component what answers under `name`; its generation number. Source and limits
    /// are settled by the first installation. Unlike a promotion it does not ask whether the
    /// component is there already, nor whether its server is.
    ///
    /// # Errors
    /// The component's own error when it cannot say what it is, `blocked` when its digest is in
    /// quarantine; what was live stays live.
    pub async fn install(
        &self,
        name: &str,
        source: Source,
        limits: Limits,
        backend: Arc<dyn Backend>,
    ) -> Result<u64> {
        self.allowed(backend.digest())?;
        let descriptor = backend.describe().await?;
        let proven = Proven { backend, descriptor, models: None };
        let mut numbers = self.writer();
        self.allowed(proven.backend.digest())?;
        let generation = proven.generation(&mut numbers, name, Rollout::default());
        let number = generation.number;
        self.tell(name, &generation, Happened::Installed(Trial::None));
        match self.slot(name) {
            Some(slot) => {
                self.succeed(&slot, generation);
            }
            None => {
                let slot = Slot::new(name, source, limits, Arc::clone(&generation));
                let slots = self.slots.load_full();
                self.slots.store(Arc::new(slots.iter().cloned().chain([slot]).collect()));
                self.tell(name, &generation, Happened::Promoted { replaced: None });
            }
        }
        Ok(number)
    }

    /// Puts a component in the place of what answers under `name`, after its trial if it has one.
    /// What runs goes on. Asking for what answers already changes nothing but ends a trial of
    /// something else; asking for what is on trial without a trial promotes it at once. What comes
    /// [`Rollout::anew`] is never there already.
    ///
    /// # Errors
    /// [`SwapError`]; nothing has changed.
    pub(crate) async fn promote(
        &self,
        name: &str,
        backend: Arc<dyn Backend>,
        rollout: Rollout,
    ) -> std::result::Result<Swapped, SwapError> {
        rollout.check()?;
        let digest = backend.digest().to_owned();
        let live = || self.slot(name).ok_or_else(|| SwapError::Unknown(name.to_owned()));
        self.allowed(&digest)?;
        let source = {
            let _writer = self.writer();
            let slot = live()?;
            if let Some(swapped) = self.already(&slot, &digest, &rollout) {
                return Ok(swapped);
            }
            slot.source
        };
        let proven = Proven::of(name, source, backend).await?;

        let mut numbers = self.writer();
        // Much may have happened in the meantime.
        self.allowed(&digest)?;
        let slot = live()?;
        if let Some(swapped) = self.already(&slot, &digest, &rollout) {
            return Ok(swapped);
        }
        let trial = rollout.trial;
        let lineup = slot.lineup();
        let guard = rollout.guard.against(&lineup.current.window.report());
        let generation = proven.generation(&mut numbers, name, Rollout { guard, ..rollout });
        self.tell(name, &generation, Happened::Installed(trial));
        let named = generation.named();
        let swapped = |standing, replaced| Swapped {
            backend: name.to_owned(),
            generation: named,
            standing,
            replaced,
        };
        if trial == Trial::None {
            let replaced = self.succeed(&slot, generation);
            return Ok(swapped(Standing::Live, Some(replaced)));
        }
        self.withdraw(&slot, Why::Replaced);
        let candidate = Some(Arc::new(Candidate::new(generation, trial)));
        slot.lineup.store(Arc::new(Lineup { candidate, ..Lineup::clone(&slot.lineup()) }));
        Ok(swapped(Standing::OnTrial, None))
    }

    /// One step back: a trial is withdrawn; without one the previous generation answers again, and
    /// what it takes over from leaves. There is no way back from a way back.
    ///
    /// # Errors
    /// `unknown-backend`, `no-previous-generation`, `quarantined`.
    pub(crate) fn rollback(&self, name: &str) -> std::result::Result<Swapped, SwapError> {
        let _writer = self.writer();
        let slot = self.slot(name).ok_or_else(|| SwapError::Unknown(name.to_owned()))?;
        let replaced = match self.withdraw(&slot, Why::Asked) {
            Some(withdrawn) => withdrawn,
            None => {
                let none = || SwapError::NoPrevious(name.to_owned());
                let previous = slot.lineup().previous.clone().ok_or_else(none)?;
                self.allowed(&previous.digest)?;
                self.back(&slot, Why::Asked).ok_or_else(none)?
            }
        };
        Ok(Swapped {
            backend: name.to_owned(),
            generation: slot.current().named(),
            standing: Standing::Live,
            replaced: Some(replaced),
        })
    }

    /// Takes a name out of service; answers that run, and requests that wait, have the drain time of
    /// what answers. Whether it was there.
    pub fn retire(&self, name: &str) -> bool {
        let _writer = self.writer();
        let slots = self.slots.load_full();
        let Some(slot) = self.slot(name) else { return false };
        self.slots
            .store(Arc::new(slots.iter().filter(|slot| slot.name != name).cloned().collect()));
        self.withdraw(&slot, Why::Replaced);
        let current = slot.current();
        self.tell(name, &current, Happened::Retired);
        current.life.drain(current.rollout.drain);
        self.drained(name, &current);
        true
    }

    /// Takes note of a request that was answered, and judges.
    pub(crate) fn observe(&self, slot: &Slot, generation: &Arc<Generation>, sample: Sample) {
        generation.window.take(sample);
        let lineup = slot.lineup();
        let candidate = lineup.candidate(generation);
        let elsewhere = match (candidate, &lineup.previous) {
            (Some(_), _) => &lineup.current,
            (None, Some(previous)) if watched(&lineup.current, generation) => previous,
            _ => return,
        };
        if let Some(breach) = generation.window.broken(elsewhere.window.failing()) {
            self.leave(slot, generation, &Why::Guardrail(breach));
        } else if let Some(candidate) = candidate
            && candidate.answered()
        {
            self.finish(slot, candidate);
        }
    }

    /// Takes note of a compared copy, and judges.
    pub(crate) fn compared(&self, slot: &Slot, candidate: &Arc<Candidate>, differs: bool) {
        match candidate.compared(differs) {
            Err(breach) => self.leave(slot, &candidate.generation, &Why::Guardrail(breach)),
            Ok(true) => self.finish(slot, candidate),
            Ok(false) => {}
        }
    }

    /// Takes note of a fault of this digest; the one too many puts it in quarantine, and what was
    /// there before takes over wherever it serves. Without a predecessor it serves on: each fault
    /// ends its own request only, and something must answer.
    pub(crate) fn fault(&self, digest: &str, error: &Error) {
        // A back-end may pass on the fault of a family, whose own it stays.
        let another = |of: &str| of != digest;
        if error.code != Code::PluginFault || error.detail("digest").is_some_and(another) {
            return;
        }
        let _writer = self.writer();
        if let Some(faults) = self.record.strike(digest) {
            self.say(about(digest, Happened::Quarantined { faults }));
            self.banish(digest, &Why::Quarantined(faults));
        }
    }

    /// Takes note of a list of models that was not told, once for each time it was asked for.
    pub(crate) fn unlisted(&self, backend: &str, generation: &Generation) {
        if let Some(error) = generation.fresh_failure() {
            tracing::warn!(backend, code = %error.code, "cannot list models");
            self.fault(&generation.digest, &error);
        }
    }

    /// Puts a digest in quarantine by hand. Whether it was not there.
    pub(crate) fn quarantine(&self, digest: &str, reason: &str) -> bool {
        let _writer = self.writer();
        let fresh = self.record.quarantine(digest, reason);
        if fresh {
            self.say(about(digest, Happened::Quarantined { faults: 0 }));
            self.banish(digest, &Why::Quarantined(0));
        }
        fresh
    }

    /// Lets a digest be installed again. Whether it was in quarantine.
    pub(crate) fn release(&self, digest: &str) -> bool {
        let _writer = self.writer();
        let released = self.record.release(digest);
        if released {
            self.say(about(digest, Happened::Released));
        }
        released
    }

    /// Tells that the last answer of a replaced generation has ended, if it has.
    pub(crate) fn drained(&self, name: &str, generation: &Generation) {
        if let Some(ended) = generation.life.drained() {
            self.tell(name, generation, Happened::Drained { ended });
        }
    }

    fn allowed(&self, digest: &str) -> std::result::Result<(), SwapError> {
        match self.record.reason(digest) {
            Some(reason) => Err(SwapError::Quarantined { digest: digest.to_owned(), reason }),
            None => Ok(()),
        }
    }

    // What follows is called with the writer's lock held.

    /// What a promotion of something that is there already does.
    fn already(&self, slot: &Slot, digest: &str, rollout: &Rollout) -> Option<Swapped> {
        if rollout.anew {
            return None;
        }
        let lineup = slot.lineup();
        let swapped = |generation: &Generation, standing, replaced| {
            let backend = slot.name.clone();
            Some(Swapped { backend, generation: generation.named(), standing, replaced })
        };
        if lineup.current.digest == digest {
            self.withdraw(slot, Why::Replaced);
            return swapped(&lineup.current, Standing::Unchanged, None);
        }
        let candidate = lineup.candidate.as_ref().filter(|c| c.generation.digest == digest)?;
        if rollout.trial == Trial::None {
            let replaced = self.succeed(slot, Arc::clone(&candidate.generation));
            return swapped(&candidate.generation, Standing::Live, Some(replaced));
        }
        (rollout.trial == candidate.trial)
            .then(|| swapped(&candidate.generation, Standing::Unchanged, None))?
    }

    /// Gives a generation all traffic; what it replaced.
    fn succeed(&self, slot: &Slot, generation: Arc<Generation>) -> Named {
        if slot.lineup().candidate(&generation).is_none() {
            self.withdraw(slot, Why::Replaced);
        }
        let old = slot.lineup.load_full();
        let now = tokio::time::Instant::now();
        generation.promoted.store(Some(Arc::new(now)));
        // What was bound otherwise must not come back by a guardrail.
        let kept = (!generation.rollout.anew).then(|| Arc::clone(&old.current));
        if kept.is_none() {
            slot.leaves(&old.current);
        }
        slot.lineup.store(Arc::new(Lineup {
            current: Arc::clone(&generation),
            previous: kept,
            candidate: None,
        }));
        if let Some(gone) = &old.previous {
            slot.leaves(gone);
        }
        let replaced = old.current.named();
        let what = Happened::Promoted { replaced: Some(replaced.clone()) };
        self.tell(&slot.name, &generation, what);
        old.current.life.drain(generation.rollout.drain);
        self.drained(&slot.name, &old.current);
        replaced
    }

    /// Ends a trial without a promotion; whose it was.
    fn withdraw(&self, slot: &Slot, why: Why) -> Option<Named> {
        let old = slot.lineup.load_full();
        let gone = &old.candidate.as_ref()?.generation;
        slot.lineup.store(Arc::new(Lineup { candidate: None, ..Lineup::clone(&old) }));
        slot.leaves(gone);
        self.tell(&slot.name, gone, Happened::Withdrawn(why));
        // A shadow's answers are for nobody.
        let shadow = matches!(gone.rollout.trial, Trial::Shadow { .. });
        gone.life.drain(if shadow { Duration::ZERO } else { gone.rollout.drain });
        self.drained(&slot.name, gone);
        Some(gone.named())
    }

    /// Lets the previous generation answer again; what it takes over from.
    fn back(&self, slot: &Slot, why: Why) -> Option<Named> {
        let old = slot.lineup.load_full();
        let previous = old.previous.as_ref()?;
        previous.life.serve();
        previous.renew();
        slot.lineup.store(Arc::new(Lineup {
            current: Arc::clone(previous),
            previous: None,
            candidate: old.candidate.clone(),
        }));
        let gone = &old.current;
        slot.leaves(gone);
        self.tell(&slot.name, gone, Happened::RolledBack { to: previous.named(), why });
        gone.life.drain(gone.rollout.drain);
        self.drained(&slot.name, gone);
        Some(gone.named())
    }

    /// Takes traffic from a digest wherever something else can have it.
    fn banish(&self, digest: &str, why: &Why) {
        for slot in self.slots.load().iter() {
            let lineup = slot.lineup();
            if lineup.candidate.as_ref().is_some_and(|c| c.generation.digest == digest) {
                self.withdraw(slot, why.clone());
            }
            let other = |previous: &Arc<Generation>| self.allowed(&previous.digest).is_ok();
            if lineup.current.digest == digest && lineup.previous.as_ref().is_some_and(other) {
                self.back(slot, why.clone());
            }
        }
    }

    // What follows takes the lock itself, and does nothing where somebody was faster.

    /// Takes traffic from a generation that broke its guardrail.
    fn leave(&self, slot: &Slot, generation: &Arc<Generation>, why: &Why) {
        let _writer = self.writer();
        let lineup = slot.lineup();
        if lineup.candidate(generation).is_some() {
            self.withdraw(slot, why.clone());
        } else if Arc::ptr_eq(&lineup.current, generation)
            && lineup
                .previous
                .as_ref()
                .is_some_and(|previous| self.allowed(&previous.digest).is_ok())
        {
            self.back(slot, why.clone());
        }
    }

    /// Promotes a candidate whose trial went well.
    fn finish(&self, slot: &Slot, candidate: &Arc<Candidate>) {
        let _writer = self.writer();
        let still = slot.lineup().candidate(&candidate.generation).is_some();
        if still && self.allowed(&candidate.generation.digest).is_ok() {
            self.succeed(slot, Arc::clone(&candidate.generation));
        }
    }
}

impl Slot {
    fn leaves(&self, generation: &Arc<Generation>) {
        let mut leaving = self.leaving.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        leaving.retain(|generation| generation.strong_count() > 0);
        leaving.push(Arc::downgrade(generation));
    }
}

/// Whether this generation is the current one and has not proven itself.
fn watched(current: &Arc<Generation>, generation: &Arc<Generation>) -> bool {
    let since = generation.promoted.load_full();
    Arc::ptr_eq(current, generation)
        && since.is_some_and(|since| since.elapsed() <= generation.window.guard().watch)
}

fn about(digest: &str, what: Happened) -> SwapEvent {
    let generation = Named { generation: 0, digest: digest.to_owned() };
    tracing::warn!(digest, "{}", what.word());
    SwapEvent { backend: String::new(), generation, what }
}
