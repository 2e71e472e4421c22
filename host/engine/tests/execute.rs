//! The fast path computes what the reference computes: every family's shape, any batch, any cut.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use std::sync::Arc;

use common::ready::{Ready, distance, ready, tokens};
use gristmill_engine::{
    cache::{Cache, KvTypes},
    execute::{Arena, Model, Row, Want},
    plan::Plan,
    program::check,
    reference::reference_logits,
    weights::Weights,
};
use gristmill_kernels::{Pool, Quant};

const F32: KvTypes = KvTypes { k: Quant::F32, v: Quant::F32 };

/// Logits after every token, in passes of `chunk` rows.
fn logits(ready: &Ready, threads: usize, tokens: &[u32], chunk: usize) -> Vec<f32> {
    let pool = Pool::new(threads, false);
    let model = Model { plan: &ready.plan, weights: &ready.weights, pool: &pool };
    let mut arena = Arena::new(&ready.plan, chunk, chunk);
    let mut cache = Cache::new(&ready.plan, F32, tokens.len()).unwrap();
    let mut out = Vec::new();
    for (index, part) in tokens.chunks(chunk).enumerate() {
        let rows: Vec<Row> = part
            .iter()
            .enumerate()
            .map(|(i, &token)| Row {
                cache: 0,
                position: index * chunk + i,
                token,
                wanted: true,
                bulk: false,
            })
            .collect();
        model.run(&mut arena, &rows, &mut [&mut cache], Want::Result).unwrap();
        out.extend_from_slice(arena.result());
    }
    out
}

#[test]
fn every_family_agrees_with_the_reference() {
    for architecture in ["llama", "qwen2", "qwen3", "gemma2", "gemma3"] {
        // Floats show whether the plan is right; integers how much quantised activations cost.
        for (quant, bound) in [(Quant::F32, 2e-5), (Quant::Q8_0, 0.03), (Quant::Q4_0, 0.03)] {
            let ready = ready(architecture, quant);
            let tokens = tokens(40);
            let expected = reference_logits(&ready.plan.program, &ready.tiny, &tokens).unwrap();
            for chunk in [1, 7, 40] {
                let found = logits(&ready, 2, &tokens, chunk);
                let error = distance(&found, &expected);
                assert!(error < bound, "{architecture} {quant}, chunks of {chunk}: {error:.2e}");
            }
        }
    }
}

#[test]
fn threads_change_nothing() {
    let ready = ready("gemma3", Quant::Q4_0);
    let tokens = tokens(70);
    for chunk in [1, 70] {
        let alone = logits(&ready, 1, &tokens, chunk);
        for threads in [2, 3] {
            assert_eq!(logits(&ready, threads, &tokens, chunk), alone, "{threads} threads");
        }
    }
}

#[test]
fn sequences_in_one_pass_are_computed_as_alone() {
    let ready = ready("qwen3", Quant::F32);
    let pool = Pool::new(2, false);
    let model = Model { plan: &ready.plan, weights: &ready.weights, pool: &pool };
    let texts: [Vec<u32>; 3] = [tokens(9), tokens(23)[4..].to_vec(), tokens(14)[9..].to_vec()];
    let mut caches: Vec<Cache> =
        (0..3).map(|_| Cache::new(&ready.plan, F32, 64).unwrap()).collect();
    let mut arena = Arena::new(&ready.plan, 64, 3);
    // The whole of the first, half of the second, and one token of the third share a pass.
    let mut done = [0; 3];
    let mut last: [Vec<f32>; 3] = Default::default();
    for shares in [[9, 9, 1], [0, 9, 1], [0, 1, 3]] {
        let mut rows = Vec::new();
        for (i, share) in shares.into_iter().enumerate() {
            for position in done[i]..done[i] + share {
                let wanted = position + 1 == texts[i].len();
                rows.push(Row {
                    cache: i,
                    position,
                    token: texts[i][position],
                    wanted,
                    bulk: false,
                });
            }
            done[i] += share;
        }
        let mut borrowed: Vec<&mut Cache> = caches.iter_mut().collect();
        model.run(&mut arena, &rows, &mut borrowed, Want::Result).unwrap();
        for (n, row) in rows.iter().filter(|row| row.wanted).enumerate() {
            last[row.cache] = arena.logits(n).values().to_vec();
        }
    }
    for (text, last) in texts.iter().zip(&last) {
        let expected = reference_logits(&ready.plan.program, &ready.tiny, text).unwrap();
        let error = distance(last, &expected[expected.len() - 200..]);
        assert!(error < 2e-5, "{error:.2e}");
    }
    assert_eq!(caches[1].tokens(), texts[1].as_slice());
}

#[test]
fn a_cache_cut_back_continues_as_if_the_rest_had_never_been() {
    let ready = ready("gemma3", Quant::F32);
    let pool = Pool::new(1, false);
    let model = Model { plan: &ready.plan, weights: &ready.weights, pool: &pool };
    let mut arena = Arena::new(&ready.plan, 64, 1);
    let mut cache = Cache::new(&ready.plan, F32, 32).unwrap();
    let mut feed = |cache: &mut Cache, tokens: &[u32]| {
        let first = cache.len();
        let rows: Vec<Row> = tokens
            .iter()
            .enumerate()
            .map(|(i, &token)| Row {
                cache: 0,
                position: first + i,
                token,
                wanted: i + 1 == tokens.len(),
                bulk: false,
            })
            .collect();
        model.run(&mut arena, &rows, &mut [cache], Want::Result).unwrap();
        arena.logits(0).values().to_vec()
    };
    let text = tokens(30);
    feed(&mut cache, &text);
    cache.truncate(12);
    let grown = cache.grown(600, 1024);
    cache.grow(grown).unwrap();
    let other: Vec<u32> = text[12..20].iter().map(|t| t ^ 1).collect();
    let found = feed(&mut cache, &other);
    let whole = [&text[..12], &other].concat();
    let expected = reference_logits(&ready.plan.program, &ready.tiny, &whole).unwrap();
    let error = distance(&found, &expected[expected.len() - 200..]);
    assert!(error < 2e-5, "{error:.2e}");
}

/// Layers with a window forget what they cannot be asked for. A prefix that needs it is not there
/// any more: the context is read again, and the answer is the same.
#[test]
fn a_window_that_has_moved_on_is_read_again() {
    let ready = ready("gemma3", Quant::F32);
    let pool = Pool::new(2, false);
    let model = Model { plan: &ready.plan, weights: &ready.weights, pool: &pool };
    let mut arena = Arena::new(&ready.plan, 512, 1);
    let mut cache = Cache::new(&ready.plan, F32, 1024).unwrap();
    let text = tokens(700);
    let mut feed = |cache: &mut Cache, text: &[u32]| {
        for piece in text.chunks(300) {
            let first = cache.len();
            let rows: Vec<Row> = piece
                .iter()
                .enumerate()
                .map(|(i, &token)| Row {
                    cache: 0,
                    position: first + i,
                    token,
                    wanted: i + 1 == piece.len(),
                    bulk: false,
                })
                .collect();
            model.run(&mut arena, &rows, &mut [cache], Want::Result).unwrap();
        }
        arena.logits(0).values().to_vec()
    };
    let found = feed(&mut cache, &text);
    let expected = reference_logits(&ready.plan.program, &ready.tiny, &text).unwrap();
    let error = distance(&found, &expected[expected.len() - found.len()..]);
    assert!(error < 2e-5, "{error:.2e}");
    // A little back is there, far back is not.
    assert_eq!((cache.usable(690), cache.usable(100)), (690, 0));
    assert_eq!(cache.common(&text[..690]), 690);
    assert_eq!(cache.common(&text[..100]), 0);
    let mut copy = cache.copy(690, 1024).unwrap();
    let tail = feed(&mut copy, &text[690..]);
    assert!(distance(&tail, &found) < 2e-5);
    assert_eq!(cache.truncate(100), 0);
    let again = feed(&mut cache, &text);
    assert_eq!(again, found);
}

#[test]
fn costs_are_what_is_allocated() {
    let ready = ready("gemma3", Quant::Q8_0);
    for k in KvTypes::ALL {
        for v in [Quant::F16, Quant::Q4_0] {
            let types = KvTypes { k, v };
            let capacity = ready.plan.capacity(types);
            // With 5000 tokens the layers with a window keep a ring.
            for tokens in [300, 5000] {
                let cache = Cache::new(&ready.plan, types, tokens).unwrap();
                assert_eq!(cache.memory(), capacity.cache(cache.capacity()), "{k} {v} {tokens}");
            }
            let all = capacity.kv_token * 5120;
            assert!(capacity.cache(5000) < all, "windows save memory");
        }
    }
    let cost = ready.plan.capacity(F32).cost(4, 100, 64);
    assert_eq!(Arena::new(&ready.plan, 64, 4).memory(), cost.buffers);
}

#[test]
fn an_encoder_agrees_with_the_reference_for_several_texts_in_one_pass() {
    let (tiny, program) = common::tiny::encoder();
    let plan = Plan::new(Arc::new(check(&program, &tiny.metadata).unwrap()));
    let weights = Weights::load(&plan, &tiny, true).unwrap();
    let pool = Pool::new(2, false);
    let model = Model { plan: &plan, weights: &weights, pool: &pool };
    let texts: [Vec<u32>; 2] = [(0..17).map(|t| t * 5).collect(), vec![3, 1, 2]];
    let mut caches: Vec<Cache> = (0..2).map(|_| Cache::new(&plan, F32, 64).unwrap()).collect();
    let mut rows = Vec::new();
    for (cache, text) in texts.iter().enumerate() {
        for (position, &token) in text.iter().enumerate() {
            rows.push(Row { cache, position, token, wanted: false, bulk: false });
        }
    }
    let mut arena = Arena::new(&plan, 64, 1);
    let mut borrowed: Vec<&mut Cache> = caches.iter_mut().collect();
    model.run(&mut arena, &rows, &mut borrowed, Want::Result).unwrap();
    let expected: Vec<f32> = texts
        .iter()
        .flat_map(|text| reference_logits(&plan.program, &tiny, text).unwrap())
        .collect();
    let error = distance(arena.result(), &expected);
    assert!(error < 0.02, "{error:.2e}");
    let length: f32 = arena.result()[..64].iter().map(|x| x * x).sum();
    assert!((length - 1.0).abs() < 1e-4);
}

#[test]
fn an_abandoned_pass_leaves_the_caches_as_they_were() {
    let ready = ready("llama", Quant::F32);
    let pool = Pool::new(2, false);
    let model = Model { plan: &ready.plan, weights: &ready.weights, pool: &pool };
    let mut arena = Arena::new(&ready.plan, 16, 1);
    let mut cache = Cache::new(&ready.plan, F32, 16).unwrap();
    let rows = |tokens: &[u32]| -> Vec<Row> {
        tokens
            .iter()
            .enumerate()
            .map(|(position, &token)| Row {
                cache: 0,
                position,
                token,
                wanted: position == 5,
                bulk: false,
            })
            .collect()
    };
    for phase in [0, 1, 8, 20] {
        let seen = std::cell::Cell::new(0);
        let abandoned = || {
            seen.set(seen.get() + 1);
            seen.get() > phase
        };
        let error = model
            .run_unless(&mut arena, &rows(&tokens(6)), &mut [&mut cache], Want::Result, &abandoned)
            .unwrap_err();
        assert_eq!(error.code, gristmill_core::Code::Cancelled);
        assert!(cache.is_empty());
    }
    model.run(&mut arena, &rows(&tokens(6)), &mut [&mut cache], Want::Result).unwrap();
    let expected = reference_logits(&ready.plan.program, &ready.tiny, &tokens(6)).unwrap();
    assert!(distance(arena.logits(0).values(), &expected[5 * 200..]) < 2e-5);
}
