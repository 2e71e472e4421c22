//! The OLMo family: OLMo 2 and 3 (`olmo2`) and OLMoE (`olmoe`).
//!
//! Norms over the whole of query and key. OLMo 2 has its norms behind attention and feed-forward
//! instead of before; OLMo 3 adds a window on three layers of four, which turn without scaling.
//! OLMoE has norms before, and experts weighed as they are.
#![cfg_attr(target_arch = "wasm32", no_std)]

use gristmill_plugin::prelude::*;

/// The family.
#[derive(Debug)]
pub struct Olmo;

gristmill_plugin::export_family!(Olmo);

impl Family for Olmo {
    fn matches(model: &Metadata) -> Option<&'static str> {
        matches!(&*model.architecture, "olmo2" | "olmoe").then_some("olmo")
    }

    fn architecture(model: &Metadata) -> Result<Program> {
        let behind = model.architecture == "olmo2";
        let eps = model.f64("{arch}.attention.layer_norm_rms_epsilon")?;
        let global = Attention::of(model)?;
        let local = global.clone().windowed(model.find_u32("{arch}.attention.sliding_window")?);
        let global_rope = Rope::of(model, Layout::Half, global.head_dim)?;
        let local_rope = global_rope.local(global_rope.base);
        let moe = Moe::of(model)?.map(|moe| Moe { normalize: false, ..moe });

        let p = Builder::new(model)?;
        let mut x = p.embed("token_embd");
        for layer in 0..p.layers() {
            let l = p.layer(layer);
            let slides = behind && local.window.is_some() && (layer + 1) % 4 != 0;
            let (attention, rope) =
                if slides { (&local, &local_rope) } else { (&global, &global_rope) };

            let h = if behind { x } else { l.rms_norm(x, "attn_norm", eps) };
            let (q, k, v) = l.qkv(h, attention);
            let q = l.rope(l.rms_norm(q, "attn_q_norm", eps), attention.heads, rope);
            let k = l.rope(l.rms_norm(k, "attn_k_norm", eps), attention.kv_heads, rope);
            let mut h = l.linear(l.attention(q, k, v, attention), "attn_output");
            if behind {
                h = l.rms_norm(h, "post_attention_norm", eps);
            }
            x = l.add(x, h);

            let h = if behind { x } else { l.rms_norm(x, "ffn_norm", eps) };
            let mut h = l.feed_forward(h, moe.as_ref(), Activation::Silu);
            if behind {
                h = l.rms_norm(h, "post_ffw_norm", eps);
            }
            x = l.add(x, h);
        }
        p.finish(p.head(p.rms_norm(x, "output_norm", eps), "output", None))
    }

    fn speak(model: &Metadata) -> Result<Dialect> {
        Dialect::of_template(model, &["<|im_end|>", "<|endoftext|>"])
    }
}
