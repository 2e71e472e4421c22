//! StarCoder 2 (`starcoder2`).
//!
//! Layer norms with biases, biases on every matrix, rotary embedding of half against half, a plain
//! feed-forward with GELU.
#![cfg_attr(target_arch = "wasm32", no_std)]

use gristmill_plugin::prelude::*;

/// The family.
#[derive(Debug)]
pub struct StarCoder;

gristmill_plugin::export_family!(StarCoder);

impl Family for StarCoder {
    fn matches(model: &Metadata) -> Option<&'static str> {
        (model.architecture == "starcoder2").then_some("starcoder")
    }

    fn architecture(model: &Metadata) -> Result<Program> {
        let eps = model.f64("{arch}.attention.layer_norm_epsilon")?;
        let attention = Attention::of(model)?;
        let rope = Rope::of(model, Layout::Half, attention.head_dim)?;

        let p = Builder::new(model)?;
        let mut x = p.embed("token_embd");
        for layer in 0..p.layers() {
            let l = p.layer(layer);

            let h = l.layer_norm(x, "attn_norm", eps);
            let (q, k, v) = l.qkv(h, &attention);
            let q = l.rope(q, attention.heads, &rope);
            let k = l.rope(k, attention.kv_heads, &rope);
            x = l.add(x, l.linear(l.attention(q, k, v, &attention), "attn_output"));

            let h = l.linear(l.layer_norm(x, "ffn_norm", eps), "ffn_up");
            x = l.add(x, l.linear(l.activation(h, Activation::GeluTanh), "ffn_down"));
        }
        p.finish(p.head(p.layer_norm(x, "output_norm", eps), "output", None))
    }

    fn speak(model: &Metadata) -> Result<Dialect> {
        Dialect::of_template(model, &["<|im_end|>", "<|endoftext|>"])
    }
}
