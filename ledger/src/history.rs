//! Superseded pins: `history/NAME/SEQUENCE.toml`, byte for byte as they were in force. Each pin names
//! the digest of the one before it, so that the files form a chain.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use crate::{LedgerError, MAX_PIN_BYTES, Pin, disk, sha256};

/// The folder's name in a ledger.
pub(crate) const HISTORY: &str = "history";

/// A pin's file: where it lies, its text and digest, and what it says.
#[derive(Debug, Clone, PartialEq)]
pub struct Filed {
    /// Where.
    pub path: PathBuf,
    /// Its bytes.
    pub text: String,
    /// Digest of its bytes.
    pub digest: String,
    /// What it says.
    pub pin: Pin,
}

impl Filed {
    /// Reads a pin's file; none where there is none.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, LedgerError> {
        let invalid = |reason: String| LedgerError::Invalid { path: path.to_owned(), reason };
        let Some(bytes) = disk::read_if_there(path, MAX_PIN_BYTES)? else { return Ok(None) };
        let text = String::from_utf8(bytes).map_err(|error| invalid(error.to_string()))?;
        let pin = Pin::parse(&text).map_err(|reason| {
            invalid(format!("{reason}; if an editor left it half-written, write it again"))
        })?;
        Ok(Some(Self { path: path.to_owned(), digest: sha256(text.as_bytes()), text, pin }))
    }

    /// Whether a pin in `pins/` lies in the file of its own name.
    ///
    /// # Errors
    /// `duplicate-pin` where the file of its name is there too, else `invalid-pin`.
    pub(crate) fn named(&self) -> Result<(), LedgerError> {
        let name = &self.pin.name;
        let own = self.path.with_file_name(format!("{name}.toml"));
        if own == self.path {
            return Ok(());
        }
        if own.exists() {
            let reason = format!(
                "a second pin for {name}, beside {name}.toml: a plugin has exactly one; remove the wrong one"
            );
            return Err(LedgerError::refused("duplicate-pin", &self.path, reason));
        }
        let reason = format!("the pin is for {name}; its file must be named {name}.toml");
        Err(LedgerError::Invalid { path: self.path.clone(), reason })
    }
}

pub(crate) fn path(ledger: &Path, name: &str, sequence: u64) -> PathBuf {
    ledger.join(HISTORY).join(name).join(format!("{sequence}.toml"))
}

/// The superseded pins of a name, by the digests of their files.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) files: BTreeMap<String, Filed>,
}

impl History {
    /// Reads them. Each must be a pin of this name and of the sequence that its file is named by.
    pub(crate) fn open(ledger: &Path, name: &str) -> Result<Self, LedgerError> {
        let mut files = BTreeMap::new();
        for path in disk::list(&ledger.join(HISTORY).join(name), "toml")? {
            let broken = |reason: String| LedgerError::refused("broken-history", &path, reason);
            let filed = Filed::read(&path)
                .map_err(|error| match error {
                    LedgerError::Invalid { reason, .. } => broken(reason),
                    other => other,
                })?
                .ok_or_else(|| broken("it is gone".to_owned()))?;
            let (found, sequence) = (&filed.pin.name, filed.pin.sequence);
            let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            if found != name || stem != sequence.to_string() {
                return Err(broken(format!(
                    "expected a pin of {name}, sequence {stem}; it is of {found}, sequence {sequence}"
                )));
            }
            files.insert(filed.digest.clone(), filed);
        }
        Ok(Self { files })
    }

    /// The names that have a history.
    pub(crate) fn names(ledger: &Path) -> Result<Vec<String>, LedgerError> {
        let folder = ledger.join(HISTORY);
        let unreadable = |source| LedgerError::Io { path: folder.clone(), source };
        let entries = match std::fs::read_dir(&folder) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(unreadable)?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(unreadable)?;
            if entry.path().is_dir() {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// The pins before this one, newest first.
    ///
    /// # Errors
    /// `broken-history`: one that is named is not there, or its sequence is not lower.
    pub(crate) fn before(&self, filed: &Filed) -> Result<Vec<&Filed>, LedgerError> {
        let mut chain: Vec<&Filed> = Vec::new();
        let mut at = filed;
        while let Some(previous) = &at.pin.previous {
            let broken = |reason: String| LedgerError::refused("broken-history", &at.path, reason);
            let next = self.files.get(previous).ok_or_else(|| {
                broken(format!(
                    "the pin before it, {previous}, is not in history/{}; restore that file",
                    at.pin.name
                ))
            })?;
            if next.pin.sequence >= at.pin.sequence {
                return Err(broken(format!(
                    "sequence {} follows {}; expected a lower one",
                    at.pin.sequence, next.pin.sequence
                )));
            }
            chain.push(next);
            at = next;
        }
        Ok(chain)
    }

    /// The pin to go back to from this one: of this sequence, or the one it names, or the previous one. Who
    /// says a sequence does not ask where the pins lead.
    ///
    /// # Errors
    /// `rollback-cycle`, `no-rollback-target`, `broken-history`.
    pub(crate) fn target(&self, from: &Filed, to: Option<u64>) -> Result<&Filed, LedgerError> {
        let chain = self.before(from)?;
        let mut seen = BTreeSet::new();
        let mut at = Some(from).filter(|_| to.is_none());
        while let Some(filed) = at {
            let pin = &filed.pin;
            seen.insert(pin.sequence);
            if let Some(next) =
                pin.rollback.filter(|next| *next >= pin.sequence || seen.contains(next))
            {
                return Err(LedgerError::refused(
                    "rollback-cycle",
                    &filed.path,
                    format!(
                        "sequence {} goes back to {next}, which is no earlier one; roll back to an earlier one by its number (`--to`), and name one in the next pin",
                        pin.sequence
                    ),
                ));
            }
            at = pin
                .rollback
                .and_then(|next| chain.iter().find(|other| other.pin.sequence == next).copied());
        }
        let none = |reason: String| LedgerError::refused("no-rollback-target", &from.path, reason);
        match to.or(from.pin.rollback) {
            Some(sequence) => chain
                .into_iter()
                .find(|filed| filed.pin.sequence == sequence)
                .ok_or_else(|| none(format!("there is no earlier pin with sequence {sequence}"))),
            None => chain.into_iter().next().ok_or_else(|| none("it is the first pin".to_owned())),
        }
    }
}
