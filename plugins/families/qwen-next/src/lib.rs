//! Qwen 3 Next (`qwen3next`) and Qwen 3.5 (`qwen35`, `qwen35moe`).
//!
//! Three layers of four have the gated delta rule in attention's place: a short convolution over
//! query, key and value, then a matrix a head that forgets, is corrected towards each value, and is
//! asked. The fourth is attention whose result passes a gate. Rotary embedding of a part of each
//! head; the sections that Qwen 3.5 names for pictures are all the same for text. Qwen 3 Next files
//! of the first days, with `ssm_in`, are refused: they have to be converted again.
#![cfg_attr(target_arch = "wasm32", no_std)]

use gristmill_plugin::{family::Operand, prelude::*, sqrt};

/// The family.
#[derive(Debug)]
pub struct QwenNext;

gristmill_plugin::export_family!(QwenNext);

impl Family for QwenNext {
    fn matches(model: &Metadata) -> Option<&'static str> {
        matches!(&*model.architecture, "qwen3next" | "qwen35" | "qwen35moe").then_some("qwen-next")
    }

    fn architecture(model: &Metadata) -> Result<Program> {
        let eps = model.f64("{arch}.attention.layer_norm_rms_epsilon")?;
        let attention = Attention::of(model)?;
        let rope = Rope::of(model, Layout::Half, attention.head_dim)?;
        let (heads, key_heads) =
            (model.u32("{arch}.ssm.time_step_rank")?, model.u32("{arch}.ssm.group_count")?);
        let size = model.u32("{arch}.ssm.state_size")?;
        let rule = DeltaRule {
            heads,
            key_heads,
            key_dim: size,
            value_dim: size,
            scale: 1.0 / sqrt(f64::from(size)),
            tiled: model.architecture != "qwen3next",
        };
        let moe = Moe::of(model)?;

        let p = Builder::new(model)?;
        let mut x = p.embed("token_embd");
        for layer in 0..p.layers() {
            let l = p.layer(layer);
            if l.has("ssm_in") {
                return Err(Error::unsupported(
                    "architecture qwen3next with ssm_in: a file of the old form; convert the model \
                     again to get attn_qkv and attn_gate",
                ));
            }

            let h = l.rms_norm(x, "attn_norm", eps);
            let h = if l.has("ssm_out") {
                recall(&l, h, &rule, eps)
            } else {
                let (heads, dim) = (attention.heads, attention.head_dim);
                let both = l.linear(h, "attn_q");
                let gate = l.slice_heads(both, heads, dim, dim);
                let (k, v) = (l.linear(h, "attn_k"), l.linear(h, "attn_v"));
                let q = l.head_norm(l.slice_heads(both, heads, 0, dim), "attn_q_norm", eps, heads);
                let k = l.head_norm(k, "attn_k_norm", eps, attention.kv_heads);
                let q = l.rope(q, heads, &rope);
                let k = l.rope(k, attention.kv_heads, &rope);
                let found = l.attention(q, k, v, &attention);
                l.linear(l.glu(gate, found, Activation::Sigmoid), "attn_output")
            };
            x = l.add(x, h);

            let h = l.rms_norm(x, "post_attention_norm", eps);
            x = l.add(x, l.feed_forward(h, moe.as_ref(), Activation::Silu));
        }
        p.finish(p.head(p.rms_norm(x, "output_norm", eps), "output", None))
    }

    fn speak(model: &Metadata) -> Result<Dialect> {
        let dialect = Dialect::of_template(model, &["<|im_end|>"])?;
        if model.template()?.contains("<function=") {
            let xml =
                ToolFormat::new("<tool_call>", "</tool_call>", "xml", "function", "parameter");
            return Ok(Dialect { tools: Some(xml), ..dialect });
        }
        Ok(dialect)
    }
}

/// A layer with the gated delta rule.
fn recall(l: &Builder<'_>, h: Operand, rule: &DeltaRule, eps: f64) -> Operand {
    let DeltaRule { heads, key_heads, key_dim, value_dim, .. } = *rule;
    let (keys, values) = (key_heads * key_dim, heads * value_dim);
    let mixed = l.linear(h, "attn_qkv");
    let gate = l.linear(h, "attn_gate");
    let (decay, strength) = if l.has("ssm_ba") {
        // For each head of keys: the strengths of its heads of values, then their decays.
        let (both, each) = (l.linear(h, "ssm_ba"), heads / key_heads.max(1));
        (l.slice_heads(both, key_heads, each, each), l.slice_heads(both, key_heads, 0, each))
    } else {
        (l.linear(h, "ssm_alpha"), l.linear(h, "ssm_beta"))
    };
    let mixed = l.conv(mixed, "ssm_conv1d", Activation::Silu);
    let q = l.unit_norm(l.slice(mixed, 0, keys), eps, key_heads, key_dim);
    let k = l.unit_norm(l.slice(mixed, keys, keys), eps, key_heads, key_dim);
    let v = l.slice(mixed, 2 * keys, values);
    let found = l.delta_rule([q, k, v, decay, strength], rule);
    let found = l.head_norm(found, "ssm_norm", eps, heads);
    l.linear(l.glu(gate, found, Activation::Silu), "ssm_out")
}
