//! A name becomes a model, a model becomes a plan, a plan becomes an answer that says who gave it.

use std::sync::Arc;

use gristmill_core::{
    Error, Result,
    capability::ModelInfo,
    request::{EmbedRequest, Embeddings, Ranked, Request, RerankRequest},
};
use gristmill_sandbox::backend::Backend;

use crate::{
    blocks::Known,
    keep::{KeepAlive, KeepConfig, Keeper, Lease},
    live::{Backends, Limits, Slot, Source},
    models::{Models, Record, Residency},
    name,
};

mod answer;
mod catalogue;
mod checks;
mod kept;
mod plan;

pub use answer::Answer;
use answer::Held;
pub use catalogue::Resident;
pub use checks::{Check, Load};
use plan::needs;
pub use plan::{Plan, Provenance};

/// What the router is told at the start.
#[derive(Debug, Clone, Default)]
pub struct RouterConfig {
    /// How long models stay in memory.
    pub keep: KeepConfig,
}

/// Live back-ends, the store, and the time models stay in memory.
pub struct Router {
    backends: Backends,
    models: Arc<dyn Models>,
    residency: Arc<dyn Residency>,
    keeper: Keeper,
    known: Known,
}

impl Router {
    /// A router without back-ends.
    #[must_use]
    pub fn new(
        config: RouterConfig,
        models: Arc<dyn Models>,
        residency: Arc<dyn Residency>,
    ) -> Self {
        let keeper = Keeper::new(Arc::clone(&residency), config.keep);
        Self { backends: Backends::default(), models, residency, keeper, known: Known::default() }
    }

    /// The same router, which keeps to these blocks and this evidence.
    #[must_use]
    pub fn with_known(self, known: Known) -> Self {
        Self { known, ..self }
    }

    /// Makes a component what answers under a name; its generation number.
    ///
    /// # Errors
    /// As [`Backends::install`].
    pub async fn install(
        &self,
        name: &str,
        source: Source,
        limits: Limits,
        backend: Arc<dyn Backend>,
    ) -> Result<u64> {
        self.backends.install(name, source, limits, backend).await
    }

    /// The live back-ends.
    #[must_use]
    pub fn backends(&self) -> &Backends {
        &self.backends
    }

    /// The one plan for a name: the first live back-end, in order of installation, that has the
    /// model. `NAME/model` asks the back-end NAME alone; only if it answers that it has no such model
    /// is the whole looked for as a model's name. Nothing is substituted: a back-end that had the
    /// model and cannot be asked now is not passed over for another.
    ///
    /// # Errors
    /// `invalid-request` for what cannot be a name, `not-found`; the failure of a back-end that
    /// could not be asked, when it had the model, was asked by name, or no other has the model.
    pub async fn resolve(&self, asked: &str) -> Result<Plan> {
        let key = name::key(asked)?;
        let slots = self.backends.slots();
        let named = key.split_once('/').and_then(|(name, model)| {
            let slot = slots.iter().find(|slot| slot.name.eq_ignore_ascii_case(name))?;
            Some((slot, name::fold(model)))
        });
        if let Some((slot, key)) = named {
            let stored = self.stored(&key).await?;
            if let Some(plan) = look_up(slot, &key, stored.as_ref()).await? {
                return Ok(self.less(plan).await);
            }
        }
        let mut failure = None;
        let stored = self.stored(&key).await?;
        for slot in slots.iter() {
            match look_up(slot, &key, stored.as_ref()).await {
                Ok(Some(plan)) => return Ok(self.less(plan).await),
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(backend = slot.name, code = %error.code, "cannot list models");
                    if slot.current().had(|info| answers_to(info, &key)) {
                        return Err(error);
                    }
                    failure = Some(error);
                }
            }
        }
        Err(failure.unwrap_or_else(|| match stored {
            Some(_) => Error::new(
                gristmill_core::Code::UpstreamUnavailable,
                format!("model '{asked}' is stored, but no live back-end serves stored models"),
            ),
            None => missing(asked),
        }))
    }

    /// Starts an answer.
    ///
    /// # Errors
    /// As [`Plan::check`]; `blocked`; `busy`; the back-end's own error.
    pub async fn generate(
        &self,
        plan: &Plan,
        mut request: Request,
        keep: Option<KeepAlive>,
    ) -> Result<Answer> {
        plan.check(&request)?;
        let needs: Vec<_> =
            needs(&request).into_iter().map(|(capability, ..)| capability).collect();
        let other = self.unblocked(plan, &needs).await?;
        let plan = other.as_ref().unwrap_or(plan);
        plan.check(&request)?;
        request.model.clone_from(&plan.info.id);
        let lease = self.lease(plan, keep);
        let permit = plan.slot.queue(&plan.info.id).admit().await?;
        let running = plan.generation.backend.generate(request).await;
        let running = running.map_err(|error| plan.provenance().naming(error))?;
        Ok(Answer {
            running: Some(running),
            provenance: plan.provenance(),
            queued: permit.waited(),
            held: Some(Held {
                _permit: permit,
                _lease: lease,
                _generation: Arc::clone(&plan.generation),
            }),
        })
    }

    /// One vector per text.
    ///
    /// # Errors
    /// `busy`; the back-end's own error; `upstream-error` when the numbers are not what was asked.
    pub async fn embed(
        &self,
        plan: &Plan,
        mut request: EmbedRequest,
        keep: Option<KeepAlive>,
    ) -> Result<Embeddings> {
        let other = self.unblocked(plan, &["embeddings"]).await?;
        let plan = other.as_ref().unwrap_or(plan);
        plan.uncontradicted("embeddings")?;
        request.model.clone_from(&plan.info.id);
        let _lease = self.lease(plan, keep);
        let _permit = plan.slot.queue(&plan.info.id).admit().await?;
        let answer = plan.generation.backend.embed(request).await;
        answer.map_err(|error| plan.provenance().naming(error))
    }

    /// Documents by relevance, best first.
    ///
    /// # Errors
    /// As [`Plan::check`]; `busy`; the back-end's own error.
    pub async fn rerank(&self, plan: &Plan, mut request: RerankRequest) -> Result<Vec<Ranked>> {
        let other = self.unblocked(plan, &["reranking"]).await?;
        let plan = other.as_ref().unwrap_or(plan);
        plan.offers("reranking", "model", "reranking")?;
        request.model.clone_from(&plan.info.id);
        let _lease = self.lease(plan, None);
        let _permit = plan.slot.queue(&plan.info.id).admit().await?;
        plan.generation.backend.rerank(request).await
    }

    /// Tokens of a text. `special`: spellings of special tokens become those tokens.
    ///
    /// # Errors
    /// The back-end's own error.
    pub async fn tokenize(&self, plan: &Plan, text: &str, special: bool) -> Result<Vec<u32>> {
        let _lease = self.lease(plan, None);
        plan.generation.backend.tokenize(&plan.info.id, text, special).await
    }

    /// The bytes that tokens stand for.
    ///
    /// # Errors
    /// The back-end's own error.
    pub async fn detokenize(&self, plan: &Plan, tokens: &[u32]) -> Result<Vec<u8>> {
        let _lease = self.lease(plan, None);
        plan.generation.backend.detokenize(&plan.info.id, tokens).await
    }

    /// What the model would read for this request: tokens, and the text they stand for. Nothing is
    /// generated.
    ///
    /// # Errors
    /// As [`Plan::check`]; `unsupported` for a model of a bridge, whose server keeps this to itself;
    /// the engine's own error.
    pub async fn prompt(&self, plan: &Plan, mut request: Request) -> Result<(Vec<u32>, String)> {
        plan.check(&request)?;
        request.model.clone_from(&plan.info.id);
        let Some(_lease) = self.lease(plan, None) else {
            return Err(Error::unsupported(format!(
                "the back-end \"{}\" does not say what \"{}\" reads: it tells neither the rendered prompt nor its tokens",
                plan.slot.name, plan.info.id
            ))
            .with("field", "model"));
        };
        self.residency.prompt(request).await
    }

    /// Brings a stored model into memory; a model of a bridge is its server's to load.
    ///
    /// # Errors
    /// As [`Residency::load`].
    pub async fn load(&self, plan: &Plan, keep: Option<KeepAlive>) -> Result<()> {
        let Some(_lease) = self.lease(plan, keep) else { return Ok(()) };
        self.residency.load(&plan.info.id).await
    }

    /// Lets go of a stored model now. Whether it was loaded.
    pub async fn unload(&self, plan: &Plan) -> bool {
        match plan.slot.source {
            Source::Store => self.keeper.unload(&plan.info.id).await,
            Source::Listed => false,
        }
    }

    fn lease(&self, plan: &Plan, keep: Option<KeepAlive>) -> Option<Lease> {
        (plan.slot.source == Source::Store)
            .then(|| self.keeper.begin(&plan.info.id, keep, plan.keep))
    }

    async fn stored(&self, key: &str) -> Result<Option<Record>> {
        let records = self.models.list().await?;
        Ok(records.into_iter().find(|record| answers_to(&record.info, key)))
    }
}

/// The plan for a model on this back-end, if it has it.
async fn look_up(slot: &Arc<Slot>, key: &str, stored: Option<&Record>) -> Result<Option<Plan>> {
    let generation = slot.current();
    let (info, keep) = match slot.source {
        Source::Store => {
            (stored.map(|record| record.info.clone()), stored.and_then(|record| record.keep_alive))
        }
        Source::Listed => (generation.find(|info| answers_to(info, key)).await?, None),
    };
    Ok(info.map(|info| Plan::new(slot, generation, info, keep)))
}

fn answers_to(info: &ModelInfo, key: &str) -> bool {
    name::fold(&info.id) == key || info.names.iter().any(|name| name::fold(name) == key)
}

fn missing(asked: &str) -> Error {
    Error::not_found(format!("model '{asked}' not found")).with("model", asked)
}
