//! The `vllm` and `openai-compatible` bridges against a real vLLM.
//!
//! Compiled with the feature `vllm`; GRISTMILL_VLLM is the address of one that serves an instruct model as
//! `smollm2` with a context of 4096 tokens and the tool parser `hermes`; docs/bridges.md says how. There is
//! no way to pass without one.
#![cfg(feature = "vllm")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may fail loudly")]

mod common;

use std::{
    env,
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use common::{chat, say_the_same, tells_its_tokens, text};
use gristmill_core::{
    event::Event,
    request::{Constraint, EmbedRequest, Tool, ToolChoice},
};
use gristmill_e2e::{Bridge, listing};
use gristmill_upstream::Times;

fn bridge(kind: &str) -> Bridge {
    let url = env::var("GRISTMILL_VLLM").expect("GRISTMILL_VLLM is the address of a vLLM");
    Bridge::new(kind, &url, Times::default())
}

#[tokio::test(flavor = "multi_thread")]
async fn both_bridges_say_the_same_of_the_same_server() {
    let (own, common) = (bridge("vllm"), bridge("openai-compatible"));
    say_the_same(&[("vllm", &own), ("openai-compatible", &common)]).await;

    assert_eq!(own.backend.models().await.unwrap().remove(0).context_native, Some(4096));
    let tokens = own.backend.tokenize("smollm2", "Größe<|im_end|>", true).await.unwrap();
    assert_eq!(tokens.last(), Some(&2), "{tokens:?}");
    let bytes = own.backend.detokenize("smollm2", &tokens).await.unwrap();
    assert!(String::from_utf8(bytes).unwrap().contains("Größe"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_it_refuses_has_a_name_and_what_it_enforces_holds() {
    let bridge = bridge("vllm");
    let (_, error) = bridge.play(chat(&"word ".repeat(6000)), 8).await;
    let error = error.expect("too long a prompt");
    assert_eq!(error.code.as_str(), "context-overflow", "{error:?}");

    let mut request = chat("x");
    request.model = "another".into();
    let (_, error) = bridge.play(request, 8).await;
    assert_eq!(error.expect("no such model").code.as_str(), "not-found");

    let embed = EmbedRequest {
        model: "smollm2".into(),
        inputs: vec!["x".into()],
        dimensions: None,
        truncate: false,
        extras: Vec::new(),
    };
    assert!(bridge.backend.embed(embed).await.is_err(), "it has no vectors and says so");

    let mut request = chat("A number.");
    let schema =
        r#"{"type":"object","properties":{"z":{"type":"integer","maximum":9}},"required":["z"]}"#;
    request.max_tokens = Some(60);
    request.constraint = Some(Constraint::JsonSchema(schema.into()));
    let answer = bridge.play(request, 8).await;
    assert!(answer.1.is_none(), "{}", listing(&answer));
    assert!(text(&answer.0).trim_start().starts_with('{'), "{}", listing(&answer));

    let mut request = chat("What is the weather in Rome?");
    request.max_tokens = Some(60);
    request.tool_choice = ToolChoice::Named("weather".into());
    request.tools = vec![Tool {
        name: "weather".into(),
        description: Some("The weather of a city".into()),
        parameters: r#"{"type":"object","properties":{"city":{"type":"string","maxLength":8}},"required":["city"],"additionalProperties":false}"#.into(),
        strict: None,
        extras: Vec::new(),
    }];
    let answer = bridge.play(request, 8).await;
    let called = answer.0.iter().any(|event| matches!(event, Event::ToolStart(_)));
    assert!(called && answer.1.is_none(), "{}", listing(&answer));

    tells_its_tokens(&bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_answer_stops_it() {
    let bridge = bridge("vllm");
    let mut request = chat("Count to a thousand.");
    request.max_tokens = Some(3000);
    let mut long = bridge.backend.generate(request).await.unwrap();
    assert!(long.next(1).await.unwrap().is_some());
    drop(long);
    // What runs is counted by the server itself.
    let begun = Instant::now();
    while running() > 0.0 {
        assert!(begun.elapsed() < Duration::from_secs(10), "it goes on");
    }
}

/// The server's own gauge.
fn running() -> f64 {
    let url = env::var("GRISTMILL_VLLM").unwrap();
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .write_all(format!("GET /metrics HTTP/1.0\r\nhost: {address}\r\n\r\n").as_bytes())
        .unwrap();
    let mut metrics = String::new();
    stream.read_to_string(&mut metrics).unwrap();
    let line = metrics.lines().find(|line| line.starts_with("vllm:num_requests_running"));
    let (_, count) = line.expect("a gauge of running requests").rsplit_once(' ').unwrap();
    count.parse().unwrap()
}
