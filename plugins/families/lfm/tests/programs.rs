//! LFM2: convolutions and attention by the file.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use gristmill_family_lfm::Lfm;
use gristmill_plugin::prelude::*;

#[path = "../../shape.rs"]
mod shape;
#[path = "../../testing.rs"]
mod testing;

use shape::{ATTENTION, model};
use testing::{counts, golden, reads_everything};

use gristmill_plugin::family::Value;

fn lfm(architecture: &str) -> Metadata {
    let feed: &[(&str, &[u64])] = if architecture == "lfm2" {
        &[("ffn_gate", &[64, 96]), ("ffn_up", &[64, 96]), ("ffn_down", &[96, 64])]
    } else {
        &[
            ("ffn_gate_inp", &[64, 8]),
            ("exp_probs_b.bias", &[8]),
            ("ffn_gate_exps", &[64, 32, 8]),
            ("ffn_up_exps", &[64, 32, 8]),
            ("ffn_down_exps", &[32, 64, 8]),
        ]
    };
    let norms: [(&str, &[u64]); 2] = [("attn_norm", &[64]), ("ffn_norm", &[64])];
    let keys = [
        ("expert_count", if architecture == "lfm2" { 0_u32 } else { 8 }.into()),
        ("expert_used_count", 2_u32.into()),
        ("expert_gating_func", 2_u32.into()),
    ];
    let mut model = model(architecture, &keys, 2, &[&norms[..], feed].concat())
        .with("{arch}.attention.head_count_kv", Value::Ints(vec![0, 2]))
        .with_tensor("token_embd_norm.weight", &[64])
        .with_tensor("blk.0.shortconv.conv.weight", &[3, 64])
        .with_tensor("blk.0.shortconv.in_proj.weight", &[64, 192])
        .with_tensor("blk.0.shortconv.out_proj.weight", &[64, 64])
        .with_tensor("blk.1.attn_q_norm.weight", &[16])
        .with_tensor("blk.1.attn_k_norm.weight", &[16]);
    for (stem, shape) in ATTENTION {
        model = model.with_tensor(format!("blk.1.{stem}.weight"), shape);
    }
    model
}

#[test]
fn a_layer_is_what_its_tensors_say() {
    for architecture in ["lfm2", "lfm2moe"] {
        let model = lfm(architecture);
        assert_eq!(Lfm::matches(&model), Some("lfm"));
        let program = Lfm::architecture(&model).unwrap();
        let counts = counts(&program);
        assert_eq!((counts.get("conv"), counts.get("attention")), (Some(&1), Some(&1)));
        let kinds: Vec<&str> = program.states.iter().map(|state| state.kind.as_str()).collect();
        assert_eq!(kinds, ["conv", "kv"]);
        reads_everything(&model, &program);
        golden(architecture, &program);
    }
}

#[test]
fn attention_without_heads_is_named() {
    let none = lfm("lfm2").with("{arch}.attention.head_count_kv", Value::Ints(vec![0, 0]));
    assert_eq!(Lfm::architecture(&none).unwrap_err().code, "invalid-request");
    let short = lfm("lfm2").with("{arch}.attention.head_count_kv", Value::Ints(vec![0]));
    let error = Lfm::architecture(&short).unwrap_err();
    assert!(error.message.contains("lfm2.attention.head_count_kv"), "{}", error.message);
}

#[test]
fn calls_are_python() {
    let speak = |template: &str| {
        Lfm::speak(&lfm("lfm2").with("tokenizer.chat_template", template)).unwrap().tools
    };
    // LFM2.5, LFM2, and the first templates of LFM2.5, which name the marks nowhere.
    for template in
        ["<|tool_call_start|>[", "List of tools: <|tool_list_start|>[", "List of tools: \" + tools"]
    {
        let tools = ToolFormat::new("<|tool_call_start|>", "<|tool_call_end|>", "pythonic", "", "");
        assert_eq!(speak(template), Some(tools), "{template}");
    }
    assert_eq!(speak("<|im_start|>"), None);
}
