//! What the control plane is asked and what it says. The document of the API is made of these types,
//! so their comments are what its readers read.

mod backends;
mod candidate;
mod ledger;
mod route;

use gristmill_core::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use backends::*;
pub use candidate::*;
pub use ledger::*;
pub use route::*;

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

/// The policies about models.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Policies {
    /// By kind and name: blocks, parameter policies, profiles.
    pub policies: Vec<Policy>,
}

/// One policy file.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Policy {
    /// `block`, `parameters` or `profile`.
    pub kind: String,
    /// Its name; refusals carry it.
    pub id: String,
    /// Whether it applies now; one that has expired does not.
    pub applies: bool,
    /// The file's own keys.
    pub document: Value,
}
