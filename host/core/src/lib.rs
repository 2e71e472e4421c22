//! The words every room of Gristmill shares: what is asked ([`request`]), what is answered
//! ([`event`]), what can be done ([`capability`]), what a model family is ([`program`]) and what
//! went wrong ([`error`]).
//!
//! These are the same shapes as the contract's WIT types, as plain Rust: the sandbox maps one to
//! the other, and nobody else sees generated bindings. The crate does no I/O, is not async, and
//! knows neither Wasm nor HTTP.

pub mod capability;
pub mod error;
pub mod event;
pub mod program;
pub mod request;

pub use error::{Code, Error, Result};

/// Words for what may be added later without a new shape: names with values, order kept.
pub type Extras = Vec<(String, String)>;
