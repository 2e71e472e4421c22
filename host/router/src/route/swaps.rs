//! What the router lets others do to its back-ends: install, promote, roll back, retire, release.

use std::sync::Arc;

use gristmill_core::Result;
use gristmill_sandbox::backend::Backend;

use super::Router;
use crate::{
    generation::Generation,
    live::{Limits, Slot, Source},
    swap::{
        GenerationReport, Quarantined, Role, Rollout, SwapError, SwapWatch, Swapped, TrialReport,
    },
};

impl Router {
    /// Tells this one of every swap from now on. The first one stays; whether it is this one.
    pub fn watch(&self, watch: Arc<dyn SwapWatch>) -> bool {
        self.backends.watch.set(watch).is_ok()
    }

    /// Makes a component what answers under a name; its generation number.
    ///
    /// # Errors
    /// As [`crate::live::Backends::install`].
    pub async fn install(
        &self,
        name: &str,
        source: Source,
        limits: Limits,
        backend: Arc<dyn Backend>,
    ) -> Result<u64> {
        self.backends.install(name, source, limits, backend).await
    }

    /// Puts a component in the place of what answers under a live name, after its trial if the
    /// rollout has one. The component is compiled and verified by whoever calls; here it has to say
    /// what it is and, where it lists models itself, which. Answers under way go on where they
    /// began, until the drain time is over.
    ///
    /// Asking twice changes nothing: for what answers already ([`crate::Standing::Unchanged`]; a
    /// trial of something else ends), or for the same trial. Asking without a trial for what is on
    /// one promotes it at once.
    ///
    /// # Errors
    /// [`SwapError`]; nothing has changed.
    pub async fn promote(
        &self,
        name: &str,
        backend: Arc<dyn Backend>,
        rollout: Rollout,
    ) -> std::result::Result<Swapped, SwapError> {
        self.backends.promote(name, backend, rollout).await
    }

    /// One step back, at once: a trial is withdrawn; without one the previous generation, which is
    /// kept ready, answers again. What it takes over from leaves, so that there is no second step.
    ///
    /// # Errors
    /// `unknown-backend`, `no-previous-generation`, `quarantined`.
    pub fn rollback(&self, name: &str) -> std::result::Result<Swapped, SwapError> {
        self.backends.rollback(name)
    }

    /// Takes a name out of service. Requests that run or wait may go on for the drain time. Whether
    /// it was live.
    pub fn retire(&self, name: &str) -> bool {
        self.backends.retire(name)
    }

    /// Puts a digest in quarantine, for instance because it was there when the host was last
    /// stopped; what answered before it takes over. Whether it was not there.
    pub fn quarantine(&self, digest: &str, reason: &str) -> bool {
        self.backends.quarantine(digest, reason)
    }

    /// Lets a digest be installed again, its faults forgotten. Whether it was in quarantine.
    pub fn release(&self, digest: &str) -> bool {
        self.backends.release(digest)
    }

    /// The digests that may not be installed.
    #[must_use]
    pub fn quarantined(&self) -> Vec<Quarantined> {
        self.backends.record.list()
    }

    /// The generations of a live name: what answers, what is on trial, what is kept to go back to,
    /// and what still has answers running. Empty: the name is not live.
    #[must_use]
    pub fn generations(&self, name: &str) -> Vec<GenerationReport> {
        let Some(slot) = self.backends.slot(name) else { return Vec::new() };
        let lineup = slot.lineup();
        let mut reports = vec![self.report(&slot, &lineup.current, Role::Current, None)];
        if let Some(candidate) = &lineup.candidate {
            let trial = Some(candidate.report());
            reports.push(self.report(&slot, &candidate.generation, Role::Candidate, trial));
        }
        if let Some(previous) = &lineup.previous {
            reports.push(self.report(&slot, previous, Role::Previous, None));
        }
        let leaving = slot.leaving();
        let running = leaving.iter().filter(|generation| generation.life.running() > 0);
        reports.extend(running.map(|leaving| self.report(&slot, leaving, Role::Leaving, None)));
        reports
    }

    fn report(
        &self,
        slot: &Slot,
        generation: &Generation,
        role: Role,
        trial: Option<TrialReport>,
    ) -> GenerationReport {
        GenerationReport {
            backend: slot.name.clone(),
            generation: generation.named(),
            role,
            kind: generation.descriptor.kind.clone(),
            version: generation.descriptor.version.clone(),
            running: generation.life.running(),
            drain: generation.life.left(),
            window: generation.window.report(),
            faults: self.backends.record.faults(&generation.digest),
            quarantined: self.backends.record.reason(&generation.digest).is_some(),
            trial,
        }
    }
}
