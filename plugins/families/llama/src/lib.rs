//! The Llama family: Llama 1 to 3.3, SmolLM and SmolLM2, Mistral, Mixtral, and whatever else a
//! converter files under `general.architecture = llama`; SmolLM 3 (`smollm3`), Mistral Small and
//! Ministral (`mistral3`), InternLM 2 (`internlm2`) and ERNIE 4.5 (`ernie4_5`).
//!
//! Pre-norm blocks, rotary embedding of neighbouring pairs, grouped-query attention, SwiGLU. What
//! differs between members is in the file: `rope_freqs.weight` (Llama 3.1 and later), an output
//! matrix or the embedding in its place, biases, a sliding window, experts. SmolLM 3 does not turn
//! query and key in every fourth layer. Ministral 3 makes queries grow with their position, and has
//! YaRN scale scores less than usual.
#![cfg_attr(target_arch = "wasm32", no_std)]

use gristmill_plugin::{ln, prelude::*};

/// The family.
#[derive(Debug)]
pub struct Llama;

gristmill_plugin::export_family!(Llama);

impl Family for Llama {
    fn matches(model: &Metadata) -> Option<&'static str> {
        let known = ["llama", "smollm3", "mistral3", "internlm2", "ernie4_5"];
        known.contains(&&*model.architecture).then_some("llama")
    }

    fn architecture(model: &Metadata) -> Result<Program> {
        let eps = model.f64("{arch}.attention.layer_norm_rms_epsilon")?;
        let window = model.find_u32("{arch}.attention.sliding_window")?;
        let attention = Attention::of(model)?.windowed(window);
        let mut rope = Rope::of(model, Layout::Interleaved, attention.head_dim)?;
        let less = model.find_f64("{arch}.rope.scaling.yarn_log_multiplier")?;
        if let (Scaling::Yarn { factor, attention_factor, .. }, Some(less)) =
            (&mut rope.scaling, less)
        {
            *attention_factor /= 1.0 + 0.1 * less * ln(*factor);
        }
        let moe = Moe::of(model)?;
        // The trained context is also the stretch in which queries are alike.
        let growth = match model.find_f64("{arch}.attention.temperature_scale")? {
            Some(factor) if factor != 0.0 => {
                Some((factor, model.u32("{arch}.rope.scaling.original_context_length")?))
            }
            _ => None,
        };

        let p = Builder::new(model)?;
        let mut x = p.embed("token_embd");
        for layer in 0..p.layers() {
            let l = p.layer(layer);

            let h = l.rms_norm(x, "attn_norm", eps);
            let (q, k, v) = l.qkv(h, &attention);
            let turns = model.architecture != "smollm3" || (layer + 1) % 4 != 0;
            let turn = |x, heads| if turns { l.rope(x, heads, &rope) } else { x };
            let (mut q, k) = (turn(q, attention.heads), turn(k, attention.kv_heads));
            if let Some((factor, length)) = growth {
                q = l.position_scale(q, factor, length);
            }
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

/// How this template asks for calls: Hermes' marks, Mistral's list or its
/// later single calls, or the bare object of Llama 3.
fn tools(template: &str) -> Option<ToolFormat> {
    if template.contains("<tool_call>[") {
        Some(ToolFormat { shape: "json-list".to_owned(), ..ToolFormat::hermes() })
    } else if template.contains("<tool_call>") {
        Some(ToolFormat::hermes())
    } else if template.contains("[TOOL_CALLS]") && template.contains("[ARGS]") {
        // Since Mistral Small 3.2; some write an id of their own too.
        let id = if template.contains("[CALL_ID]") { "[CALL_ID]" } else { "" };
        Some(ToolFormat::new("[TOOL_CALLS]", "", "mistral", id, "[ARGS]"))
    } else if template.contains("[TOOL_CALLS]") {
        Some(ToolFormat::new("[TOOL_CALLS]", "", "json-list", "name", "arguments"))
    } else if template.contains("\"parameters\": dictionary of argument name") {
        Some(ToolFormat::new("", "", "json", "name", "parameters"))
    } else {
        None
    }
}
