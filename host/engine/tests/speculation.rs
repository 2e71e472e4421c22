//! Guessed tokens change the pace of an answer and nothing else.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use std::path::Path;

use common::{
    TestFamilies,
    made::Room,
    serve::{Answer, ask, dialect, greedy, store},
};
use gristmill_core::{
    program::Dialect,
    request::{Prompt, Request},
};
use gristmill_engine::{
    Engine, EngineConfig,
    cache::{Cache, KvTypes},
    execute::{Arena, Model, Row, Want},
    measure::Bare,
    runtime::Runtime,
    speculation::MOST,
    weights::Weights,
};
use gristmill_kernels::Pool;
use gristmill_testing::models::{Family, MIXES};

/// Those whose programs the tests here write by hand.
const FAMILIES: [Family; 5] =
    [Family::Llama, Family::Qwen2, Family::Qwen3, Family::Gemma2, Family::Gemma3];

/// Logits of the tokens after the first `prefix`, one pass each and several a pass.
fn compare(bare: &Bare, tokens: &[u32], prefix: usize) {
    let pool = Pool::new(2, false);
    let model = Model { plan: &bare.plan, weights: &bare.weights, pool: &pool };
    let types = KvTypes::default();
    let mut arena = Arena::new(&bare.plan, tokens.len(), MOST + 1);
    let run = |arena: &mut Arena, cache: &mut Cache, count: usize, want: Want| {
        let first = cache.len();
        let rows: Vec<Row> = (first..first + count)
            .map(|position| Row {
                cache: 0,
                position,
                token: tokens[position],
                wanted: want == Want::Steps || position + 1 == first + count,
                bulk: false,
            })
            .collect();
        model.run(arena, &rows, &mut [cache], want).unwrap();
        arena.result().to_vec()
    };
    let mut start = Cache::new(&bare.plan, types, tokens.len()).unwrap();
    run(&mut arena, &mut start, prefix, Want::Result);
    let mut alone = start.copy(prefix, tokens.len()).unwrap();
    let expected: Vec<f32> =
        (prefix..tokens.len()).flat_map(|_| run(&mut arena, &mut alone, 1, Want::Result)).collect();
    let mut together = start;
    let mut found = Vec::new();
    for count in (1..=MOST + 1).cycle() {
        let count = count.min(tokens.len() - together.len());
        if count == 0 {
            break;
        }
        found.extend(run(&mut arena, &mut together, count, Want::Steps));
    }
    let width = bare.plan.program.vocabulary;
    assert_eq!(expected.len(), found.len());
    for (n, (a, b)) in expected.chunks(width).zip(found.chunks(width)).enumerate() {
        let off = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(a == b, "logits after token {} differ by up to {off:e}", prefix + n);
    }
}

#[test]
fn tokens_computed_together_have_the_logits_they_have_alone() {
    let room = Room::new();
    let families = TestFamilies(Dialect::default());
    let tokens: Vec<u32> = (0..110).map(|n| n * 37 % 1500).collect();
    for family in FAMILIES {
        let mixes: &[&str] = if family == Family::Llama { &MIXES } else { &["q4_k_m", "q5_0"] };
        for mix in mixes {
            println!("{family:?} {mix}");
            let located = room.model(&format!("{family:?}-{mix}"), family, mix, |_, _| {});
            let mut bare = Bare::open(&located.paths[0], &families).unwrap();
            compare(&bare, &tokens, 60);
            bare.weights = Weights::load(&bare.plan, &bare.file, false).unwrap();
            compare(&bare, &tokens, 60);
        }
    }
}

fn real(path: &Path) {
    let bare = Bare::open(path, &TestFamilies(Dialect::default())).unwrap();
    // Beyond the keys of one task of a single query, and beyond a sliding window.
    let tokens: Vec<u32> = (0..640).map(|n| 300 + n * 37 % 5000).collect();
    compare(&bare, &tokens, 604);
}

#[test]
fn also_on_smollm2() {
    real(&gristmill_testing::fetch::smollm2().unwrap());
}

#[test]
fn also_on_gemma3() {
    real(&gristmill_testing::fetch::gemma3().unwrap());
}

/// What an answer is, without its times.
fn content(answer: &Answer) -> (String, String, u32, u32, Vec<(u32, f32)>) {
    let tokens = answer.tokens.iter().map(|token| (token.id, token.logprob)).collect();
    let usage = &answer.usage;
    (answer.text.clone(), answer.reason().to_owned(), usage.prompt, usage.completion, tokens)
}

fn counted(answer: &Answer, name: &str) -> u64 {
    let extras = &answer.usage.extras;
    extras.iter().find(|(key, _)| key == name).map_or(0, |(_, value)| value.parse().unwrap())
}

const PROMPTS: [&str; 6] = [
    "one two three four one two three four one two three four one two",
    "The capital of France is Paris. The capital of Italy is Rome. The capital of",
    "fn add(a: u32, b: u32) -> u32 { a + b }\nfn sub(a: u32, b: u32) -> u32 { a - b }\nfn mul(",
    "aaaaaaaaaaaaaaaaaaaaaaaa",
    "Repeat this list: apples, pears, plums, cherries.\napples, pears, plums, cherries.\napples,",
    "A grain of wheat",
];

/// Every way to sample that a seed makes repeatable, with and without what looks at single tokens.
fn requests(most: u32) -> Vec<Request> {
    let mut out = Vec::new();
    for prompt in PROMPTS {
        let plain = greedy(Prompt::Text(prompt.into()), most);
        let mut sampled = plain.clone();
        sampled.sampling.temperature = Some(0.7);
        sampled.sampling.seed = Some(5);
        let mut careful = plain.clone();
        careful.sampling.repeat_penalty = Some(1.1);
        careful.logprobs = Some(2);
        let mut short = plain.clone();
        short.max_tokens = Some(3);
        out.extend([plain, sampled, careful, short]);
    }
    out
}

async fn both(on: &Engine, off: &Engine, name: &str, most: u32) -> (u64, u64) {
    let (guessing, plain) = (on.open(name).await.unwrap(), off.open(name).await.unwrap());
    let (mut drafted, mut accepted) = (0, 0);
    for request in requests(most) {
        let shown = format!("{request:?}");
        let a = ask(&guessing, request.clone()).await;
        let b = ask(&plain, request).await;
        assert_eq!(content(&a), content(&b), "{shown}");
        assert_eq!(counted(&b, "drafted"), 0);
        drafted += counted(&a, "drafted");
        accepted += counted(&a, "accepted");
    }
    (drafted, accepted)
}

fn config(speculation: bool) -> EngineConfig {
    EngineConfig { packages: false, speculation, ..EngineConfig::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_of_made_up_models_are_the_same_with_guesses() {
    let room = Room::new();
    let (on, off) = (room.engine(config(true)), room.engine(config(false)));
    let mut total = (0, 0);
    for family in FAMILIES {
        for mix in ["q4_k_m", "q8_0"] {
            let name = format!("{family:?}-{mix}");
            room.model(&name, family, mix, |_, _| {});
            let (drafted, accepted) = both(&on, &off, &name, 90).await;
            total = (total.0 + drafted, total.1 + accepted);
        }
    }
    assert!(total.0 > 0 && total.1 > 0 && total.1 < total.0, "some right, some wrong: {total:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_of_smollm2_are_the_same_with_guesses() {
    let engine = |speculation| {
        let config = EngineConfig { pin: false, ..config(speculation) };
        Engine::new(config, store(), common::families(dialect())).unwrap()
    };
    let (drafted, accepted) = both(&engine(true), &engine(false), "smollm2", 60).await;
    assert!(accepted > 0 && accepted < drafted, "{accepted} of {drafted}");
}
