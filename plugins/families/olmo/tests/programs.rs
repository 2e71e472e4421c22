//! OLMo 2, OLMo 3 and OLMoE.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use gristmill_family_olmo::Olmo;
use gristmill_plugin::prelude::*;

#[path = "../../shape.rs"]
mod shape;
#[path = "../../testing.rs"]
mod testing;

use shape::{ATTENTION, model};
use testing::{counts, golden, reads_everything};

fn olmo(architecture: &str, layers: u32) -> Metadata {
    let own: &[(&str, &[u64])] = if architecture == "olmo2" {
        &[
            ("post_attention_norm", &[64]),
            ("ffn_gate", &[64, 96]),
            ("ffn_up", &[64, 96]),
            ("ffn_down", &[96, 64]),
            ("post_ffw_norm", &[64]),
        ]
    } else {
        &[
            ("attn_norm", &[64]),
            ("ffn_norm", &[64]),
            ("ffn_gate_inp", &[64, 8]),
            ("ffn_gate_exps", &[64, 32, 8]),
            ("ffn_up_exps", &[64, 32, 8]),
            ("ffn_down_exps", &[32, 64, 8]),
        ]
    };
    let tensors = [&ATTENTION[..], &[("attn_q_norm", &[64]), ("attn_k_norm", &[32])], own].concat();
    let experts = [("expert_count", 8_u32.into()), ("expert_used_count", 2_u32.into())];
    model(architecture, if architecture == "olmo2" { &[] } else { &experts }, layers, &tensors)
        .with_tensor("output_norm.weight", &[64])
}

#[test]
fn norms_stand_behind_or_before() {
    for (architecture, op) in [("olmo2", "glu"), ("olmoe", "moe")] {
        let model = olmo(architecture, 1);
        assert_eq!(Olmo::matches(&model), Some("olmo"));
        let program = Olmo::architecture(&model).unwrap();
        assert_eq!(counts(&program).get(op), Some(&1));
        reads_everything(&model, &program);
        golden(architecture, &program);
    }
}

#[test]
fn three_layers_of_four_slide_in_olmo_3_and_turn_without_scaling() {
    let third = olmo("olmo2", 4)
        .with("{arch}.attention.sliding_window", 1024)
        .with("{arch}.rope.scaling.type", "yarn")
        .with("{arch}.rope.scaling.factor", 8.0)
        .with("{arch}.rope.scaling.original_context_length", 8192);
    let program = Olmo::architecture(&third).unwrap();
    let with = |op: &str, name: &str| {
        let steps = program.steps.iter().filter(|step| step.op == op);
        let has = steps.filter(|step| step.attributes.iter().any(|(key, _)| key == name));
        has.map(|step| step.layer.unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(with("attention", "window"), [0, 1, 2]);
    assert_eq!(with("rope", "scaling"), [3, 3]);
}
