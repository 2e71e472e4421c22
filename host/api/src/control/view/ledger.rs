//! The plugins, the ledger, its log, and the verbs on it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Problem;

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
    /// Components that are not put in force until they are released.
    pub quarantined: Vec<InQuarantine>,
    /// How many entries its log has.
    pub log_entries: u64,
    /// Hash of the log's last entry.
    pub log_head: Option<String>,
    /// What is wrong with it.
    pub problems: Vec<Problem>,
}

/// A component that had too many faults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct InQuarantine {
    /// `sha256:…` of it.
    pub digest: String,
    /// The plugin that it was; its digest where none was known.
    pub name: String,
    /// What happened.
    pub reason: String,
    /// Since when.
    pub since: String,
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
    /// The sequence to go back to; absent: the one that the pin in force names, else the one before it.
    #[serde(default)]
    pub to: Option<u64>,
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

/// Let components that are in quarantine be put in force again.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "kebab-case")]
pub enum Release {
    /// One component.
    Digest {
        /// `sha256:…` of it.
        digest: String,
        /// Why, for the log.
        #[serde(default)]
        reason: Option<String>,
    },
    /// Every component that a pin of this name is of.
    Name {
        /// The plugin's name.
        name: String,
        /// Why, for the log.
        #[serde(default)]
        reason: Option<String>,
    },
}

/// What was released.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Released {
    /// `sha256:…` of each component.
    pub digests: Vec<String>,
}
