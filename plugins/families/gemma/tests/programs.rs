//! Gemma programs and dialects: Gemma 3 270M as its file describes it, and its older siblings.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use gristmill_family_gemma::Gemma;
use gristmill_plugin::prelude::*;

#[path = "../../testing.rs"]
mod testing;

use testing::{counts, golden, reads_everything};

/// Gemma 3 270M as its GGUF file has it, or an older Gemma of the same size, with this many layers.
fn gemma(architecture: &str, layers: u32) -> Metadata {
    let mut model = Metadata::new(architecture)
        .with("{arch}.context_length", 32768)
        .with("{arch}.embedding_length", 640)
        .with("{arch}.block_count", layers)
        .with("{arch}.feed_forward_length", 2048)
        .with("{arch}.attention.head_count", 4)
        .with("{arch}.attention.head_count_kv", 1)
        .with("{arch}.attention.layer_norm_rms_epsilon", 1e-6)
        .with("{arch}.attention.key_length", 256)
        .with("{arch}.attention.value_length", 256)
        .with_tensor("output_norm.weight", &[640])
        .with_tensor("token_embd.weight", &[640, 262_144]);
    if architecture != "gemma" {
        model = model.with("{arch}.attention.sliding_window", 512);
    }
    if architecture == "gemma3" {
        model = model.with("{arch}.rope.freq_base", 1_000_000.0);
    }
    for layer in 0..layers {
        for (stem, shape) in [
            ("attn_k", &[640, 256][..]),
            ("attn_k_norm", &[256]),
            ("attn_norm", &[640]),
            ("attn_output", &[1024, 640]),
            ("attn_q", &[640, 1024]),
            ("attn_q_norm", &[256]),
            ("attn_v", &[640, 256]),
            ("ffn_down", &[2048, 640]),
            ("ffn_gate", &[640, 2048]),
            ("ffn_norm", &[640]),
            ("ffn_up", &[640, 2048]),
            ("post_attention_norm", &[640]),
            ("post_ffw_norm", &[640]),
        ] {
            let head_norm = matches!(stem, "attn_q_norm" | "attn_k_norm");
            let missing = match architecture {
                "gemma" => head_norm || stem.starts_with("post"),
                "gemma2" => head_norm,
                _ => false,
            };
            if !missing {
                model = model.with_tensor(format!("blk.{layer}.{stem}.weight"), shape);
            }
        }
    }
    model
}

/// The layers whose state has no window.
fn global(program: &Program) -> Vec<u32> {
    let windowed = |state: &&gristmill_plugin::family::State| {
        !state.attributes.iter().any(|(name, _)| name == "window")
    };
    program.states.iter().filter(windowed).map(|state| state.layer).collect()
}

fn number(program: &Program, op: &str, name: &str) -> Vec<f64> {
    let steps = program.steps.iter().filter(|step| step.op == op);
    let found = steps.flat_map(|step| &step.attributes).filter(|(key, _)| key == name);
    found
        .map(|(_, attribute)| match attribute {
            Attribute::Float(number) => *number,
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn gemma3_has_five_sliding_layers_to_one_that_sees_everything() {
    let model = gemma("gemma3", 18);
    assert_eq!(Gemma::matches(&model), Some("gemma"));
    let program = Gemma::architecture(&model).unwrap();
    let wanted = [
        ("add", 36),
        ("attention", 18),
        ("embed", 1),
        ("glu", 18),
        ("head", 1),
        ("linear", 126),
        ("rms-norm", 109),
        ("rope", 36),
    ];
    assert_eq!(counts(&program), wanted.into());
    assert_eq!(global(&program), [5, 11, 17]);
    let bases = number(&program, "rope", "base");
    assert_eq!(bases.iter().filter(|base| **base == 1_000_000.0).count(), 6);
    assert_eq!(bases.iter().filter(|base| **base == 10_000.0).count(), 30);
    assert_eq!(number(&program, "attention", "scale"), [1.0 / 16.0; 18]);
    reads_everything(&model, &program);
    golden("gemma3", &Gemma::architecture(&gemma("gemma3", 6)).unwrap());
}

#[test]
fn gemma3_scales_only_positions_that_see_everything() {
    let model = gemma("gemma3", 6)
        .with("{arch}.rope.scaling.type", "linear")
        .with("{arch}.rope.scaling.factor", 8.0);
    let program = Gemma::architecture(&model).unwrap();
    assert_eq!(number(&program, "rope", "factor"), [8.0, 8.0]);
}

#[test]
fn gemma2_has_caps_and_every_other_layer_slides() {
    let model = gemma("gemma2", 4);
    let program = Gemma::architecture(&model).unwrap();
    assert_eq!(global(&program), [1, 3]);
    assert_eq!(number(&program, "attention", "softcap"), [50.0; 4]);
    assert_eq!(number(&program, "head", "softcap"), [30.0]);
    reads_everything(&model, &program);
    golden("gemma2", &Gemma::architecture(&gemma("gemma2", 2)).unwrap());
}

#[test]
fn gemma1_is_plain() {
    let model = gemma("gemma", 1);
    let program = Gemma::architecture(&model).unwrap();
    assert_eq!(global(&program), [0]);
    reads_everything(&model, &program);
    golden("gemma", &program);
}

#[test]
fn the_models_of_27_billion_scale_otherwise() {
    for (architecture, layers) in [("gemma2", 46), ("gemma3", 62)] {
        let program = Gemma::architecture(&gemma(architecture, layers)).unwrap();
        let scale = 1.0 / (640.0_f64 / 4.0).sqrt();
        assert!(number(&program, "attention", "scale").iter().all(|found| *found == scale));
    }
}

#[test]
fn the_template_says_how_it_speaks() {
    let speak = |architecture: &str, template: &str| {
        Gemma::speak(&gemma(architecture, 1).with("tokenizer.chat_template", template)).unwrap()
    };
    let third = speak("gemma3", "{{ first_user_prefix }}<end_of_turn>");
    assert!(third.system_role);
    assert_eq!(third.stops, ["<end_of_turn>"]);
    assert_eq!((third.defaults.temperature, third.defaults.top_k), (Some(1.0), Some(64)));
    let second = speak("gemma2", "{{ raise_exception('System role not supported') }}<end_of_turn>");
    assert!(!second.system_role);
    assert_eq!(second.defaults, Sampling::default());
    let base = Gemma::speak(&gemma("gemma3", 1)).unwrap();
    assert_eq!((base.stops.len(), base.defaults), (0, Sampling::default()));
}
