//! What the host offers to guests: the natives behind the `engine`, `kernels` and `upstream` imports.

use std::sync::Arc;

use async_trait::async_trait;
use gristmill_core::Result;
use gristmill_engine::runtime::Runtime;
use gristmill_kernels::Pool;

/// What a plugin's imports lead to. An import that the grant allows and nothing stands behind is
/// refused with a domain error when it is called, never at load: a host without an engine can still
/// list its plugins.
#[derive(Clone, Default)]
pub struct Services {
    /// The native engine; none: `unsupported`.
    pub engine: Option<Arc<dyn Runtime>>,
    /// Threads for the `kernels` import; none: `unsupported`.
    pub pool: Option<Arc<Pool>>,
    /// The servers that grants name; none: `upstream-unavailable`.
    pub upstream: Option<Arc<dyn Upstream>>,
}

/// What is sent to a server. The sandbox has checked it ([`HttpRequest::check`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRequest {
    /// `GET`, `POST`, `PUT`, `PATCH`, `DELETE` or `HEAD`.
    pub method: String,
    /// Path and query, beginning with one `/`.
    pub path: String,
    /// In order; none that is the host's to set.
    pub headers: Vec<(String, String)>,
    /// Empty: none.
    pub body: Vec<u8>,
}

/// How a body is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// Chunks as they arrive.
    Raw,
    /// One line each, without its end.
    Lines,
    /// One server-sent event each.
    Sse,
}

/// One piece of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The event's name, where it has one.
    pub event: Option<String>,
    /// The bytes.
    pub data: Vec<u8>,
}

/// The servers that grants name. Addresses, keys and certificates stay behind this trait.
#[async_trait]
pub trait Upstream: Send + Sync {
    /// Sends to the server of this name and waits for the response's head.
    ///
    /// # Errors
    /// `invalid-request`, `blocked` (as [`HttpRequest::check`]), `busy`, `upstream-unavailable`,
    /// `upstream-error`, `upstream-timeout`.
    async fn send(
        &self,
        grant: &str,
        request: HttpRequest,
        framing: Framing,
    ) -> Result<Box<dyn Response>>;
}

/// A response whose head has arrived. Dropping it ends the exchange.
#[async_trait]
pub trait Response: Send {
    /// The status code.
    fn status(&self) -> u16;

    /// The first header of this name, in any case.
    fn header(&self, name: &str) -> Option<String>;

    /// Waits for at least one frame and returns at most `max_frames` of together at most
    /// `max_bytes` (one longer frame comes alone); `None`: the body has ended.
    ///
    /// # Errors
    /// `upstream-timeout`, `upstream-error`.
    async fn next(&mut self, max_frames: u32, max_bytes: u32) -> Result<Option<Vec<Frame>>>;
}
