//! What every handler sees: the router, the configuration, the counters.

use std::{
    ops::Deref,
    sync::Arc,
    time::{Duration, SystemTime},
};

use gristmill_router::Router;
use tokio::sync::Semaphore;

use crate::{
    control::{Control, NoControl, view::Problem},
    keys::KeyRing,
    metrics::Metrics,
    responses::store::{Bounds, Store},
};

/// What the API is told at the start.
#[derive(Debug, Clone)]
pub struct ApiConfig {
    /// The keys; without any, everybody who can connect is let in.
    pub keys: Arc<KeyRing>,
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
            keys: Arc::default(),
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
    /// What the host says of its ledger, its policies and itself.
    pub control: Arc<dyn Control>,
    /// When the host began to serve.
    pub started: SystemTime,
    /// Responses that may be continued.
    pub responses: Store,
    /// Body bytes that may still be taken in, in KiB.
    pub(crate) budget: Arc<Semaphore>,
}

impl AppState {
    /// State over a router, on a host without a ledger.
    #[must_use]
    pub fn new(config: ApiConfig, router: Arc<Router>) -> Self {
        Self::with_control(config, router, Arc::new(NoControl))
    }

    /// The same, with what the host says of its ledger, its policies and itself.
    #[must_use]
    pub fn with_control(config: ApiConfig, router: Arc<Router>, control: Arc<dyn Control>) -> Self {
        let budget = (config.body_budget >> 10).clamp(1, Semaphore::MAX_PERMITS);
        let responses = Store::new(config.responses);
        Self(Arc::new(Shared {
            router,
            control,
            config,
            responses,
            metrics: Arc::new(Metrics::default()),
            started: SystemTime::now(),
            budget: Arc::new(Semaphore::new(budget)),
        }))
    }

    /// What is wrong on disk while what runs goes on running.
    pub async fn problems(&self) -> Vec<Problem> {
        let mut problems = self.control.problems().await;
        problems.extend(self.config.keys.problem().map(|problem| Problem {
            part: "keys".to_owned(),
            code: problem.code().to_owned(),
            message: problem.to_string(),
        }));
        problems
    }
}

impl Deref for AppState {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}
