//! `cargo run --release -p gristmill-engine --example engine_bench -- MODEL.gguf [THREADS [PREFILL
//! [DECODE [BATCH [ROUNDS]]]]]`: speeds of the bare forward pass as JSON.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a tool"
)]

#[path = "../tests/common/mod.rs"]
mod common;

use gristmill_core::program::Dialect;
use gristmill_engine::measure::{Measure, measure};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let path = arguments.first().expect("a model file");
    let number =
        |n: usize, default| arguments.get(n).map_or(default, |n| n.parse().expect("a number"));
    let what = Measure {
        threads: number(1, 2),
        prefill: number(2, 512),
        decode: number(3, 128),
        depth: 0,
        batch: number(4, 1),
        rounds: number(5, 3),
    };
    let families = common::TestFamilies(Dialect::default());
    let found = measure(path.as_ref(), &families, what).unwrap_or_else(|error| panic!("{error}"));
    println!("{found:#}");
}
