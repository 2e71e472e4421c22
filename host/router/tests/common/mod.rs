//! What the tests of swaps share: real components that tell their own name, a router over them, and
//! the events it tells.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly, and no test uses everything"
)]

use std::{path::Path, sync::Arc, task::Poll};

use gristmill_core::{
    Result,
    event::Event,
    request::{Prompt, Request},
};
use gristmill_ledger::{Kind, Pin};
use gristmill_policies::Grant;
use gristmill_router::{
    Answer, Happened, Limits, NoModels, NoResidency, Role, Rollout, Router, RouterConfig, Source,
    SwapEvent, Trial,
};
use gristmill_sandbox::{Backend, Sandbox, SandboxConfig, Services, inspect};
use gristmill_testing::guests;
use tokio::sync::mpsc::{self, UnboundedReceiver};

/// The three components: what answers first, another one, and one that obeys bad words.
pub const FIRST: &str = "teller";
pub const NEXT: &str = "teller_next";
pub const WORSE: &str = "teller_worse";
/// The name they serve under, and the model they serve.
pub const NAME: &str = "voice";
pub const MODEL: &str = "teller";

/// A router with the first component live, and a way to more.
pub struct Bench {
    pub router: Arc<Router>,
    pub events: UnboundedReceiver<SwapEvent>,
    sandbox: Sandbox,
}

impl Bench {
    pub async fn new() -> Self {
        Self::with(RouterConfig::default(), Limits { active: 64, queued: 512, ..Limits::default() })
            .await
    }

    pub async fn with(config: RouterConfig, limits: Limits) -> Self {
        let bench = Self::bare(config, 128);
        let first = bench.component(FIRST);
        bench.router.install(NAME, Source::Listed, limits, first).await.unwrap();
        bench
    }

    /// Nothing live; room for so many answers at a time.
    pub fn bare(config: RouterConfig, stores: u32) -> Self {
        let router = Router::new(config, Arc::new(NoModels), Arc::new(NoResidency));
        let (sender, events) = mpsc::unbounded_channel();
        assert!(router.watch(Arc::new(sender)));
        // Compiled once for all tests.
        let compiled = Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled"));
        let config = SandboxConfig { stores, compiled, ..SandboxConfig::default() };
        Self { router: Arc::new(router), events, sandbox: Sandbox::new(config).unwrap() }
    }

    /// A guest as the sandbox runs it.
    pub fn component(&self, name: &str) -> Arc<dyn Backend> {
        let bytes = guests::guest(name).unwrap();
        let found = inspect(&bytes).unwrap();
        let file = format!("{name}.wasm");
        let pin = Pin::first(name, file, &bytes, found.kind, found.contract, found.imports);
        let imports = [
            "gristmill:contract/*",
            "wasi:cli/*",
            "wasi:clocks/*",
            "wasi:filesystem/*",
            "wasi:io/*",
            "wasi:random/*",
        ];
        let imports = imports.iter().map(|&name| name.to_owned()).collect();
        let mut grant = Grant { imports, ..Grant::none(Kind::Backend) };
        // As many as the sandbox has, and answers that may go on for a test's time.
        grant.limits.stores = 1100;
        self.sandbox.load_backend(&bytes, &pin, &grant, Services::default()).unwrap()
    }

    /// What has been told since the last time, as `generation word`.
    pub fn told(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        while let Ok(event) = self.events.try_recv() {
            told.push(line(event));
        }
        told
    }

    /// Waits until this is told.
    pub async fn until(&mut self, wanted: &str) {
        while line(self.events.recv().await.unwrap()) != wanted {}
    }

    /// Number and role of each generation.
    pub fn roles(&self) -> Vec<(u64, Role)> {
        let reports = self.router.generations(NAME);
        reports.iter().map(|report| (report.generation.generation, report.role)).collect()
    }

    /// Begins an answer to `prompt`, as the request with this id.
    pub async fn begin(&self, id: &str, prompt: &str) -> Result<Answer> {
        let plan = self.router.resolve(MODEL).await?;
        self.router.generate(&plan, request(id, prompt), None).await
    }

    /// The whole answer: its generation, and its text.
    pub async fn ask(&self, id: &str, prompt: &str) -> Result<(u64, String)> {
        let mut answer = self.begin(id, prompt).await?;
        Ok((answer.provenance().generation, rest(&mut answer).await?))
    }
}

fn line(event: SwapEvent) -> String {
    let number = event.generation.generation;
    match event.what {
        Happened::RolledBack { to, why } => {
            format!("{number} rolled-back to {} {}", to.generation, why.code())
        }
        Happened::Withdrawn(why) => format!("{number} withdrawn {}", why.code()),
        what => format!("{number} {}", what.word()),
    }
}

pub fn request(id: &str, prompt: &str) -> Request {
    Request::new(id, MODEL, Prompt::Text(prompt.into()))
}

/// What is left of an answer.
pub async fn rest(answer: &mut Answer) -> Result<String> {
    let mut all = String::new();
    while let Some(events) = answer.next(64).await? {
        for event in events {
            if let Event::Text(text) = event {
                all.push_str(&text);
            }
        }
    }
    Ok(all)
}

/// The next piece.
pub async fn piece(answer: &mut Answer) -> String {
    match answer.next(1).await.unwrap().as_deref() {
        Some([Event::Text(text)]) => text.clone(),
        other => panic!("expected a piece, found {other:?}"),
    }
}

/// Full traffic, with this trial first.
pub fn after(trial: Trial) -> Rollout {
    Rollout { trial, ..Rollout::default() }
}

/// Polls once; it must not be done.
pub async fn pends<T>(future: &mut (impl Future<Output = T> + Unpin)) {
    let mut future = std::pin::Pin::new(future);
    std::future::poll_fn(|cx| {
        assert!(future.as_mut().poll(cx).is_pending(), "expected it to wait");
        Poll::Ready(())
    })
    .await;
}
