//! The schema survey: about 300 schemas of JSON-Schema-Test-Suite, how many are enforced, refused
//! and weakened, and what a step and a compilation cost over the 151,936 tokens of Qwen 2, or over
//! the vocabulary of a GGUF file that is named. `--all` takes every schema.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    dead_code,
    unreachable_pub,
    clippy::print_stdout,
    reason = "a tool for people"
)]

use std::{path::PathBuf, sync::Arc};

use gristmill_models::{Gguf, Tokenizer};

#[path = "../tests/common/suite.rs"]
mod suite;

fn main() {
    let nth = if std::env::args().any(|argument| argument == "--all") { 1 } else { 2 };
    let named = std::env::args().skip(1).find(|argument| argument.ends_with(".gguf"));
    let file = named.map_or_else(
        || gristmill_testing::fetch::llama_cpp_models().unwrap().join("ggml-vocab-qwen2.gguf"),
        PathBuf::from,
    );
    let vocabulary = Gguf::open(file).unwrap();
    let tokenizer = Arc::new(Tokenizer::from_gguf(&vocabulary).unwrap());
    println!("{} tokens", tokenizer.vocab_len());
    let mut survey = suite::run(tokenizer, nth, 20);
    println!("{}", survey.report());
    for (what, lines) in [("weakened", &survey.weakened), ("narrower", &survey.narrower)] {
        for line in lines {
            println!("{what}: {line}");
        }
    }
}
