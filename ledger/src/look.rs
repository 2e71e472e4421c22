//! What is in force for each name and what waits, read without the ledger's lock and without changing
//! anything.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use crate::{
    Kind, LedgerError, MAX_PIN_BYTES, Pin,
    change::pin_changed,
    date::Date,
    digest::is_file_name,
    disk,
    evidence::Resource,
    history::{Filed, HISTORY, History},
    keys::KEYS,
    log::{Chain, LOG, Standing, What},
};

/// The folder of the pins.
pub(crate) const PINS: &str = "pins";

/// The folder of pins that are written and not in force yet.
pub(crate) const CANDIDATES: &str = "candidates";

pub(crate) fn place(dir: &Path, folder: &str, name: &str) -> PathBuf {
    dir.join(folder).join(format!("{name}.toml"))
}

/// The same for a name that may be anything, as one from a request may.
pub(crate) fn named(dir: &Path, folder: &str, name: &str) -> Result<PathBuf, LedgerError> {
    if is_file_name(name) {
        return Ok(place(dir, folder, name));
    }
    let reason = format!("{name:?} is no pin's name");
    Err(LedgerError::Invalid { path: dir.join(folder), reason })
}

/// The text that waits to be promoted: the candidate of a name, or else what lies in the pin's place.
///
/// # Errors
/// `invalid-pin` for what is no pin's name and for a file that is no text, or that it cannot be read.
pub fn waiting(dir: &Path, name: &str) -> Result<Option<String>, LedgerError> {
    for folder in [CANDIDATES, PINS] {
        let path = named(dir, folder, name)?;
        if let Some(bytes) = disk::read_if_there(&path, MAX_PIN_BYTES)? {
            let text = String::from_utf8(bytes);
            let invalid = |reason| LedgerError::Invalid { path, reason };
            return text.map(Some).map_err(|error| invalid(error.to_string()));
        }
    }
    Ok(None)
}

/// The candidate of a name.
///
/// # Errors
/// `invalid-pin`, or that it cannot be read.
pub fn candidate(dir: &Path, name: &str) -> Result<Option<Filed>, LedgerError> {
    Filed::read(&named(dir, CANDIDATES, name)?)
}

/// What lies in a pin's place, whether it is in force or waits.
///
/// # Errors
/// `invalid-pin`, or that it cannot be read.
pub fn in_place(dir: &Path, name: &str) -> Result<Option<Filed>, LedgerError> {
    Filed::read(&named(dir, PINS, name)?)
}

/// The pin in force: the one that the log names or, where that is nowhere or the log knows none, the one
/// in place.
///
/// # Errors
/// `log-tampered`, `invalid-pin`, or a file that cannot be read.
pub fn in_force(dir: &Path, name: &str) -> Result<Option<Filed>, LedgerError> {
    named(dir, PINS, name)?;
    standing(dir, name, &Chain::open(dir)?.standing(name))
}

/// The pin that the log says is in force; none where it names none, or where that is nowhere.
///
/// # Errors
/// `log-tampered`, `invalid-pin`, or a file that cannot be read.
pub fn proven(dir: &Path, name: &str) -> Result<Option<Filed>, LedgerError> {
    named(dir, PINS, name)?;
    match Chain::open(dir)?.standing(name).pin {
        Some(digest) => find(dir, name, &digest),
        None => Ok(None),
    }
}

pub(crate) fn standing(
    dir: &Path,
    name: &str,
    standing: &Standing,
) -> Result<Option<Filed>, LedgerError> {
    if let Some(digest) = &standing.pin
        && let Some(filed) = find(dir, name, digest)?
    {
        return Ok(Some(filed));
    }
    Filed::read(&place(dir, PINS, name))
}

/// The newest superseded pin of this component, by its digest.
///
/// # Errors
/// `no-rollback-target`, `broken-history`, `invalid-pin`, or a file that cannot be read.
pub fn earlier(dir: &Path, name: &str, component: &str) -> Result<Filed, LedgerError> {
    named(dir, PINS, name)?;
    let files = History::open(dir, name)?.files.into_values();
    let of_it = files.filter(|filed| filed.pin.digest() == component);
    of_it.max_by_key(|filed| filed.pin.sequence).ok_or_else(|| {
        let reason = format!("no superseded pin of {component}");
        LedgerError::refused("no-rollback-target", &dir.join(HISTORY).join(name), reason)
    })
}

/// Whether this folder is a ledger: one that has no log or no keys any more is one too, of which nothing
/// is in force or approved.
#[must_use]
pub fn is_kept(dir: &Path) -> bool {
    dir.join(LOG).exists() || dir.join(KEYS).exists()
}

/// The probes in force, with which evidence must have been made. What is promoted needs no pin in force.
///
/// # Errors
/// `log-tampered`, `pin-changed` where another pin in force is nowhere, or a file that cannot be read.
pub fn suite(dir: &Path, promoted: &str) -> Result<Vec<Resource>, LedgerError> {
    let mut suite = Vec::new();
    for (name, standing) in Chain::open(dir)?.standings() {
        let Some(digest) = standing.pin else { continue };
        match find(dir, name, &digest)? {
            Some(Filed { pin, .. }) if pin.kind == Kind::Probe => {
                suite.push(Resource::new(name, &pin.sha256));
            }
            None if name != promoted => {
                return Err(pin_changed(&place(dir, PINS, name), &digest, "another or none"));
            }
            _ => {}
        }
    }
    Ok(suite)
}

/// The pin's file with this digest: in its place, in the history, or beside its place while it is being
/// promoted.
pub(crate) fn find(dir: &Path, name: &str, digest: &str) -> Result<Option<Filed>, LedgerError> {
    let place = place(dir, PINS, name);
    for path in [disk::beside(&place), place] {
        // What cannot be read as a pin is not the one that is sought.
        let there = match Filed::read(&path) {
            Err(LedgerError::Invalid { .. }) => None,
            other => other?,
        };
        if let Some(filed) = there.filter(|filed| filed.digest == digest) {
            return Ok(Some(filed));
        }
    }
    Ok(History::open(dir, name)?.files.remove(digest))
}

/// One line of a ledger's status.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    /// The pin's name.
    pub name: String,
    /// The pin in force.
    pub pin: Pin,
    /// Its file's text.
    pub text: String,
    /// Digest of its file.
    pub digest: String,
    /// Whether the log says that it was proven.
    pub proven: bool,
    /// Whether another pin lies in its place and waits to be proven.
    pub pending: bool,
    /// Whether there is a candidate.
    pub candidate: bool,
    /// Whether the component is in quarantine, and serves because there is nothing to go back to yet.
    pub quarantined: bool,
    /// Since when it is in force.
    pub since: Option<Date>,
}

/// What is in force for every name, without changing anything.
///
/// # Errors
/// `log-tampered`, `invalid-pin`, or a file that cannot be read.
pub fn status(dir: &Path) -> Result<Vec<Status>, LedgerError> {
    let chain = Chain::open(dir)?;
    let (standings, quarantined) = (chain.standings(), chain.quarantined());
    let mut names: BTreeSet<String> = standings.keys().map(|name| (*name).to_owned()).collect();
    for path in disk::list(&dir.join(PINS), "toml")? {
        names.extend(path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned));
    }
    let mut lines = Vec::new();
    for name in names {
        let place = place(dir, PINS, &name);
        let logged = standings.get(name.as_str()).and_then(|standing| standing.pin.clone());
        let proven = match &logged {
            Some(digest) => find(dir, &name, digest)?,
            None => None,
        };
        let known = proven.is_some();
        let Some(filed) = proven.map_or_else(|| Filed::read(&place), |filed| Ok(Some(filed)))?
        else {
            continue;
        };
        if let Some(there) = Filed::read(&place).ok().flatten() {
            // A second pin of another name must not be taken for that one's.
            there.named()?;
        }
        let since = chain.entries.iter().rfind(|entry| {
            entry.event.name == name
                && entry.event.pin.as_ref() == Some(&filed.digest)
                && matches!(entry.event.what, What::Promotion | What::Rollback | What::Abandoned)
        });
        lines.push(Status {
            pending: place.exists() && filed.path.parent() != place.parent(),
            candidate: self::place(dir, CANDIDATES, &name).exists(),
            quarantined: quarantined.contains_key(&filed.pin.sha256),
            proven: known,
            since: since.map(|entry| entry.date),
            text: filed.text,
            digest: filed.digest,
            pin: filed.pin,
            name,
        });
    }
    Ok(lines)
}
