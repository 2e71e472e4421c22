//! The bridge to llama.cpp's server: its OpenAI surface with its own timings, thinking, grammars,
//! ranks, tokens and gap filling, as data for the shared wire format.
//!
//! What it knows that others do not: `/props` tells what the loaded model can do, counts and times
//! come as `timings` (`cache_n` is what came from the cache), scores are logits, a grammar does not go
//! with tools, and log probabilities with tools only come in one piece.
#![cfg_attr(target_arch = "wasm32", no_std)]

use gristmill_bridge::{
    Server,
    failure::Manners,
    http::{ask, get},
    openai::{
        Choice, Constraints, Dimensions, Embedding, Infill, Profile, Ranking, Sampler, Speaks,
        Thinking, Tokens, health, list, version,
    },
};
use gristmill_plugin::prelude::*;
use serde::Deserialize;

gristmill_plugin::export_backend!(gristmill_bridge::openai::Bridge<LlamaServer>);

/// The server.
#[derive(Debug)]
pub struct LlamaServer;

impl Speaks for LlamaServer {
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const PROFILE: Profile = Profile {
        kind: "llama-server",
        manners: Manners { backend: "llama-server", missing_is_404: true },
        claims: &[
            "inference.text",
            "structured_output",
            "logprobs",
            "tokenize",
            "cache.prompt_cache",
            "streaming.content",
            "streaming.reasoning",
            "streaming.tool_arguments",
        ],
        lacks: &[("context.override", "its context is fixed when it starts")],
        thinking: Thinking {
            kwarg: true,
            effort_off: Some("none"),
            budget: Some("thinking_budget_tokens"),
            back: "reasoning_content",
        },
        sampling: &[
            Sampler { name: "top-k", field: "top_k" },
            Sampler { name: "min-p", field: "min_p" },
            Sampler { name: "typical-p", field: "typical_p" },
            Sampler { name: "repeat-penalty", field: "repeat_penalty" },
            Sampler { name: "repeat-last-n", field: "repeat_last_n" },
        ],
        // It keeps 32 bits, and the largest of them means "any".
        most_seed: u32::MAX as u64 - 1,
        logit_bias: true,
        choice: Choice::Words,
        parallel_switch: true,
        constraints: Constraints::Grammar,
        stops: None,
        media: true,
        logprobs: true,
        logprobs_unstreamed_with_tools: true,
        token_prompt: true,
        tells_model: true,
        infill: Infill::Native,
        done: true,
        embedding: Some(Embedding { dimensions: Dimensions::Here, truncate: None }),
        ranking: Some(Ranking { path: "/v1/rerank", logits: true }),
        tokens: Tokens::Content,
        health: "/health",
        extras: &[],
    };

    /// The list, and for a server of one model what `/props` says of it.
    fn models(server: &dyn Server) -> Result<Vec<ModelInfo>> {
        let listed = list(server, &Self::PROFILE)?;
        let mut models: Vec<ModelInfo> = listed.iter().map(|model| model.info()).collect();
        if let [only] = models.as_mut_slice()
            && let Ok(props) = ask::<Props>(server, &Self::PROFILE.manners, &get("/props"))
        {
            props.describe(only);
        }
        Ok(models)
    }

    fn health(server: &dyn Server) -> Result<Readiness> {
        let mut readiness = health(server, &Self::PROFILE)?;
        if let Some(build) = version(server, &Self::PROFILE, "/props") {
            readiness.extras.push(("server-version".to_owned(), build));
        }
        Ok(readiness)
    }
}

/// What `/props` says.
#[derive(Debug, Deserialize)]
struct Props {
    default_generation_settings: Option<Settings>,
    modalities: Option<Modalities>,
    chat_template_caps: Option<Caps>,
    model_ftype: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Settings {
    n_ctx: Option<u32>,
}

#[derive(Debug, Deserialize)]
struct Modalities {
    vision: Option<bool>,
    audio: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct Caps {
    supports_tools: Option<bool>,
    supports_tool_calls: Option<bool>,
    supports_parallel_tool_calls: Option<bool>,
}

impl Props {
    fn describe(self, model: &mut ModelInfo) {
        model.quantization = self.model_ftype.filter(|name| !name.is_empty());
        if let Some(context) = self.default_generation_settings.and_then(|known| known.n_ctx) {
            model.claims.push(Claim::valued("context.effective_max", context.to_string()));
        }
        let modalities = self.modalities.unwrap_or(Modalities { vision: None, audio: None });
        claim(model, "multimodal.vision", modalities.vision, "the model reads no pictures");
        claim(model, "multimodal.audio", modalities.audio, "the model hears no sounds");
        if let Some(caps) = self.chat_template_caps {
            // A template without a place for tools leaves them out, required or not.
            let tools = [caps.supports_tools, caps.supports_tool_calls].into_iter().flatten();
            let none = "the model's chat template has no place for tools";
            claim(model, "tools.calling", tools.reduce(|a, b| a || b), none);
            let one = "the model's chat template has one call at a time";
            claim(model, "tools.parallel", caps.supports_parallel_tool_calls, one);
        }
    }
}

fn claim(model: &mut ModelInfo, name: &str, told: Option<bool>, otherwise: &str) {
    match told {
        Some(true) => model.claims.push(Claim::supported(name)),
        Some(false) => model.claims.push(Claim::unsupported(name, "not-in-model", otherwise)),
        None => {}
    }
}
