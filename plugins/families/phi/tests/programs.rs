//! Phi 3 and 4: fused matrices, and both sets of factors.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use gristmill_family_phi::Phi;
use gristmill_plugin::prelude::*;

#[path = "../../shape.rs"]
mod shape;
#[path = "../../testing.rs"]
mod testing;

use shape::{ATTENTION, model};
use testing::{counts, golden, reads_everything};

fn phi() -> Metadata {
    let keys = [("rope.dimension_count", 8_u32.into())];
    let tensors: [(&str, &[u64]); 6] = [
        ("attn_norm", &[64]),
        ("attn_qkv", &[64, 128]),
        ATTENTION[3],
        ("ffn_norm", &[64]),
        ("ffn_up", &[64, 192]),
        ("ffn_down", &[96, 64]),
    ];
    model("phi3", &keys, 1, &tensors)
        .with_tensor("output_norm.weight", &[64])
        .with_tensor("output.weight", &[64, 1000])
}

#[test]
fn one_matrix_is_cut_into_query_key_and_value_and_one_into_gate_and_up() {
    assert_eq!(Phi::matches(&phi()), Some("phi"));
    let program = Phi::architecture(&phi()).unwrap();
    let counts = counts(&program);
    assert_eq!((counts.get("slice"), counts.get("linear")), (Some(&5), Some(&4)));
    reads_everything(&phi(), &program);
    golden("phi3", &program);
}

#[test]
fn a_long_context_has_factors_of_its_own() {
    let long = phi()
        .with("{arch}.rope.scaling.original_context_length", 2048)
        .with("{arch}.rope.scaling.attn_factor", 1.25)
        .with_tensor("rope_factors_long.weight", &[4])
        .with_tensor("rope_factors_short.weight", &[4]);
    let program = Phi::architecture(&long).unwrap();
    reads_everything(&long, &program);
    let rope = program.steps.iter().find(|step| step.op == "rope").unwrap();
    for wanted in [
        ("factors".to_owned(), Attribute::Tensor("rope_factors_short.weight".into())),
        ("long-factors".to_owned(), Attribute::Tensor("rope_factors_long.weight".into())),
        ("original-context".to_owned(), Attribute::Int(2048)),
        ("attention-factor".to_owned(), Attribute::Float(1.25)),
    ] {
        assert!(rope.attributes.contains(&wanted), "{wanted:?} in {:?}", rope.attributes);
    }
}

#[test]
fn phi_4_mini_calls_by_a_list() {
    let speak =
        |template: &str| Phi::speak(&phi().with("tokenizer.chat_template", template)).unwrap();
    let mini = speak("<|tool|>{{ tools }}<|/tool|><|end|>");
    assert_eq!(mini.tools.unwrap().open, "<|tool_call|>");
    assert_eq!(mini.stops, ["<|end|>"]);
    assert_eq!(speak("<|im_end|>").tools, None);
}
