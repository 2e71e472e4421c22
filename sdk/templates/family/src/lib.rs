//! A model family of plain pre-norm blocks. Put in its place the blocks of yours: the steps are
//! those of the host's page on programs, the builder has a method for each.
#![cfg_attr(target_arch = "wasm32", no_std)]

use gristmill_plugin::prelude::*;

/// The plugin.
pub struct Plugin;

gristmill_plugin::export_family!(Plugin);

impl Family for Plugin {
    fn matches(model: &Metadata) -> Option<&'static str> {
        (model.architecture == "{{name}}").then_some("{{name}}")
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
        let template = model.template()?;
        Ok(Dialect {
            stops: Dialect::stops_in(template, &["<|im_end|>"]),
            reasoning: Span::think(template),
            ..Dialect::of_file()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> Metadata {
        let mut model = Metadata::new("{{name}}")
            .with("{arch}.block_count", 1)
            .with("{arch}.context_length", 512)
            .with("{arch}.embedding_length", 64)
            .with("{arch}.attention.head_count", 4)
            .with("{arch}.attention.layer_norm_rms_epsilon", 1e-5)
            .with_tensor("token_embd.weight", &[64, 1000])
            .with_tensor("output_norm.weight", &[64]);
        for stem in ["attn_norm", "ffn_norm"] {
            model = model.with_tensor(format!("blk.0.{stem}.weight"), &[64]);
        }
        for stem in ["attn_q", "attn_k", "attn_v", "attn_output"] {
            model = model.with_tensor(format!("blk.0.{stem}.weight"), &[64, 64]);
        }
        model
            .with_tensor("blk.0.ffn_gate.weight", &[64, 128])
            .with_tensor("blk.0.ffn_up.weight", &[64, 128])
            .with_tensor("blk.0.ffn_down.weight", &[128, 64])
    }

    #[test]
    fn the_program_is_as_deep_as_the_model() {
        assert_eq!(Plugin::matches(&model()), Some("{{name}}"));
        let program = Plugin::architecture(&model()).unwrap();
        assert_eq!((program.layers, program.vocabulary, program.steps.len()), (1, 1000, 18));
    }

    #[test]
    fn a_missing_tensor_is_named() {
        let mut model = model();
        model.tensors.retain(|tensor| tensor.name != "blk.0.attn_k.weight");
        let error = Plugin::architecture(&model).unwrap_err();
        assert!(error.message.contains("blk.0.attn_k.weight"));
    }
}
