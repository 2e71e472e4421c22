//! Write Gristmill plugins in ordinary Rust.
//!
//! Three kinds, one feature each; a component switches on exactly one:
//!
//! | feature | implement | export with | the component may import |
//! |---|---|---|---|
//! | `backend` | [`backend::Backend`] | [`export_backend!`] | what its pin lists of [`engine`], [`kernels`], [`upstream`], [`onnx`], [`log`], [`clock`] |
//! | `family` | [`family::Family`] | [`export_family!`] | nothing |
//! | `probe` | [`probe::Probe`] | [`export_probe!`] | the back-end under test ([`probe::serving`]), [`log`], [`clock`] |
//!
//! The crate wraps the contract in `wit/v0.1`: generated records are re-exported where they read
//! well ([`Request`], [`Event`], [`Descriptor`], …) and wrapped where they do not (programs of a
//! family, see [`family::Builder`]). It does no I/O of its own and keeps no state.
//!
//! With the feature `bare` a plugin is `#![no_std]` on the Wasm target and its component imports
//! nothing but the contract; [`prelude`] brings back `String`, `Vec`, `format!` and friends. On the
//! author's machine, in tests, the same source is an ordinary `std` crate.
//!
//! The exporting macros name this crate `::gristmill_plugin`: do not rename the dependency.
#![no_std]

extern crate alloc;
extern crate self as gristmill_plugin;

#[cfg(feature = "backend")]
pub mod backend;
#[cfg(all(target_arch = "wasm32", feature = "bare"))]
mod bare;
#[doc(hidden)]
pub mod bindings;
pub mod clock;
mod error;
#[cfg(feature = "family")]
pub mod family;
pub mod log;
#[cfg(feature = "probe")]
pub mod probe;
mod types;

#[cfg(feature = "backend")]
#[doc(inline)]
pub use backend::host::{engine, kernels, onnx, upstream};
pub use bindings::shared::gristmill::contract::{
    capability::{Claim, Descriptor, ModelInfo, Readiness, Reason, Support},
    types::{
        Constraint, EmbedRequest, Embeddings, Error, Event, Extras, Finish, Media, Message, Part,
        Prompt, Ranked, Reasoning, Request, RerankRequest, Role, Sampling, Timings, TokenInfo,
        Tool, ToolCall, ToolChoice, ToolStart, Usage,
    },
};
pub use types::extra;
#[doc(hidden)]
pub use wit_bindgen;

/// A result whose failure is the contract's [`Error`].
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// The square root, without `std`.
#[must_use]
pub fn sqrt(x: f64) -> f64 {
    libm::sqrt(x)
}

/// The natural logarithm, without `std`.
#[must_use]
pub fn ln(x: f64) -> f64 {
    libm::log(x)
}

/// What nearly every plugin needs: the types of its world, and what `no_std` takes away.
pub mod prelude {
    #[cfg(feature = "backend")]
    pub use crate::backend::{Backend, Generation};
    #[cfg(feature = "family")]
    pub use crate::family::{
        Activation, Attention, Attribute, Builder, DeltaRule, Dialect, Family, Layout, Metadata,
        Moe, Program, Rope, Scaling, Scoring, Span, ToolFormat,
    };
    #[cfg(feature = "probe")]
    pub use crate::probe::{Check, Plan, Probe};
    pub use crate::{
        Claim, Constraint, Descriptor, EmbedRequest, Embeddings, Error, Event, Finish, Message,
        ModelInfo, Part, Prompt, Ranked, Readiness, Reasoning, Request, RerankRequest, Result,
        Role, Sampling, Timings, TokenInfo, Tool, ToolCall, ToolChoice, ToolStart, Usage,
    };
    pub use alloc::{
        borrow::ToOwned,
        boxed::Box,
        collections::{BTreeMap, VecDeque},
        format,
        string::{String, ToString},
        vec,
        vec::Vec,
    };
}

/// The examples of the page on writing plugins are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/plugins.md")]
mod page {}
