//! Dropping an answer drops its store, wherever it stands: in the guest, in the host, between calls.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use std::{
    sync::{Arc, atomic::Ordering},
    task::{Context, Waker},
};

use common::{Scripted, answer, good, hostile, request, sandbox, text};
use gristmill_core::Code;
use gristmill_policies::Limits;
use gristmill_sandbox::{Occupancy, Services};

#[tokio::test]
async fn stores_live_as_long_as_their_answers() {
    let sandbox = sandbox();
    let backend = hostile(&sandbox, Limits::default(), Services::default());
    assert_eq!(sandbox.occupancy(), Occupancy::default(), "loading leaves nothing behind");

    let mut answers = Vec::new();
    for _ in 0..20 {
        let mut generation = backend.generate(request("good 3")).await.unwrap();
        generation.next(1).await.unwrap();
        answers.push(generation);
    }
    assert_eq!(sandbox.occupancy().components, 20);
    answers.truncate(5);
    assert_eq!(sandbox.occupancy().components, 5);
    drop(answers);
    assert_eq!(sandbox.occupancy(), Occupancy::default());

    // A destructor of the guest that traps is never run.
    let generation = backend.generate(request("trap-drop")).await.unwrap();
    drop(generation);
    assert_eq!(sandbox.strikes(backend.digest()), 0);
    assert_eq!(sandbox.occupancy(), Occupancy::default());
}

#[tokio::test]
async fn a_finished_answer_has_no_store_and_stays_finished() {
    let sandbox = sandbox();
    let backend = hostile(&sandbox, Limits::default(), Services::default());
    let mut generation = backend.generate(request("good 1")).await.unwrap();
    while !matches!(
        generation.next(8).await.unwrap().unwrap().last(),
        Some(gristmill_core::event::Event::Finish(_))
    ) {}
    assert_eq!(sandbox.occupancy(), Occupancy::default());
    assert_eq!(generation.next(8).await, Ok(None));
    assert_eq!(generation.next(8).await, Ok(None));
}

/// Polls every call k times and drops it, for k = 0, 1, 2, … until it is ready.
#[tokio::test]
async fn a_call_can_be_dropped_at_every_point() {
    let sandbox = sandbox();
    let limits = Limits { cpu_ms: 60_000, ..Limits::default() };
    let backend = hostile(&sandbox, limits, Services::default());
    // `loop` yields at every tick and is never ready; `good` is ready at once or after some ticks.
    for prompt in ["good 3", "loop", "sleep"] {
        for polls in 0..12 {
            let mut starting = backend.generate(request(prompt));
            let mut cx = Context::from_waker(Waker::noop());
            let ready = (0..polls).any(|_| starting.as_mut().poll(&mut cx).is_ready());
            assert!(!ready || prompt == "good 3", "{prompt} after {polls}");
            drop(starting);
            assert_eq!(sandbox.occupancy(), Occupancy::default(), "{prompt} after {polls}");
        }
    }
    assert_eq!(text(&answer(&*backend, "good 3").await.unwrap()), good(3));
    assert_eq!(sandbox.strikes(backend.digest()), 0, "cancelling is no fault");
}

#[tokio::test]
async fn an_answer_whose_call_was_dropped_is_over() {
    let sandbox = sandbox();
    let backend = hostile(&sandbox, Limits::default(), Services::default());
    let mut generation = backend.generate(request("sleep-next")).await.unwrap();
    generation.next(8).await.unwrap();
    {
        let mut waiting = generation.next(8);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut cx).is_pending());
        assert_eq!(sandbox.occupancy().components, 1);
    }
    assert_eq!(sandbox.occupancy(), Occupancy::default());
    assert_eq!(generation.next(8).await.unwrap_err().code, Code::Cancelled);
}

#[tokio::test]
async fn what_the_guest_held_in_the_engine_is_let_go() {
    let sandbox = sandbox();
    let engine = Scripted { endless: true, ..Scripted::default() };
    let running = Arc::clone(&engine.running);
    let services = Services { engine: Some(Arc::new(engine)), ..Services::default() };
    let backend = hostile(&sandbox, Limits::default(), services);
    let mut request = request("engine");
    request.model = "scripted".into();
    let mut generation = backend.generate(request).await.unwrap();
    assert_eq!(running.load(Ordering::SeqCst), 1);
    {
        let mut waiting = generation.next(8);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut cx).is_pending());
    }
    assert_eq!(running.load(Ordering::SeqCst), 0);
    assert_eq!(sandbox.occupancy(), Occupancy::default());
}
