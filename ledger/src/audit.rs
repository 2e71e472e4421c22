//! The audit: everything in a ledger's folder held against everything else, offline, changing nothing.
//!
//! All that is wrong is found, not only the first. What waits (a pin in its place that the log does not
//! know yet, a change that a crash interrupted) is told apart from what is wrong.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use crate::{
    LedgerError, MAX_PIN_BYTES, Quarantine,
    change::{check_revoked, pin_changed},
    contract::World,
    date::Date,
    disk,
    evidence::{EVIDENCE, Envelope, Evidence},
    history::{Filed, History},
    keys::Keys,
    log::{Chain, LOG, Standing, check_clock},
    look::{PINS, place as place_of},
    performance::{self, PERFORMANCE},
    prove::{self, Word, grant_digest},
    revoked::{MAX_REVOKED_BYTES, Revoked},
    sha256,
    source::Source,
    state::State,
    upstream::{self, UPSTREAMS, transcripts},
};

/// What a ledger is held against besides itself. What is not given is not looked at.
#[derive(Clone, Copy)]
pub struct Audit<'a> {
    /// Where the pinned components are.
    pub components: Option<&'a dyn Source>,
    /// The folder with `grants/`.
    pub policies: Option<&'a Path>,
    /// The folder with a folder of recorded answers for each project.
    pub transcripts: Option<&'a Path>,
    /// The worlds that are known.
    pub worlds: &'a [World],
    /// The file outside in which the highest sequences are remembered.
    pub state: Option<&'a Path>,
    /// The clock.
    pub now: Date,
}

/// What an audit found.
#[derive(Debug, Default)]
pub struct Report {
    /// Pins in force.
    pub pins: usize,
    /// Superseded pins.
    pub history: usize,
    /// Reports.
    pub evidence: usize,
    /// Entries on servers.
    pub upstreams: usize,
    /// Measurements.
    pub performance: usize,
    /// Lines of the log.
    pub log: usize,
    /// The hash of its last line.
    pub head: Option<String>,
    /// Signatures a pin needs.
    pub threshold: u32,
    /// Components that are not put in force until they are released, by SHA-256.
    pub quarantined: BTreeMap<String, Quarantine>,
    /// Names whose pin in place waits to be proven.
    pub pending: Vec<String>,
    /// Names whose change was interrupted; the next command that writes ends it.
    pub interrupted: Vec<String>,
    /// Everything that is wrong.
    pub faults: Vec<LedgerError>,
}

impl Report {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.faults.is_empty()
    }

    fn take<T>(&mut self, result: Result<T, LedgerError>) -> Option<T> {
        result.map_err(|fault| self.faults.push(fault)).ok()
    }

    fn word(&mut self, path: &Path, result: Result<(), Word>) {
        self.take(result.map_err(|(code, reason)| LedgerError::refused(code, path, reason)));
    }
}

pub(crate) fn audit(dir: &Path, around: &Audit<'_>) -> Result<Report, LedgerError> {
    let mut report = Report::default();
    std::fs::read_dir(dir).map_err(|source| LedgerError::Io { path: dir.to_owned(), source })?;

    let log = Chain::open(dir).and_then(|chain| chain.whole(dir));
    let log = report.take(log);
    let chain = log.clone().unwrap_or_default();
    report.log = chain.entries.len();
    report.head = chain.head().map(str::to_owned);
    report.quarantined = chain.quarantined();
    report.take(check_clock(&dir.join(LOG), around.now, chain.last()));

    let keys = report.take(Keys::open(dir));
    report.threshold = keys.as_ref().map_or(0, |keys| keys.threshold);
    let revoked = report.take(Revoked::open(dir));
    if let (Some(_), Some((_, digest))) = (&log, &revoked) {
        let staged = disk::beside(&dir.join(crate::revoked::REVOKED));
        let staged = disk::read_if_there(&staged, MAX_REVOKED_BYTES)?.map(|bytes| sha256(&bytes));
        if staged.is_some() && staged.as_deref() == chain.revoked() {
            report.interrupted.push(crate::revoked::REVOKED.to_owned());
        } else {
            report.take(check_revoked(dir, digest.as_deref(), chain.revoked()));
        }
    }
    let evidence = report.take(Evidence::open(dir).map_err(LedgerError::from));
    report.evidence = evidence.as_ref().map_or(0, Evidence::len);
    if let Some(keys) = &keys {
        let checked = envelopes(dir, keys);
        report.take(checked);
    }
    let state = report.take(State::open(around.state)).unwrap_or_default();

    let standings: BTreeMap<String, Standing> =
        chain.standings().into_iter().map(|(name, standing)| (name.to_owned(), standing)).collect();
    let mut places = BTreeMap::new();
    for path in report.take(disk::list(&dir.join(PINS), "toml")).unwrap_or_default() {
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
        match Filed::read(&path) {
            Ok(Some(filed)) => match filed.named() {
                Ok(()) => {
                    places.insert(stem, filed);
                }
                Err(fault) => report.faults.push(fault),
            },
            Ok(None) => {}
            Err(fault) => report.faults.push(fault),
        }
    }

    let mut names: BTreeSet<String> = places.keys().cloned().collect();
    names.extend(standings.keys().cloned());
    names.extend(report.take(History::names(dir)).unwrap_or_default());
    let known = Known { dir, around, chain: &chain, logged: log.is_some(), state: &state };
    for name in names {
        let Some(history) = report.take(History::open(dir, &name)) else { continue };
        report.history += history.files.len();
        let standing = standings.get(&name).cloned().unwrap_or_default();
        let place = places.remove(&name);
        let Some(filed) = known.in_force(&name, place, &history, &standing, &mut report) else {
            continue;
        };
        report.pins += 1;
        known.history(&name, &filed, &history, &mut report);
        known.pin(&filed, &mut report);
        if let (Some(keys), Some((revoked, _))) = (&keys, &revoked) {
            let signed = keys.verify(&filed.pin, revoked).map(drop);
            report.word(&filed.path, signed.map_err(|reason| ("signature-threshold", reason)));
            let trusted = revoked.allows(&filed.pin, &filed.digest);
            report.word(&filed.path, trusted.map_err(|reason| ("revoked", reason)));
        }
        let sound = prove::unquarantined(&filed.pin, &report.quarantined);
        report.word(&filed.path, sound.map_err(|reason| ("quarantined", reason)));
        if let Some(evidence) = &evidence {
            for digest in &filed.pin.evidence {
                let named = prove::report(&filed.pin, digest, evidence).map(drop);
                report.word(&filed.path, named);
            }
        }
    }

    for path in report.take(disk::list(&dir.join(UPSTREAMS), "toml")).unwrap_or_default() {
        report.upstreams += 1;
        let Some(entry) = report.take(upstream::read(&path)) else { continue };
        if let (Some(folder), Some(expected)) = (around.transcripts, &entry.transcripts) {
            let found = report.take(transcripts(&folder.join(&entry.project)));
            if found.as_ref().is_some_and(|found| found != expected) {
                let reason = "the recorded answers changed since; test the bridge again and run `cargo xtask ledger seal`";
                report.faults.push(LedgerError::refused("invalid-upstream", &path, reason));
            }
        }
    }
    for path in report.take(disk::list(&dir.join(PERFORMANCE), "json")).unwrap_or_default() {
        report.performance += 1;
        report.take(performance::read(&path));
    }
    Ok(report)
}

struct Known<'a> {
    dir: &'a Path,
    around: &'a Audit<'a>,
    chain: &'a Chain,
    /// Whether the log could be read at all.
    logged: bool,
    state: &'a State,
}

impl Known<'_> {
    /// The pin in force: the one that the log names, where it knows the name.
    fn in_force(
        &self,
        name: &str,
        place: Option<Filed>,
        history: &History,
        standing: &Standing,
        report: &mut Report,
    ) -> Option<Filed> {
        let path = place
            .as_ref()
            .map_or_else(|| place_of(self.dir, PINS, name), |filed| filed.path.clone());
        let Some(digest) = standing.pin.as_ref().filter(|_| self.logged) else {
            if self.logged
                && let Some(filed) = &place
            {
                report.pending.push(name.to_owned());
                self.sequence(filed, standing, report);
            }
            return place;
        };
        let there = place.as_ref().map(|filed| filed.digest.as_str());
        if there == Some(digest) {
            let filed = place?;
            self.sequence(&filed, standing, report);
            return Some(filed);
        }
        let staged = disk::read_if_there(&disk::beside(&path), MAX_PIN_BYTES).ok().flatten();
        if there == standing.from.as_deref()
            && staged.is_some_and(|bytes| sha256(&bytes) == *digest)
        {
            // Logged, and not in place: a crash between the two.
            report.interrupted.push(name.to_owned());
            return place;
        }
        let filed = history.files.get(digest).cloned();
        let follows = place.as_ref().is_some_and(|place| {
            place.pin.previous.as_ref() == Some(digest) && place.pin.sequence > standing.highest
        });
        match filed {
            Some(filed) if follows => {
                report.pending.push(name.to_owned());
                self.sequence(&filed, standing, report);
                Some(filed)
            }
            _ => {
                report.faults.push(pin_changed(&path, digest, there.unwrap_or("no file")));
                None
            }
        }
    }

    fn sequence(&self, filed: &Filed, standing: &Standing, report: &mut Report) {
        let Filed { pin, digest, path, .. } = filed;
        let highest = self.state.highest(&pin.name, standing);
        let permitted = self.state.permitted(&pin.name, standing);
        let serves = prove::serves(pin, digest, highest, permitted.as_deref());
        report.word(path, serves.map_err(|reason| ("sequence-replayed", reason)));
    }

    /// The chain behind a pin, and that nothing else lies in its history but what once was in force.
    fn history(&self, name: &str, filed: &Filed, history: &History, report: &mut Report) {
        let Some(chain) = report.take(history.before(filed)) else { return };
        // A way back that leads nowhere is told before it is needed; the first pin has none to name.
        let back = history.target(filed, None).map(drop);
        report.take(back.or_else(|fault| match fault.code() {
            "no-rollback-target" if filed.pin.rollback.is_none() => Ok(()),
            _ => Err(fault),
        }));
        let mut known: BTreeSet<&str> = chain.iter().map(|one| one.digest.as_str()).collect();
        known.insert(&filed.digest);
        for entry in &self.chain.entries {
            if entry.event.name == name {
                known.extend(entry.event.pin.as_deref());
                known.extend(entry.event.from.as_deref());
            }
        }
        for stray in history.files.values().filter(|one| !known.contains(one.digest.as_str())) {
            let reason =
                "it is no link of the chain and not in the log: it was changed, restore it";
            report.faults.push(LedgerError::refused("broken-history", &stray.path, reason));
        }
    }

    /// A pin's dates, component, grant and contract.
    fn pin(&self, filed: &Filed, report: &mut Report) {
        let Filed { pin, path, .. } = filed;
        report.word(path, prove::dates(pin, self.around.now));
        let world = prove::world(pin, self.around.worlds);
        report.word(path, world.map_err(|reason| ("unsupported-contract", reason)));
        if let Some(policies) = self.around.policies
            && let Some(found) = report.take(grant_digest(policies, &pin.name, pin.kind))
        {
            report.word(path, prove::granted(pin, found.as_deref()));
        }
        if let Some(components) = self.around.components {
            match components.fetch(pin) {
                Ok(bytes) => {
                    if let Err(error) = pin.verify(&bytes) {
                        let fault = LedgerError::refused(error.code(), path, error.to_string());
                        report.faults.push(fault);
                    }
                }
                Err(fault) => report.faults.push(fault),
            }
        }
    }
}

/// Envelopes that a known key has signed are of their content.
fn envelopes(dir: &Path, keys: &Keys) -> Result<(), LedgerError> {
    for path in disk::list(&dir.join(EVIDENCE), "json")? {
        let bytes = disk::read(&path, crate::evidence::MAX_EVIDENCE_BYTES)?;
        let Ok(envelope) = serde_json::from_slice::<Envelope>(&bytes) else { continue };
        for key in &keys.keys {
            let invalid = |reason: String| LedgerError::refused("invalid-evidence", &path, reason);
            let id = key.id().map_err(invalid)?;
            if envelope.signatures.iter().any(|signature| signature.keyid == id) {
                let verifying = key.verifying().map_err(invalid)?;
                envelope.verify(&verifying).map_err(|error| invalid(error.to_string()))?;
            }
        }
    }
    Ok(())
}
