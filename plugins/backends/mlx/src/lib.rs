//! The bridge to MLX-LM's server (`mlx_lm.server`): the OpenAI format with much left out, as data for
//! the shared wire format.
//!
//! What it knows that others do not: every failure is status 404 with a text, the role stands on
//! every chunk, the reason on the last piece of text, calls come whole, and there is no format, tool
//! choice, embedding, rank or token route. Unset, its own limit of 512 tokens holds: nothing is
//! injected here.
#![cfg_attr(target_arch = "wasm32", no_std)]

use gristmill_bridge::{
    failure::Manners,
    openai::{Choice, Constraints, Infill, Profile, Sampler, Speaks, Thinking, Tokens},
};

gristmill_plugin::export_backend!(gristmill_bridge::openai::Bridge<Mlx>);

/// The server.
#[derive(Debug)]
pub struct Mlx;

impl Speaks for Mlx {
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const PROFILE: Profile = Profile {
        kind: "mlx",
        manners: Manners { backend: "mlx", missing_is_404: false },
        claims: &["inference.text", "streaming.content", "streaming.reasoning"],
        lacks: &[
            ("structured_output", "mlx_lm.server enforces no format"),
            ("embeddings", "mlx_lm.server makes none"),
            ("reranking", "mlx_lm.server makes none"),
            ("tokenize", "mlx_lm.server has no route for it"),
            ("logprobs", "mlx_lm.server tells the likeliest token's, not the chosen one's"),
            ("multimodal.vision", "mlx_lm.server takes text alone"),
            ("multimodal.audio", "mlx_lm.server takes text alone"),
            ("streaming.tool_arguments", "calls come whole"),
            ("context.override", "it has no context setting"),
        ],
        thinking: Thinking {
            kwarg: true,
            effort_off: None,
            budget: None,
            back: "reasoning_content",
        },
        sampling: &[
            Sampler { name: "top-k", field: "top_k" },
            Sampler { name: "min-p", field: "min_p" },
            Sampler { name: "repeat-penalty", field: "repetition_penalty" },
        ],
        most_seed: i64::MAX as u64,
        logit_bias: true,
        choice: Choice::Unread,
        parallel_switch: false,
        constraints: Constraints::Unread,
        stops: None,
        media: false,
        logprobs: false,
        logprobs_unstreamed_with_tools: false,
        token_prompt: false,
        tells_model: false,
        infill: Infill::Unread,
        done: true,
        embedding: None,
        ranking: None,
        tokens: Tokens::Unread,
        health: "/health",
        extras: &[],
    };
}
