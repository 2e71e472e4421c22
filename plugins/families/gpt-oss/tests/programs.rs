//! gpt-oss: sinks, windows, biases, clamped experts.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use gristmill_family_gpt_oss::GptOss;
use gristmill_plugin::prelude::*;

#[path = "../../shape.rs"]
mod shape;
#[path = "../../testing.rs"]
mod testing;

use shape::{ATTENTION, model};
use testing::{counts, golden, reads_everything};

fn gpt_oss(layers: u32) -> Metadata {
    let tensors = [
        &ATTENTION[..],
        &[
            ("attn_q.bias", &[64]),
            ("attn_k.bias", &[32]),
            ("attn_v.bias", &[32]),
            ("attn_output.bias", &[64]),
            ("attn_sinks", &[4]),
            ("attn_norm", &[64]),
            ("post_attention_norm", &[64]),
            ("ffn_gate_inp", &[64, 8]),
            ("ffn_gate_inp.bias", &[8]),
            ("ffn_gate_exps", &[64, 32, 8]),
            ("ffn_gate_exps.bias", &[32, 8]),
            ("ffn_up_exps", &[64, 32, 8]),
            ("ffn_up_exps.bias", &[32, 8]),
            ("ffn_down_exps", &[32, 64, 8]),
            ("ffn_down_exps.bias", &[64, 8]),
        ],
    ]
    .concat();
    let keys = [
        ("expert_count", 8_u32.into()),
        ("expert_used_count", 2_u32.into()),
        ("attention.sliding_window", 128_u32.into()),
    ];
    model("gpt-oss", &keys, layers, &tensors)
        .with_tensor("output_norm.weight", &[64])
        .with_tensor("output.weight", &[64, 1000])
}

#[test]
fn every_other_layer_slides() {
    assert_eq!(GptOss::matches(&gpt_oss(2)), Some("gpt-oss"));
    let program = GptOss::architecture(&gpt_oss(2)).unwrap();
    reads_everything(&gpt_oss(2), &program);
    let windowed: Vec<u32> = program
        .states
        .iter()
        .filter(|state| state.attributes.iter().any(|(name, _)| name == "window"))
        .map(|state| state.layer)
        .collect();
    assert_eq!((windowed, counts(&program).get("moe")), (vec![0], Some(&2)));
    golden("gpt-oss", &program);
}

#[test]
fn it_speaks_harmony() {
    let dialect =
        GptOss::speak(&gpt_oss(1).with("tokenizer.chat_template", "<|channel|>")).unwrap();
    assert_eq!(dialect.stops, ["<|return|>", "<|call|>"]);
    assert_eq!(dialect.tools.unwrap().shape, "harmony");
    assert_eq!(dialect.reasoning.unwrap().open, "<|channel|>analysis<|message|>");
}
