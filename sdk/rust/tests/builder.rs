//! The builder: numbering, names of tensors, attributes, and the errors that come out at the end.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use gristmill_plugin::{extra, prelude::*};

fn model(layers: u32) -> Metadata {
    Metadata::new("toy")
        .with("{arch}.block_count", layers)
        .with("{arch}.context_length", 512)
        .with("{arch}.embedding_length", 64)
        .with("{arch}.attention.head_count", 4)
        .with_tensor("token_embd.weight", &[64, 1000])
}

fn attributes(program: &Program, step: usize) -> Vec<&str> {
    program.steps[step].attributes.iter().map(|(name, _)| name.as_str()).collect()
}

#[test]
fn values_are_numbered_as_they_arise_and_steps_know_their_layer() {
    let model = model(1).with_tensor("blk.0.a.weight", &[64, 64]);
    let p = Builder::new(&model).unwrap();
    let x = p.embed("token_embd");
    let l = p.layer(0);
    let x = l.add(x, l.activation(l.linear(x, "a"), Activation::Relu));
    let program = p.finish(p.head(x, "output", None)).unwrap();
    let seen: Vec<_> = program
        .steps
        .iter()
        .map(|step| (&*step.op, step.layer, step.inputs.clone(), step.outputs.clone()))
        .collect();
    assert_eq!(
        seen,
        [
            ("embed", None, vec![], vec![0]),
            ("linear", Some(0), vec![0], vec![1]),
            ("activation", Some(0), vec![1], vec![2]),
            ("add", Some(0), vec![0, 2], vec![3]),
            ("head", None, vec![3], vec![4]),
        ]
    );
    assert_eq!(program.result_value, 4);
    assert_eq!((program.vocabulary, program.width, program.context_native), (1000, 64, 512));
}

#[test]
fn biases_and_fused_projections_are_taken_from_the_file() {
    let attention = Attention { kv_heads: 2, ..Attention::of(&model(2)).unwrap() };
    let model = model(2)
        .with_tensor("blk.0.attn_qkv.weight", &[64, 128])
        .with_tensor("blk.0.attn_qkv.bias", &[128])
        .with_tensor("blk.1.attn_q.weight", &[64, 64])
        .with_tensor("blk.1.attn_k.weight", &[64, 32])
        .with_tensor("blk.1.attn_v.weight", &[64, 32]);
    let p = Builder::new(&model).unwrap();
    let x = p.embed("token_embd");
    let (_, _, v) = p.layer(0).qkv(x, &attention);
    let _ = p.layer(1).qkv(v, &attention);
    let program = p.finish(v).unwrap();
    let listing = program.to_string();
    let lines: Vec<&str> = listing.lines().skip(2).collect();
    assert_eq!(
        lines,
        [
            "%1 = linear %0 weight=blk.0.attn_qkv.weight bias=blk.0.attn_qkv.bias",
            "%2 = slice %1 start=0 length=64",
            "%3 = slice %1 start=64 length=32",
            "%4 = slice %1 start=96 length=32",
            "%5 = linear %4 weight=blk.1.attn_q.weight",
            "%6 = linear %4 weight=blk.1.attn_k.weight",
            "%7 = linear %4 weight=blk.1.attn_v.weight",
        ]
    );
}

#[test]
fn attention_and_its_state_agree() {
    let model = model(1).with_tensor("blk.0.attn_sinks.weight", &[4]);
    let attention = Attention {
        causal: false,
        softcap: Some(30.0),
        sinks: Some("attn_sinks".to_owned()),
        ..Attention::of(&model).unwrap().windowed(Some(128))
    };
    let p = Builder::new(&model).unwrap();
    let x = p.embed("token_embd");
    let program = p.finish(p.layer(0).attention(x, x, x, &attention)).unwrap();
    let of_state: Vec<_> =
        program.states[0].attributes.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(of_state, ["kv-heads", "head-dim", "window"]);
    assert_eq!(
        attributes(&program, 1),
        ["heads", "kv-heads", "head-dim", "scale", "causal", "window", "softcap", "sinks"]
    );
    assert_eq!(Attention::of(&model).unwrap().windowed(Some(0)).window, None);

    let p = Builder::new(&model).unwrap();
    let x = p.embed("token_embd");
    let error = p.finish(p.attention(x, x, x, &attention)).unwrap_err();
    assert_eq!(error.message, "attention must be inside a layer");
}

#[test]
fn attributes_at_their_default_are_not_written() {
    let model = model(1).with_tensor("n.weight", &[64]).with_tensor("n.bias", &[64]);
    let rope = Rope::of(&model, Layout::Half, 16).unwrap();
    let p = Builder::new(&model).unwrap();
    let x = p.layer_norm(p.embed_scaled("token_embd", 1.0), "n", 1e-5);
    let x =
        p.rope(p.rope(x, 4, &rope), 4, &Rope { scaling: Scaling::Linear { factor: 2.0 }, ..rope });
    p.extra("unused", "left.weight");
    let program = p.finish(p.scale(p.pool(x, "mean", true), 0.5)).unwrap();
    assert_eq!(attributes(&program, 0), ["weight"]);
    assert_eq!(attributes(&program, 1), ["weight", "bias", "eps"]);
    assert_eq!(attributes(&program, 2), ["heads", "head-dim", "dims", "layout", "base"]);
    assert_eq!(attributes(&program, 3)[5..], ["scaling", "factor"]);
    assert_eq!(program.extras, [("unused".to_owned(), "left.weight".to_owned())]);
}

#[test]
fn the_first_thing_that_is_missing_comes_out_of_finish() {
    let model = model(2);
    let p = Builder::new(&model).unwrap();
    let x = p.embed("token_embd");
    let x = p.layer(1).linear(x, "ffn_up");
    let x = p.rms_norm(x, "output_norm", 1e-5);
    let error = p.finish(p.head(x, "output", None)).unwrap_err();
    assert_eq!(error.code, "invalid-request");
    assert_eq!(extra(&error.details, "tensor"), Some("blk.1.ffn_up.weight"));
}

#[test]
fn getters_name_the_key_and_what_they_found() {
    let model = model(1)
        .with("toy.flag", true)
        .with("toy.negative", f64::NAN)
        .with("toy.list", gristmill_plugin::family::Value::Ints(vec![1, 2]));
    assert_eq!(model.u32("{arch}.block_count").unwrap(), 1);
    assert_eq!(model.f64("toy.block_count").unwrap(), 1.0);
    assert_eq!(model.find_flag("toy.flag").unwrap(), Some(true));
    assert_eq!(model.find_text("toy.name").unwrap(), None);
    assert_eq!(model.template().unwrap(), "");
    for (error, message) in [
        (model.u32("{arch}.depth").unwrap_err(), "the model's metadata lacks toy.depth"),
        (
            model.f64("toy.negative").unwrap_err(),
            "toy.negative should be a finite number, found NaN",
        ),
        (
            model.u32("toy.list").unwrap_err(),
            "toy.list should be a whole number, found a list of 2 whole numbers",
        ),
        (
            model.find_text("toy.flag").map(|_| ()).unwrap_err(),
            "toy.flag should be a text, found true",
        ),
    ] {
        assert_eq!(error.message, message);
        assert!(extra(&error.details, "field").is_some_and(|field| field.starts_with("toy.")));
    }
    let negative = Metadata::new("toy").with("n", gristmill_plugin::family::Value::Int(-1));
    assert_eq!(
        negative.u32("n").unwrap_err().message,
        "n should be a number from 0 to 4294967295, found -1"
    );
}

#[test]
fn a_back_end_that_only_embeds_refuses_the_rest_by_name() {
    struct Embeds;
    impl Backend for Embeds {
        fn describe() -> Descriptor {
            Descriptor::new("e", "e", "1", "library")
        }
        fn models() -> Result<Vec<ModelInfo>> {
            Ok(vec![])
        }
    }
    let request = Request::new("m", Prompt::Text("hi".to_owned()));
    let error = Embeds::generate(request).err().unwrap();
    assert_eq!(
        (&*error.code, &*error.message),
        ("unsupported", "this back-end does not offer generation (model m)")
    );
    assert_eq!(Embeds::tokenize("m", "a", true).unwrap_err().code, "unsupported");
    assert!(Embeds::health().unwrap().ready);
}

#[test]
fn sampling_in_the_file_wins_over_the_family_s() {
    let model = model(1).with("general.sampling.temp", 0.5).with("general.sampling.top_k", 7);
    let usual = Sampling { temperature: Some(1.0), top_p: Some(0.9), ..Sampling::default() };
    let both = Sampling::of(&model).unwrap().or(usual);
    assert_eq!((both.temperature, both.top_p, both.top_k), (Some(0.5), Some(0.9), Some(7)));
}
