//! A model's package: made behind its back, taken over between two passes, never computed with
//! unless every byte is as it was written.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use std::{
    env, fs,
    sync::Arc,
    time::{Duration, Instant},
};

use common::{
    TestFamilies,
    made::Room,
    serve::{ask, greedy},
};
use gristmill_core::{
    program::Dialect,
    request::{Prompt, Request},
};
use gristmill_engine::{
    EngineConfig,
    cache::KvTypes,
    measure::Bare,
    packing,
    runtime::{Model, Runtime},
    weights::Weights,
};
use gristmill_kernels::{Isa, Pool, isa};
use gristmill_models::store::{Located, Silent, Store};
use gristmill_testing::models::Family;
use serde_json::Value;

/// Where a model's matrices are, as `explain` says it.
async fn weights(model: &Arc<dyn Model>) -> Value {
    let mut session = model.open_session(Vec::new()).await.unwrap();
    let document: Value = serde_json::from_str(&session.explain().await.unwrap()).unwrap();
    document["weights"].clone()
}

fn text() -> Request {
    greedy(Prompt::Text("a grain of wheat between two stones".into()), 6)
}

/// Answers until its matrices are no longer the file's.
async fn settled(model: &Arc<dyn Model>) -> Value {
    let begun = Instant::now();
    loop {
        let found = weights(model).await;
        if found["from"] != "file" || !found["reason"].is_null() {
            return found;
        }
        assert_eq!(ask(model, text()).await.usage.completion, 6);
        assert!(begun.elapsed() < Duration::from_secs(60), "{found}");
    }
}

/// This machine packs nothing without the widest kernels.
fn packs() -> bool {
    isa::current() > Isa::Scalar
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_answer_does_not_wait_and_the_second_process_finds_the_package() {
    if !packs() {
        return;
    }
    let room = Room::new();
    let located = room.model("m", Family::Llama, "q4_k_m", |_, _| {});
    let engine = room.engine(EngineConfig::default());
    let model = engine.open("m").await.unwrap();
    let first = ask(&model, text()).await;
    let mut session = model.open_session(Vec::new()).await.unwrap();
    let found = settled(&model).await;
    assert_eq!(found["from"], "package", "{found}");
    assert!(found["bytes"].as_u64().unwrap() > 0);
    let file = room.store.packages(&located.digest);
    assert_eq!(file.len(), 1);
    assert_eq!(found["package"], file[0].path.display().to_string());
    assert_eq!(file[0].kind, packing::kind());
    assert!(room.files("staging").is_empty(), "nothing is left of the making");
    // Contexts and sessions of before go on.
    session.explain().await.unwrap();
    let second = ask(&model, text()).await;
    assert!(second.usage.cached > 0);
    assert_eq!(first.text, second.text);

    let other = room.engine(EngineConfig::default());
    let model = other.open("m").await.unwrap();
    assert_eq!(weights(&model).await["from"], "package", "at once");
    let fresh = ask(&model, text()).await;
    assert_eq!(fresh.text, second.text);
}

/// Logits by the file's own bytes, by matrices packed into memory, and by a package, in passes of
/// `chunk` tokens.
fn three(store: &Store, located: &Located, tokens: &[u32], chunk: usize) -> [Vec<f32>; 3] {
    let families = TestFamilies(Dialect::default());
    let mut bare = Bare::open(&located.paths[0], &families).unwrap();
    let pool = Pool::new(2, false);
    let logits = |bare: &Bare| bare.logits(&pool, KvTypes::default(), tokens, chunk).unwrap();
    let memory = logits(&bare);
    bare.weights = Weights::load(&bare.plan, &bare.file, false).unwrap();
    let raw = logits(&bare);
    let package =
        packing::make(store, &located.digest, &bare.plan, &bare.file, &mut Silent).unwrap();
    let package = package.unwrap();
    assert!(package.size() < located.size + (package.tensors() as u64 + 2) * 4096);
    bare.weights = Weights::packaged(&bare.plan, &bare.file, &package).unwrap();
    [raw, memory, logits(&bare)]
}

#[test]
fn a_package_changes_no_bit_of_an_answer() {
    if !packs() {
        return;
    }
    let room = Room::new();
    let tokens: Vec<u32> = (0..40).map(|n| n * 37 % 1500).collect();
    for mix in [
        "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q4_k_m", "q5_k_m", "q6_k", "q3_k", "iq4_xs",
        "tq2_0", "mxfp4",
    ] {
        for family in [Family::Llama, Family::Gemma3] {
            let located = room.model(&format!("{mix}-{family:?}"), family, mix, |_, _| {});
            for chunk in [1, 3, 40] {
                let [raw, memory, package] = three(&room.store, &located, &tokens, chunk);
                assert!(raw == package, "{mix} {family:?} by {chunk}: the file's rows");
                assert!(memory == package, "{mix} {family:?} by {chunk}: packed in memory");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_package_is_made_again_and_not_computed_with() {
    if !packs() {
        return;
    }
    let room = Room::new();
    let located = room.model("m", Family::Llama, "q8_0", |_, _| {});
    let engine = room.engine(EngineConfig::default());
    let model = engine.open("m").await.unwrap();
    settled(&model).await;
    let sound = ask(&model, text()).await;
    drop((model, engine));
    let path = &room.store.packages(&located.digest)[0].path;
    let good = fs::read(path).unwrap();
    for at in [10, 40, 4096 + 70, good.len() / 2, good.len() - 9] {
        let mut bad = good.clone();
        bad[at] ^= 4;
        // As a new file: the one that was mapped is not written to.
        fs::remove_file(path).unwrap();
        fs::write(path, &bad).unwrap();
        let engine = room.engine(EngineConfig::default());
        let model = engine.open("m").await.unwrap();
        // It runs from the file, or already from the package that replaces the damaged one.
        let found = settled(&model).await;
        assert_eq!(found["from"], "package", "{at}: {found}");
        assert!(fs::read(path).unwrap() == good, "{at}: made again, byte for byte");
        assert_eq!(ask(&model, text()).await.text, sound.text, "{at}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_packages_matrices_are_packed_into_memory() {
    let room = Room::new();
    room.model("m", Family::Llama, "q8_0", |_, _| {});
    let engine = room.engine(EngineConfig { packages: false, ..EngineConfig::default() });
    let model = engine.open("m").await.unwrap();
    assert_eq!(weights(&model).await["from"], "memory");
    ask(&model, text()).await;
    assert!(room.files("packages").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_is_unloaded_while_it_is_packed_is_gone() {
    let room = Room::new();
    room.model("m", Family::Gemma3, "q4_k_m", |_, _| {});
    let engine = room.engine(EngineConfig::default());
    for _ in 0..4 {
        drop(engine.open("m").await.unwrap());
        assert!(engine.unload("m").await);
        assert!(engine.loaded().is_empty());
    }
    room.store.remove("m").unwrap();
    assert!(engine.open("m").await.is_err());
}

/// A process whose files may not grow meets the same refusal from the system as one whose disk is
/// full.
#[cfg(unix)]
#[test]
fn on_a_full_disk_the_model_answers_and_says_why_there_is_no_package() {
    const CHILD: &str = "PACKAGES_TEST_STORE";
    let runtime = tokio::runtime::Runtime::new().unwrap();
    if let Ok(folder) = env::var(CHILD) {
        let store = Arc::new(Store::open(&folder).unwrap());
        runtime.block_on(async {
            let config = EngineConfig { pin: false, ..EngineConfig::default() };
            let families = common::families(Dialect::default());
            let engine = gristmill_engine::Engine::new(config, store, families).unwrap();
            let model = engine.open("m").await.unwrap();
            assert_eq!(ask(&model, text()).await.usage.completion, 6);
            let found = settled(&model).await;
            assert_eq!(found["from"], "memory", "{found}");
            let reason = found["reason"].as_str().unwrap();
            assert!(reason.contains("cannot write") && reason.contains("limit"), "{reason}");
            assert_eq!(ask(&model, text()).await.usage.completion, 6);
        });
        return;
    }
    if !packs() {
        return;
    }
    let room = Room::new();
    room.model("m", Family::Llama, "q8_0", |_, _| {});
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 1024; exec \"$@\"", "sh"]);
    limited.arg(env::current_exe().unwrap()).args([
        "on_a_full_disk_the_model_answers_and_says_why_there_is_no_package",
        "--exact",
        "--nocapture",
    ]);
    let out = limited.env(CHILD, room.store.path()).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(room.files("packages").is_empty() && room.files("staging").is_empty());
}
