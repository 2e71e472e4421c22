//! Quarantine outlives the host: the router's is written into the ledger's log, and what the log says of
//! it, and of releases, the router is told. Nothing is written beside a folder that is no ledger yet;
//! there quarantine is in memory alone.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use gristmill_ledger::{
    Date, LedgerError, Quarantine, is_kept,
    log::{Chain, What},
};
use gristmill_router::{Quarantined, Router};

use crate::{
    ledger::keeper,
    promote::{Promoter, Turn},
};

/// Who puts components in quarantine, for the log.
const BY: &str = "the host";

/// Up to which line of the log the router knows what it says.
#[derive(Debug, Default)]
pub(crate) struct Agreed(Mutex<u64>);

impl Agreed {
    fn upto(&self) -> MutexGuard<'_, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does in the router what the log's new lines say, in their order: a release takes back the quarantine
    /// that was before it and none that came after.
    pub(crate) fn obey(&self, router: &Router, log: &Chain) {
        let mut upto = self.upto();
        for entry in log.entries.iter().filter(|entry| entry.number > *upto) {
            let Some(component) = &entry.event.component else { continue };
            let digest = format!("sha256:{component}");
            match entry.event.what {
                What::Quarantine => {
                    router.quarantine(&digest, entry.event.reason.as_deref().unwrap_or_default());
                }
                What::Release => {
                    router.release(&digest);
                }
                _ => {}
            }
        }
        *upto = log.entries.last().map_or(0, |last| last.number);
    }
}

/// Brings router and log to the same, whoever of them knows more.
///
/// # Errors
/// The log cannot be read or written. The router keeps to its own meanwhile.
pub(crate) fn agree(turn: &Turn<'_>) -> Result<(), LedgerError> {
    let Promoter { places, router, quarantine, .. } = turn.promoter();
    if !is_kept(&places.ledger) {
        return Ok(());
    }
    let chain = Chain::open(&places.ledger)?;
    quarantine.obey(router, &chain);
    if unrecorded(router, &chain.quarantined()).is_empty() {
        return Ok(());
    }
    let mut keeper = keeper(places)?;
    // Somebody may have written while the lock was waited for.
    quarantine.obey(router, keeper.log());
    let pins = gristmill_ledger::status(&places.ledger).unwrap_or_default();
    for Quarantined { digest, reason } in unrecorded(router, &keeper.log().quarantined()) {
        let pin = pins.iter().find(|status| status.pin.digest() == digest);
        let name = pin.map(|status| status.name.clone());
        keeper.quarantine(name.as_deref(), &digest, &reason, Date::now(), BY)?;
        tracing::warn!(digest, reason, plugin = name, "quarantine is in the ledger's log");
    }
    quarantine.obey(router, keeper.log());
    Ok(())
}

/// What is in quarantine in the router and not in the ledger.
pub(crate) fn unrecorded(
    router: &Router,
    recorded: &BTreeMap<String, Quarantine>,
) -> Vec<Quarantined> {
    let known = |one: &Quarantined| {
        recorded.contains_key(one.digest.strip_prefix("sha256:").unwrap_or(&one.digest))
    };
    router.quarantined().into_iter().filter(|one| !known(one)).collect()
}
