//! What the sandbox's tests share: guests with pins and grants, and an engine that is all script.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly, and no test uses everything"
)]

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use async_trait::async_trait;
use gristmill_core::{
    Error, Extras, Result,
    capability::ModelInfo,
    event::{Event, Finish},
    request::{EmbedRequest, Embeddings, Message, Prompt, Ranked, Request, RerankRequest, Tool},
};
use gristmill_engine::runtime;
use gristmill_ledger::{Kind, Pin};
use gristmill_policies::{Grant, Limits, Upstream};
use gristmill_sandbox::{Backend, Sandbox, SandboxConfig, Services, inspect};
use gristmill_testing::guests;

/// Every import that any grant may allow.
pub const EVERYTHING: &[&str] = &[
    "gristmill:contract/clock",
    "gristmill:contract/engine",
    "gristmill:contract/kernels",
    "gristmill:contract/log",
    "gristmill:contract/onnx",
    "gristmill:contract/serving",
    "gristmill:contract/upstream",
    "wasi:cli/*",
    "wasi:clocks/*",
    "wasi:filesystem/*",
    "wasi:io/*",
    "wasi:random/*",
];

pub fn sandbox() -> Sandbox {
    Sandbox::new(SandboxConfig::default()).unwrap()
}

pub fn guest(name: &str) -> Vec<u8> {
    guests::guest(name).unwrap()
}

/// The pin that approves these bytes as they are.
pub fn pin(name: &str, bytes: &[u8]) -> Pin {
    let found = inspect(bytes).unwrap();
    Pin::first(name, format!("{name}.wasm"), bytes, found.kind, found.contract, found.imports)
}

/// A grant of every import, with these limits.
pub fn grant(kind: Kind, limits: Limits) -> Grant {
    Grant {
        imports: EVERYTHING.iter().map(|&name| name.to_owned()).collect(),
        upstreams: [("primary".to_owned(), primary())].into(),
        limits,
        ..Grant::none(kind)
    }
}

/// One server on this machine, everything below `/v1`.
pub fn primary() -> Upstream {
    let text = "kind = 'backend'\n[upstreams.primary]\nnetwork = ['loopback']\n\
                methods = ['GET', 'POST']\npaths = ['/v1', '/v1/*']";
    Grant::parse(text).unwrap().upstreams.remove("primary").unwrap()
}

/// The back-end that does as the prompt says.
pub fn hostile(sandbox: &Sandbox, limits: Limits, services: Services) -> Arc<dyn Backend> {
    let bytes = guest("hostile");
    let pin = pin("hostile", &bytes);
    sandbox.load_backend(&bytes, &pin, &grant(Kind::Backend, limits), services).unwrap()
}

/// A probe written by hand, with room for what no compiler emits.
pub fn by_hand(top: &str, checks: &str) -> Vec<u8> {
    let source = std::fs::read_to_string(guests::sources().join("wat/probe.wat"));
    wat::parse_str(source.unwrap().replace(";; TOP", top).replace(";; CHECKS", checks)).unwrap()
}

pub fn request(prompt: &str) -> Request {
    Request::new("test", "hostile", Prompt::Text(prompt.into()))
}

/// The whole answer to a prompt.
pub async fn answer(backend: &dyn Backend, prompt: &str) -> Result<Vec<Event>> {
    let mut generation = backend.generate(request(prompt)).await?;
    let mut events = Vec::new();
    while let Some(more) = generation.next(8).await? {
        events.extend(more);
    }
    Ok(events)
}

/// The text of an answer.
pub fn text(events: &[Event]) -> String {
    events
        .iter()
        .filter_map(|event| match event {
            Event::Text(text) => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

/// What a good answer of `n` pieces says.
pub fn good(n: u32) -> String {
    (1..=n).map(|n| format!("{n} ")).collect()
}

/// An engine that answers `prompt tokens` pieces and then finishes, or never ends.
#[derive(Default)]
pub struct Scripted {
    /// Answers that are running.
    pub running: Arc<AtomicU32>,
    /// Whether answers end.
    pub endless: bool,
}

#[async_trait]
impl runtime::Runtime for Scripted {
    async fn open(&self, id: &str) -> Result<Arc<dyn runtime::Model>> {
        if id != "scripted" {
            return Err(Error::not_found(format!("no model {id}")).with("field", "model"));
        }
        Ok(Arc::new(ScriptedModel { running: Arc::clone(&self.running), endless: self.endless }))
    }

    fn loaded(&self) -> Vec<runtime::Loaded> {
        Vec::new()
    }

    async fn unload(&self, _id: &str) -> bool {
        false
    }
}

#[derive(Clone)]
struct ScriptedModel {
    running: Arc<AtomicU32>,
    endless: bool,
}

impl ScriptedModel {
    fn decoding(&self) -> Box<dyn runtime::Decoding> {
        self.running.fetch_add(1, Ordering::SeqCst);
        Box::new(ScriptedDecoding { model: self.clone(), step: 0 })
    }
}

#[async_trait]
impl runtime::Model for ScriptedModel {
    fn info(&self) -> ModelInfo {
        ModelInfo { id: "scripted".into(), ..ModelInfo::default() }
    }

    fn tokenize(&self, text: &str, _special: bool) -> Result<Vec<u32>> {
        Ok(text.bytes().map(u32::from).collect())
    }

    fn detokenize(&self, tokens: &[u32]) -> Result<Vec<u8>> {
        Ok(tokens.iter().map(|&token| token as u8).collect())
    }

    fn render(
        &self,
        _messages: &[Message],
        _tools: &[Tool],
        _options: &Extras,
    ) -> Result<(Vec<u32>, String)> {
        Ok((Vec::new(), String::new()))
    }

    async fn generate(&self, _request: Request) -> Result<Box<dyn runtime::Decoding>> {
        Ok(self.decoding())
    }

    async fn embed(&self, _request: EmbedRequest) -> Result<Embeddings> {
        Err(Error::unsupported("no embeddings"))
    }

    async fn rerank(&self, _request: RerankRequest) -> Result<Vec<Ranked>> {
        Err(Error::unsupported("no ranks"))
    }

    async fn open_session(&self, _options: Extras) -> Result<Box<dyn runtime::Session>> {
        Ok(Box::new(ScriptedSession { model: self.clone(), tokens: 0 }))
    }
}

struct ScriptedDecoding {
    model: ScriptedModel,
    step: u32,
}

impl Drop for ScriptedDecoding {
    fn drop(&mut self) {
        self.model.running.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl runtime::Decoding for ScriptedDecoding {
    async fn next(&mut self, _max: u32) -> Result<Option<Vec<Event>>> {
        if self.model.endless {
            std::future::pending::<()>().await;
        }
        self.step += 1;
        Ok(match self.step {
            1 => Some(vec![Event::Text("from the ".into()), Event::Text("engine".into())]),
            2 => Some(vec![Event::Finish(Finish::because("stop"))]),
            _ => None,
        })
    }
}

struct ScriptedSession {
    model: ScriptedModel,
    tokens: u32,
}

#[async_trait]
impl runtime::Session for ScriptedSession {
    async fn ensure_prefix(
        &mut self,
        segments: Vec<runtime::Segment>,
    ) -> Result<runtime::PrefixStatus> {
        self.tokens = segments.iter().map(|segment| segment.tokens.len() as u32).sum();
        Ok(runtime::PrefixStatus { resident: self.tokens, ..Default::default() })
    }

    async fn prefill(&mut self, segments: Vec<runtime::Segment>) -> Result<runtime::PrefixStatus> {
        self.ensure_prefix(segments).await
    }

    async fn decode(&mut self, _request: Request) -> Result<Box<dyn runtime::Decoding>> {
        Ok(self.model.decoding())
    }

    async fn snapshot(&mut self) -> Result<String> {
        Ok("snapshot".into())
    }

    async fn restore(&mut self, snapshot: &str) -> Result<runtime::PrefixStatus> {
        assert_eq!(snapshot, "snapshot");
        Ok(runtime::PrefixStatus { resident: self.tokens, ..Default::default() })
    }

    async fn fork(&mut self) -> Result<Box<dyn runtime::Session>> {
        Ok(Box::new(ScriptedSession { model: self.model.clone(), tokens: self.tokens }))
    }

    async fn explain(&mut self) -> Result<String> {
        Ok("{}".into())
    }
}
