//! Granite: four scales, and its mixtures.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use gristmill_family_granite::Granite;
use gristmill_plugin::prelude::*;

#[path = "../../shape.rs"]
mod shape;
#[path = "../../testing.rs"]
mod testing;

use shape::{ATTENTION, model};
use testing::{counts, golden, reads_everything};

fn granite(architecture: &str) -> Metadata {
    let own: &[(&str, &[u64])] = if architecture == "granite" {
        &[("ffn_gate", &[64, 96]), ("ffn_up", &[64, 96]), ("ffn_down", &[96, 64])]
    } else {
        &[
            ("ffn_gate_inp", &[64, 8]),
            ("ffn_gate_exps", &[64, 32, 8]),
            ("ffn_up_exps", &[64, 32, 8]),
            ("ffn_down_exps", &[32, 64, 8]),
        ]
    };
    let tensors = [&ATTENTION[..], &[("attn_norm", &[64]), ("ffn_norm", &[64])], own].concat();
    let keys = [
        ("embedding_scale", 12.0.into()),
        ("residual_scale", 0.25.into()),
        ("attention.scale", 0.015_625.into()),
        ("logit_scale", 8.0.into()),
        ("expert_count", if architecture == "granite" { 0_u32 } else { 8 }.into()),
        ("expert_used_count", 2_u32.into()),
    ];
    model(architecture, &keys, 1, &tensors).with_tensor("output_norm.weight", &[64])
}

#[test]
fn every_scale_is_in_its_place() {
    for architecture in ["granite", "granitemoe"] {
        let model = granite(architecture);
        assert_eq!(Granite::matches(&model), Some("granite"));
        let program = Granite::architecture(&model).unwrap();
        assert_eq!(counts(&program).get("scale"), Some(&2));
        reads_everything(&model, &program);
        golden(architecture, &program);
    }
    let still = granite("granite").with("{arch}.rope.scaling.finetuned", false);
    assert_eq!(counts(&Granite::architecture(&still).unwrap()).get("rope"), None);
}

#[test]
fn calls_are_a_list_behind_one_mark() {
    let template = "<|end_of_text|><|tool_call|>";
    let dialect =
        Granite::speak(&granite("granite").with("tokenizer.chat_template", template)).unwrap();
    assert_eq!(dialect.tools.map(|tools| tools.shape).as_deref(), Some("json-list"));
    assert_eq!(dialect.stops, ["<|end_of_text|>"]);
}
