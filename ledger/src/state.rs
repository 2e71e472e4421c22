//! What a host remembers outside the ledger's folder: the highest sequence it has seen of each name.
//!
//! Whoever can write the folder can put an older pin back into it, validly signed as it is, and an
//! older log beside. This file lies elsewhere, so the older pin is still refused. It also says which
//! older pin a rollback on this host put in force.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{LedgerError, disk, log::Standing, seal};

const MAX_STATE_BYTES: u64 = 1 << 20;

/// What is remembered of a name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Seen {
    /// The highest sequence that was in force.
    pub highest: u64,
    /// Digest of the older pin that a rollback put in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback: Option<String>,
    /// [`Seen::rollback`] before the rollback that is under way: what it is again if that does not come
    /// to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
}

/// The state file.
#[derive(Debug, Clone, Default)]
pub struct State {
    path: Option<PathBuf>,
    names: BTreeMap<String, Seen>,
}

impl State {
    /// Reads the file; one that is missing remembers nothing. Without a path nothing is remembered.
    ///
    /// # Errors
    /// `invalid-state`: it is damaged. Nothing is believed then.
    pub fn open(path: Option<&Path>) -> Result<Self, LedgerError> {
        let Some(path) = path else { return Ok(Self::default()) };
        let invalid = |reason: String| {
            let reason = format!(
                "{reason}; remove it only if you know that every pin of the ledger is the newest"
            );
            LedgerError::refused("invalid-state", path, reason)
        };
        let names = match disk::read_if_there(path, MAX_STATE_BYTES)? {
            None => BTreeMap::new(),
            Some(bytes) => {
                let text = String::from_utf8(bytes).map_err(|error| invalid(error.to_string()))?;
                let text = seal::open(&text).map_err(invalid)?;
                toml::from_str(text).map_err(|error| invalid(error.to_string()))?
            }
        };
        Ok(Self { path: Some(path.to_owned()), names })
    }

    /// What is remembered of this name.
    #[must_use]
    pub fn seen(&self, name: &str) -> Option<&Seen> {
        self.names.get(name)
    }

    /// Whether nothing is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The highest sequence of a name that was ever in force, by the log or as remembered here.
    pub(crate) fn highest(&self, name: &str, standing: &Standing) -> u64 {
        standing.highest.max(self.seen(name).map_or(0, |seen| seen.highest))
    }

    /// Digest of the older pin that may serve although its sequence is lower. Where nothing is
    /// remembered of the name the log is believed.
    pub(crate) fn permitted(&self, name: &str, standing: &Standing) -> Option<String> {
        match self.seen(name) {
            Some(seen) if seen.under_way(standing) => seen.before.clone(),
            Some(seen) => seen.rollback.clone(),
            None => standing.pin.clone(),
        }
    }

    /// Remembers, on the disk before it returns. The highest sequence only grows.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn remember(
        &mut self,
        name: &str,
        sequence: u64,
        rollback: Option<String>,
    ) -> Result<(), LedgerError> {
        self.write(name, Seen { highest: sequence, rollback, before: None })
    }

    /// Remembers a rollback that is not in the log yet, beside what was permitted before it.
    pub(crate) fn begin(
        &mut self,
        name: &str,
        sequence: u64,
        rollback: String,
        before: Option<String>,
    ) -> Result<(), LedgerError> {
        self.write(name, Seen { highest: sequence, rollback: Some(rollback), before })
    }

    fn write(&mut self, name: &str, mut next: Seen) -> Result<(), LedgerError> {
        next.highest = next.highest.max(self.names.get(name).map_or(0, |seen| seen.highest));
        if self.names.get(name) == Some(&next) {
            return Ok(());
        }
        let mut names = self.names.clone();
        names.insert(name.to_owned(), next);
        if let Some(path) = &self.path {
            let text = toml::to_string(&names)
                .map_err(|error| LedgerError::refused("invalid-state", path, error.to_string()))?;
            disk::write(path, seal::seal(&text).as_bytes(), MAX_STATE_BYTES)?;
        }
        self.names = names;
        Ok(())
    }
}

impl Seen {
    /// Whether a rollback was begun and the log still names what was permitted before it.
    fn under_way(&self, standing: &Standing) -> bool {
        self.before.is_some() && self.before == standing.pin
    }
}
