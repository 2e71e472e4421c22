//! The local store as the router sees it.

use std::{ops::ControlFlow, sync::Arc};

use async_trait::async_trait;
use gristmill_core::{
    Code, Error, Result,
    capability::{Claim, ModelInfo, Reason, Support},
};
use gristmill_models::{
    Gguf,
    store::{Located, Store, Update},
};
use gristmill_router::models::{Card, Models, Progress, Record, Step};
use tokio::task::spawn_blocking;

/// The store behind an `Arc`, its blocking calls on the blocking pool.
pub(crate) struct Catalogue(pub(crate) Arc<Store>);

impl Catalogue {
    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let store = Arc::clone(&self.0);
        spawn_blocking(move || work(&store))
            .await
            .map_err(|error| Error::internal(format!("the store's task ended: {error}")))?
    }
}

#[async_trait]
impl Models for Catalogue {
    async fn list(&self) -> Result<Vec<Record>> {
        // The blocking pool is two wake-ups away, which is more than this takes.
        if let Some(known) = self.0.unchanged() {
            return Ok(known.iter().cloned().map(record).collect());
        }
        self.with(|store| Ok(store.list()?.into_iter().map(record).collect())).await
    }

    async fn show(&self, id: &str) -> Result<Card> {
        let id = id.to_owned();
        self.with(move |store| {
            let model = store.locate(&id)?;
            let path = model
                .paths
                .first()
                .ok_or_else(|| Error::internal(format!("{id} has no file in the store")))?;
            let metadata = Gguf::open(path)?.metadata();
            let template = match metadata.get("tokenizer.chat_template") {
                Some(gristmill_core::program::Value::Text(text)) => Some(text.clone()),
                _ => None,
            };
            let license = model.license.clone();
            Ok(Card {
                record: record(model),
                metadata: Some(metadata),
                template,
                license,
                ..Card::default()
            })
        })
        .await
    }

    async fn pull(&self, name: &str, progress: Progress) -> Result<Record> {
        let name = name.to_owned();
        self.with(move |store| {
            let mut report = |update: &Update<'_>| -> ControlFlow<()> {
                progress(Step {
                    status: update.stage.status().to_owned(),
                    digest: update.digest.map(str::to_owned),
                    total: update.total,
                    completed: update.total.map(|_| update.completed),
                })
            };
            Ok(record(store.pull(&name, None, &mut report)?))
        })
        .await
    }

    async fn remove(&self, name: &str) -> Result<()> {
        let name = name.to_owned();
        self.with(move |store| Ok(store.remove(&name)?)).await
    }

    async fn copy(&self, source: &str, destination: &str) -> Result<()> {
        let (source, destination) = (source.to_owned(), destination.to_owned());
        self.with(move |store| Ok(store.copy(&source, &destination).map(drop)?)).await
    }
}

fn record(model: Located) -> Record {
    let facts = &model.facts;
    let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    Record {
        info: ModelInfo {
            id: model.id.clone(),
            names: model.names.clone(),
            digest: Some(model.digest.clone()),
            family: Some(facts.architecture.clone()),
            quantization: Some(facts.quantization.clone()),
            parameters: Some(facts.parameters),
            size_bytes: Some(model.size),
            context_native: facts.context_length.map(narrow),
            claims: claims(&facts.capabilities),
            extras: Vec::new(),
        },
        modified: Some(model.modified),
        source: Some(model.source.clone()),
        format: Some("gguf".to_owned()),
        embedding_length: facts.embedding_length.map(narrow),
        keep_alive: None,
    }
}

/// What the file's capabilities mean in the contract's vocabulary.
fn claims(capabilities: &[String]) -> Vec<Claim> {
    const WORDS: [(&str, &str); 4] = [
        ("completion", "inference.text"),
        ("embedding", "embeddings"),
        ("tools", "tools.calling"),
        ("thinking", "reasoning.control"),
    ];
    WORDS
        .iter()
        .map(|(word, name)| {
            if capabilities.iter().any(|capability| capability == word) {
                return Claim::supported(*name);
            }
            Claim {
                name: (*name).to_owned(),
                support: Support::Unsupported(Reason {
                    code: Code::Unsupported.as_str().to_owned(),
                    detail: format!("the model file says nothing of {word}"),
                }),
                value: None,
            }
        })
        .collect()
}
