//! Which keys a model of each family has, as llama.cpp's converter writes them.

use anyhow::Result;

use super::{
    Shape,
    family::Family as F,
    tensors::{DELTA_DIM, DELTA_HEADS, DELTA_KEYS, LATENT, LATENT_QUERY, PLAIN, TURNED},
};
use crate::gguf::{File, Value};

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
