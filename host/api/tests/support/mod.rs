//! A back-end that plays scripts, a shelf of models, and an HTTP client small enough to see through.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "shared by test files, each of which uses a part; tests may fail loudly"
)]

use std::{
    ops::ControlFlow,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, UNIX_EPOCH},
};

use async_trait::async_trait;
use axum::{
    Router as App,
    body::Body,
    http::{HeaderMap, Method, Request as HttpRequest, StatusCode},
};
use gristmill_api::{ApiConfig, AppState, ServeConfig, app, serve};
use gristmill_core::{
    Error, Result,
    capability::{Claim, Descriptor, ModelInfo, Readiness},
    event::{Event, Finish, Timings, ToolStart, Usage},
    program::{Metadata, TensorInfo, Value as Datum},
    request::{EmbedRequest, Embeddings, Part, Prompt, Ranked, Request, RerankRequest},
};
use gristmill_engine::runtime::Loaded;
use gristmill_router::{
    Card, Limits, Models, Progress, Record, Residency, Router, RouterConfig, Source, Step,
};
use gristmill_sandbox::backend::{Backend, Generation};
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{oneshot, watch},
    task::JoinHandle,
};
use tower::ServiceExt;

pub const DIGEST: &str = "sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/// One thing a scripted answer does when asked for more.
#[derive(Clone)]
pub enum Beat {
    Events(Vec<Event>),
    Fail(Error),
    Panic,
    /// Never says anything.
    Hang,
    /// This text for ever.
    Endless(String),
}

/// What the back-end does with a request.
#[derive(Clone)]
pub enum Play {
    Beats(Vec<Beat>),
    Refuse(Error),
    PanicAtStart,
}

pub fn text(text: &str) -> Event {
    Event::Text(text.to_owned())
}

pub fn finish(reason: &str) -> Event {
    Event::Finish(Finish::because(reason))
}

pub fn usage(prompt: u32, completion: u32) -> Event {
    Event::Usage(Usage { prompt, completion, cached: 1, ..Usage::default() })
}

pub fn timings() -> Event {
    Event::Timings(Timings { queue: 0, load: 0, prefill: 2000, decode: 3000, extras: Vec::new() })
}

/// Two pieces of text, counts, times, `stop`.
pub fn hello() -> Play {
    Play::Beats(vec![
        Beat::Events(vec![text("Hel")]),
        Beat::Events(vec![text("lo")]),
        Beat::Events(vec![usage(5, 2), timings(), finish("stop")]),
    ])
}

type Director = Box<dyn Fn(&Request) -> Play + Send + Sync>;

/// The scripted back-end.
pub struct Double {
    director: Mutex<Director>,
    pub requests: Mutex<Vec<Request>>,
    pub embeds: Mutex<Vec<EmbedRequest>>,
    pub claims: Mutex<Vec<Claim>>,
    pub ready: Mutex<bool>,
    /// Generations alive.
    live: Arc<watch::Sender<usize>>,
    /// Generations begun.
    begun: watch::Sender<usize>,
    /// Bytes of text handed out, per generation in order of beginning.
    pub pulled: Mutex<Vec<Arc<AtomicU64>>>,
    pub vectors: Mutex<Option<Embeddings>>,
    pub no_vectors: Mutex<Option<Error>>,
    pub ranks: Mutex<Result<Vec<Ranked>>>,
    pub reranks: Mutex<Vec<RerankRequest>>,
}

impl Double {
    pub fn new(director: impl Fn(&Request) -> Play + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            director: Mutex::new(Box::new(director)),
            requests: Mutex::default(),
            embeds: Mutex::default(),
            claims: Mutex::default(),
            ready: Mutex::new(true),
            live: Arc::new(watch::Sender::new(0)),
            begun: watch::Sender::new(0),
            pulled: Mutex::default(),
            vectors: Mutex::default(),
            no_vectors: Mutex::default(),
            ranks: Mutex::new(Err(Error::unsupported("no ranking"))),
            reranks: Mutex::default(),
        })
    }

    pub fn playing(play: Play) -> Arc<Self> {
        Self::new(move |_| play.clone())
    }

    pub fn last(&self) -> Request {
        self.requests.lock().unwrap().last().unwrap().clone()
    }

    pub fn alive(&self) -> usize {
        *self.live.borrow()
    }

    /// Waits until so many generations have begun.
    pub async fn begun(&self, count: usize) {
        within(self.begun.subscribe().wait_for(|begun| *begun >= count)).await.unwrap();
    }

    /// Waits, no longer than work may go on for a client that is gone, until so many are alive.
    pub async fn left(&self, count: usize) {
        let mut live = self.live.subscribe();
        let wait = live.wait_for(|live| *live == count);
        tokio::time::timeout(Duration::from_secs(1), wait)
            .await
            .unwrap_or_else(|_| panic!("after a second {} are alive, not {count}", self.alive()))
            .unwrap();
    }
}

/// Fails a test that would wait for ever.
pub async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("waited for 20 seconds")
}

struct Playing {
    beats: std::collections::VecDeque<Beat>,
    live: Arc<watch::Sender<usize>>,
    pulled: Arc<AtomicU64>,
}

impl Drop for Playing {
    fn drop(&mut self) {
        self.live.send_modify(|live| *live -= 1);
    }
}

#[async_trait]
impl Generation for Playing {
    async fn next(&mut self, max: u32) -> Result<Option<Vec<Event>>> {
        match self.beats.pop_front() {
            None => Ok(None),
            Some(Beat::Events(events)) => {
                assert!(events.len() <= max as usize);
                Ok(Some(events))
            }
            Some(Beat::Fail(error)) => Err(error),
            Some(Beat::Panic) => panic!("a defect, on purpose"),
            Some(Beat::Hang) => std::future::pending().await,
            Some(Beat::Endless(text)) => {
                self.pulled.fetch_add(text.len() as u64, Ordering::Relaxed);
                self.beats.push_front(Beat::Endless(text.clone()));
                tokio::task::yield_now().await;
                Ok(Some(vec![Event::Text(text)]))
            }
        }
    }
}

#[async_trait]
impl Backend for Double {
    fn digest(&self) -> &str {
        DIGEST
    }

    async fn describe(&self) -> Result<Descriptor> {
        Ok(Descriptor {
            id: "scripted".into(),
            kind: "scripted".into(),
            version: "1".into(),
            execution: "library".into(),
            claims: self.claims.lock().unwrap().clone(),
            extras: Vec::new(),
        })
    }

    async fn models(&self) -> Result<Vec<ModelInfo>> {
        Ok(vec![ModelInfo { id: "listed/one".into(), ..ModelInfo::default() }])
    }

    async fn generate(&self, request: Request) -> Result<Box<dyn Generation>> {
        let play = (self.director.lock().unwrap())(&request);
        self.requests.lock().unwrap().push(request);
        let beats = match play {
            Play::Beats(beats) => beats,
            Play::Refuse(error) => return Err(error),
            Play::PanicAtStart => panic!("a defect, on purpose"),
        };
        let pulled = Arc::new(AtomicU64::new(0));
        self.pulled.lock().unwrap().push(pulled.clone());
        self.live.send_modify(|live| *live += 1);
        self.begun.send_modify(|begun| *begun += 1);
        Ok(Box::new(Playing { beats: beats.into(), live: self.live.clone(), pulled }))
    }

    async fn embed(&self, request: EmbedRequest) -> Result<Embeddings> {
        let rows = request.inputs.len() as u32;
        // The length of the text is its first number, so that order is seen.
        let data = request.inputs.iter().flat_map(|text| [text.len() as f32, 1.0, 0.0]).collect();
        self.embeds.lock().unwrap().push(request);
        if let Some(error) = self.no_vectors.lock().unwrap().clone() {
            return Err(error);
        }
        let made = Embeddings { dim: 3, rows, data, prompt_tokens: 4 * rows };
        Ok(self.vectors.lock().unwrap().clone().unwrap_or(made))
    }

    async fn rerank(&self, request: RerankRequest) -> Result<Vec<Ranked>> {
        self.reranks.lock().unwrap().push(request);
        self.ranks.lock().unwrap().clone()
    }

    async fn tokenize(&self, _: &str, text: &str, _: bool) -> Result<Vec<u32>> {
        Ok(text.bytes().map(u32::from).collect())
    }

    async fn detokenize(&self, _: &str, tokens: &[u32]) -> Result<Vec<u8>> {
        Ok(tokens.iter().map(|token| *token as u8).collect())
    }

    async fn health(&self) -> Result<Readiness> {
        let ready = *self.ready.lock().unwrap();
        Ok(Readiness { ready, detail: "as scripted".into(), extras: Vec::new() })
    }
}

/// Stored models: `tiny`, also called `TinyModel` and `tiny:135m`.
pub struct Shelf(Mutex<Vec<Record>>);

impl Default for Shelf {
    fn default() -> Self {
        let info = ModelInfo {
            id: "tiny".into(),
            names: vec!["TinyModel".into(), "tiny:135m".into()],
            digest: Some("sha256:abcd".into()),
            family: Some("llama".into()),
            quantization: Some("Q4_1".into()),
            parameters: Some(134_515_008),
            size_bytes: Some(98_000_000),
            context_native: Some(2048),
            claims: vec![Claim::supported("inference.text"), Claim::supported("tools.calling")],
            extras: Vec::new(),
        };
        Self(Mutex::new(vec![Record {
            info,
            modified: Some(UNIX_EPOCH + Duration::from_millis(1_700_000_000_250)),
            format: Some("gguf".into()),
            embedding_length: Some(576),
            ..Record::default()
        }]))
    }
}

#[async_trait]
impl Models for Shelf {
    async fn list(&self) -> Result<Vec<Record>> {
        Ok(self.0.lock().unwrap().clone())
    }

    async fn show(&self, id: &str) -> Result<Card> {
        let record = self.0.lock().unwrap().iter().find(|r| r.info.id == id).cloned().unwrap();
        let keys = vec![
            ("general.architecture".to_owned(), Datum::Text("llama".into())),
            ("llama.context_length".to_owned(), Datum::Int(2048)),
            ("tokenizer.ggml.tokens".to_owned(), Datum::Long(49152)),
        ];
        let tensors = vec![TensorInfo {
            name: "output_norm.weight".into(),
            shape: vec![576],
            element: "F32".into(),
        }];
        Ok(Card {
            record,
            metadata: Some(Metadata { architecture: "llama".into(), keys, tensors }),
            template: Some("{{ messages }}".into()),
            parameters: vec![("stop".into(), "\"<|im_end|>\"".into())],
            ..Card::default()
        })
    }

    async fn pull(&self, name: &str, progress: Progress) -> Result<Record> {
        if name == "absent" {
            return Err(Error::not_found("pull: no source has 'absent'"));
        }
        let step = |status: &str, completed| Step {
            status: status.into(),
            digest: None,
            total: Some(10),
            completed: Some(completed),
        };
        for completed in [5, 10] {
            if let ControlFlow::Break(()) = progress(step("downloading", completed)) {
                return Err(Error::new(gristmill_core::Code::Cancelled, "stopped"));
            }
        }
        let record = Record {
            info: ModelInfo { id: name.into(), ..ModelInfo::default() },
            ..Record::default()
        };
        self.0.lock().unwrap().push(record.clone());
        Ok(record)
    }

    async fn remove(&self, name: &str) -> Result<()> {
        let mut records = self.0.lock().unwrap();
        for record in records.iter_mut() {
            record.info.names.retain(|known| known != name);
        }
        records.retain(|record| record.info.id != name);
        Ok(())
    }

    async fn copy(&self, source: &str, destination: &str) -> Result<()> {
        let mut records = self.0.lock().unwrap();
        let record = records
            .iter_mut()
            .find(|r| r.info.id == source || r.info.names.iter().any(|name| name == source))
            .unwrap();
        record.info.names.push(destination.into());
        Ok(())
    }
}

/// What is in memory: what was loaded.
#[derive(Default)]
pub struct Memory(Mutex<Vec<String>>);

#[async_trait]
impl Residency for Memory {
    fn loaded(&self) -> Vec<Loaded> {
        let loaded = |id: &String| Loaded {
            id: id.clone(),
            digest: "sha256:abcd".into(),
            memory: 100,
            context: 2048,
            active: 0,
        };
        self.0.lock().unwrap().iter().map(loaded).collect()
    }

    async fn load(&self, id: &str) -> Result<()> {
        self.0.lock().unwrap().push(id.into());
        Ok(())
    }

    /// Renders `role: text` lines with `=`, and words in front for tools; a token is a byte.
    async fn prompt(&self, request: Request) -> Result<(Vec<u32>, String)> {
        let mut text = format!("<{}>", request.model);
        for tool in &request.tools {
            text.push_str(&format!("[{}]", tool.name));
        }
        match &request.prompt {
            Prompt::Chat(messages) => {
                for message in messages {
                    let said = message.content.iter().map(|part| match part {
                        Part::Text(text) => text.as_str(),
                        _ => "?",
                    });
                    let said: String = said.collect();
                    text.push_str(&format!("{}={said};", message.role.as_str()));
                }
            }
            Prompt::Text(prompt) => text.push_str(prompt),
            _ => return Err(Error::unsupported("no such prompt")),
        }
        Ok((text.bytes().map(u32::from).collect(), text))
    }

    async fn unload(&self, id: &str) -> bool {
        let mut loaded = self.0.lock().unwrap();
        let before = loaded.len();
        loaded.retain(|known| known != id);
        loaded.len() < before
    }
}

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

    pub async fn post(&self, path: &str, body: Value) -> Reply {
        self.raw(Method::POST, path, body.to_string()).await
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.raw(Method::GET, path, Body::empty()).await
    }

    /// Serves on a free port of the loopback until dropped.
    pub async fn listen(&self, config: ServeConfig) -> Listening {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let app = self.app.clone();
        let task = tokio::spawn(async move {
            serve(listener, app, config, async move {
                let _ = stopped.await;
            })
            .await
            .unwrap();
        });
        Listening { address, stop: Some(stop), task }
    }
}

/// A server on a real port.
pub struct Listening {
    pub address: std::net::SocketAddr,
    pub stop: Option<oneshot::Sender<()>>,
    pub task: JoinHandle<()>,
}

impl Listening {
    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// A connection with this request written.
    pub async fn begin(&self, path: &str, body: &Value) -> TcpStream {
        let mut stream = self.connect().await;
        stream.write_all(&request(path, body)).await.unwrap();
        stream
    }

    /// Sends a request and reads until the server closes.
    pub async fn call(&self, path: &str, body: &Value) -> String {
        let mut stream = self.begin(path, body).await;
        let mut answer = Vec::new();
        within(stream.read_to_end(&mut answer)).await.unwrap();
        String::from_utf8(answer).unwrap()
    }
}

/// A request whose answer ends with the connection.
pub fn request(path: &str, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// A plan of single events.
pub fn play(events: Vec<Event>) -> Play {
    Play::Beats(events.into_iter().map(|event| Beat::Events(vec![event])).collect())
}

/// The beginning of a tool call.
pub fn start(index: u32, id: &str, name: &str) -> Event {
    Event::ToolStart(ToolStart { index, id: id.into(), name: name.into() })
}

/// More of its arguments.
pub fn arguments(index: u32, piece: &str) -> Event {
    Event::ToolArguments(index, piece.into())
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
