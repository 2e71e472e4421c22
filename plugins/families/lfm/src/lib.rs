//! The LFM2 family: LFM2 (`lfm2`) and its mixtures of experts (`lfm2moe`).
//!
//! Most layers have a short convolution in attention's place: one matrix makes two gates and what
//! they gate, and three tokens are looked at. The others, which the file tells by their number of
//! key and value heads, are attention with norms of each head. The last norm is called
//! `token_embd_norm`. The mixtures begin with dense layers.
#![cfg_attr(target_arch = "wasm32", no_std)]

use gristmill_plugin::prelude::*;

/// The family.
#[derive(Debug)]
pub struct Lfm;

gristmill_plugin::export_family!(Lfm);

impl Family for Lfm {
    fn matches(model: &Metadata) -> Option<&'static str> {
        matches!(&*model.architecture, "lfm2" | "lfm2moe").then_some("lfm")
    }

    fn architecture(model: &Metadata) -> Result<Program> {
        let eps = model.f64("{arch}.attention.layer_norm_rms_epsilon")?;
        let width = model.u32("{arch}.embedding_length")?;
        let window = model.find_u32("{arch}.attention.sliding_window")?;
        let moe = Moe::of(model)?;

        let p = Builder::new(model)?;
        let mut x = p.embed("token_embd");
        for layer in 0..p.layers() {
            let l = p.layer(layer);

            let h = l.rms_norm(x, "attn_norm", eps);
            let h = if l.has("shortconv.conv") {
                let both = l.linear(h, "shortconv.in_proj");
                let part = |n: u32| l.slice(both, n * width, width);
                let gated = l.glu(part(0), part(2), Activation::Identity);
                let seen = l.conv(gated, "shortconv.conv", Activation::Identity);
                l.linear(l.glu(part(1), seen, Activation::Identity), "shortconv.out_proj")
            } else {
                let attention = Attention::at(model, layer)?.windowed(window);
                let rope = Rope::of(model, Layout::Half, attention.head_dim)?;
                let (q, k, v) = l.qkv(h, &attention);
                let q = l.head_norm(q, "attn_q_norm", eps, attention.heads);
                let k = l.head_norm(k, "attn_k_norm", eps, attention.kv_heads);
                let q = l.rope(q, attention.heads, &rope);
                let k = l.rope(k, attention.kv_heads, &rope);
                l.linear(l.attention(q, k, v, &attention), "attn_output")
            };
            x = l.add(x, h);

            let h = l.rms_norm(x, "ffn_norm", eps);
            x = l.add(x, l.feed_forward(h, moe.as_ref(), Activation::Silu));
        }
        p.finish(p.head(p.rms_norm(x, "token_embd_norm", eps), "output", None))
    }

    fn speak(model: &Metadata) -> Result<Dialect> {
        // Not every template of the family shows a call; all that know tools list them.
        let template = model.template()?;
        let signs = ["<|tool_call_start|>", "<|tool_list_start|>", "List of tools: "];
        let tools = signs.iter().any(|sign| template.contains(sign)).then(|| {
            ToolFormat::new("<|tool_call_start|>", "<|tool_call_end|>", "pythonic", "", "")
        });
        Ok(Dialect { tools, ..Dialect::of_template(model, &["<|im_end|>"])? })
    }
}
