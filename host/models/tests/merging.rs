//! Byte-pair encoding gives the ids of the `tokenizers` crate, in vocabularies made at random: a few
//! letters, so that merges meet, overlap, and undo each other's chances.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use std::collections::HashMap;

use ahash::AHashMap;
use common::{File, array, key, text};
use gristmill_models::{Gguf, Tokenizer};
use proptest::prelude::*;
use tokenizers::{Model, models::bpe::BPE};

/// Tokens that are letters, and those made by joining two that are there.
fn vocabulary(joins: &[(usize, usize)]) -> (Vec<String>, Vec<(String, String)>) {
    let mut tokens: Vec<String> = ["a", "b", "c", "é"].map(str::to_owned).to_vec();
    let mut merges = Vec::new();
    for &(left, right) in joins {
        let (left, right) =
            (tokens[left % tokens.len()].clone(), tokens[right % tokens.len()].clone());
        let joined = format!("{left}{right}");
        if joined.chars().count() > 12 {
            continue;
        }
        if !tokens.contains(&joined) {
            tokens.push(joined);
        }
        merges.push((left, right));
    }
    (tokens, merges)
}

fn file(model: &str, tokens: &[String], more: Vec<Vec<u8>>) -> File {
    let texts: Vec<u8> = tokens.iter().flat_map(|token| text(token)).collect();
    let mut keys = vec![
        key("tokenizer.ggml.model", 8, &text(model)),
        key("tokenizer.ggml.tokens", 9, &array(8, tokens.len() as u64, &texts)),
    ];
    keys.extend(more);
    File { keys, ..File::default() }
}

fn ours(file: &File) -> Tokenizer {
    Tokenizer::from_gguf(&Gguf::parse(file.bytes()).unwrap()).unwrap()
}

fn theirs(tokens: &[String], merges: Vec<(String, String)>, whole_words: bool) -> BPE {
    let vocab: AHashMap<String, u32> =
        tokens.iter().zip(0..).map(|(token, id)| (token.clone(), id)).collect();
    let bpe = BPE::builder().vocab_and_merges(vocab, merges).ignore_merges(whole_words);
    bpe.byte_fallback(true).build().unwrap()
}

fn ids(bpe: &BPE, word: &str) -> Vec<u32> {
    bpe.tokenize(word).unwrap().iter().map(|token| token.id).collect()
}

/// The 256 tokens that spell bytes.
fn bytes() -> impl Iterator<Item = String> {
    (0..=u8::MAX).map(|byte| format!("<0x{byte:02X}>"))
}

fn types(tokens: &[String]) -> Vec<u8> {
    let types = tokens.iter().flat_map(|token| {
        let kind: i32 = if token.starts_with("<0x") { 6 } else { 1 };
        kind.to_le_bytes()
    });
    key("tokenizer.ggml.token_type", 9, &array(5, tokens.len() as u64, &types.collect::<Vec<_>>()))
}

/// The merges that scores imply, spelled out: every way to make a token of two others, the better
/// score first, then the longer left part, then the longer right one.
fn implied(tokens: &[String], scores: &[f32]) -> Vec<(String, String)> {
    let known: HashMap<&str, usize> =
        tokens.iter().enumerate().map(|(id, token)| (token.as_str(), id)).collect();
    let mut found = Vec::new();
    for (id, token) in tokens.iter().enumerate().filter(|(_, token)| !token.starts_with('<')) {
        for (at, _) in token.char_indices().skip(1) {
            let (left, right) = token.split_at(at);
            if known.contains_key(left) && known.contains_key(right) {
                let parts = (left.chars().count(), right.chars().count());
                found.push((scores[id], parts, left.to_owned(), right.to_owned()));
            }
        }
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
    found.into_iter().map(|(.., left, right)| (left, right)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn listed_merges(
        joins in prop::collection::vec((0..40_usize, 0..40_usize), 0..40),
        whole_words: bool,
        twice in prop::collection::vec(0..40_usize, 0..3),
        control: bool,
        words in prop::collection::vec("[abc]{1,40}", 1..20),
    ) {
        let (mut tokens, merges) = vocabulary(&joins);
        // Some texts are there a second time, and then the later token counts; one may be a control
        // token's too, which is no part of a word.
        let mut types = vec![1_i32; tokens.len()];
        if let Some(last) = tokens.get(4..).and_then(<[String]>::last).filter(|_| control) {
            tokens.insert(4, last.clone());
            types.insert(4, 3);
        }
        for which in twice {
            let own = which % tokens.len();
            tokens.push(tokens[own].clone());
            types.push(1);
        }
        let types: Vec<u8> = types.into_iter().flat_map(i32::to_le_bytes).collect();
        let lines: Vec<String> =
            merges.iter().map(|(left, right)| format!("{left} {right}")).collect();
        let lines: Vec<u8> = lines.iter().flat_map(|line| text(line)).collect();
        // Llama 3 takes words that are tokens whole; GPT-2 does not.
        let pre = if whole_words { "llama-bpe" } else { "gpt-2" };
        let tokenizer = ours(&file("gpt2", &tokens, vec![
            key("tokenizer.ggml.pre", 8, &text(pre)),
            key("tokenizer.ggml.token_type", 9, &array(5, tokens.len() as u64, &types)),
            key("tokenizer.ggml.merges", 9, &array(8, merges.len() as u64, &lines)),
        ]));
        // The first mention of a pair counts; the crate would take the last.
        let mut first: Vec<(String, String)> = Vec::new();
        for merge in merges {
            if !first.contains(&merge) {
                first.push(merge);
            }
        }
        let bpe = theirs(&tokens, first, whole_words);
        for word in words {
            prop_assert_eq!(tokenizer.encode(&word, false).unwrap(), ids(&bpe, &word), "{}", word);
        }
    }

    #[test]
    fn merges_from_scores(
        joins in prop::collection::vec((0..40_usize, 0..40_usize), 0..40),
        scores in prop::collection::vec(-6..2_i8, 44),
        words in prop::collection::vec("[abcéü中]{1,40}", 1..20),
    ) {
        let (mut tokens, _) = vocabulary(&joins);
        tokens.extend(bytes());
        let mut scores: Vec<f32> = scores.into_iter().map(f32::from).collect();
        scores.resize(tokens.len(), 0.0);
        let values: Vec<u8> = scores.iter().flat_map(|score| score.to_le_bytes()).collect();
        let tokenizer = ours(&file("llama", &tokens, vec![
            types(&tokens),
            key("tokenizer.ggml.scores", 9, &array(6, tokens.len() as u64, &values)),
            key("tokenizer.ggml.add_space_prefix", 7, &[0]),
        ]));
        let bpe = theirs(&tokens, implied(&tokens, &scores), false);
        for word in words {
            prop_assert_eq!(tokenizer.encode(&word, false).unwrap(), ids(&bpe, &word), "{}", word);
        }
    }
}

/// A character that nothing spells is an error that shows it, and not a hole in the text.
#[test]
fn what_cannot_be_spelled_is_named() {
    let tokens = ["a", "b"].map(str::to_owned);
    let tokenizer = ours(&file(
        "llama",
        &tokens,
        vec![
            key("tokenizer.ggml.scores", 9, &array(6, 2, &[0; 8])),
            key("tokenizer.ggml.add_space_prefix", 7, &[0]),
        ],
    ));
    assert_eq!(tokenizer.encode("ab", false).unwrap(), [0, 1]);
    let error = tokenizer.encode("a\u{fc}b", false).unwrap_err().to_string();
    assert!(error.contains("'ü'"), "{error}");
}
