//! Promotion and rollback: proven, then logged, then swapped, then in place.
//!
//! A refusal changes nothing that is in use and is logged. The log has a promotion before it takes
//! effect; a crash afterwards is ended by the next keeper (`keeper.rs`).

use std::{collections::BTreeMap, path::Path};

use crate::{
    LedgerError, MAX_PIN_BYTES, Pin, Quarantine,
    contract::World,
    date::Date,
    disk,
    evidence::Evidence,
    history::{self, Filed, History},
    host::Host,
    keeper::{Keeper, Step},
    keys::Keys,
    log::{Event, LOG, What},
    look::{self, PINS},
    prove::{Granted, Held, Proven, Purpose, Rules, prove},
    revoked::Revoked,
    sha256,
    source::Source,
};

/// What a promotion or rollback is held against, and who asked for it.
#[derive(Clone, Copy)]
pub struct Terms<'a> {
    /// Where the component is.
    pub source: &'a dyn Source,
    /// The grant it would run with.
    pub grant: &'a Granted<'a>,
    /// The worlds that the host speaks.
    pub worlds: &'a [World],
    /// How much must be known.
    pub rules: &'a Rules,
    /// The clock.
    pub now: Date,
    /// What made it happen, for the log.
    pub by: &'a str,
}

/// A pin that is to come in force.
#[derive(Clone, Copy)]
pub struct Plan<'a> {
    /// Whose.
    pub name: &'a str,
    /// The pin's text, signed as it must be; it may lie in its place already.
    pub text: &'a str,
    /// What it is held against.
    pub terms: Terms<'a>,
}

/// What came of it.
#[derive(Debug)]
pub struct Changed {
    /// The pin in force.
    pub pin: Pin,
    /// Digest of its file.
    pub digest: String,
    /// The router's generation, where something serves.
    pub generation: Option<u64>,
    /// Whether anything changed; not where the pin was in force already.
    pub changed: bool,
    /// What could not be recorded after the traffic had moved. The change itself is in force and logged.
    pub unrecorded: Option<LedgerError>,
}

/// What is known when a candidate is proven.
struct Known {
    keys: Keys,
    revoked: Revoked,
    quarantined: BTreeMap<String, Quarantine>,
    evidence: Evidence,
    highest: u64,
    permitted: Option<String>,
    before: Option<Filed>,
}

impl Keeper {
    /// Proves a pin, puts it in force and swaps to it, or refuses it and changes nothing.
    ///
    /// # Errors
    /// The first check that fails ([`prove`]), `wrong-previous` for a pin that does not follow the one
    /// in force, `swap-failed`, or what cannot be written.
    pub fn promote(
        &mut self,
        plan: &Plan<'_>,
        host: &mut dyn Host,
    ) -> Result<Changed, LedgerError> {
        let place = look::named(&self.dir, PINS, plan.name)?;
        match self.prepare(plan, &place, host) {
            Ok(Some((proven, before))) => {
                let text = plan.text.to_owned();
                let changed = self.change(
                    What::Promotion,
                    plan.name,
                    &text,
                    proven,
                    before,
                    plan.terms,
                    host,
                )?;
                let candidate = self.candidate(plan.name);
                if std::fs::read_to_string(&candidate).is_ok_and(|left| left == plan.text) {
                    // Only a reminder is lost if it stays.
                    let _ = std::fs::remove_file(&candidate);
                }
                Ok(changed)
            }
            Ok(None) => {
                let invalid = |reason| LedgerError::Invalid { path: place.clone(), reason };
                let pin = Pin::parse(plan.text).map_err(invalid)?;
                let digest = sha256(plan.text.as_bytes());
                Ok(Changed { pin, digest, generation: None, changed: false, unrecorded: None })
            }
            Err(error) => {
                self.refuse(plan.name, plan.text, &error, plan.terms);
                Err(error)
            }
        }
    }

    /// Proves an earlier pin of this name and puts it in force again: the one of the sequence `to`, or
    /// the one that the pin in force names, or the one before it.
    ///
    /// # Errors
    /// `rollback-cycle`, `no-rollback-target`, `broken-history`; otherwise as [`Keeper::promote`].
    pub fn rollback(
        &mut self,
        name: &str,
        to: Option<u64>,
        terms: Terms<'_>,
        host: &mut dyn Host,
    ) -> Result<Changed, LedgerError> {
        let place = look::named(&self.dir, PINS, name)?;
        let before = self.in_force(name)?.ok_or_else(|| {
            LedgerError::refused("no-rollback-target", &place, "there is no pin of this name")
        })?;
        let history = History::open(&self.dir, name)?;
        let target = history.target(&before, to)?.clone();
        let known = self.known(name, Some(before))?;
        let proven =
            self.prove(name, &target.text, &target.path, Purpose::Rollback, &known, terms, host);
        match proven {
            Ok(proven) => {
                self.change(What::Rollback, name, &target.text, proven, known.before, terms, host)
            }
            Err(error) => {
                self.refuse(name, &target.text, &error, terms);
                Err(error)
            }
        }
    }

    /// Proves the pin in force again, for instance when the host starts. Nothing is changed or logged.
    ///
    /// # Errors
    /// As [`prove`]; `pin-changed` where the pin that the log names is nowhere.
    pub fn serve(
        &self,
        name: &str,
        terms: Terms<'_>,
        host: &mut dyn Host,
    ) -> Result<Proven, LedgerError> {
        let place = look::named(&self.dir, PINS, name)?;
        let filed = self
            .in_force(name)?
            .ok_or_else(|| LedgerError::refused("pin-changed", &place, "there is no such pin"))?;
        if let Some(expected) = self.standing(name).pin.filter(|pin| *pin != filed.digest) {
            return Err(pin_changed(&place, &expected, &filed.digest));
        }
        let known = self.known(name, Some(filed.clone()))?;
        self.prove(name, &filed.text, &filed.path, Purpose::Serve, &known, terms, host)
    }

    /// A candidate that is proven and what was in force before it; nothing where it is in force already.
    fn prepare(
        &self,
        plan: &Plan<'_>,
        place: &Path,
        host: &mut dyn Host,
    ) -> Result<Option<(Proven, Option<Filed>)>, LedgerError> {
        let digest = sha256(plan.text.as_bytes());
        let standing = self.standing(plan.name);
        let there = disk::read_if_there(place, MAX_PIN_BYTES)?;
        let in_place = there.is_some_and(|there| there == plan.text.as_bytes());
        if in_place && standing.pin.as_ref() == Some(&digest) {
            return Ok(None);
        }
        // A pin that was written into its place is its own candidate and not what was before it.
        let before = match self.in_force(plan.name)? {
            Some(filed) if filed.digest == digest => self.previous(plan)?,
            other => other,
        };
        let known = self.known(plan.name, before)?;
        let proven =
            self.prove(plan.name, plan.text, place, Purpose::Promote, &known, plan.terms, host)?;
        Ok(Some((proven, known.before)))
    }

    /// What a pin says it follows, where it lies in its place and the log knows nothing of the name.
    fn previous(&self, plan: &Plan<'_>) -> Result<Option<Filed>, LedgerError> {
        let Ok(Pin { previous: Some(previous), .. }) = Pin::parse(plan.text) else {
            return Ok(None);
        };
        self.find(plan.name, &previous)
    }

    fn known(&self, name: &str, before: Option<Filed>) -> Result<Known, LedgerError> {
        Ok(Known {
            keys: Keys::open(&self.dir)?,
            revoked: self.revoked()?,
            quarantined: self.log().quarantined(),
            evidence: Evidence::open(&self.dir)?,
            highest: self.highest(name),
            permitted: self.permitted(name),
            before,
        })
    }

    /// The revocations, if the file is the one that the log knows.
    fn revoked(&self) -> Result<Revoked, LedgerError> {
        let (revoked, digest) = Revoked::open(&self.dir)?;
        check_revoked(&self.dir, digest.as_deref(), self.log().revoked())?;
        Ok(revoked)
    }

    #[expect(clippy::too_many_arguments, reason = "what a proof is held against, each once")]
    fn prove(
        &self,
        name: &str,
        text: &str,
        place: &Path,
        purpose: Purpose,
        known: &Known,
        terms: Terms<'_>,
        host: &mut dyn Host,
    ) -> Result<Proven, LedgerError> {
        let standing = self.standing(name);
        let held = Held {
            keys: &known.keys,
            revoked: &known.revoked,
            quarantined: &known.quarantined,
            evidence: &known.evidence,
            grant: terms.grant,
            worlds: terms.worlds,
            rules: terms.rules,
            now: terms.now,
            log: &self.dir.join(LOG),
            last: self.log().last(),
            highest: known.highest,
            permitted: known.permitted.as_deref(),
            in_force: standing.pin.as_deref(),
            baseline: known.before.as_ref().map(|filed| &filed.pin),
            name,
            follows: known.before.as_ref().map(|filed| filed.digest.as_str()),
        };
        prove(text, place, purpose, terms.source, &held, host)
    }

    /// The numbered steps.
    #[expect(clippy::too_many_arguments, reason = "what a change is made of, each once")]
    fn change(
        &mut self,
        what: What,
        name: &str,
        text: &str,
        proven: Proven,
        before: Option<Filed>,
        terms: Terms<'_>,
        host: &mut dyn Host,
    ) -> Result<Changed, LedgerError> {
        let place = self.place(name);
        let Proven { pin, digest, component, .. } = proven;
        if let Some(before) = &before {
            keep(&self.dir, before)?;
        }
        host.reached(Step::Kept);

        self.log.reserve()?;
        let there = disk::read_if_there(&place, MAX_PIN_BYTES)?;
        let in_place = there.is_some_and(|there| there == text.as_bytes());
        if !in_place {
            disk::stage(&place, text.as_bytes(), MAX_PIN_BYTES)?;
        }
        host.reached(Step::Staged);

        let permitted = self.permitted(name);
        if what == What::Rollback {
            let (highest, before) = (self.highest(name), permitted.clone());
            self.state.begin(name, highest, digest.clone(), before)?;
        }
        host.reached(Step::Permitted);

        let mut event = Event::new(what, name);
        event.sequence = Some(pin.sequence);
        event.pin = Some(digest.clone());
        event.component = Some(pin.sha256.clone());
        event.from = before.map(|before| before.digest);
        event.by = Some(terms.by.to_owned());
        if let Err(error) = self.log.append(event.clone(), terms.now) {
            disk::unstage(&place)?;
            self.take_back(what, name, permitted)?;
            return Err(error);
        }
        host.reached(Step::Logged);

        let generation = match host.swap(&pin, &component) {
            Ok(generation) => generation,
            Err(refusal) => {
                let code = refusal.code.unwrap_or("swap-failed");
                let standing = self.standing(name);
                let abandoned = self.abandon(name, &standing, code, &refusal.reason, terms.now);
                // Also where the log cannot say so: what was not swapped to is not put in place by the
                // next who opens the ledger.
                disk::unstage(&place)?;
                abandoned?;
                self.take_back(what, name, permitted)?;
                return Err(LedgerError::refused(code, &place, refusal.reason));
            }
        };
        host.reached(Step::Swapped);

        if !in_place {
            disk::settle(&place)?;
        }
        host.reached(Step::Placed);

        let mut unrecorded = None;
        if generation.is_some() {
            event = Event { what: What::Swap, generation, from: None, ..event };
            unrecorded = self.log.append(event, terms.now).err();
        }
        host.reached(Step::Recorded);

        let rollback = (what == What::Rollback).then(|| digest.clone());
        let error = self.state.remember(name, pin.sequence, rollback).err();
        unrecorded = unrecorded.or(error);
        host.reached(Step::Remembered);
        Ok(Changed { pin, digest, generation, changed: true, unrecorded })
    }

    /// Permits again what was permitted before a rollback that came to nothing.
    fn take_back(
        &mut self,
        what: What,
        name: &str,
        permitted: Option<String>,
    ) -> Result<(), LedgerError> {
        if what != What::Rollback {
            return Ok(());
        }
        let highest = self.highest(name);
        self.state.remember(name, highest, permitted)
    }

    /// Logs a refusal, once: who asks again and again for the same does not fill the log. What keeps the
    /// log from being written does not make the refusal less of one.
    fn refuse(&mut self, name: &str, text: &str, error: &LedgerError, terms: Terms<'_>) {
        let mut event = Event::new(What::Refusal, name);
        event.pin = Some(sha256(text.as_bytes()));
        event.sequence = Pin::parse(text).ok().map(|pin| pin.sequence);
        event.code = Some(error.code().to_owned());
        event.reason = Some(error.to_string());
        event.by = Some(terms.by.to_owned());
        let last = self.log().entries.iter().rfind(|entry| entry.event.name == name);
        let again = last.is_some_and(|last| {
            last.event.what == What::Refusal
                && last.event.pin == event.pin
                && last.event.code == event.code
        });
        if !again {
            let _ = self.log.append(event, terms.now);
        }
    }
}

/// Keeps the pin that was in force in the history, byte for byte.
pub(crate) fn keep(dir: &Path, before: &Filed) -> Result<(), LedgerError> {
    let path = history::path(dir, &before.pin.name, before.pin.sequence);
    match disk::read_if_there(&path, MAX_PIN_BYTES)? {
        Some(bytes) if bytes == before.text.as_bytes() => Ok(()),
        Some(_) => Err(LedgerError::refused(
            "broken-history",
            &path,
            "another pin of this sequence lies here; restore the right one",
        )),
        None => disk::write(&path, before.text.as_bytes(), MAX_PIN_BYTES),
    }
}

pub(crate) fn pin_changed(place: &Path, expected: &str, found: &str) -> LedgerError {
    LedgerError::refused(
        "pin-changed",
        place,
        format!(
            "the log says that {expected} is in force, found {found}; restore the pin, or pin the component anew"
        ),
    )
}

pub(crate) fn check_revoked(
    dir: &Path,
    found: Option<&str>,
    logged: Option<&str>,
) -> Result<(), LedgerError> {
    if found == logged {
        return Ok(());
    }
    Err(LedgerError::refused(
        "revocation-missing",
        &dir.join(crate::revoked::REVOKED),
        format!(
            "the log says {}, found {}; restore the file, revocations are made with `gristmill ledger revoke`",
            logged.unwrap_or("that nothing is revoked"),
            found.unwrap_or("no file")
        ),
    ))
}
