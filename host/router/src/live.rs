//! Which back-ends are live, each with a generation number.
//!
//! A slot keeps its name while what answers under it changes: [`Backends::install`] puts a new
//! generation in its place, and answers that run keep the old one until they end. Readers never
//! wait: both the list of slots and the generation in a slot are swapped whole.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use arc_swap::{ArcSwap, ArcSwapOption};
use gristmill_core::{
    Code, Error, Result,
    capability::{Descriptor, ModelInfo},
};
use gristmill_sandbox::backend::Backend;
use tokio::time::Instant;

use crate::queue::Queue;

/// How long a back-end's own list of models is used before it is asked again.
pub const LISTING_FRESH: Duration = Duration::from_secs(10);
/// How long the version of a bridge's server is believed before it is asked again.
pub const VERSION_FRESH: Duration = Duration::from_secs(60);
/// Longest wait for it; without an answer it is unknown.
const VERSION_PATIENCE: Duration = Duration::from_secs(2);
/// The extra of readiness (or descriptor) by which a bridge says it.
const SERVER_VERSION: &str = "server-version";
/// How old a list may be when a name is not in it, and how long a back-end that could not be asked
/// is not asked again: one that is down must not make every request for the others wait.
const LISTING_MISS: Duration = Duration::from_secs(1);
/// Longest wait for a list.
const LISTING_PATIENCE: Duration = Duration::from_secs(3);

/// Where the models of a back-end come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The local store: every stored model can be asked of it.
    Store,
    /// Its own `models()`.
    Listed,
}

/// Bounds of the queue in front of each model of a back-end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Answers that run at the same time; at least 1.
    pub active: usize,
    /// Requests that wait for one.
    pub queued: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { active: 4, queued: 512 }
    }
}

/// One back-end component, as it is live now.
pub struct Generation {
    /// Counts the installations under this name, from 1.
    pub number: u64,
    /// `sha256:…` of the component.
    pub digest: String,
    /// What it says it is.
    pub descriptor: Descriptor,
    /// What answers.
    pub backend: Arc<dyn Backend>,
    listing: ArcSwapOption<Listing>,
    failure: ArcSwapOption<(Instant, Error)>,
    server: ArcSwapOption<(Instant, Option<String>)>,
}

struct Listing {
    at: Instant,
    models: Vec<ModelInfo>,
}

impl Generation {
    /// The models it serves, from its own list. Two callers may both ask; nobody waits for a lock.
    ///
    /// # Errors
    /// The back-end's own error; `upstream-timeout` after [`LISTING_PATIENCE`].
    pub async fn models(&self, newest: Duration) -> Result<Vec<ModelInfo>> {
        if let Some(listing) = self.listing.load_full()
            && listing.at.elapsed() <= newest
        {
            return Ok(listing.models.clone());
        }
        if let Some(failure) = self.failure.load_full()
            && failure.0.elapsed() <= LISTING_MISS
        {
            return Err(failure.1.clone());
        }
        let asked = tokio::time::timeout(LISTING_PATIENCE, self.backend.models()).await;
        let asked = asked.unwrap_or_else(|_| {
            let patience = LISTING_PATIENCE.as_secs();
            Err(Error::new(Code::UpstreamTimeout, format!("no list of models within {patience} s")))
        });
        match asked {
            Ok(models) => {
                let listing = Listing { at: Instant::now(), models: models.clone() };
                self.listing.store(Some(Arc::new(listing)));
                self.failure.store(None);
                Ok(models)
            }
            Err(error) => {
                self.failure.store(Some(Arc::new((Instant::now(), error.clone()))));
                Err(error)
            }
        }
    }

    /// Whether its last list, however old, had a model that `wanted` takes.
    #[must_use]
    pub fn had(&self, wanted: impl Fn(&ModelInfo) -> bool) -> bool {
        self.listing.load_full().is_some_and(|listing| listing.models.iter().any(wanted))
    }

    /// Why it could not be asked for its models, if it could not the last time.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.failure.load_full().map(|failure| failure.1.clone())
    }

    /// The version of the server behind it, where it tells one. Two callers may both ask.
    pub async fn server_version(&self) -> Option<String> {
        if let Some(known) = self.server.load_full()
            && known.0.elapsed() <= VERSION_FRESH
        {
            return known.1.clone();
        }
        let asked = tokio::time::timeout(VERSION_PATIENCE, self.backend.health()).await;
        let told = asked.ok().and_then(Result::ok).map(|health| health.extras).unwrap_or_default();
        let mut extras = told.iter().chain(&self.descriptor.extras);
        let version = extras.find(|(name, _)| name == SERVER_VERSION).map(|(_, v)| v.clone());
        self.server.store(Some(Arc::new((Instant::now(), version.clone()))));
        version
    }

    /// The first model that `wanted` takes; a list that does not have it is asked for again.
    ///
    /// # Errors
    /// The back-end's own error.
    pub async fn find(&self, wanted: impl Fn(&ModelInfo) -> bool) -> Result<Option<ModelInfo>> {
        for newest in [LISTING_FRESH, LISTING_MISS] {
            if let Some(found) = self.models(newest).await?.into_iter().find(&wanted) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

/// A name under which a back-end is live.
pub struct Slot {
    /// The name, from its pin.
    pub name: String,
    /// Where its models come from.
    pub source: Source,
    limits: Limits,
    current: ArcSwap<Generation>,
    queues: Mutex<HashMap<String, Arc<Queue>>>,
}

impl Slot {
    /// The generation that answers now.
    #[must_use]
    pub fn current(&self) -> Arc<Generation> {
        self.current.load_full()
    }

    /// The queue in front of one of its models. Only resolved models get one, so the map is as
    /// bounded as the catalogue.
    #[must_use]
    pub fn queue(&self, model: &str) -> Arc<Queue> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(queues.entry(model.to_owned()).or_insert_with(|| Queue::new(self.limits)))
    }

    /// Answers running and requests waiting, over all its models.
    #[must_use]
    pub fn load(&self) -> (usize, usize) {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.values().fold((0, 0), |(active, waiting), queue| {
            (active + queue.active(), waiting + queue.waiting())
        })
    }
}

/// All live back-ends, in the order in which they were installed.
#[derive(Default)]
pub struct Backends {
    slots: ArcSwap<Vec<Arc<Slot>>>,
    /// Held by whoever changes the list, never across an await.
    writer: Mutex<()>,
}

impl Backends {
    /// Makes this component what answers under `name`; its generation number. Source and limits
    /// are settled by the first installation.
    ///
    /// # Errors
    /// The component's own error when it cannot say what it is; what was live stays live.
    pub async fn install(
        &self,
        name: &str,
        source: Source,
        limits: Limits,
        backend: Arc<dyn Backend>,
    ) -> Result<u64> {
        let descriptor = backend.describe().await?;
        let generation = |number| {
            Arc::new(Generation {
                number,
                digest: backend.digest().to_owned(),
                descriptor: descriptor.clone(),
                backend: Arc::clone(&backend),
                listing: ArcSwapOption::empty(),
                failure: ArcSwapOption::empty(),
                server: ArcSwapOption::empty(),
            })
        };
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let slots = self.slots.load_full();
        let number = match slots.iter().find(|slot| slot.name == name) {
            Some(slot) => {
                let number = slot.current().number + 1;
                slot.current.store(generation(number));
                number
            }
            None => {
                let slot = Arc::new(Slot {
                    name: name.to_owned(),
                    source,
                    limits,
                    current: ArcSwap::new(generation(1)),
                    queues: Mutex::default(),
                });
                self.slots.store(Arc::new(slots.iter().cloned().chain([slot]).collect()));
                1
            }
        };
        tracing::info!(backend = name, generation = number, digest = backend.digest(), "live");
        Ok(number)
    }

    /// Takes a name out of service; answers that run end in peace. Whether it was there.
    pub fn retire(&self, name: &str) -> bool {
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let slots = self.slots.load_full();
        let left: Vec<_> = slots.iter().filter(|slot| slot.name != name).cloned().collect();
        let was = left.len() < slots.len();
        self.slots.store(Arc::new(left));
        was
    }

    /// The slots now.
    #[must_use]
    pub fn slots(&self) -> Arc<Vec<Arc<Slot>>> {
        self.slots.load_full()
    }
}
