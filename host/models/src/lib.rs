//!
//! Everything here reads bytes that somebody else wrote. Each reader fails closed: bad input is a
//! [`ModelError`] that names the file, the field, what was expected and what was found; never a
//! panic, and never an allocation that the input merely claims to need.

pub mod checkpoint;
pub mod error;
pub mod gguf;
pub mod store;
pub mod template;
pub mod tokenizer;

pub use error::{ModelError, Result};
pub use gguf::{Gguf, Tensor};
pub use store::{Located, Store, StoreError};
pub use template::ChatTemplate;
pub use tokenizer::Tokenizer;
