//! One back-end component as it serves under a name: what it is, what it lists, how it does.
//!
//! Bounds: a list of models is kept for [`LISTING_FRESH`], the version of its server for
//! [`VERSION_FRESH`]; a failure to tell either is remembered for a second only, because whoever was
//! down may be back.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use gristmill_core::{
    Code, Error, Result,
    capability::{Descriptor, ModelInfo},
};
use gristmill_sandbox::backend::Backend;
use tokio::time::Instant;

use crate::swap::{Named, Rollout, guard::Window, life::Life};

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
const MISS: Duration = Duration::from_secs(1);
/// Longest wait for a list.
const LISTING_PATIENCE: Duration = Duration::from_secs(3);

/// One back-end component under a name.
pub struct Generation {
    /// Counts the installations under this name, from 1. A number is never given twice.
    pub number: u64,
    /// `sha256:…` of the component.
    pub digest: String,
    /// What it says it is.
    pub descriptor: Descriptor,
    /// What answers.
    pub backend: Arc<dyn Backend>,
    /// How it came in, and how long its answers may go on once it is replaced.
    pub(crate) rollout: Rollout,
    pub(crate) life: Arc<Life>,
    pub(crate) window: Window,
    /// When it got all traffic.
    pub(crate) promoted: ArcSwapOption<Instant>,
    listing: ArcSwapOption<Listing>,
    failure: ArcSwapOption<Failure>,
    server: ArcSwapOption<Server>,
}

struct Listing {
    at: Instant,
    models: Arc<[ModelInfo]>,
}

struct Failure {
    at: Instant,
    error: Error,
    /// Whether somebody has taken note of it.
    noted: AtomicBool,
}

struct Server {
    at: Instant,
    fresh: Duration,
    version: Option<String>,
}

impl Generation {
    pub(crate) fn new(
        number: u64,
        descriptor: Descriptor,
        backend: Arc<dyn Backend>,
        rollout: Rollout,
    ) -> Self {
        Self {
            number,
            digest: backend.digest().to_owned(),
            descriptor,
            backend,
            life: Life::new(),
            window: Window::new(rollout.guard.clone()),
            rollout,
            promoted: ArcSwapOption::empty(),
            listing: ArcSwapOption::empty(),
            failure: ArcSwapOption::empty(),
            server: ArcSwapOption::empty(),
        }
    }

    /// Number and digest.
    #[must_use]
    pub fn named(&self) -> Named {
        Named { generation: self.number, digest: self.digest.clone() }
    }

    /// Keeps a list that was just told.
    pub(crate) fn knows(&self, models: Arc<[ModelInfo]>) {
        self.listing.store(Some(Arc::new(Listing { at: Instant::now(), models })));
        self.failure.store(None);
    }

    /// Believes what it was last told for as long as if it had been told now, so that nobody waits for
    /// it when it answers again. What its list does not have is asked for at once all the same.
    pub(crate) fn renew(&self) {
        let now = Instant::now();
        if let Some(known) = self.listing.load_full() {
            let at = now.checked_sub(2 * MISS).unwrap_or(now).max(known.at);
            self.listing.store(Some(Arc::new(Listing { at, models: Arc::clone(&known.models) })));
        }
        if let Some(known) = self.server.load_full() {
            let (at, version) = (now, known.version.clone());
            self.server.store(Some(Arc::new(Server { at, fresh: known.fresh, version })));
        }
    }

    /// The models it serves, from its own list. Two callers may both ask; nobody waits for a lock.
    ///
    /// # Errors
    /// The back-end's own error; `upstream-timeout` after three seconds.
    pub async fn models(&self, newest: Duration) -> Result<Arc<[ModelInfo]>> {
        if let Some(listing) = self.listing.load_full()
            && listing.at.elapsed() <= newest
        {
            return Ok(Arc::clone(&listing.models));
        }
        if let Some(failure) = self.failure.load_full()
            && failure.at.elapsed() <= MISS
        {
            return Err(failure.error.clone());
        }
        match listed(&*self.backend).await {
            Ok(models) => {
                self.knows(Arc::clone(&models));
                Ok(models)
            }
            Err(error) => {
                let (at, noted) = (Instant::now(), AtomicBool::new(false));
                let failure = Failure { at, error: error.clone(), noted };
                self.failure.store(Some(Arc::new(failure)));
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
        self.failure.load_full().map(|failure| failure.error.clone())
    }

    /// The same, once for each time it was asked: a failure is remembered, and told to many.
    pub(crate) fn fresh_failure(&self) -> Option<Error> {
        let failure = self.failure.load_full()?;
        (!failure.noted.swap(true, Ordering::Relaxed)).then(|| failure.error.clone())
    }

    /// The version of the server behind it, where it tells one. Two callers may both ask.
    pub async fn server_version(&self) -> Option<String> {
        if let Some(known) = self.server.load_full()
            && known.at.elapsed() <= known.fresh
        {
            return known.version.clone();
        }
        let asked = tokio::time::timeout(VERSION_PATIENCE, self.backend.health()).await;
        let told = asked.ok().and_then(Result::ok);
        let fresh = if told.is_some() { VERSION_FRESH } else { MISS };
        let extras = told.map(|health| health.extras).unwrap_or_default();
        let mut extras = extras.iter().chain(&self.descriptor.extras);
        let version = extras.find(|(name, _)| name == SERVER_VERSION).map(|(_, v)| v.clone());
        let server = Server { at: Instant::now(), fresh, version: version.clone() };
        self.server.store(Some(Arc::new(server)));
        version
    }

    /// The first model that `wanted` takes; a list that does not have it is asked for again.
    ///
    /// # Errors
    /// The back-end's own error.
    pub async fn find(&self, wanted: impl Fn(&ModelInfo) -> bool) -> Result<Option<ModelInfo>> {
        for newest in [LISTING_FRESH, MISS] {
            if let Some(found) = self.models(newest).await?.iter().find(|info| wanted(info)) {
                return Ok(Some(found.clone()));
            }
        }
        Ok(None)
    }
}

/// A component's list of models, or its failure to tell one in time.
pub(crate) async fn listed(backend: &dyn Backend) -> Result<Arc<[ModelInfo]>> {
    let asked = tokio::time::timeout(LISTING_PATIENCE, backend.models()).await;
    let listed = asked.unwrap_or_else(|_| {
        let patience = LISTING_PATIENCE.as_secs();
        Err(Error::new(Code::UpstreamTimeout, format!("no list of models within {patience} s")))
    });
    listed.map(Arc::from)
}
