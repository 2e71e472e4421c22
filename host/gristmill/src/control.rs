//! What the control plane is told by this host: the machine, the ledger and the policies as they lie
//! on disk, and the verbs on them.
//!
//! Files are read when they are asked for, on the blocking pool: what is shown is what is there now,
//! whoever wrote it. What runs changes by a verb alone, and only after everything about the new
//! component has been proven.

use std::{
    collections::HashMap,
    fs, io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context as _, Result, ensure};
use async_trait::async_trait;
use gristmill_api::control::{
    Control, Kind, Refused,
    view::{
        HostFacts, LedgerStatus, LogEntry, LogPage, LogQuery, PluginPin, Policy, Problem, Promote,
        Revoke, Revoked, Rollback, Score, Swap, Swapped, UpstreamEntry, Verified,
    },
};
use gristmill_kernels::{Pool, isa};
use gristmill_ledger::{Kind as PluginKind, Ledger, Pin, evidence::Evidence, sha256};
use gristmill_policies::{Policies, block};
use gristmill_router::Router;
use gristmill_sandbox::{Sandbox, backend::Backend, inspect};
use jiff::{Timestamp, tz::TimeZone};
use serde_json::Value;
use tokio::task::spawn_blocking;

use crate::{
    compose::{Composed, Configured, Places, Plugins, hardware},
    settings::Settings,
};

/// Longest log line and longest file shown, bytes.
const MOST_BYTES: u64 = 64 << 20;

/// This host's ledger, policies and machine.
pub(crate) struct HostControl {
    places: Places,
    host: HostFacts,
    router: Arc<Router>,
    sandbox: Sandbox,
    configured: Arc<Configured>,
    /// Held through a verb, so that one ends before the next begins.
    verbs: tokio::sync::Mutex<()>,
    /// What each back-end ran before, to go back to.
    before: Mutex<HashMap<String, Arc<dyn Backend>>>,
}

impl HostControl {
    /// Over the rooms as they are composed.
    pub(crate) fn new(settings: &Settings, places: &Places, composed: Composed) -> Self {
        let kernels = isa::report();
        let host = HostFacts {
            architecture: std::env::consts::ARCH.to_owned(),
            threads: Pool::available(),
            kernels: Some(kernels.chosen.to_string()),
            kernels_because: Some(kernels.why.clone()),
            hardware: hardware(),
            contracts: vec!["0.1".to_owned()],
            memory_limit_bytes: settings.count("engine.memory_mib").map(|mib| mib << 20),
        };
        Self {
            places: places.clone(),
            host,
            router: composed.router,
            sandbox: composed.plugins.sandbox,
            configured: Arc::new(composed.configured),
            verbs: tokio::sync::Mutex::default(),
            before: Mutex::default(),
        }
    }

    /// Reads files, off the threads that serve.
    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Places) -> Result<T, Refused> + Send + 'static,
    ) -> Result<T, Refused> {
        let places = self.places.clone();
        spawn_blocking(move || work(&places))
            .await
            .map_err(|error| failed(format!("a task ended: {error}")))?
    }

    /// Names of the back-ends that are configured to be a plugin.
    fn backends_of(&self, plugin: &str) -> Vec<String> {
        let ours = self.configured.names().filter(|(_, pin)| *pin == plugin);
        ours.map(|(name, _)| name.to_owned()).collect()
    }

    fn running(&self, backend: &str) -> Option<(String, Arc<dyn Backend>)> {
        let slots = self.router.backends().slots();
        let current = slots.iter().find(|slot| slot.name == backend)?.current();
        Some((current.digest.clone(), Arc::clone(&current.backend)))
    }

    /// Puts a component in a back-end's place; what it replaced is kept to go back to.
    async fn swap(&self, name: &str, backend: Arc<dyn Backend>) -> Result<Swapped, Refused> {
        let (replaced, old) = self.running(name).ok_or_else(|| {
            Refused::new(Kind::NotFound, "unknown-backend", format!("{name} is not live"))
        })?;
        let slots = self.router.backends().slots();
        let source = slots.iter().find(|slot| slot.name == name).map(|slot| slot.source);
        let source = source.unwrap_or(gristmill_router::Source::Listed);
        let limits = self.configured.limits(name);
        let generation = self.router.install(name, source, limits, backend).await;
        let generation = generation.map_err(|error| {
            Refused::new(Kind::Conflict, "candidate-failed", format!("{name}: {error}"))
        })?;
        self.before.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), old);
        Ok(Swapped {
            backend: name.to_owned(),
            generation,
            standing: "live".to_owned(),
            replaced: Some(replaced),
        })
    }

    fn ran_before(&self, backend: &str) -> Option<Arc<dyn Backend>> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner).get(backend).cloned()
    }

    fn unchanged(&self, name: &str) -> Swapped {
        let slots = self.router.backends().slots();
        let slot = slots.iter().find(|slot| slot.name == name);
        Swapped {
            backend: name.to_owned(),
            generation: slot.map_or(0, |slot| slot.current().number),
            standing: "unchanged".to_owned(),
            replaced: None,
        }
    }
}

fn failed(message: impl Into<String>) -> Refused {
    Refused::new(Kind::Failed, "internal", message)
}

fn ledger(places: &Places) -> Result<Ledger, Refused> {
    Ledger::open(&places.ledger)
        .map_err(|error| Refused::new(Kind::Conflict, error.code(), error.to_string()))
}

fn problem(part: &str, code: &str, message: impl ToString) -> Problem {
    Problem { part: part.to_owned(), code: code.to_owned(), message: message.to_string() }
}

fn ledger_problems(places: &Places) -> Vec<Problem> {
    let pins = Ledger::open(&places.ledger).err();
    let pins = pins.map(|error| problem("ledger", error.code(), error));
    let evidence = Evidence::open(&places.ledger).err();
    let evidence = evidence.map(|error| problem("ledger", "invalid-evidence", error));
    pins.into_iter().chain(evidence).collect()
}

fn problems(places: &Places) -> Vec<Problem> {
    let grants = Policies::open(&places.policies).err();
    let blocks = block::open(&places.policies).err();
    let policies = grants.into_iter().chain(blocks);
    let policies = policies.map(|error| problem("policies", error.code(), error));
    ledger_problems(places).into_iter().chain(policies).collect()
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
    let entries = documents(&places.ledger.join("upstreams"))?.into_iter();
    let entries = entries.map(|(name, document)| {
        let status = document.get("status").and_then(Value::as_str).unwrap_or("unknown");
        UpstreamEntry { name, status: status.to_owned(), document }
    });
    Ok(entries.collect())
}

/// The log's lines; none where no log is kept.
fn lines(places: &Places) -> Result<Option<String>, Refused> {
    let path = places.ledger.join("log.jsonl");
    let unreadable = |reason: String| {
        let message = format!("{}: {reason}", path.display());
        Refused::new(Kind::Conflict, "ledger-unreadable", message)
    };
    match fs::metadata(&path) {
        Ok(found) if found.len() > MOST_BYTES => {
            Err(unreadable(format!("longer than {MOST_BYTES} bytes")))
        }
        Ok(_) => fs::read_to_string(&path).map(Some).map_err(|error| unreadable(error.to_string())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreadable(error.to_string())),
    }
}

fn entry(place: usize, line: &str) -> LogEntry {
    LogEntry {
        number: place as u64 + 1,
        hash: sha256(line.as_bytes()),
        document: serde_json::from_str(line).unwrap_or_else(|_| Value::from(line)),
    }
}

fn page(places: &Places, query: &LogQuery) -> Result<LogPage, Refused> {
    let text = lines(places)?.unwrap_or_default();
    let after = usize::try_from(query.after.unwrap_or(0)).unwrap_or(usize::MAX);
    let limit = query.limit.unwrap_or(100) as usize;
    let rest = text.lines().enumerate().skip(after);
    let entries: Vec<_> = rest.take(limit).map(|(place, line)| entry(place, line)).collect();
    let more = text.lines().count() > after.saturating_add(entries.len());
    let next = entries.last().filter(|_| more).map(|last| last.number);
    Ok(LogPage { entries, next })
}

fn status(places: &Places) -> Result<LedgerStatus, Refused> {
    let problems = ledger_problems(places);
    let text = lines(places)?;
    Ok(LedgerStatus {
        sound: problems.is_empty(),
        pins: Ledger::open(&places.ledger).map_or(0, |ledger| ledger.pins().count()),
        log_entries: text.as_ref().map(|text| text.lines().count() as u64),
        log_head: text.and_then(|text| text.lines().last().map(|line| sha256(line.as_bytes()))),
        problems,
    })
}

/// Whether the component file of a pin is the pinned one.
fn sound(places: &Places, pin: &Pin) -> Result<()> {
    let path = places.plugins.join(&pin.file);
    let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    pin.verify(&bytes)?;
    let found = inspect(&bytes)?;
    ensure!(found.imports == pin.imports, "{}: its imports are not the pinned ones", pin.name);
    Ok(())
}

fn verified(places: &Places) -> Verified {
    let mut problems = problems(places);
    let pins: Vec<Pin> = Ledger::open(&places.ledger)
        .map_or_else(|_| Vec::new(), |all| all.pins().cloned().collect());
    for pin in &pins {
        if let Err(error) = sound(places, pin) {
            problems.push(problem("ledger", "component-differs", format!("{error:#}")));
        }
    }
    let checked = vec![
        format!("{} pins and their components", pins.len()),
        "evidence".to_owned(),
        "grants and blocks".to_owned(),
    ];
    Verified { sound: problems.is_empty(), checked, problems }
}

#[async_trait]
impl Control for HostControl {
    fn host(&self) -> HostFacts {
        self.host.clone()
    }

    async fn problems(&self) -> Vec<Problem> {
        let found = self.read(|places| Ok(problems(places))).await;
        found.unwrap_or_else(|refused| vec![problem("ledger", &refused.code, refused.message)])
    }

    fn score(&self, _: Option<&str>, _: &str) -> Option<Score> {
        None
    }

    async fn plugins(&self) -> Result<Vec<PluginPin>, Refused> {
        let mut pins = self
            .read(|places| {
                let ledger = ledger(places)?;
                let policies = Policies::open(&places.policies).map_err(|error| {
                    Refused::new(Kind::Conflict, error.code(), error.to_string())
                })?;
                let evidence = Evidence::open(&places.ledger).map_err(|error| {
                    Refused::new(Kind::Conflict, "invalid-evidence", error.to_string())
                })?;
                let pins = ledger.pins().map(|pin| PluginPin {
                    name: pin.name.clone(),
                    kind: pin.kind.to_string(),
                    version: pin.version.clone(),
                    contract: pin.contract.clone(),
                    digest: pin.digest(),
                    size_bytes: pin.size,
                    sequence: pin.sequence,
                    imports: pin.imports.clone(),
                    granted: policies.grant(&pin.name, pin.kind).is_ok(),
                    evidence: evidence.concerns(&pin.digest()),
                    configured: Vec::new(),
                });
                Ok(pins.collect::<Vec<_>>())
            })
            .await?;
        for pin in &mut pins {
            pin.configured = self.backends_of(&pin.name);
        }
        Ok(pins)
    }

    async fn policies(&self) -> Result<Vec<Policy>, Refused> {
        self.read(policies).await
    }

    async fn upstreams(&self) -> Result<Vec<UpstreamEntry>, Refused> {
        self.read(upstreams).await
    }

    async fn ledger(&self) -> Result<LedgerStatus, Refused> {
        self.read(status).await
    }

    async fn log(&self, query: LogQuery) -> Result<LogPage, Refused> {
        self.read(move |places| page(places, &query)).await
    }

    async fn verify(&self) -> Result<Verified, Refused> {
        self.read(|places| Ok(verified(places))).await
    }

    async fn promote(&self, by: &str, what: Promote) -> Result<Swap, Refused> {
        let _one_at_a_time = self.verbs.lock().await;
        if what.trial.is_some() {
            let message = "this host moves all of the traffic at once; leave trial out";
            return Err(Refused::new(Kind::Unsupported, "unsupported", message));
        }
        let name = what.name.clone();
        let pin = self.read(move |places| Ok(ledger(places)?.pin(&name).cloned())).await?;
        let pin = pin.ok_or_else(|| {
            let message = format!("no pin for {:?} in the ledger", what.name);
            Refused::new(Kind::NotFound, "not-found", message)
        })?;
        let digest = pin.digest();
        if let Some(expected) = what.digest.filter(|expected| *expected != digest) {
            let message = format!("{} is pinned to {digest}, not to {expected}", pin.name);
            return Err(Refused::new(Kind::Conflict, "digest-mismatch", message));
        }
        let names = self.backends_of(&pin.name);
        if pin.kind != PluginKind::Backend || names.is_empty() {
            let message = format!(
                "{} is no live back-end; a {} is taken up when the host starts",
                pin.name, pin.kind
            );
            return Err(Refused::new(Kind::Conflict, "not-live", message));
        }
        // All of them are loaded before any is swapped: what one refuses changes none.
        let mut loaded = Vec::new();
        for name in names {
            if self.running(&name).is_some_and(|(running, _)| running == digest) {
                loaded.push((name, None));
                continue;
            }
            let (sandbox, configured) = (self.sandbox.clone(), Arc::clone(&self.configured));
            let backend = name.clone();
            let component = self.read(move |places| {
                let plugins = Plugins::with(sandbox, places);
                let component = plugins.and_then(|plugins| configured.load(&plugins, &backend));
                component.map_err(|error| {
                    Refused::new(Kind::Conflict, "candidate-refused", format!("{error:#}"))
                })
            });
            loaded.push((name, Some(component.await?)));
        }
        let mut backends = Vec::new();
        for (name, component) in loaded {
            backends.push(match component {
                None => self.unchanged(&name),
                Some(component) => self.swap(&name, component).await?,
            });
        }
        tracing::info!(key = by, plugin = pin.name, digest, "promoted");
        Ok(Swap { name: pin.name, digest, backends })
    }

    async fn rollback(&self, by: &str, what: Rollback) -> Result<Swap, Refused> {
        let _one_at_a_time = self.verbs.lock().await;
        let mut backends = Vec::new();
        let mut digest = String::new();
        for name in self.backends_of(&what.name) {
            if let Some(old) = self.ran_before(&name) {
                digest = old.digest().to_owned();
                backends.push(self.swap(&name, old).await?);
            }
        }
        if backends.is_empty() {
            let message = format!(
                "{:?} has run nothing else since the host started; promote the pin that is wanted",
                what.name
            );
            return Err(Refused::new(Kind::Conflict, "no-previous-generation", message));
        }
        tracing::info!(key = by, plugin = what.name, digest, "rolled back");
        Ok(Swap { name: what.name, digest, backends })
    }

    async fn revoke(&self, _: &str, _: Revoke) -> Result<Revoked, Refused> {
        let message = "this host's ledger keeps no revocations";
        Err(Refused::new(Kind::Unsupported, "unsupported", message))
    }
}
