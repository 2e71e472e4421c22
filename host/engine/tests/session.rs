//! Sessions: prefixes, answers that stay, snapshots, forks, overflow.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use common::serve::{ask, greedy, model, read};
use gristmill_core::{Code, request::Prompt};
use gristmill_engine::runtime::Segment;

fn segments(parts: &[&[u32]]) -> Vec<Segment> {
    parts
        .iter()
        .map(|tokens| Segment {
            kind: "user".into(),
            tokens: tokens.to_vec(),
            stable: true,
            cache_class: "volatile".into(),
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_keeps_what_it_read_and_what_it_wrote() {
    let (engine, model) = model().await;
    let before = engine.memory().used();
    let text = model.tokenize("The capital of France is", false).unwrap();
    let more = model.tokenize(". The capital of Italy is", false).unwrap();
    let mut session = model.open_session(Vec::new()).await.unwrap();

    let error = session.decode(greedy(Prompt::Tokens(vec![]), 4)).await.unwrap();
    assert_eq!(read(error).await.unwrap_err().code, Code::InvalidRequest, "nothing to go on from");

    let status = session.ensure_prefix(segments(&[&text[..2], &text[2..]])).await.unwrap();
    assert_eq!((status.reused, status.prefilled, status.dropped, status.resident), (0, 5, 0, 5));
    assert_eq!(status.available, 8192 - 5);
    let request = || greedy(Prompt::Tokens(vec![]), 1);
    let answer = read(session.decode(request()).await.unwrap()).await.unwrap();
    assert_eq!(answer.text, " Paris");
    assert_eq!((answer.usage.prompt, answer.usage.cached), (5, 4));

    // The answer is part of the context now.
    let status = session.prefill(segments(&[&more])).await.unwrap();
    assert_eq!(status.resident as usize, 5 + 1 + more.len());
    let answer = read(session.decode(request()).await.unwrap()).await.unwrap();
    let whole = "The capital of France is Paris. The capital of Italy is";
    let alone = ask(&model, greedy(Prompt::Text(whole.into()), 1)).await;
    assert_eq!(answer.text, alone.text);

    // Back to the beginning: what is the same stays.
    let status = session.ensure_prefix(segments(&[&text])).await.unwrap();
    assert_eq!((status.reused, status.prefilled, status.resident), (5, 0, 5));
    assert_eq!(status.dropped as usize, 1 + more.len() + 1);
    let other = [&text[..3], &more[..4]].concat();
    let status = session.ensure_prefix(segments(&[&other])).await.unwrap();
    assert_eq!((status.reused, status.prefilled, status.dropped), (3, 4, 2));

    let explained: serde_json::Value =
        serde_json::from_str(&session.explain().await.unwrap()).unwrap();
    assert_eq!(explained["state"], "idle");
    assert_eq!(explained["context"]["resident"], 7);
    assert_eq!(explained["counters"]["answers"], 2);
    assert_eq!(explained["manifest"], serde_json::json!(status.manifest_digest));

    drop(session);
    // A session that is opened afterwards is handled after the closing of this one.
    let last = model.open_session(Vec::new()).await.unwrap();
    let one = 256 * 23_040;
    assert!(engine.memory().used() - before <= 2 * one, "its own, and the idle context of `ask`");
    drop(last);
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_and_forks_go_their_own_ways() {
    let (_engine, model) = model().await;
    let text = model.tokenize("Once upon a time, in a land far away,", false).unwrap();
    let mut session = model.open_session(Vec::new()).await.unwrap();
    session.ensure_prefix(segments(&[&text])).await.unwrap();
    let request = |n| greedy(Prompt::Tokens(vec![]), n);
    let snapshot = session.snapshot().await.unwrap();
    let first = read(session.decode(request(12)).await.unwrap()).await.unwrap();
    let mut fork = session.fork().await.unwrap();
    let status = session.restore(&snapshot).await.unwrap();
    assert_eq!(status.resident as usize, text.len());
    assert_eq!(status.dropped as usize, text.len() + 12);
    let again = read(session.decode(request(12)).await.unwrap()).await.unwrap();
    assert_eq!(again.text, first.text);

    // The fork stands where the session stood, and goes on as the session does.
    let on = read(session.decode(request(8)).await.unwrap()).await.unwrap();
    let forked = read(fork.decode(request(8)).await.unwrap()).await.unwrap();
    assert_eq!(forked.text, on.text);
    drop(session);
    let alone = read(fork.decode(request(4)).await.unwrap()).await.unwrap();
    assert_eq!(alone.usage.completion, 4);
    let error = fork.restore(&snapshot).await.unwrap_err();
    assert_eq!(error.code, Code::NotFound, "a snapshot goes with the session that made it");
    assert_eq!(fork.restore("snapshot-none").await.unwrap_err().code, Code::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn overflow_is_an_error_with_numbers_and_costs_nothing() {
    let (_engine, model) = model().await;
    let mut session = model.open_session(vec![("context".into(), "32".into())]).await.unwrap();
    session.ensure_prefix(segments(&[&[7; 20]])).await.unwrap();
    let error = session.prefill(segments(&[&[8; 20]])).await.unwrap_err();
    assert_eq!(error.code, Code::ContextOverflow);
    let details = ["stage", "resident", "additional", "limit"].map(|name| error.detail(name));
    assert_eq!(details, [Some("prefill"), Some("20"), Some("20"), Some("32")]);
    let status = session.prefill(segments(&[&[8; 4]])).await.unwrap();
    assert_eq!((status.resident, status.available), (24, 8));
    let answer = read(session.decode(greedy(Prompt::Tokens(vec![]), 100)).await.unwrap()).await;
    assert!(answer.unwrap().usage.completion <= 8);

    let error = session.ensure_prefix(segments(&[&[1 << 30]])).await.unwrap_err();
    assert_eq!(error.code, Code::InvalidRequest);
    for (name, value) in [("context", "0"), ("context", "many"), ("colour", "red")] {
        let options = vec![(name.to_owned(), value.to_owned())];
        let error = model.open_session(options).await.err().unwrap();
        assert_eq!(error.detail("field"), Some(name));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_answers_is_busy_and_usable_after_a_cancel() {
    let (_engine, model) = model().await;
    let text = model.tokenize("1, 2, 3, 4, 5,", false).unwrap();
    let mut session = model.open_session(Vec::new()).await.unwrap();
    session.ensure_prefix(segments(&[&text])).await.unwrap();
    let mut request = greedy(Prompt::Tokens(vec![]), 100_000);
    request.sampling.logit_bias = vec![(0, -100.0), (2, -100.0)];
    let mut decoding = session.decode(request).await.unwrap();
    decoding.next(1).await.unwrap().unwrap();
    let error = session.prefill(segments(&[&text])).await.unwrap_err();
    assert_eq!(error.code, Code::Busy);
    drop(decoding);
    let status = session.ensure_prefix(segments(&[&text])).await.unwrap();
    assert_eq!(status.reused as usize, text.len());
    let answer = read(session.decode(greedy(Prompt::Tokens(vec![]), 3)).await.unwrap()).await;
    assert_eq!(answer.unwrap().usage.completion, 3);
}
