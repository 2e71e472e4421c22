//! The builder's larger parts: feed-forward by what a layer has, states that are carried, settings
//! from the file.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use gristmill_plugin::{family::Value, prelude::*};

fn model(tensors: &[(&str, &[u64])]) -> Metadata {
    let mut model = Metadata::new("made")
        .with("{arch}.block_count", 1)
        .with("{arch}.context_length", 512)
        .with("{arch}.embedding_length", 64)
        .with("{arch}.attention.head_count", 4)
        .with("{arch}.expert_count", 8)
        .with("{arch}.expert_used_count", 2)
        .with_tensor("token_embd.weight", &[64, 100]);
    for (name, shape) in tensors {
        model = model.with_tensor(format!("blk.0.{name}"), shape);
    }
    model
}

/// The steps of a feed-forward, by their names.
fn feed(tensors: &[(&str, &[u64])]) -> Vec<String> {
    let model = model(tensors);
    let p = Builder::new(&model).unwrap();
    let x = p.embed("token_embd");
    let moe = Moe::of(&model).unwrap();
    let y = p.layer(0).feed_forward(x, moe.as_ref(), Activation::Silu);
    let program = p.finish(p.head(y, "output", None)).unwrap();
    let inner = &program.steps[1..program.steps.len() - 1];
    inner.iter().map(|step| step.op.clone()).collect()
}

const EXPERTS: [(&str, &[u64]); 4] = [
    ("ffn_gate_inp.weight", &[64, 8]),
    ("ffn_gate_exps.weight", &[64, 32, 8]),
    ("ffn_up_exps.weight", &[64, 32, 8]),
    ("ffn_down_exps.weight", &[32, 64, 8]),
];
const SHARED: [(&str, &[u64]); 3] = [
    ("ffn_gate_shexp.weight", &[64, 32]),
    ("ffn_up_shexp.weight", &[64, 32]),
    ("ffn_down_shexp.weight", &[32, 64]),
];

#[test]
fn a_feed_forward_is_what_the_layer_has() {
    let split: [(&str, &[u64]); 3] = [
        ("ffn_gate.weight", &[64, 96]),
        ("ffn_up.weight", &[64, 96]),
        ("ffn_down.weight", &[96, 64]),
    ];
    assert_eq!(feed(&split), ["linear", "linear", "glu", "linear"]);
    let fused: [(&str, &[u64]); 2] =
        [("ffn_up.weight", &[64, 192]), ("ffn_down.weight", &[96, 64])];
    assert_eq!(feed(&fused), ["linear", "slice", "slice", "glu", "linear"]);
    assert_eq!(feed(&EXPERTS), ["moe"]);
    let shared = [&EXPERTS[..], &SHARED].concat();
    assert_eq!(feed(&shared), ["moe", "linear", "linear", "glu", "linear", "add"]);
    let gated = [&shared[..], &[("ffn_gate_inp_shexp.weight", &[64])]].concat();
    assert_eq!(feed(&gated), ["moe", "linear", "linear", "glu", "linear", "linear", "glu", "add"]);
}

#[test]
fn experts_are_scored_as_the_file_says() {
    let of = |key: &str, value: Value| Moe::of(&model(&[]).with(key, value));
    let number = |number: u32| Value::from(number);
    let usual = Moe::of(&model(&[])).unwrap().unwrap();
    assert_eq!((usual.scoring, usual.normalize, usual.groups), (Scoring::Softmax, true, 1));
    for (function, scoring) in [(2, Scoring::Sigmoid), (3, Scoring::Chosen)] {
        let moe = of("{arch}.expert_gating_func", number(function)).unwrap().unwrap();
        assert_eq!(moe.scoring, scoring);
    }
    let error = of("{arch}.expert_gating_func", number(9)).unwrap_err();
    assert_eq!(error.code, "unsupported");
    let grouped = of("{arch}.expert_group_count", number(4)).unwrap().unwrap();
    assert_eq!((grouped.groups, grouped.active_groups), (4, 4));
    assert!(!of("{arch}.expert_weights_norm", false.into()).unwrap().unwrap().normalize);
    assert!(of("{arch}.expert_count", number(0)).unwrap().is_none());
}

#[test]
fn steps_with_a_state_bring_it_along() {
    let model = model(&[
        ("conv.weight", &[4, 64]),
        ("ssm_a", &[4]),
        ("ssm_dt.bias", &[4]),
        ("gate.weight", &[64, 4]),
    ]);
    let p = Builder::new(&model).unwrap();
    let l = p.layer(0);
    let x = l.conv(p.embed("token_embd"), "conv", Activation::Silu);
    let (q, k) = (l.slice(x, 0, 32), l.unit_norm(l.slice(x, 32, 32), 1e-6, 2, 16));
    let gate = l.linear(x, "gate");
    let rule =
        DeltaRule { heads: 4, key_heads: 2, key_dim: 16, value_dim: 16, scale: 0.25, tiled: true };
    let y = l.delta_rule([q, k, x, gate, gate], &rule);
    let program = p.finish(p.head(y, "output", None)).unwrap();
    let listing = program.to_string();
    for line in [
        "state conv layer=0 width=64 kernel=4",
        "state recurrent layer=0 heads=4 key-dim=16 value-dim=16",
        "%1 = conv %0 weight=blk.0.conv.weight activation=silu",
        "rate=blk.0.ssm_a bias=blk.0.ssm_dt.bias scale=0.25 sharing=turns",
    ] {
        assert!(listing.contains(line), "no {line:?} in\n{listing}");
    }
    let y = p.conv(y, "conv", Activation::Silu);
    assert_eq!(p.finish(p.head(y, "output", None)).unwrap_err().code, "invalid-request");
}

#[test]
fn layers_may_differ_in_a_number() {
    let model = model(&[]).with("{arch}.attention.head_count_kv", Value::Ints(vec![2, 4]));
    assert_eq!(Attention::at(&model, 0).unwrap().kv_heads, 2);
    assert_eq!(Attention::at(&model, 1).unwrap().kv_heads, 4);
    let error = Attention::at(&model, 2).unwrap_err();
    assert!(error.message.contains("made.attention.head_count_kv"), "{}", error.message);
}

#[test]
fn a_long_context_needs_the_trained_one() {
    let long = model(&[])
        .with_tensor("rope_factors_long.weight", &[8])
        .with_tensor("rope_factors_short.weight", &[8]);
    let error = Rope::of(&long, Layout::Half, 16).unwrap_err();
    assert!(error.message.contains("original_context_length"), "{}", error.message);
    let rope =
        Rope::of(&long.with("{arch}.rope.scaling.original_context_length", 64), Layout::Half, 16)
            .unwrap();
    assert_eq!(rope.long_factors, Some(("rope_factors_long.weight".into(), 64)));
    assert_eq!(rope.factors.as_deref(), Some("rope_factors_short.weight"));
}
