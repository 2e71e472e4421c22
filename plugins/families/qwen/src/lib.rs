//! The Qwen family: Qwen 2 and 2.5 (`qwen2`), Qwen 3 (`qwen3`) and their mixtures of experts
//! (`qwen2moe`, `qwen3moe`); Seed-OSS (`seed_oss`), which is Qwen 2 with a norm by another name.
//!
//! Llama's block with rotary embedding of half against half. Qwen 2 has biases on query, key and
//! value; Qwen 3 has a norm on each head of query and key instead. The experts of `qwen2moe` are
//! weighed as they are, and beside them stands one that every token asks, behind a gate.
#![cfg_attr(target_arch = "wasm32", no_std)]

use gristmill_plugin::prelude::*;

/// The family.
#[derive(Debug)]
pub struct Qwen;

gristmill_plugin::export_family!(Qwen);

impl Family for Qwen {
    fn matches(model: &Metadata) -> Option<&'static str> {
        let known = ["qwen2", "qwen3", "qwen2moe", "qwen3moe", "seed_oss"];
        known.contains(&&*model.architecture).then_some("qwen")
    }

    fn architecture(model: &Metadata) -> Result<Program> {
        let head_norms = matches!(&*model.architecture, "qwen3" | "qwen3moe");
        let eps = model.f64("{arch}.attention.layer_norm_rms_epsilon")?;
        let attention = Attention::of(model)?;
        let rope = Rope::of(model, Layout::Half, attention.head_dim)?;
        let normalize = model.architecture != "qwen2moe";
        let moe = Moe::of(model)?.map(|moe| Moe { normalize, ..moe });

        let p = Builder::new(model)?;
        let mut x = p.embed("token_embd");
        for layer in 0..p.layers() {
            let l = p.layer(layer);

            let h = l.rms_norm(x, "attn_norm", eps);
            let (mut q, mut k, v) = l.qkv(h, &attention);
            if head_norms {
                q = l.head_norm(q, "attn_q_norm", eps, attention.heads);
                k = l.head_norm(k, "attn_k_norm", eps, attention.kv_heads);
            }
            let q = l.rope(q, attention.heads, &rope);
            let k = l.rope(k, attention.kv_heads, &rope);
            let h = l.attention(q, k, v, &attention);
            x = l.add(x, l.linear(h, "attn_output"));

            let seed = model.architecture == "seed_oss";
            let h = l.rms_norm(x, if seed { "post_attention_norm" } else { "ffn_norm" }, eps);
            x = l.add(x, l.feed_forward(h, moe.as_ref(), Activation::Silu));
        }
        let h = p.rms_norm(x, "output_norm", eps);
        p.finish(p.head(h, "output", None))
    }

    fn speak(model: &Metadata) -> Result<Dialect> {
        let template = model.template()?;
        let seed = template.contains("<seed:think>").then(|| Span {
            open: "<seed:think>".to_owned(),
            close: "</seed:think>".to_owned(),
            open_at_start: false,
        });
        let reasoning = seed.or_else(|| Span::think(template));
        let tools = if template.contains("<function=") {
            // Qwen 3 Coder and Seed-OSS write tags instead of JSON, each between marks of its own.
            let (open, close) = if template.contains("<seed:tool_call>") {
                ("<seed:tool_call>", "</seed:tool_call>")
            } else {
                ("<tool_call>", "</tool_call>")
            };
            Some(ToolFormat::new(open, close, "xml", "function", "parameter"))
        } else {
            template.contains("<tool_call>").then(ToolFormat::hermes)
        };
        let usual = match (&*model.architecture, &reasoning) {
            // Alibaba's generation_config.json of Qwen 3, for thinking.
            ("qwen3" | "qwen3moe", Some(_)) => sampling(0.6, 0.95, 20),
            // The same of Qwen 3 Instruct 2507, and its model cards for not thinking.
            ("qwen3" | "qwen3moe", None) if !template.is_empty() => sampling(0.7, 0.8, 20),
            // The same of Qwen 2.5 Instruct, common to all sizes.
            ("qwen2", None) if template.contains("You are Qwen") => sampling(0.7, 0.8, 20),
            _ => Sampling::default(),
        };
        Ok(Dialect {
            stops: Dialect::stops_in(template, &["<|im_end|>", "<seed:eos>"]),
            reasoning,
            tools,
            defaults: Sampling::of(model)?.or(usual),
            ..Dialect::of_file()
        })
    }
}

fn sampling(temperature: f32, top_p: f32, top_k: u32) -> Sampling {
    Sampling {
        temperature: Some(temperature),
        top_p: Some(top_p),
        top_k: Some(top_k),
        ..Sampling::default()
    }
}
