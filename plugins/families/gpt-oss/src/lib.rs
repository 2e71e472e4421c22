//! gpt-oss (`gpt-oss`): 20 B and 120 B.
//!
//! Biases everywhere; every other layer sees only a window; each head of attention has a sink, a
//! score without a value; experts are chosen by their scores and weighed by a softmax over the
//! chosen, with a gate that is held below 7. YaRN. The norm before the experts is called
//! `post_attention_norm`.
#![cfg_attr(target_arch = "wasm32", no_std)]

use gristmill_plugin::prelude::*;

/// The family.
#[derive(Debug)]
pub struct GptOss;

gristmill_plugin::export_family!(GptOss);

impl Family for GptOss {
    fn matches(model: &Metadata) -> Option<&'static str> {
        (model.architecture == "gpt-oss").then_some("gpt-oss")
    }

    fn architecture(model: &Metadata) -> Result<Program> {
        let eps = model.f64("{arch}.attention.layer_norm_rms_epsilon")?;
        let mut global = Attention::of(model)?;
        global.sinks = Some("attn_sinks".to_owned());
        let local = global.clone().windowed(Some(model.u32("{arch}.attention.sliding_window")?));
        let rope = Rope::of(model, Layout::Half, global.head_dim)?;
        let moe = Moe::of(model)?.map(|moe| Moe {
            activation: Activation::SwigluOai,
            scoring: Scoring::Chosen,
            normalize: false,
            ..moe
        });

        let p = Builder::new(model)?;
        let mut x = p.embed("token_embd");
        for layer in 0..p.layers() {
            let l = p.layer(layer);
            let attention = if layer % 2 == 0 { &local } else { &global };

            let h = l.rms_norm(x, "attn_norm", eps);
            let (q, k, v) = l.qkv(h, attention);
            let q = l.rope(q, attention.heads, &rope);
            let k = l.rope(k, attention.kv_heads, &rope);
            x = l.add(x, l.linear(l.attention(q, k, v, attention), "attn_output"));

            let h = l.rms_norm(x, "post_attention_norm", eps);
            x = l.add(x, l.feed_forward(h, moe.as_ref(), Activation::SwigluOai));
        }
        p.finish(p.head(p.rms_norm(x, "output_norm", eps), "output", None))
    }

    fn speak(model: &Metadata) -> Result<Dialect> {
        // OpenAI's harmony: channels instead of marks of reasoning, calls addressed to functions.
        let harmony = model.template()?.contains("<|channel|>");
        Ok(Dialect {
            stops: ["<|return|>", "<|call|>"].map(str::to_owned).to_vec(),
            reasoning: harmony.then(|| Span {
                open: "<|channel|>analysis<|message|>".to_owned(),
                close: "<|end|>".to_owned(),
                open_at_start: false,
            }),
            tools: harmony.then(|| {
                ToolFormat::new(
                    "<|channel|>commentary to=functions.",
                    "<|call|>",
                    "harmony",
                    "",
                    "",
                )
            }),
            defaults: Sampling::of(model)?,
            ..Dialect::of_file()
        })
    }
}
