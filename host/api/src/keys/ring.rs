//! The keys as they are live: the file's, read again when it changes, and the configuration's.
//!
//! The file is looked at with every request, which costs one call to the system: a key that was
//! revoked is refused with the next request, on every file system.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use subtle::ConstantTimeEq as _;

use super::{
    Key, KeyFile, KeysError,
    file::{Entry, Stamp, hash, unhex},
    limit::Limits,
};

/// Who shows a key.
#[derive(Debug, Clone)]
pub enum Who {
    /// Anybody: the host has no keys and asks for none.
    Anybody,
    /// Somebody with a live key.
    Known(Arc<Key>),
    /// Somebody with none, or with one that opens nothing.
    Stranger,
}

/// All live keys.
#[derive(Debug, Default)]
pub struct KeyRing {
    /// The configuration's tokens: inference keys without limits.
    tokens: Vec<Arc<Key>>,
    file: Option<KeyFile>,
    live: Mutex<Live>,
}

#[derive(Debug, Clone, Default)]
struct Live {
    stamp: Option<Stamp>,
    keys: Arc<Vec<Arc<Key>>>,
    /// The file has entries, live or not: nobody comes in without a key.
    closed: bool,
    problem: Option<KeysError>,
}

impl KeyRing {
    /// These tokens, as inference keys without limits, and the keys of the file.
    ///
    /// # Errors
    /// As [`KeyFile::read`]; [`KeysError::Wanted`] for an empty token.
    pub fn open(tokens: &[String], file: Option<KeyFile>) -> Result<Self, KeysError> {
        if tokens.iter().any(|token| token.trim().is_empty()) {
            let reason = "an API token is empty; remove it or give it a value";
            return Err(KeysError::Wanted(reason.to_owned()));
        }
        let tokens = tokens.iter().enumerate().map(|(place, token)| {
            Arc::new(Key {
                name: format!("server.tokens[{place}]"),
                operator: false,
                models: None,
                hash: hash(token.trim().as_bytes()),
                limits: Arc::new(Limits::new(None, None)),
            })
        });
        let ring = Self { tokens: tokens.collect(), file, live: Mutex::default() };
        match ring.live().problem {
            Some(problem) => Err(problem),
            None => Ok(ring),
        }
    }

    /// Whether anybody may come in with one.
    #[must_use]
    pub fn any(&self) -> bool {
        !self.tokens.is_empty() || !self.live().keys.is_empty()
    }

    /// What keeps the file from being read now. The keys are those of before.
    #[must_use]
    pub fn problem(&self) -> Option<KeysError> {
        self.live().problem
    }

    /// Who shows one of these. Every key is compared, and in the same time.
    #[must_use]
    pub fn who(&self, shown: &[&[u8]]) -> Who {
        let live = self.live();
        if self.tokens.is_empty() && !live.closed {
            return Who::Anybody;
        }
        let mut found = None;
        for shown in shown.iter().map(|shown| hash(shown.trim_ascii())) {
            for key in self.tokens.iter().chain(live.keys.iter()) {
                if bool::from(key.hash.ct_eq(&shown)) {
                    found = Some(key);
                }
            }
        }
        found.map_or(Who::Stranger, |key| Who::Known(Arc::clone(key)))
    }

    /// The file's keys, after a look whether it changed.
    fn live(&self) -> Live {
        let Some(file) = &self.file else { return Live::default() };
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = match file.stamp() {
            Ok(stamp) => stamp,
            Err(problem) => {
                live.stay(problem);
                return live.clone();
            }
        };
        if stamp == live.stamp && live.problem.as_ref().is_none_or(stays) {
            return live.clone();
        }
        live.take(file.path(), file.read_if_there());
        live.stamp = stamp;
        live.clone()
    }
}

impl Live {
    /// Makes these the keys; none: there was no file when it was read.
    fn take(&mut self, path: &Path, read: Result<Option<Vec<Entry>>, KeysError>) {
        let entries = match read {
            Ok(Some(entries)) => entries,
            // Whoever takes the file away opens no door by it, and shuts none.
            Ok(None) if self.closed => {
                let reason = "the file of the keys is gone; its keys are still in force".to_owned();
                return self.stay(KeysError::Io { path: path.to_owned(), reason });
            }
            Ok(None) => Vec::new(),
            Err(problem) => return self.stay(problem),
        };
        if self.closed || !entries.is_empty() {
            tracing::info!(keys = entries.len(), "keys read");
        }
        self.keys = Arc::new(keys(&entries, &self.keys));
        self.closed |= !entries.is_empty();
        self.problem = None;
    }

    /// Stays as it is and says why, once.
    fn stay(&mut self, problem: KeysError) {
        if self.problem.as_ref() != Some(&problem) {
            tracing::error!(code = problem.code(), %problem, "the keys stay as they were");
        }
        self.problem = Some(problem);
    }
}

/// Whether it takes a change of the file to be rid of it.
fn stays(problem: &KeysError) -> bool {
    matches!(problem, KeysError::Invalid { .. } | KeysError::Writable { .. })
}

/// Live keys for these entries. A key whose limits are as they were has used up what it had.
fn keys(entries: &[Entry], before: &[Arc<Key>]) -> Vec<Arc<Key>> {
    let live = entries.iter().filter(|entry| entry.revoked.is_none());
    live.filter_map(|entry| {
        let hash = unhex(&entry.sha256)?;
        let same =
            |key: &&Arc<Key>| key.hash == hash && key.limits.are(entry.rate, entry.concurrent);
        let limits = match before.iter().find(same) {
            Some(key) => Arc::clone(&key.limits),
            None => Arc::new(Limits::new(entry.rate, entry.concurrent)),
        };
        Some(Arc::new(Key {
            name: entry.name.clone(),
            operator: entry.operator,
            models: entry.models.clone(),
            hash,
            limits,
        }))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Wanted;

    #[test]
    fn a_file_that_goes_away_before_it_is_read_leaves_its_keys() {
        let folder = tempfile::tempdir().unwrap();
        let file = KeyFile::new(folder.path().join("keys.toml"));
        let mut live = Live::default();
        live.take(file.path(), file.read_if_there());
        assert!(!live.closed && live.problem.is_none(), "no file at a start: no keys");

        file.add(Wanted { name: "ci".to_owned(), ..Wanted::default() }).unwrap();
        live.take(file.path(), file.read_if_there());
        assert_eq!((live.keys.len(), live.closed), (1, true));

        std::fs::remove_file(file.path()).unwrap();
        live.take(file.path(), file.read_if_there());
        assert_eq!((live.keys.len(), live.closed), (1, true));
        assert_eq!(live.problem.map(|problem| problem.code()), Some("keys-unreadable"));
    }
}
