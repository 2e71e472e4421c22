//! World `backend` of contract 0.1 as a [`Backend`].

use std::sync::Arc;

use async_trait::async_trait;
use gristmill_core::{
    Code, Error, Result,
    capability::{Descriptor, ModelInfo, Readiness},
    event::Event,
    request::{EmbedRequest, Embeddings, Ranked, Request, RerankRequest},
};
use wasmtime::component::{Component, ResourceAny};

use super::{
    Linkers,
    bindings::{self, BackendPre},
    convert::{To, guest_error},
    link, trial, wit, wrong_shape,
};
use crate::{
    backend::{Backend, Generation},
    fault::Fault,
    load::LoadError,
    order::Order,
    plugin::{Cell, Guest, Plugin},
};

/// Checks the component's shapes, starts it once, and makes it a back-end.
pub(crate) fn load(
    linkers: &Linkers,
    component: &Component,
    plugin: Arc<Plugin>,
) -> std::result::Result<Arc<dyn Backend>, LoadError> {
    let pre = link(&linkers.backend, component)?;
    trial(&plugin, &pre, |store, instance| bindings::Backend::new(store, instance).map(|_| ()))?;
    let pre = BackendPre::new(pre).map_err(|error| wrong_shape(&error))?;
    Ok(Arc::new(Serving { plugin, pre }))
}

struct Serving {
    plugin: Arc<Plugin>,
    pre: BackendPre<Guest>,
}

/// An instance in a store of its own.
struct Live {
    cell: Cell,
    guest: bindings::Backend,
}

/// Asks one question of a fresh instance and lets it go. The answer is a domain error or a value;
/// with it comes what the guest was told of another plugin's fault.
macro_rules! ask {
    ($self:ident, |$serving:ident, $store:ident| $call:expr) => {{
        let mut live = $self.start($self.plugin.grant.limits.call()).await?;
        let $serving = live.guest.gristmill_contract_serving();
        let $store = &mut live.cell.store;
        let answer = live.cell.gate.run($call).await?;
        (answer, live.cell.store.data_mut().told.take())
    }};
}

impl Serving {
    async fn start(&self, life: std::time::Duration) -> Result<Live> {
        let mut cell = self.plugin.cell(life, None)?;
        let guest = cell.gate.run(self.pre.instantiate_async(&mut cell.store)).await?;
        Ok(Live { cell, guest })
    }

    /// A guest's answer as the host's.
    fn answer<A: To<B>, B>(
        &self,
        (answer, told): (std::result::Result<A, wit::Error>, Option<Error>),
    ) -> Result<B> {
        match answer {
            Ok(value) => Ok(value.to()),
            Err(error) => Err(refusal(&self.plugin, error, told)),
        }
    }

    fn broken(&self, rule: &'static str) -> Error {
        self.plugin.fault(&Fault::Contract(rule))
    }
}

/// A guest's error as the host's. Where it passes on that another plugin was at fault, what the host
/// told it stands, and not what became of that in the guest.
fn refusal(plugin: &Plugin, error: wit::Error, told: Option<Error>) -> Error {
    guest_error(error).unwrap_or_else(|fault| told.unwrap_or_else(|| plugin.fault(&fault)))
}

#[async_trait]
impl Backend for Serving {
    fn digest(&self) -> &str {
        &self.plugin.digest
    }

    async fn describe(&self) -> Result<Descriptor> {
        let (descriptor, _) = ask!(self, |serving, store| serving.call_describe(store));
        Ok(descriptor.to())
    }

    async fn models(&self) -> Result<Vec<ModelInfo>> {
        let models = ask!(self, |serving, store| serving.call_models(store));
        self.answer(models)
    }

    async fn generate(&self, request: Request) -> Result<Box<dyn Generation>> {
        let mut live = self.start(self.plugin.grant.limits.generation()).await?;
        let request: wit::Request = request.to();
        let serving = live.guest.gristmill_contract_serving();
        let started =
            live.cell.gate.run(serving.call_generate(&mut live.cell.store, &request)).await?;
        let told = live.cell.store.data_mut().told.take();
        let generation = started.map_err(|error| refusal(&self.plugin, error, told))?;
        Ok(Box::new(Running {
            plugin: Arc::clone(&self.plugin),
            order: Order::new(self.plugin.grant.limits.answer_events),
            live: Some((live, generation)),
        }))
    }

    async fn embed(&self, request: EmbedRequest) -> Result<Embeddings> {
        let inputs = request.inputs.len();
        let request: wit::EmbedRequest = request.to();
        let embeddings = ask!(self, |serving, store| serving.call_embed(store, &request));
        let embeddings: Embeddings = self.answer(embeddings)?;
        let numbers = u64::from(embeddings.rows) * u64::from(embeddings.dim);
        if embeddings.rows as usize != inputs || numbers != embeddings.data.len() as u64 {
            return Err(self.broken("the embeddings are not one vector per input"));
        }
        if !embeddings.data.iter().all(|number| number.is_finite()) {
            return Err(self.broken("an embedding is not a number"));
        }
        Ok(embeddings)
    }

    async fn rerank(&self, request: RerankRequest) -> Result<Vec<Ranked>> {
        let documents = request.documents.len();
        let request: wit::RerankRequest = request.to();
        let ranked = ask!(self, |serving, store| serving.call_rerank(store, &request));
        let ranked: Vec<Ranked> = self.answer(ranked)?;
        let mut seen = vec![false; documents];
        for place in &ranked {
            match seen.get_mut(place.index as usize) {
                Some(seen) if !*seen => *seen = true,
                _ => return Err(self.broken("a rank is of no document, or of one twice")),
            }
            if !place.score.is_finite() {
                return Err(self.broken("a relevance is not a number"));
            }
        }
        Ok(ranked)
    }

    async fn tokenize(&self, model: &str, text: &str, special: bool) -> Result<Vec<u32>> {
        let tokens =
            ask!(self, |serving, store| serving.call_tokenize(store, model, text, special));
        self.answer(tokens)
    }

    async fn detokenize(&self, model: &str, tokens: &[u32]) -> Result<Vec<u8>> {
        let bytes = ask!(self, |serving, store| serving.call_detokenize(store, model, tokens));
        self.answer(bytes)
    }

    async fn health(&self) -> Result<Readiness> {
        let readiness = ask!(self, |serving, store| serving.call_health(store));
        self.answer(readiness)
    }
}

/// A running answer. `live` is taken for the time of each call: a caller that drops a call in flight
/// drops the store with it, and an answer that finished or failed has none.
struct Running {
    plugin: Arc<Plugin>,
    order: Order,
    live: Option<(Live, ResourceAny)>,
}

#[async_trait]
impl Generation for Running {
    async fn next(&mut self, max: u32) -> Result<Option<Vec<Event>>> {
        if self.order.finished() {
            return Ok(None);
        }
        if max == 0 {
            return Err(Error::invalid("next(0): expected at least 1"));
        }
        let Some((mut live, generation)) = self.live.take() else {
            return Err(Error::new(
                Code::Cancelled,
                "the answer has failed or was cancelled before",
            ));
        };
        // What it was told in an earlier call is no answer to this one.
        live.cell.store.data_mut().told = None;
        let resource = live.guest.gristmill_contract_serving().generation();
        let call = resource.call_next(&mut live.cell.store, generation, max);
        let events = match live.cell.gate.run(call).await? {
            Ok(Some(events)) => events,
            Ok(None) => {
                return Err(self.plugin.fault(&Fault::Contract("the answer ends without finish")));
            }
            Err(error) => {
                let told = live.cell.store.data_mut().told.take();
                return Err(refusal(&self.plugin, error, told));
            }
        };
        let events: Vec<Event> = events.to();
        self.order.check(&events, max).map_err(|fault| self.plugin.fault(&fault))?;
        // A finished guest is not asked again: it goes at once, and nothing can follow.
        if !self.order.finished() {
            self.live = Some((live, generation));
        }
        Ok(Some(events))
    }
}
