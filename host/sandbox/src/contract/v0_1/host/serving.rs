//! The `serving` import of a probe: the back-end under test, as the host sees it.

use gristmill_core::{Error, capability::Descriptor};
use wasmtime::{Result, component::Resource};

use super::{Answer, answer, refuse};
use crate::{
    backend::{Backend, Generation},
    contract::v0_1::{convert::To, probe_bindings::gristmill::contract::serving, wit},
    plugin::Guest,
};

use std::sync::Arc;

/// A running answer of the back-end under test.
pub struct Probed(Box<dyn Generation>);

impl Guest {
    fn tested(&self) -> gristmill_core::Result<Arc<dyn Backend>> {
        self.probed.clone().ok_or_else(|| Error::internal("a probe runs without a back-end"))
    }
}

/// Asks the back-end under test.
macro_rules! ask {
    ($guest:ident, $backend:ident => $call:expr) => {
        match $guest.tested() {
            Ok($backend) => answer($call.await),
            Err(error) => refuse(error),
        }
    };
}

impl serving::Host for Guest {
    /// A back-end that fails here is described by its failure: id and kind empty, extras `code` and
    /// `fault`.
    async fn describe(&mut self) -> Result<wit::Descriptor> {
        let described = match self.tested() {
            Ok(backend) => backend.describe().await,
            Err(error) => Err(error),
        };
        Ok(described
            .unwrap_or_else(|error| Descriptor {
                id: String::new(),
                kind: String::new(),
                version: String::new(),
                execution: String::new(),
                claims: Vec::new(),
                extras: vec![
                    ("code".to_owned(), error.code.as_str().to_owned()),
                    ("fault".to_owned(), error.detail("fault").unwrap_or_default().to_owned()),
                ],
            })
            .to())
    }

    async fn models(&mut self) -> Answer<Vec<wit::ModelInfo>> {
        ask!(self, backend => backend.models())
    }

    async fn generate(&mut self, request: wit::Request) -> Answer<Resource<Probed>> {
        let backend = match self.tested() {
            Ok(backend) => backend,
            Err(error) => return refuse(error),
        };
        match backend.generate(request.to()).await {
            Ok(generation) => Ok(Ok(self.table.push(Probed(generation))?)),
            Err(error) => refuse(error),
        }
    }

    async fn embed(&mut self, request: wit::EmbedRequest) -> Answer<wit::Embeddings> {
        ask!(self, backend => backend.embed(request.to()))
    }

    async fn rerank(&mut self, request: wit::RerankRequest) -> Answer<Vec<wit::Ranked>> {
        ask!(self, backend => backend.rerank(request.to()))
    }

    async fn tokenize(&mut self, model: String, text: String, special: bool) -> Answer<Vec<u32>> {
        ask!(self, backend => backend.tokenize(&model, &text, special))
    }

    async fn detokenize(&mut self, model: String, tokens: Vec<u32>) -> Answer<Vec<u8>> {
        ask!(self, backend => backend.detokenize(&model, &tokens))
    }

    async fn health(&mut self) -> Answer<wit::Readiness> {
        ask!(self, backend => backend.health())
    }
}

impl serving::HostGeneration for Guest {
    async fn next(
        &mut self,
        generation: Resource<Probed>,
        max: u32,
    ) -> Answer<Option<Vec<wit::Event>>> {
        if max == 0 {
            return refuse(Error::invalid("next(0): expected at least 1"));
        }
        answer(self.table.get_mut(&generation)?.0.next(max).await)
    }

    async fn drop(&mut self, generation: Resource<Probed>) -> Result<()> {
        self.table.delete(generation)?;
        Ok(())
    }
}
