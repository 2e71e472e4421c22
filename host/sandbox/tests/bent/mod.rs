//! A back-end in front of another that misbehaves in a way that needs a memory of its own.
#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
};

use async_trait::async_trait;
use gristmill_core::{
    Code, Error, Result,
    capability::{Claim, Descriptor, ModelInfo, Readiness},
    event::Event,
    request::{EmbedRequest, Embeddings, Prompt, Ranked, Request, RerankRequest},
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
    /// Has a model that goes by another's id.
    SharesNames,
    /// Answers for any model with the one it has.
    Substitutes,
    /// Makes vectors and ranks for any model with the one it has.
    SubstitutesVectors,
    /// Breaks on a token that is in no vocabulary, serves nothing more, and says that it is ready.
    CrashesSilently,
    /// Is never ready.
    Unwell,
    /// Is not ready once a request has failed.
    UnwellAfterFailure,
    /// Two answers at once disturb each other.
    Mixes,
    /// An answer that was dropped keeps its place for ever, and there is only one.
    KeepsPlaces,
    /// An answer that began behind eight others never comes, whatever becomes of these.
    ForgetsWaiting,
    /// Answers just end.
    NoFinish,
}

pub(crate) struct Bent {
    inner: Arc<dyn Backend>,
    bend: Bend,
    failed: AtomicBool,
    crashed: AtomicBool,
    live: Arc<AtomicU32>,
    lost: Arc<AtomicU32>,
}

impl Bent {
    pub(crate) fn new(inner: Arc<dyn Backend>, bend: Bend) -> Arc<Self> {
        Arc::new(Self {
            inner,
            bend,
            failed: AtomicBool::default(),
            crashed: AtomicBool::default(),
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
        if self.bend == Bend::SharesNames {
            let id = models[0].id.clone();
            models[1].names.push(id);
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
        if self.bend == Bend::CrashesSilently {
            let odd = matches!(&request.prompt, Prompt::Tokens(all) if all.contains(&u32::MAX));
            if self.crashed.fetch_or(odd, SeqCst) || odd {
                return Err(Error::new(Code::UpstreamUnavailable, "nobody is there"));
            }
        }
        let behind = self.bend == Bend::ForgetsWaiting && self.live.load(SeqCst) >= 8;
        let answer = self.inner.generate(request).await;
        self.failed.fetch_or(answer.is_err(), SeqCst);
        self.live.fetch_add(u32::from(answer.is_ok()), SeqCst);
        let (bend, live, lost) = (self.bend, Arc::clone(&self.live), Arc::clone(&self.lost));
        Ok(Box::new(Answer { inner: answer?, bend, live, lost, behind, over: false }))
    }

    async fn embed(&self, mut request: EmbedRequest) -> Result<Embeddings> {
        if self.bend == Bend::SubstitutesVectors {
            request.model = "honest".into();
        }
        self.inner.embed(request).await
    }

    async fn rerank(&self, mut request: RerankRequest) -> Result<Vec<Ranked>> {
        if self.bend == Bend::SubstitutesVectors {
            request.model = "honest".into();
        }
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
    behind: bool,
    over: bool,
}

#[async_trait]
impl Generation for Answer {
    async fn next(&mut self, max: u32) -> Result<Option<Vec<Event>>> {
        if self.behind {
            std::future::pending::<()>().await;
        }
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
        if let (Bend::NoFinish, Some(all)) = (self.bend, &mut events) {
            all.retain(|event| !matches!(event, Event::Finish(_)));
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
