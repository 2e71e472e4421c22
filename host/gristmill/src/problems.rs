//! What is wrong on the disk, and what runs otherwise than it lies there, while what runs goes on.
//!
//! Everything is read and proven when it is asked for and something looks changed since the last time
//! ([`Kept`]). What was changed within the last second is looked at again and again: such a file can
//! change once more without looking different.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use gristmill_api::control::view::Problem;
use gristmill_ledger::{Kind, Report, is_kept, log::LOG};
use gristmill_policies::Policies;
use gristmill_router::Quarantined;

use crate::{
    compose::Places,
    ledger::audit,
    policy::{Unsound, Whole},
    promote::Promoter,
    quarantine::unrecorded,
    stamp::Stamp,
};

/// How long what was found is believed where no file changes: pins expire by the clock.
const FRESH: Duration = Duration::from_secs(30);

/// A problem with a part of the host.
pub(crate) fn problem(part: &str, code: &str, message: impl ToString) -> Problem {
    Problem { part: part.to_owned(), code: code.to_owned(), message: message.to_string() }
}

/// What was found on the disk.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The audit of the ledger.
    pub(crate) report: Report,
    /// What is wrong with the ledger and its components.
    pub(crate) ledger: Vec<Problem>,
    /// What is wrong with the policies.
    pub(crate) policies: Vec<Problem>,
    /// The grants, where they are sound.
    pub(crate) grants: Option<Policies>,
}

impl Found {
    /// Reads and proves everything.
    pub(crate) fn now(places: &Places) -> Self {
        let mut found = Self::default();
        match audit(places) {
            Ok(report) => {
                let faults = report.faults.iter();
                found.ledger = faults.map(|it| problem("ledger", it.code(), it)).collect();
                found.report = report;
            }
            Err(error) => found.ledger.push(problem("ledger", error.code(), error)),
        }
        match Whole::open(places) {
            Ok(whole) => found.grants = Some(whole.grants),
            Err(Unsound { faults, grants }) => {
                let faults = faults.iter();
                found.grants = grants;
                found.policies = faults.map(|it| problem("policies", it.code(), it)).collect();
            }
        }
        found
    }
}

/// What was found the last time, for as long as nothing looks changed.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<Option<(Stamp, Instant, Arc<Found>)>>);

impl Kept {
    /// What there is to be found now. Who asks while somebody looks waits for that.
    pub(crate) fn found(&self, places: &Places) -> Arc<Found> {
        self.get(|| stamp(places), Instant::now(), || Found::now(places))
    }

    fn get(
        &self,
        stamp: impl FnOnce() -> Stamp,
        now: Instant,
        look: impl FnOnce() -> Found,
    ) -> Arc<Found> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Of before the look: what changes during it looks changed afterwards.
        let stamp = stamp();
        if let Some((then, since, found)) = &*kept
            && *then == stamp
            && now.saturating_duration_since(*since) < FRESH
        {
            return Arc::clone(found);
        }
        let found = Arc::new(look());
        *kept = stamp.settled().then(|| (stamp, now, Arc::clone(&found)));
        found
    }
}

/// Everything that [`Found::now`] reads.
fn stamp(places: &Places) -> Stamp {
    let stamp = Stamp::default()
        .with(&places.ledger, true)
        .with(&places.policies, true)
        .with(&places.plugins, false);
    match &places.ledger_state {
        Some(state) => stamp.with(state, false),
        None => stamp,
    }
}

/// Quarantine that a restart would forget.
pub(crate) fn forgettable(promoter: &Promoter, report: &Report) -> Vec<Problem> {
    let Promoter { places, router, .. } = promoter;
    if !is_kept(&places.ledger) {
        return Vec::new();
    }
    let log = places.ledger.join(LOG);
    let told = unrecorded(router, &report.quarantined).into_iter().map(|Quarantined { digest, reason }| {
        let message = format!(
            "{}: {digest} is in quarantine ({reason}) and the log does not say so, so that a restart forgets it; see that the log can be written, then send SIGHUP",
            log.display()
        );
        problem("ledger", "quarantine-unrecorded", message)
    });
    told.collect()
}

/// Pins in force that were left and stay in the ledger.
pub(crate) fn left(promoter: &Promoter) -> Vec<Problem> {
    let pins = promoter.places.ledger.join("pins");
    let left = promoter.left();
    let told = left.iter().map(|(name, left)| {
        let place = pins.join(format!("{name}.toml"));
        let message = format!(
            "{}: {}; a restart runs it again: pin what answers, or promote it anew",
            place.display(),
            left.why
        );
        problem("ledger", "not-gone-back", message)
    });
    told.collect()
}

/// Back-ends and families that run with another grant than the one on the disk, or for which there is none
/// any more.
pub(crate) fn ungranted(promoter: &Promoter, grants: Option<&Policies>) -> Vec<Problem> {
    let Some(grants) = grants else { return Vec::new() };
    let folder = promoter.places.policies.display();
    let before = |what: &str, plugin: &str| {
        let message = format!(
            "{folder}/grants: {what} with the grant of before, because the new one was refused (the log says why) or was not come to yet; mend it, pin {plugin} anew, or send SIGHUP"
        );
        problem("policies", "grant-not-applied", message)
    };
    let backends = promoter.configured.names().filter_map(|(backend, plugin)| {
        match grants.grant(plugin, Kind::Backend) {
            Ok(grant) if promoter.applies(backend, grant) => None,
            Ok(_) => Some(before(&format!("{backend} runs as {plugin}"), plugin)),
            Err(error) => Some(problem("policies", error.code(), error)),
        }
    });
    let families = promoter.ungranted(grants).into_iter().map(|(family, missing)| match missing {
        None => before(&format!("the family {family} is asked"), &family),
        Some(error) => problem("policies", error.code(), error),
    });
    backends.chain(families).collect()
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, path::Path};

    use super::*;

    #[test]
    fn it_is_looked_at_again_when_something_changed_and_after_a_while() {
        let (kept, looks) = (Kept::default(), Cell::new(0));
        let begun = Instant::now();
        // It was there before this program was built.
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let ask = |after: Duration, stamp: &Stamp| {
            kept.get(
                || stamp.clone(),
                begun + after,
                || {
                    looks.set(looks.get() + 1);
                    Found::default()
                },
            );
            looks.get()
        };
        let one = Stamp::default().with(&own, false);
        let other = one.clone().with(Path::new("/nowhere"), false);
        assert_eq!(ask(Duration::ZERO, &one), 1);
        assert_eq!(ask(FRESH / 2, &one), 1, "nothing changed");
        assert_eq!(ask(FRESH / 2, &other), 2, "something did");
        assert_eq!(ask(FRESH / 2, &one), 3, "and back");
        assert_eq!(ask(FRESH * 2, &one), 4, "a while ago");

        // What was written just now may be written again without looking different.
        let file = tempfile::NamedTempFile::new().unwrap();
        let fresh = Stamp::default().with(file.path(), false);
        assert_eq!(ask(FRESH * 2, &fresh), 5);
        assert_eq!(ask(FRESH * 2, &fresh), 6);
    }
}
