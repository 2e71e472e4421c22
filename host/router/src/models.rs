//! What the router needs to know of stored models and of memory. The composition root implements
//! [`Models`] over the local store; [`Engines`] implements [`Residency`] over native engines.

use std::{ops::ControlFlow, sync::Arc, time::SystemTime};

use async_trait::async_trait;
use gristmill_core::{
    Error, Extras, Result, capability::ModelInfo, program::Metadata, request::Request,
};
use gristmill_engine::runtime::{Loaded, Runtime};

use crate::keep::KeepAlive;

/// A stored model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Record {
    /// Canonical id, other names, digest, family, quantization, sizes, claims.
    pub info: ModelInfo,
    /// When it was stored or changed.
    pub modified: Option<SystemTime>,
    /// Where it came from, for instance `pypi:PACKAGE#FILE`.
    pub source: Option<String>,
    /// File format, for instance `gguf`.
    pub format: Option<String>,
    /// Length of its embedding vectors.
    pub embedding_length: Option<u32>,
    /// How long it stays in memory, where its configuration says so.
    pub keep_alive: Option<KeepAlive>,
}

/// Everything `show` tells of a stored model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Card {
    /// The listing's entry.
    pub record: Record,
    /// The file's own metadata and tensor table.
    pub metadata: Option<Metadata>,
    /// The chat template that would be used.
    pub template: Option<String>,
    /// A default system text.
    pub system: Option<String>,
    /// Licence text.
    pub license: Option<String>,
    /// Default parameters, name and value.
    pub parameters: Extras,
}

/// One step of a pull.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// What is being done.
    pub status: String,
    /// Digest of the part in work.
    pub digest: Option<String>,
    /// Its size in bytes.
    pub total: Option<u64>,
    /// Bytes there so far.
    pub completed: Option<u64>,
}

/// Told of every step; `Break` means that nobody waits any more and the pull should stop.
pub type Progress = Arc<dyn Fn(Step) -> ControlFlow<()> + Send + Sync>;

/// The local store, as far as routing and the API need it.
#[async_trait]
pub trait Models: Send + Sync {
    /// All stored models. Called for every request, so it should come from memory.
    ///
    /// # Errors
    /// `internal` when the store cannot be read.
    async fn list(&self) -> Result<Vec<Record>>;

    /// Everything about one model, by canonical id.
    ///
    /// # Errors
    /// `not-found`; `invalid-request` for a damaged file.
    async fn show(&self, id: &str) -> Result<Card>;

    /// Fetches a model. `name` is what the caller calls it; the store knows which source that means.
    ///
    /// # Errors
    /// `not-found`, `invalid-request`, `upstream-*`, `digest-mismatch`, `cancelled`.
    async fn pull(&self, name: &str, progress: Progress) -> Result<Record>;

    /// Removes a name, and the model with its last name.
    ///
    /// # Errors
    /// `not-found`.
    async fn remove(&self, name: &str) -> Result<()>;

    /// Gives a stored model one more name.
    ///
    /// # Errors
    /// `not-found`, `invalid-request`.
    async fn copy(&self, source: &str, destination: &str) -> Result<()>;
}

/// A host without a store.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoModels;

#[async_trait]
impl Models for NoModels {
    async fn list(&self) -> Result<Vec<Record>> {
        Ok(Vec::new())
    }

    async fn show(&self, id: &str) -> Result<Card> {
        Err(Error::not_found(format!("model '{id}' not found")))
    }

    async fn pull(&self, _: &str, _: Progress) -> Result<Record> {
        Err(Error::unsupported("this host has no model store"))
    }

    async fn remove(&self, _: &str) -> Result<()> {
        Err(Error::unsupported("this host has no model store"))
    }

    async fn copy(&self, _: &str, _: &str) -> Result<()> {
        Err(Error::unsupported("this host has no model store"))
    }
}

/// What is in memory, and the way in and out of it.
#[async_trait]
pub trait Residency: Send + Sync {
    /// What is loaded now.
    fn loaded(&self) -> Vec<Loaded>;

    /// Loads a stored model by canonical id.
    ///
    /// # Errors
    /// As [`Runtime::open`].
    async fn load(&self, id: &str) -> Result<()>;

    /// Lets go of a model once nothing uses it. Whether it was loaded.
    async fn unload(&self, id: &str) -> bool;

    /// What a stored model would read for this request: tokens, and the text they stand for.
    ///
    /// # Errors
    /// As [`Runtime::open`] and the engine's own; `unsupported` without a native engine.
    async fn prompt(&self, request: Request) -> Result<(Vec<u32>, String)> {
        let message = "this host has no native engine, and only one says what it reads";
        Err(Error::unsupported(message).with("model", request.model))
    }
}

/// A host without native engines.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoResidency;

#[async_trait]
impl Residency for NoResidency {
    fn loaded(&self) -> Vec<Loaded> {
        Vec::new()
    }

    async fn load(&self, _: &str) -> Result<()> {
        Ok(())
    }

    async fn unload(&self, _: &str) -> bool {
        false
    }
}

/// Native engines, the first of which loads.
#[derive(Clone, Default)]
pub struct Engines(pub Vec<Arc<dyn Runtime>>);

#[async_trait]
impl Residency for Engines {
    fn loaded(&self) -> Vec<Loaded> {
        self.0.iter().flat_map(|engine| engine.loaded()).collect()
    }

    async fn load(&self, id: &str) -> Result<()> {
        match self.0.first() {
            Some(engine) => engine.open(id).await.map(drop),
            None => Ok(()),
        }
    }

    async fn prompt(&self, request: Request) -> Result<(Vec<u32>, String)> {
        match self.0.first() {
            Some(engine) => engine.open(&request.model).await?.prompt(request).await,
            None => NoResidency.prompt(request).await,
        }
    }

    async fn unload(&self, id: &str) -> bool {
        let mut any = false;
        for engine in &self.0 {
            any |= engine.unload(id).await;
        }
        any
    }
}
