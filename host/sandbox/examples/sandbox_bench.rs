//! What the sandbox costs: loading, a fresh store, and calls each way. Prints; promises nothing.
//!
//! `cargo run --release -p gristmill-sandbox --example sandbox_bench`
#![allow(clippy::print_stdout, reason = "it is what a bench is for")]

use std::{
    error::Error,
    time::{Duration, Instant},
};

use gristmill_core::request::{Prompt, Request};
use gristmill_ledger::Pin;
use gristmill_policies::{Grant, Kind, Limits};
use gristmill_sandbox::{Backend, Sandbox, SandboxConfig, Services, inspect};

fn request(prompt: String) -> Request {
    Request::new("bench", "hostile", Prompt::Text(prompt))
}

async fn answer(backend: &dyn Backend, prompt: String) -> gristmill_core::Result<u32> {
    let mut generation = backend.generate(request(prompt)).await?;
    let mut calls = 0;
    while generation.next(8).await?.is_some() {
        calls += 1;
    }
    Ok(calls)
}

fn each(what: &str, time: Duration, n: u32, unit: &str) {
    let nanos = time.as_nanos() as f64 / f64::from(n);
    let value = if unit == "us" { nanos / 1e3 } else { nanos };
    println!("{what:<44} {value:>10.2} {unit}");
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let bytes = gristmill_testing::guests::guest("hostile")?;
    let found = inspect(&bytes)?;
    let pin =
        Pin::first("hostile", "hostile.wasm", &bytes, found.kind, found.contract, found.imports);
    let mut grant = Grant::none(Kind::Backend);
    grant.imports = [
        "gristmill:contract/*",
        "wasi:cli/*",
        "wasi:clocks/*",
        "wasi:filesystem/*",
        "wasi:io/*",
        "wasi:random/*",
    ]
    .map(str::to_owned)
    .to_vec();
    grant.limits = Limits { cpu_ms: 60_000, ..Limits::default() };

    let begun = Instant::now();
    let sandbox = Sandbox::new(SandboxConfig::default())?;
    println!("{:<44} {:>10.2} ms", "sandbox", begun.elapsed().as_secs_f64() * 1e3);

    let begun = Instant::now();
    let backend = sandbox.load_backend(&bytes, &pin, &grant, Services::default())?;
    println!(
        "{:<44} {:>10.2} ms",
        format!("load ({} KiB)", bytes.len() / 1024),
        begun.elapsed().as_secs_f64() * 1e3
    );

    let n = 2_000;
    for _ in 0..100 {
        backend.health().await?;
    }
    let begun = Instant::now();
    for _ in 0..n {
        backend.health().await?;
    }
    each("fresh store, instance, one call, drop", begun.elapsed(), n, "us");

    let begun = Instant::now();
    let calls = answer(&*backend, "good 200000".into()).await?;
    each("host to guest: next, one text event", begun.elapsed(), calls, "ns");

    let n = 2_000_000;
    let begun = Instant::now();
    drop(backend.generate(request(format!("clock {n}"))).await?);
    each("guest to host: clock.monotonic", begun.elapsed(), n, "ns");
    Ok(())
}
