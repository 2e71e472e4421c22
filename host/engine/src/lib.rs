//! The native CPU engine: a family's program is checked, planned and executed here, on the kernels
//! of `gristmill-kernels` and the files of `gristmill-models`.
//!
//! From the file to a token: [`program::check`] turns names into typed steps, [`plan::Plan`] fuses
//! them into phases and gives every value a buffer, [`weights::Weights`] maps and packs the
//! tensors, [`execute::Model::run`] computes a pass over rows of any number of sequences, and
//! [`mod@reference`] computes the same slowly to compare with. [`sampler`] chooses tokens, [`text`]
//! turns them into events. One thread (`driver`) does all of it for every open model; [`Engine`]
//! is what the rest of the host holds.

pub mod cache;
pub mod constraint;
mod core;
mod driver;
mod engine;
pub mod execute;
mod handle;
pub mod logits;
pub mod measure;
pub mod memory;
mod nonfinite;
pub mod packing;
pub mod plan;
pub mod program;
mod prompt;
mod random;
pub mod reference;
mod rope;
mod route;
pub mod runtime;
pub mod sampler;
mod session;
pub mod speculation;
pub mod text;
pub mod weights;

pub use engine::{Engine, EngineConfig};
pub use nonfinite::CODE as NON_FINITE;
