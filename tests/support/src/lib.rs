//! What tests and benches share: real models and vectors fetched from packages ([`fetch`]), a
//! writer for GGUF files ([`gguf`]) and made-up vocabularies ([`vocabulary`]).
//!
//! Nothing here is part of the product.

pub mod fetch;
pub mod guests;
pub mod gguf;
pub mod vocabulary;
