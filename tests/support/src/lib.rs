//! What tests and benches share: real models and vectors fetched from packages ([`fetch`]), the
//! first-party components ([`components`]), hostile guests ([`guests`]), a
//! writer for GGUF files ([`gguf`]), made-up vocabularies ([`vocabulary`]) and random-weight models
//! of each family's shape ([`models`]), in any quantization ([`blocks`]).
//!
//! Nothing here is part of the product.

pub mod blocks;
pub mod components;
pub mod fetch;
pub mod gguf;
pub mod guests;
pub mod models;
pub mod vocabulary;
