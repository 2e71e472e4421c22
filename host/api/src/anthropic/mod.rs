//! Anthropic's dialect: `/v1/messages`.

pub mod decode;
pub mod encode;
pub mod messages;
pub mod routes;

pub use routes::routes;
