//! Quantization codecs and CPU kernels.
//!
//! What a model's forward pass computes with: decoding of every ggml tensor type, matrix products
//! straight from their bytes or from packed panels, attention over a session's cache, and the
//! small vector operations in between. No tensor graph and no allocation policy: plain slices in,
//! plain slices out, on a [`Pool`] the caller owns.
//!
//! Results never depend on the number of threads: rows are computed whole by one worker, and long
//! attentions are split at fixed lengths and merged in order.

mod act;
mod attention;
mod bulk;
mod bytes;
mod codec;
mod dot;
mod error;
pub mod isa;
mod linear;
mod matrix;
pub mod measure;
mod memory;
pub mod ops;
mod panel;
mod pool;
mod quant;
mod selftest;
mod simd;
pub mod table;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod tile;

pub use act::Act;
pub use attention::{AttentionSpec, KvLayer, Ring, attention};
pub use bytes::{Bytes, Owner};
pub use codec::{decode_row, encode_row};
pub use error::KernelError;
pub use isa::Isa;
pub use linear::{Job, glu_linear, linear};
pub use matrix::Matrix;
pub use ops::Activation;
pub use panel::LayoutId;
pub use pool::Pool;
pub use quant::{Paths, Quant};
