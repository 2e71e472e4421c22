//! StarCoder 2: layer norms and biases.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use gristmill_family_starcoder::StarCoder;
use gristmill_plugin::prelude::*;

#[path = "../../shape.rs"]
mod shape;
#[path = "../../testing.rs"]
mod testing;

use shape::{ATTENTION, model};
use testing::{counts, golden, reads_everything};

#[test]
fn everything_has_a_bias() {
    let own: [(&str, &[u64]); 12] = [
        ("attn_q.bias", &[64]),
        ("attn_k.bias", &[32]),
        ("attn_v.bias", &[32]),
        ("attn_output.bias", &[64]),
        ("attn_norm", &[64]),
        ("attn_norm.bias", &[64]),
        ("ffn_norm", &[64]),
        ("ffn_norm.bias", &[64]),
        ("ffn_up", &[64, 256]),
        ("ffn_up.bias", &[256]),
        ("ffn_down", &[256, 64]),
        ("ffn_down.bias", &[64]),
    ];
    let keys = [("attention.layer_norm_epsilon", 1e-5.into())];
    let model = model("starcoder2", &keys, 1, &[&ATTENTION[..], &own].concat())
        .with_tensor("output_norm.weight", &[64])
        .with_tensor("output_norm.bias", &[64]);
    assert_eq!(StarCoder::matches(&model), Some("starcoder"));
    let program = StarCoder::architecture(&model).unwrap();
    assert_eq!(counts(&program).get("activation"), Some(&1));
    reads_everything(&model, &program);
    golden("starcoder2", &program);
    assert!(StarCoder::speak(&model).unwrap().stops.is_empty());
}
