//! Weights that are no numbers end in an error that names their tensor, never in text.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use common::{
    made::Room,
    serve::{greedy, read},
};
use gristmill_core::{Error, request::Prompt};
use gristmill_engine::{
    EngineConfig, NON_FINITE,
    runtime::{Model, Runtime},
};
use gristmill_kernels::{Quant, decode_row};
use gristmill_models::{Gguf, Located};
use gristmill_testing::models::{Family, MIXES};

/// Makes a number in row 3 of a tensor NaN or infinite: by its scale, where it has one.
fn plant(bytes: &mut [u8], file: &Gguf, name: &str) {
    let tensor = file.tensor(name).unwrap();
    let quant = Quant::from_id(tensor.element.id).unwrap();
    let cols = tensor.shape[0] as usize;
    let row = quant.row_bytes(cols).unwrap();
    let found = file.tensor_bytes(name).unwrap().as_slice().to_vec();
    let start = bytes.windows(found.len()).position(|window| window == found).unwrap();
    let place = if found.len() >= 4 * row { 3 * row } else { 0 };
    let mut numbers = vec![0.0; cols];
    let block = quant.block_bytes();
    for at in 0..block.saturating_sub(1).max(1) {
        for poison in [[0x00, 0x7e], [0xff, 0xff], [0x00, 0x7c], [0x80, 0x7f]] {
            let mut copy = found[place..place + row].to_vec();
            let end = (at + 2).min(block);
            // The highest bytes of a wider float too.
            copy[at..end].copy_from_slice(&poison[..end - at]);
            decode_row(quant, &copy, &mut numbers).unwrap();
            if numbers.iter().any(|x| !x.is_finite()) {
                bytes[start + place..start + place + row].copy_from_slice(&copy);
                return;
            }
        }
    }
    // Scales spread over several bytes.
    let mut copy = found[place..place + row].to_vec();
    copy[..block].fill(0xff);
    decode_row(quant, &copy, &mut numbers).unwrap();
    assert!(numbers.iter().any(|x| !x.is_finite()), "{quant} cannot hold such a number");
    bytes[start + place..start + place + row].copy_from_slice(&copy);
}

fn damaged(room: &Room, family: Family, mix: &str, tensor: &str) -> Located {
    let name = format!("{family:?}-{mix}-{tensor}");
    room.model(&name, family, mix, |bytes, file| plant(bytes, file, tensor))
}

async fn failure(model: &dyn Model) -> Error {
    let request = greedy(Prompt::Text("a grain of wheat between two stones".into()), 8);
    match model.generate(request).await {
        Ok(decoding) => read(decoding).await.unwrap_err(),
        Err(error) => error,
    }
}

fn names(error: &Error, tensor: &str) {
    assert_eq!(error.code.as_str(), NON_FINITE, "{tensor}: {error}");
    assert!(error.message.contains(&format!("`{tensor}`")), "{tensor}: {error}");
    assert_eq!(error.detail("tensor"), Some(tensor), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_type_with_a_planted_nan_names_its_tensor() {
    let room = Room::new();
    let engine = room.engine(EngineConfig { packages: false, ..EngineConfig::default() });
    for mix in MIXES {
        let tensor = "blk.1.ffn_down.weight";
        let located = damaged(&room, Family::Llama, mix, tensor);
        let model = engine.open(&located.id).await.unwrap();
        let error = failure(&*model).await;
        names(&error, tensor);
        assert_eq!(error.detail("row"), Some("3"), "{mix}: {error:?}");
        // The next answer is refused without computing.
        names(&failure(&*model).await, tensor);
        drop(model);
        assert!(engine.unload(&located.id).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wherever_it_is_it_is_named() {
    let room = Room::new();
    let engine = room.engine(EngineConfig { packages: false, ..EngineConfig::default() });
    for tensor in [
        "blk.0.attn_q.weight",
        "blk.0.attn_k.weight",
        "blk.2.attn_v.weight",
        "blk.3.attn_output.weight",
        "blk.1.ffn_gate.weight",
        "blk.1.ffn_up.weight",
    ] {
        for family in [Family::Llama, Family::Gemma2] {
            let located = damaged(&room, family, "q4_k_m", tensor);
            let model = engine.open(&located.id).await.unwrap();
            names(&failure(&*model).await, tensor);
        }
    }
    // Small vectors are looked at when the model is opened.
    let tensor = "blk.2.ffn_norm.weight";
    let located = damaged(&room, Family::Llama, "q8_0", tensor);
    names(&engine.open(&located.id).await.err().unwrap(), tensor);
}

#[tokio::test(flavor = "multi_thread")]
async fn packing_finds_what_no_answer_has_met() {
    let room = Room::new();
    // Token 3 does not come up in the prompt: only whoever looks at all weights sees its row. The
    // head is the same tensor, so that answers fail as well.
    let tensor = "token_embd.weight";
    let located = damaged(&room, Family::Llama, "q8_0", tensor);
    let engine = room.engine(EngineConfig::default());
    let model = engine.open(&located.id).await.unwrap();
    names(&failure(&*model).await, tensor);
    names(&failure(&*model).await, tensor);
    assert!(room.files("packages").is_empty(), "no package of a damaged model");
}
