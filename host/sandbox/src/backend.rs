//! The internal trait of the `backend` world. Each contract version's module implements it; the
//! router knows nothing else of plugins.

use async_trait::async_trait;
use gristmill_core::{
    Result,
    capability::{Descriptor, ModelInfo, Readiness},
    event::Event,
    request::{EmbedRequest, Embeddings, Ranked, Request, RerankRequest},
};

/// What serves models: a pinned component behind its limits. Every call runs in a store of its own.
///
/// Every method can fail with `plugin-fault` (details `fault`, `digest`) when the guest traps, hits
/// a limit or breaks the contract; the store is gone then, and the plugin is not.
#[async_trait]
pub trait Backend: Send + Sync {
    /// `sha256:…` of the component that answers.
    fn digest(&self) -> &str;

    /// What it is.
    ///
    /// # Errors
    /// `plugin-fault`.
    async fn describe(&self) -> Result<Descriptor>;

    /// The models it serves.
    ///
    /// # Errors
    /// The back-end's own error.
    async fn models(&self) -> Result<Vec<ModelInfo>>;

    /// Starts an answer.
    ///
    /// # Errors
    /// The back-end's own error.
    async fn generate(&self, request: Request) -> Result<Box<dyn Generation>>;

    /// One vector per text.
    ///
    /// # Errors
    /// The back-end's own error.
    async fn embed(&self, request: EmbedRequest) -> Result<Embeddings>;

    /// Documents by relevance.
    ///
    /// # Errors
    /// The back-end's own error.
    async fn rerank(&self, request: RerankRequest) -> Result<Vec<Ranked>>;

    /// Tokens of a text.
    ///
    /// # Errors
    /// The back-end's own error.
    async fn tokenize(&self, model: &str, text: &str, special: bool) -> Result<Vec<u32>>;

    /// The bytes tokens stand for.
    ///
    /// # Errors
    /// The back-end's own error.
    async fn detokenize(&self, model: &str, tokens: &[u32]) -> Result<Vec<u8>>;

    /// Whether it can serve now.
    ///
    /// # Errors
    /// The back-end's own error.
    async fn health(&self) -> Result<Readiness>;
}

/// A running answer. Dropping it drops the store: the guest is gone at once, and so is whatever it
/// held in the host.
#[async_trait]
pub trait Generation: Send {
    /// Waits for at least one event and returns at most `max`; `None`: finished. The host has
    /// checked the order: exactly one `finish`, nothing after it.
    ///
    /// # Errors
    /// The failure that ended the answer; nothing follows it.
    async fn next(&mut self, max: u32) -> Result<Option<Vec<Event>>>;
}
