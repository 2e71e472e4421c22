//! What Hugging Face calls a tensor and what GGUF calls it, by architecture. The names on both
//! sides are conventions of `transformers` (Apache-2.0) and llama.cpp (MIT).

use super::config::Family;

/// What becomes of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Role {
    /// Written under this name.
    Keep(String),
    /// Written under this name, with each head's rows in the order of the interleaved rotary
    /// embedding; so many heads.
    Interleave(String, usize),
    /// Not a weight of the model, or a copy of one.
    Drop,
}

const DECODER: &[(&str, &str)] = &[
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

const ENCODER: &[(&str, &str)] = &[
    ("attention.self.query", "attn_q"),
    ("attention.self.key", "attn_k"),
    ("attention.self.value", "attn_v"),
    ("attention.output.dense", "attn_output"),
    ("attention.output.LayerNorm", "attn_output_norm"),
    ("intermediate.dense", "ffn_up"),
    ("output.dense", "ffn_down"),
    ("output.LayerNorm", "layer_output_norm"),
];

/// The role of a tensor; none: the architecture has no such tensor.
pub(super) fn role(family: &Family, name: &str) -> Option<Role> {
    let (stem, kind) = name.rsplit_once('.')?;
    if family.is_encoder() {
        return encoder(name, stem, kind);
    }
    let whole = match name {
        "model.embed_tokens.weight" => Some("token_embd.weight"),
        "model.norm.weight" => Some("output_norm.weight"),
        "lm_head.weight" if family.tied => return Some(Role::Drop),
        "lm_head.weight" => Some("output.weight"),
        _ => None,
    };
    if let Some(whole) = whole {
        return Some(Role::Keep(whole.to_owned()));
    }
    let (layer, part) = stem.strip_prefix("model.layers.")?.split_once('.')?;
    layer.parse::<u32>().ok()?;
    if part == "self_attn.rotary_emb" {
        return Some(Role::Drop);
    }
    let (_, known) = DECODER.iter().find(|(theirs, _)| *theirs == part)?;
    let name = format!("blk.{layer}.{known}.{kind}");
    matches!(kind, "weight" | "bias").then_some(())?;
    Some(match *known {
        "attn_q" if family.interleaves() => Role::Interleave(name, family.heads),
        "attn_k" if family.interleaves() => Role::Interleave(name, family.kv_heads),
        _ => Role::Keep(name),
    })
}

fn encoder(name: &str, stem: &str, kind: &str) -> Option<Role> {
    let name = name.strip_prefix("bert.").unwrap_or(name);
    let stem = stem.strip_prefix("bert.").unwrap_or(stem);
    if stem.starts_with("pooler.") || stem.starts_with("cls.") || name.ends_with("position_ids") {
        return Some(Role::Drop);
    }
    let keep = |name: &str| Some(Role::Keep(format!("{name}.{kind}")));
    match stem {
        "embeddings.word_embeddings" => return keep("token_embd"),
        "embeddings.position_embeddings" => return keep("position_embd"),
        "embeddings.token_type_embeddings" => return keep("token_types"),
        "embeddings.LayerNorm" => return keep("token_embd_norm"),
        _ => {}
    }
    let (layer, part) = stem.strip_prefix("encoder.layer.")?.split_once('.')?;
    layer.parse::<u32>().ok()?;
    let (_, known) = ENCODER.iter().find(|(theirs, _)| *theirs == part)?;
    keep(&format!("blk.{layer}.{known}"))
}
