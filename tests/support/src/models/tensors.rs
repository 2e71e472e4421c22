//! Which tensors a model of each family has, as llama.cpp's converter writes them.

use super::{
    Fill, Shape,
    family::{Family as F, HeadNorm},
};

/// Sizes of the gated delta rule of a tiny model.
pub(super) const DELTA_HEADS: u32 = 4;
pub(super) const DELTA_KEYS: u32 = 2;
pub(super) const DELTA_DIM: u32 = 64;

/// Sizes of latent attention, of a tiny model. Rows of whole blocks of 256 where they are inputs.
pub(super) const LATENT: u32 = 256;
pub(super) const LATENT_QUERY: u32 = 256;
pub(super) const PLAIN: u32 = 256;
pub(super) const TURNED: u32 = 32;

pub(super) type Made = (String, Vec<u32>, Fill, Option<u32>);

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
