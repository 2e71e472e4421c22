//! The Gemma family: Gemma (`gemma`), Gemma 2 (`gemma2`) and the text part of Gemma 3 (`gemma3`).
//!
//! Embeddings are scaled by the root of the width, feed-forward is GELU-gated, head and embedding
//! share their weights. Gemma 2 adds a norm behind each half of a block, soft caps, and a sliding
//! window on every other layer. Gemma 3 keeps the norms, drops the caps of attention, norms each
//! head of query and key, and has five sliding layers with a rotary base of their own to one that
//! sees everything. Norm weights in GGUF already have the 1 added that Gemma's code adds.
#![cfg_attr(target_arch = "wasm32", no_std)]

use gristmill_plugin::{prelude::*, sqrt};

/// Rotary base of Gemma 3's sliding layers where the file does not name it.
const LOCAL_BASE: f64 = 10_000.0;

/// The family.
#[derive(Debug)]
pub struct Gemma;

gristmill_plugin::export_family!(Gemma);

impl Family for Gemma {
    fn matches(model: &Metadata) -> Option<&'static str> {
        matches!(&*model.architecture, "gemma" | "gemma2" | "gemma3").then_some("gemma")
    }

    fn architecture(model: &Metadata) -> Result<Program> {
        let (second, third) = (model.architecture == "gemma2", model.architecture == "gemma3");
        let width = f64::from(model.u32("{arch}.embedding_length")?);
        let eps = model.f64("{arch}.attention.layer_norm_rms_epsilon")?;

        let mut global = Attention::of(model)?;
        if second {
            let cap = model.find_f64("{arch}.attn_logit_softcapping")?.unwrap_or(50.0);
            global.softcap = Some(cap).filter(|cap| *cap > 0.0);
        }
        // The two models of 27 B alone scale by the share of a head in the width
        // (`query_pre_attn_scalar` 144 and 168), and only their depth says which they are.
        if (second && model.u32("{arch}.block_count")? == 46)
            || (third && model.u32("{arch}.block_count")? == 62)
        {
            global.scale = 1.0 / sqrt(width / f64::from(global.heads));
        }
        let local = global.clone().windowed(model.find_u32("{arch}.attention.sliding_window")?);
        let period = match &*model.architecture {
            "gemma2" => 2,
            "gemma3" => model.find_u32("{arch}.attention.sliding_window_pattern")?.unwrap_or(6),
            _ => 1,
        };

        let global_rope = Rope::of(model, Layout::Half, global.head_dim)?;
        let local_rope = if third {
            let base = model.find_f64("{arch}.rope.freq_base_swa")?.unwrap_or(LOCAL_BASE);
            global_rope.local(base)
        } else {
            global_rope.clone()
        };

        let p = Builder::new(model)?;
        let mut x = p.embed_scaled("token_embd", sqrt(width));
        for layer in 0..p.layers() {
            let l = p.layer(layer);
            let everything = period == 0 || layer % period == period - 1;
            let (attention, rope) =
                if everything { (&global, &global_rope) } else { (&local, &local_rope) };

            let h = l.rms_norm(x, "attn_norm", eps);
            let (mut q, mut k, v) = l.qkv(h, attention);
            if third {
                q = l.head_norm(q, "attn_q_norm", eps, attention.heads);
                k = l.head_norm(k, "attn_k_norm", eps, attention.kv_heads);
            }
            let q = l.rope(q, attention.heads, rope);
            let k = l.rope(k, attention.kv_heads, rope);
            let mut h = l.linear(l.attention(q, k, v, attention), "attn_output");
            if second || third {
                h = l.rms_norm(h, "post_attention_norm", eps);
            }
            x = l.add(x, h);

            let h = l.rms_norm(x, "ffn_norm", eps);
            let mut h = l.gated_ffn(h, Activation::GeluTanh);
            if second || third {
                h = l.rms_norm(h, "post_ffw_norm", eps);
            }
            x = l.add(x, h);
        }
        let softcap = model.find_f64("{arch}.final_logit_softcapping")?;
        let softcap = if second { softcap.or(Some(30.0)) } else { softcap };
        let h = p.rms_norm(x, "output_norm", eps);
        p.finish(p.head(h, "output", softcap.filter(|cap| *cap > 0.0)))
    }

    fn speak(model: &Metadata) -> Result<Dialect> {
        let template = model.template()?;
        // Google's generation_config.json of Gemma 3; the earlier ones name no sampling.
        let usual = if model.architecture == "gemma3" && !template.is_empty() {
            Sampling {
                temperature: Some(1.0),
                top_k: Some(64),
                top_p: Some(0.95),
                ..Sampling::default()
            }
        } else {
            Sampling::default()
        };
        Ok(Dialect {
            // Gemma 1 and 2 raise an exception at a system role; Gemma 3 puts it before the first turn.
            system_role: !template.contains("System role not supported"),
            stops: Dialect::stops_in(template, &["<end_of_turn>"]),
            defaults: Sampling::of(model)?.or(usual),
            ..Dialect::of_file()
        })
    }
}
