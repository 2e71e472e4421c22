//! The Cohere family: Command R and Aya (`command-r`), Command R7B and A (`cohere2`).
//!
//! Attention and feed-forward side by side on one layer norm without bias, rotary embedding of
//! neighbours, logits times a number, head and embedding in one. `cohere2` has three layers with a
//! window to one that sees everything and does not turn. Command R+, which norms query and key by
//! layer norms for each head, is refused: the step vocabulary does not spell them.
#![cfg_attr(target_arch = "wasm32", no_std)]

use gristmill_plugin::prelude::*;

/// The family.
#[derive(Debug)]
pub struct Cohere;

gristmill_plugin::export_family!(Cohere);

impl Family for Cohere {
    fn matches(model: &Metadata) -> Option<&'static str> {
        matches!(&*model.architecture, "command-r" | "cohere2").then_some("cohere")
    }

    fn architecture(model: &Metadata) -> Result<Program> {
        let second = model.architecture == "cohere2";
        let eps = model.f64("{arch}.attention.layer_norm_epsilon")?;
        let logits = model.f64("{arch}.logit_scale")?;
        let global = Attention::of(model)?;
        let window = model.find_u32("{arch}.attention.sliding_window")?;
        let local = global.clone().windowed(window);
        let rope = Rope::of(model, Layout::Interleaved, global.head_dim)?;

        let p = Builder::new(model)?;
        if p.layer(0).has("attn_q_norm") {
            return Err(Error::unsupported(
                "architecture command-r with attn_q_norm: layer norms of each head are not in the \
                 step vocabulary",
            ));
        }
        let mut x = p.embed("token_embd");
        for layer in 0..p.layers() {
            let l = p.layer(layer);
            let everything = second && (layer + 1) % 4 == 0;
            let attention = if second && !everything { &local } else { &global };

            let h = l.layer_norm(x, "attn_norm", eps);
            let (q, k, v) = l.qkv(h, attention);
            let turn = |x, heads| if everything { x } else { l.rope(x, heads, &rope) };
            let (q, k) = (turn(q, attention.heads), turn(k, attention.kv_heads));
            let found = l.linear(l.attention(q, k, v, attention), "attn_output");
            x = l.add(l.add(x, l.gated_ffn(h, Activation::Silu)), found);
        }
        let h = p.layer_norm(x, "output_norm", eps);
        p.finish(p.head_scaled(h, "output", logits, None))
    }

    fn speak(model: &Metadata) -> Result<Dialect> {
        let template = model.template()?;
        let reasoning = template.contains("<|START_THINKING|>").then(|| Span {
            open: "<|START_THINKING|>".to_owned(),
            close: "<|END_THINKING|>".to_owned(),
            open_at_start: false,
        });
        let tools = template.contains("<|START_ACTION|>").then(|| {
            let (open, close) = ("<|START_ACTION|>", "<|END_ACTION|>");
            ToolFormat::new(open, close, "json-list", "tool_name", "parameters")
        });
        let dialect = Dialect::of_template(model, &["<|END_OF_TURN_TOKEN|>"])?;
        Ok(Dialect { reasoning, tools, ..dialect })
    }
}
