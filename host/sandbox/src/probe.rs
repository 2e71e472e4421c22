//! Probes: plugins that test a back-end through the same interface that the host uses, and the
//! back-end as they see it ([`Observed`]).

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use gristmill_core::{
    Code, Error, Extras, Result,
    capability::{Descriptor, ModelInfo, Readiness},
    event::Event,
    request::{EmbedRequest, Embeddings, Ranked, Request, RerankRequest},
};
use tokio::time::timeout;

use crate::backend::{Backend, Generation};

/// What to test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Canonical model id to test with.
    pub model: String,
    /// Which checks, by id; empty: all.
    pub checks: Vec<String>,
    /// How long the run should take at most, in milliseconds.
    pub budget_ms: u32,
    /// What a later contract knows.
    pub extras: Extras,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// As claimed.
    Passed,
    /// Not as claimed: what was expected and seen.
    Failed(String),
    /// Cannot be tested here, and why.
    NotApplicable(String),
}

/// One check's result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Which check.
    pub id: String,
    /// The claim it tests.
    pub capability: Option<String>,
    /// What it found.
    pub outcome: Outcome,
    /// What was sent and seen, short, no secrets.
    pub evidence: String,
}

/// A loaded probe.
#[async_trait]
pub trait Probe: Send + Sync {
    /// `sha256:…` of the component.
    fn digest(&self) -> &str;

    /// The ids of all checks, in the order in which they run.
    ///
    /// # Errors
    /// `plugin-fault`, `busy`.
    async fn checks(&self) -> Result<Vec<String>>;

    /// Runs the plan's checks against this back-end, which runs in stores of its own: its faults are
    /// findings, not the probe's.
    ///
    /// # Errors
    /// `plugin-fault` of the probe, `busy`.
    async fn run(&self, backend: Arc<dyn Backend>, plan: Plan) -> Result<Vec<Check>>;
}

/// A back-end as a probe sees it: with the models that the host lists for it, and with an end to
/// waiting. A guest cannot give up a call that hangs, so the host does, and the probe is told
/// `no-answer` instead of being stopped itself.
pub struct Observed {
    inner: Arc<dyn Backend>,
    models: Option<Vec<ModelInfo>>,
    patience: Duration,
}

impl Observed {
    /// `models`: what the host knows of them, where the back-end leaves that to the host's store.
    /// `patience`: the longest wait for one call.
    #[must_use]
    pub fn new(
        inner: Arc<dyn Backend>,
        models: Option<Vec<ModelInfo>>,
        patience: Duration,
    ) -> Arc<Self> {
        Arc::new(Self { inner, models, patience })
    }

    async fn wait<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        timeout(self.patience, call).await.unwrap_or_else(|_| Err(no_answer(self.patience)))
    }
}

fn no_answer(patience: Duration) -> Error {
    let word = Code::Other("no-answer".to_owned());
    Error::new(word, format!("no answer within {} ms", patience.as_millis()))
}

#[async_trait]
impl Backend for Observed {
    fn digest(&self) -> &str {
        self.inner.digest()
    }

    async fn describe(&self) -> Result<Descriptor> {
        self.wait(self.inner.describe()).await
    }

    async fn models(&self) -> Result<Vec<ModelInfo>> {
        match &self.models {
            Some(models) => Ok(models.clone()),
            None => self.wait(self.inner.models()).await,
        }
    }

    async fn generate(&self, request: Request) -> Result<Box<dyn Generation>> {
        let inner = self.wait(self.inner.generate(request)).await?;
        Ok(Box::new(Waited { inner: Some(inner), patience: self.patience }))
    }

    async fn embed(&self, request: EmbedRequest) -> Result<Embeddings> {
        self.wait(self.inner.embed(request)).await
    }

    async fn rerank(&self, request: RerankRequest) -> Result<Vec<Ranked>> {
        self.wait(self.inner.rerank(request)).await
    }

    async fn tokenize(&self, model: &str, text: &str, special: bool) -> Result<Vec<u32>> {
        self.wait(self.inner.tokenize(model, text, special)).await
    }

    async fn detokenize(&self, model: &str, tokens: &[u32]) -> Result<Vec<u8>> {
        self.wait(self.inner.detokenize(model, tokens)).await
    }

    async fn health(&self) -> Result<Readiness> {
        self.wait(self.inner.health()).await
    }
}

/// An answer whose events come within the patience, or which is over.
struct Waited {
    inner: Option<Box<dyn Generation>>,
    patience: Duration,
}

#[async_trait]
impl Generation for Waited {
    async fn next(&mut self, max: u32) -> Result<Option<Vec<Event>>> {
        let Some(inner) = &mut self.inner else { return Err(no_answer(self.patience)) };
        match timeout(self.patience, inner.next(max)).await {
            Ok(answer) => answer,
            Err(_) => {
                self.inner = None;
                Err(no_answer(self.patience))
            }
        }
    }
}
