//! A back-end that plays scripts.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use gristmill_core::{
    Error, Result,
    capability::{Claim, Descriptor, ModelInfo, Readiness},
    event::{Event, Finish, Timings, ToolStart, Usage},
    request::{EmbedRequest, Embeddings, Ranked, Request, RerankRequest},
};
use gristmill_sandbox::backend::{Backend, Generation};
use tokio::sync::watch;

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
    /// What it says it is, when it is installed.
    pub kind: Mutex<&'static str>,
    pub digest: &'static str,
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
            kind: Mutex::new("scripted"),
            digest: DIGEST,
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
        self.digest
    }

    async fn describe(&self) -> Result<Descriptor> {
        Ok(Descriptor {
            id: "scripted".into(),
            kind: (*self.kind.lock().unwrap()).into(),
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
