//! A name becomes a model, a model becomes a plan, a plan becomes an answer that says who gave it.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures_util::future::join_all;
use gristmill_core::{
    Error, Result,
    capability::{Claim, ModelInfo, Support},
    event::Event,
    request::{
        EmbedRequest, Embeddings, Part, Prompt, Ranked, Reasoning, Request, RerankRequest,
        ToolChoice,
    },
};
use gristmill_engine::runtime::Loaded;
use gristmill_sandbox::backend::{Backend, Generation as Running};

use crate::{
    blocks::Known,
    keep::{Expiry, KeepAlive, KeepConfig, Keeper, Lease},
    live::{Backends, Generation, LISTING_FRESH, Limits, Slot, Source},
    models::{Card, Models, Progress, Record, Residency},
    name,
    queue::Permit,
};

mod kept;

/// Longest wait for a back-end's word on whether it is ready.
const HEALTH_PATIENCE: Duration = Duration::from_secs(2);

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

/// Who answers: exactly this model on exactly this component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provenance {
    /// Canonical model id.
    pub model: String,
    /// Name of the back-end.
    pub backend: String,
    /// `sha256:…` of its component.
    pub digest: String,
    /// Which installation under that name.
    pub generation: u64,
}

impl Provenance {
    /// A bridge names itself by its kind, in the detail `backend`; what the operator calls the
    /// back-end takes its place.
    fn naming(&self, mut error: Error) -> Error {
        let told = error.details.iter_mut().find(|(name, _)| name == "backend");
        if let Some((_, told)) = told
            && *told != self.backend
        {
            told.clone_from(&self.backend);
            error.message = format!("back-end {}: {}", self.backend, error.message);
        }
        error
    }
}

/// One model on one back-end, chosen and not yet asked.
pub struct Plan {
    slot: Arc<Slot>,
    generation: Arc<Generation>,
    info: ModelInfo,
    keep: Option<KeepAlive>,
    /// Who answered, where a block let an alternative do it.
    instead: OnceLock<Provenance>,
}

impl Plan {
    fn new(
        slot: &Arc<Slot>,
        generation: Arc<Generation>,
        info: ModelInfo,
        keep: Option<KeepAlive>,
    ) -> Self {
        Self { slot: Arc::clone(slot), generation, info, keep, instead: OnceLock::new() }
    }

    /// Who will answer; after the answer has begun, who does.
    #[must_use]
    pub fn provenance(&self) -> Provenance {
        if let Some(instead) = self.instead.get() {
            return instead.clone();
        }
        Provenance {
            model: self.info.id.clone(),
            backend: self.slot.name.clone(),
            digest: self.generation.digest.clone(),
            generation: self.generation.number,
        }
    }

    /// What the model is.
    #[must_use]
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// The component that will answer.
    #[must_use]
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.generation.backend
    }

    /// What is claimed for a capability: the model's word, else the back-end's, else nothing.
    #[must_use]
    pub fn claim(&self, capability: &str) -> Option<&Claim> {
        let claims = [&self.info.claims, &self.generation.descriptor.claims];
        claims.into_iter().flatten().find(|claim| claim.name == capability)
    }

    /// Refuses what the model or the back-end has declared it cannot do. What nobody has declared
    /// is the back-end's to refuse.
    ///
    /// # Errors
    /// `unsupported` with the details `field` and `capability`.
    pub fn check(&self, request: &Request) -> Result<()> {
        needs(request)
            .into_iter()
            .try_for_each(|(capability, field, noun)| self.offers(capability, field, noun))
    }

    /// Refuses one capability, if it was declared impossible.
    fn offers(&self, capability: &str, field: &str, noun: &str) -> Result<()> {
        let reason = match self.claim(capability).map(|claim| &claim.support) {
            Some(Support::Unsupported(reason)) => format!(": {}", reason.detail),
            Some(Support::Unknown) => ": nobody knows whether it works".to_owned(),
            _ => return Ok(()),
        };
        Err(Error::unsupported(format!("\"{}\" does not support {noun}{reason}", self.info.id))
            .with("field", field)
            .with("capability", capability))
    }
}

/// The capabilities a request needs: name, the field that needs it, and a noun for the message.
fn needs(request: &Request) -> Vec<(&'static str, &'static str, &'static str)> {
    let mut needs = vec![("inference.text", "model", "generating text")];
    if !request.tools.is_empty() && request.tool_choice != ToolChoice::None {
        needs.push(("tools.calling", "tools", "tools"));
    }
    if request.constraint.is_some() {
        needs.push((
            "structured_output",
            "response_format",
            "structured output (format, response_format)",
        ));
    }
    if request.logprobs.is_some() {
        needs.push(("logprobs", "logprobs", "log probabilities"));
    }
    if matches!(request.reasoning, Reasoning::On | Reasoning::Effort(_)) {
        needs.push(("reasoning.control", "think", "thinking"));
    }
    if let Prompt::Chat(messages) = &request.prompt {
        let parts = || messages.iter().flat_map(|message| &message.content);
        if parts().any(|part| matches!(part, Part::Image(_))) {
            needs.push(("multimodal.vision", "images", "images"));
        }
        if parts().any(|part| matches!(part, Part::Audio(_))) {
            needs.push(("multimodal.audio", "input_audio", "audio"));
        }
    }
    needs
}

/// An answer under way. Dropping it stops the work, gives the place in the queue to the next and
/// starts the model's keep-alive time, in this order.
pub struct Answer {
    running: Option<Box<dyn Running>>,
    provenance: Provenance,
    queued: Duration,
    held: Option<Held>,
}

/// Dropped in this order.
struct Held {
    _permit: Permit,
    _lease: Option<Lease>,
    _generation: Arc<Generation>,
}

impl Answer {
    /// Who answers.
    #[must_use]
    pub fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    /// Waits for at least one event and returns at most `max`; `None`: finished. What the answer
    /// held is free as soon as it has ended, well or badly.
    ///
    /// # Errors
    /// The failure that ended the answer; nothing follows it.
    pub async fn next(&mut self, max: u32) -> Result<Option<Vec<Event>>> {
        let Some(running) = self.running.as_mut() else { return Ok(None) };
        let mut result = running.next(max).await;
        if let Ok(Some(events)) = &mut result {
            for event in events {
                if let Event::Timings(timings) = event {
                    let queued = u64::try_from(self.queued.as_micros()).unwrap_or(u64::MAX);
                    timings.queue = timings.queue.saturating_add(queued);
                }
            }
        } else {
            self.running = None;
            self.held = None;
        }
        result.map_err(|error| self.provenance.naming(error))
    }
}

/// A model that is in memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Resident {
    /// Sizes and activity.
    pub loaded: Loaded,
    /// What the store knows of it.
    pub record: Option<Record>,
    /// When it will go.
    pub expiry: Expiry,
}

/// How much there is to do at one back-end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// Its name.
    pub backend: String,
    /// Answers running.
    pub active: usize,
    /// Requests waiting.
    pub waiting: usize,
}

/// Whether one part can serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// The part.
    pub name: String,
    /// Yes or no.
    pub ready: bool,
    /// A sentence.
    pub detail: String,
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

    /// Every model that can be asked for: the store's, if a live back-end serves stored models,
    /// then each back-end's own. A model whose name an earlier back-end answers to is listed as
    /// `NAME/model`, by which it can be asked for. A back-end that cannot be asked is left out and
    /// named by [`Router::unreachable`].
    ///
    /// # Errors
    /// The store's own error.
    pub async fn catalogue(&self) -> Result<Vec<Record>> {
        let slots = self.backends.slots();
        let mut records: Vec<Record> = Vec::new();
        if let Some(slot) = slots.iter().find(|slot| slot.source == Source::Store) {
            records = self.models.list().await?;
            let generation = slot.current();
            for record in &mut records {
                record.info = self.judged(&generation, std::mem::take(&mut record.info)).await;
            }
        }
        let listed: Vec<_> = slots.iter().filter(|slot| slot.source == Source::Listed).collect();
        // All at once: servers that are down are waited for together.
        let lists = join_all(
            listed.iter().map(|slot| async { slot.current().models(LISTING_FRESH).await }),
        );
        for (slot, models) in listed.iter().zip(lists.await) {
            match models {
                Ok(models) => {
                    let generation = slot.current();
                    for info in models {
                        let mut info = self.judged(&generation, info).await;
                        let key = name::fold(&info.id);
                        if records.iter().any(|known| answers_to(&known.info, &key)) {
                            info.id = format!("{}/{}", slot.name, info.id);
                            info.names.clear();
                        }
                        records.push(Record { info, ..Record::default() });
                    }
                }
                Err(error) => {
                    tracing::warn!(backend = slot.name, code = %error.code, "cannot list models");
                }
            }
        }
        Ok(records)
    }

    /// Back-ends that could not be asked for their models the last time, and why.
    #[must_use]
    pub fn unreachable(&self) -> Vec<(String, Error)> {
        let slots = self.backends.slots();
        let failed = |slot: &Arc<Slot>| Some((slot.name.clone(), slot.current().failure()?));
        slots.iter().filter_map(failed).collect()
    }

    /// Everything about one model.
    ///
    /// # Errors
    /// As [`Router::resolve`] and [`Models::show`].
    pub async fn show(&self, asked: &str) -> Result<Card> {
        let plan = self.resolve(asked).await?;
        match plan.slot.source {
            Source::Store => {
                let mut card = self.models.show(&plan.info.id).await?;
                card.record.info = self.judged(&plan.generation, card.record.info).await;
                Ok(card)
            }
            Source::Listed => Ok(Card {
                record: Record { info: plan.info, ..Record::default() },
                ..Card::default()
            }),
        }
    }

    /// Fetches a model into the store.
    ///
    /// # Errors
    /// As [`Models::pull`].
    pub async fn pull(&self, name: &str, progress: Progress) -> Result<Record> {
        name::key(name)?;
        self.models.pull(name, progress).await
    }

    /// Removes a stored name, and the model from memory when it was its last one.
    ///
    /// # Errors
    /// As [`Models::remove`].
    pub async fn remove(&self, asked: &str) -> Result<()> {
        let key = name::key(asked)?;
        let record = self.stored(&key).await?.ok_or_else(|| missing(asked))?;
        self.models.remove(spelling(&record.info, &key)).await?;
        if self.stored(&name::fold(&record.info.id)).await?.is_none() {
            self.keeper.unload(&record.info.id).await;
        }
        Ok(())
    }

    /// Gives a stored model one more name.
    ///
    /// # Errors
    /// As [`Models::copy`].
    pub async fn copy(&self, source: &str, destination: &str) -> Result<()> {
        let key = name::key(source)?;
        name::key(destination)?;
        let record = self.stored(&key).await?.ok_or_else(|| missing(source))?;
        self.models.copy(spelling(&record.info, &key), destination.trim()).await
    }

    /// What is in memory, the longest-lived first.
    ///
    /// # Errors
    /// The store's own error.
    pub async fn residents(&self) -> Result<Vec<Resident>> {
        let records = self.models.list().await?;
        let mut residents: Vec<_> = self
            .residency
            .loaded()
            .into_iter()
            .map(|loaded| Resident {
                record: records.iter().find(|record| record.info.id == loaded.id).cloned(),
                // Loaded by other hands than the router's: nobody will let go of it.
                expiry: self.keeper.expiry(&loaded.id).unwrap_or(Expiry::Never),
                loaded,
            })
            .collect();
        residents.sort_by_key(|resident| match resident.expiry {
            Expiry::Never => None,
            Expiry::At(time) => Some(std::cmp::Reverse(time)),
        });
        Ok(residents)
    }

    /// Running and waiting, by back-end.
    #[must_use]
    pub fn load_now(&self) -> Vec<Load> {
        let slots = self.backends.slots();
        slots
            .iter()
            .map(|slot| {
                let (active, waiting) = slot.load();
                Load { backend: slot.name.clone(), active, waiting }
            })
            .collect()
    }

    /// Asks every back-end whether it can serve. No back-end is not ready.
    pub async fn checks(&self) -> Vec<Check> {
        let mut checks = Vec::new();
        for slot in self.backends.slots().iter() {
            let generation = slot.current();
            let health = tokio::time::timeout(HEALTH_PATIENCE, generation.backend.health()).await;
            let (ready, detail) = match health {
                Ok(Ok(readiness)) => (readiness.ready, readiness.detail),
                Ok(Err(error)) => (false, error.to_string()),
                Err(_) => (false, format!("no answer within {HEALTH_PATIENCE:?}")),
            };
            checks.push(Check { name: format!("backend {}", slot.name), ready, detail });
        }
        if checks.is_empty() {
            checks.push(Check {
                name: "backends".to_owned(),
                ready: false,
                detail: "none is live".to_owned(),
            });
        }
        checks
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

/// The name as the store spells it.
fn spelling<'a>(info: &'a ModelInfo, key: &str) -> &'a str {
    info.names.iter().find(|name| name::fold(name) == key).unwrap_or(&info.id)
}

fn missing(asked: &str) -> Error {
    Error::not_found(format!("model '{asked}' not found")).with("model", asked)
}
