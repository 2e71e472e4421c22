//! `gristmill ledger …`: what is in force, what waits, and every change of it, on the folder itself.
//!
//! Nothing here needs a running host or a network. A host that serves from the folder sees the change,
//! proves it for itself and moves its traffic; here a candidate is compiled and asked what it is, in the
//! same sandbox, before it is put in force.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use clap::Subcommand;
use gristmill_kernels::{Pool, isa};
use gristmill_ledger::{
    Audit, Changed, Date, Granted, Host, HostRefusal, Inspected, Keeper, Kind, Ledger, LedgerError,
    Pin, Plan, Quarantine, Report, Revoke, Rules, Terms, candidate, contract, grant_digest,
    guardrail::Rates,
    in_place, is_kept,
    keys::{self, Key, Keys, Signature},
    log::Chain,
    performance::{HostFingerprint, Record},
    prove::tryable,
    proven,
    source::Folder,
    suite, waiting,
};
use gristmill_policies::{Approvals, Change, Grant, Policies, PolicyError};
use gristmill_sandbox::{Sandbox, Services, backend::Backend, inspect, needs_grant};
use serde_json::{Value, json};

use crate::{
    compose::{Places, runtime, sandbox},
    measure,
    propose::{Component, Conditions, propose, pulled},
    qualify,
    settings::Settings,
};

/// `gristmill ledger …`
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// What is in force under each name, and what waits
    Status,
    /// Propose a component for a name: a candidate, to be qualified, signed and promoted
    Pin {
        /// The name
        name: String,
        /// A .wasm file, or oci:HOST/REPOSITORY:TAG or …@sha256:DIGEST; it is kept beside the others
        source: String,
        /// The plugin's version [default: the one it had, else 0.1.0]
        #[arg(long)]
        version: Option<String>,
        /// A report that speaks for it: the SHA-256 of a file in evidence/; may be given several times
        #[arg(long, value_name = "SHA256")]
        evidence: Vec<String>,
        /// From when on it may be in force: 2026-11-30T12:00:00Z
        #[arg(long, value_name = "DATE")]
        not_before: Option<Date>,
        /// Until when
        #[arg(long, value_name = "DATE")]
        expires: Option<Date>,
    },
    /// Test and measure a candidate against what is in force, on this machine, and write it down
    Qualify(qualify::Arguments),
    /// Sign a candidate
    Sign {
        /// Its name
        name: String,
        /// The secret key's file
        #[arg(long)]
        key: PathBuf,
        /// Sign what a host answered to GET /v1/ledger/candidate, and print what POST /v1/ledger/sign takes;
        /// no ledger is needed here
        #[arg(long, value_name = "FILE")]
        candidate: Option<PathBuf>,
    },
    /// Prove a candidate, or what lies in its place, and put it in force
    Promote {
        /// Its name
        name: String,
    },
    /// Put what was in force before in force again
    Rollback {
        /// Its name
        name: String,
        /// The sequence to go back to [default: the one the pin names, else the one before]
        #[arg(long)]
        to: Option<u64>,
    },
    /// Prove the whole folder, without a network
    Verify,
    /// What happened, oldest first
    Log {
        /// Only of this name
        name: Option<String>,
        /// The lines as they are in the file
        #[arg(long)]
        json: bool,
    },
    /// Take a component, a pin or a key out of trust, for good
    Revoke {
        /// SHA-256 of a component or of a pin's file
        #[arg(
            long,
            value_name = "SHA256",
            conflicts_with = "key",
            required_unless_present = "key"
        )]
        digest: Option<String>,
        /// Id of a key
        #[arg(long, value_name = "ID")]
        key: Option<String>,
        /// Why, for the log and for whoever meets the refusal
        #[arg(long)]
        reason: String,
    },
    /// Let a component that is in quarantine be put in force again
    Release {
        /// A plugin's name, for every component that its pins are of, or one component's SHA-256
        #[arg(value_name = "NAME|SHA256")]
        what: String,
        /// Why, for the log
        #[arg(long)]
        reason: Option<String>,
    },
    /// Make a key to sign with; prints its public half
    Keygen {
        /// Where the secret goes; the file must not exist yet
        file: PathBuf,
    },
    /// Let a key count, and say how many must sign a pin
    Trust {
        /// Whose key it is, for people
        name: String,
        /// The public half: 64 hexadecimal digits
        public: String,
        /// How many different keys a pin needs [default: as many as before, at least 1]
        #[arg(long)]
        threshold: Option<u32>,
    },
}

/// Does it.
pub(crate) fn ledger(settings: &Settings, places: &Places, command: Command) -> Result<()> {
    match command {
        Command::Status => status(places),
        Command::Pin { name, source, version, evidence, not_before, expires } => {
            let conditions = Conditions { version, evidence, not_before, expires };
            pin(places, &name, &source, conditions)
        }
        Command::Qualify(arguments) => qualify::qualify(settings, places, &arguments),
        Command::Sign { name, key, candidate } => sign(places, &name, &key, candidate.as_deref()),
        Command::Promote { name } => promote(settings, places, &name),
        Command::Rollback { name, to } => rollback(places, &name, to),
        Command::Verify => verify(places),
        Command::Log { name, json } => log(places, name.as_deref(), json),
        Command::Revoke { digest, key, reason } => {
            let what = match (&digest, &key) {
                (Some(digest), _) => Revoke::Digest(digest),
                (None, Some(key)) => Revoke::Key(key),
                (None, None) => bail!("expected --digest or --key"),
            };
            keeper(places)?.revoke(what, &reason, Date::now(), "ledger revoke")?;
            println!("revoked {}", digest.or(key).unwrap_or_default());
            Ok(())
        }
        Command::Release { what, reason } => {
            let (digests, _) = release(places, &what, reason.as_deref(), "ledger release")?;
            for digest in digests {
                println!("released sha256:{digest}");
            }
            Ok(())
        }
        Command::Keygen { file } => {
            println!("{}", keys::keygen(&file, "")?.public);
            Ok(())
        }
        Command::Trust { name, public, threshold } => {
            let keeper = keeper(places)?;
            let mut keys = Keys::open(&places.ledger)?;
            keys.keys.push(Key { name, public });
            keys.threshold = threshold.unwrap_or(keys.threshold.max(1));
            keeper.trust(&keys)?;
            println!("{} of {} keys sign a pin", keys.threshold, keys.keys.len());
            Ok(())
        }
    }
}

/// How long another writer is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Opens the ledger to change it. Who changes it at the moment is waited for, for a while.
pub(crate) fn keeper(places: &Places) -> Result<Keeper, LedgerError> {
    let begun = Instant::now();
    loop {
        match Keeper::open(&places.ledger, places.ledger_state.as_deref()) {
            Err(error) if error.code() == "ledger-busy" && begun.elapsed() < PATIENCE => {
                thread::sleep(Duration::from_millis(20));
            }
            opened => return opened,
        }
    }
}

/// Takes components out of quarantine; their digests, and the log that says so.
pub(crate) fn release(
    places: &Places,
    what: &str,
    reason: Option<&str>,
    by: &str,
) -> Result<(Vec<String>, Chain), LedgerError> {
    if !is_kept(&places.ledger) {
        let reason = "this folder is no ledger yet: quarantine is in the host's memory alone, and ends with it";
        let path = places.ledger.clone();
        return Err(LedgerError::Refused { code: "not-quarantined", path, reason: reason.into() });
    }
    let mut keeper = keeper(places)?;
    let released = keeper.release(what, reason, Date::now(), by)?;
    Ok((released, keeper.log().clone()))
}

fn status(places: &Places) -> Result<()> {
    for line in gristmill_ledger::status(&places.ledger)? {
        let digest: String = line.pin.sha256.chars().take(12).collect();
        let since = line.since.map_or_else(|| "-".to_owned(), |date| date.to_string());
        let mut words = Vec::new();
        if !line.proven {
            words.push("unproven");
        }
        if line.pending {
            words.push("changed, not in force yet");
        }
        if line.candidate {
            words.push("candidate waits");
        }
        if line.quarantined {
            words.push("in quarantine");
        }
        println!(
            "{:<20} {:<8} {:<10} {:>4}  {digest}  {since:<20}  {}",
            line.name,
            line.pin.kind,
            line.pin.version,
            line.pin.sequence,
            words.join(", ")
        );
    }
    for (digest, known) in Chain::open(&places.ledger)?.quarantined() {
        let Quarantine { name, reason, since } = known;
        println!("quarantine {name} sha256:{digest} since {since}: {reason}");
    }
    Ok(())
}

fn pin(places: &Places, name: &str, source: &str, conditions: Conditions) -> Result<()> {
    let component = if source.starts_with("oci:") {
        pulled(source)?
    } else {
        let file = Path::new(source);
        let name =
            file.file_name().and_then(|name| name.to_str()).context("a file needs a name")?;
        let bytes = fs::read(file).with_context(|| format!("cannot read {source}"))?;
        Component { original: Some(name.to_owned()), resolved: None, bytes }
    };
    if let Some(resolved) = &component.resolved {
        println!("resolved to {resolved}");
    }
    let (pin, candidate) = propose(places, name, &component, conditions)?;
    println!("proposed {name} {}, sequence {}", pin.digest(), pin.sequence);
    println!("candidate {}", candidate.display());
    Ok(())
}

fn sign(places: &Places, name: &str, key: &Path, candidate: Option<&Path>) -> Result<()> {
    let secret = keys::secret(key)?;
    let Some(candidate) = candidate else {
        let pin = keeper(places)?.sign(name, &secret)?;
        println!("signed {name} {}, by {} keys now", pin.digest(), pin.signatures.len());
        return Ok(());
    };
    let file = candidate.display();
    let bytes = fs::read(candidate).with_context(|| format!("cannot read {file}"))?;
    let answer: Value = serde_json::from_slice(&bytes).with_context(|| file.to_string())?;
    let text = answer.get("text").and_then(Value::as_str);
    let text = text.with_context(|| {
        format!("{file}: expected the answer of GET /v1/ledger/candidate, found no `text` in it")
    })?;
    let pin = Pin::parse(text).map_err(|reason| anyhow!("{file}: {reason}"))?;
    ensure!(pin.name == name, "{file}: it is a pin for {}, not for {name}", pin.name);
    let Signature { signature, .. } = keys::detached(&pin, &secret).map_err(anyhow::Error::msg)?;
    // What is signed is said where it does not become part of the answer.
    eprint!("signs:\n{}", pin.to_toml().map_err(anyhow::Error::msg)?);
    let public = Key::of("", &secret).public;
    println!("{}", json!({ "name": name, "public": public, "signature": signature }));
    Ok(())
}

fn promote(settings: &Settings, places: &Places, name: &str) -> Result<()> {
    let text = waiting(&places.ledger, name)?
        .with_context(|| format!("no candidate and no pin of {name}: pin it first"))?;
    let next = Pin::parse(&text).map_err(anyhow::Error::msg)?;
    let mut tried = Tried::new(places)?;
    // Before the ledger is held: it takes a minute, and a host must be able to go back meanwhile.
    tried.measured = measured(settings, places, &next)?;
    let mut keeper = keeper(places)?;
    let asked = Asked { name, kind: next.kind, next: Some(&next), by: "ledger promote" };
    let changed = against(places, asked, |terms| {
        keeper.promote(&Plan { name, text: &text, terms }, &mut tried)
    })?;
    told("promoted", name, changed)
}

/// What a pin does on this class of host, where it is to be held to a guardrail and has no numbers of it; or
/// why that cannot be told. Nothing of a pin that will be refused anyway.
fn measured(settings: &Settings, places: &Places, next: &Pin) -> Result<Option<Measured>> {
    let guardrail = next.guardrail.as_ref();
    let before = proven(&places.ledger, &next.name)?.map(|filed| filed.pin);
    let held = guardrail.or(before.as_ref().and_then(|pin| pin.guardrail.as_ref())).is_some();
    let known = guardrail.is_some_and(|own| own.on(&fingerprint().class()).is_some());
    if !held || known || before.as_ref() == Some(next) {
        return Ok(None);
    }
    let filed = match candidate(&places.ledger, &next.name)? {
        None => in_place(&places.ledger, &next.name)?,
        found => found,
    };
    let may = filed.is_some_and(|filed| {
        filed.pin == *next && tryable(&places.ledger, &filed, true, Date::now()).is_ok()
    });
    let record = || measure::now(settings, places, next).map_err(|error| format!("{error:#}"));
    Ok(may.then(|| Measured { pin: next.clone(), record: record() }))
}

fn rollback(places: &Places, name: &str, to: Option<u64>) -> Result<()> {
    let mut keeper = keeper(places)?;
    let in_force = keeper.in_force(name)?.with_context(|| format!("there is no pin of {name}"))?;
    let mut tried = Tried::new(places)?;
    let kind = in_force.pin.kind;
    let asked = Asked { name, kind, next: None, by: "ledger rollback" };
    let changed = against(places, asked, |terms| keeper.rollback(name, to, terms, &mut tried))?;
    told("rolled back", name, changed)
}

fn told(what: &str, name: &str, changed: Changed) -> Result<()> {
    let pin = changed.pin;
    match changed.changed {
        true => println!("{what} {name} {}, sequence {}", pin.digest(), pin.sequence),
        false => println!("{name} {} is in force already", pin.digest()),
    }
    match changed.unrecorded {
        Some(fault) => Err(fault).context("it is in force, and its record is not whole"),
        None => Ok(()),
    }
}

/// The audit of everything that lies there, components and policies with it.
pub(crate) fn audit(places: &Places) -> Result<Report, LedgerError> {
    let (components, worlds) = (Folder(places.plugins.clone()), contract::worlds());
    let audit = Audit {
        components: Some(&components),
        policies: Some(&places.policies),
        transcripts: None,
        worlds: &worlds,
        state: places.ledger_state.as_deref(),
        now: Date::now(),
    };
    Ledger::verify(&places.ledger, &audit)
}

fn verify(places: &Places) -> Result<()> {
    let report = audit(places)?;
    for (count, what) in [
        (report.pins, "pins with their components"),
        (report.history, "superseded pins"),
        (report.evidence, "reports"),
        (report.performance, "measurements"),
        (report.upstreams, "entries on servers"),
        (report.log, "lines of the log"),
    ] {
        println!("{count:>6} {what}");
    }
    for name in &report.pending {
        println!("waits to be proven: {name}");
    }
    for name in &report.interrupted {
        println!("interrupted, the next command that writes ends it: {name}");
    }
    for fault in &report.faults {
        println!("WRONG {}: {fault}", fault.code());
    }
    ensure!(
        report.is_sound(),
        "{} things are wrong in {}",
        report.faults.len(),
        places.ledger.display()
    );
    println!("sound, with {} signatures asked of a pin", report.threshold);
    Ok(())
}

fn log(places: &Places, name: Option<&str>, json: bool) -> Result<()> {
    for entry in Chain::open(&places.ledger)?.entries {
        let event = &entry.event;
        if name.is_some_and(|name| name != event.name) {
            continue;
        }
        if json {
            println!("{}", serde_json::to_string(&entry)?);
            continue;
        }
        let what = serde_json::to_value(event.what)?;
        print!(
            "{:>6} {} {:<10} {}",
            entry.number,
            entry.date,
            what.as_str().unwrap_or("?"),
            event.name
        );
        if let Some(sequence) = event.sequence {
            print!(" sequence {sequence}");
        }
        if let Some(generation) = event.generation {
            print!(" generation {generation}");
        }
        if let Some(code) = &event.code {
            print!(" ({code})");
        }
        if let Some(reason) = &event.reason {
            print!(": {reason}");
        }
        if let Some(by) = &event.by {
            print!(" [{by}]");
        }
        println!();
    }
    Ok(())
}

/// What is asked of the ledger.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) name: &'a str,
    pub(crate) kind: Kind,
    /// What is to come in force; none: what was in force before.
    pub(crate) next: Option<&'a Pin>,
    /// For the log.
    pub(crate) by: &'a str,
}

/// Calls `work` with what a pin is held against on this host: evidence must have been made with the probes
/// in force, and as many must have signed as the approval rules say. Where nobody has to sign, what is not
/// there is not asked for either.
pub(crate) fn against<T>(
    places: &Places,
    Asked { name, kind, next, by }: Asked<'_>,
    work: impl FnOnce(Terms<'_>) -> Result<T, LedgerError>,
) -> Result<T, LedgerError> {
    let broken = |error: PolicyError| LedgerError::Refused {
        code: error.code(),
        path: places.policies.clone(),
        reason: error.to_string(),
    };
    let policies = Policies::open(&places.policies).map_err(broken)?;
    let changes = match next {
        None => BTreeSet::from([Change::Rollback]),
        Some(next) => {
            let before = proven(&places.ledger, name)?;
            Change::between(before.as_ref().map(|filed| &filed.pin), next)
        }
    };
    let approvals = Approvals::open(&places.policies).map_err(broken)?;
    let approvals = approvals.needed(name, kind, &changes).approvals;
    let allows = |import: &str| {
        if !needs_grant(import) {
            return true;
        }
        let grant = policies.grant(name, kind);
        grant.is_ok_and(|grant| grant.allows(import.split('@').next().unwrap_or(import)))
    };
    let digest = grant_digest(&places.policies, name, kind)?;
    let signed = Keys::open(&places.ledger)?.threshold > 0;
    let rules = if signed { Rules::default() } else { Rules::developer() };
    let rules = Rules { suite: suite(&places.ledger, name)?, approvals, ..rules };
    work(Terms {
        source: &Folder(places.plugins.clone()),
        grant: &Granted { digest, allows: &allows },
        worlds: &contract::worlds(),
        rules: &rules,
        now: Date::now(),
        by,
    })
}

/// The machine, as measurements and guardrails name it.
pub(crate) fn fingerprint() -> HostFingerprint {
    HostFingerprint {
        os: env::consts::OS.to_owned(),
        arch: env::consts::ARCH.to_owned(),
        isa: isa::report().chosen.name().to_owned(),
        processors: u32::try_from(Pool::available()).unwrap_or(u32::MAX),
        processor: None,
        memory: gristmill_engine::memory::Memory::new(None).limit(),
        runtime: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// What a component is, without running any of it.
pub(crate) fn inspected(component: &[u8]) -> Result<Inspected, HostRefusal> {
    let found = inspect(component).map_err(|error| error.to_string())?;
    Ok(Inspected { kind: found.kind, contract: found.contract, imports: found.imports })
}

/// Compiles and tries a component, and serves nothing.
struct Tried<'a> {
    places: &'a Places,
    sandbox: Sandbox,
    runtime: tokio::runtime::Runtime,
    backend: Option<Arc<dyn Backend>>,
    measured: Option<Measured>,
}

/// What was measured of a pin, or why it could not be.
struct Measured {
    pin: Pin,
    record: Result<Record, String>,
}

impl<'a> Tried<'a> {
    fn new(places: &'a Places) -> Result<Self> {
        let (sandbox, runtime) = (sandbox()?, runtime()?);
        Ok(Self { places, sandbox, runtime, backend: None, measured: None })
    }
}

impl Host for Tried<'_> {
    fn class(&self) -> String {
        fingerprint().class()
    }

    fn inspect(&mut self, component: &[u8]) -> Result<Inspected, HostRefusal> {
        inspected(component)
    }

    fn measure(&mut self, pin: &Pin, _: &[u8]) -> Result<Rates, HostRefusal> {
        match self.measured.take().filter(|measured| measured.pin == *pin) {
            Some(Measured { record, .. }) => {
                record.map(|record| record.rates()).map_err(HostRefusal::from)
            }
            None => Err("it was changed while it was to be measured: promote it again"
                .to_owned()
                .into()),
        }
    }

    fn measured(&self, in_force: &Pin) -> Option<Rates> {
        let Some(Measured { record: Ok(record), .. }) = &self.measured else { return None };
        measure::earlier(self.places, &in_force.sha256, record)
    }

    fn compile(&mut self, pin: &Pin, component: &[u8]) -> Result<(), HostRefusal> {
        let policies = Policies::open(&self.places.policies).map_err(|error| error.to_string())?;
        let grant: &Grant =
            policies.grant(&pin.name, pin.kind).map_err(|error| error.to_string())?;
        let loaded = match pin.kind {
            Kind::Family => self.sandbox.load_family(component, pin, grant).map(drop),
            Kind::Probe => self.sandbox.load_probe(component, pin, grant).map(drop),
            Kind::Backend => self
                .sandbox
                .load_backend(component, pin, grant, Services::default())
                .map(|backend| self.backend = Some(backend)),
        };
        loaded.map_err(|error| error.to_string().into())
    }

    fn smoke(&mut self, _: &Pin, _: &[u8]) -> Result<(), HostRefusal> {
        if let Some(backend) = &self.backend {
            let described = self.runtime.block_on(backend.describe());
            described.map_err(|error| format!("it cannot say what it is: {error}"))?;
        }
        Ok(())
    }

    fn swap(&mut self, _: &Pin, _: &[u8]) -> Result<Option<u64>, HostRefusal> {
        Ok(None)
    }
}
