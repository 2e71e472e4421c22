//! The `llama-server` and `openai-compatible` bridges against a real llama-server with the demo model.
//!
//! Compiled with the feature `llama-server`; GRISTMILL_LLAMA_SERVER names the binary, which
//! `cargo xtask servers` builds. There is no way to pass without one.
#![cfg(feature = "llama-server")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may fail loudly")]

mod common;

use std::{
    env,
    io::{BufRead, BufReader},
    net::TcpListener,
    process::{Child, Command, Stdio},
};

use common::{chat, ends, say_the_same, tells_its_tokens, text, usage};
use gristmill_core::{
    capability::Support,
    event::Event,
    request::{Constraint, Tool, ToolChoice},
};
use gristmill_e2e::{Bridge, listing};
use gristmill_testing::fetch;
use gristmill_upstream::Times;

/// A running llama-server; stopped when dropped.
struct Server {
    child: Child,
    url: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(more: &[&str]) -> Self {
        let binary = env::var_os("GRISTMILL_LLAMA_SERVER")
            .expect("GRISTMILL_LLAMA_SERVER names a llama-server; cargo xtask servers builds one");
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let mut child = Command::new(binary)
            .args(["--host", "127.0.0.1", "--port", &port.to_string()])
            .args(["--alias", "smollm2", "--ctx-size", "1024", "--parallel", "1", "--threads", "2"])
            .arg("--model")
            .arg(fetch::smollm2().unwrap())
            .args(more)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("llama-server starts");
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        loop {
            let from = said.len();
            assert!(log.read_line(&mut said).unwrap() > 0, "llama-server ended early:\n{said}");
            if said.split_at(from).1.contains("listening on") {
                break;
            }
        }
        // A full pipe would stop it.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Self { child, url: format!("http://127.0.0.1:{port}") }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn both_bridges_say_the_same_of_the_same_server() {
    let server = Server::start(&[]);
    let own = Bridge::new("llama-server", &server.url, Times::default());
    let common = Bridge::new("openai-compatible", &server.url, Times::default());
    say_the_same(&[("llama-server", &own), ("openai-compatible", &common)]).await;

    // What llama-server alone tells.
    let model = own.backend.models().await.unwrap().remove(0);
    assert_eq!((model.context_native, model.quantization.as_deref()), (Some(8192), Some("Q4_1")));
    let tools = model.claims.iter().find(|claim| claim.name == "tools.calling").unwrap();
    assert!(matches!(tools.support, Support::Unsupported(_)), "its template has no tools");
    let (events, _) = own.play(chat("Say hello, Größe!"), 8).await;
    assert!(usage(&events).cached > 0, "the prompt came from its cache: {events:?}");
    assert!(events.iter().any(|event| matches!(event, Event::Timings(t) if t.decode > 0)));
    let tokens = own.backend.tokenize("smollm2", "Größe<|im_end|>", true).await.unwrap();
    assert_eq!(tokens.last(), Some(&2), "{tokens:?}");
    let bytes = own.backend.detokenize("smollm2", &tokens).await.unwrap();
    assert_eq!(String::from_utf8(bytes).unwrap(), "Größe<|im_end|>");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_it_refuses_and_what_it_lets_pass_has_a_name() {
    let server = Server::start(&[]);
    let bridge = Bridge::new("llama-server", &server.url, Times::default());

    let (_, error) = bridge.play(chat(&"word ".repeat(4000)), 8).await;
    let error = error.expect("too long a prompt");
    assert_eq!(error.code.as_str(), "context-overflow", "{error:?}");
    assert!(error.detail("limit").is_some() && error.detail("additional").is_some(), "{error:?}");

    let mut request = chat("x");
    request.constraint = Some(Constraint::Grammar("root ::= [".into()));
    let (_, error) = bridge.play(request, 8).await;
    assert_eq!(error.expect("a broken grammar").code.as_str(), "invalid-request");

    // Its template has no place for tools, and so it does not enforce a call.
    let mut request = chat("What is the weather in Rome?");
    request.max_tokens = Some(200);
    request.stop = vec![".".into(), "!".into(), "\n".into()];
    request.tool_choice = ToolChoice::Required;
    request.tools = vec![Tool {
        name: "weather".into(),
        description: Some("quotes \" and {braces} and <tool_call> and ```".into()),
        parameters: r#"{"type":"object","properties":{"city":{"type":"string"}}}"#.into(),
        strict: None,
        extras: Vec::new(),
    }];
    let (events, error) = bridge.play(request, 8).await;
    let called = events.iter().any(|event| matches!(event, Event::ToolStart(_)));
    assert!(called || error.is_some(), "an answer without its call looks clean: {events:?}");

    // The same server goes on, for raw prompts, schemas and log probabilities.
    let mut request = chat("A number.");
    let schema =
        r#"{"type":"object","properties":{"z":{"type":"integer","maximum":9}},"required":["z"]}"#;
    request.max_tokens = Some(60);
    request.constraint = Some(Constraint::JsonSchema(schema.into()));
    let answer = bridge.play(request, 8).await;
    assert!(ends(&answer.0, "stop"), "{}", listing(&answer));
    assert!(text(&answer.0).contains("\"z\""), "{}", listing(&answer));

    tells_its_tokens(&bridge).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn its_only_slot_is_free_as_soon_as_an_answer_is_dropped() {
    let server = Server::start(&[]);
    let bridge = Bridge::new("llama-server", &server.url, Times::default());
    let mut request = chat("Count to a thousand.");
    request.max_tokens = Some(900);
    let mut long = bridge.backend.generate(request).await.unwrap();
    assert!(long.next(1).await.unwrap().is_some());
    drop(long);
    // With one slot this waits for the long answer, unless that was cancelled: then it is quick.
    let (events, error) = bridge.play(chat("Say hi."), 8).await;
    assert!(error.is_none() && ends(&events, "length"), "{error:?}");
}
