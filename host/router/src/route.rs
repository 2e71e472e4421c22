//! A name becomes a model, a model becomes a plan, a plan becomes an answer that says who gave it.

use std::sync::Arc;

use arc_swap::ArcSwap;
use gristmill_core::{Code, Error, Result, capability::ModelInfo};

use crate::{
    blocks::Known,
    generation::Generation,
    keep::{KeepConfig, Keeper},
    live::{Backends, Slot, Source},
    models::{Models, Record, Residency},
    name,
    policy::Policy,
    swap::Strikes,
};

mod answer;
mod ask;
mod catalogue;
mod checks;
mod explain;
mod fastest;
mod kept;
mod plan;
mod swaps;

pub use answer::Answer;
pub use ask::Answered;
pub use catalogue::Resident;
pub use checks::{Check, Load};
pub use explain::{Condition, Considered, Explanation};
pub use plan::{Plan, Provenance};

/// What the router is told at the start.
#[derive(Debug, Clone, Default)]
pub struct RouterConfig {
    /// How long models stay in memory.
    pub keep: KeepConfig,
    /// How many faults put a component in quarantine.
    pub strikes: Strikes,
}

/// Live back-ends, the store, and the time models stay in memory.
pub struct Router {
    backends: Arc<Backends>,
    models: Arc<dyn Models>,
    residency: Arc<dyn Residency>,
    keeper: Keeper,
    known: ArcSwap<Known>,
    pub(crate) policy: Policy,
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
        let backends = Arc::new(Backends::new(config.strikes));
        let (known, policy) = (ArcSwap::default(), Policy::default());
        Self { backends, models, residency, keeper, known, policy }
    }

    /// The same router, which keeps to these blocks and this evidence.
    #[must_use]
    pub fn with_known(self, known: Known) -> Self {
        self.know(known);
        self
    }

    /// The blocks and the evidence that are kept to now.
    #[must_use]
    pub fn known(&self) -> Arc<Known> {
        self.known.load_full()
    }

    /// Puts other blocks and evidence in their place, for every request that comes.
    pub fn know(&self, known: Known) {
        self.known.store(Arc::new(known));
    }

    /// The live back-ends.
    #[must_use]
    pub fn backends(&self) -> &Backends {
        &self.backends
    }

    /// The one plan for a name: [`Router::first`], or a back-end with the very same weights that was
    /// measured to be faster. `NAME/model` asks the back-end NAME alone; only if it answers that it has no
    /// such model is the whole looked for as a model's name.
    ///
    /// # Errors
    /// As [`Router::first`].
    pub async fn resolve(&self, asked: &str) -> Result<Plan> {
        Ok(self.find(asked).await?.plan)
    }

    /// The plan for a name on the first live back-end, in order of installation, that has the model.
    /// Nothing is substituted: a back-end that had the model and cannot be asked now is not passed over for
    /// another.
    ///
    /// # Errors
    /// `invalid-request` for what cannot be a name, `not-found`; the failure of a back-end that
    /// could not be asked, when it had the model, was asked by name, or no other has the model.
    pub async fn first(&self, asked: &str) -> Result<Plan> {
        let key = name::key(asked)?;
        let slots = self.backends.slots();
        if let Some((slot, key)) = named(&slots, &key) {
            let found = self.look_up(slot, slot.current(), called(&key));
            if let Some(plan) = found.await? {
                return Ok(self.less(plan).await);
            }
        }
        let mut failure = None;
        let wanted = called(&key);
        for slot in slots.iter() {
            let generation = slot.current();
            match self.look_up(slot, Arc::clone(&generation), wanted).await {
                Ok(Some(plan)) => return Ok(self.less(plan).await),
                Ok(None) => {}
                Err(error) if slot.source == Source::Store || generation.had(wanted) => {
                    return Err(error);
                }
                Err(error) => failure = Some(error),
            }
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        let serves = slots.iter().any(|slot| slot.source == Source::Store);
        if !serves && self.stored(wanted).await?.is_some() {
            let reason = "is stored, but no live back-end serves stored models";
            let message = format!("model '{asked}' {reason}");
            return Err(Error::new(Code::UpstreamUnavailable, message));
        }
        Err(missing(asked))
    }

    async fn stored(&self, wanted: impl Fn(&ModelInfo) -> bool) -> Result<Option<Record>> {
        let records = self.models.list().await?;
        Ok(records.into_iter().find(|record| wanted(&record.info)))
    }

    /// The plan for a model on this generation of a back-end, if it has it. The store is read for those
    /// alone that serve it: that takes a walk over its files.
    async fn look_up(
        &self,
        slot: &Arc<Slot>,
        generation: Arc<Generation>,
        wanted: impl Fn(&ModelInfo) -> bool,
    ) -> Result<Option<Plan>> {
        let found = match slot.source {
            Source::Store => {
                self.stored(wanted).await?.map(|record| (record.info, record.keep_alive))
            }
            Source::Listed => {
                let found = generation.find(wanted).await;
                if found.is_err() {
                    self.backends.unlisted(&slot.name, &generation);
                }
                found?.map(|info| (info, None))
            }
        };
        Ok(found.map(|(info, keep)| Plan::new(slot, generation, info, keep)))
    }
}

/// Whether a model has a name with this key.
fn called(key: &str) -> impl Fn(&ModelInfo) -> bool + Copy + '_ {
    move |info| name::answers_to(info, key)
}

/// The back-end that a key asks for by name, and the key of the model there.
fn named<'a>(slots: &'a [Arc<Slot>], key: &str) -> Option<(&'a Arc<Slot>, String)> {
    let (name, model) = key.split_once('/')?;
    let slot = slots.iter().find(|slot| slot.name.eq_ignore_ascii_case(name))?;
    Some((slot, name::fold(model)))
}

fn missing(asked: &str) -> Error {
    Error::not_found(format!("model '{asked}' not found")).with("model", asked)
}
