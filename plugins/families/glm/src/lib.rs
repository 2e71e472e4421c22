//! The GLM family: GLM-4 (`glm4`) and the mixtures of GLM-4.5 and later (`glm4moe`).
//!
//! Rotary embedding of a part of each head: of neighbours in `glm4`, of half against half in
//! `glm4moe`. GLM-4 has a norm before and behind each half of a block and one matrix for gate and
//! up. GLM-4.5 has a dense layer or more first, then experts chosen by sigmoid with a bias that
//! only chooses, and one that every token asks; its larger member norms heads of query and key. The
//! last layers, which guess ahead, are not used. Files with rotary sections (vision) are refused.
#![cfg_attr(target_arch = "wasm32", no_std)]

use gristmill_plugin::prelude::*;

/// The family.
#[derive(Debug)]
pub struct Glm;

gristmill_plugin::export_family!(Glm);

impl Family for Glm {
    fn matches(model: &Metadata) -> Option<&'static str> {
        matches!(&*model.architecture, "glm4" | "glm4moe").then_some("glm")
    }

    fn architecture(model: &Metadata) -> Result<Program> {
        if model.find("{arch}.rope.dimension_sections").is_some() {
            return Err(Error::unsupported(format!(
                "architecture {}: rope.dimension_sections, a rotary embedding in sections, is not \
                 in the step vocabulary",
                model.architecture
            )));
        }
        let sandwich = model.architecture == "glm4";
        let eps = model.f64("{arch}.attention.layer_norm_rms_epsilon")?;
        let attention = Attention::of(model)?;
        let layout = if sandwich { Layout::Interleaved } else { Layout::Half };
        let rope = Rope::of(model, layout, attention.head_dim)?;
        let scoring = match model.find_u32("{arch}.expert_gating_func")? {
            None | Some(0) => Some(Scoring::Sigmoid),
            Some(_) => None,
        };
        let normalize = model.find_flag("{arch}.expert_weights_norm")?.unwrap_or(false);
        let moe = Moe::of(model)?.map(|moe| {
            let scoring = scoring.unwrap_or(moe.scoring);
            Moe { normalize, scoring, ..moe }
        });

        let p = Builder::new(model)?;
        let mut x = p.embed("token_embd");
        for layer in 0..p.layers() {
            let l = p.layer(layer);

            let h = l.rms_norm(x, "attn_norm", eps);
            let (mut q, mut k, v) = l.qkv(h, &attention);
            if l.has("attn_q_norm") {
                q = l.head_norm(q, "attn_q_norm", eps, attention.heads);
                k = l.head_norm(k, "attn_k_norm", eps, attention.kv_heads);
            }
            let q = l.rope(q, attention.heads, &rope);
            let k = l.rope(k, attention.kv_heads, &rope);
            let mut h = l.linear(l.attention(q, k, v, &attention), "attn_output");
            if sandwich {
                h = l.rms_norm(h, "post_attention_norm", eps);
            }
            x = l.add(x, h);

            let before = if sandwich { "ffn_norm" } else { "post_attention_norm" };
            let h = l.rms_norm(x, before, eps);
            let mut h = l.feed_forward(h, moe.as_ref(), Activation::Silu);
            if sandwich {
                h = l.rms_norm(h, "post_ffw_norm", eps);
            }
            x = l.add(x, h);
        }
        p.finish(p.head(p.rms_norm(x, "output_norm", eps), "output", None))
    }

    fn speak(model: &Metadata) -> Result<Dialect> {
        let template = model.template()?;
        // GLM-4.5 writes a call's arguments as pairs of tags.
        let tools = template
            .contains("<arg_key>")
            .then(|| ToolFormat::new("<tool_call>", "</tool_call>", "glm", "", "arg_key"));
        let marks = ["<|user|>", "<|observation|>", "<|endoftext|>"];
        Ok(Dialect { tools, ..Dialect::of_template(model, &marks)? })
    }
}
