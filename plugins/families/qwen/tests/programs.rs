//! Qwen programs and dialects: Qwen 2.5, Qwen 3, its experts, and what is refused.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use gristmill_family_qwen::Qwen;
use gristmill_plugin::prelude::*;

#[path = "../../testing.rs"]
mod testing;

use testing::{counts, golden, reads_everything};

/// The shape of Qwen 2.5 0.5B or Qwen 3 0.6B, with this many of its layers.
fn qwen(architecture: &str, layers: u32) -> Metadata {
    let third = architecture.starts_with("qwen3");
    let (width, heads, kv, head) = if third { (1024, 16, 8, 128) } else { (896, 14, 2, 64) };
    let ff = if third { 3072 } else { 4864 };
    let mut model = Metadata::new(architecture)
        .with("{arch}.block_count", layers)
        .with("{arch}.context_length", if third { 40960 } else { 32768 })
        .with("{arch}.embedding_length", width)
        .with("{arch}.attention.head_count", heads)
        .with("{arch}.attention.head_count_kv", kv)
        .with("{arch}.rope.freq_base", 1_000_000.0)
        .with("{arch}.attention.layer_norm_rms_epsilon", 1e-6)
        .with_tensor("token_embd.weight", &[width.into(), 151_936])
        .with_tensor("output_norm.weight", &[width.into()]);
    if third {
        model = model
            .with("{arch}.attention.key_length", head)
            .with("{arch}.attention.value_length", head);
    }
    let (width, q, kv) = (u64::from(width), u64::from(heads * head), u64::from(kv * head));
    for layer in 0..layers {
        let mut tensors = vec![
            ("attn_norm.weight", vec![width]),
            ("attn_q.weight", vec![width, q]),
            ("attn_k.weight", vec![width, kv]),
            ("attn_v.weight", vec![width, kv]),
            ("attn_output.weight", vec![q, width]),
            ("ffn_norm.weight", vec![width]),
        ];
        if third {
            let head = u64::from(head);
            tensors
                .extend([("attn_q_norm.weight", vec![head]), ("attn_k_norm.weight", vec![head])]);
        } else {
            tensors.extend([
                ("attn_q.bias", vec![q]),
                ("attn_k.bias", vec![kv]),
                ("attn_v.bias", vec![kv]),
            ]);
        }
        if architecture == "qwen2moe" {
            tensors.extend([
                ("ffn_gate_inp_shexp.weight", vec![width]),
                ("ffn_gate_shexp.weight", vec![width, ff]),
                ("ffn_up_shexp.weight", vec![width, ff]),
                ("ffn_down_shexp.weight", vec![ff, width]),
            ]);
        }
        if architecture.ends_with("moe") {
            tensors.extend([
                ("ffn_gate_inp.weight", vec![width, 128]),
                ("ffn_gate_exps.weight", vec![width, 768, 128]),
                ("ffn_up_exps.weight", vec![width, 768, 128]),
                ("ffn_down_exps.weight", vec![768, width, 128]),
            ]);
        } else {
            tensors.extend([
                ("ffn_gate.weight", vec![width, ff]),
                ("ffn_up.weight", vec![width, ff]),
                ("ffn_down.weight", vec![ff, width]),
            ]);
        }
        for (name, shape) in tensors {
            model = model.with_tensor(format!("blk.{layer}.{name}"), &shape);
        }
    }
    if architecture.ends_with("moe") {
        model = model.with("{arch}.expert_count", 128).with("{arch}.expert_used_count", 8);
    }
    model
}

#[test]
fn each_generation_is_its_program() {
    for (architecture, norms, feed) in [
        ("qwen2", 3, ("glu", 1)),
        ("qwen2moe", 3, ("glu", 2)),
        ("qwen3", 5, ("glu", 1)),
        ("qwen3moe", 5, ("moe", 1)),
    ] {
        let model = qwen(architecture, 1);
        assert_eq!(Qwen::matches(&model), Some("qwen"));
        let program = Qwen::architecture(&model).unwrap();
        let counts = counts(&program);
        assert_eq!(counts.get("rms-norm"), Some(&norms), "{architecture}");
        assert_eq!(counts.get(feed.0), Some(&feed.1), "{architecture}");
        reads_everything(&model, &program);
        golden(architecture, &program);
    }
    assert_eq!(Qwen::architecture(&qwen("qwen3", 28)).unwrap().steps.len(), 28 * 17 + 3);
}

#[test]
fn seed_oss_has_a_norm_by_another_name() {
    let mut model = qwen("qwen2", 1);
    for (key, _) in &mut model.keys {
        *key = key.replace("qwen2.", "seed_oss.");
    }
    for tensor in &mut model.tensors {
        tensor.name = tensor.name.replace("ffn_norm", "post_attention_norm");
    }
    model.architecture = "seed_oss".into();
    let program = Qwen::architecture(&model).unwrap();
    reads_everything(&model, &program);
    let template = "<seed:think></seed:think><seed:tool_call><function=name><seed:eos>";
    let dialect = Qwen::speak(&model.with("tokenizer.chat_template", template)).unwrap();
    assert_eq!(dialect.reasoning.unwrap().close, "</seed:think>");
    let tools =
        ToolFormat::new("<seed:tool_call>", "</seed:tool_call>", "xml", "function", "parameter");
    assert_eq!(dialect.tools, Some(tools));
    assert_eq!(dialect.stops, ["<seed:eos>"]);
}

#[test]
fn what_it_does_not_define_is_refused_by_name() {
    assert_eq!(Qwen::matches(&Metadata::new("qwen3next")), None);

    let mut model = qwen("qwen3", 1);
    model.tensors.retain(|tensor| !tensor.name.contains("k_norm"));
    let error = Qwen::architecture(&model).unwrap_err();
    assert_eq!(gristmill_plugin::extra(&error.details, "tensor"), Some("blk.0.attn_k_norm.weight"));
}

#[test]
fn an_embedding_model_says_how_it_pools() {
    let model = qwen("qwen3", 1).with("{arch}.pooling_type", 3);
    let program = Qwen::architecture(&model).unwrap();
    assert_eq!(program.extras, [("pooling".to_owned(), "last".to_owned())]);
    let model = qwen("qwen3", 1).with("{arch}.pooling_type", 4);
    assert_eq!(Qwen::architecture(&model).unwrap_err().code, "unsupported");
}

#[test]
fn the_template_says_how_it_speaks() {
    let speak = |architecture: &str, template: &str| {
        Qwen::speak(&qwen(architecture, 1).with("tokenizer.chat_template", template)).unwrap()
    };
    let hybrid = speak(
        "qwen3",
        "<tool_call>{{'<|im_start|>' + message.role + '\\n<think>\\n'}}{{'<|im_start|>assistant\\n'}}\
         {{'<think>\\n\\n</think>\\n\\n'}}<|im_end|>",
    );
    assert_eq!(hybrid.stops, ["<|im_end|>"]);
    assert_eq!(hybrid.tools, Some(ToolFormat::hermes()));
    assert!(hybrid.reasoning.is_some_and(|span| !span.open_at_start));
    assert_eq!((hybrid.defaults.temperature, hybrid.defaults.top_k), (Some(0.6), Some(20)));

    let thinking = speak("qwen3", "{{'<|im_start|>assistant\\n<think>\\n'}}");
    assert!(thinking.reasoning.is_some_and(|span| span.open_at_start));

    let instruct = speak("qwen2", "You are Qwen, created by Alibaba Cloud.<|im_end|>");
    assert_eq!((instruct.reasoning, instruct.defaults.temperature), (None, Some(0.7)));
    assert_eq!(speak("qwen2", "<|im_end|>").defaults, Sampling::default());
    let tools = ToolFormat::new("<tool_call>", "</tool_call>", "xml", "function", "parameter");
    assert_eq!(speak("qwen3moe", "<tool_call><function=").tools, Some(tools));
}
