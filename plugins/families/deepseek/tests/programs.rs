//! DeepSeek: latent attention, grouped experts, and the old form refused.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use gristmill_family_deepseek::DeepSeek;
use gristmill_plugin::prelude::*;

#[path = "../../shape.rs"]
mod shape;
#[path = "../../testing.rs"]
mod testing;

use shape::{ATTENTION, model};
use testing::{counts, golden, reads_everything};

fn deepseek(query: &[(&str, &[u64])]) -> Metadata {
    let tensors = [
        query,
        &[
            ("attn_norm", &[64]),
            ("attn_kv_a_mqa", &[64, 40]),
            ("attn_kv_a_norm", &[32]),
            ("attn_k_b", &[16, 32, 4]),
            ("attn_v_b", &[32, 16, 4]),
            ATTENTION[3],
            ("ffn_norm", &[64]),
            ("ffn_gate_inp", &[64, 8]),
            ("exp_probs_b.bias", &[8]),
            ("ffn_gate_exps", &[64, 32, 8]),
            ("ffn_up_exps", &[64, 32, 8]),
            ("ffn_down_exps", &[32, 64, 8]),
            ("ffn_gate_shexp", &[64, 32]),
            ("ffn_up_shexp", &[64, 32]),
            ("ffn_down_shexp", &[32, 64]),
        ],
    ]
    .concat();
    let keys = [
        ("attention.key_length_mla", 24_u32.into()),
        ("attention.kv_lora_rank", 32_u32.into()),
        ("rope.dimension_count", 8_u32.into()),
        ("expert_count", 8_u32.into()),
        ("expert_used_count", 2_u32.into()),
        ("expert_gating_func", 2_u32.into()),
        ("expert_weights_norm", true.into()),
        ("expert_group_count", 4_u32.into()),
        ("expert_group_used_count", 2_u32.into()),
    ];
    model("deepseek2", &keys, 1, &tensors)
        .with_tensor("output_norm.weight", &[64])
        .with_tensor("output.weight", &[64, 1000])
}

const LATENT: [(&str, &[u64]); 3] =
    [("attn_q_a", &[64, 48]), ("attn_q_a_norm", &[48]), ("attn_q_b", &[48, 96])];

#[test]
fn the_cache_holds_one_short_vector_a_token() {
    for (name, query) in
        [("deepseek3", &LATENT[..]), ("deepseek2-lite", &[("attn_q", &[64, 96][..])])]
    {
        let model = deepseek(query);
        assert_eq!(DeepSeek::matches(&model), Some("deepseek"));
        let program = DeepSeek::architecture(&model).unwrap();
        let kv = [
            ("kv-heads".to_owned(), Attribute::Int(1)),
            ("head-dim".to_owned(), Attribute::Int(40)),
        ];
        assert_eq!(program.states[0].attributes, kv);
        assert_eq!(counts(&program).get("head-linear"), Some(&2));
        reads_everything(&model, &program);
        golden(name, &program);
    }
}

#[test]
fn yarn_scales_scores_and_not_angles() {
    let scaled = deepseek(&LATENT)
        .with("{arch}.rope.scaling.type", "yarn")
        .with("{arch}.rope.scaling.factor", 40.0)
        .with("{arch}.rope.scaling.original_context_length", 4096)
        .with("{arch}.rope.scaling.yarn_log_multiplier", 0.1);
    let program = DeepSeek::architecture(&scaled).unwrap();
    let number = |op: &str, name: &str| {
        let step = program.steps.iter().find(|step| step.op == op).unwrap();
        match step.attributes.iter().find(|(key, _)| key == name).unwrap().1 {
            Attribute::Float(number) => number,
            _ => panic!("{name} is no float"),
        }
    };
    let growth = 1.0 + 0.1 * 40.0_f64.ln();
    assert!((number("rope", "attention-factor") * growth - 1.0).abs() < 1e-12);
    assert!((number("attention", "scale") - growth * growth / 24.0_f64.sqrt()).abs() < 1e-12);
}

#[test]
fn the_old_form_is_refused_by_name() {
    let old = deepseek(&LATENT).with_tensor("blk.0.attn_kv_b.weight", &[32, 128]);
    let error = DeepSeek::architecture(&old).unwrap_err();
    assert_eq!(error.code, "unsupported");
    assert!(
        error.message.contains("attn_kv_b") && error.message.contains("convert"),
        "{}",
        error.message
    );
}

#[test]
fn the_template_says_how_it_speaks() {
    let mark = "<｜tool▁calls▁begin｜>";
    for (template, word) in [
        (
            format!("<think></think>{mark}function<｜tool▁sep｜>{{{{ name }}}}\n```json\n"),
            "function",
        ),
        (format!("<think></think>{mark}{{{{ name }}}}<｜tool▁sep｜>"), ""),
    ] {
        let model = deepseek(&LATENT).with("tokenizer.chat_template", template.as_str());
        let dialect = DeepSeek::speak(&model).unwrap();
        assert!(dialect.reasoning.is_some());
        let tools = dialect.tools.unwrap();
        assert_eq!((&*tools.shape, &*tools.name_key), ("deepseek", word));
        assert_eq!((&*tools.open, &*tools.close), (mark, "<｜tool▁calls▁end｜>"));
    }
    for (template, shape, open, close) in [
        (
            "{% set d = '｜DSML｜' %}<{{ d }}function_calls>\n<{{ d }}invoke name=\"",
            "dsml",
            "<｜DSML｜function_calls>",
            "</｜DSML｜function_calls>",
        ),
        (
            "{% if message.tool_calls %}<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"",
            "dsml",
            "<｜DSML｜tool_calls>",
            "</｜DSML｜tool_calls>",
        ),
        (
            "<|tool_calls_section_begin|><|tool_call_begin|>{{ id }}<|tool_call_argument_begin|>",
            "kimi",
            "<|tool_calls_section_begin|>",
            "<|tool_calls_section_end|>",
        ),
    ] {
        let model = deepseek(&LATENT).with("tokenizer.chat_template", template);
        let tools = DeepSeek::speak(&model).unwrap().tools.unwrap();
        assert_eq!((&*tools.shape, &*tools.open, &*tools.close), (shape, open, close));
        let tags = (&*tools.name_key, &*tools.arguments_key);
        let wanted = ("｜DSML｜invoke", "｜DSML｜parameter");
        assert_eq!(tags, if shape == "dsml" { wanted } else { ("", "") });
    }
    // The first template of Kimi K2 writes no calls.
    for template in ["", "<|im_system|>tool_declare<|im_middle|>{{ tools | tojson }}"] {
        let model = deepseek(&LATENT).with("tokenizer.chat_template", template);
        assert!(DeepSeek::speak(&model).unwrap().tools.is_none(), "{template}");
    }
}
