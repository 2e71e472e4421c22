//! The bridge to vLLM: its OpenAI surface with vLLM's own fields (structured outputs, priority, token
//! routes, ranks), as data for the shared wire format.
//!
//! What it knows that others do not: reasoning comes as `reasoning` or `reasoning_content`, a tool
//! that the caller named ends with `stop`, `stop_reason` tells the stop string, an error inside a
//! stream is followed by `[DONE]`.
#![cfg_attr(target_arch = "wasm32", no_std)]

use gristmill_bridge::{
    Server,
    failure::Manners,
    openai::{
        Choice, Constraints, Dimensions, Embedding, Extra, Infill, Profile, Ranking, Sampler,
        Speaks, Thinking, Tokens, health, version,
    },
};
use gristmill_plugin::prelude::*;

gristmill_plugin::export_backend!(gristmill_bridge::openai::Bridge<Vllm>);

/// The server.
#[derive(Debug)]
pub struct Vllm;

impl Speaks for Vllm {
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const PROFILE: Profile = Profile {
        kind: "vllm",
        manners: Manners { backend: "vllm", missing_is_404: true },
        claims: &[
            "inference.text",
            "structured_output",
            "logprobs",
            "tokenize",
            "streaming.content",
            "streaming.reasoning",
            "streaming.tool_arguments",
        ],
        lacks: &[("context.override", "its context is fixed when it starts")],
        thinking: Thinking {
            kwarg: true,
            effort_off: Some("none"),
            budget: Some("thinking_token_budget"),
            back: "reasoning",
        },
        sampling: &[
            Sampler { name: "top-k", field: "top_k" },
            Sampler { name: "min-p", field: "min_p" },
            Sampler { name: "repeat-penalty", field: "repetition_penalty" },
        ],
        most_seed: i64::MAX as u64,
        logit_bias: true,
        choice: Choice::Full,
        parallel_switch: true,
        constraints: Constraints::Structured,
        // A server setting (VLLM_MAX_STOP_STRINGS) that cannot be asked for; this is its default.
        stops: Some(4),
        media: true,
        logprobs: true,
        logprobs_unstreamed_with_tools: false,
        token_prompt: true,
        tells_model: false,
        infill: Infill::Unread,
        done: true,
        embedding: Some(Embedding {
            dimensions: Dimensions::Server,
            truncate: Some(("truncate_prompt_tokens", -1)),
        }),
        ranking: Some(Ranking { path: "/v1/rerank", logits: false }),
        tokens: Tokens::Prompt,
        health: "/health",
        extras: &[
            Extra { name: "priority", field: "priority" },
            Extra { name: "cache-salt", field: "cache_salt" },
            Extra { name: "min-tokens", field: "min_tokens" },
            Extra { name: "ignore-eos", field: "ignore_eos" },
            Extra { name: "stop-token-ids", field: "stop_token_ids" },
            Extra { name: "bad-words", field: "bad_words" },
        ],
    };

    fn health(server: &dyn Server) -> Result<Readiness> {
        let mut readiness = health(server, &Self::PROFILE)?;
        if let Some(version) = version(server, &Self::PROFILE, "/version") {
            readiness.extras.push(("server-version".to_owned(), version));
        }
        Ok(readiness)
    }
}
