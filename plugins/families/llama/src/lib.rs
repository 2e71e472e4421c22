//! The Llama family: Llama 1 to 3.3, SmolLM and SmolLM2, Mistral, Mixtral, and whatever else a
//! converter files under `general.architecture = llama`; SmolLM 3 (`smollm3`) and Mistral Small
//! and Ministral (`mistral3`).
//!
//! Pre-norm blocks, rotary embedding of neighbouring pairs, grouped-query attention, SwiGLU. What
//! differs between members is in the file: `rope_freqs.weight` (Llama 3.1 and later), an output
//! matrix or the embedding in its place, biases, a sliding window, experts. SmolLM 3 does not turn
//! query and key in every fourth layer. Of `mistral3`, files that scale queries by their position
//! (`attention.temperature_scale`) are refused: the step vocabulary does not spell it.
#![cfg_attr(target_arch = "wasm32", no_std)]

use gristmill_plugin::prelude::*;

/// The family.
#[derive(Debug)]
pub struct Llama;

gristmill_plugin::export_family!(Llama);

impl Family for Llama {
    fn matches(model: &Metadata) -> Option<&'static str> {
        matches!(&*model.architecture, "llama" | "smollm3" | "mistral3").then_some("llama")
    }

    fn architecture(model: &Metadata) -> Result<Program> {
        if model.find_f64("{arch}.attention.temperature_scale")?.is_some_and(|by| by != 0.0) {
            return Err(Error::unsupported(format!(
                "architecture {}: attention.temperature_scale, queries scaled by their position, is \
                 not in the step vocabulary",
                model.architecture
            )));
        }
        let eps = model.f64("{arch}.attention.layer_norm_rms_epsilon")?;
        let window = model.find_u32("{arch}.attention.sliding_window")?;
        let attention = Attention::of(model)?.windowed(window);
        let rope = Rope::of(model, Layout::Interleaved, attention.head_dim)?;
        let moe = Moe::of(model)?;

        let p = Builder::new(model)?;
        let mut x = p.embed("token_embd");
        for layer in 0..p.layers() {
            let l = p.layer(layer);

            let h = l.rms_norm(x, "attn_norm", eps);
            let (q, k, v) = l.qkv(h, &attention);
            let turns = model.architecture != "smollm3" || (layer + 1) % 4 != 0;
            let turn = |x, heads| if turns { l.rope(x, heads, &rope) } else { x };
            let (q, k) = (turn(q, attention.heads), turn(k, attention.kv_heads));
            let h = l.attention(q, k, v, &attention);
            x = l.add(x, l.linear(h, "attn_output"));

            let h = l.rms_norm(x, "ffn_norm", eps);
            x = l.add(x, l.feed_forward(h, moe.as_ref(), Activation::Silu));
        }
        let h = p.rms_norm(x, "output_norm", eps);
        p.finish(p.head(h, "output", None))
    }

    fn speak(model: &Metadata) -> Result<Dialect> {
        let template = model.template()?;
        // Meta's generation_config.json of Llama 3, 3.1, 3.2 and 3.3 Instruct, whose templates
        // alone write these headers.
        let usual = if template.contains("<|start_header_id|>") {
            Sampling { temperature: Some(0.6), top_p: Some(0.9), ..Sampling::default() }
        } else if model.architecture == "smollm3" {
            // Hugging Face's generation_config.json of SmolLM 3.
            Sampling { temperature: Some(0.6), top_p: Some(0.95), ..Sampling::default() }
        } else {
            Sampling::default()
        };
        Ok(Dialect {
            stops: Dialect::stops_in(template, &["<|eot_id|>", "<|eom_id|>", "<|im_end|>"]),
            reasoning: Span::think(template),
            tools: tools(template),
            defaults: Sampling::of(model)?.or(usual),
            ..Dialect::of_file()
        })
    }
}

/// How this template asks for calls: Hermes' marks, Mistral's list, or the bare object of Llama 3.
fn tools(template: &str) -> Option<ToolFormat> {
    if template.contains("<tool_call>[") {
        Some(ToolFormat { shape: "json-list".to_owned(), ..ToolFormat::hermes() })
    } else if template.contains("<tool_call>") {
        Some(ToolFormat::hermes())
    } else if template.contains("[TOOL_CALLS]") && !template.contains("[ARGS]") {
        Some(ToolFormat::new("[TOOL_CALLS]", "", "json-list", "name", "arguments"))
    } else if template.contains("\"parameters\": dictionary of argument name") {
        Some(ToolFormat::new("", "", "json", "name", "parameters"))
    } else {
        None
    }
}
