//! What the local store promises, one module a promise.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod atomic;
mod concurrent;
mod download;
mod files;
mod fixture;
mod hub;
mod listing;
mod names;
mod packages;
mod pypi;
mod redirects;
mod remove;
mod support;
