//! What a host remembers outside the ledger's folder: the highest sequence it has seen of each name.
//!
//! Whoever can write the folder can put an older pin back into it, validly signed as it is, and an
//! older log beside. This file lies elsewhere, so the older pin is still refused. It also says which
//! older pin a rollback on this host put in force.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{LedgerError, disk, seal};

const MAX_STATE_BYTES: u64 = 1 << 20;

/// What is remembered of a name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seen {
    /// The highest sequence that was in force.
    pub highest: u64,
    /// Digest of the older pin that a rollback put in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback: Option<String>,
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
        let seen = self.names.get(name).cloned().unwrap_or_default();
        let next = Seen { highest: seen.highest.max(sequence), rollback };
        if self.names.get(name) == Some(&next) {
            return Ok(());
        }
        self.names.insert(name.to_owned(), next);
        let Some(path) = &self.path else { return Ok(()) };
        let text = toml::to_string(&self.names)
            .map_err(|error| LedgerError::refused("invalid-state", path, error.to_string()))?;
        disk::write(path, seal::seal(&text).as_bytes())
    }
}
