//! What the control plane is asked and what it says. The document of the API is made of these types,
//! so their comments are what its readers read.

use std::time::Duration;

use gristmill_core::{
    Error,
    capability::{Claim, Support},
};
use gristmill_router::{GenerationReport, WindowReport};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A query that has no fields.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// A word and a sentence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Cause {
    /// A documented word.
    pub code: String,
    /// What was expected, what was found, what to do.
    pub message: String,
}

impl From<&Error> for Cause {
    fn from(error: &Error) -> Self {
        Self { code: error.code.as_str().to_owned(), message: error.message.clone() }
    }
}

/// Something that is wrong on disk while what runs goes on running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Problem {
    /// `ledger`, `policies` or `keys`.
    pub part: String,
    /// A documented word.
    pub code: String,
    /// Which file, what is wrong with it, what to do.
    pub message: String,
}

/// The machine and the build.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct HostFacts {
    /// For instance `x86_64`.
    pub architecture: String,
    /// Threads that may compute.
    pub threads: usize,
    /// The instruction set whose kernels run.
    pub kernels: Option<String>,
    /// Why these.
    pub kernels_because: Option<String>,
    /// The words for this host that blocks and policies may name.
    pub hardware: Vec<String>,
    /// Versions of the contract that components may be made for.
    pub contracts: Vec<String>,
    /// Bytes that models and caches may take, where that is set.
    pub memory_limit_bytes: Option<u64>,
}

/// The host as it is now.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Runtime {
    /// This build.
    pub version: String,
    /// When it began to serve, as in 2026-11-30T12:00:00Z.
    pub started: String,
    /// Seconds since then.
    pub uptime_seconds: u64,
    /// The machine and the build.
    pub host: HostFacts,
    /// Answers running, over all back-ends.
    pub active: usize,
    /// Requests waiting, over all back-ends.
    pub waiting: usize,
    /// Models in memory.
    pub models: Vec<LoadedModel>,
    /// What is wrong on disk while what runs goes on running.
    pub problems: Vec<Problem>,
}

/// A model in memory.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LoadedModel {
    /// Canonical id.
    pub model: String,
    /// `sha256:…` of its weights.
    pub digest: String,
    /// Bytes it takes.
    pub memory_bytes: u64,
    /// Tokens of context it can take.
    pub context: u32,
    /// Answers running.
    pub active: u32,
    /// When it will be let go of; absent: never.
    pub expires: Option<String>,
}

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

/// Where a request would go.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteQuestion {
    /// The model, spelled as a request would.
    pub model: String,
    /// What the request would need besides text.
    #[serde(default)]
    pub capabilities: Vec<Need>,
}

/// What a request can need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Need {
    /// Text, which every request for an answer needs.
    #[serde(rename = "inference.text")]
    Text,
    /// Tools.
    #[serde(rename = "tools.calling")]
    Tools,
    /// An answer of a given form.
    #[serde(rename = "structured_output")]
    Structure,
    /// Log probabilities.
    #[serde(rename = "logprobs")]
    Logprobs,
    /// Thinking, switched on.
    #[serde(rename = "reasoning.control")]
    Reasoning,
    /// Pictures.
    #[serde(rename = "multimodal.vision")]
    Vision,
    /// Sound.
    #[serde(rename = "multimodal.audio")]
    Audio,
}

/// Why a request would go where.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Route {
    /// The model as it was asked for.
    pub model: String,
    /// What it was asked for.
    pub capabilities: Vec<Need>,
    /// Every live back-end, in the order in which they are asked.
    pub candidates: Vec<Candidate>,
    /// The back-end that would answer.
    pub winner: Option<Winner>,
    /// The failure that a request would get, where nobody would answer.
    pub refusal: Option<Cause>,
}

/// Who would answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Winner {
    /// Name of the back-end.
    pub backend: String,
    /// Canonical id of the model.
    pub model: String,
    /// `sha256:…` of the back-end's component.
    pub digest: String,
    /// Which installation under that name.
    pub generation: u64,
}

/// A back-end, looked at for a request.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Candidate {
    /// Its name.
    pub backend: String,
    /// What it is.
    pub kind: String,
    /// `sha256:…` of its component.
    pub digest: String,
    /// Which installation under that name.
    pub generation: u64,
    /// What it calls the model, where it has it.
    pub model: Option<String>,
    /// Each condition, in the order in which they are looked at.
    pub conditions: Vec<Condition>,
    /// What a request would be refused with here.
    pub refusal: Option<Cause>,
    /// What was measured of its last requests. It explains and does not decide.
    pub score: Score,
    /// Whether it would answer.
    pub wins: bool,
}

/// One condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Condition {
    /// `named` (the name asks for this back-end, or for none), `reachable` (it could be asked for its
    /// models), `has-model`, a capability by its name, `unblocked`, `has-room`, `first` (no earlier
    /// back-end has the model).
    pub name: String,
    /// Whether it holds.
    pub holds: bool,
    /// A sentence, where there is more to say.
    pub detail: String,
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

/// The policies about models.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Policies {
    /// In the order in which they are asked.
    pub policies: Vec<Policy>,
}

/// One policy file.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Policy {
    /// `block`, `parameters`, `profile`, `context` or `approval`.
    pub kind: String,
    /// Its name; refusals carry it.
    pub id: String,
    /// Whether it applies now; one that has expired does not.
    pub applies: bool,
    /// The file's own keys.
    pub document: Value,
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

/// The plugins that may run.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Plugins {
    /// By name.
    pub plugins: Vec<PluginView>,
}

/// A pin and where it runs.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PluginView {
    /// What is pinned.
    #[serde(flatten)]
    pub pin: PluginPin,
    /// Back-ends whose component is the pinned one.
    pub runs_as: Vec<String>,
    /// Back-ends of the same plugin that still run another component than the pinned one.
    pub behind: Vec<String>,
}

/// What is pinned under a name.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct PluginPin {
    /// The plugin's name.
    pub name: String,
    /// `backend`, `family` or `probe`.
    pub kind: String,
    /// Its own version.
    pub version: String,
    /// Version of the contract.
    pub contract: String,
    /// `sha256:…` of the component.
    pub digest: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Counts the pins that this name has had.
    pub sequence: u64,
    /// Everything that it imports.
    pub imports: Vec<String>,
    /// Whether a grant is there for it.
    pub granted: bool,
    /// Whether there is evidence on this component.
    pub evidence: bool,
    /// Whether the ledger's log says that it was proven.
    pub proven: bool,
    /// Whether another pin of this name waits to be promoted.
    pub waiting: bool,
    /// Back-ends that are configured to be this plugin.
    pub configured: Vec<String>,
}

/// The ledger.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LedgerView {
    /// In short.
    pub status: LedgerStatus,
    /// What is pinned, by name.
    pub pins: Vec<PluginPin>,
}

/// The state of the ledger in short.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct LedgerStatus {
    /// Whether nothing is wrong with it.
    pub sound: bool,
    /// How many names are pinned.
    pub pins: usize,
    /// Names whose pin in place waits to be proven.
    pub pending: Vec<String>,
    /// How many entries its log has.
    pub log_entries: u64,
    /// Hash of the log's last entry.
    pub log_head: Option<String>,
    /// What is wrong with it.
    pub problems: Vec<Problem>,
}

/// Which part of the log.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogQuery {
    /// Entries after this one; absent: from the first.
    #[serde(default)]
    pub after: Option<u64>,
    /// At most so many, 1 to 1000; absent: 100.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1000))]
    pub limit: Option<u32>,
}

/// Part of the log, the oldest entry first.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct LogPage {
    /// The entries.
    pub entries: Vec<LogEntry>,
    /// What to ask for as `after`, where there is more.
    pub next: Option<u64>,
}

/// One entry of the log.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct LogEntry {
    /// Its number.
    pub number: u64,
    /// Its hash, which the next one carries.
    pub hash: String,
    /// The entry's own keys.
    pub document: Value,
}

/// A request without fields.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Verify {}

/// What a proof of the ledger found.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Verified {
    /// Whether nothing is wrong.
    pub sound: bool,
    /// What was looked at.
    pub checked: Vec<String>,
    /// What is wrong.
    pub problems: Vec<Problem>,
}

/// Make what is pinned under a name what runs under it.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Promote {
    /// The plugin's name.
    pub name: String,
    /// `sha256:…` that must be what is pinned; absent: whatever is.
    #[serde(default)]
    pub digest: Option<String>,
    /// How the traffic moves; absent: all of it at once.
    #[serde(default)]
    pub trial: Option<Trial>,
}

/// A share of the requests before all of them.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "kebab-case")]
pub enum Trial {
    /// A share of the requests is answered by the candidate.
    Canary {
        /// Of all requests, above 0 and at most 1.
        share: f64,
        /// So many requests end the trial.
        requests: u32,
    },
    /// The candidate gets copies of a share of the requests; its answers are compared and dropped.
    Shadow {
        /// Of all requests, above 0 and at most 1.
        share: f64,
        /// So many compared answers end the trial.
        requests: u32,
        /// Highest share of answers that may differ from the real ones; absent: none may.
        #[serde(default)]
        differing: Option<f64>,
    },
}

/// Go back to what ran under a name before.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rollback {
    /// The plugin's name.
    pub name: String,
}

/// What a promotion or a rollback did.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Swap {
    /// The plugin's name.
    pub name: String,
    /// `sha256:…` of what runs now, or is on trial.
    pub digest: String,
    /// Back-ends that it was done to.
    pub backends: Vec<Swapped>,
}

/// What was done to one back-end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Swapped {
    /// Its name.
    pub backend: String,
    /// Its generation.
    pub generation: u64,
    /// `live`, `on-trial`, or `unchanged` where it was so before.
    pub standing: String,
    /// `sha256:…` of what it took the place of.
    pub replaced: Option<String>,
}

/// Take a component or a signer's key out of trust.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "kebab-case")]
pub enum Revoke {
    /// A component.
    Digest {
        /// `sha256:…` of it.
        digest: String,
        /// Why.
        reason: String,
    },
    /// A signer's key.
    Key {
        /// The key as the ledger spells it.
        key: String,
        /// Why.
        reason: String,
    },
}

/// What a revocation means now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Revoked {
    /// Plugins whose pins are no longer valid. What runs of them goes on running until it is rolled
    /// back or another pin is promoted.
    pub pins: Vec<String>,
}
