//! Every limit has a guest that hits it: it ends with the documented word, in bounded time, and the
//! plugin serves the next request as if nothing had been.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use common::{answer, by_hand, good, grant, guest, hostile, pin, request, sandbox, text};
use gristmill_core::Code;
use gristmill_kernels::Pool;
use gristmill_ledger::Kind;
use gristmill_policies::Limits;
use gristmill_sandbox::{Plan, Services};

fn limits() -> Limits {
    Limits {
        memory_mib: 24,
        handles: 500,
        host_call_bytes: 1 << 20,
        log_records: 50,
        log_bytes: 100_000,
        cpu_ms: 300,
        call_ms: 20_000,
        generation_ms: 20_000,
        answer_events: 10_000,
        ..Limits::default()
    }
}

fn services() -> Services {
    Services { pool: Some(Arc::new(Pool::new(1, false))), ..Services::default() }
}

/// Serves hostile prompts and checks the fault of each.
async fn faults(limits: Limits, cases: &[(&str, &str)]) {
    let sandbox = sandbox();
    let backend = hostile(&sandbox, limits, services());
    for (at, (prompt, word)) in cases.iter().enumerate() {
        let begun = Instant::now();
        let error = answer(&*backend, prompt).await.expect_err(prompt);
        assert_eq!(error.code, Code::PluginFault, "{prompt}: {error}");
        assert_eq!(error.detail("fault"), Some(*word), "{prompt}: {error}");
        assert_eq!(error.detail("digest"), Some(backend.digest()), "{prompt}");
        assert!(begun.elapsed() < Duration::from_secs(30), "{prompt}: {:?}", begun.elapsed());
        assert_eq!(sandbox.strikes(backend.digest()), at as u32 + 1, "{prompt}");
        assert_eq!(sandbox.occupancy(), Default::default(), "{prompt}");
        assert_eq!(text(&answer(&*backend, "good 3").await.unwrap()), good(3), "after {prompt}");
    }
}

#[tokio::test]
async fn traps_have_words() {
    let cases = [
        ("trap", "trap-unreachable"),
        ("panic", "trap-unreachable"),
        ("trap-next", "trap-unreachable"),
        ("exit", "trap-exit"),
        ("recurse", "stack-overflow"),
    ];
    faults(limits(), &cases).await;
}

#[tokio::test]
async fn memory_is_bounded() {
    faults(limits(), &[("memory", "memory-limit")]).await;
}

#[tokio::test]
async fn handles_are_bounded_on_both_sides() {
    faults(limits(), &[("handles-own", "handle-limit"), ("handles-host", "handle-limit")]).await;
}

#[tokio::test]
async fn bytes_of_a_call_are_bounded_both_ways() {
    let limits = Limits { memory_mib: 64, ..limits() };
    faults(limits, &[("call-bytes", "host-call-limit"), ("result-bytes", "host-call-limit")]).await;
}

#[tokio::test]
async fn log_records_and_bytes_are_bounded() {
    faults(limits(), &[("log", "log-limit"), ("log-bytes", "log-limit")]).await;
}

#[tokio::test]
async fn computing_is_bounded_even_with_host_calls_between() {
    let cases = [("loop", "cpu-limit"), ("loop-next", "cpu-limit"), ("calls", "cpu-limit")];
    faults(limits(), &cases).await;
}

#[tokio::test]
async fn waiting_is_bounded() {
    let limits = Limits { call_ms: 1_500, ..limits() };
    faults(limits, &[("sleep", "deadline"), ("sleep-next", "deadline")]).await;
}

#[tokio::test]
async fn an_answer_is_bounded_in_events_and_in_time() {
    faults(limits(), &[("stream", "event-limit")]).await;
    let limits = Limits { generation_ms: 1_500, answer_events: u32::MAX, ..limits() };
    faults(limits, &[("stream", "deadline")]).await;
}

#[tokio::test]
async fn matrices_in_the_host_count_like_memory() {
    let sandbox = sandbox();
    let limits = Limits { memory_mib: 1, ..limits() };
    // The guest alone fits into a MiB only just, or not at all: then the load says so.
    let bytes = guest("hostile");
    let loaded = sandbox.load_backend(
        &bytes,
        &pin("hostile", &bytes),
        &grant(Kind::Backend, limits),
        services(),
    );
    assert_eq!(loaded.err().map(|error| error.code()), Some("too-large"));
    faults(self::limits(), &[("matrices", "memory-limit")]).await;
    // Half a MiB of numbers in and as many vectors: the result is refused before it is computed.
    let limits = Limits { host_call_bytes: 4 << 20, memory_mib: 32, ..self::limits() };
    let backend = hostile(&sandbox, limits, services());
    let error = answer(&*backend, "kernels-huge").await.unwrap_err();
    assert_eq!(error.code, Code::InvalidRequest, "{error}");
}

#[tokio::test]
async fn stores_of_one_plugin_are_bounded_and_the_next_is_told_to_come_back() {
    let sandbox = sandbox();
    let backend = hostile(&sandbox, Limits { stores: 2, ..limits() }, services());
    let one = backend.generate(request("good 3")).await.unwrap();
    let _two = backend.generate(request("good 3")).await.unwrap();
    let error = backend.generate(request("good 3")).await.err().unwrap();
    assert_eq!(error.code, Code::Busy);
    assert_eq!(error.detail("limit"), Some("2"));
    assert!(error.retry_after_ms.is_some());
    assert_eq!(sandbox.strikes(backend.digest()), 0, "being busy is no fault");
    drop(one);
    answer(&*backend, "good 3").await.unwrap();
}

#[tokio::test]
async fn stores_of_all_plugins_are_bounded() {
    let config = gristmill_sandbox::SandboxConfig { stores: 2, ..Default::default() };
    let sandbox = gristmill_sandbox::Sandbox::new(config).unwrap();
    let backend = hostile(&sandbox, limits(), services());
    let one = backend.generate(request("good 3")).await.unwrap();
    let two = backend.generate(request("good 3")).await.unwrap();
    let error = backend.generate(request("good 3")).await.err().unwrap();
    assert_eq!(error.code, Code::Busy, "{error}");
    drop((one, two));
    answer(&*backend, "good 3").await.unwrap();
}

#[tokio::test]
async fn tables_are_bounded() {
    let sandbox = sandbox();
    let grant = grant(Kind::Probe, Limits { table_elements: 1_000, ..limits() });
    let probe = |checks: &str| {
        let bytes = by_hand("", checks);
        sandbox.load_probe(&bytes, &pin("by-hand", &bytes), &grant).unwrap()
    };
    let grow = |by: u32| format!("(drop (table.grow $t (ref.null func) (i32.const {by})))");
    assert_eq!(probe(&grow(900)).checks().await, Ok(Vec::new()));
    let error = probe(&grow(1_000)).checks().await.unwrap_err();
    assert_eq!(error.detail("fault"), Some("table-limit"), "{error}");

    let plan = Plan { model: String::new(), checks: vec![], budget_ms: 1, extras: vec![] };
    let backend = hostile(&sandbox, limits(), services());
    assert_eq!(probe("").run(backend, plan).await, Ok(Vec::new()));
}

#[test]
fn instances_are_bounded() {
    let sandbox = sandbox();
    let load = |instances: u32| {
        let top = "(core instance (instantiate $empty))".repeat(20);
        let bytes = by_hand(&top, "");
        let grant = grant(Kind::Probe, Limits { instances, ..limits() });
        sandbox.load_probe(&bytes, &pin("by-hand", &bytes), &grant).map(|_| ())
    };
    load(24).unwrap();
    match load(16) {
        Err(gristmill_sandbox::LoadError::Start(error)) => {
            assert_eq!(error.detail("fault"), Some("instance-limit"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}
