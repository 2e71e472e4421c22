//! Wasm plugins: verify, grant, limit, run.

pub mod backend;
