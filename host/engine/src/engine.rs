//! The engine: opens models, shares what is open, lets go of it.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use gristmill_core::{Code, Error, Result, program::Families};
use gristmill_kernels::Quant;
use gristmill_models::store::{Located, Store};
use tokio::sync::{Mutex as AsyncMutex, oneshot};

use crate::{
    cache::KvTypes,
    core::{Core, Loading},
    driver::{Command, Shared},
    execute::MOST_SEQUENCES,
    handle::Handle,
    memory::Memory,
    packing,
    runtime::{Loaded, Model, Runtime},
};

/// How an engine works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineConfig {
    /// Threads that compute; none: as many as the process may use.
    pub threads: Option<usize>,
    /// Whether each has a processor of its own.
    pub pin: bool,
    /// Longest context of a session; none: what the model was trained for.
    pub context: Option<u32>,
    /// Answers that run at once, at most 64.
    pub max_active: usize,
    /// Answers that wait for one of those places.
    pub max_queued: usize,
    /// How keys are stored: `F16` or `F32`.
    pub kv_k: Quant,
    /// How values are stored: `F16` or `F32`.
    pub kv_v: Quant,
    /// Bytes for weights, caches and buffers; none: what is free when the engine starts.
    pub memory_limit: Option<u64>,
    /// Whether packed weights are kept in the store and shared between processes; otherwise each
    /// process packs into its own memory before its first answer.
    pub packages: bool,
    /// Whether tokens are guessed from the text so far and verified in one pass, while it pays.
    pub speculation: bool,
    /// Whether prompts are read in bulk where the processor has tiles: faster, and rounded
    /// otherwise than answers are. Without, an answer does not depend on what its context held.
    pub bulk: bool,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            threads: None,
            pin: true,
            context: None,
            max_active: 4,
            max_queued: 64,
            kv_k: Quant::F16,
            kv_v: Quant::F16,
            memory_limit: None,
            packages: true,
            speculation: true,
            bulk: true,
        }
    }
}

type Entry = Arc<AsyncMutex<Option<Arc<Core>>>>;

/// The native CPU engine.
pub struct Engine {
    config: EngineConfig,
    store: Arc<Store>,
    families: Arc<dyn Families>,
    shared: Arc<Shared>,
    /// By canonical id. The inner lock is held while a model loads, so that two who ask for it wait
    /// for one load.
    models: Mutex<HashMap<String, Entry>>,
    keys: AtomicU64,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Engine {
    /// Starts an engine over a store, with families to ask about models.
    ///
    /// # Errors
    /// `invalid-request` for a configuration out of range; `internal` when no thread can be started.
    pub fn new(
        config: EngineConfig,
        store: Arc<Store>,
        families: Arc<dyn Families>,
    ) -> Result<Arc<Self>> {
        let bad = |field: &str, expected: &str, found: &dyn std::fmt::Display| {
            let message = format!("`{field}`: expected {expected}, found {found}");
            Err(Error::invalid(message).with("field", field))
        };
        if config.max_active == 0 || config.max_active > MOST_SEQUENCES {
            return bad("max_active", "1 to 64 answers", &config.max_active);
        }
        if config.threads.is_some_and(|threads| threads == 0 || threads > 1024) {
            return bad("threads", "1 to 1024", &config.threads.unwrap_or_default());
        }
        if config.context.is_some_and(|context| context < 16) {
            return bad("context", "at least 16 tokens", &config.context.unwrap_or_default());
        }
        for (field, quant) in [("kv_k", config.kv_k), ("kv_v", config.kv_v)] {
            if !KvTypes::ALL.contains(&quant) {
                return bad(field, "F16, BF16, Q8_0, Q4_0 or F32", &quant.name());
            }
        }
        let memory = Memory::new(config.memory_limit);
        let shared = Shared::start(&config, memory)?;
        Ok(Arc::new(Self {
            config,
            store,
            families,
            shared,
            models: Mutex::new(HashMap::new()),
            keys: AtomicU64::new(1),
        }))
    }

    /// The account of everything allocated.
    #[must_use]
    pub fn memory(&self) -> &Arc<Memory> {
        &self.shared.memory
    }

    /// Threads that compute.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.shared.threads()
    }

    async fn load(&self, located: &Located) -> Result<Core> {
        let (located, families) = (located.clone(), Arc::clone(&self.families));
        let memory = Arc::clone(&self.shared.memory);
        let types = KvTypes { k: self.config.kv_k, v: self.config.kv_v };
        let (context, max_active) = (self.config.context, self.config.max_active);
        let key = self.keys.fetch_add(1, Ordering::Relaxed);
        let store = self.config.packages.then(|| Arc::clone(&self.store));
        blocking(move || {
            let families = &*families;
            let memory = &memory;
            let packages = store.as_deref();
            Core::load(
                located,
                &Loading { packages, families, memory, types, context, max_active, key },
            )
        })
        .await
    }

    fn entry(&self, id: &str) -> Entry {
        let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(models.entry(id.to_owned()).or_default())
    }
}

#[async_trait]
impl Runtime for Engine {
    async fn open(&self, id: &str) -> Result<Arc<dyn Model>> {
        let (store, name) = (Arc::clone(&self.store), id.to_owned());
        let located = blocking(move || Ok(store.locate(&name)?)).await?;
        let entry = self.entry(&located.id);
        let mut loaded = entry.lock().await;
        if let Some(core) = &*loaded
            && core.located.digest == located.digest
        {
            return Ok(Arc::new(Handle::new(Arc::clone(core), Arc::clone(&self.shared))));
        }
        // Another file may have got the name: the old one is let go first.
        if let Some(core) = loaded.take() {
            let (done, _) = oneshot::channel();
            self.shared.send(Command::Forget(core.key, done))?;
        }
        let core = match self.load(&located).await {
            // Contexts nobody uses give way to a model.
            Err(error) if error.code == Code::InsufficientMemory => {
                let (reply, trimmed) = oneshot::channel();
                self.shared.send(Command::Trim(reply))?;
                if !trimmed.await.unwrap_or(false) {
                    return Err(error);
                }
                self.load(&located).await?
            }
            done => done?,
        };
        let core = Arc::new(core);
        tracing::info!(
            model = core.located.id,
            family = core.family,
            program = core.plan.program.digest,
            weights = core.placement().word(),
            us = core.load.load(Ordering::Relaxed),
            "model loaded"
        );
        if self.config.packages && matches!(core.placement().place, packing::Place::File) {
            packing::begin(&core, Arc::clone(&self.store));
        }
        *loaded = Some(Arc::clone(&core));
        Ok(Arc::new(Handle::new(core, Arc::clone(&self.shared))))
    }

    fn loaded(&self) -> Vec<Loaded> {
        let models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out: Vec<Loaded> = models
            .values()
            // One that is being loaded is not loaded yet.
            .filter_map(|entry| entry.try_lock().ok()?.as_ref().map(Arc::clone))
            .map(|core| Loaded {
                id: core.located.id.clone(),
                digest: core.located.digest.clone(),
                memory: core.memory.bytes() + core.contexts.load(Ordering::Relaxed),
                context: u32::try_from(core.context).unwrap_or(u32::MAX),
                active: core.active.load(Ordering::Relaxed),
            })
            .collect();
        out.sort_by(|a, b| a.id.cmp(&b.id));
        out
    }

    async fn unload(&self, id: &str) -> bool {
        let (store, name) = (Arc::clone(&self.store), id.to_owned());
        // A model that is gone from the store can still be loaded under the name that was asked for.
        let id = blocking(move || Ok(store.locate(&name)?))
            .await
            .map_or_else(|_| id.to_owned(), |located| located.id);
        let entry = {
            let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
            models.remove(&id)
        };
        let Some(entry) = entry else { return false };
        let Some(core) = entry.lock().await.take() else { return false };
        let (done, finished) = oneshot::channel();
        if self.shared.send(Command::Forget(core.key, done)).is_err() {
            return false;
        }
        // The driver answers when no answer uses the model any more.
        finished.await.is_ok()
    }
}

/// Runs what blocks where it may.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        Err(Error::internal(format!("a loading task ended early: {error}")))
    })
}
