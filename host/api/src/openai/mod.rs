//! OpenAI's dialect: `/v1/*`.

pub mod constraint;
pub mod decode;
pub mod encode;
pub mod messages;
pub mod routes;

pub use routes::routes;
