//! The forward pass on the two real models.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use std::path::Path;

use common::TestFamilies;
use gristmill_core::program::Dialect;
use gristmill_engine::{
    cache::{Cache, KvTypes},
    execute::{Arena, Model, Row, Want},
    measure::Bare,
    reference::reference_logits,
};
use gristmill_kernels::Pool;
use gristmill_models::Tokenizer;

fn open(path: &Path) -> (Bare, Tokenizer) {
    let bare = Bare::open(path, &TestFamilies(Dialect::default())).unwrap();
    let tokenizer = Tokenizer::from_gguf(&bare.file).unwrap();
    (bare, tokenizer)
}

fn best(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (i, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = i;
        }
    }
    best as u32
}

fn greedy(bare: &Bare, threads: usize, prompt: &[u32], n: usize) -> Vec<u32> {
    let pool = Pool::new(threads, false);
    let model = Model { plan: &bare.plan, weights: &bare.weights, pool: &pool };
    let mut arena = Arena::new(&bare.plan, prompt.len().max(1), 1);
    let mut cache = Cache::new(&bare.plan, KvTypes::default(), prompt.len() + n).unwrap();
    let mut next = prompt.to_vec();
    let mut out = Vec::new();
    for _ in 0..n {
        let first = cache.len();
        let rows: Vec<Row> = next
            .iter()
            .enumerate()
            .map(|(i, &token)| Row {
                cache: 0,
                position: first + i,
                token,
                wanted: i + 1 == next.len(),
                bulk: false,
            })
            .collect();
        model.run(&mut arena, &rows, &mut [&mut cache], Want::Result).unwrap();
        let token = best(arena.logits(0).values());
        out.push(token);
        next = vec![token];
    }
    out
}

/// Mean Kullback-Leibler divergence of the second from the first, and how often the best agree.
fn compare(reference: &[f32], found: &[f32], vocabulary: usize) -> (f64, f64) {
    let soft = |logits: &[f32]| -> Vec<f64> {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let total: f64 = logits.iter().map(|l| f64::from(l - max).exp()).sum();
        logits.iter().map(|l| f64::from(l - max) - total.ln()).collect()
    };
    let rows = reference.len() / vocabulary;
    let (mut divergence, mut agree) = (0.0, 0.0);
    for (a, b) in reference.chunks_exact(vocabulary).zip(found.chunks_exact(vocabulary)) {
        let (p, q) = (soft(a), soft(b));
        divergence += p.iter().zip(&q).map(|(p, q)| p.exp() * (p - q)).sum::<f64>();
        agree += f64::from(u8::from(best(a) == best(b)));
    }
    (divergence / rows as f64, agree / rows as f64)
}

fn sound(path: &Path, bos: bool, expected: &str) {
    let (bare, tokenizer) = open(path);
    let mut prompt = tokenizer.encode("The capital of France is", true).unwrap();
    if bos {
        prompt.insert(0, tokenizer.bos().unwrap());
    }
    let one = greedy(&bare, 1, &prompt, 48);
    let two = greedy(&bare, 2, &prompt, 48);
    assert_eq!(one, two, "one and two threads");
    let text = tokenizer.decode(&one, false);
    assert!(text.contains(expected), "{text:?}");

    let text = "Grain is ground between two stones. The upper stone turns; the lower one lies still. \
                Flour falls out at the edge.";
    let mut tokens = tokenizer.encode(text, true).unwrap();
    if bos {
        tokens.insert(0, tokenizer.bos().unwrap());
    }
    let expected = reference_logits(&bare.plan.program, &bare.file, &tokens).unwrap();
    let pool = Pool::new(2, false);
    let types = KvTypes::default();
    for chunk in [1, tokens.len()] {
        let found = bare.logits(&pool, types, &tokens, chunk).unwrap();
        let (divergence, agree) = compare(&expected, &found, bare.plan.program.vocabulary);
        println!("{}: chunks of {chunk}: KL {divergence:.2e}, top-1 {agree:.3}", path.display());
        assert!(divergence < 2e-2, "chunks of {chunk}: {divergence:.2e}");
        assert!(agree > 0.8, "chunks of {chunk}: {agree}");
    }
}

#[test]
fn smollm2_is_sound() {
    sound(&gristmill_testing::fetch::smollm2().unwrap(), false, " Paris");
}

#[test]
fn gemma3_is_sound() {
    // What llama.cpp writes with the same file.
    sound(&gristmill_testing::fetch::gemma3().unwrap(), true, " the capital of");
}
