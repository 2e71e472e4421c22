//! The BERT family (`bert`): encoders that make one vector of a text, such as MiniLM, BGE and E5.
//!
//! Word, position and segment added up, then layers in which every token sees every other, each half
//! followed by its norm. The vector is the mean of all rows or the first one, as the file says, with
//! length one. A file without a pooling makes no sentence vectors and is refused.
#![cfg_attr(target_arch = "wasm32", no_std)]

use gristmill_plugin::prelude::*;

/// The family.
#[derive(Debug)]
pub struct Bert;

gristmill_plugin::export_family!(Bert);

impl Family for Bert {
    fn matches(model: &Metadata) -> Option<&'static str> {
        (model.architecture == "bert").then_some("bert")
    }

    fn architecture(model: &Metadata) -> Result<Program> {
        let pooling = match model.find_u32("{arch}.pooling_type")? {
            Some(1) => "mean",
            Some(2) => "cls",
            Some(3) => "last",
            other => {
                return Err(Error::unsupported(match other {
                    Some(kind) => format!("bert.pooling_type {kind}: 1 (mean), 2 (cls), 3 (last)"),
                    None => "a bert file without bert.pooling_type".to_owned(),
                }));
            }
        };
        let eps = model.f64("{arch}.attention.layer_norm_epsilon")?;
        let attention = Attention { causal: false, ..Attention::of(model)? };

        let p = Builder::new(model)?;
        let mut x = p.embed("token_embd");
        x = p.position_embed(x, "position_embd");
        x = p.segment_embed(x, "token_types");
        x = p.layer_norm(x, "token_embd_norm", eps);
        for layer in 0..p.layers() {
            let l = p.layer(layer);

            let (q, k, v) = l.qkv(x, &attention);
            let h = l.attention(q, k, v, &attention);
            x = l.add(x, l.linear(h, "attn_output"));
            x = l.layer_norm(x, "attn_output_norm", eps);

            let h = l.activation(l.linear(x, "ffn_up"), Activation::Gelu);
            x = l.add(x, l.linear(h, "ffn_down"));
            x = l.layer_norm(x, "layer_output_norm", eps);
        }
        p.finish(p.pool(x, pooling, true))
    }

    fn speak(_: &Metadata) -> Result<Dialect> {
        Ok(Dialect::of_file())
    }
}
