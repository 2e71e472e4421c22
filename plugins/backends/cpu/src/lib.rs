//! The front of the host's CPU engine: chat, completion, embedding and tokens, each one call of the
//! `engine` import. Nothing is computed here, and no token crosses as a tensor.
//!
//! It keeps no list of models. What can be opened is what the host's store holds, so the router
//! lists the store; the descriptor's extra `models = store` says so.
#![cfg_attr(target_arch = "wasm32", no_std)]

use gristmill_plugin::{
    engine::{Decoding, Model},
    prelude::*,
};

/// The back-end.
#[derive(Debug)]
pub struct Cpu;

gristmill_plugin::export_backend!(Cpu);

impl Backend for Cpu {
    fn describe() -> Descriptor {
        let version = env!("CARGO_PKG_VERSION");
        let mut descriptor = Descriptor::new("cpu", "cpu", version, "library");
        descriptor.claims = claims();
        descriptor.extras.push(("models".to_owned(), "store".to_owned()));
        descriptor
    }

    fn models() -> Result<Vec<ModelInfo>> {
        Ok(Vec::new())
    }

    fn generate(request: Request) -> Result<impl Generation> {
        Ok(Answer(Model::open(&request.model)?.generate(&request)?))
    }

    fn embed(request: EmbedRequest) -> Result<Embeddings> {
        Model::open(&request.model)?.embed(&request)
    }

    fn rerank(request: RerankRequest) -> Result<Vec<Ranked>> {
        Model::open(&request.model)?.rerank(&request)
    }

    fn tokenize(model: &str, text: &str, special: bool) -> Result<Vec<u32>> {
        Model::open(model)?.tokenize(text, special)
    }

    fn detokenize(model: &str, tokens: &[u32]) -> Result<Vec<u8>> {
        Model::open(model)?.detokenize(tokens)
    }

    fn health() -> Result<Readiness> {
        Ok(Readiness::ready("the engine opens models on demand"))
    }
}

/// A running decoding, handed through batch by batch. Dropping it cancels the work in the host.
struct Answer(Decoding);

impl Generation for Answer {
    fn next(&mut self, max: u32) -> Result<Option<Vec<Event>>> {
        self.0.next(max)
    }
}

/// What holds for every model, what depends on the model (`model.X`: the model's own claim of X),
/// and what is not offered.
fn claims() -> Vec<Claim> {
    let mut claims: Vec<Claim> = [
        "inference.text",
        "architecture.dense",
        "embeddings",
        "tokenize",
        "logprobs",
        "structured_output",
        "structured.json-object",
        "structured.json-schema",
        "structured.regex",
        "structured.grammar",
        "streaming.content",
        "streaming.reasoning",
        "placement.cpu",
    ]
    .map(Claim::supported)
    .into();
    claims.extend(
        [
            "architecture.moe",
            "reranking",
            "reasoning.control",
            "tools.calling",
            "tools.required",
            "tools.streaming",
            "streaming.tool_arguments",
        ]
        .map(|name| Claim::conditional(name, format!("model.{name}"))),
    );
    let none = "not-implemented";
    claims.extend([
        Claim::unsupported("multimodal.vision", none, "no image encoder"),
        Claim::unsupported("multimodal.audio", none, "no audio encoder"),
        Claim::unsupported("placement.gpu", "cpu-only", "this engine computes on the CPU"),
        Claim::unsupported("placement.hybrid", "cpu-only", "this engine computes on the CPU"),
    ]);
    claims
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_plugin::{Support, extra};

    #[test]
    fn it_claims_each_capability_once_and_leaves_the_models_to_the_store() {
        let descriptor = Cpu::describe();
        assert_eq!(extra(&descriptor.extras, "models"), Some("store"));
        assert!(Cpu::models().unwrap().is_empty());
        let names: Vec<&str> = descriptor.claims.iter().map(|claim| claim.name.as_str()).collect();
        for name in &names {
            assert_eq!(names.iter().filter(|other| *other == name).count(), 1, "{name}");
        }
        let tools = descriptor.claims.iter().find(|claim| claim.name == "tools.calling").unwrap();
        assert_eq!(tools.support, Support::Conditional("model.tools.calling".to_owned()));
    }
}
