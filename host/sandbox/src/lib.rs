//! Wasm plugins: verify, grant, limit, run.
//!
//! What comes in is bytes, a pin and a grant ([`Sandbox::load_backend`] and its siblings); what comes
//! out is one plain Rust trait per world ([`Backend`], [`gristmill_core::program::Families`],
//! [`Probe`]). Nothing above this crate sees wasmtime, generated bindings or contract versions.
//!
//! Refused, each under its own name: bytes that are not the pinned ones, imports that are not pinned,
//! granted and known, other worlds and versions ([`LoadError`]). Bounded, each with its own fault:
//! memory, tables, instances, handles, bytes and time of a call, log volume, length and order of an
//! answer ([`Fault`]). One store per call and per answer, dropped to cancel; no lock of the host is
//! held while a guest runs.

pub mod backend;
mod compiled;
mod compiler;
mod contract;
mod family;
mod fault;
mod inspect;
mod limits;
mod load;
mod order;
mod outgoing;
mod plugin;
mod probe;
mod sandbox;
mod services;
mod wasi;

pub use backend::{Backend, Generation};
pub use compiler::{Compiler, compile_stdin};
pub use contract::needs_grant;
pub use family::{FamilyPlugin, FamilySet};
pub use fault::Fault;
pub use inspect::{Inspection, MAX_COMPONENT_BYTES, inspect};
pub use load::LoadError;
pub use outgoing::mapped;
pub use probe::{Check, Observed, Outcome, Plan, Probe};
pub use sandbox::{Occupancy, Sandbox, SandboxConfig, SandboxError, fault_words};
pub use services::{Frame, Framing, HttpRequest, Response, Services, Upstream};
