//! What is logged of a request, and what never is: its prompt, its answer, its key.
#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

mod support;

use std::{
    io,
    sync::{Arc, Mutex},
};

use axum::{body::Body, http::Request};
use gristmill_router::Limits;
use serde_json::{Value, json};
use support::{Beat, Double, Play, bench_with, finish, text, usage};
use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl io::Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Page {
    type Writer = Self;
    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn a_request_leaves_a_line_without_its_words() {
    let page = Page::default();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(page.clone())
        .finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();

    let events = vec![text("ANSWER-SECRET"), usage(5, 2), finish("stop")];
    let double = Double::playing(Play::Beats(vec![Beat::Events(events)]));
    let config = support::tokens(&["KEY-SECRET"]);
    let bench = bench_with(double, config, Limits::default()).await;
    let post = async |path: &str, key: &str, body: Value| {
        let request = Request::post(path)
            .header("authorization", format!("Bearer {key}"))
            .header("x-request-id", "trace-7")
            .body(Body::from(body.to_string()))
            .unwrap();
        bench.send(request).await.status.as_u16()
    };
    let chat = |stream| {
        json!({ "model": "tiny", "stream": stream,
            "messages": [{ "role": "user", "content": "PROMPT-SECRET" }] })
    };
    for path in ["/api/chat", "/v1/chat/completions"] {
        assert_eq!(post(path, "KEY-SECRET", chat(true)).await, 200);
        assert_eq!(post(path, "KEY-SECRET", chat(false)).await, 200);
        assert_eq!(post(path, "WRONG-SECRET", chat(false)).await, 401);
        assert_eq!(
            post(path, "KEY-SECRET", json!({ "model": "tiny", "messages": "PROMPT-SECRET" })).await,
            400
        );
    }

    let log = String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
    assert!(!log.contains("SECRET"), "{log}");
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|line: &Value| line["fields"]["message"] == "request")
        .map(|mut line| line["fields"].take())
        .collect();
    assert_eq!(lines.len(), 8);
    let first = lines.first().unwrap();
    for (name, value) in [
        ("request_id", json!("trace-7")),
        ("route", json!("/api/chat")),
        ("status", json!(200)),
        ("model", json!("tiny")),
        ("prompt_tokens", json!(5)),
        ("completion_tokens", json!(2)),
        ("cancelled", json!(false)),
    ] {
        assert_eq!(first[name], value, "{name}");
    }
    assert!(first["duration_ms"].as_f64().unwrap() >= first["first_token_ms"].as_f64().unwrap());
    assert_eq!(lines.iter().filter(|line| line["failure"] == "unauthorized").count(), 2);
}
