//! The Phi family: Phi 3, 3.5 and 4 (`phi3`).
//!
//! Llama's block with rotary embedding of half against half over a part of each head, one matrix
//! for query, key and value, one for gate and up, and LongRoPE's two sets of factors in the files
//! of long context. The sliding window that some files name is not applied, as in llama.cpp: the
//! converters write it for models that were not trained with it.
#![cfg_attr(target_arch = "wasm32", no_std)]

use gristmill_plugin::prelude::*;

/// The family.
#[derive(Debug)]
pub struct Phi;

gristmill_plugin::export_family!(Phi);

impl Family for Phi {
    fn matches(model: &Metadata) -> Option<&'static str> {
        (model.architecture == "phi3").then_some("phi")
    }

    fn architecture(model: &Metadata) -> Result<Program> {
        let eps = model.f64("{arch}.attention.layer_norm_rms_epsilon")?;
        let attention = Attention::of(model)?;
        let rope = Rope::of(model, Layout::Half, attention.head_dim)?;

        let p = Builder::new(model)?;
        let mut x = p.embed("token_embd");
        for layer in 0..p.layers() {
            let l = p.layer(layer);

            let h = l.rms_norm(x, "attn_norm", eps);
            let (q, k, v) = l.qkv(h, &attention);
            let q = l.rope(q, attention.heads, &rope);
            let k = l.rope(k, attention.kv_heads, &rope);
            x = l.add(x, l.linear(l.attention(q, k, v, &attention), "attn_output"));

            let h = l.rms_norm(x, "ffn_norm", eps);
            x = l.add(x, l.gated_ffn(h, Activation::Silu));
        }
        p.finish(p.head(p.rms_norm(x, "output_norm", eps), "output", None))
    }

    fn speak(model: &Metadata) -> Result<Dialect> {
        // Phi 4 mini writes a list of calls; the others call nothing.
        let tools = model.template()?.contains("<|tool|>").then(|| {
            ToolFormat::new("<|tool_call|>", "<|/tool_call|>", "json-list", "name", "arguments")
        });
        let dialect = Dialect::of_template(model, &["<|end|>", "<|im_end|>"])?;
        Ok(Dialect { tools, ..dialect })
    }
}
