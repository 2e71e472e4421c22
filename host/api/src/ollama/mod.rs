//! Ollama's REST dialect: `/` and `/api/*`.

pub mod catalogue;
pub mod decode;
pub mod encode;
pub mod routes;

pub use routes::routes;
