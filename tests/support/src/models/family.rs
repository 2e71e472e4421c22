//! The families whose models can be made, and what sets each apart.

use crate::vocabulary::Vocabulary;

/// The families whose shapes are known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Llama, SmolLM, Mistral.
    Llama,
    /// Llama's block with experts.
    Mixtral,
    /// Every fourth layer does not turn.
    SmolLm3,
    /// `YaRN`.
    Mistral3,
    /// Qwen 2 and 2.5: biases on q, k and v.
    Qwen2,
    /// Experts weighed as they are, and one behind a gate.
    Qwen2Moe,
    /// Qwen 3: norms on each head's q and k.
    Qwen3,
    /// Qwen 3 with experts.
    Qwen3Moe,
    /// Gemma 2: soft caps, every second layer slides, norms before and after.
    Gemma2,
    /// Gemma 3: five of six layers slide and turn at another base.
    Gemma3,
    /// Phi 3: q, k and v in one matrix, gate and up in another, a part of a head turns.
    Phi3,
    /// Phi 3 with `LongRoPE`'s factors, in a context beyond the trained one.
    Phi3Long,
    /// GLM-4: norms before and after, a part of a head turns.
    Glm4,
    /// GLM-4.5: a dense layer, experts by sigmoid with a bias, a shared one, a layer that guesses ahead.
    Glm4Moe,
    /// gpt-oss: sinks, windows, biases everywhere, `YaRN`.
    GptOss,
    /// DeepSeek V3: latent attention, experts in groups.
    DeepSeek3,
    /// OLMo 2: norms behind, and over whole q and k.
    Olmo2,
    /// OLMo 3: OLMo 2 with windows and `YaRN`.
    Olmo3,
    /// Norms over whole q and k, experts weighed as they are.
    Olmoe,
    /// Granite: four scales.
    Granite,
    /// Granite with experts and a shared one.
    GraniteMoe,
    /// Command R: attention and feed-forward side by side.
    CommandR,
    /// Command R7B: windows, and layers that do not turn.
    Cohere2,
    /// Layer norms and biases.
    StarCoder2,
    /// Short convolutions, and attention in every third layer.
    Lfm2,
    /// LFM2 with experts by sigmoid.
    Lfm2Moe,
    /// The gated delta rule, and gated attention in every fourth layer; experts.
    Qwen3Next,
    /// The same, dense, with keys shared in turns.
    Qwen35,
    /// The same with experts.
    Qwen35Moe,
    /// Llama's block by other names.
    InternLm2,
    /// The same.
    Ernie45,
    /// Qwen 2's block with a norm by another name.
    SeedOss,
}

/// What is normed of q and k.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadNorm {
    None,
    Head,
    Whole,
}

use Family as F;

impl Family {
    /// All of them.
    pub const ALL: [Self; 32] = [
        F::Llama,
        F::Mixtral,
        F::SmolLm3,
        F::Mistral3,
        F::Qwen2,
        F::Qwen2Moe,
        F::Qwen3,
        F::Qwen3Moe,
        F::Gemma2,
        F::Gemma3,
        F::Phi3,
        F::Phi3Long,
        F::Glm4,
        F::Glm4Moe,
        F::GptOss,
        F::DeepSeek3,
        F::Olmo2,
        F::Olmo3,
        F::Olmoe,
        F::Granite,
        F::GraniteMoe,
        F::CommandR,
        F::Cohere2,
        F::StarCoder2,
        F::Lfm2,
        F::Lfm2Moe,
        F::Qwen3Next,
        F::Qwen35,
        F::Qwen35Moe,
        F::InternLm2,
        F::Ernie45,
        F::SeedOss,
    ];

    /// `general.architecture`.
    #[must_use]
    pub const fn architecture(self) -> &'static str {
        match self {
            F::Llama | F::Mixtral => "llama",
            F::SmolLm3 => "smollm3",
            F::Mistral3 => "mistral3",
            F::Qwen2 => "qwen2",
            F::Qwen2Moe => "qwen2moe",
            F::Qwen3 => "qwen3",
            F::Qwen3Moe => "qwen3moe",
            F::Gemma2 => "gemma2",
            F::Gemma3 => "gemma3",
            F::Phi3 | F::Phi3Long => "phi3",
            F::Glm4 => "glm4",
            F::Glm4Moe => "glm4moe",
            F::GptOss => "gpt-oss",
            F::DeepSeek3 => "deepseek2",
            F::Olmo2 | F::Olmo3 => "olmo2",
            F::Olmoe => "olmoe",
            F::Granite => "granite",
            F::GraniteMoe => "granitemoe",
            F::CommandR => "command-r",
            F::Cohere2 => "cohere2",
            F::StarCoder2 => "starcoder2",
            F::Lfm2 => "lfm2",
            F::Lfm2Moe => "lfm2moe",
            F::Qwen3Next => "qwen3next",
            F::Qwen35 => "qwen35",
            F::Qwen35Moe => "qwen35moe",
            F::InternLm2 => "internlm2",
            F::Ernie45 => "ernie4_5",
            F::SeedOss => "seed_oss",
        }
    }

    /// A name of its own.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            F::Mixtral => "mixtral",
            F::Phi3Long => "phi3-long",
            F::DeepSeek3 => "deepseek3",
            F::Olmo3 => "olmo3",
            other => other.architecture(),
        }
    }

    /// Whether its layers have experts.
    #[must_use]
    pub const fn mixes(self) -> bool {
        matches!(
            self,
            F::Mixtral
                | F::Qwen2Moe
                | F::Qwen3Moe
                | F::Glm4Moe
                | F::GptOss
                | F::DeepSeek3
                | F::Olmoe
                | F::GraniteMoe
                | F::Lfm2Moe
                | F::Qwen3Next
                | F::Qwen35Moe
        )
    }

    pub(super) const fn vocabulary(self) -> Vocabulary {
        match self {
            F::Gemma2 | F::Gemma3 => Vocabulary::SentencePiece,
            F::Qwen2 | F::Qwen2Moe | F::Qwen3 | F::Qwen3Moe | F::Qwen3Next => {
                Vocabulary::ByteLevel("qwen2")
            }
            F::Qwen35 | F::Qwen35Moe => Vocabulary::ByteLevel("qwen35"),
            F::SeedOss => Vocabulary::ByteLevel("seed-coder"),
            F::Lfm2 | F::Lfm2Moe => Vocabulary::ByteLevel("lfm2"),
            F::Mistral3 => Vocabulary::ByteLevel("tekken"),
            F::Phi3 | F::Phi3Long | F::Olmo2 | F::Olmo3 => Vocabulary::ByteLevel("dbrx"),
            F::Glm4 | F::Glm4Moe => Vocabulary::ByteLevel("glm4"),
            F::GptOss => Vocabulary::ByteLevel("gpt-4o"),
            F::DeepSeek3 => Vocabulary::ByteLevel("deepseek-v3"),
            F::Olmoe => Vocabulary::ByteLevel("olmo"),
            F::Granite | F::GraniteMoe => Vocabulary::ByteLevel("refact"),
            F::CommandR | F::Cohere2 => Vocabulary::ByteLevel("command-r"),
            F::StarCoder2 => Vocabulary::ByteLevel("starcoder"),
            F::Llama | F::Mixtral | F::SmolLm3 | F::InternLm2 | F::Ernie45 => {
                Vocabulary::ByteLevel("llama-bpe")
            }
        }
    }

    pub(super) const fn head_norm(self) -> HeadNorm {
        match self {
            F::Qwen3 | F::Qwen3Moe | F::Gemma3 | F::Glm4Moe | F::Lfm2 | F::Lfm2Moe => {
                HeadNorm::Head
            }
            F::Qwen3Next | F::Qwen35 | F::Qwen35Moe => HeadNorm::Head,
            F::Olmo2 | F::Olmo3 | F::Olmoe => HeadNorm::Whole,
            _ => HeadNorm::None,
        }
    }

    /// Biases on q, k and v.
    pub(super) const fn biased(self) -> bool {
        matches!(
            self,
            F::Qwen2 | F::Qwen2Moe | F::Glm4 | F::Glm4Moe | F::GptOss | F::StarCoder2 | F::SeedOss
        )
    }

    pub(super) const fn gemma(self) -> bool {
        matches!(self, F::Gemma2 | F::Gemma3)
    }

    pub(super) const fn latent(self) -> bool {
        matches!(self, F::DeepSeek3)
    }

    /// Layers before the first with experts.
    pub(super) const fn dense_first(self) -> u32 {
        if matches!(self, F::Glm4Moe | F::DeepSeek3 | F::Lfm2Moe) { 1 } else { 0 }
    }

    /// Whether a layer has something else in attention's place.
    pub(super) const fn recurs(self, layer: u32) -> bool {
        match self {
            F::Lfm2 | F::Lfm2Moe => layer % 3 != 2,
            F::Qwen3Next | F::Qwen35 | F::Qwen35Moe => layer % 4 != 3,
            _ => false,
        }
    }

    /// Layers behind the last that guess ahead.
    pub(super) const fn ahead(self) -> u32 {
        if matches!(self, F::Glm4Moe) { 1 } else { 0 }
    }
}
