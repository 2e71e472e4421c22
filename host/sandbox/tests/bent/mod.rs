//! A back-end in front of another that misbehaves in a way that needs a memory of its own.
#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
};

use async_trait::async_trait;
use gristmill_core::{
    Result,
    capability::{Claim, Descriptor, ModelInfo, Readiness},
    event::Event,
    request::{EmbedRequest, Embeddings, Ranked, Request, RerankRequest},
};
use gristmill_sandbox::{Backend, Generation};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bend {
    /// Has no version.
    Nameless,
    /// Claims a capability that nobody knows.
    UnknownWord,
    /// Lists a model twice.
    ListsTwice,
    /// Answers for any model with the one it has.
    Substitutes,
    /// Is never ready.
    Unwell,
    /// Is not ready once a request has failed.
    UnwellAfterFailure,
    /// Two answers at once disturb each other.
    Mixes,
    /// An answer that was dropped keeps its place for ever, and there is only one.
    KeepsPlaces,
}

pub(crate) struct Bent {
    inner: Arc<dyn Backend>,
    bend: Bend,
    failed: AtomicBool,
    live: Arc<AtomicU32>,
    lost: Arc<AtomicU32>,
}

impl Bent {
    pub(crate) fn new(inner: Arc<dyn Backend>, bend: Bend) -> Arc<Self> {
        Arc::new(Self {
            inner,
            bend,
            failed: AtomicBool::default(),
            live: Arc::default(),
            lost: Arc::default(),
        })
    }
}

#[async_trait]
impl Backend for Bent {
    fn digest(&self) -> &str {
        self.inner.digest()
    }

    async fn describe(&self) -> Result<Descriptor> {
        let mut descriptor = self.inner.describe().await?;
        match self.bend {
            Bend::Nameless => descriptor.version.clear(),
            Bend::UnknownWord => descriptor.claims.push(Claim::supported("tools.telepathy")),
            _ => {}
        }
        Ok(descriptor)
    }

    async fn models(&self) -> Result<Vec<ModelInfo>> {
        let mut models = self.inner.models().await?;
        if self.bend == Bend::ListsTwice {
            models.extend_from_within(..1);
        }
        Ok(models)
    }

    async fn generate(&self, mut request: Request) -> Result<Box<dyn Generation>> {
        if self.bend == Bend::KeepsPlaces && self.lost.load(SeqCst) > 0 {
            std::future::pending::<()>().await;
        }
        if self.bend == Bend::Substitutes {
            request.model = "honest".into();
        }
        let answer = self.inner.generate(request).await;
        self.failed.fetch_or(answer.is_err(), SeqCst);
        self.live.fetch_add(u32::from(answer.is_ok()), SeqCst);
        let (bend, live, lost) = (self.bend, Arc::clone(&self.live), Arc::clone(&self.lost));
        Ok(Box::new(Answer { inner: answer?, bend, live, lost, over: false }))
    }

    async fn embed(&self, request: EmbedRequest) -> Result<Embeddings> {
        self.inner.embed(request).await
    }

    async fn rerank(&self, request: RerankRequest) -> Result<Vec<Ranked>> {
        self.inner.rerank(request).await
    }

    async fn tokenize(&self, model: &str, text: &str, special: bool) -> Result<Vec<u32>> {
        let model = if self.bend == Bend::Substitutes { "honest" } else { model };
        self.inner.tokenize(model, text, special).await
    }

    async fn detokenize(&self, model: &str, tokens: &[u32]) -> Result<Vec<u8>> {
        self.inner.detokenize(model, tokens).await
    }

    async fn health(&self) -> Result<Readiness> {
        let mut health = self.inner.health().await?;
        let failed = self.bend == Bend::UnwellAfterFailure && self.failed.load(SeqCst);
        if failed || self.bend == Bend::Unwell {
            health.ready = false;
        }
        Ok(health)
    }
}

struct Answer {
    inner: Box<dyn Generation>,
    bend: Bend,
    live: Arc<AtomicU32>,
    lost: Arc<AtomicU32>,
    over: bool,
}

#[async_trait]
impl Generation for Answer {
    async fn next(&mut self, max: u32) -> Result<Option<Vec<Event>>> {
        let mut events = self.inner.next(max).await?;
        for event in events.iter_mut().flatten() {
            match event {
                Event::Text(text) if self.bend == Bend::Mixes && self.live.load(SeqCst) > 1 => {
                    *text = text.to_uppercase();
                }
                Event::Finish(_) => self.over = true,
                _ => {}
            }
        }
        Ok(events)
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.live.fetch_sub(1, SeqCst);
        self.lost.fetch_add(u32::from(!self.over), SeqCst);
    }
}
