//! The engine as the host uses it, on the demo model: answers, queues, memory, refusals.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use common::serve::{Answer, ask, chat, dialect, engine_with, greedy, model, read};
use gristmill_core::{
    Code, Error,
    program::{Span, ToolFormat},
    request::{
        Constraint, EmbedRequest, Media, Message, Part, Prompt, Reasoning, Request, RerankRequest,
        Role, Tool, ToolChoice,
    },
};
use gristmill_engine::{
    EngineConfig,
    runtime::{Decoding, Runtime},
};
use gristmill_kernels::{Isa, isa};

const FRANCE: &str = "The capital of France is";

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_comes_in_order_and_counts() {
    let (engine, model) = model().await;
    let answer = ask(&model, greedy(Prompt::Text(FRANCE.into()), 8)).await;
    assert!(answer.text.starts_with(" Paris"), "{:?}", answer.text);
    assert_eq!((answer.usage.prompt, answer.usage.completion), (5, 8));
    assert_eq!(answer.usage.cached, 0);
    assert_eq!(answer.reason(), "length");
    assert!(answer.timings.load > 0 && answer.timings.prefill > 0 && answer.timings.decode > 0);

    let answer = ask(&model, greedy(chat("Say hello."), 64)).await;
    assert_eq!(answer.reason(), "stop", "{answer:?}");
    assert!(!answer.text.contains("<|im_end|>") && !answer.text.is_empty());
    assert_eq!(answer.timings.load, 0, "loading is counted once");
    let loaded = engine.loaded();
    assert_eq!((loaded.len(), loaded[0].id.as_str(), loaded[0].active), (1, "smollm2:latest", 0));
    assert!(engine.unload("smollm2").await);
    assert!(engine.loaded().is_empty());
    assert!(!engine.unload("smollm2").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn reuse_changes_the_time_and_not_the_answer() {
    // By tiles a prompt's tokens are rounded otherwise than an answer's: what was read and what was
    // written is then not the same, and here the first answer is both.
    let config = EngineConfig { bulk: isa::current() < Isa::Amx, ..EngineConfig::default() };
    let engine = engine_with(config.clone(), dialect());
    let model = engine.open("smollm2").await.unwrap();
    let mut messages = vec![
        Message::text(Role::System, "You are a helpful assistant who answers briefly."),
        Message::text(Role::User, "What is the tallest mountain?"),
    ];
    let first = ask(&model, greedy(Prompt::Chat(messages.clone()), 24)).await;
    assert_eq!(first.usage.cached, 0);
    let again = ask(&model, greedy(Prompt::Chat(messages.clone()), 24)).await;
    assert_eq!(again.text, first.text);
    assert_eq!(again.usage.cached, first.usage.prompt - 1);

    messages.push(Message::text(Role::Assistant, &first.text));
    messages.push(Message::text(Role::User, "And the second?"));
    let warm = ask(&model, greedy(Prompt::Chat(messages.clone()), 24)).await;
    assert!(warm.usage.cached >= first.usage.prompt, "{:?}", warm.usage);
    let other = engine_with(config, dialect());
    let cold = other.open("smollm2").await.unwrap();
    let cold = ask(&cold, greedy(Prompt::Chat(messages), 24)).await;
    assert_eq!((cold.usage.cached, &cold.text), (0, &warm.text));

    // Another conversation with the same beginning copies it and leaves this one whole.
    let branch = vec![
        Message::text(Role::System, "You are a helpful assistant who answers briefly."),
        Message::text(Role::User, "Name a colour."),
    ];
    let branch = ask(&model, greedy(Prompt::Chat(branch), 8)).await;
    assert!(branch.usage.cached > 5 && branch.usage.cached < branch.usage.prompt - 3);
}

/// What was read in bulk is there as if it were read again: asking twice is asking once, whoever
/// began like it.
#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_read_in_bulk_is_reused_as_it_is() {
    let question = |last: &str| {
        let system = "You are a helpful assistant who answers briefly and in whole sentences.";
        let messages = [Message::text(Role::System, system), Message::text(Role::User, last)];
        greedy(Prompt::Chat(messages.into()), 24)
    };
    let (_engine, model) = model().await;
    let cold = ask(&model, question("What is the tallest mountain of all?")).await;
    let warm = ask(&model, question("What is the tallest mountain of all?")).await;
    assert_eq!((warm.usage.cached, &warm.text), (cold.usage.prompt - 1, &cold.text));
    let (_engine, other) = common::serve::model().await;
    ask(&other, question("What is the deepest lake?")).await;
    let branch = ask(&other, question("What is the tallest mountain of all?")).await;
    assert!(branch.usage.cached > 5 && branch.usage.cached < branch.usage.prompt - 3);
    assert_eq!(branch.text, cold.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_run_together_are_those_that_run_alone() {
    let (_engine, model) = model().await;
    let prompts = [FRANCE, "Once upon a time there was a", "def fibonacci(n):"];
    let mut alone = Vec::new();
    for prompt in prompts {
        alone.push(ask(&model, greedy(Prompt::Text(prompt.into()), 40)).await.text);
    }
    let (_engine, model) = common::serve::model().await;
    let mut running = Vec::new();
    for prompt in prompts {
        running.push(model.generate(greedy(Prompt::Text(prompt.into()), 40)).await.unwrap());
    }
    for (decoding, alone) in running.into_iter().zip(alone) {
        assert_eq!(read(decoding).await.unwrap().text, alone);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_strings_lengths_and_log_probabilities() {
    let (_engine, model) = model().await;
    let plain = ask(&model, greedy(Prompt::Text(FRANCE.into()), 24)).await;
    // A stop string that begins in the middle of one token and ends in the middle of another.
    let words: Vec<char> = plain.text.chars().collect();
    let stop: String = words[9..16].iter().collect();
    let mut request = greedy(Prompt::Text(FRANCE.into()), 24);
    request.stop = vec!["never there".into(), stop.clone()];
    let cut = ask(&model, request).await;
    assert_eq!(cut.text, plain.text[..plain.text.find(&stop).unwrap()]);
    assert_eq!((cut.reason(), cut.finish.as_ref().unwrap().stop.as_ref()), ("stop", Some(&stop)));

    let mut request = greedy(Prompt::Text(FRANCE.into()), 6);
    request.logprobs = Some(3);
    let answer = ask(&model, request).await;
    assert_eq!(answer.tokens.len(), 6);
    let bytes: Vec<u8> = answer.tokens.iter().flat_map(|token| token.bytes.clone()).collect();
    assert_eq!(String::from_utf8(bytes).unwrap(), answer.text);
    for token in &answer.tokens {
        assert_eq!((token.alternatives[0].id, token.alternatives.len()), (token.id, 3));
        assert_eq!(token.alternatives[0].logprob, token.logprob);
        assert!(token.logprob <= 0.0);
    }
    let nothing = ask(&model, greedy(Prompt::Text(FRANCE.into()), 0)).await;
    assert_eq!((nothing.text.as_str(), nothing.reason()), ("", "length"));
    assert_eq!(nothing.usage.completion, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_honoured_is_refused_by_name() {
    let (_engine, model) = model().await;
    let with = |change: fn(&mut Request)| {
        let mut request = greedy(chat("Hi"), 4);
        change(&mut request);
        request
    };
    let tool = || Tool {
        name: "sum".into(),
        description: None,
        parameters: "{}".into(),
        strict: None,
        extras: Vec::new(),
    };
    let picture = Part::Image(Media { mime: "image/png".into(), data: vec![1] });
    let mut image = greedy(chat("Hi"), 4);
    let Prompt::Chat(messages) = &mut image.prompt else { panic!() };
    messages[0].content.push(picture);
    let mut tools = greedy(chat("Hi"), 4);
    tools.tools = vec![tool()];
    let cases = [
        (with(|r| r.prompt = Prompt::Infill("a".into(), "b".into())), Code::Unsupported, "infill"),
        (
            with(|r| r.constraint = Some(Constraint::Other("shape".into(), String::new()))),
            Code::Unsupported,
            "shape",
        ),
        (with(|r| r.tool_choice = ToolChoice::Required), Code::InvalidRequest, "tool_choice"),
        (with(|r| r.reasoning = Reasoning::On), Code::Unsupported, "reason"),
        (with(|r| r.extras.push(("sparkle".into(), "1".into()))), Code::Unsupported, "sparkle"),
        (with(|r| r.logprobs = Some(1000)), Code::InvalidRequest, "logprobs"),
        (with(|r| r.stop = vec![String::new()]), Code::InvalidRequest, "stop"),
        (with(|r| r.context = Some(1 << 20)), Code::InvalidRequest, "context"),
        (with(|r| r.sampling.top_p = Some(7.0)), Code::InvalidRequest, "top_p"),
        (
            with(|r| r.sampling.logit_bias = vec![(1 << 30, 1.0)]),
            Code::InvalidRequest,
            "logit_bias",
        ),
        (with(|r| r.prompt = Prompt::Tokens(vec![1 << 30])), Code::InvalidRequest, "token"),
        (with(|r| r.prompt = Prompt::Tokens(vec![])), Code::InvalidRequest, "empty"),
        (image, Code::Unsupported, "image"),
        (tools, Code::Unsupported, "tools"),
    ];
    for (request, code, word) in cases {
        let error = refused(model.generate(request).await);
        assert_eq!(error.code, code, "{word}: {error}");
        assert!(error.message.contains(word), "{word}: {error}");
    }
    let request = RerankRequest {
        model: "smollm2".into(),
        query: "a".into(),
        documents: vec![],
        top_n: None,
        extras: vec![],
    };
    assert_eq!(model.rerank(request).await.unwrap_err().code, Code::Unsupported);
    let mut long = greedy(Prompt::Tokens(vec![5; 40]), 4);
    long.context = Some(32);
    let error = refused(model.generate(long).await);
    assert_eq!(error.code, Code::ContextOverflow);
    let details = ["stage", "resident", "additional", "limit"].map(|name| error.detail(name));
    assert_eq!(details, [Some("prompt"), Some("0"), Some("40"), Some("32")]);
    // The context's end is an end, and is said.
    let mut near = greedy(Prompt::Tokens(vec![5; 28]), 40);
    near.context = Some(32);
    let answer = ask(&model, near).await;
    assert_eq!((answer.reason(), answer.usage.prompt + answer.usage.completion), ("length", 32));
}

fn refused(result: gristmill_core::Result<Box<dyn Decoding>>) -> Error {
    match result {
        Ok(_) => panic!("accepted"),
        Err(error) => error,
    }
}

/// An answer that would go on for long.
fn endless() -> Request {
    let mut request = greedy(Prompt::Text("1, 2, 3, 4, 5,".into()), 100_000);
    request.sampling.logit_bias = vec![(0, -100.0), (2, -100.0)];
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_says_busy_and_cancelling_frees_the_place_and_the_memory() {
    let config = EngineConfig { max_active: 1, max_queued: 1, ..EngineConfig::default() };
    let engine = engine_with(config, dialect());
    let model = engine.open("smollm2").await.unwrap();
    let before = engine.memory().used();
    let mut running = model.generate(endless()).await.unwrap();
    running.next(1).await.unwrap().unwrap();
    let waiting = model.generate(endless()).await.unwrap();
    let error = refused(model.generate(endless()).await);
    assert_eq!(error.code, Code::Busy);
    assert!(error.retry_after_ms.is_some_and(|ms| ms >= 100));
    assert_eq!(engine.loaded()[0].active, 2);
    assert!(engine.memory().used() > before);

    // Cancelled while waiting: its place is free as soon as the driver looks.
    drop(waiting);
    let second = loop {
        match model.generate(endless()).await {
            Ok(decoding) => break decoding,
            Err(error) => assert_eq!(error.code, Code::Busy),
        }
        tokio::task::yield_now().await;
    };
    // Cancelled while writing: the waiting one begins.
    drop(running);
    let mut second = second;
    second.next(1).await.unwrap().unwrap();
    drop(second);
    // An answer that ends shows that the others are gone; its own context may stay for reuse.
    let last = ask(&model, greedy(Prompt::Text(FRANCE.into()), 2)).await;
    assert_eq!(last.usage.completion, 2);
    let capacity = engine.memory().used() - before;
    assert!(capacity <= 256 * 23_040, "{capacity} bytes are more than one small context");
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_while_reading_stops_within_a_pass() {
    let (engine, model) = model().await;
    let before = engine.memory().used();
    let long = greedy(Prompt::Tokens((0..8000).map(|n| 100 + n % 20_000).collect()), 4);
    let reading = model.generate(long).await.unwrap();
    drop(reading);
    let begun = std::time::Instant::now();
    ask(&model, greedy(Prompt::Text(FRANCE.into()), 1)).await;
    // Reading all 8000 tokens takes many times as long on any machine this runs on.
    assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
    assert!(engine.memory().used() - before <= 256 * 23_040);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_does_not_read_pauses_only_itself() {
    let (_engine, model) = model().await;
    let slow = model.generate(endless()).await.unwrap();
    for _ in 0..3 {
        let mut quick = endless();
        quick.max_tokens = Some(60);
        let quick = ask(&model, quick).await;
        assert_eq!(quick.usage.completion, 60);
    }
    // Nothing was lost, and it goes on when it is read.
    let mut slow = slow;
    let mut text = String::new();
    while text.matches(',').count() < 80 {
        for event in slow.next(8).await.unwrap().unwrap() {
            if let gristmill_core::event::Event::Text(more) = event {
                text.push_str(&more);
            }
        }
    }
    assert!(text.starts_with(" 6, 7, 8"), "{text:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn too_little_memory_is_refused_with_numbers() {
    let config = EngineConfig { memory_limit: Some(50 << 20), ..EngineConfig::default() };
    let engine = engine_with(config, dialect());
    let error = match engine.open("smollm2").await {
        Ok(_) => panic!("opened"),
        Err(error) => error,
    };
    assert_eq!(error.code, Code::InsufficientMemory);
    assert!(error.detail("required").unwrap().parse::<u64>().unwrap() > 90 << 20);
    assert_eq!(error.detail("limit"), Some("52428800"));
    // Enough for the model, not for a long context.
    let config = EngineConfig { memory_limit: Some(160 << 20), ..EngineConfig::default() };
    let engine = engine_with(config, dialect());
    let model = engine.open("smollm2").await.unwrap();
    let long = greedy(Prompt::Tokens(vec![9; 8000]), 1);
    let error = read(model.generate(long).await.unwrap()).await.unwrap_err();
    assert_eq!(error.code, Code::InsufficientMemory);
    assert!(error.detail("limit").is_some());
    // The engine goes on.
    assert_eq!(ask(&model, greedy(Prompt::Text(FRANCE.into()), 2)).await.usage.completion, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn embeddings_are_of_length_one_and_shorten_on_request() {
    let (_engine, model) = model().await;
    let request = |inputs: &[&str]| EmbedRequest {
        model: "smollm2".into(),
        inputs: inputs.iter().map(|text| (*text).to_owned()).collect(),
        dimensions: None,
        truncate: false,
        extras: Vec::new(),
    };
    let texts = ["A cat sleeps.", "The cat is asleep.", "Interest rates rose sharply."];
    let all = model.embed(request(&texts)).await.unwrap();
    assert_eq!((all.dim, all.rows, all.data.len()), (576, 3, 3 * 576));
    let row = |n: usize| &all.data[n * 576..(n + 1) * 576];
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    for n in 0..3 {
        assert!((dot(row(n), row(n)) - 1.0).abs() < 1e-4);
    }
    assert!(dot(row(0), row(1)) > dot(row(0), row(2)));
    let short = model.embed(EmbedRequest { dimensions: Some(64), ..request(&texts[..1]) }).await;
    let short = short.unwrap();
    assert!((dot(&short.data, &short.data) - 1.0).abs() < 1e-4);
    let scale = row(0)[0] / short.data[0];
    assert!(short.data.iter().zip(row(0)).all(|(a, b)| (a * scale - b).abs() < 1e-4));
    let long = "word ".repeat(9000);
    let error = model.embed(request(&[&long])).await.unwrap_err();
    assert_eq!(error.code, Code::ContextOverflow);
    assert_eq!(error.detail("limit"), Some("8192"));
    for dimensions in [0, 577] {
        let request = EmbedRequest { dimensions: Some(dimensions), ..request(&texts) };
        assert_eq!(model.embed(request).await.unwrap_err().detail("field"), Some("dimensions"));
    }
    assert_eq!(model.embed(request(&[])).await.unwrap().rows, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn reasoning_and_calls_are_told_apart_in_what_the_model_writes() {
    let mut dialect = dialect();
    dialect.reasoning =
        Some(Span { open: "<think>".into(), close: "</think>".into(), open_at_start: false });
    dialect.tools = Some(ToolFormat {
        open: "<tool_call>".into(),
        close: "</tool_call>".into(),
        shape: "json".into(),
        name_key: "name".into(),
        arguments_key: "arguments".into(),
        extras: Vec::new(),
    });
    let engine = engine_with(EngineConfig::default(), dialect);
    let model = engine.open("smollm2").await.unwrap();
    // The model is led to copy what stands in its prompt.
    let line = "<think>two and two</think><tool_call>{\"name\": \"sum\", \"arguments\": {\"a\": 2, \"b\": 2}}</tool_call>\n";
    let mut request = greedy(Prompt::Text(line.repeat(6)), 80);
    request.tools = vec![Tool {
        name: "sum".into(),
        description: None,
        parameters: "{}".into(),
        strict: None,
        extras: Vec::new(),
    }];
    request.parallel_tool_calls = Some(false);
    let answer: Answer = ask(&model, request).await;
    assert_eq!(answer.reasoning, "two and two", "{answer:?}");
    assert_eq!(answer.calls, [("sum".into(), "{\"a\": 2, \"b\": 2}".into(), true)]);
    assert_eq!((answer.reason(), answer.text.as_str()), ("tool-calls", ""));
    assert!(answer.usage.reasoning >= 3);
}
