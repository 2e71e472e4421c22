//! Made-up metadata for the tests of a family: keys and tensors by name, one layer after another.

use gristmill_plugin::family::{Metadata, Value};

/// A model of this architecture, 64 wide, with four heads of 16 and two for keys and values, of
/// `layers` layers with these tensors each.
pub(crate) fn model(
    architecture: &str,
    keys: &[(&str, Value)],
    layers: u32,
    tensors: &[(&str, &[u64])],
) -> Metadata {
    let mut model = Metadata::new(architecture)
        .with("{arch}.block_count", layers)
        .with("{arch}.context_length", 4096)
        .with("{arch}.embedding_length", 64)
        .with("{arch}.attention.head_count", 4)
        .with("{arch}.attention.head_count_kv", 2)
        .with("{arch}.attention.layer_norm_rms_epsilon", 1e-6)
        .with_tensor("token_embd.weight", &[64, 1000]);
    for (key, value) in keys {
        model = model.with(&format!("{{arch}}.{key}"), value.clone());
    }
    for layer in 0..layers {
        for (name, shape) in tensors {
            let part = if name.contains('.') { "" } else { ".weight" };
            model = model.with_tensor(format!("blk.{layer}.{name}{part}"), shape);
        }
    }
    model
}

/// The usual attention's tensors.
pub(crate) const ATTENTION: [(&str, &[u64]); 4] = [
    ("attn_q", &[64, 64]),
    ("attn_k", &[64, 32]),
    ("attn_v", &[64, 32]),
    ("attn_output", &[64, 64]),
];
