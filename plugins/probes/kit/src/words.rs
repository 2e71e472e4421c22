//! The capability vocabulary of contract 0.1, as `docs/contract.md` lists it.

/// What a back-end or model may claim.
pub const CLAIMS: [&str; 48] = [
    "inference.text",
    "inference.chat",
    "inference.infill",
    "architecture.dense",
    "architecture.moe",
    "moe.total_experts",
    "moe.active_experts",
    "moe.shared_experts",
    "moe.expert_offload",
    "moe.expert_parallel",
    "quantization.formats",
    "speculative.mtp",
    "speculative.draft_model",
    "speculative.ngram",
    "cache.kv_offload",
    "cache.prompt_cache",
    "cache.snapshot",
    "kv.type_k",
    "kv.type_v",
    "multimodal.vision",
    "multimodal.audio",
    "embeddings",
    "reranking",
    "reasoning.control",
    "tools.calling",
    "tools.streaming",
    "tools.parallel",
    "tools.required",
    "structured_output",
    "structured.json-object",
    "structured.json-schema",
    "structured.regex",
    "structured.grammar",
    "streaming.content",
    "streaming.reasoning",
    "streaming.tool_arguments",
    "placement.cpu",
    "placement.gpu",
    "placement.hybrid",
    "context.native_max",
    "context.requested_limit",
    "context.effective_max",
    "context.backend_managed",
    "context.override",
    "context.override_supported",
    "context.override_verified",
    "tokenize",
    "logprobs",
];

/// What every back-end owes without claiming it.
pub const CONDUCT: [&str; 8] = [
    "conduct.metadata",
    "conduct.identity",
    "conduct.limits",
    "conduct.context",
    "conduct.determinism",
    "conduct.usage",
    "conduct.lifecycle",
    "conduct.negotiation",
];

/// Whether a word is of the vocabulary; `isa.…` and `x-…` are open ended.
#[must_use]
pub fn known(word: &str) -> bool {
    CLAIMS.contains(&word)
        || CONDUCT.contains(&word)
        || word.starts_with("isa.")
        || word.starts_with("x-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contracts_page_lists_every_word() {
        let page = include_str!("../../../../docs/contract.md");
        for word in CLAIMS.iter().chain(&CONDUCT) {
            assert!(
                page.contains(&gristmill_plugin::prelude::format!("`{word}`")),
                "{word} is not in docs/contract.md"
            );
        }
        assert!(known("isa.avx2") && known("x-mine") && !known("tools.call"));
    }
}
