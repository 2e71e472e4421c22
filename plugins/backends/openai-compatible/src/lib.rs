//! The bridge to any server that speaks the OpenAI format: what the published API has, and none of
//! anybody's extensions.
//!
//! A finish reason is the end here even without `[DONE]`, which some servers leave out; nothing but
//! the stream's end then tells a complete answer from one that was cut, so a server with a bridge of
//! its own is better reached through that.
#![cfg_attr(target_arch = "wasm32", no_std)]

use gristmill_bridge::{
    failure::Manners,
    openai::{
        Choice, Constraints, Dimensions, Embedding, Infill, Profile, Ranking, Speaks, Thinking,
        Tokens,
    },
};

gristmill_plugin::export_backend!(gristmill_bridge::openai::Bridge<OpenAiCompatible>);

/// The server.
#[derive(Debug)]
pub struct OpenAiCompatible;

impl Speaks for OpenAiCompatible {
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const PROFILE: Profile = Profile {
        kind: "openai-compatible",
        manners: Manners { backend: "openai-compatible", missing_is_404: true },
        claims: &["inference.text", "streaming.content"],
        lacks: &[
            ("tokenize", "the OpenAI format has no route for it"),
            ("context.override", "the OpenAI format has no field for it"),
        ],
        thinking: Thinking {
            kwarg: false,
            effort_off: Some("none"),
            budget: None,
            back: "reasoning_content",
        },
        sampling: &[],
        most_seed: i64::MAX as u64,
        logit_bias: true,
        choice: Choice::Full,
        parallel_switch: true,
        constraints: Constraints::Format,
        stops: Some(4),
        media: true,
        logprobs: true,
        logprobs_unstreamed_with_tools: false,
        token_prompt: true,
        tells_model: false,
        infill: Infill::Suffix,
        done: false,
        embedding: Some(Embedding { dimensions: Dimensions::Server, truncate: None }),
        ranking: Some(Ranking { path: "/v1/rerank", logits: false }),
        tokens: Tokens::Unread,
        health: "/v1/models",
        extras: &[],
    };
}
