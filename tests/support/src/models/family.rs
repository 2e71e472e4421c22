//! Which tensors and keys a model of each family has, as llama.cpp's converter writes them.

use anyhow::Result;

use super::{Fill, Shape};
use crate::{
    gguf::{File, Value},
    vocabulary::Vocabulary,
};

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
enum HeadNorm {
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

    const fn vocabulary(self) -> Vocabulary {
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

    const fn head_norm(self) -> HeadNorm {
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
    const fn biased(self) -> bool {
        matches!(
            self,
            F::Qwen2 | F::Qwen2Moe | F::Glm4 | F::Glm4Moe | F::GptOss | F::StarCoder2 | F::SeedOss
        )
    }

    const fn gemma(self) -> bool {
        matches!(self, F::Gemma2 | F::Gemma3)
    }

    const fn latent(self) -> bool {
        matches!(self, F::DeepSeek3)
    }

    /// Layers before the first with experts.
    const fn dense_first(self) -> u32 {
        if matches!(self, F::Glm4Moe | F::DeepSeek3 | F::Lfm2Moe) { 1 } else { 0 }
    }

    /// Whether a layer has something else in attention's place.
    const fn recurs(self, layer: u32) -> bool {
        match self {
            F::Lfm2 | F::Lfm2Moe => layer % 3 != 2,
            F::Qwen3Next | F::Qwen35 | F::Qwen35Moe => layer % 4 != 3,
            _ => false,
        }
    }

    /// Layers behind the last that guess ahead.
    const fn ahead(self) -> u32 {
        if matches!(self, F::Glm4Moe) { 1 } else { 0 }
    }
}

/// Sizes of the gated delta rule of a tiny model.
const DELTA_HEADS: u32 = 4;
const DELTA_KEYS: u32 = 2;
const DELTA_DIM: u32 = 64;

/// Sizes of latent attention, of a tiny model. Rows of whole blocks of 256 where they are inputs.
const LATENT: u32 = 256;
const LATENT_QUERY: u32 = 256;
const PLAIN: u32 = 256;
const TURNED: u32 = 32;

type Made = (String, Vec<u32>, Fill, Option<u32>);

/// The tensors of one model as they are listed.
struct List<'a> {
    shape: &'a Shape,
    made: Vec<Made>,
    layer: Option<u32>,
}

impl List<'_> {
    fn add(&mut self, stem: &str, shape: &[u32], fill: Fill) {
        let name =
            self.layer.map_or_else(|| stem.to_owned(), |layer| format!("blk.{layer}.{stem}"));
        self.made.push((name, shape.to_vec(), fill, self.layer));
    }

    /// A matrix whose outputs are `by` wide if its inputs are one wide.
    fn matrix(&mut self, stem: &str, shape: &[u32], by: f32) {
        let inputs = shape.first().copied().unwrap_or(1);
        let fill = Fill { mean: 0.0, spread: by / (inputs as f32).sqrt() };
        self.add(&format!("{stem}.weight"), shape, fill);
    }

    fn bias(&mut self, stem: &str, shape: &[u32]) {
        self.add(&format!("{stem}.bias"), shape, Fill { mean: 0.0, spread: 0.3 });
    }

    fn norm(&mut self, stem: &str, width: u32, mean: f32) {
        self.add(&format!("{stem}.weight"), &[width], Fill { mean, spread: 0.1 * mean });
        if self.shape.family == F::StarCoder2 {
            self.bias(stem, &[width]);
        }
    }

    fn attention(&mut self) {
        let Shape { family, width, heads, kv_heads, head_dim, .. } = *self.shape;
        let (q, kv) = (heads * head_dim, kv_heads * head_dim);
        if family.latent() {
            self.latent();
            return;
        }
        if self.layer.is_some_and(|layer| family.recurs(layer)) {
            self.recurrence();
            return;
        }
        if matches!(family, F::Phi3 | F::Phi3Long) {
            self.matrix("attn_qkv", &[width, q + 2 * kv], 1.7);
        } else {
            // Beside the query stands the gate of what attention finds.
            let gated = matches!(family, F::Qwen3Next | F::Qwen35 | F::Qwen35Moe);
            let q = if gated { 2 * q } else { q };
            for (stem, rows, by) in [("attn_q", q, 2.0), ("attn_k", kv, 2.0), ("attn_v", kv, 1.0)] {
                self.matrix(stem, &[width, rows], by);
                if family.biased() {
                    self.bias(stem, &[rows]);
                }
            }
        }
        match family.head_norm() {
            HeadNorm::None => {}
            HeadNorm::Head => {
                let fill = Fill { mean: 1.5, spread: 0.2 };
                self.add("attn_q_norm.weight", &[head_dim], fill);
                self.add("attn_k_norm.weight", &[head_dim], fill);
            }
            HeadNorm::Whole => {
                let fill = Fill { mean: 1.5, spread: 0.2 };
                self.add("attn_q_norm.weight", &[q], fill);
                self.add("attn_k_norm.weight", &[kv], fill);
            }
        }
        if family == F::GptOss {
            self.add("attn_sinks.weight", &[heads], Fill { mean: 1.0, spread: 1.0 });
        }
        self.matrix("attn_output", &[q, width], 1.0);
        if matches!(family, F::GptOss | F::StarCoder2) {
            self.bias("attn_output", &[width]);
        }
    }

    fn recurrence(&mut self) {
        let Shape { family, width, .. } = *self.shape;
        if matches!(family, F::Lfm2 | F::Lfm2Moe) {
            self.matrix("shortconv.conv", &[3, width], 1.0);
            self.matrix("shortconv.in_proj", &[width, 3 * width], 1.0);
            self.matrix("shortconv.out_proj", &[width, width], 1.0);
            return;
        }
        let (keys, values) = (DELTA_KEYS * DELTA_DIM, DELTA_HEADS * DELTA_DIM);
        let mixed = 2 * keys + values;
        self.matrix("attn_qkv", &[width, mixed], 1.0);
        self.matrix("attn_gate", &[width, values], 1.0);
        self.matrix("ssm_conv1d", &[4, mixed], 2.0);
        self.bias("ssm_dt", &[DELTA_HEADS]);
        self.add("ssm_a", &[DELTA_HEADS], Fill { mean: -0.3, spread: 0.1 });
        if family == F::Qwen3Next {
            self.matrix("ssm_ba", &[width, 2 * DELTA_HEADS], 1.0);
        } else {
            self.matrix("ssm_alpha", &[width, DELTA_HEADS], 1.0);
            self.matrix("ssm_beta", &[width, DELTA_HEADS], 1.0);
        }
        self.norm("ssm_norm", DELTA_DIM, 1.0);
        self.matrix("ssm_out", &[values, width], 1.0);
    }

    fn latent(&mut self) {
        let Shape { width, heads, head_dim, .. } = *self.shape;
        let key = PLAIN + TURNED;
        self.matrix("attn_q_a", &[width, LATENT_QUERY], 1.0);
        self.norm("attn_q_a_norm", LATENT_QUERY, 1.0);
        self.matrix("attn_q_b", &[LATENT_QUERY, heads * key], 1.5);
        self.matrix("attn_kv_a_mqa", &[width, LATENT + TURNED], 1.5);
        self.norm("attn_kv_a_norm", LATENT, 1.0);
        self.matrix("attn_k_b", &[PLAIN, LATENT, heads], 1.0);
        self.matrix("attn_v_b", &[LATENT, head_dim, heads], 1.0);
        self.matrix("attn_output", &[heads * head_dim, width], 1.0);
    }

    fn feed_forward(&mut self, layer: u32) {
        let Shape { family, width, feed_forward: ff, experts, .. } = *self.shape;
        if experts > 0 && layer >= family.dense_first() {
            self.experts();
            return;
        }
        match family {
            F::Phi3 | F::Phi3Long | F::Glm4 => self.matrix("ffn_up", &[width, 2 * ff], 1.0),
            F::StarCoder2 => {
                self.matrix("ffn_up", &[width, ff], 1.0);
                self.bias("ffn_up", &[ff]);
            }
            _ => {
                self.matrix("ffn_gate", &[width, ff], 1.0);
                self.matrix("ffn_up", &[width, ff], 1.0);
            }
        }
        self.matrix("ffn_down", &[ff, width], 2.0);
        if family == F::StarCoder2 {
            self.bias("ffn_down", &[width]);
        }
    }

    fn experts(&mut self) {
        let Shape { family, width, experts, expert_feed_forward: ff, .. } = *self.shape;
        let biased = family == F::GptOss;
        // An expert that rounding brings in or keeps out must not drown what rounding does
        // elsewhere: after a softmax of wide scores it weighs little, and where sigmoids weigh near
        // equals alike, experts add little.
        let sigmoid = matches!(family, F::Glm4Moe | F::DeepSeek3 | F::Lfm2Moe);
        self.matrix("ffn_gate_inp", &[width, experts], if sigmoid { 1.0 } else { 4.0 });
        self.matrix("ffn_gate_exps", &[width, ff, experts], 1.0);
        self.matrix("ffn_up_exps", &[width, ff, experts], 1.0);
        self.matrix("ffn_down_exps", &[ff, width, experts], if sigmoid { 0.5 } else { 2.0 });
        if biased {
            self.bias("ffn_gate_inp", &[experts]);
            self.bias("ffn_gate_exps", &[ff, experts]);
            self.bias("ffn_up_exps", &[ff, experts]);
            self.bias("ffn_down_exps", &[width, experts]);
        }
        if matches!(family, F::Glm4Moe | F::DeepSeek3 | F::Lfm2Moe) {
            self.bias("exp_probs_b", &[experts]);
        }
        if matches!(family, F::Qwen2Moe | F::Qwen3Next | F::Qwen35Moe) {
            self.matrix("ffn_gate_inp_shexp", &[width], 1.0);
        }
        if matches!(
            family,
            F::Qwen2Moe | F::Qwen3Next | F::Qwen35Moe | F::Glm4Moe | F::DeepSeek3 | F::GraniteMoe
        ) {
            self.matrix("ffn_gate_shexp", &[width, ff], 1.0);
            self.matrix("ffn_up_shexp", &[width, ff], 1.0);
            self.matrix("ffn_down_shexp", &[ff, width], 2.0);
        }
    }
}

/// Every tensor, in file order.
pub(super) fn tensors(shape: &Shape) -> Vec<Made> {
    let Shape { family, width, vocabulary, tied, .. } = *shape;
    let mut list = List { shape, made: Vec::new(), layer: None };
    // A tied embedding is the head too, and Gemma multiplies it by √width on the way in: kept
    // small, lest every token predict itself, and made up for by the last norm.
    let (embedding, last) = match (tied, family.gemma()) {
        (true, true) => (0.5, 6.0),
        (true, false) => (3.0, 1.0),
        (false, _) => ((width as f32).sqrt(), 1.0),
    };
    list.matrix("token_embd", &[width, vocabulary], embedding);
    if family == F::Phi3Long {
        let fill = Fill { mean: 3.0, spread: 0.5 };
        list.add("rope_factors_long.weight", &[shape.head_dim / 4], fill);
        list.add("rope_factors_short.weight", &[shape.head_dim / 4], Fill { mean: 1.2, ..fill });
    }
    let behind = matches!(family, F::Gemma2 | F::Gemma3 | F::Glm4 | F::Olmo2 | F::Olmo3);
    // The norm before the feed-forward by another name.
    let renamed = matches!(
        family,
        F::GptOss | F::Glm4Moe | F::Qwen3Next | F::Qwen35 | F::Qwen35Moe | F::SeedOss
    );
    let before = !matches!(family, F::Olmo2 | F::Olmo3);
    for layer in 0..shape.layers + family.ahead() {
        list.layer = Some(layer);
        if before {
            list.norm("attn_norm", width, 1.0);
        }
        list.attention();
        if behind || renamed {
            list.norm("post_attention_norm", width, 1.0);
        }
        if before && !renamed && !matches!(family, F::CommandR | F::Cohere2) {
            list.norm("ffn_norm", width, 1.0);
        }
        list.feed_forward(layer);
        if behind {
            list.norm("post_ffw_norm", width, 1.0);
        }
        if layer >= shape.layers {
            list.matrix("nextn.eh_proj", &[2 * width, width], 1.0);
            list.norm("nextn.enorm", width, 1.0);
            list.norm("nextn.hnorm", width, 1.0);
        }
    }
    list.layer = None;
    let lfm = matches!(family, F::Lfm2 | F::Lfm2Moe);
    list.norm(if lfm { "token_embd_norm" } else { "output_norm" }, width, last);
    if !tied {
        list.matrix("output", &[width, vocabulary], 3.0);
    }
    list.made
}

/// Writes the keys.
pub(super) fn describe(shape: &Shape, name: &str, file: &mut File<'_>) -> Result<()> {
    let family = shape.family;
    file.set("general.type", Value::text("model"));
    // llama.cpp looks for tokens of its own in models of that name.
    file.set("general.name", Value::text(name.replace("phi3", "phi")));
    file.set("general.quantization_version", Value::U32(2));
    let mut set = |key: &str, value| file.set(format!("{}.{key}", family.architecture()), value);
    set("block_count", Value::U32(shape.layers + family.ahead()));
    set("context_length", Value::U32(shape.context));
    set("embedding_length", Value::U32(shape.width));
    // Where experts have no width of their own they have the layer's.
    let narrow = matches!(family, F::Mixtral | F::Olmoe | F::GraniteMoe);
    let ff = if narrow { shape.expert_feed_forward } else { shape.feed_forward };
    set("feed_forward_length", Value::U32(ff));
    set("attention.head_count", Value::U32(shape.heads));
    let (kv_heads, key, value) = if family.latent() {
        (1, LATENT + TURNED, LATENT)
    } else {
        (shape.kv_heads, shape.head_dim, shape.head_dim)
    };
    if matches!(family, F::Lfm2 | F::Lfm2Moe) {
        let each = (0..shape.layers).map(|layer| if family.recurs(layer) { 0 } else { kv_heads });
        set("attention.head_count_kv", Value::ints(each.map(u32::cast_signed)));
        set("shortconv.l_cache", Value::U32(3));
        set("vocab_size", Value::U32(shape.vocabulary));
    } else {
        set("attention.head_count_kv", Value::U32(kv_heads));
    }
    set("attention.key_length", Value::U32(key));
    set("attention.value_length", Value::U32(value));
    if matches!(family, F::StarCoder2 | F::CommandR | F::Cohere2) {
        set("attention.layer_norm_epsilon", Value::F32(1e-5));
    } else {
        set("attention.layer_norm_rms_epsilon", Value::F32(1e-6));
    }
    set("rope.freq_base", Value::F32(shape.rope_base));
    if shape.experts > 0 {
        set("expert_count", Value::U32(shape.experts));
        set("expert_used_count", Value::U32(shape.active));
        set("expert_feed_forward_length", Value::U32(shape.expert_feed_forward));
    }
    let yarn = |set: &mut dyn FnMut(&str, Value), factor: f32| {
        set("rope.scaling.type", Value::text("yarn"));
        set("rope.scaling.factor", Value::F32(factor));
        set("rope.scaling.original_context_length", Value::U32(64));
    };
    match family {
        F::Llama | F::Mixtral | F::SmolLm3 => {
            set("rope.dimension_count", Value::U32(shape.head_dim));
            set("vocab_size", Value::U32(shape.vocabulary));
        }
        F::Mistral3 => {
            set("rope.dimension_count", Value::U32(shape.head_dim));
            set("attention.temperature_scale", Value::F32(0.1));
            set("rope.scaling.yarn_log_multiplier", Value::F32(0.7));
            yarn(&mut set, 4.0);
        }
        F::Gemma2 => {
            set("attention.sliding_window", Value::U32(shape.window));
            set("attn_logit_softcapping", Value::F32(10.0));
            set("final_logit_softcapping", Value::F32(8.0));
        }
        F::Gemma3 => set("attention.sliding_window", Value::U32(shape.window)),
        F::Phi3 | F::Phi3Long => {
            set("rope.dimension_count", Value::U32(shape.head_dim / 2));
            let original = if family == F::Phi3 { shape.context } else { 64 };
            set("rope.scaling.original_context_length", Value::U32(original));
            if family == F::Phi3Long {
                set("rope.scaling.attn_factor", Value::F32(1.19));
            }
        }
        F::Glm4 => set("rope.dimension_count", Value::U32(shape.head_dim / 2)),
        F::Glm4Moe => {
            set("rope.dimension_count", Value::U32(shape.head_dim / 2));
            set("leading_dense_block_count", Value::U32(family.dense_first()));
            set("nextn_predict_layers", Value::U32(family.ahead()));
            set("expert_shared_count", Value::U32(1));
            set("expert_weights_norm", Value::Bool(true));
            set("expert_weights_scale", Value::F32(1.5));
        }
        F::GptOss => {
            set("attention.sliding_window", Value::U32(shape.window));
            set("rope.dimension_count", Value::U32(shape.head_dim));
            yarn(&mut set, 32.0);
        }
        F::DeepSeek3 => {
            set("attention.key_length_mla", Value::U32(PLAIN + TURNED));
            set("attention.value_length_mla", Value::U32(shape.head_dim));
            set("attention.kv_lora_rank", Value::U32(LATENT));
            set("rope.dimension_count", Value::U32(TURNED));
            set("leading_dense_block_count", Value::U32(family.dense_first()));
            set("expert_shared_count", Value::U32(1));
            set("expert_weights_scale", Value::F32(2.0));
            set("vocab_size", Value::U32(shape.vocabulary));
            yarn(&mut set, 40.0);
            set("rope.scaling.yarn_log_multiplier", Value::F32(0.1));
            set("attention.temperature_scale", Value::F32(0.1));
            set("attention.temperature_length", Value::U32(64));
            set("attention.q_lora_rank", Value::U32(LATENT_QUERY));
            set("expert_weights_norm", Value::Bool(true));
            set("expert_gating_func", Value::U32(2));
            set("expert_group_count", Value::U32(4));
            set("expert_group_used_count", Value::U32(2));
        }
        F::Olmo3 => {
            set("attention.sliding_window", Value::U32(shape.window));
            yarn(&mut set, 8.0);
        }
        F::Granite | F::GraniteMoe => {
            set("rope.dimension_count", Value::U32(shape.head_dim));
            set("embedding_scale", Value::F32(1.4));
            set("residual_scale", Value::F32(0.7));
            set("attention.scale", Value::F32(0.1));
            set("logit_scale", Value::F32(1.6));
            if family == F::GraniteMoe {
                set("expert_shared_feed_forward_length", Value::U32(shape.expert_feed_forward));
            }
        }
        F::CommandR => set("logit_scale", Value::F32(0.8)),
        F::Cohere2 => {
            set("attention.sliding_window", Value::U32(shape.window));
            set("rope.dimension_count", Value::U32(shape.head_dim));
            set("logit_scale", Value::F32(0.8));
            set("vocab_size", Value::U32(shape.vocabulary));
        }
        F::Lfm2Moe => {
            set("leading_dense_block_count", Value::U32(family.dense_first()));
            set("expert_gating_func", Value::U32(2));
            set("expert_weights_norm", Value::Bool(true));
        }
        F::Qwen3Next | F::Qwen35 | F::Qwen35Moe => {
            set("rope.dimension_count", Value::U32(shape.head_dim / 2));
            set("ssm.conv_kernel", Value::U32(4));
            set("ssm.inner_size", Value::U32(DELTA_HEADS * DELTA_DIM));
            set("ssm.state_size", Value::U32(DELTA_DIM));
            set("ssm.time_step_rank", Value::U32(DELTA_HEADS));
            set("ssm.group_count", Value::U32(DELTA_KEYS));
            if shape.experts > 0 {
                set("expert_shared_feed_forward_length", Value::U32(shape.expert_feed_forward));
            }
            if family != F::Qwen3Next {
                set("rope.dimension_sections", Value::ints([6, 5, 5, 0]));
            }
        }
        F::Qwen2Moe => {
            set("expert_shared_feed_forward_length", Value::U32(shape.expert_feed_forward));
        }
        F::InternLm2 | F::Ernie45 | F::SeedOss => {}
        F::Qwen2 | F::Qwen3 | F::Qwen3Moe | F::Olmo2 | F::Olmoe | F::StarCoder2 | F::Lfm2 => {}
    }
    family.vocabulary().describe(file, shape.vocabulary as usize)
}
