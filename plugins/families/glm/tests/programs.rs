//! GLM-4 and GLM-4.5: norms, experts, the layer that guesses ahead, and what is refused.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use gristmill_family_glm::Glm;
use gristmill_plugin::prelude::*;

#[path = "../../shape.rs"]
mod shape;
#[path = "../../testing.rs"]
mod testing;

use shape::{ATTENTION, model};
use testing::{counts, golden, reads_everything};

fn glm4() -> Metadata {
    let tensors = [
        &ATTENTION[..],
        &[
            ("attn_norm", &[64]),
            ("post_attention_norm", &[64]),
            ("ffn_norm", &[64]),
            ("ffn_up", &[64, 192]),
            ("ffn_down", &[96, 64]),
            ("post_ffw_norm", &[64]),
        ],
    ]
    .concat();
    let keys = [("rope.dimension_count", 8_u32.into())];
    model("glm4", &keys, 1, &tensors).with_tensor("output_norm.weight", &[64])
}

fn glm4moe(layers: u32) -> Metadata {
    let tensors = [
        &ATTENTION[..],
        &[
            ("attn_norm", &[64]),
            ("post_attention_norm", &[64]),
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
    let keys = [("expert_count", 8_u32.into()), ("expert_used_count", 2_u32.into())];
    model("glm4moe", &keys, layers, &tensors).with_tensor("output_norm.weight", &[64])
}

#[test]
fn each_generation_is_its_program() {
    for (name, model, norms) in [("glm4", glm4(), 5), ("glm4moe", glm4moe(1), 3)] {
        assert_eq!(Glm::matches(&model), Some("glm"));
        let program = Glm::architecture(&model).unwrap();
        assert_eq!(counts(&program).get("rms-norm"), Some(&norms), "{name}");
        reads_everything(&model, &program);
        golden(name, &program);
    }
}

#[test]
fn layers_that_guess_ahead_are_left_alone() {
    let program = Glm::architecture(&glm4moe(3).with("{arch}.nextn_predict_layers", 1)).unwrap();
    assert_eq!((program.layers, counts(&program).get("moe")), (2, Some(&2)));
    let (name, unused) = &program.extras[0];
    assert_eq!((&**name, unused.split(' ').count()), ("unused", 14));
    assert!(unused.split(' ').all(|tensor| tensor.starts_with("blk.2.")));
    let error = Glm::architecture(&glm4moe(1).with("{arch}.nextn_predict_layers", 1)).unwrap_err();
    assert_eq!(error.code, "invalid-request");
}

#[test]
fn sections_are_refused_by_name() {
    let error = Glm::architecture(&glm4().with("{arch}.rope.dimension_sections", "8")).unwrap_err();
    assert_eq!(error.code, "unsupported");
    assert!(error.message.contains("rope.dimension_sections"), "{}", error.message);
}

#[test]
fn the_template_says_how_it_speaks() {
    let template = "<think></think><tool_call>{{ name }}<arg_key><|user|><|observation|>";
    let dialect = Glm::speak(&glm4().with("tokenizer.chat_template", template)).unwrap();
    assert_eq!(dialect.tools.unwrap().shape, "glm");
    assert_eq!(dialect.stops, ["<|user|>", "<|observation|>"]);
    assert!(dialect.reasoning.is_some());
}
