//! OpenAI's newer dialect: `/v1/responses`.

pub mod decode;
pub mod encode;
pub mod items;
pub mod routes;
pub mod store;

pub use routes::routes;
