//! What a back-end or a model claims it can do, and what became of the claim.

use serde::{Deserialize, Serialize};

use crate::Extras;

/// Why something is not offered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// A documented word.
    pub code: String,
    /// A sentence.
    pub detail: String,
}

/// The state of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Support {
    /// Yes.
    Supported,
    /// No, and why.
    Unsupported(Reason),
    /// If this expression over host, model and request holds.
    Conditional(String),
    /// Nobody knows; treated as no.
    Unknown,
}

/// One capability, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// From the vocabulary, for instance `tools.calling`.
    pub name: String,
    /// The claim's state.
    pub support: Support,
    /// A number or list, where the capability has one.
    pub value: Option<String>,
}

impl Claim {
    /// A supported capability without a value.
    #[must_use]
    pub fn supported(name: impl Into<String>) -> Self {
        Self { name: name.into(), support: Support::Supported, value: None }
    }
}

/// What a back-end is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Descriptor {
    /// Its id, unique among the live back-ends.
    pub id: String,
    /// `ollama`, `vllm`, `llama-server`, `mlx`, `openai-compatible`, `cpu`, `scripted`, …
    pub kind: String,
    /// Its version.
    pub version: String,
    /// `external`, `process` or `library`.
    pub execution: String,
    /// What it claims.
    pub claims: Vec<Claim>,
    /// What a later contract knows.
    pub extras: Extras,
}

/// What a model is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelInfo {
    /// Canonical id where the back-end knows it, otherwise its own name.
    pub id: String,
    /// Other names it answers to.
    pub names: Vec<String>,
    /// `sha256:…` of the weights.
    pub digest: Option<String>,
    /// The family that speaks for it.
    pub family: Option<String>,
    /// For instance `Q4_K_M`.
    pub quantization: Option<String>,
    /// How many weights.
    pub parameters: Option<u64>,
    /// Size of the file.
    pub size_bytes: Option<u64>,
    /// Longest context it was trained for.
    pub context_native: Option<u32>,
    /// What it claims.
    pub claims: Vec<Claim>,
    /// What a later contract knows.
    pub extras: Extras,
}

/// Whether a back-end can serve now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readiness {
    /// Yes or no.
    pub ready: bool,
    /// A sentence.
    pub detail: String,
    /// What a later contract knows.
    pub extras: Extras,
}
