//! The Granite family: Granite 3 and 4 without recurrence (`granite`, `granitemoe`).
//!
//! Llama's block with four numbers: on the embedding, on the scores of attention, on what each half
//! of a block adds, and one that divides the logits. The mixtures have many small experts.
#![cfg_attr(target_arch = "wasm32", no_std)]

use gristmill_plugin::prelude::*;

/// The family.
#[derive(Debug)]
pub struct Granite;

gristmill_plugin::export_family!(Granite);

impl Family for Granite {
    fn matches(model: &Metadata) -> Option<&'static str> {
        matches!(&*model.architecture, "granite" | "granitemoe").then_some("granite")
    }

    fn architecture(model: &Metadata) -> Result<Program> {
        let eps = model.f64("{arch}.attention.layer_norm_rms_epsilon")?;
        let number = |key: &str| -> Result<f64> {
            Ok(model.find_f64(key)?.filter(|number| *number != 0.0).unwrap_or(1.0))
        };
        let embedding = number("{arch}.embedding_scale")?;
        let residual = number("{arch}.residual_scale")?;
        let logits = number("{arch}.logit_scale")?;
        let mut attention = Attention::of(model)?;
        if let Some(scale) = model.find_f64("{arch}.attention.scale")?.filter(|by| *by != 0.0) {
            attention.scale = scale;
        }
        let rope = Rope::of(model, Layout::Interleaved, attention.head_dim)?;
        let turns = model.find_flag("{arch}.rope.scaling.finetuned")?.unwrap_or(true);
        let moe = Moe::of(model)?;

        let p = Builder::new(model)?;
        let part = |l: &Builder<'_>, x| if residual == 1.0 { x } else { l.scale(x, residual) };
        let mut x = p.embed_scaled("token_embd", embedding);
        for layer in 0..p.layers() {
            let l = p.layer(layer);

            let h = l.rms_norm(x, "attn_norm", eps);
            let (q, k, v) = l.qkv(h, &attention);
            let turn = |x, heads| if turns { l.rope(x, heads, &rope) } else { x };
            let (q, k) = (turn(q, attention.heads), turn(k, attention.kv_heads));
            let h = l.linear(l.attention(q, k, v, &attention), "attn_output");
            x = l.add(x, part(&l, h));

            let h = l.rms_norm(x, "ffn_norm", eps);
            let h = l.feed_forward(h, moe.as_ref(), Activation::Silu);
            x = l.add(x, part(&l, h));
        }
        let h = p.rms_norm(x, "output_norm", eps);
        p.finish(p.head_scaled(h, "output", 1.0 / logits, None))
    }

    fn speak(model: &Metadata) -> Result<Dialect> {
        let dialect = Dialect::of_template(model, &["<|end_of_text|>", "<|end_of_role|>"])?;
        // Granite 3 writes a list behind one mark and nothing after it.
        let list = model
            .template()?
            .contains("<|tool_call|>")
            .then(|| ToolFormat::new("<|tool_call|>", "", "json-list", "name", "arguments"));
        Ok(Dialect { tools: list.or(dialect.tools), ..dialect })
    }
}
