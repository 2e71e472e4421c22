//! Back-ends, the servers behind them, and what can be asked of which model.

use std::time::Duration;

use gristmill_core::capability::{Claim, Support};
use gristmill_router::{GenerationReport, WindowReport};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Cause;

/// A query for one model, or for all.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OneModel {
    /// The model's name; absent: all models.
    #[serde(default)]
    pub model: Option<String>,
}

/// What can be asked of which model.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Capabilities {
    /// Model by model, each on the back-end that would answer.
    pub models: Vec<ModelClaims>,
    /// Back-ends that could not be asked for their models.
    pub unreachable: Vec<Unreachable>,
}

/// What one model on one back-end can do.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ModelClaims {
    /// The name by which to ask for it.
    pub model: String,
    /// Name of the back-end.
    pub backend: String,
    /// `sha256:…` of the back-end's component.
    pub digest: String,
    /// Which installation under that name.
    pub generation: u64,
    /// The model's family, where it is known.
    pub family: Option<String>,
    /// The context it was trained for, in tokens.
    pub context_native: Option<u32>,
    /// The model's word, else the back-end's, less what probes contradict.
    pub claims: Vec<ClaimView>,
}

/// What is claimed for a capability.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ClaimView {
    /// From the contract's vocabulary.
    pub name: String,
    /// Its state.
    pub support: SupportWord,
    /// Why not, or on which condition.
    pub reason: Option<String>,
    /// A number or a list, where the capability has one.
    pub value: Option<String>,
}

/// The state of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SupportWord {
    /// Yes.
    Supported,
    /// No.
    Unsupported,
    /// On a condition.
    Conditional,
    /// Nobody knows, which counts as no.
    Unknown,
}

impl From<&Claim> for ClaimView {
    fn from(claim: &Claim) -> Self {
        let (support, reason) = match &claim.support {
            Support::Supported => (SupportWord::Supported, None),
            Support::Unsupported(reason) => (SupportWord::Unsupported, Some(reason.detail.clone())),
            Support::Conditional(when) => (SupportWord::Conditional, Some(when.clone())),
            Support::Unknown => (SupportWord::Unknown, None),
        };
        Self { name: claim.name.clone(), support, reason, value: claim.value.clone() }
    }
}

/// A back-end that could not be asked.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Unreachable {
    /// Its name.
    pub backend: String,
    /// Why.
    pub because: Cause,
}

/// The live back-ends, in the order in which they are asked.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Backends {
    /// Each of them.
    pub backends: Vec<BackendView>,
}

/// A live back-end.
#[derive(Debug, Serialize, JsonSchema)]
pub struct BackendView {
    /// Its name.
    pub name: String,
    /// What it is, for instance `cpu` or `ollama`.
    pub kind: String,
    /// Its version.
    pub version: String,
    /// Version of the server behind it, where there is one that tells it.
    pub server_version: Option<String>,
    /// `external`, `process` or `library`.
    pub execution: String,
    /// Where its models come from.
    pub models: ModelsFrom,
    /// `sha256:…` of its component.
    pub digest: String,
    /// Which installation under that name.
    pub generation: u64,
    /// Whether it can serve now.
    pub ready: bool,
    /// Its own sentence on that.
    pub detail: String,
    /// Answers running.
    pub active: usize,
    /// Requests waiting.
    pub waiting: usize,
    /// Why it could not be asked for its models the last time, if it could not.
    pub unreachable: Option<Cause>,
    /// What it claims for all its models.
    pub claims: Vec<ClaimView>,
    /// What answers, what is on trial, what is kept to go back to, what has answers still running.
    pub generations: Vec<GenerationView>,
}

/// Where a back-end's models come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ModelsFrom {
    /// The local store.
    Store,
    /// Its own list.
    List,
}

/// What was measured of a generation's last requests.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Score {
    /// How many.
    pub requests: usize,
    /// How many of them failed by its doing.
    pub failed: usize,
    /// Median wait for the first event of an answer, milliseconds.
    pub first_event_ms: Option<f64>,
    /// Median wait for a later event, milliseconds.
    pub per_event_ms: Option<f64>,
}

impl From<&WindowReport> for Score {
    fn from(window: &WindowReport) -> Self {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        Self {
            requests: window.requests,
            failed: window.failed,
            first_event_ms: window.first_event.map(ms),
            per_event_ms: window.per_event.map(ms),
        }
    }
}

/// One generation of a back-end.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct GenerationView {
    /// Which installation under the back-end's name.
    pub generation: u64,
    /// `sha256:…` of its component.
    pub digest: String,
    /// `current`, `candidate`, `previous` or `leaving`.
    pub role: String,
    /// Answers that run on it.
    pub running: usize,
    /// Faults of its component that count against it now.
    pub faults: usize,
    /// Whether its digest is in quarantine.
    pub quarantined: bool,
    /// Its last requests.
    pub score: Score,
}

impl From<&GenerationReport> for GenerationView {
    fn from(report: &GenerationReport) -> Self {
        Self {
            generation: report.generation.generation,
            digest: report.generation.digest.clone(),
            role: report.role.as_str().to_owned(),
            running: report.running,
            faults: report.faults,
            quarantined: report.quarantined,
            score: (&report.window).into(),
        }
    }
}

/// The servers behind bridges.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Upstreams {
    /// Those that this host is told of.
    pub servers: Vec<Server>,
    /// What the ledger says of such servers.
    pub entries: Vec<UpstreamEntry>,
}

/// A server that this host is told of.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Server {
    /// Name of the back-end.
    pub backend: String,
    /// What it is.
    pub kind: String,
    /// Its version, where it tells it.
    pub version: Option<String>,
    /// Why it could not be asked for its models the last time, if it could not.
    pub unreachable: Option<Cause>,
}

/// What the ledger says of a kind of server.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct UpstreamEntry {
    /// Its name.
    pub name: String,
    /// `tested`, `observed-unpinned`, `planned` or `blocked`.
    pub status: String,
    /// The entry's own keys.
    pub document: Value,
}
