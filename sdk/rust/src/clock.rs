//! The host's clocks.

use core::time::Duration;

use crate::bindings::shared::gristmill::contract::clock;

/// Time since this instance began. Never runs backwards.
#[must_use]
pub fn monotonic() -> Duration {
    Duration::from_micros(clock::monotonic())
}

/// Time since 1970-01-01 UTC, in steps of a millisecond.
#[must_use]
pub fn wall() -> Duration {
    Duration::from_millis(clock::wall())
}
