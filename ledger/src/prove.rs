//! From a pin's text to a component that may serve: every check in its order, fail closed.
//!
//! ```text
//! schema → clock, dates, revocations, quarantine, sequence → signatures → component's digest → imports → contract
//! → evidence → guardrail → compile → smoke
//! ```
//!
//! [`prove`] is the one function that walks them. It does no more than the failing step: nothing of a
//! component is inspected before its digest is right, nothing is compiled before all that is written
//! about it holds. What only a host can do is [`Host`]; this crate compiles and runs nothing.

use std::{collections::BTreeMap, fmt, path::Path};

use crate::{
    Filed, Kind, LedgerError, Pin, Quarantine,
    contract::World,
    date::Date,
    evidence::{Evidence, Resource, Statement, Verdict},
    host::{Host, HostRefusal, Inspected},
    keys::Keys,
    log::{Chain, check_clock},
    look::named,
    revoked::Revoked,
    sha256,
    source::Source,
};

/// The grant that a plugin would run with.
pub struct Granted<'a> {
    /// Digest of the grant's file ([`grant_digest`]); none where there is no such file.
    pub digest: Option<String>,
    /// Whether it allows this import (full name, with version); types alone need no grant.
    pub allows: &'a dyn Fn(&str) -> bool,
}

impl fmt::Debug for Granted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Granted").field("digest", &self.digest).finish_non_exhaustive()
    }
}

/// How much must be known about a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Whether a pin must name evidence. What it names must hold in any case.
    pub evidence: bool,
    /// Evidence that is older, in days, is too old.
    pub evidence_days: u32,
    /// Probes that evidence must have been made with, by name and digest: the suite of today.
    pub suite: Vec<Resource>,
    /// Whether a pin must have a guardrail.
    pub guardrail: bool,
    /// Approvals, which are signatures, that a change takes where that is more than the threshold.
    pub approvals: u32,
}

impl Default for Rules {
    /// All of it, not older than 90 days.
    fn default() -> Self {
        Self { evidence: true, evidence_days: 90, suite: Vec::new(), guardrail: true, approvals: 0 }
    }
}

impl Rules {
    /// For a developer's tree: what is not there is not asked for; what is there must hold.
    #[must_use]
    pub fn developer() -> Self {
        Self { evidence: false, guardrail: false, ..Self::default() }
    }
}

/// Why a pin is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// It is to come in force: its sequence must be new.
    Promote,
    /// It is in force: its sequence must be the highest, or that of a rollback made here.
    Serve,
    /// It is to be in force again, by the pin that names it.
    Rollback,
}

/// All that a candidate is held against.
#[derive(Debug)]
pub struct Held<'a> {
    /// Who may sign.
    pub keys: &'a Keys,
    /// What must not run.
    pub revoked: &'a Revoked,
    /// What must not come in force until it is released, by component.
    pub quarantined: &'a BTreeMap<String, Quarantine>,
    /// What was tested.
    pub evidence: &'a Evidence,
    /// The grant it would run with.
    pub grant: &'a Granted<'a>,
    /// The worlds that the host speaks.
    pub worlds: &'a [World],
    /// How much must be known.
    pub rules: &'a Rules,
    /// The clock.
    pub now: Date,
    /// The log's file, for messages.
    pub log: &'a Path,
    /// The date of the log's last line.
    pub last: Option<Date>,
    /// The highest sequence of this name that was seen, in the log or outside.
    pub highest: u64,
    /// Digest of the older pin that may serve although its sequence is lower.
    pub permitted: Option<&'a str>,
    /// Digest of the pin in force.
    pub in_force: Option<&'a str>,
    /// The pin in force, whose guardrail must hold.
    pub baseline: Option<&'a Pin>,
    /// Whose pin it must be.
    pub name: &'a str,
    /// Digest of the pin that a promoted one must follow.
    pub follows: Option<&'a str>,
}

/// A candidate that passed.
#[derive(Debug, Clone, PartialEq)]
pub struct Proven {
    /// The pin.
    pub pin: Pin,
    /// Digest of its file.
    pub digest: String,
    /// The component.
    pub component: Vec<u8>,
    /// How many keys stand for it.
    pub signatures: u32,
}

/// Walks all checks for a pin's text (`place`: its file, for messages) and the component it names.
///
/// # Errors
/// The first check that fails, under the code that `docs/ledger.md` has for it.
pub fn prove(
    text: &str,
    place: &Path,
    purpose: Purpose,
    source: &dyn Source,
    held: &Held<'_>,
    host: &mut dyn Host,
) -> Result<Proven, LedgerError> {
    let refused = |code, reason: String| LedgerError::refused(code, place, reason);
    let asked = |code, refusal: HostRefusal| {
        LedgerError::refused(refusal.code.unwrap_or(code), place, refusal.reason)
    };

    // The schema.
    let pin = Pin::parse(text)
        .map_err(|reason| LedgerError::Invalid { path: place.to_owned(), reason })?;
    let digest = sha256(text.as_bytes());
    if pin.name != held.name {
        let reason = format!("expected a pin of {}, it is of {}", held.name, pin.name);
        return Err(LedgerError::Invalid { path: place.to_owned(), reason });
    }

    // In force by the clock, not revoked, not an older one.
    check_clock(held.log, held.now, held.last)?;
    stands(&pin, &digest, held.revoked, held.now)
        .map_err(|(code, reason)| refused(code, reason))?;
    if purpose != Purpose::Serve {
        unquarantined(&pin, held.quarantined).map_err(|reason| refused("quarantined", reason))?;
    }
    sequence(&pin, &digest, purpose, held)
        .map_err(|reason| refused("sequence-replayed", reason))?;

    if purpose == Purpose::Promote && pin.previous.as_deref() != held.follows {
        let words = |digest: Option<&str>| digest.unwrap_or("none").to_owned();
        let reason = format!(
            "it follows the pin {}, in force is {}; pin it anew",
            words(pin.previous.as_deref()),
            words(held.follows)
        );
        return Err(refused("wrong-previous", reason));
    }

    // Signatures.
    let signatures = held
        .keys
        .verify(&pin, held.revoked)
        .map_err(|reason| refused("signature-threshold", reason))?;
    if signatures < held.rules.approvals && purpose != Purpose::Serve {
        let reason = format!(
            "this change needs {} approvals, found {signatures} signatures; sign it with `gristmill ledger sign`",
            held.rules.approvals
        );
        return Err(refused("approval-missing", reason));
    }

    // The component's bytes.
    let component = source.fetch(&pin)?;
    pin.verify(&component).map_err(|error| refused(error.code(), error.to_string()))?;

    // Its imports: the locked ones, and all of them granted.
    let inspected =
        host.inspect(&component).map_err(|refusal| asked("invalid-component", refusal))?;
    imports(&pin, &inspected, held.grant).map_err(|(code, reason)| refused(code, reason))?;

    // Its contract.
    contract(&pin, &inspected, held.worlds)
        .map_err(|reason| refused("unsupported-contract", reason))?;

    // What was found out about it.
    evidence(&pin, purpose, held).map_err(|(code, reason)| refused(code, reason))?;

    // How fast it is: as measured on this class of host, otherwise measured now.
    if pin.guardrail.is_none() && held.rules.guardrail && purpose == Purpose::Promote {
        return Err(refused(
            "guardrail-missing",
            "expected a guardrail: measure it, then pin it".into(),
        ));
    }
    if purpose == Purpose::Promote {
        guardrail(&pin, &component, held, host).map_err(|(code, reason)| refused(code, reason))?;
    }

    // That it runs at all.
    host.compile(&pin, &component).map_err(|refusal| asked("compile-failed", refusal))?;
    host.smoke(&pin, &component).map_err(|refusal| asked("smoke-failed", refusal))?;
    Ok(Proven { pin, digest, component, signatures })
}

/// A documented word, and what was expected and found.
pub type Word = (&'static str, String);

/// Within its dates and not revoked; `digest` is that of its text.
pub(crate) fn stands(pin: &Pin, digest: &str, revoked: &Revoked, now: Date) -> Result<(), Word> {
    dates(pin, now)?;
    revoked.allows(pin, digest).map_err(|reason| ("revoked", reason))
}

pub(crate) fn dates(pin: &Pin, now: Date) -> Result<(), Word> {
    if let Some(from) = pin.not_before.filter(|from| *from > now) {
        return Err(("not-yet-valid", format!("in force from {from} on, and it is {now}")));
    }
    match pin.expires.filter(|end| *end <= now) {
        Some(end) => Err(("expired", format!("expired at {end}, and it is {now}; renew the pin"))),
        None => Ok(()),
    }
}

/// Whether a candidate may be tried out beside what serves: the checks of [`prove`] that come before
/// anything of it runs, and need nothing that trying it out is to find. With `signed` those who have to
/// sign must have signed it as it lies there.
///
/// # Errors
/// `not-yet-valid`, `expired`, `revoked`, `quarantined`, `signature-threshold`, or a file that cannot be
/// read.
pub fn tryable(dir: &Path, candidate: &Filed, signed: bool, now: Date) -> Result<(), LedgerError> {
    let pin = &candidate.pin;
    let refused = |(code, reason): Word| LedgerError::refused(code, &candidate.path, reason);
    let (revoked, _) = Revoked::open(dir)?;
    stands(pin, &candidate.digest, &revoked, now).map_err(refused)?;
    let quarantined = Chain::open(dir)?.quarantined();
    unquarantined(pin, &quarantined).map_err(|reason| refused(("quarantined", reason)))?;
    if signed {
        let verified = Keys::open(dir)?.verify(pin, &revoked);
        verified.map_err(|reason| refused(("signature-threshold", reason)))?;
    }
    Ok(())
}

/// A component in quarantine does not come in force. What is in force serves on: something must answer.
pub(crate) fn unquarantined(
    pin: &Pin,
    quarantined: &BTreeMap<String, Quarantine>,
) -> Result<(), String> {
    match quarantined.get(&pin.sha256) {
        None => Ok(()),
        Some(Quarantine { reason, since, .. }) => Err(format!(
            "{} is in quarantine since {since}: {reason}; mend it and pin another, or release it with `gristmill ledger release`",
            pin.digest()
        )),
    }
}

fn sequence(pin: &Pin, digest: &str, purpose: Purpose, held: &Held<'_>) -> Result<(), String> {
    let same = held.in_force == Some(digest);
    match purpose {
        Purpose::Promote if pin.sequence > held.highest => Ok(()),
        Purpose::Promote if same && pin.sequence == held.highest => Ok(()),
        Purpose::Promote => Err(replayed(pin, held.highest)),
        Purpose::Serve => serves(pin, digest, held.highest, held.permitted),
        Purpose::Rollback => Ok(()),
    }
}

/// Whether a pin in force is the newest that was seen, or the older one that may serve.
pub(crate) fn serves(
    pin: &Pin,
    digest: &str,
    highest: u64,
    permitted: Option<&str>,
) -> Result<(), String> {
    if pin.sequence >= highest || permitted == Some(digest) {
        return Ok(());
    }
    Err(replayed(pin, highest))
}

fn replayed(pin: &Pin, highest: u64) -> String {
    format!(
        "sequence {} of {}, and {highest} was in force already: an older pin does not come back this way; roll back, or pin it anew",
        pin.sequence, pin.name
    )
}

fn imports(pin: &Pin, inspected: &Inspected, grant: &Granted<'_>) -> Result<(), Word> {
    let mut found = inspected.imports.clone();
    found.sort();
    if found != pin.imports {
        let without = |from: &[String], other: &[String]| {
            let names = from.iter().filter(|name| !other.contains(name));
            names.map(|name| name.escape_debug().to_string()).collect::<Vec<_>>().join(", ")
        };
        let reason = format!(
            "imports: not in the pin [{}], only in the pin [{}]; a new import needs a new approval",
            without(&found, &pin.imports),
            without(&pin.imports, &found)
        );
        return Err(("import-mismatch", reason));
    }
    granted(pin, grant.digest.as_deref())?;
    match found.iter().find(|name| !(grant.allows)(name)) {
        Some(name) => Err(("import-not-granted", format!("the grant does not allow {name}"))),
        None => Ok(()),
    }
}

/// Whether the grant, by the digest of its file, is the one that the pin was approved with.
///
/// # Errors
/// `grant-changed`, and why.
pub fn granted(pin: &Pin, found: Option<&str>) -> Result<(), Word> {
    match pin.grant.as_deref().filter(|expected| Some(*expected) != found) {
        None => Ok(()),
        Some(expected) => Err((
            "grant-changed",
            format!(
                "approved with the grant {expected}, found {}; restore the grant, or pin it anew",
                found.unwrap_or("none")
            ),
        )),
    }
}

fn contract(pin: &Pin, inspected: &Inspected, worlds: &[World]) -> Result<(), String> {
    if inspected.kind != pin.kind || inspected.contract != pin.contract {
        return Err(format!(
            "the pin is of a {} for contract {}, the component is a {} for {}",
            pin.kind, pin.contract, inspected.kind, inspected.contract
        ));
    }
    world(pin, worlds)
}

pub(crate) fn world(pin: &Pin, worlds: &[World]) -> Result<(), String> {
    let known =
        worlds.iter().filter(|known| known.contract == pin.contract && known.world == pin.world);
    let mut digests = known.map(|known| &known.digest).peekable();
    if digests.peek().is_none() {
        let all: Vec<_> =
            worlds.iter().map(|one| format!("{} {}", one.contract, one.world)).collect();
        return Err(format!(
            "contract {} {}; this host speaks {}",
            pin.contract,
            pin.world,
            all.join(", ")
        ));
    }
    match &pin.world_digest {
        Some(own) if !digests.any(|known| known == own) => Err(format!(
            "the world {} of contract {} had the digest {own} when it was pinned, and has another now; build and pin it anew",
            pin.world, pin.contract
        )),
        _ => Ok(()),
    }
}

/// What the candidate does on this class of host, against what the pin in force did. A class of which
/// neither knows anything is not measured.
fn guardrail(
    pin: &Pin,
    component: &[u8],
    held: &Held<'_>,
    host: &mut dyn Host,
) -> Result<(), Word> {
    let class = host.class();
    let before = held.baseline.and_then(|pin| Some((pin, pin.guardrail.as_ref()?)));
    let baseline = before.and_then(|(pin, own)| own.on(&class).or_else(|| host.measured(pin)));
    let before = before.map(|(_, own)| own);
    if pin.guardrail.is_none() && baseline.is_none() {
        return Ok(());
    }
    let rates = match pin.guardrail.as_ref().and_then(|own| own.on(&class)) {
        Some(rates) => rates,
        None => host.measure(pin, component).map_err(|refusal| {
            (refusal.code.unwrap_or("guardrail-unmeasured"), format!("on {class}: {refusal}"))
        })?,
    };
    if !rates.is_run() {
        let reason = format!("on {class}: a run of zero tokens is a failed run");
        return Err(("guardrail-broken", reason));
    }
    let Some((before, baseline)) = before.zip(baseline) else { return Ok(()) };
    // The stricter of the two: a candidate does not loosen the rail it is held to.
    let own = pin.guardrail.as_ref().map_or(before.tolerance, |own| own.tolerance);
    rates
        .holds(baseline, before.tolerance.min(own))
        .map_err(|reason| ("guardrail-broken", format!("on {class}: {reason}")))
}

/// The reports that the pin names are there, about this component and without failures. They must be
/// recent when it comes in force; a pin does not lapse because its reports grow old.
fn evidence(pin: &Pin, purpose: Purpose, held: &Held<'_>) -> Result<(), Word> {
    let promote = purpose == Purpose::Promote;
    if pin.evidence.is_empty() && held.rules.evidence && promote {
        let reason = "expected evidence: run the conformance suite, then pin its report";
        return Err(("evidence-missing", reason.to_owned()));
    }
    for digest in &pin.evidence {
        let predicate = &report(pin, digest, held.evidence)?.predicate;
        if !promote {
            continue;
        }
        let days = predicate.date.parse::<Date>().map(|date| held.now.days_since(date));
        if !days.is_ok_and(|days| days >= 0 && days <= held.rules.evidence_days.into()) {
            let reason = format!(
                "the report {digest} is of {}, at most {} days are allowed; test it again",
                predicate.date, held.rules.evidence_days
            );
            return Err(("evidence-stale", reason));
        }
        let newer = |one: &&Resource| !predicate.configuration.contains(one);
        if let Some(probe) = held.rules.suite.iter().find(newer) {
            let reason = format!(
                "the report {digest} was made without {} {}; test it again",
                probe.name,
                probe.sha256()
            );
            return Err(("evidence-stale", reason));
        }
    }
    Ok(())
}

/// A report that a pin names: it is there, about the pin's component and without failures.
pub(crate) fn report<'a>(
    pin: &Pin,
    digest: &str,
    evidence: &'a Evidence,
) -> Result<&'a Statement, Word> {
    let Some(statement) = evidence.file(digest) else {
        return Err(("evidence-missing", format!("no report with the digest {digest}")));
    };
    if !statement.subject.iter().any(|subject| subject.sha256() == pin.digest()) {
        let reason = format!("the report {digest} is about another component");
        return Err(("evidence-missing", reason));
    }
    let predicate = &statement.predicate;
    // Whatever it says of itself, the lists count.
    let lists = Verdict::of(&predicate.passed_tests, &predicate.failed_tests);
    match (predicate.result, lists) {
        (Verdict::Passed, Verdict::Passed) => Ok(statement),
        (Verdict::Failed, _) | (_, Verdict::Failed) => {
            let failed = predicate.failed_tests.join(", ");
            Err(("evidence-failed", format!("the report {digest} has failures: {failed}")))
        }
        (Verdict::Unproven, _) | (_, Verdict::Unproven) => {
            let reason = format!(
                "the report {digest} proves nothing, no check applied; test it with a model and a probe that it is for"
            );
            Err(("evidence-missing", reason))
        }
    }
}

/// The digest of the grant that a plugin of this name and kind has: its own file in
/// `policies/grants`, or else that of its kind. The file's bytes count.
///
/// # Errors
/// `invalid-pin` for what is no pin's name, or that it cannot be read.
pub fn grant_digest(
    policies: &Path,
    name: &str,
    kind: Kind,
) -> Result<Option<String>, LedgerError> {
    for stem in [name, kind.as_str()] {
        let path = named(policies, "grants", stem)?;
        if let Some(bytes) = crate::disk::read_if_there(&path, 64 << 10)? {
            return Ok(Some(sha256(&bytes)));
        }
    }
    Ok(None)
}
