//! Llama programs and dialects: SmolLM2 as its file describes it, and what other members add.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use gristmill_family_llama::Llama;
use gristmill_plugin::prelude::*;

#[path = "../../testing.rs"]
mod testing;

use testing::{counts, golden, reads_everything};

/// SmolLM2-135M-Instruct, as its GGUF file has it, with this many of its 30 layers.
fn smollm2(layers: u32) -> Metadata {
    let mut model = Metadata::new("llama")
        .with("{arch}.block_count", layers)
        .with("{arch}.context_length", 8192)
        .with("{arch}.embedding_length", 576)
        .with("{arch}.feed_forward_length", 1536)
        .with("{arch}.attention.head_count", 9)
        .with("{arch}.attention.head_count_kv", 3)
        .with("{arch}.rope.freq_base", 100_000.0)
        .with("{arch}.attention.layer_norm_rms_epsilon", 1e-5)
        .with("{arch}.rope.dimension_count", 64)
        .with("tokenizer.chat_template", "{{'<|im_start|>' + message['role'] + '<|im_end|>'}}")
        .with_tensor("token_embd.weight", &[576, 49152]);
    for layer in 0..layers {
        for (stem, shape) in [
            ("attn_norm", &[576][..]),
            ("ffn_down", &[1536, 576]),
            ("ffn_gate", &[576, 1536]),
            ("ffn_up", &[576, 1536]),
            ("ffn_norm", &[576]),
            ("attn_k", &[576, 192]),
            ("attn_output", &[576, 576]),
            ("attn_q", &[576, 576]),
            ("attn_v", &[576, 192]),
        ] {
            model = model.with_tensor(format!("blk.{layer}.{stem}.weight"), shape);
        }
    }
    model.with_tensor("output_norm.weight", &[576])
}

fn without(mut model: Metadata, name: &str) -> Metadata {
    model.tensors.retain(|tensor| tensor.name != name);
    model.keys.retain(|(key, _)| key != name);
    model
}

fn attribute<'p>(program: &'p Program, op: &str, name: &str) -> Vec<&'p Attribute> {
    let steps = program.steps.iter().filter(|step| step.op == op);
    steps.flat_map(|step| &step.attributes).filter(|(key, _)| key == name).map(|(_, a)| a).collect()
}

#[test]
fn smollm2_is_thirty_plain_layers() {
    let model = smollm2(30);
    let program = Llama::architecture(&model).unwrap();
    let wanted = [
        ("add", 60),
        ("attention", 30),
        ("embed", 1),
        ("glu", 30),
        ("head", 1),
        ("linear", 210),
        ("rms-norm", 61),
        ("rope", 60),
    ];
    assert_eq!(counts(&program), wanted.into());
    assert_eq!(program.states.len(), 30);
    assert_eq!((program.vocabulary, program.width, program.context_native), (49152, 576, 8192));
    reads_everything(&model, &program);
    golden("smollm2", &Llama::architecture(&smollm2(2)).unwrap());
}

#[test]
fn what_other_members_have_is_read_off_the_file() {
    // Llama 3.1 and later: frequency factors. Llama: an output matrix. Some: biases.
    let model = smollm2(1)
        .with_tensor("rope_freqs.weight", &[32])
        .with_tensor("output.weight", &[576, 49152])
        .with_tensor("blk.0.attn_q.bias", &[576]);
    let program = Llama::architecture(&model).unwrap();
    reads_everything(&model, &program);
    let freqs = Attribute::Tensor("rope_freqs.weight".into());
    assert_eq!(attribute(&program, "rope", "factors"), [&freqs, &freqs]);
    let head = Attribute::Tensor("output.weight".into());
    assert_eq!(attribute(&program, "head", "weight"), [&head]);

    // Mistral 0.1: a window; Mistral Nemo: heads that do not fill the width.
    let model = smollm2(1).with("llama.attention.sliding_window", 4096);
    let program = Llama::architecture(&model).unwrap();
    assert_eq!(attribute(&program, "attention", "window"), [&Attribute::Int(4096)]);
    assert!(program.states[0].attributes.contains(&("window".into(), Attribute::Int(4096))));
    let model =
        smollm2(1).with("llama.attention.key_length", 32).with("llama.rope.dimension_count", 32);
    let program = Llama::architecture(&model).unwrap();
    assert_eq!(attribute(&program, "attention", "head-dim"), [&Attribute::Int(32)]);

    // YaRN, with what it does to the logits.
    let model = smollm2(1)
        .with("llama.rope.scaling.type", "yarn")
        .with("llama.rope.scaling.factor", 4.0)
        .with("llama.rope.scaling.original_context_length", 2048);
    let program = Llama::architecture(&model).unwrap();
    // The host multiplies by 1 + 0.1 ln 4 of its own; the file may say more.
    let one = Attribute::Float(1.0);
    assert_eq!(attribute(&program, "rope", "attention-factor"), [&one, &one]);
    let program = Llama::architecture(&model.with("llama.rope.scaling.attn_factor", 0.5)).unwrap();
    let half = Attribute::Float(0.5);
    assert_eq!(attribute(&program, "rope", "attention-factor"), [&half, &half]);
}

#[test]
fn others_of_the_block_differ_in_little() {
    let named = |architecture: &str| {
        let mut model = smollm2(4);
        for (key, _) in &mut model.keys {
            *key = key.replace("llama.", &format!("{architecture}."));
        }
        model.architecture = architecture.into();
        model
    };
    for (architecture, ropes) in
        [("smollm3", 6), ("mistral3", 8), ("internlm2", 8), ("ernie4_5", 8)]
    {
        let model = named(architecture);
        assert_eq!(Llama::matches(&model), Some("llama"));
        let program = Llama::architecture(&model).unwrap();
        assert_eq!(counts(&program).get("rope"), Some(&ropes), "{architecture}");
    }
    // Ministral 3: queries grow, and scores less than YaRN has it.
    let model = named("mistral3")
        .with("{arch}.attention.temperature_scale", 0.1)
        .with("{arch}.rope.scaling.type", "yarn")
        .with("{arch}.rope.scaling.factor", 16.0)
        .with("{arch}.rope.scaling.original_context_length", 16384)
        .with("{arch}.rope.scaling.yarn_log_multiplier", 1.0);
    let program = Llama::architecture(&model).unwrap();
    assert_eq!(counts(&program).get("position-scale"), Some(&4));
    assert_eq!(attribute(&program, "position-scale", "length")[0], &Attribute::Int(16384));
    let Attribute::Float(factor) = attribute(&program, "rope", "attention-factor")[0] else {
        panic!("a number")
    };
    assert!((factor * (1.0 + 0.1 * 16.0_f64.ln()) - 1.0).abs() < 1e-12);
}

#[test]
fn mixtral_has_experts() {
    let mut model = smollm2(1).with("llama.expert_count", 8).with("llama.expert_used_count", 2);
    model
        .tensors
        .retain(|tensor| !tensor.name.starts_with("blk.0.ffn") || tensor.name.contains("norm"));
    let model = model
        .with_tensor("blk.0.ffn_gate_inp.weight", &[576, 8])
        .with_tensor("blk.0.ffn_gate_exps.weight", &[576, 1536, 8])
        .with_tensor("blk.0.ffn_up_exps.weight", &[576, 1536, 8])
        .with_tensor("blk.0.ffn_down_exps.weight", &[1536, 576, 8]);
    let program = Llama::architecture(&model).unwrap();
    reads_everything(&model, &program);
    golden("mixtral", &program);
}

#[test]
fn what_is_missing_or_wrong_is_named() {
    let lacks = [
        ("llama.block_count", "the model's metadata lacks llama.block_count"),
        ("llama.attention.head_count", "the model's metadata lacks llama.attention.head_count"),
        ("llama.context_length", "the model's metadata lacks llama.context_length"),
        (
            "blk.1.attn_v.weight",
            "the model has no tensor blk.1.attn_v.weight, which architecture llama needs",
        ),
    ];
    for (name, why) in lacks {
        let error = Llama::architecture(&without(smollm2(2), name)).unwrap_err();
        assert_eq!((&*error.code, &*error.message), ("invalid-request", why));
    }
    let wrong = [
        (
            smollm2(1).with("llama.block_count", 4_000_000),
            "llama.block_count should be 1 to 1024, found 4000000",
        ),
        (
            smollm2(1).with("llama.block_count", "two"),
            "llama.block_count should be a whole number, found a text",
        ),
        (
            smollm2(1).with("llama.attention.head_count", 0),
            "0 attention heads cannot share 3 key and value heads",
        ),
        (
            smollm2(1).with("llama.rope.dimension_count", 65),
            "llama.rope.dimension_count should be even and at most 64, found 65",
        ),
        (
            smollm2(1).with("llama.expert_count", 2).with("llama.expert_used_count", 3),
            "3 of 2 experts cannot be active",
        ),
    ];
    for (model, why) in wrong {
        let error = Llama::architecture(&model).unwrap_err();
        assert_eq!((&*error.code, &*error.message), ("invalid-request", why));
    }
    let error =
        Llama::architecture(&smollm2(1).with("llama.rope.scaling.type", "dynamic")).unwrap_err();
    assert_eq!(error.code, "unsupported");
}

#[test]
fn the_template_says_how_it_speaks() {
    assert_eq!(Llama::matches(&smollm2(1)), Some("llama"));
    assert_eq!(Llama::matches(&Metadata::new("gpt2")), None);
    let speak = |template: &str| {
        Llama::speak(&smollm2(1).with("tokenizer.chat_template", template)).unwrap()
    };
    let smol = Llama::speak(&smollm2(1)).unwrap();
    assert_eq!(
        (smol.stops, smol.tools, smol.defaults),
        (vec!["<|im_end|>".into()], None, Sampling::default())
    );

    let llama3 = speak(
        "<|start_header_id|>{\"name\": function name, \"parameters\": dictionary of argument name \
         and its value}<|eot_id|><|eom_id|>",
    );
    assert_eq!(llama3.stops, ["<|eot_id|>", "<|eom_id|>"]);
    assert_eq!(llama3.tools, Some(ToolFormat::new("", "", "json", "name", "parameters")));
    assert_eq!((llama3.defaults.temperature, llama3.defaults.top_p), (Some(0.6), Some(0.9)));

    assert_eq!(speak("[TOOL_CALLS] [{").tools.unwrap().shape, "json-list");
    for (template, id) in
        [("[TOOL_CALLS]name[ARGS]{", ""), ("[TOOL_CALLS]name[CALL_ID]id[ARGS]{", "[CALL_ID]")]
    {
        let tools = speak(template).tools.unwrap();
        assert_eq!((&*tools.shape, &*tools.name_key), ("mistral", id));
        assert_eq!((&*tools.open, &*tools.arguments_key), ("[TOOL_CALLS]", "[ARGS]"));
    }
    let distilled = speak("{{'<｜Assistant｜><think>\\n'}}");
    assert!(distilled.reasoning.is_some_and(|span| span.open_at_start));

    let own = Llama::speak(&smollm2(1).with("general.sampling.temp", 0.25)).unwrap();
    assert_eq!(own.defaults.temperature, Some(0.25));
}
