//! What a server sends: chunks of a stream and answers in one piece, read leniently (a field may be
//! missing or null) and kept byte for byte where the model wrote it.

use gristmill_plugin::prelude::*;
use serde::Deserialize;
use serde_json::value::RawValue;

/// A chunk, or a whole answer.
#[derive(Debug, Deserialize)]
pub(super) struct Chunk {
    pub(super) model: Option<String>,
    pub(super) choices: Option<Vec<Choice>>,
    pub(super) usage: Option<WireUsage>,
    pub(super) timings: Option<WireTimings>,
    /// llama-server's native format, which `/infill` has.
    pub(super) content: Option<String>,
    pub(super) stop: Option<bool>,
    pub(super) stop_type: Option<String>,
    pub(super) stopping_word: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Choice {
    pub(super) index: Option<u32>,
    pub(super) delta: Option<Delta>,
    pub(super) message: Option<Delta>,
    pub(super) text: Option<String>,
    pub(super) finish_reason: Option<String>,
    /// vLLM: the stop string, or the token that ended it.
    pub(super) stop_reason: Option<serde_json::Value>,
    pub(super) logprobs: Option<Logprobs>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Delta {
    pub(super) content: Option<String>,
    pub(super) refusal: Option<String>,
    pub(super) reasoning_content: Option<String>,
    pub(super) reasoning: Option<String>,
    pub(super) tool_calls: Option<Vec<WireCall>>,
}

impl Delta {
    /// The reasoning under either name; a server that sends both says the same twice.
    pub(super) fn thought(&self) -> &str {
        let named = [&self.reasoning_content, &self.reasoning].into_iter().flatten();
        named.map(String::as_str).find(|text| !text.is_empty()).unwrap_or_default()
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct WireCall {
    pub(super) index: Option<u32>,
    pub(super) id: Option<String>,
    pub(super) function: Option<Function>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Function {
    pub(super) name: Option<String>,
    pub(super) arguments: Option<Box<RawValue>>,
}

impl Function {
    /// The arguments' bytes: the text of a JSON string, or an object as it stands.
    pub(super) fn arguments(&self) -> Option<String> {
        let raw = self.arguments.as_ref()?.get();
        if raw.starts_with('"') { serde_json::from_str(raw).ok() } else { Some(raw.to_owned()) }
    }
}

/// Both formats: entries, and the older parallel lists.
#[derive(Debug, Deserialize)]
pub(super) struct Logprobs {
    content: Option<Vec<Entry>>,
    tokens: Option<Vec<String>>,
    token_logprobs: Option<Vec<Option<f64>>>,
    top_logprobs: Option<Vec<Option<BTreeMap<String, f64>>>>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    id: Option<u32>,
    token: Option<String>,
    bytes: Option<Vec<u8>>,
    logprob: Option<f64>,
    top_logprobs: Option<Vec<Entry>>,
}

impl Entry {
    fn bytes(&self) -> Vec<u8> {
        let text = || self.token.clone().unwrap_or_default().into_bytes();
        self.bytes.clone().unwrap_or_else(text)
    }
}

/// The id of a token whose server tells its text alone.
const UNKNOWN: u32 = u32::MAX;

fn number(logprob: Option<f64>) -> f32 {
    logprob.map_or(f32::MIN, |number| (number as f32).max(f32::MIN))
}

impl Logprobs {
    /// The tokens in order.
    pub(super) fn tokens(&self) -> Vec<TokenInfo> {
        if let Some(entries) = &self.content {
            let token = |entry: &Entry| TokenInfo {
                id: entry.id.unwrap_or(UNKNOWN),
                bytes: entry.bytes(),
                logprob: number(entry.logprob),
                alternatives: (entry.top_logprobs.iter().flatten())
                    .map(|other| {
                        (other.id.unwrap_or(UNKNOWN), other.bytes(), number(other.logprob))
                    })
                    .collect(),
            };
            return entries.iter().map(token).collect();
        }
        let mut logprobs = self.token_logprobs.iter().flatten();
        let mut others = self.top_logprobs.iter().flatten();
        let token = |text: &String| {
            let mut alternatives: Vec<(u32, Vec<u8>, f32)> = others
                .next()
                .and_then(Option::as_ref)
                .into_iter()
                .flatten()
                .map(|(text, logprob)| (UNKNOWN, text.clone().into_bytes(), number(Some(*logprob))))
                .collect();
            alternatives.sort_by(|a, b| b.2.total_cmp(&a.2));
            TokenInfo {
                id: UNKNOWN,
                bytes: text.clone().into_bytes(),
                logprob: number(logprobs.next().copied().flatten()),
                alternatives,
            }
        };
        self.tokens.iter().flatten().map(token).collect()
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct WireUsage {
    prompt_tokens: Option<u32>,
    completion_tokens: Option<u32>,
    prompt_tokens_details: Option<PromptDetails>,
    completion_tokens_details: Option<CompletionDetails>,
}

#[derive(Debug, Deserialize)]
struct PromptDetails {
    cached_tokens: Option<u32>,
}

#[derive(Debug, Deserialize)]
struct CompletionDetails {
    reasoning_tokens: Option<u32>,
}

impl WireUsage {
    pub(super) fn usage(&self) -> Usage {
        let prompt = self.prompt_tokens_details.as_ref();
        let completion = self.completion_tokens_details.as_ref();
        Usage {
            prompt: self.prompt_tokens.unwrap_or_default(),
            cached: prompt.and_then(|details| details.cached_tokens).unwrap_or_default(),
            completion: self.completion_tokens.unwrap_or_default(),
            reasoning: completion.and_then(|details| details.reasoning_tokens).unwrap_or_default(),
            extras: Vec::new(),
        }
    }
}

/// llama-server's.
#[derive(Debug, Deserialize)]
pub(super) struct WireTimings {
    pub(super) cache_n: Option<u32>,
    pub(super) prompt_n: Option<u32>,
    prompt_ms: Option<f64>,
    pub(super) predicted_n: Option<u32>,
    predicted_ms: Option<f64>,
    pub(super) draft_n: Option<u32>,
    pub(super) draft_n_accepted: Option<u32>,
}

impl WireTimings {
    pub(super) fn timings(&self) -> Timings {
        // A cast from a float saturates: no server's number is too large.
        let micros = |ms: Option<f64>| (ms.unwrap_or_default() * 1000.0) as u64;
        Timings {
            queue: 0,
            load: 0,
            prefill: micros(self.prompt_ms),
            decode: micros(self.predicted_ms),
            extras: Vec::new(),
        }
    }
}
