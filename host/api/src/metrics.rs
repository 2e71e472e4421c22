//! What is counted, in the OpenMetrics text form that Prometheus reads.
//!
//! Labels come from closed sets: matched routes, status numbers, resolved models, fault words.

use std::{fmt, sync::atomic::AtomicU64};

use gristmill_core::{Code, Error};
use gristmill_router::Load;
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

/// A request's route and status.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    route: String,
    status: u16,
}

/// A model's tokens, by kind: `prompt`, `cached`, `completion`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Tokens {
    model: String,
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Backend {
    backend: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    route: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Fault {
    fault: String,
}

/// The counters.
pub struct Metrics {
    registry: Registry,
    requests: Family<Request, Counter>,
    tokens: Family<Tokens, Counter>,
    active: Family<Backend, Gauge>,
    queued: Family<Backend, Gauge>,
    first_token: Family<Route, Histogram, fn() -> Histogram>,
    duration: Family<Route, Histogram, fn() -> Histogram>,
    faults: Family<Fault, Counter>,
    bugs: Counter<u64, AtomicU64>,
    cancelled: Counter<u64, AtomicU64>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

/// Seconds, from a cached answer to a long one.
fn seconds() -> Histogram {
    Histogram::new([
        0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
    ])
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("gristmill"),
            requests: Family::default(),
            tokens: Family::default(),
            active: Family::default(),
            queued: Family::default(),
            first_token: Family::new_with_constructor(seconds),
            duration: Family::new_with_constructor(seconds),
            faults: Family::default(),
            bugs: Counter::default(),
            cancelled: Counter::default(),
        };
        let registry = &mut metrics.registry;
        registry.register("requests", "Requests ended", metrics.requests.clone());
        registry.register("tokens", "Tokens of ended answers", metrics.tokens.clone());
        registry.register("active", "Answers running", metrics.active.clone());
        registry.register("queued", "Requests waiting for a place", metrics.queued.clone());
        registry.register(
            "time_to_first_token_seconds",
            "From a request's head to its answer's first piece",
            metrics.first_token.clone(),
        );
        registry.register(
            "request_duration_seconds",
            "From a request's head to the end of its answer",
            metrics.duration.clone(),
        );
        registry.register(
            "plugin_faults",
            "Answers ended by a component's fault",
            metrics.faults.clone(),
        );
        registry.register(
            "host_bugs",
            "Requests ended by a defect of the host",
            metrics.bugs.clone(),
        );
        registry.register(
            "cancelled_requests",
            "Requests whose client went away",
            metrics.cancelled.clone(),
        );
        metrics
    }
}

impl Metrics {
    /// A request has ended.
    pub fn request(&self, route: &str, status: u16, seconds: f64) {
        let labels = Request { route: route.to_owned(), status };
        self.requests.get_or_create(&labels).inc();
        self.duration.get_or_create(&Route { route: route.to_owned() }).observe(seconds);
    }

    /// An answer's first piece is there.
    pub fn first_token(&self, route: &str, seconds: f64) {
        self.first_token.get_or_create(&Route { route: route.to_owned() }).observe(seconds);
    }

    /// Tokens of an answer.
    pub fn tokens(&self, model: &str, kind: &'static str, count: u32) {
        if count > 0 {
            let labels = Tokens { model: model.to_owned(), kind };
            self.tokens.get_or_create(&labels).inc_by(count.into());
        }
    }

    /// An answer has failed; faults of components and of the host are counted.
    pub fn failure(&self, error: &Error) {
        match error.code {
            Code::PluginFault => {
                let fault = error.detail("fault").unwrap_or("unknown").to_owned();
                self.faults.get_or_create(&Fault { fault }).inc();
            }
            Code::Internal => self.bug(),
            _ => {}
        }
    }

    /// The host had a defect.
    pub fn bug(&self) {
        self.bugs.inc();
    }

    /// Defects so far.
    #[must_use]
    pub fn bugs(&self) -> u64 {
        self.bugs.get()
    }

    /// A client went away before its answer's end.
    pub fn cancelled(&self) {
        self.cancelled.inc();
    }

    /// Clients that went away so far.
    #[must_use]
    pub fn cancellations(&self) -> u64 {
        self.cancelled.get()
    }

    /// Everything, as text.
    ///
    /// # Errors
    /// When the text cannot be formatted.
    pub fn text(&self, load: Vec<Load>) -> Result<String, fmt::Error> {
        for Load { backend, active, waiting } in load {
            let labels = Backend { backend };
            self.active.get_or_create(&labels).set(i64::try_from(active).unwrap_or(i64::MAX));
            self.queued.get_or_create(&labels).set(i64::try_from(waiting).unwrap_or(i64::MAX));
        }
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
