//! What an answer is made of: `(reasoning | text | tool-… | tokens)*`, then usage, timings, finish.

use serde::{Deserialize, Serialize};

use crate::Extras;

/// One piece of an answer. Text is whole UTF-8: a character never spans two events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// More of the reasoning.
    Reasoning(String),
    /// More of the answer.
    Text(String),
    /// A tool call begins.
    ToolStart(ToolStart),
    /// More of the arguments of the call with this index, byte for byte.
    ToolArguments(u32, String),
    /// The call with this index is complete.
    ToolEnd(u32),
    /// Log probabilities of tokens just emitted, when they were asked for.
    Tokens(Vec<TokenInfo>),
    /// Token counts of the whole answer.
    Usage(Usage),
    /// Where the time went.
    Timings(Timings),
    /// The answer is complete; nothing follows.
    Finish(Finish),
    /// Something a later contract knows.
    Other(String, String),
}

/// The beginning of a tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolStart {
    /// Position among the calls of this answer, from 0.
    pub index: u32,
    /// Stable from here to the result that answers it.
    pub id: String,
    /// The tool's name.
    pub name: String,
}

/// One emitted token with its log probability and the likeliest others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenInfo {
    /// Token id.
    pub id: u32,
    /// The bytes it stands for; not always whole UTF-8.
    pub bytes: Vec<u8>,
    /// Natural logarithm of its probability before sampling changed anything.
    pub logprob: f32,
    /// The likeliest tokens at this place, best first.
    pub alternatives: Vec<Alternative>,
}

/// A token that could have stood here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// Token id.
    pub id: u32,
    /// The bytes it stands for.
    pub bytes: Vec<u8>,
    /// Natural logarithm of its probability.
    pub logprob: f32,
}

/// Token counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt: u32,
    /// Of those, taken from a cache.
    pub cached: u32,
    /// Tokens generated.
    pub completion: u32,
    /// Of those, reasoning.
    pub reasoning: u32,
    /// Further counts.
    pub extras: Extras,
}

/// Microseconds, each part of the work once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timings {
    /// Waiting for a place.
    pub queue: u64,
    /// Loading the model.
    pub load: u64,
    /// Reading the prompt.
    pub prefill: u64,
    /// Writing the answer.
    pub decode: u64,
    /// Further parts.
    pub extras: Extras,
}

/// Why an answer ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finish {
    /// `stop`, `length`, `tool-calls`, `content-filter`, `cancelled`, or the back-end's own word.
    pub reason: String,
    /// The stop string that ended it.
    pub stop: Option<String>,
}

impl Finish {
    /// An ending for this reason, without a stop string.
    #[must_use]
    pub fn because(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), stop: None }
    }
}
