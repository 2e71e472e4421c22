//! The `engine` import: handles over the host's native engine. Tokens and tensors stay here; what a
//! guest sees is events.

use std::sync::Arc;

use gristmill_core::{Code, Error};
use gristmill_engine::runtime;
use wasmtime::{Result, component::Resource};

use super::{Answer, answer, refuse};
use crate::{
    contract::v0_1::{bindings::gristmill::contract::engine, convert::To, wit},
    plugin::Guest,
};

/// An open model.
pub struct Model(Arc<dyn runtime::Model>);
/// A running answer of the engine.
pub struct Decoding(Box<dyn runtime::Decoding>);
/// Context that stays.
pub struct Session(Box<dyn runtime::Session>);

impl Guest {
    /// The weights behind a guest's model handle.
    fn model(&self, model: &Resource<Model>) -> Result<Arc<dyn runtime::Model>> {
        Ok(Arc::clone(&self.table.get(model)?.0))
    }

    fn keep<T: Send + 'static, U>(
        &mut self,
        result: gristmill_core::Result<U>,
        wrap: impl FnOnce(U) -> T,
    ) -> Answer<Resource<T>> {
        match result {
            Ok(value) => Ok(Ok(self.table.push(wrap(value))?)),
            Err(error) => {
                // A family's, which resolved the model.
                if error.code == Code::PluginFault {
                    self.told = Some(error.clone());
                }
                refuse(error)
            }
        }
    }
}

impl engine::Host for Guest {}

impl engine::HostModel for Guest {
    async fn open(&mut self, id: String) -> Answer<Resource<Model>> {
        let Some(engine) = self.plugin.services.engine.clone() else {
            return refuse(Error::unsupported("this host runs no native engine"));
        };
        let opened = engine.open(&id).await;
        self.keep(opened, Model)
    }

    async fn info(&mut self, model: Resource<Model>) -> Result<wit::ModelInfo> {
        Ok(self.model(&model)?.info().to())
    }

    async fn tokenize(
        &mut self,
        model: Resource<Model>,
        text: String,
        special: bool,
    ) -> Answer<Vec<u32>> {
        answer(self.model(&model)?.tokenize(&text, special))
    }

    async fn detokenize(&mut self, model: Resource<Model>, tokens: Vec<u32>) -> Answer<Vec<u8>> {
        answer(self.model(&model)?.detokenize(&tokens))
    }

    async fn render(
        &mut self,
        model: Resource<Model>,
        messages: Vec<wit::Message>,
        tools: Vec<wit::Tool>,
        options: engine::Extras,
    ) -> Answer<(Vec<u32>, String)> {
        let messages: Vec<gristmill_core::request::Message> = messages.to();
        let tools: Vec<gristmill_core::request::Tool> = tools.to();
        answer(self.model(&model)?.render(&messages, &tools, &options))
    }

    async fn generate(
        &mut self,
        model: Resource<Model>,
        request: wit::Request,
    ) -> Answer<Resource<Decoding>> {
        let started = self.model(&model)?.generate(request.to()).await;
        self.keep(started, Decoding)
    }

    async fn embed(
        &mut self,
        model: Resource<Model>,
        request: wit::EmbedRequest,
    ) -> Answer<wit::Embeddings> {
        answer(self.model(&model)?.embed(request.to()).await)
    }

    async fn rerank(
        &mut self,
        model: Resource<Model>,
        request: wit::RerankRequest,
    ) -> Answer<Vec<wit::Ranked>> {
        answer(self.model(&model)?.rerank(request.to()).await)
    }

    async fn open_session(
        &mut self,
        model: Resource<Model>,
        options: engine::Extras,
    ) -> Answer<Resource<Session>> {
        let opened = self.model(&model)?.open_session(options).await;
        self.keep(opened, Session)
    }

    async fn drop(&mut self, model: Resource<Model>) -> Result<()> {
        self.table.delete(model)?;
        Ok(())
    }
}

impl engine::HostDecoding for Guest {
    async fn next(
        &mut self,
        decoding: Resource<Decoding>,
        max: u32,
    ) -> Answer<Option<Vec<wit::Event>>> {
        if max == 0 {
            return refuse(Error::invalid("next(0): expected at least 1"));
        }
        answer(self.table.get_mut(&decoding)?.0.next(max).await)
    }

    async fn drop(&mut self, decoding: Resource<Decoding>) -> Result<()> {
        self.table.delete(decoding)?;
        Ok(())
    }
}

impl engine::HostSession for Guest {
    async fn ensure_prefix(
        &mut self,
        session: Resource<Session>,
        segments: Vec<engine::Segment>,
    ) -> Answer<engine::PrefixStatus> {
        answer(self.table.get_mut(&session)?.0.ensure_prefix(segments.to()).await)
    }

    async fn prefill(
        &mut self,
        session: Resource<Session>,
        segments: Vec<engine::Segment>,
    ) -> Answer<engine::PrefixStatus> {
        answer(self.table.get_mut(&session)?.0.prefill(segments.to()).await)
    }

    async fn decode(
        &mut self,
        session: Resource<Session>,
        config: engine::DecodeConfig,
    ) -> Answer<Resource<Decoding>> {
        let mut request: gristmill_core::request::Request = config.request.to();
        // The engine reads what a request has no field for from its extras.
        if let Some(chunk) = config.prefill_chunk {
            request.extras.push(("prefill-chunk".to_owned(), chunk.to_string()));
        }
        request.extras.extend(config.extras);
        let started = self.table.get_mut(&session)?.0.decode(request).await;
        self.keep(started, Decoding)
    }

    async fn snapshot(&mut self, session: Resource<Session>) -> Answer<String> {
        answer(self.table.get_mut(&session)?.0.snapshot().await)
    }

    async fn restore(
        &mut self,
        session: Resource<Session>,
        snapshot: String,
    ) -> Answer<engine::PrefixStatus> {
        answer(self.table.get_mut(&session)?.0.restore(&snapshot).await)
    }

    async fn fork(&mut self, session: Resource<Session>) -> Answer<Resource<Session>> {
        let forked = self.table.get_mut(&session)?.0.fork().await;
        self.keep(forked, Session)
    }

    async fn explain(&mut self, session: Resource<Session>) -> Answer<String> {
        answer(self.table.get_mut(&session)?.0.explain().await)
    }

    async fn drop(&mut self, session: Resource<Session>) -> Result<()> {
        self.table.delete(session)?;
        Ok(())
    }
}
