//! Where the rooms are put together: ledger and grants, families, the engine, the back-end, the
//! router. Everything else is reached from what [`compose`] returns.

use std::{
    env,
    fmt::Display,
    fs,
    panic::resume_unwind,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};
use gristmill_core::program::Families;
use gristmill_engine::{Engine, EngineConfig, cache::KvTypes, runtime::Runtime as _};
use gristmill_kernels::{Pool, Quant, isa};
use gristmill_ledger::{
    Date, Kind, Ledger, LedgerError, Pin, Trust, contract,
    evidence::Evidence,
    grant_digest,
    performance::{self, Record},
    prove::granted,
};
use gristmill_policies::{Grant, Policies, Rules};
use gristmill_router::{
    Engines, KeepAlive, KeepConfig, Known, Limits, Router, RouterConfig, Source,
};
use gristmill_sandbox::{
    Compiler, FamilySet, LoadError, Sandbox, SandboxConfig, Services, backend::Backend,
};

use crate::{
    backends::Server, catalogue::Catalogue, ledger::fingerprint, models::store, settings::Settings,
};

/// Where things lie on this machine.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    /// The model store.
    pub(crate) models: PathBuf,
    /// Component files.
    pub(crate) plugins: PathBuf,
    /// Pins.
    pub(crate) ledger: PathBuf,
    /// Grants, blocks, parameter policies, profiles, approval rules.
    pub(crate) policies: PathBuf,
    /// What is remembered of the ledger outside its folder; none where this user has no data folder.
    pub(crate) ledger_state: Option<PathBuf>,
    /// The file of the keys; none where this user has no data folder and nothing else was said.
    pub(crate) keys: Option<PathBuf>,
}

impl Places {
    /// From the settings; what is unset lies beside the binary (`bin/gristmill`,
    /// `share/gristmill/…`) or, for models, in the user's data folder.
    pub(crate) fn new(settings: &Settings) -> Result<Self> {
        let binary = env::current_exe().context("cannot find this program's own file")?;
        let share = binary
            .parent()
            .and_then(Path::parent)
            .map(|prefix| prefix.join("share/gristmill"))
            .unwrap_or_default();
        let place = |key: &str, default: PathBuf| settings.text(key).map_or(default, PathBuf::from);
        Ok(Self {
            models: match settings.text("paths.models") {
                Some(path) => PathBuf::from(path),
                None => data_folder()?.join("gristmill/models"),
            },
            plugins: place("paths.plugins", share.join("plugins")),
            ledger: place("paths.ledger", share.join("ledger")),
            policies: place("paths.policies", share.join("policies")),
            ledger_state: match settings.text("paths.ledger_seen") {
                Some(path) => Some(PathBuf::from(path)),
                None => data_folder().ok().map(|folder| folder.join("gristmill/ledger-seen.toml")),
            },
            keys: match settings.text("paths.keys") {
                Some(path) => Some(PathBuf::from(path)),
                None => data_folder().ok().map(|folder| folder.join("gristmill/keys.toml")),
            },
        })
    }
}

/// The one argument with which this program is the compiler of its own sandbox.
const COMPILE: &str = "compile-stdin";

/// Whether this process was started to compile one component.
pub(crate) fn is_compiler() -> bool {
    let mut arguments = env::args_os().skip(1);
    arguments.next().is_some_and(|first| first == COMPILE) && arguments.next().is_none()
}

/// A sandbox whose compiler is this program again, and whose work is kept: what a command compiled, a
/// host of this user need not.
pub(crate) fn sandbox() -> Result<Sandbox> {
    // The link is to the program that runs, also when another one lies in its place by now.
    let program = match cfg!(target_os = "linux") {
        true => PathBuf::from("/proc/self/exe"),
        false => env::current_exe().context("cannot tell where this program lies")?,
    };
    let compiler = Some(Compiler { program, arguments: vec![COMPILE.to_owned()] });
    let compiled = compiled_folder();
    Ok(Sandbox::new(SandboxConfig { compiled, compiler, ..SandboxConfig::default() })?)
}

/// Where compiled components are kept; none where this user has no place for such things.
fn compiled_folder() -> Option<PathBuf> {
    let cache = match env::var_os("XDG_CACHE_HOME").filter(|folder| !folder.is_empty()) {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(env::var_os("HOME")?).join(".cache"),
    };
    Some(cache.join("gristmill/compiled"))
}

fn data_folder() -> Result<PathBuf> {
    if let Some(folder) = env::var_os("XDG_DATA_HOME").filter(|folder| !folder.is_empty()) {
        return Ok(PathBuf::from(folder));
    }
    let home =
        env::var_os("HOME").context("neither XDG_DATA_HOME nor HOME is set: set paths.models")?;
    Ok(PathBuf::from(home).join(".local/share"))
}

/// The rooms, put together.
pub(crate) struct Composed {
    /// Finds and runs answers.
    pub(crate) router: Arc<Router>,
    /// The native engine.
    pub(crate) engine: Arc<Engine>,
    /// What else may be loaded.
    pub(crate) plugins: Plugins,
    /// The back-ends as they are configured.
    pub(crate) configured: Configured,
    /// The grant of each back-end that is live, and the number of its generation.
    pub(crate) bound: Vec<(String, u64, Grant)>,
    /// The families.
    pub(crate) families: Arc<FamilySet>,
}

/// Puts the rooms together and opens the models that are to be there from the start.
pub(crate) async fn compose(settings: &Settings, places: &Places) -> Result<Composed> {
    warm();
    let composed = compose_of(settings, places, Plugins::open(places)?).await?;
    for model in settings.list("models.preload") {
        let opened = composed.engine.open(&model).await;
        opened.map_err(|error| anyhow!("models.preload: {model}: {error}"))?;
    }
    Ok(composed)
}

/// The same of these plugins, and no model is opened yet.
pub(crate) async fn compose_of(
    settings: &Settings,
    places: &Places,
    plugins: Plugins,
) -> Result<Composed> {
    let store = store(places)?;
    let families = plugins.families(settings)?;
    let asked: Arc<dyn Families> = families.clone();
    let engine = Engine::new(engine_config(settings)?, Arc::clone(&store), asked)?;

    let keep = settings.text("models.keep_alive").unwrap_or_default();
    let keep = KeepAlive::parse(keep).map_err(|error| anyhow!("models.keep_alive: {error}"))?;
    let router = Router::new(
        RouterConfig { keep: KeepConfig { default: keep }, ..RouterConfig::default() },
        Arc::new(Catalogue(store)),
        Arc::new(Engines(vec![engine.clone()])),
    )
    .with_known(known(places)?)
    .with_rules(rules(places)?);
    let configured = Configured::new(settings, engine.clone())?;
    let bound = install(&plugins, &router, &configured).await?;

    let router = Arc::new(router);
    Ok(Composed { router, engine, plugins, configured, bound, families })
}

/// What is known of back-ends: blocks of the policies, evidence and measurements of the ledger.
fn known(places: &Places) -> Result<Known> {
    let blocks = gristmill_policies::block::open(&places.policies)?;
    let known = Known::new(blocks, hardware(), Evidence::open(&places.ledger)?);
    // They only choose between equals: a host starts without them, and `ledger verify` tells of them.
    let measured = measured(places).unwrap_or_else(|error| {
        tracing::error!(code = error.code(), %error, "the ledger's measurements are not considered");
        Vec::new()
    });
    Ok(known.with_measured(measured))
}

/// The ledger's measurements on this class of host.
pub(crate) fn measured(places: &Places) -> Result<Vec<Record>, LedgerError> {
    let mut records = performance::open(&places.ledger)?;
    if !records.is_empty() {
        let class = fingerprint().class();
        records.retain(|record| record.host.class() == class);
    }
    Ok(records)
}

/// Parameter policies and profiles, as they lie in the folder now.
fn rules(places: &Places) -> Result<Rules> {
    Rules::open(&places.policies, hardware())
        .map_err(|error| anyhow!("policies refused ({}): {error}", error.code()))
}

/// The words for this host that blocks and policies may name, the most general first.
pub(crate) fn hardware() -> Vec<String> {
    let mut hardware = vec![env::consts::ARCH.to_owned()];
    hardware.extend(isa::report().offered.up_to().map(|isa| isa.name().to_owned()));
    hardware
}

/// Makes the configured back-ends live: the one that serves local models, then a bridge for each
/// server. No server is asked for anything here: one that is down is down, and the others serve.
async fn install(
    plugins: &Plugins,
    router: &Router,
    configured: &Configured,
) -> Result<Vec<(String, u64, Grant)>> {
    if configured.names().next().is_none() {
        bail!("nothing would serve: set plugins.backend, or name a server in [backends]");
    }
    let mut bound = Vec::new();
    for (name, plugin) in configured.names() {
        let backend = configured.load(plugins, name)?;
        let source = if name == configured.native {
            source(backend.as_ref()).await?
        } else {
            Source::Listed
        };
        let number = router.install(name, source, configured.limits(name), backend).await?;
        let grant = plugins.policies.grant(plugin, Kind::Backend)?;
        bound.push((name.to_owned(), number, grant.clone()));
    }
    Ok(bound)
}

/// The back-ends as they are configured, and what their components are loaded with.
pub(crate) struct Configured {
    /// Name and pin of the one that serves local models; empty: none does.
    native: String,
    limits: Limits,
    servers: Vec<Server>,
    services: Services,
}

impl Configured {
    fn new(settings: &Settings, engine: Arc<Engine>) -> Result<Self> {
        let native = settings.text("plugins.backend").unwrap_or_default().to_owned();
        if settings.servers().iter().any(|server| server.name == native) {
            bail!("backends.{native}: the back-end that serves local models has this name");
        }
        Ok(Self {
            native,
            limits: Limits {
                active: number(settings, "engine.max_active").unwrap_or(4),
                queued: number(settings, "engine.max_queued").unwrap_or(64),
                wait: settings
                    .count("engine.max_wait_seconds")
                    .map_or(Limits::default().wait, Duration::from_secs),
            },
            servers: settings.servers().to_vec(),
            // A plugin's own products run on the thread that asks; the engine's threads are the
            // engine's.
            services: Services {
                engine: Some(engine),
                pool: Some(Arc::new(Pool::new(1, false))),
                ..Services::default()
            },
        })
    }

    /// Name and pin of each, in the order in which they are asked.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        let native = Some((self.native.as_str(), self.native.as_str()));
        let servers = self.servers.iter().map(|server| (server.name.as_str(), server.plugin()));
        native.filter(|(name, _)| !name.is_empty()).into_iter().chain(servers)
    }

    /// The pin of a back-end.
    pub(crate) fn plugin(&self, backend: &str) -> Option<&str> {
        self.names().find(|(name, _)| *name == backend).map(|(_, plugin)| plugin)
    }

    /// Bounds of its queues.
    pub(crate) fn limits(&self, name: &str) -> Limits {
        let server = self.servers.iter().find(|server| server.name == name);
        server.map_or(self.limits, Server::limits)
    }

    /// Loads the component that is pinned for a back-end.
    pub(crate) fn load(&self, plugins: &Plugins, name: &str) -> Result<Arc<dyn Backend>> {
        let server = self.servers.iter().find(|server| server.name == name);
        let pin = server.map_or(name, Server::plugin);
        plugins.load(pin, Kind::Backend, |bytes, pin, grant| {
            self.bind(&plugins.sandbox, name, bytes, pin, grant)
        })
    }

    /// Loads this component for a back-end, bound to the back-end's server where it has one.
    pub(crate) fn bind(
        &self,
        sandbox: &Sandbox,
        name: &str,
        bytes: &[u8],
        pin: &Pin,
        grant: &Grant,
    ) -> Result<Arc<dyn Backend>> {
        let mut services = self.services.clone();
        if let Some(server) = self.servers.iter().find(|server| server.name == name) {
            services.upstream = Some(server.client(grant)?);
        }
        Ok(sandbox.load_backend(bytes, pin, grant, services)?)
    }
}

/// Where a back-end's models come from: the store, if it says so, else its own list.
async fn source(backend: &dyn Backend) -> Result<Source> {
    let extras = backend.describe().await?.extras;
    let stored = extras.iter().any(|(name, value)| name == "models" && value == "store");
    Ok(if stored { Source::Store } else { Source::Listed })
}

/// What the settings say about the engine.
pub(crate) fn engine_config(settings: &Settings) -> Result<EngineConfig> {
    let mut config = EngineConfig {
        threads: number(settings, "engine.threads"),
        pin: settings.flag("engine.pin"),
        kv_k: cache_type(settings, "engine.kv_k")?,
        kv_v: cache_type(settings, "engine.kv_v")?,
        memory_limit: settings.count("engine.memory_mib").map(|mib| mib << 20),
        packages: settings.flag("engine.packages"),
        speculation: speculation(settings)?,
        bulk: settings.flag("engine.bulk"),
        ..EngineConfig::default()
    };
    if let Some(context) = number(settings, "engine.context") {
        config.context = u32::try_from(context).ok();
    }
    config.max_active = number(settings, "engine.max_active").unwrap_or(config.max_active);
    config.max_queued = number(settings, "engine.max_queued").unwrap_or(config.max_queued);
    Ok(config)
}

/// Has the kernels test themselves beside everything else that a start does; who computes first waits
/// for what is left of it.
pub(crate) fn warm() {
    // Without a thread it is done when it is needed.
    let _ = thread::Builder::new().name("self-test".to_owned()).spawn(isa::current);
}

/// The installed model families.
pub(crate) fn families(settings: &Settings, places: &Places) -> Result<Arc<dyn Families>> {
    Ok(Plugins::open(places)?.families(settings)?)
}

/// An async runtime for the host's waiting; computing has threads of its own.
///
/// A thread for every four processors: each event that comes in wakes a second one, if there is one,
/// and that takes a processor from whoever computes. On two processors beside a busy llama-server the
/// first text came 0.8 ms later than without this host in between, and 1.0 ms with two threads
/// (medians of three runs of `cargo xtask bench bridge`).
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads((processors / 4).clamp(1, 8))
        .enable_all()
        .build()
        .context("cannot start the async runtime")
}

/// What may run, and the sandbox it runs in.
pub(crate) struct Plugins {
    pub(crate) sandbox: Sandbox,
    pub(crate) ledger: Ledger,
    policies: Policies,
    places: Places,
    /// What every pin must hold to; none for a folder that is no ledger yet.
    trust: Option<Trust>,
}

impl Plugins {
    /// What is in force. A folder with neither a log nor keys, as one being made, is taken as it lies
    /// there.
    fn open(places: &Places) -> Result<Self> {
        let state = places.ledger_state.as_deref();
        match Trust::open(&places.ledger, state, contract::worlds())? {
            None => Self::of(places, Ledger::open(&places.ledger)?),
            Some((trust, ledger)) => Ok(Self { trust: Some(trust), ..Self::of(places, ledger)? }),
        }
    }

    /// These pins.
    pub(crate) fn of(places: &Places, ledger: Ledger) -> Result<Self> {
        Ok(Self {
            sandbox: sandbox()?,
            ledger,
            policies: Policies::open(&places.policies)?,
            places: places.clone(),
            trust: None,
        })
    }

    /// The families that are configured.
    fn families(&self, settings: &Settings) -> Result<Arc<FamilySet>> {
        let names = settings.list("plugins.families");
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let load = |name: &String| {
            self.load(name, Kind::Family, |bytes, pin, grant| {
                Ok(self.sandbox.load_family(bytes, pin, grant)?)
            })
        };
        // Side by side: each is checked, and at the first start compiled, and there are many.
        let loaded = thread::scope(|scope| {
            let parts: Vec<_> = names
                .chunks(names.len().div_ceil(threads).max(1))
                .map(|names| scope.spawn(move || names.iter().map(load).collect::<Vec<_>>()))
                .collect();
            parts
                .into_iter()
                .flat_map(|part| part.join().unwrap_or_else(|panic| resume_unwind(panic)))
                .collect::<Result<Vec<_>>>()
        });
        Ok(Arc::new(FamilySet::new(loaded?)))
    }

    /// Reads a component and hands it over with its pin and its grant.
    pub(crate) fn load<T>(
        &self,
        name: &str,
        kind: Kind,
        load: impl FnOnce(&[u8], &Pin, &Grant) -> Result<T>,
    ) -> Result<T> {
        let pin = self.ledger.pin(name).with_context(|| {
            format!("no pin for the {kind} {name} in {}", self.places.ledger.display())
        })?;
        let grant = grant_digest(&self.places.policies, name, kind)?;
        let refused =
            |code: &str, reason: &dyn Display| anyhow!("{kind} {name} refused ({code}): {reason}");
        match &self.trust {
            Some(trust) => trust
                .holds(pin, grant.as_deref(), Date::now())
                .map_err(|error| refused(error.code(), &error))?,
            None => granted(pin, grant.as_deref()).map_err(|(code, why)| refused(code, &why))?,
        }
        let grant = self.policies.grant(name, kind)?;
        let path = self.places.plugins.join(&pin.file);
        let bytes = fs::read(&path)
            .with_context(|| format!("cannot read the {kind} {name}: {}", path.display()))?;
        load(&bytes, pin, grant).map_err(|error| match error.downcast::<LoadError>() {
            Ok(refused) => anyhow!("{kind} {name} refused ({}): {refused}", refused.code()),
            Err(error) => error,
        })
    }
}

fn number(settings: &Settings, path: &str) -> Option<usize> {
    settings.count(path).and_then(|count| usize::try_from(count).ok())
}

fn speculation(settings: &Settings) -> Result<bool> {
    match settings.text("engine.speculation") {
        None | Some("auto") => Ok(true),
        Some("off") => Ok(false),
        Some(found) => Err(anyhow!("engine.speculation: expected auto or off, found {found:?}")),
    }
}

fn cache_type(settings: &Settings, path: &str) -> Result<Quant> {
    let name = settings.text(path).unwrap_or("F16");
    KvTypes::named(name)
        .with_context(|| format!("{path}: expected F16, BF16, Q8_0, Q4_0 or F32, found {name:?}"))
}
