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

use std::path::{Path, PathBuf};

use ed25519_dalek::SigningKey;

use crate::{
    LedgerError, MAX_PIN_BYTES, Pin,
    change::keep,
    contract::World,
    date::Date,
    digest::is_digest,
    disk,
    guardrail::Guardrail,
    history::Filed,
    host::Inspected,
    keys::{KEYS, Keys, MAX_KEYS_BYTES, attach, sign},
    log::{Chain, Event, LOG, Log, Standing, What},
    look::{self, CANDIDATES, PINS},
    revoked::{MAX_REVOKED_BYTES, REVOKED, Revocation, Revoked},
    sha256,
    state::State,
};

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
    /// Opens a ledger to change it, and ends what a crash left half done. A folder in which there is no
    /// log, no key and no pin, and where nothing is remembered outside, becomes a ledger without keys,
    /// threshold 0, as a developer's is. One that has pins, or of which pins are remembered, and neither
    /// log nor keys stays as it is: with a log in it, it would be a ledger of which nothing is in force.
    ///
    /// `state` is the file outside the folder in which the highest sequences are remembered.
    ///
    /// # Errors
    /// `ledger-busy`, `log-tampered`, `invalid-keys`, or a file that cannot be read or written.
    pub fn open(dir: &Path, state: Option<&Path>) -> Result<Self, LedgerError> {
        std::fs::create_dir_all(dir).map_err(|source| disk::unwritable(dir, source))?;
        let state = State::open(state)?;
        if !look::is_kept(dir) {
            let lost = |what| {
                let reason = format!("missing, and {LOG} with it, {what}");
                LedgerError::refused("invalid-keys", &dir.join(KEYS), reason)
            };
            if !state.is_empty() {
                return Err(lost(
                    "while this host remembers pins; restore both files or, for another ledger, name another paths.ledger_seen",
                ));
            }
            if !disk::list(&dir.join(PINS), "toml")?.is_empty() {
                return Err(lost(
                    "beside pins that nobody proved; what runs of them runs on, and nothing was changed. Restore both files or, to make a ledger here, move pins/ away, then pin and promote each component",
                ));
            }
            trust(dir, &Keys::default())?;
        }
        let mut keeper = Self { dir: dir.to_owned(), log: Log::open(dir)?, state };
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
                disk::read_if_there(path, MAX_PIN_BYTES)
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
        let digest = disk::read_if_there(&disk::beside(&path), MAX_REVOKED_BYTES)?;
        let digest = digest.map(|bytes| sha256(&bytes));
        if digest.is_some() && digest.as_deref() == self.log.chain().revoked() {
            disk::settle(&path)?;
        }
        disk::unstage(&path)
    }

    /// Raises what is remembered outside to what the log says. A rollback that the log alone knows is
    /// believed only where nothing is remembered of that name; one that the log never got is taken back.
    fn remember(&mut self, name: &str) -> Result<(), LedgerError> {
        let standing = self.standing(name);
        let rollback = match standing.sequence >= self.highest(name) {
            true => None,
            false => self.permitted(name),
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
        self.log.chain().standing(name)
    }

    /// The highest sequence of a name that was ever in force, here or as remembered outside.
    #[must_use]
    pub fn highest(&self, name: &str) -> u64 {
        self.state.highest(name, &self.standing(name))
    }

    /// Digest of the older pin that may serve although its sequence is lower, after a rollback.
    #[must_use]
    pub fn permitted(&self, name: &str) -> Option<String> {
        self.state.permitted(name, &self.standing(name))
    }

    pub(crate) fn place(&self, name: &str) -> PathBuf {
        look::place(&self.dir, PINS, name)
    }

    /// The pin's file with this digest, in its place or in the history.
    pub(crate) fn find(&self, name: &str, digest: &str) -> Result<Option<Filed>, LedgerError> {
        look::find(&self.dir, name, digest)
    }

    /// The pin in force: the one the log names or, where that is nowhere or the log knows none, the one
    /// in place.
    ///
    /// # Errors
    /// `invalid-pin` where what lies there is none.
    pub fn in_force(&self, name: &str) -> Result<Option<Filed>, LedgerError> {
        look::standing(&self.dir, name, &self.standing(name))
    }

    /// Makes a pin of a component's facts: the next sequence, after the pin in force, unsigned.
    ///
    /// # Errors
    /// A file that cannot be read, or `invalid-pin` for facts that no pin can have.
    pub fn draft(&self, draft: &Draft<'_>) -> Result<Pin, LedgerError> {
        look::named(&self.dir, PINS, draft.name)?;
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
        look::place(&self.dir, CANDIDATES, name)
    }

    /// Writes a pin as its name's candidate, to be reviewed and signed.
    ///
    /// # Errors
    /// `invalid-pin`, or that it cannot be written.
    pub fn propose(&self, pin: &Pin) -> Result<PathBuf, LedgerError> {
        let path = self.candidate(&pin.name);
        let invalid = |reason| LedgerError::Invalid { path: path.clone(), reason };
        disk::write(&path, pin.to_toml().map_err(invalid)?.as_bytes(), MAX_PIN_BYTES)?;
        Ok(path)
    }

    /// Takes a candidate away, where there is one.
    ///
    /// # Errors
    /// `invalid-pin` for what is no pin's name, or that it cannot be removed.
    pub fn withdraw(&self, name: &str) -> Result<(), LedgerError> {
        let path = look::named(&self.dir, CANDIDATES, name)?;
        if path.exists() { disk::remove(&path) } else { Ok(()) }
    }

    /// Replaces the keys that count. It is not logged: the file lies in the folder and is reviewed with it.
    ///
    /// # Errors
    /// `invalid-keys`, or that it cannot be written.
    pub fn trust(&self, keys: &Keys) -> Result<(), LedgerError> {
        trust(&self.dir, keys)
    }

    /// Signs the candidate of a name. Signatures of others stay.
    ///
    /// # Errors
    /// There is no candidate (`no-candidate`), or it cannot be read or written.
    pub fn sign(&self, name: &str, secret: &SigningKey) -> Result<Pin, LedgerError> {
        self.signed(name, |path, pin| {
            sign(pin, secret)
                .map_err(|reason| LedgerError::Invalid { path: path.to_owned(), reason })
        })
    }

    /// Puts a signature into the candidate of a name that was made elsewhere, with the key whose public
    /// half this is. Signatures of others stay.
    ///
    /// # Errors
    /// `invalid-signature` for one that is not of this candidate; otherwise as [`Keeper::sign`].
    pub fn attach(&self, name: &str, public: &str, signature: &str) -> Result<Pin, LedgerError> {
        self.signed(name, |path, pin| {
            attach(pin, public, signature)
                .map_err(|reason| LedgerError::refused("invalid-signature", path, reason))
        })
    }

    fn signed(
        &self,
        name: &str,
        sign: impl FnOnce(&Path, &mut Pin) -> Result<(), LedgerError>,
    ) -> Result<Pin, LedgerError> {
        let path = look::named(&self.dir, CANDIDATES, name)?;
        let mut pin = Filed::read(&path)?
            .ok_or_else(|| {
                LedgerError::refused("no-candidate", &path, "no such candidate: pin it first")
            })?
            .pin;
        sign(&path, &mut pin)?;
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
        let place = look::named(&self.dir, PINS, name)?;
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
        disk::stage(&path, text.as_bytes(), MAX_REVOKED_BYTES)?;
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

fn trust(dir: &Path, keys: &Keys) -> Result<(), LedgerError> {
    let path = dir.join(KEYS);
    let text = keys.to_toml();
    let text = text.map_err(|reason| LedgerError::refused("invalid-keys", &path, reason))?;
    disk::write(&path, text.as_bytes(), MAX_KEYS_BYTES)
}
