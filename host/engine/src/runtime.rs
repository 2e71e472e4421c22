//! What every native engine offers, whichever library computes: the CPU engine here, llama.cpp in
//! its worker later. The sandbox's `engine` import is this trait, handle by handle.

use std::sync::Arc;

use async_trait::async_trait;
use gristmill_core::{
    Error, Extras, Result,
    capability::ModelInfo,
    event::Event,
    request::{EmbedRequest, Embeddings, Message, Ranked, Request, RerankRequest, Tool},
};

/// An engine that opens models.
#[async_trait]
pub trait Runtime: Send + Sync {
    /// Opens a model by canonical id or alias; opening it twice shares the weights.
    ///
    /// # Errors
    /// `not-found`, `unsupported` (the family or the host refuses it, by name),
    /// `insufficient-memory`, `invalid-request` (the file is damaged).
    async fn open(&self, id: &str) -> Result<Arc<dyn Model>>;

    /// What is loaded now.
    fn loaded(&self) -> Vec<Loaded>;

    /// Lets go of a model once nothing uses it; running answers finish first. Whether it was loaded.
    async fn unload(&self, id: &str) -> bool;
}

/// A model that is in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// Canonical id.
    pub id: String,
    /// `sha256:…` of the weights.
    pub digest: String,
    /// Bytes of weights, caches and buffers.
    pub memory: u64,
    /// Context length it was planned for.
    pub context: u32,
    /// Answers running or queued.
    pub active: u32,
}

/// An open model. Cheap to clone behind its `Arc`; the weights are shared.
#[async_trait]
pub trait Model: Send + Sync {
    /// What it is and can do.
    fn info(&self) -> ModelInfo;

    /// Tokens of a text. `special`: spellings of special tokens become those tokens.
    ///
    /// # Errors
    /// `invalid-request` when the vocabulary cannot spell the text.
    fn tokenize(&self, text: &str, special: bool) -> Result<Vec<u32>>;

    /// The bytes tokens stand for.
    ///
    /// # Errors
    /// `invalid-request` for an id outside the vocabulary.
    fn detokenize(&self, tokens: &[u32]) -> Result<Vec<u8>>;

    /// The family's chat format: tokens, and the text they stand for.
    ///
    /// # Errors
    /// `invalid-request` with the template's own message; `unsupported` when there is no template.
    fn render(
        &self,
        messages: &[Message],
        tools: &[Tool],
        options: &Extras,
    ) -> Result<(Vec<u32>, String)>;

    /// What [`Model::generate`] would read for this request: tokens, and the text they stand for.
    ///
    /// # Errors
    /// As [`Model::generate`] before it begins, without `context-overflow` and `busy`; `unsupported`
    /// where an engine cannot say.
    async fn prompt(&self, request: Request) -> Result<(Vec<u32>, String)> {
        let message = "this engine does not say what it would read";
        Err(Error::unsupported(message).with("model", request.model))
    }

    /// The whole way of an ordinary answer: render, prefill, decode, parse.
    ///
    /// # Errors
    /// `context-overflow`, `busy`, `unsupported`, `invalid-request`; later failures come from
    /// [`Decoding::next`].
    async fn generate(&self, request: Request) -> Result<Box<dyn Decoding>>;

    /// One vector per text.
    ///
    /// # Errors
    /// `context-overflow` for a text too long unless `truncate`; `unsupported`.
    async fn embed(&self, request: EmbedRequest) -> Result<Embeddings>;

    /// Documents by relevance.
    ///
    /// # Errors
    /// `unsupported` when the model does not rank.
    async fn rerank(&self, request: RerankRequest) -> Result<Vec<Ranked>>;

    /// A session for everything finer than `generate`.
    ///
    /// # Errors
    /// `insufficient-memory`, `unsupported`.
    async fn open_session(&self, options: Extras) -> Result<Box<dyn Session>>;
}

/// A running answer. Dropping it cancels the work and frees what it held.
#[async_trait]
pub trait Decoding: Send {
    /// Waits for at least one event and returns at most `max`; `None`: finished.
    ///
    /// # Errors
    /// The failure that ended the answer; nothing follows it.
    async fn next(&mut self, max: u32) -> Result<Option<Vec<Event>>>;
}

/// A stretch of context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// `system`, `tools`, `rules`, `documents`, `history`, `user`, `tool-result`.
    pub kind: String,
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// Whether it will come again unchanged.
    pub stable: bool,
    /// `task-pinned`, `repo-map` or `volatile`.
    pub cache_class: String,
}

/// What became of a prefix.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrefixStatus {
    /// Tokens that were there already.
    pub reused: u32,
    /// Tokens computed now.
    pub prefilled: u32,
    /// Tokens thrown away because they differed.
    pub dropped: u32,
    /// Tokens in the session now.
    pub resident: u32,
    /// Tokens it can still take.
    pub available: u32,
    /// Digest of everything that must be equal for reuse.
    pub manifest_digest: String,
}

/// Context that stays between answers.
#[async_trait]
pub trait Session: Send {
    /// Makes the context begin with exactly these segments, reusing the longest common token prefix.
    ///
    /// # Errors
    /// `context-overflow` with `stage`, `resident`, `additional`, `limit`; `session-fatal`.
    async fn ensure_prefix(&mut self, segments: Vec<Segment>) -> Result<PrefixStatus>;

    /// Appends segments.
    ///
    /// # Errors
    /// As [`Session::ensure_prefix`].
    async fn prefill(&mut self, segments: Vec<Segment>) -> Result<PrefixStatus>;

    /// Generates from here; the request's prompt is not rendered again. The tokens it generates
    /// stay in the session.
    ///
    /// # Errors
    /// As [`Model::generate`].
    async fn decode(&mut self, request: Request) -> Result<Box<dyn Decoding>>;

    /// A handle by which the state can be restored.
    ///
    /// # Errors
    /// `insufficient-memory`, `session-fatal`.
    async fn snapshot(&mut self) -> Result<String>;

    /// Goes back to a snapshot.
    ///
    /// # Errors
    /// `not-found`, `manifest-mismatch`.
    async fn restore(&mut self, snapshot: &str) -> Result<PrefixStatus>;

    /// A second session with the same context.
    ///
    /// # Errors
    /// `insufficient-memory`.
    async fn fork(&mut self) -> Result<Box<dyn Session>>;

    /// Residency, context numbers, digests and counters, as a JSON document.
    ///
    /// # Errors
    /// `session-closed`.
    async fn explain(&mut self) -> Result<String>;
}
