//! Guests that misbehave among guests that do not: the neighbours' answers are whole and in order.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use common::{answer, good, hostile, request, sandbox, text};
use gristmill_core::{Code, event::Event};
use gristmill_policies::Limits;
use gristmill_sandbox::{Occupancy, Services};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_answers_do_not_notice_their_neighbours() {
    let sandbox = sandbox();
    let limits = Limits { cpu_ms: 200, stores: 100, answer_events: 5_000, ..Limits::default() };
    let good_one = hostile(&sandbox, limits.clone(), Services::default());
    let bad_one = hostile(&sandbox, limits, Services::default());

    let bad = ["loop", "trap", "memory", "recurse", "log", "stream", "trap-next", "loop-next"];
    let mut misbehaving = Vec::new();
    for prompt in bad {
        let backend = std::sync::Arc::clone(&bad_one);
        misbehaving.push(tokio::spawn(async move {
            for _ in 0..2 {
                let error = answer(&*backend, prompt).await.expect_err(prompt);
                assert_eq!(error.code, Code::PluginFault, "{prompt}: {error}");
            }
        }));
    }
    let mut behaving = Vec::new();
    for _ in 0..50 {
        let backend = std::sync::Arc::clone(&good_one);
        behaving.push(tokio::spawn(async move {
            let mut generation = backend.generate(request("good 100")).await.unwrap();
            let mut events = Vec::new();
            while let Some(more) = generation.next(4).await.unwrap() {
                events.extend(more);
                tokio::task::yield_now().await;
            }
            events
        }));
    }
    for task in behaving {
        let events = task.await.unwrap();
        assert_eq!(text(&events), good(100));
        assert!(matches!(events.last(), Some(Event::Finish(_))));
    }
    for task in misbehaving {
        task.await.unwrap();
    }
    assert_eq!(sandbox.strikes(good_one.digest()), 2 * bad.len() as u32);
    assert_eq!(sandbox.occupancy(), Occupancy::default());
}
