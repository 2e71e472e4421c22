//! `cargo run --release -p gristmill-engine --example engine_load -- STORE MODEL [settle | memory]`:
//! from nothing to the first token of a stored model, and where the time goes, as JSON.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a tool"
)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::{sync::Arc, time::Instant};

use gristmill_core::program::Dialect;
use gristmill_engine::{EngineConfig, measure::load, packing};
use gristmill_models::{Gguf, Store, Tokenizer};

fn main() {
    let begun = Instant::now();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, model, mode @ ..] = &arguments[..] else { panic!("a store and a model") };
    let mode = mode.first().map_or("", String::as_str);
    let store = Arc::new(Store::open(folder).unwrap());
    let families = common::families(Dialect::default());
    let config = EngineConfig { packages: mode != "memory", ..EngineConfig::default() };
    let (mut found, held) = load(&store, model, families, config, begun, mode == "settle").unwrap();

    // The parts again, one by one, now that everything is in the page cache.
    let located = store.locate(model).unwrap();
    let timed = |name: &str, found: &mut serde_json::Value, work: &mut dyn FnMut()| {
        let begun = Instant::now();
        work();
        found[name] = (begun.elapsed().as_secs_f64() * 1e3).into();
    };
    let mut file = None;
    timed("open_file_ms", &mut found, &mut || file = Some(Gguf::open(&located.paths[0]).unwrap()));
    let file = file.unwrap();
    timed("metadata_ms", &mut found, &mut || drop(file.metadata()));
    timed("tokenizer_ms", &mut found, &mut || drop(Tokenizer::from_gguf(&file).unwrap()));
    timed("package_ms", &mut found, &mut || {
        drop(store.package(&located.digest, &packing::kind()).unwrap());
    });
    println!("{found:#}");
    if mode == "hold" {
        // Until whoever started it has looked at its memory.
        let _ = std::io::stdin().read_line(&mut String::new());
    }
    drop(held);
}
