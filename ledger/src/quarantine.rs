//! Components that had too many faults, and are not put in force until somebody releases them.
//!
//! Quarantine has no file of its own: it is what the log's lines of it say, so that a crash leaves it as
//! it was before a line or as it is after, and nobody lifts it without a trace. A component is meant by
//! its digest, whatever pins are of it.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Keeper, LedgerError,
    date::Date,
    digest::is_digest,
    disk,
    history::{Filed, History},
    log::{Chain, Event, LOG, What},
    look,
};

/// Why and since when a component is in quarantine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantine {
    /// The name of its pin; its digest where none was known.
    pub name: String,
    /// What happened.
    pub reason: String,
    /// Since when.
    pub since: Date,
}

impl Chain {
    /// The components in quarantine, by SHA-256.
    #[must_use]
    pub fn quarantined(&self) -> BTreeMap<String, Quarantine> {
        let mut all = BTreeMap::new();
        for entry in &self.entries {
            let Some(component) = &entry.event.component else { continue };
            match entry.event.what {
                What::Quarantine => {
                    all.entry(component.clone()).or_insert_with(|| Quarantine {
                        name: entry.event.name.clone(),
                        reason: entry.event.reason.clone().unwrap_or_default(),
                        since: entry.date,
                    });
                }
                What::Release => {
                    all.remove(component);
                }
                _ => {}
            }
        }
        all
    }
}

impl Keeper {
    /// Puts a component in quarantine: it is neither promoted nor gone back to until it is released. What
    /// is in force stays so. `name`: its pin's, where one is known. Whether it was not there.
    ///
    /// # Errors
    /// `invalid-pin` for what is no digest, `clock-set-back`, or that the log cannot be written.
    pub fn quarantine(
        &mut self,
        name: Option<&str>,
        component: &str,
        reason: &str,
        now: Date,
        by: &str,
    ) -> Result<bool, LedgerError> {
        let digest = bare(component);
        if !is_digest(digest) {
            let path = self.dir.join(LOG);
            let reason = format!("{component:?}: expected the SHA-256 of a component");
            return Err(LedgerError::Invalid { path, reason });
        }
        if self.log().quarantined().contains_key(digest) {
            return Ok(false);
        }
        let mut event = Event::new(What::Quarantine, name.unwrap_or(digest));
        event.component = Some(digest.to_owned());
        event.reason = Some(reason.to_owned());
        event.by = Some(by.to_owned());
        self.log.append(event, now)?;
        Ok(true)
    }

    /// Lets components be put in force again: the one of this digest, or all that pins of this name are of.
    /// Their digests.
    ///
    /// # Errors
    /// `not-quarantined`, `broken-history`, `clock-set-back`, or that the log cannot be written.
    pub fn release(
        &mut self,
        what: &str,
        reason: Option<&str>,
        now: Date,
        by: &str,
    ) -> Result<Vec<String>, LedgerError> {
        let mut quarantined = self.log().quarantined();
        let digest = bare(what);
        if is_digest(digest) {
            quarantined.retain(|component, _| component == digest);
        } else {
            let own = self.components(what)?;
            quarantined.retain(|component, known| known.name == what || own.contains(component));
        }
        if quarantined.is_empty() {
            let reason =
                format!("{what:?} is not in quarantine; `gristmill ledger status` says what is");
            return Err(LedgerError::refused("not-quarantined", &self.dir.join(LOG), reason));
        }
        for (component, Quarantine { name, .. }) in &quarantined {
            let mut event = Event::new(What::Release, name.as_str());
            event.component = Some(component.clone());
            event.reason = reason.map(str::to_owned);
            event.by = Some(by.to_owned());
            self.log.append(event, now)?;
        }
        Ok(quarantined.into_keys().collect())
    }

    /// The components of all pins of a name that there are. Pins that cannot be read have none.
    fn components(&self, name: &str) -> Result<BTreeSet<String>, LedgerError> {
        let place = look::named(&self.dir, look::PINS, name)?;
        let mut pins: Vec<Filed> = History::open(&self.dir, name)?.files.into_values().collect();
        for path in [disk::beside(&place), place, self.candidate(name)] {
            pins.extend(Filed::read(&path).ok().flatten());
        }
        Ok(pins.into_iter().map(|filed| filed.pin.sha256).collect())
    }
}

/// A digest without `sha256:` in front.
fn bare(digest: &str) -> &str {
    digest.strip_prefix("sha256:").unwrap_or(digest)
}
