//! Kinds of faults that people met in other servers, each tried on a small model.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use std::sync::Arc;

use common::{
    made::Room,
    random::{noise, wild},
    serve::{ask, chat, dialect, engine_with, greedy, model},
};
use gristmill_core::{
    program::{Dialect, Span},
    request::{EmbedRequest, Prompt, Reasoning, Request, Sampling},
};
use gristmill_engine::{
    EngineConfig, memory,
    runtime::{Model, Runtime},
};
use gristmill_testing::models::Family;

/// A shorter context is a bound on the answer and not another model.
#[tokio::test(flavor = "multi_thread")]
async fn no_context_length_loads_the_model_again() {
    let (engine, _model) = model().await;
    let mut used = None;
    for context in [8192, 4096, 8192, 512] {
        let opened = engine.open("smollm2").await.unwrap();
        let mut request = greedy(Prompt::Text("The capital of France is".into()), 2);
        request.context = Some(context);
        let answer = ask(&opened, request).await;
        let first = used.is_none();
        assert_eq!(answer.timings.load > 0, first, "{context}: {:?}", answer.timings);
        // What was read under another length is still there, in the same memory.
        assert_eq!(answer.usage.cached > 0, !first, "{context}: {:?}", answer.usage);
        let now = engine.memory().used();
        assert_eq!(*used.get_or_insert(now), now, "{context}");
        let loaded = engine.loaded();
        assert_eq!((loaded.len(), loaded[0].context), (1, 8192));
    }
}

/// What is kept of earlier conversations is bounded, and gives way before anything is refused.
#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_conversations_fill_no_memory() {
    // None begins like another.
    let conversation =
        |n: u32| greedy(Prompt::Tokens((0..12).map(|at| 1000 + n * 12 + at).collect()), 1);
    let (engine, first) = model().await;
    ask(&first, conversation(0)).await;
    let one = engine.memory().used();
    ask(&first, conversation(1)).await;
    let context = engine.memory().used() - one;
    assert!(context > 1 << 20, "{context}");
    let fixed = one - context;
    assert!(engine.unload("smollm2").await);
    drop((first, engine));
    // Plenty of room: some are kept. Room for three: all are answered all the same.
    for (limit, most) in [(None, 17), (Some(fixed + 3 * context), 3)] {
        let config = EngineConfig { memory_limit: limit, ..EngineConfig::default() };
        let engine = engine_with(config, dialect());
        let model = engine.open("smollm2").await.unwrap();
        let mut resident = Vec::new();
        for n in 0..200 {
            let answer = ask(&model, conversation(n)).await;
            assert_eq!((answer.usage.cached, answer.usage.prompt), (0, 12), "{n}");
            let used = engine.memory().used();
            assert!(used <= fixed + most * context, "{n}: {used} of {fixed} and {context}");
            resident.push(memory::resident().unwrap());
        }
        // From the fortieth on nothing is added but what the allocator rounds.
        let grown = resident[199].saturating_sub(resident[40]);
        assert!(grown < 8 << 20, "{grown} bytes more: {resident:?}");
    }
}

/// A template that closes an empty thought says that there is none: what comes is the answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_thought_that_the_template_has_closed_is_none() {
    let mut dialect = dialect();
    dialect.reasoning =
        Some(Span { open: "<think>".into(), close: "</think>".into(), open_at_start: true });
    dialect.template = Some(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
         <|im_start|>assistant\n{% if enable_thinking is defined and not enable_thinking %}\
         <think>\n\n</think>\n\n{% else %}<think>\n{% endif %}"
            .into(),
    );
    let engine = engine_with(EngineConfig::default(), dialect);
    let model = engine.open("smollm2").await.unwrap();
    for (reasoning, thinks) in
        [(Reasoning::Off, false), (Reasoning::Unset, true), (Reasoning::On, true)]
    {
        let request = Request { reasoning, ..greedy(chat("Say hello."), 24) };
        let answer = ask(&model, request).await;
        assert!(answer.usage.completion > 1, "{answer:?}");
        assert_eq!((answer.text.is_empty(), answer.reasoning.is_empty()), (thinks, !thinks));
    }
}

/// Bytes that are no text are U+FFFD in the answer, the bytes themselves beside the tokens, and the
/// server goes on.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_text_is_marked_and_harms_nobody() {
    let noise = noise(Dialect::default()).await;
    let mut marked = 0;
    for seed in 0..8 {
        let mut request = wild(seed, 200);
        request.sampling = Sampling { temperature: Some(2.0), ..request.sampling };
        // No end and no mark: every answer has its two hundred tokens, and all of them are text.
        request.sampling.logit_bias = vec![(0, -100.0), (1, -100.0), (2, -100.0)];
        request.logprobs = Some(0);
        let answer = ask(&noise.model, request).await;
        assert_eq!((answer.usage.completion, answer.reason()), (200, "length"));
        let bytes: Vec<u8> = answer.tokens.iter().flat_map(|token| token.bytes.clone()).collect();
        assert_eq!(answer.text, String::from_utf8_lossy(&bytes), "seed {seed}");
        marked += usize::from(answer.text.contains('\u{fffd}'));
    }
    assert!(marked > 0, "every answer was text");
}

/// A text longer than a pass is one text, however it is cut.
#[tokio::test(flavor = "multi_thread")]
async fn all_of_a_long_text_is_in_its_vector() {
    async fn vector(model: &Arc<dyn Model>, text: &str) -> Vec<f32> {
        let request = EmbedRequest {
            model: "smollm2".into(),
            inputs: vec![text.to_owned()],
            dimensions: None,
            truncate: false,
            extras: Vec::new(),
        };
        model.embed(request).await.unwrap().data
    }
    let cosine = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let (_engine, model) = model().await;
    let words: Vec<String> = (0..300).map(|n| format!("{n} apples")).collect();
    let text = words.join(", ");
    assert!(model.tokenize(&text, false).unwrap().len() > 600);
    let alone = vector(&model, &text).await;
    let begun = vector(&model, &words[..120].join(", ")).await;
    assert!(cosine(&alone, &begun) < 0.9999, "its end does not count");
    // Beside a running answer it is read in shorter stretches.
    let mut running = model
        .generate(Request {
            sampling: Sampling {
                logit_bias: vec![(0, -100.0), (2, -100.0)],
                ..Sampling::default()
            },
            ..greedy(Prompt::Text("1, 2, 3,".into()), 100_000)
        })
        .await
        .unwrap();
    running.next(1).await.unwrap().unwrap();
    let beside = vector(&model, &text).await;
    assert!(cosine(&alone, &beside) > 0.9999, "{}", cosine(&alone, &beside));
}

/// What a file says of itself for people may be missing.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_says_nothing_of_itself_is_read() {
    for missing in ["general.", "general.name", "general.type", "general.quantization_version"] {
        let room = Room::new();
        room.model("bare", Family::Llama, "q8_0", |bytes, file| {
            // Keys of another name, of the same length, are keys that are missing.
            let keys = file.keys().map(|(key, _)| key).filter(|key| key.starts_with(missing));
            let keys: Vec<&str> = keys.filter(|key| !key.ends_with("architecture")).collect();
            assert!(!keys.is_empty(), "no {missing}");
            for key in keys {
                let at = bytes.windows(key.len()).position(|at| at == key.as_bytes()).unwrap();
                bytes[at..at + 7].copy_from_slice(b"generax");
            }
        });
        let engine = room.engine(EngineConfig::default());
        let model = engine.open("bare").await.unwrap();
        let request = greedy(Prompt::Text("some text".into()), 3);
        assert!(ask(&model, request).await.usage.completion > 0, "{missing}");
    }
}
