//! Command R and R7B: side by side, and what is refused.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use gristmill_family_cohere::Cohere;
use gristmill_plugin::prelude::*;

#[path = "../../shape.rs"]
mod shape;
#[path = "../../testing.rs"]
mod testing;

use shape::{ATTENTION, model};
use testing::{counts, golden, reads_everything};

fn cohere(architecture: &str, layers: u32) -> Metadata {
    let own: [(&str, &[u64]); 4] = [
        ("attn_norm", &[64]),
        ("ffn_gate", &[64, 96]),
        ("ffn_up", &[64, 96]),
        ("ffn_down", &[96, 64]),
    ];
    let keys = [
        ("attention.layer_norm_epsilon", 1e-5.into()),
        ("logit_scale", 0.0625.into()),
        ("attention.sliding_window", 512_u32.into()),
    ];
    model(architecture, &keys, layers, &[&ATTENTION[..], &own].concat())
        .with_tensor("output_norm.weight", &[64])
}

#[test]
fn attention_and_feed_forward_read_the_same_norm() {
    for (architecture, layers) in [("command-r", 1), ("cohere2", 4)] {
        let model = cohere(architecture, layers);
        assert_eq!(Cohere::matches(&model), Some("cohere"));
        let program = Cohere::architecture(&model).unwrap();
        let norms = usize::try_from(layers).unwrap() + 1;
        assert_eq!(counts(&program).get("layer-norm"), Some(&norms));
        reads_everything(&model, &program);
        golden(architecture, &program);
    }
    // The fourth layer of Command R7B does not turn.
    let program = Cohere::architecture(&cohere("cohere2", 4)).unwrap();
    assert_eq!(counts(&program).get("rope"), Some(&6));
}

#[test]
fn norms_of_heads_are_refused_by_name() {
    let plus = cohere("command-r", 1).with_tensor("blk.0.attn_q_norm.weight", &[16, 4]);
    let error = Cohere::architecture(&plus).unwrap_err();
    assert_eq!(error.code, "unsupported");
    assert!(error.message.contains("attn_q_norm"), "{}", error.message);
}

#[test]
fn the_template_says_how_it_speaks() {
    let template = "<|START_THINKING|><|START_ACTION|><|END_OF_TURN_TOKEN|>";
    let model = cohere("cohere2", 1).with("tokenizer.chat_template", template);
    let dialect = Cohere::speak(&model).unwrap();
    assert_eq!(dialect.tools.unwrap().name_key, "tool_name");
    assert_eq!(dialect.reasoning.unwrap().close, "<|END_THINKING|>");
}
