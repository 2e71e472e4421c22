//! Servers that models run on, faked byte by byte: a TCP listener that plays a script for each request
//! ([`Fake`]), and the recorded answers of five kinds of server ([`Transcript`]) to play.
//!
//! A script sends bytes, waits for a latch, cuts, resets, hangs or never ends; nothing in it depends
//! on time. What a request was, and that the other side has gone, is told by [`Fake`] too.
//!
//! Nothing here is part of the product.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod server;
mod transcript;

pub use server::{Fake, Latch, Received, Step};
pub use transcript::{SERVERS, Transcript};
