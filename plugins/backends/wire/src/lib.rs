//! What every bridge shares: the exchange with a granted server ([`http`]), JSON written and kept
//! byte for byte ([`fields`]), failures in every shape that servers give them ([`failure`]), the
//! event model assembled from fragments ([`answer`]), an answer pulled frame by frame ([`stream`]),
//! and the OpenAI wire format with each server's ways as data ([`openai`]).
//!
//! It knows no address, no key and no path outside the upstream that the grant calls `primary`, and
//! injects nothing: a field that the caller left unset is not sent. What a server cannot express is
//! refused by the field's name.
#![cfg_attr(target_arch = "wasm32", no_std)]

pub mod answer;
pub mod failure;
pub mod fields;
pub mod history;
pub mod http;
pub mod openai;
pub mod stops;
pub mod stream;

pub use fields::Fields;
pub use http::{Primary, Reply, Server};
