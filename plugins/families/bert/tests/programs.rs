//! BERT programs: the shape of MiniLM, and what is refused.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use gristmill_family_bert::Bert;
use gristmill_plugin::prelude::*;

#[path = "../../testing.rs"]
mod testing;

use testing::{counts, golden, reads_everything};

/// The shape of all-MiniLM-L6-v2, with this many of its layers.
fn minilm(layers: u32) -> Metadata {
    let (width, ff) = (384, 1536);
    let mut model = Metadata::new("bert")
        .with("{arch}.block_count", layers)
        .with("{arch}.context_length", 512)
        .with("{arch}.embedding_length", 384)
        .with("{arch}.feed_forward_length", 1536)
        .with("{arch}.attention.head_count", 12)
        .with("{arch}.attention.layer_norm_epsilon", 1e-12)
        .with_tensor("token_embd.weight", &[width, 30_522])
        .with_tensor("position_embd.weight", &[width, 512])
        .with_tensor("token_types.weight", &[width, 2])
        .with_tensor("token_embd_norm.weight", &[width])
        .with_tensor("token_embd_norm.bias", &[width]);
    for layer in 0..layers {
        for (name, columns, rows) in [
            ("attn_q", width, width),
            ("attn_k", width, width),
            ("attn_v", width, width),
            ("attn_output", width, width),
            ("ffn_up", width, ff),
            ("ffn_down", ff, width),
        ] {
            model = model
                .with_tensor(&format!("blk.{layer}.{name}.weight"), &[columns, rows])
                .with_tensor(&format!("blk.{layer}.{name}.bias"), &[rows]);
        }
        for name in ["attn_output_norm", "layer_output_norm"] {
            model = model
                .with_tensor(&format!("blk.{layer}.{name}.weight"), &[width])
                .with_tensor(&format!("blk.{layer}.{name}.bias"), &[width]);
        }
    }
    model
}

#[test]
fn a_text_becomes_the_mean_of_its_rows() {
    let model = minilm(1).with("{arch}.pooling_type", 1);
    assert_eq!(Bert::matches(&model), Some("bert"));
    let program = Bert::architecture(&model).unwrap();
    reads_everything(&model, &program);
    golden("minilm", &program);
}

#[test]
fn every_layer_is_there() {
    let model = minilm(6).with("{arch}.pooling_type", 2);
    let program = Bert::architecture(&model).unwrap();
    let counts = counts(&program);
    assert_eq!((counts["attention"], counts["layer-norm"], counts["pool"]), (6, 13, 1));
}

#[test]
fn a_file_without_a_pooling_is_refused() {
    let refused = |model: &Metadata| Bert::architecture(model).unwrap_err().message;
    assert!(refused(&minilm(1)).contains("without bert.pooling_type"));
    assert!(refused(&minilm(1).with("{arch}.pooling_type", 4)).contains("pooling_type 4"));
    assert_eq!(Bert::matches(&Metadata::new("nomic-bert")), None);
}
