//! Where a request would go, and why.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Cause, Score};

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
    /// What reading 512 tokens and writing 128 takes with the model, by the ledger's last steady measurement
    /// on this class of host. Between back-ends with the very same weights it decides.
    pub takes_seconds: Option<f64>,
    /// Whether it would answer.
    pub wins: bool,
}

/// One condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Condition {
    /// `named` (the name asks for this back-end, or for none), `reachable` (it could be asked for its
    /// models), `has-model`, a capability by its name, `unblocked`, `has-room`, `first` (no earlier
    /// back-end has the model), `fastest` (of those with the very same weights).
    pub name: String,
    /// Whether it holds.
    pub holds: bool,
    /// A sentence, where there is more to say.
    pub detail: String,
}
