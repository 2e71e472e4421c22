//! What the control plane is told by this host: the machine, the ledger and the policies as they lie
//! on disk, and the verbs on them.
//!
//! Files are read when they are asked for, on the blocking pool: what is shown is what is there now,
//! whoever wrote it. What runs changes by a verb alone, and only after everything about the new
//! component has been proven.

mod candidates;

use std::{fs, io, path::Path, sync::Arc};

use async_trait::async_trait;
use gristmill_api::control::{
    Control, Kind, Refused,
    view::{
        HostFacts, InQuarantine, LedgerStatus, LogEntry, LogPage, LogQuery, PluginPin, Policy,
        Problem, Promote, Propose, Proposed, Qualified, Qualify, Release, Released, Revoke,
        Revoked, Rollback, Sign, Swap, Trial, UpstreamEntry, Verified,
    },
};
use gristmill_kernels::{Pool, isa};
use gristmill_ledger::{
    self as ledger, LedgerError, Pin, contract, evidence::Evidence, log::Chain, upstream,
};
use gristmill_policies::{Policies, block};
use gristmill_router::{Rollout, Trial as RouterTrial};
use jiff::{Timestamp, tz::TimeZone};
use serde_json::Value;
use tokio::{sync::Mutex, task::spawn_blocking};

use crate::{
    compose::{Places, hardware},
    problems::{Found, Kept, forgettable, left, problem, ungranted},
    promote::Promoter,
    settings::Settings,
};

/// Copies of requests that a shadow may have under way.
const SHADOWS: usize = 4;

/// This host's ledger, policies and machine.
pub(crate) struct HostControl {
    host: HostFacts,
    settings: Arc<Settings>,
    promoter: Arc<Promoter>,
    kept: Arc<Kept>,
    /// Held by the one candidate that is measured.
    qualifying: Arc<Mutex<()>>,
}

impl HostControl {
    /// Over the rooms as they are composed.
    pub(crate) fn new(settings: &Settings, promoter: Arc<Promoter>) -> Self {
        let kernels = isa::report();
        let mut contracts: Vec<_> =
            contract::worlds().into_iter().map(|world| world.contract).collect();
        contracts.dedup();
        let host = HostFacts {
            architecture: std::env::consts::ARCH.to_owned(),
            threads: Pool::available(),
            kernels: Some(kernels.chosen.to_string()),
            kernels_because: Some(kernels.why.clone()),
            hardware: hardware(),
            contracts,
            memory_limit_bytes: settings.count("engine.memory_mib").map(|mib| mib << 20),
        };
        let settings = Arc::new(settings.clone());
        Self { host, settings, promoter, kept: Arc::default(), qualifying: Arc::default() }
    }

    /// Does what blocks, off the threads that serve. It ends even if nobody waits for it any more.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Promoter) -> Result<T, Refused> + Send + 'static,
    ) -> Result<T, Refused> {
        let promoter = Arc::clone(&self.promoter);
        spawn_blocking(move || work(&promoter)).await.map_err(|error| {
            Refused::new(Kind::Failed, "internal", format!("a task ended: {error}"))
        })?
    }

    /// Reads files.
    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Places) -> Result<T, Refused> + Send + 'static,
    ) -> Result<T, Refused> {
        self.blocking(move |promoter| work(&promoter.places)).await
    }
}

fn refused(error: &LedgerError) -> Refused {
    let kind = match error {
        LedgerError::Io { .. } | LedgerError::Write { .. } => Kind::Failed,
        _ => Kind::Conflict,
    };
    Refused::new(kind, error.code(), error.to_string())
}

fn unknown(name: &str) -> Refused {
    Refused::new(Kind::NotFound, "not-found", format!("the ledger has no pin for {name:?}"))
}

/// A folder's TOML files by name, as their own keys. A folder that is missing has none.
fn documents(folder: &Path) -> Result<Vec<(String, Value)>, Refused> {
    let refused = |path: &Path, reason: String| {
        Refused::new(Kind::Conflict, "unreadable", format!("{}: {reason}", path.display()))
    };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(refused(folder, error.to_string())),
    };
    let mut documents = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| refused(folder, error.to_string()))?.path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).map_err(|error| refused(&path, error.to_string()))?;
        let document: Value =
            toml::from_str(&text).map_err(|error| refused(&path, error.to_string()))?;
        documents.push((name, document));
    }
    documents.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(documents)
}

fn policies(places: &Places) -> Result<Vec<Policy>, Refused> {
    let blocks = block::open(&places.policies)
        .map_err(|error| Refused::new(Kind::Conflict, error.code(), error.to_string()))?;
    let today = Timestamp::now().to_zoned_datetime(TimeZone::UTC).date();
    let mut all = Vec::new();
    for (kind, folder) in
        [("block", "blocks"), ("parameters", "parameters"), ("profile", "profiles")]
    {
        for (id, document) in documents(&places.policies.join(folder))? {
            let expired = kind == "block"
                && blocks.iter().any(|block| block.id == id && block.expired(today));
            all.push(Policy { kind: kind.to_owned(), id, applies: !expired, document });
        }
    }
    Ok(all)
}

fn upstreams(places: &Places) -> Result<Vec<UpstreamEntry>, Refused> {
    upstream::open(&places.ledger).map_err(|error| refused(&error))?;
    let entries = documents(&places.ledger.join(upstream::UPSTREAMS))?.into_iter();
    let entries = entries.map(|(name, document)| {
        let status = document.get("status").and_then(Value::as_str).unwrap_or_default();
        UpstreamEntry { name, status: status.to_owned(), document }
    });
    Ok(entries.collect())
}

fn page(places: &Places, query: &LogQuery) -> Result<LogPage, Refused> {
    let chain = Chain::open(&places.ledger).map_err(|error| refused(&error))?;
    let after = query.after.unwrap_or(0);
    let limit = query.limit.unwrap_or(100) as usize;
    let mut rest = chain.entries.into_iter().filter(|entry| entry.number > after);
    let entries: Vec<_> = rest
        .by_ref()
        .take(limit)
        .map(|entry| LogEntry {
            number: entry.number,
            hash: entry.hash.clone(),
            document: serde_json::to_value(&entry).unwrap_or_default(),
        })
        .collect();
    let next = entries.last().map(|last| last.number).filter(|_| rest.next().is_some());
    Ok(LogPage { entries, next })
}

fn status(promoter: &Promoter, found: &Found) -> LedgerStatus {
    let mut problems = found.ledger.clone();
    problems.extend(forgettable(promoter, &found.report));
    problems.extend(left(promoter));
    let report = &found.report;
    let quarantined = report.quarantined.iter().map(|(component, known)| InQuarantine {
        digest: format!("sha256:{component}"),
        name: known.name.clone(),
        reason: known.reason.clone(),
        since: known.since.to_string(),
    });
    LedgerStatus {
        sound: problems.is_empty(),
        pins: report.pins,
        pending: report.pending.clone(),
        quarantined: quarantined.collect(),
        log_entries: report.log as u64,
        log_head: report.head.clone(),
        problems,
    }
}

fn verified(places: &Places) -> Verified {
    let Found { report, ledger, policies, .. } = Found::now(places);
    let problems: Vec<_> = ledger.into_iter().chain(policies).collect();
    let checked = [
        (report.pins, "pins and their components"),
        (report.history, "superseded pins"),
        (report.evidence, "reports"),
        (report.upstreams, "entries on servers"),
        (report.performance, "measurements"),
        (report.log, "lines of the log"),
    ];
    let checked = checked.map(|(count, what)| format!("{count} {what}")).into();
    Verified { sound: problems.is_empty(), checked, problems }
}

fn pins(promoter: &Promoter) -> Result<Vec<PluginPin>, Refused> {
    let places = &promoter.places;
    let policies = Policies::open(&places.policies)
        .map_err(|error| Refused::new(Kind::Conflict, error.code(), error.to_string()))?;
    let evidence = Evidence::open(&places.ledger)
        .map_err(|error| Refused::new(Kind::Conflict, error.code(), error.to_string()))?;
    let all = ledger::status(&places.ledger).map_err(|error| refused(&error))?;
    let one = |status: ledger::Status| {
        let Pin { kind, version, contract, size, sequence, imports, .. } = status.pin.clone();
        let configured = promoter.configured.names().filter(|(_, pin)| *pin == status.name);
        PluginPin {
            kind: kind.to_string(),
            version,
            contract,
            digest: status.pin.digest(),
            size_bytes: size,
            sequence,
            imports,
            granted: policies.grant(&status.name, kind).is_ok(),
            evidence: evidence.concerns(&status.pin.digest()),
            proven: status.proven,
            waiting: status.pending || status.candidate,
            configured: configured.map(|(name, _)| name.to_owned()).collect(),
            name: status.name,
        }
    };
    Ok(all.into_iter().map(one).collect())
}

/// How the traffic moves.
fn rollout(trial: Option<Trial>) -> Rollout {
    let trial = match trial {
        None => RouterTrial::None,
        Some(Trial::Canary { share, requests }) => {
            RouterTrial::Canary { share, window: requests as usize }
        }
        Some(Trial::Shadow { share, requests, differing }) => RouterTrial::Shadow {
            share,
            window: requests as usize,
            active: SHADOWS,
            differing: differing.unwrap_or(0.0),
        },
    };
    Rollout { trial, ..Rollout::default() }
}

fn promote(promoter: &Promoter, by: &str, what: &Promote) -> Result<Swap, Refused> {
    let rollout = rollout(what.trial);
    rollout
        .check()
        .map_err(|error| Refused::new(Kind::Invalid, error.code(), error.to_string()))?;
    let turn = promoter.turn();
    let text =
        ledger::waiting(&promoter.places.ledger, &what.name).map_err(|error| refused(&error))?;
    let text = text.ok_or_else(|| unknown(&what.name))?;
    let pin =
        Pin::parse(&text).map_err(|reason| Refused::new(Kind::Conflict, "invalid-pin", reason))?;
    if pin.name != what.name {
        let message = format!("what waits as {} is a pin for {}", what.name, pin.name);
        return Err(Refused::new(Kind::Conflict, "invalid-pin", message));
    }
    let digest = pin.digest();
    if let Some(expected) = what.digest.as_ref().filter(|expected| **expected != digest) {
        let message = format!("{} is pinned to {digest}, not to {expected}", what.name);
        return Err(Refused::new(Kind::Conflict, "unexpected-digest", message));
    }
    let done = turn.promote(by, &pin, &text, rollout).map_err(|error| refused(&error))?;
    Ok(Swap { name: what.name.clone(), digest: done.pin.digest(), backends: done.backends })
}

fn rollback(promoter: &Promoter, by: &str, what: &Rollback) -> Result<Swap, Refused> {
    let Rollback { name, to } = what;
    let turn = promoter.turn();
    let in_force = ledger::in_force(&promoter.places.ledger, name);
    let filed = in_force.map_err(|error| refused(&error))?.ok_or_else(|| unknown(name))?;
    let pin = filed.pin;
    let done = turn.rollback(by, name, pin.kind, *to).map_err(|error| refused(&error))?;
    Ok(Swap { name: name.to_owned(), digest: done.pin.digest(), backends: done.backends })
}

#[async_trait]
impl Control for HostControl {
    fn host(&self) -> HostFacts {
        self.host.clone()
    }

    async fn problems(&self) -> Vec<Problem> {
        let kept = Arc::clone(&self.kept);
        let found = self.blocking(move |promoter| {
            let found = kept.found(&promoter.places);
            let mut problems = found.ledger.clone();
            problems.extend(found.policies.iter().cloned());
            problems.extend(forgettable(promoter, &found.report));
            problems.extend(left(promoter));
            problems.extend(ungranted(promoter, found.grants.as_ref()));
            Ok(problems)
        });
        let found = found.await;
        found.unwrap_or_else(|refused| vec![problem("ledger", &refused.code, refused.message)])
    }

    async fn plugins(&self) -> Result<Vec<PluginPin>, Refused> {
        self.blocking(pins).await
    }

    async fn policies(&self) -> Result<Vec<Policy>, Refused> {
        self.read(policies).await
    }

    async fn upstreams(&self) -> Result<Vec<UpstreamEntry>, Refused> {
        self.read(upstreams).await
    }

    async fn ledger(&self) -> Result<LedgerStatus, Refused> {
        let kept = Arc::clone(&self.kept);
        self.blocking(move |promoter| Ok(status(promoter, &kept.found(&promoter.places)))).await
    }

    async fn log(&self, query: LogQuery) -> Result<LogPage, Refused> {
        self.read(move |places| page(places, &query)).await
    }

    async fn verify(&self) -> Result<Verified, Refused> {
        self.read(|places| Ok(verified(places))).await
    }

    async fn pin(&self, by: &str, what: Propose) -> Result<Proposed, Refused> {
        let by = by.to_owned();
        self.blocking(move |promoter| candidates::pin(promoter, &by, what)).await
    }

    async fn candidate(&self, name: String) -> Result<Proposed, Refused> {
        self.read(move |places| candidates::candidate(places, &name)).await
    }

    async fn sign(&self, by: &str, what: Sign) -> Result<Proposed, Refused> {
        let by = by.to_owned();
        self.blocking(move |promoter| candidates::sign(promoter, &by, &what)).await
    }

    async fn qualify(&self, by: &str, what: Qualify) -> Result<Qualified, Refused> {
        let (settings, promoter) = (Arc::clone(&self.settings), Arc::clone(&self.promoter));
        candidates::qualify(settings, promoter, Arc::clone(&self.qualifying), by, what).await
    }

    async fn promote(&self, by: &str, what: Promote) -> Result<Swap, Refused> {
        let by = by.to_owned();
        self.blocking(move |promoter| promote(promoter, &by, &what)).await
    }

    async fn rollback(&self, by: &str, what: Rollback) -> Result<Swap, Refused> {
        let by = by.to_owned();
        self.blocking(move |promoter| rollback(promoter, &by, &what)).await
    }

    async fn revoke(&self, by: &str, what: Revoke) -> Result<Revoked, Refused> {
        let by = by.to_owned();
        let revoke = move |promoter: &Promoter| {
            let (what, reason) = match &what {
                Revoke::Digest { digest, reason } => (ledger::Revoke::Digest(digest), reason),
                Revoke::Key { key, reason } => (ledger::Revoke::Key(key), reason),
            };
            let pins =
                promoter.turn().revoke(&by, what, reason).map_err(|error| refused(&error))?;
            Ok(Revoked { pins })
        };
        self.blocking(revoke).await
    }

    async fn release(&self, by: &str, what: Release) -> Result<Released, Refused> {
        let by = by.to_owned();
        let release = move |promoter: &Promoter| {
            let (Release::Digest { digest: wanted, reason }
            | Release::Name { name: wanted, reason }) = &what;
            let released = promoter.turn().release(&by, wanted, reason.as_deref());
            let released = released.map_err(|error| refused(&error))?.into_iter();
            Ok(Released { digests: released.map(|one| format!("sha256:{one}")).collect() })
        };
        self.blocking(release).await
    }
}
