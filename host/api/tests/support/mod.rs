//! An API over a back-end that plays scripts ([`double`]) and a shelf of models ([`shelf`]), called
//! directly or on a real port ([`wire`]).
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "shared by test files, each of which uses a part; tests may fail loudly"
)]

mod double;
mod shelf;
mod wire;

use std::sync::Arc;

use axum::{
    Router as App,
    body::Body,
    http::{HeaderMap, Method, Request as HttpRequest, StatusCode},
};
use gristmill_api::{
    ApiConfig, AppState, app,
    keys::{KeyFile, KeyRing, Wanted},
};
use gristmill_router::{Limits, Router, RouterConfig, Source};
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;

pub use double::*;
pub use shelf::*;
pub use wire::*;

/// An API over the double.
pub struct Bench {
    pub app: App,
    pub state: AppState,
    pub double: Arc<Double>,
}

pub async fn bench(double: Arc<Double>) -> Bench {
    bench_with(double, ApiConfig::default(), Limits::default()).await
}

pub async fn bench_with(double: Arc<Double>, config: ApiConfig, limits: Limits) -> Bench {
    let shelf = Arc::new(Shelf::default());
    let router = Router::new(RouterConfig::default(), shelf, Arc::new(Memory::default()));
    router.install("scripted", Source::Store, limits, double.clone()).await.unwrap();
    let state = AppState::new(config, Arc::new(router));
    Bench { app: app(state.clone()), state, double }
}

/// A folder for keys, and a host that reads them.
pub struct Keyed {
    pub folder: tempfile::TempDir,
    pub file: KeyFile,
}

impl Keyed {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = KeyFile::new(folder.path().join("keys.toml"));
        Self { folder, file }
    }

    /// Makes a key.
    pub fn add(&self, name: &str, change: impl FnOnce(&mut Wanted)) -> String {
        let mut wanted = Wanted { name: name.to_owned(), ..Wanted::default() };
        change(&mut wanted);
        self.file.add(wanted).unwrap()
    }

    /// A configuration with the keys of this file.
    pub fn config(&self) -> ApiConfig {
        let keys = Arc::new(KeyRing::open(&[], Some(self.file.clone())).unwrap());
        ApiConfig { keys, ..ApiConfig::default() }
    }

    pub async fn bench(&self) -> Bench {
        bench_with(Double::playing(hello()), self.config(), Limits::default()).await
    }
}

/// A configuration with these tokens.
pub fn tokens(tokens: &[&str]) -> ApiConfig {
    let tokens: Vec<String> = tokens.iter().map(|token| (*token).to_owned()).collect();
    let keys = Arc::new(KeyRing::open(&tokens, None).unwrap());
    ApiConfig { keys, ..ApiConfig::default() }
}

/// A whole answer.
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub bytes: Vec<u8>,
}

impl Reply {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes).unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_else(|_| panic!("not JSON: {}", self.text()))
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The lines of an NDJSON stream.
    pub fn lines(&self) -> Vec<Value> {
        assert!(self.text().ends_with('\n'));
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The frames of an SSE stream, without `data: `.
    pub fn frames(&self) -> Vec<String> {
        assert!(self.text().ends_with("\n\n"));
        let frame = |frame: &str| frame.strip_prefix("data: ").unwrap().to_owned();
        self.text().trim_end().split("\n\n").map(frame).collect()
    }

    /// The JSON frames of an SSE stream that must end with `[DONE]`.
    pub fn chunks(&self) -> Vec<Value> {
        let mut frames = self.frames();
        assert_eq!(frames.pop().as_deref(), Some("[DONE]"));
        frames.iter().map(|frame| serde_json::from_str(frame).unwrap()).collect()
    }
}

/// Named server-sent events: each has a name and data whose `type` is that name.
pub fn events(text: &str) -> Vec<Value> {
    assert!(text.ends_with("\n\n"));
    let event = |frame: &str| {
        let (name, data) = frame.split_once('\n').unwrap();
        let value: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(name.strip_prefix("event: ").unwrap(), value["type"]);
        value
    };
    text.trim_end().split("\n\n").map(event).collect()
}

/// The `type` of each.
pub fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

impl Bench {
    pub async fn send(&self, request: HttpRequest<Body>) -> Reply {
        let response = within(self.app.clone().oneshot(request)).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = within(body.collect()).await.unwrap().to_bytes().to_vec();
        Reply { status: parts.status, headers: parts.headers, bytes }
    }

    pub async fn raw(&self, method: Method, path: &str, body: impl Into<Body>) -> Reply {
        let request = HttpRequest::builder().method(method).uri(path).body(body.into()).unwrap();
        self.send(request).await
    }

    /// With a key, if there is one.
    pub async fn by(&self, key: Option<&str>, method: Method, path: &str, body: &str) -> Reply {
        let mut request = HttpRequest::builder().method(method).uri(path);
        if let Some(key) = key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        self.send(request.body(Body::from(body.to_owned())).unwrap()).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Reply {
        self.raw(Method::POST, path, body.to_string()).await
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.raw(Method::GET, path, Body::empty()).await
    }
}

/// The routes that answer to a conversation.
pub const CHATS: [&str; 4] = ["/api/chat", "/v1/chat/completions", "/v1/responses", "/v1/messages"];

/// A chat in the dialect of a route.
pub fn ask_at(path: &str, stream: bool) -> Value {
    match path {
        "/v1/responses" => serde_json::json!({ "model": "tiny", "stream": stream, "input": "hi" }),
        "/v1/messages" => serde_json::json!({
            "model": "tiny", "stream": stream, "max_tokens": 100,
            "messages": [{ "role": "user", "content": "hi" }],
        }),
        _ => ask(stream),
    }
}

/// A chat in either of the two older dialects.
pub fn ask(stream: bool) -> Value {
    serde_json::json!({
        "model": "tiny", "stream": stream, "messages": [{ "role": "user", "content": "hi" }],
    })
}
