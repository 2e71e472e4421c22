//! What tests and benches share: real models and vectors fetched from packages ([`fetch`]).
//!
//! Nothing here is part of the product.

pub mod fetch;
