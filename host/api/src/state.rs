//! What every handler sees: the router, the configuration, the counters.

use std::{ops::Deref, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use gristmill_router::{Check, Router};
use tokio::sync::Semaphore;

use crate::{
    metrics::Metrics,
    responses::store::{Bounds, Store},
};

/// What the API is told at the start.
#[derive(Debug, Clone)]
pub struct ApiConfig {
    /// Bearer tokens, any of which lets a request in; none: everybody who can connect is let in.
    pub tokens: Vec<String>,
    /// Whether models may be pulled, copied and deleted over HTTP.
    pub mutation: bool,
    /// Largest request body, bytes.
    pub body_limit: usize,
    /// Largest sum of all request bodies in flight, bytes.
    pub body_budget: usize,
    /// Longest wait for the next piece of a request body.
    pub body_timeout: Duration,
    /// Origins allowed besides the local ones: `https://example.org`, or with one `*`.
    pub origins: Vec<String>,
    /// Host names allowed besides the local ones, when bound to loopback.
    pub hosts: Vec<String>,
    /// Whether the listener is bound to loopback, so that the `Host` header is checked.
    pub loopback: bool,
    /// How much is kept of finished responses.
    pub responses: Bounds,
    /// This build's version.
    pub version: String,
}

impl Default for ApiConfig {
    fn default() -> Self {
        Self {
            tokens: Vec::new(),
            mutation: false,
            body_limit: 128 << 20,
            body_budget: 512 << 20,
            body_timeout: Duration::from_secs(30),
            origins: Vec::new(),
            hosts: Vec::new(),
            loopback: true,
            responses: Bounds::default(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

/// Whoever knows whether this host can serve.
pub trait Readiness: Send + Sync {
    /// One check for each part; ready is when there is one and all are.
    fn checks(&self) -> BoxFuture<'_, Vec<Check>>;
}

impl Readiness for Router {
    fn checks(&self) -> BoxFuture<'_, Vec<Check>> {
        Box::pin(Router::checks(self))
    }
}

/// Shared by all handlers; cheap to clone.
#[derive(Clone)]
pub struct AppState(Arc<Shared>);

/// What [`AppState`] points to.
pub struct Shared {
    /// Finds and runs answers.
    pub router: Arc<Router>,
    /// What is allowed.
    pub config: ApiConfig,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// The truth behind `/readyz`.
    pub readiness: Arc<dyn Readiness>,
    /// Responses that may be continued.
    pub responses: Store,
    /// Body bytes that may still be taken in, in KiB.
    pub(crate) budget: Arc<Semaphore>,
}

impl AppState {
    /// State over a router, whose back-ends say whether the host is ready.
    #[must_use]
    pub fn new(config: ApiConfig, router: Arc<Router>) -> Self {
        let readiness = Arc::clone(&router);
        Self::with_readiness(config, router, readiness)
    }

    /// State whose readiness comes from elsewhere.
    #[must_use]
    pub fn with_readiness(
        config: ApiConfig,
        router: Arc<Router>,
        readiness: Arc<dyn Readiness>,
    ) -> Self {
        let budget = (config.body_budget >> 10).clamp(1, Semaphore::MAX_PERMITS);
        let responses = Store::new(config.responses);
        Self(Arc::new(Shared {
            router,
            config,
            responses,
            metrics: Arc::new(Metrics::default()),
            readiness,
            budget: Arc::new(Semaphore::new(budget)),
        }))
    }
}

impl Deref for AppState {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}
