//! Qwen 3 Next and 3.5: the gated delta rule, and the old form refused.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use gristmill_family_qwen_next::QwenNext;
use gristmill_plugin::prelude::*;

#[path = "../../shape.rs"]
mod shape;
#[path = "../../testing.rs"]
mod testing;

use shape::{ATTENTION, model};
use testing::{counts, golden, reads_everything};

fn next(architecture: &str) -> Metadata {
    let ba: &[(&str, &[u64])] = if architecture == "qwen3next" {
        &[("ssm_ba", &[64, 8])]
    } else {
        &[("ssm_alpha", &[64, 4]), ("ssm_beta", &[64, 4])]
    };
    let keys = [
        ("rope.dimension_count", 8_u32.into()),
        ("ssm.state_size", 16_u32.into()),
        ("ssm.group_count", 2_u32.into()),
        ("ssm.time_step_rank", 4_u32.into()),
    ];
    let feed: [(&str, &[u64]); 5] = [
        ("attn_norm", &[64]),
        ("post_attention_norm", &[64]),
        ("ffn_gate", &[64, 96]),
        ("ffn_up", &[64, 96]),
        ("ffn_down", &[96, 64]),
    ];
    let mut model = model(architecture, &keys, 2, &feed)
        .with_tensor("output_norm.weight", &[64])
        .with_tensor("blk.0.ssm_a", &[4])
        .with_tensor("blk.0.ssm_dt.bias", &[4]);
    let delta: [(&str, &[u64]); 5] = [
        ("attn_qkv", &[64, 128]),
        ("attn_gate", &[64, 64]),
        ("ssm_conv1d", &[4, 128]),
        ("ssm_norm", &[16]),
        ("ssm_out", &[64, 64]),
    ];
    for (stem, shape) in delta.iter().chain(ba) {
        model = model.with_tensor(format!("blk.0.{stem}.weight"), shape);
    }
    let gated: [(&str, &[u64]); 6] = [
        ("attn_q", &[64, 128]),
        ATTENTION[1],
        ATTENTION[2],
        ATTENTION[3],
        ("attn_q_norm", &[16]),
        ("attn_k_norm", &[16]),
    ];
    for (stem, shape) in gated {
        model = model.with_tensor(format!("blk.1.{stem}.weight"), shape);
    }
    model
}

#[test]
fn a_layer_recalls_or_attends() {
    for architecture in ["qwen3next", "qwen35"] {
        let model = next(architecture);
        assert_eq!(QwenNext::matches(&model), Some("qwen-next"));
        let program = QwenNext::architecture(&model).unwrap();
        let counts = counts(&program);
        assert_eq!((counts.get("delta-rule"), counts.get("attention")), (Some(&1), Some(&1)));
        let kinds: Vec<&str> = program.states.iter().map(|state| state.kind.as_str()).collect();
        assert_eq!(kinds, ["conv", "recurrent", "kv"]);
        reads_everything(&model, &program);
        golden(architecture, &program);
    }
}

#[test]
fn the_old_form_is_refused_by_name() {
    let old = next("qwen3next").with_tensor("blk.0.ssm_in.weight", &[64, 192]);
    let error = QwenNext::architecture(&old).unwrap_err();
    assert_eq!(error.code, "unsupported");
    assert!(error.message.contains("ssm_in"), "{}", error.message);
}

#[test]
fn calls_are_tags_or_objects() {
    let speak = |template: &str| {
        QwenNext::speak(&next("qwen35").with("tokenizer.chat_template", template)).unwrap()
    };
    assert_eq!(speak("<tool_call><function=").tools.unwrap().shape, "xml");
    assert_eq!(speak("<tool_call>{{ call }}<think>").tools.unwrap().shape, "json");
}
