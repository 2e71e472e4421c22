//! The DeepSeek family: V2, V2.5, V3, R1 and others with their attention (`deepseek2`).
//!
//! Keys and values of all heads are made from one short vector a token (MLA). It and one rotated
//! part of the key are all the cache holds: queries are brought into its space by a matrix for each
//! head (`attn_k_b`), it is key and value at once, and what attention finds is brought back by
//! another (`attn_v_b`). After some dense layers come experts in groups, chosen by sigmoid (V3) or
//! softmax (V2), beside one that every token asks. Files from before `attn_k_b` and `attn_v_b` were
//! two tensors are refused: they have to be converted again.
#![cfg_attr(target_arch = "wasm32", no_std)]

use gristmill_plugin::{ln, prelude::*, sqrt};

/// The family.
#[derive(Debug)]
pub struct DeepSeek;

gristmill_plugin::export_family!(DeepSeek);

impl Family for DeepSeek {
    fn matches(model: &Metadata) -> Option<&'static str> {
        (model.architecture == "deepseek2").then_some("deepseek")
    }

    fn architecture(model: &Metadata) -> Result<Program> {
        let p = Builder::new(model)?;
        if p.layer(0).has("attn_kv_b") {
            return Err(Error::unsupported(
                "architecture deepseek2 with attn_kv_b: a file of the old form; convert the model \
                 again to get attn_k_b and attn_v_b",
            ));
        }
        let growth = match model.find_f64("{arch}.attention.temperature_scale")? {
            Some(factor) if factor != 0.0 => {
                Some((factor, model.u32("{arch}.attention.temperature_length")?))
            }
            _ => None,
        };
        let eps = model.f64("{arch}.attention.layer_norm_rms_epsilon")?;
        let heads = model.u32("{arch}.attention.head_count")?;
        let key = model.u32("{arch}.attention.key_length_mla")?;
        let latent = model.u32("{arch}.attention.kv_lora_rank")?;
        let turned = model.u32("{arch}.rope.dimension_count")?;
        let plain = key.saturating_sub(turned);

        let mut rope = Rope::of(model, Layout::Interleaved, turned)?;
        let mut scale = 1.0 / sqrt(f64::from(key));
        if let Scaling::Yarn { factor, attention_factor, .. } = &mut rope.scaling {
            // The converter writes a tenth of the factor; DeepSeek scales scores and not the angles.
            let multiplier = model.find_f64("{arch}.rope.scaling.yarn_log_multiplier")?;
            let stretch = ln(*factor);
            let magnitude = if let Some(multiplier) = multiplier.filter(|by| *by != 0.0) {
                *attention_factor /= 1.0 + 0.1 * stretch;
                1.0 + multiplier * stretch
            } else {
                1.0 + 0.1 * stretch
            };
            scale *= magnitude * magnitude;
        }
        let attention = Attention {
            heads,
            kv_heads: 1,
            head_dim: latent + turned,
            scale,
            causal: true,
            window: None,
            softcap: None,
            sinks: None,
        };
        let normalize = model.find_flag("{arch}.expert_weights_norm")?.unwrap_or(false);
        let moe = Moe::of(model)?.map(|moe| Moe { normalize, ..moe });

        let mut x = p.embed("token_embd");
        for layer in 0..p.layers() {
            let l = p.layer(layer);

            let h = l.rms_norm(x, "attn_norm", eps);
            let q = if l.has("attn_q") {
                l.linear(h, "attn_q")
            } else {
                let q = l.rms_norm(l.linear(h, "attn_q_a"), "attn_q_a_norm", eps);
                l.linear(q, "attn_q_b")
            };
            let q_plain = l.head_linear(l.slice_heads(q, heads, 0, plain), "attn_k_b", heads);
            let q_turned = l.rope(l.slice_heads(q, heads, plain, turned), heads, &rope);
            let mut q = l.concat(q_plain, q_turned, heads);
            if let Some((factor, length)) = growth {
                q = l.position_scale(q, factor, length);
            }

            let both = l.linear(h, "attn_kv_a_mqa");
            let found = l.rms_norm(l.slice(both, 0, latent), "attn_kv_a_norm", eps);
            let k = l.concat(found, l.rope(l.slice(both, latent, turned), 1, &rope), 1);

            // The value is the key: of what comes out, its rotated end is left alone.
            let out = l.slice_heads(l.attention(q, k, k, &attention), heads, 0, latent);
            x = l.add(x, l.linear(l.head_linear(out, "attn_v_b", heads), "attn_output"));

            let h = l.rms_norm(x, "ffn_norm", eps);
            x = l.add(x, l.feed_forward(h, moe.as_ref(), Activation::Silu));
        }
        p.finish(p.head(p.rms_norm(x, "output_norm", eps), "output", None))
    }

    fn speak(model: &Metadata) -> Result<Dialect> {
        let marks = ["<｜end▁of▁sentence｜>", "<|user|>", "<|observation|>", "<|im_end|>"];
        let template = model.template()?;
        let tools = if template.contains("<｜tool▁calls▁begin｜>") {
            let (open, close) = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>");
            // V3 and R1 write a word before the name and the arguments in a fence; V3.1 neither.
            let word = if template.contains("```json") { "function" } else { "" };
            Some(ToolFormat::new(open, close, "deepseek", word, ""))
        } else if template.contains("｜DSML｜") {
            // V3.2 calls the list by one name and V4 by another; templates put the mark before them.
            let (open, close) = match template.contains("function_calls>") {
                true => ("<｜DSML｜function_calls>", "</｜DSML｜function_calls>"),
                false => ("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"),
            };
            Some(ToolFormat::new(open, close, "dsml", "｜DSML｜invoke", "｜DSML｜parameter"))
        } else {
            template.contains("<|tool_calls_section_begin|>").then(|| {
                let (open, close) = ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>");
                ToolFormat::new(open, close, "kimi", "", "")
            })
        };
        Ok(Dialect { tools, ..Dialect::of_template(model, &marks)? })
    }
}
