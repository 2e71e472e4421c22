//! An inert WASI, for guests whose language brings one: no folders, no environment, no arguments, no
//! input, output to nowhere, every address denied. For pure guests time stands still and random
//! numbers are always the same ones.

use std::time::Duration;

use wasmtime_wasi::{Deterministic, HostMonotonicClock, HostWallClock, WasiCtx};

/// A guest reads random bytes in pieces of at most this many.
const MAX_RANDOM_BYTES: u64 = 64 << 10;

/// WASI for a guest that serves.
pub(crate) fn inert() -> WasiCtx {
    builder().build()
}

/// WASI for a guest whose answers depend on nothing but its arguments.
pub(crate) fn pure() -> WasiCtx {
    // The bytes do not matter; that they are the same every time does.
    let random = || Deterministic::new(b"gristmill".to_vec());
    builder()
        .wall_clock(Frozen)
        .monotonic_clock(Frozen)
        .secure_random(random())
        .insecure_random(random())
        .insecure_random_seed(0)
        .build()
}

fn builder() -> wasmtime_wasi::WasiCtxBuilder {
    let mut builder = WasiCtx::builder();
    builder
        .max_random_size(MAX_RANDOM_BYTES)
        .allow_tcp(false)
        .allow_udp(false)
        .allow_ip_name_lookup(false);
    builder
}

/// A clock that stands at zero.
struct Frozen;

impl HostWallClock for Frozen {
    fn resolution(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }
}

impl HostMonotonicClock for Frozen {
    fn resolution(&self) -> u64 {
        1
    }

    fn now(&self) -> u64 {
        0
    }
}
