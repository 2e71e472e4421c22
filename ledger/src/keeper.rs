//! The keeper: the one process that may change a ledger, and every change it makes.
//!
//! A keeper holds the log's lock. When it opens, it ends what a crash left: a torn log line is cut off,
//! a change that was logged is put in place, one that was staged and not logged is dropped. Until
//! then, and at every moment between, `pins/NAME.toml` is the old pin or the new one, complete.
//!
//! A promotion or rollback takes these steps ([`Step`]); promotions are in `change.rs`.
//!
//! ```text
//! 1 the pin in force is in history   2 the next one is staged   3 a rollback is remembered outside
//! 4 the log has it   5 the traffic moved   6 the pin is in place   7 the log has the swap
//! 8 a promotion is remembered outside
//! ```

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use ed25519_dalek::SigningKey;

use crate::{
    Kind, LedgerError, Pin,
    change::keep,
    contract::World,
    date::Date,
    digest::is_digest,
    disk,
    guardrail::Guardrail,
    history::{Filed, History},
    keys::{KEYS, Keys, sign},
    log::{Chain, Event, LOG, Log, Standing, What},
    prove::Inspected,
    revoked::{REVOKED, Revocation, Revoked},
    sha256,
    state::State,
};

/// The folder of pins that are written and not in force yet.
pub const CANDIDATES: &str = "candidates";

/// A numbered step of a change on the disk; what is told to [`crate::Host::reached`] is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// 1: the pin that was in force lies in the history.
    Kept,
    /// 2: the next pin lies beside its place.
    Staged,
    /// 3: a rollback is remembered outside the folder.
    Permitted,
    /// 4: the log has the promotion or rollback.
    Logged,
    /// 5: the traffic moved.
    Swapped,
    /// 6: the pin is in its place.
    Placed,
    /// 7: the log has the swap.
    Recorded,
    /// 8: the highest sequence is remembered outside the folder.
    Remembered,
}

impl Step {
    /// All steps, in their order.
    pub const ALL: [Self; 8] = [
        Self::Kept,
        Self::Staged,
        Self::Permitted,
        Self::Logged,
        Self::Swapped,
        Self::Placed,
        Self::Recorded,
        Self::Remembered,
    ];

    /// Its number, from 1.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8 + 1
    }
}

/// The facts of a component from which a pin is made.
#[derive(Debug, Clone)]
pub struct Draft<'a> {
    /// The pin's name.
    pub name: &'a str,
    /// The plugin's version; otherwise the one it had, or 0.1.0.
    pub version: Option<&'a str>,
    /// What was asked for.
    pub original: Option<&'a str>,
    /// The component's file name.
    pub file: &'a str,
    /// The component.
    pub component: &'a [u8],
    /// What it is.
    pub inspected: &'a Inspected,
    /// The worlds this build knows; the pin gets its world's digest from them.
    pub worlds: &'a [World],
    /// Digest of the grant's file.
    pub grant: Option<String>,
    /// Digests of the reports that speak for it.
    pub evidence: Vec<String>,
    /// How fast it is.
    pub guardrail: Option<Guardrail>,
    /// The sequence to go back to; otherwise the one in force now.
    pub rollback: Option<u64>,
    /// From when on.
    pub not_before: Option<Date>,
    /// Until when.
    pub expires: Option<Date>,
}

impl<'a> Draft<'a> {
    /// A component's facts, and nothing beyond them.
    #[must_use]
    pub fn new(
        name: &'a str,
        file: &'a str,
        component: &'a [u8],
        inspected: &'a Inspected,
    ) -> Self {
        Self {
            name,
            version: None,
            original: None,
            file,
            component,
            inspected,
            worlds: &[],
            grant: None,
            evidence: Vec::new(),
            guardrail: None,
            rollback: None,
            not_before: None,
            expires: None,
        }
    }
}

/// What must not run any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revoke<'a> {
    /// A component or a pin's file, by SHA-256.
    Digest(&'a str),
    /// A key, by its id.
    Key(&'a str),
}

/// The one writer of a ledger.
#[derive(Debug)]
pub struct Keeper {
    pub(crate) dir: PathBuf,
    pub(crate) log: Log,
    pub(crate) state: State,
}

impl Keeper {
    /// Opens a ledger to change it, and ends what a crash left half done. A folder that has neither
    /// a log nor keys becomes a ledger without keys, threshold 0, as a developer's is.
    ///
    /// `state` is the file outside the folder in which the highest sequences are remembered.
    ///
    /// # Errors
    /// `ledger-busy`, `log-tampered`, or a file that cannot be read or written.
    pub fn open(dir: &Path, state: Option<&Path>) -> Result<Self, LedgerError> {
        std::fs::create_dir_all(dir).map_err(|source| disk::unwritable(dir, source))?;
        if !dir.join(LOG).exists() && !dir.join(KEYS).exists() {
            let path = dir.join(KEYS);
            let text = Keys::default().to_toml();
            let text =
                text.map_err(|reason| LedgerError::refused("invalid-keys", &path, reason))?;
            disk::write(&path, text.as_bytes())?;
        }
        let mut keeper =
            Self { dir: dir.to_owned(), log: Log::open(dir)?, state: State::open(state)? };
        keeper.recover()?;
        Ok(keeper)
    }

    fn recover(&mut self) -> Result<(), LedgerError> {
        let standings: Vec<(String, Standing)> = self
            .log
            .chain()
            .standings()
            .into_iter()
            .map(|(name, standing)| (name.to_owned(), standing))
            .collect();
        for (name, standing) in standings {
            let place = self.place(&name);
            let digest = |path: &Path| {
                disk::read_if_there(path, crate::MAX_PIN_BYTES)
                    .map(|bytes| bytes.map(|bytes| sha256(&bytes)))
            };
            let (there, staged) = (digest(&place)?, digest(&disk::beside(&place))?);
            // Staged comes before logged: a pin that the log names and that is neither in place nor
            // staged was not left by a crash.
            let logged = staged.is_some() && staged == standing.pin;
            if logged && there == standing.from {
                disk::settle(&place)?;
            }
            if standing.retired && there.is_some() && there == standing.from {
                disk::remove(&place)?;
            }
            disk::unstage(&place)?;
            self.remember(&name)?;
        }
        let path = self.dir.join(REVOKED);
        let digest = disk::read_if_there(&disk::beside(&path), 1 << 20)?;
        let digest = digest.map(|bytes| sha256(&bytes));
        if digest.is_some() && digest.as_deref() == self.log.chain().revoked() {
            disk::settle(&path)?;
        }
        disk::unstage(&path)
    }

    /// Raises what is remembered outside to what the log says. A rollback that the log alone knows is
    /// believed only where nothing is remembered of that name.
    fn remember(&mut self, name: &str) -> Result<(), LedgerError> {
        let standing = self.standing(name);
        let seen = self.state.seen(name).cloned();
        let rollback = match &seen {
            _ if standing.sequence >= self.highest(name) => None,
            None => standing.pin.clone(),
            Some(seen) => seen.rollback.clone(),
        };
        self.state.remember(name, standing.highest, rollback)
    }

    /// Says in the log that a promotion or rollback did not come to its end.
    pub(crate) fn abandon(
        &mut self,
        name: &str,
        standing: &Standing,
        code: &str,
        reason: &str,
        now: Date,
    ) -> Result<(), LedgerError> {
        let mut event = Event::new(What::Abandoned, name);
        event.pin.clone_from(&standing.from);
        event.from.clone_from(&standing.pin);
        event.code = Some(code.to_owned());
        event.reason = Some(reason.to_owned());
        event.sequence = match &standing.from {
            Some(digest) => self.find(name, digest)?.map(|filed| filed.pin.sequence),
            None => None,
        };
        self.log.append(event, now).map(|_| ())
    }

    /// The verified log.
    #[must_use]
    pub fn log(&self) -> &Chain {
        self.log.chain()
    }

    /// What the log says of a name.
    #[must_use]
    pub fn standing(&self, name: &str) -> Standing {
        self.log.chain().standings().remove(name).unwrap_or_default()
    }

    /// The highest sequence of a name that was ever in force, here or as remembered outside.
    #[must_use]
    pub fn highest(&self, name: &str) -> u64 {
        let seen = self.state.seen(name).map_or(0, |seen| seen.highest);
        self.standing(name).highest.max(seen)
    }

    /// Digest of the older pin that may serve although its sequence is lower, after a rollback.
    #[must_use]
    pub fn permitted(&self, name: &str) -> Option<String> {
        match self.state.seen(name) {
            Some(seen) => seen.rollback.clone(),
            None => self.standing(name).pin,
        }
    }

    pub(crate) fn place(&self, name: &str) -> PathBuf {
        self.dir.join("pins").join(format!("{name}.toml"))
    }

    /// The pin's file with this digest, in its place or in the history.
    pub(crate) fn find(&self, name: &str, digest: &str) -> Result<Option<Filed>, LedgerError> {
        find(&self.dir, name, digest)
    }

    /// The pin in force: the one the log names or, where that is nowhere or the log knows none, the one
    /// in place.
    ///
    /// # Errors
    /// `invalid-pin` where what lies there is none.
    pub fn in_force(&self, name: &str) -> Result<Option<Filed>, LedgerError> {
        if let Some(digest) = self.standing(name).pin
            && let Some(filed) = self.find(name, &digest)?
        {
            return Ok(Some(filed));
        }
        Filed::read(&self.place(name))
    }

    /// Makes a pin of a component's facts: the next sequence, after the pin in force, unsigned.
    ///
    /// # Errors
    /// A file that cannot be read, or `invalid-pin` for facts that no pin can have.
    pub fn draft(&self, draft: &Draft<'_>) -> Result<Pin, LedgerError> {
        let Inspected { kind, contract, imports } = draft.inspected.clone();
        let mut pin = Pin::first(draft.name, draft.file, draft.component, kind, contract, imports);
        pin.imports.sort();
        let before = self.in_force(draft.name)?;
        let there = Filed::read(&self.place(draft.name)).ok().flatten();
        let there = there.map_or(0, |filed| filed.pin.sequence);
        pin.sequence = self.highest(draft.name).max(there) + 1;
        if let Some(before) = &before {
            pin.version.clone_from(&before.pin.version);
            pin.previous = Some(before.digest.clone());
            pin.rollback = draft.rollback;
        }
        if let Some(version) = draft.version {
            version.clone_into(&mut pin.version);
        }
        let same = |known: &&World| known.contract == pin.contract && known.world == pin.world;
        pin.world_digest = draft.worlds.iter().find(same).map(|known| known.digest.clone());
        pin.original = draft.original.map(str::to_owned);
        pin.grant.clone_from(&draft.grant);
        pin.evidence.clone_from(&draft.evidence);
        pin.guardrail.clone_from(&draft.guardrail);
        pin.not_before = draft.not_before;
        pin.expires = draft.expires;
        let invalid = |reason| LedgerError::Invalid { path: self.place(draft.name), reason };
        pin.to_toml().map_err(invalid)?;
        Ok(pin)
    }

    /// Where the candidate of a name lies.
    #[must_use]
    pub fn candidate(&self, name: &str) -> PathBuf {
        self.dir.join(CANDIDATES).join(format!("{name}.toml"))
    }

    /// Writes a pin as its name's candidate, to be reviewed and signed.
    ///
    /// # Errors
    /// `invalid-pin`, or that it cannot be written.
    pub fn propose(&self, pin: &Pin) -> Result<PathBuf, LedgerError> {
        let path = self.candidate(&pin.name);
        let invalid = |reason| LedgerError::Invalid { path: path.clone(), reason };
        disk::write(&path, pin.to_toml().map_err(invalid)?.as_bytes())?;
        Ok(path)
    }

    /// Replaces the keys that count. It is not logged: the file lies in the folder and is reviewed with it.
    ///
    /// # Errors
    /// `invalid-keys`, or that it cannot be written.
    pub fn trust(&self, keys: &Keys) -> Result<(), LedgerError> {
        let path = self.dir.join(KEYS);
        let text = keys.to_toml();
        let text = text.map_err(|reason| LedgerError::refused("invalid-keys", &path, reason))?;
        disk::write(&path, text.as_bytes())
    }

    /// Signs the candidate of a name. Signatures of others stay.
    ///
    /// # Errors
    /// There is no candidate (`no-candidate`), or it cannot be read or written.
    pub fn sign(&self, name: &str, secret: &SigningKey) -> Result<Pin, LedgerError> {
        let path = self.candidate(name);
        let mut pin = Filed::read(&path)?
            .ok_or_else(|| {
                LedgerError::refused("no-candidate", &path, "no such candidate: pin it first")
            })?
            .pin;
        sign(&mut pin, secret)
            .map_err(|reason| LedgerError::Invalid { path: path.clone(), reason })?;
        self.propose(&pin)?;
        Ok(pin)
    }

    /// Takes a pin out of force; its file goes to the history, its sequence stays used.
    ///
    /// # Errors
    /// `no-candidate` where there is no such pin, or what cannot be written.
    pub fn retire(
        &mut self,
        name: &str,
        reason: &str,
        now: Date,
        by: &str,
    ) -> Result<(), LedgerError> {
        let place = self.place(name);
        let filed = self.in_force(name)?.ok_or_else(|| {
            LedgerError::refused("no-candidate", &place, "there is no pin of this name")
        })?;
        keep(&self.dir, &filed)?;
        let mut event = Event::new(What::Retirement, name);
        event.sequence = Some(filed.pin.sequence);
        event.from = Some(filed.digest);
        event.reason = Some(reason.to_owned());
        event.by = Some(by.to_owned());
        self.log.append(event, now)?;
        disk::remove(&place)
    }

    /// Revokes a component, a pin or a key. What is in force is not changed by that: it is refused the
    /// next time it is proven, and `Ledger::verify` says so.
    ///
    /// # Errors
    /// `invalid-revoked` for what is no digest or was revoked already, or that it cannot be written.
    pub fn revoke(
        &mut self,
        what: Revoke<'_>,
        reason: &str,
        now: Date,
        by: &str,
    ) -> Result<(), LedgerError> {
        let path = self.dir.join(REVOKED);
        let invalid = |reason: String| LedgerError::refused("invalid-revoked", &path, reason);
        let (mut revoked, _) = Revoked::open(&self.dir)?;
        let (Revoke::Digest(digest) | Revoke::Key(digest)) = what;
        let digest = digest.strip_prefix("sha256:").unwrap_or(digest).to_owned();
        if !is_digest(&digest) {
            return Err(invalid(format!(
                "expected 64 lower-case hexadecimal digits, found {digest:?}"
            )));
        }
        let list = match what {
            Revoke::Digest(_) => &mut revoked.digests,
            Revoke::Key(_) => &mut revoked.keys,
        };
        if list.iter().any(|one| one.digest == digest) {
            return Err(invalid(format!("{digest} is revoked already")));
        }
        list.push(Revocation { digest: digest.clone(), reason: reason.to_owned(), date: now });
        let text = revoked.to_toml().map_err(invalid)?;
        disk::stage(&path, text.as_bytes())?;
        let mut event = Event::new(What::Revocation, digest);
        event.pin = Some(sha256(text.as_bytes()));
        event.reason = Some(reason.to_owned());
        event.by = Some(by.to_owned());
        if let Err(error) = self.log.append(event, now) {
            disk::unstage(&path)?;
            return Err(error);
        }
        disk::settle(&path)
    }
}

/// The pin's file with this digest: in its place, in the history, or beside its place while it is being
/// promoted.
pub(crate) fn find(dir: &Path, name: &str, digest: &str) -> Result<Option<Filed>, LedgerError> {
    let place = dir.join("pins").join(format!("{name}.toml"));
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
    /// What kind of plugin.
    pub kind: Kind,
    /// The pin in force.
    pub pin: Pin,
    /// Digest of its file.
    pub digest: String,
    /// Whether the log says that it was proven.
    pub proven: bool,
    /// Whether another pin lies in its place and waits to be proven.
    pub pending: bool,
    /// Whether there is a candidate.
    pub candidate: bool,
    /// Since when it is in force.
    pub since: Option<Date>,
}

/// What is in force for every name, without changing anything.
///
/// # Errors
/// `log-tampered`, `invalid-pin`, or a file that cannot be read.
pub fn status(dir: &Path) -> Result<Vec<Status>, LedgerError> {
    let chain = Chain::open(dir)?;
    let standings = chain.standings();
    let mut names: BTreeSet<String> = standings.keys().map(|name| (*name).to_owned()).collect();
    for path in disk::list(&dir.join("pins"), "toml")? {
        names.extend(path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned));
    }
    let mut lines = Vec::new();
    for name in names {
        let place = dir.join("pins").join(format!("{name}.toml"));
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
        let since = chain.entries.iter().rfind(|entry| {
            entry.event.name == name
                && entry.event.pin.as_ref() == Some(&filed.digest)
                && matches!(entry.event.what, What::Promotion | What::Rollback | What::Abandoned)
        });
        lines.push(Status {
            pending: place.exists() && filed.path.parent() != place.parent(),
            candidate: dir.join(CANDIDATES).join(format!("{name}.toml")).exists(),
            proven: known,
            since: since.map(|entry| entry.date),
            kind: filed.pin.kind,
            digest: filed.digest,
            pin: filed.pin,
            name,
        });
    }
    Ok(lines)
}
