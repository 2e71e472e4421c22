//! How often a key may come: its rate by a clock that the test moves, and what it has at once.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests may fail loudly")]

mod support;

use std::time::Duration;

use axum::{
    body::Body,
    http::{Method, Request},
};
use gristmill_router::Limits;
use http_body_util::BodyExt;
use support::{Beat, CHATS, Double, Keyed, Play, Reply, ask, ask_at, bench_with};
use tower::ServiceExt;

async fn tags(bench: &support::Bench, key: &str) -> Reply {
    bench.by(Some(key), Method::GET, "/api/tags", "").await
}

#[tokio::test(start_paused = true)]
async fn a_rate_is_a_burst_of_a_second_and_then_its_pace() {
    let keyed = Keyed::new();
    let fast = keyed.add("fast", |key| key.rate = Some(3.0));
    let slow = keyed.add("slow", |key| key.rate = Some(0.1));
    let free = keyed.add("free", |_| {});
    let bench = keyed.bench().await;

    for _ in 0..3 {
        assert_eq!(tags(&bench, &fast).await.status, 200);
    }
    let refused = tags(&bench, &fast).await;
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (429, "1"));
    tokio::time::advance(Duration::from_millis(334)).await;
    assert_eq!(tags(&bench, &fast).await.status, 200);
    assert_eq!(tags(&bench, &fast).await.status, 429);
    // An hour of silence is worth no more than a second.
    tokio::time::advance(Duration::from_secs(3600)).await;
    for status in [200, 200, 200, 429] {
        assert_eq!(tags(&bench, &fast).await.status, status);
    }

    assert_eq!(tags(&bench, &slow).await.status, 200);
    let refused = tags(&bench, &slow).await;
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (429, "10"));
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(tags(&bench, &slow).await.status, 200);

    // One key's limit is nobody else's, and what is no inference does not count.
    assert_eq!(tags(&bench, &free).await.status, 200);
    for _ in 0..10 {
        assert_eq!(bench.by(Some(&slow), Method::GET, "/readyz", "").await.status, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn each_dialect_says_it_in_its_own_envelope() {
    let keyed = Keyed::new();
    let key = keyed.add("one", |key| key.rate = Some(1.0));
    let bench = keyed.bench().await;
    assert_eq!(tags(&bench, &key).await.status, 200);
    for path in CHATS {
        let reply =
            bench.by(Some(&key), Method::POST, path, &ask_at(path, false).to_string()).await;
        assert_eq!((reply.status.as_u16(), reply.header("retry-after")), (429, "1"), "{path}");
        assert_eq!(reply.header("x-gristmill-error"), "rate-limited");
        let body = reply.json();
        match path {
            "/api/chat" => assert!(body["error"].is_string()),
            "/v1/messages" => assert_eq!(body["error"]["type"], "rate_limit_error"),
            _ => {
                assert_eq!(body["error"]["type"], "rate_limit_error");
                assert_eq!(body["error"]["code"], "rate_limit_exceeded");
                assert_eq!(body["error"]["details"]["limit"], "rate");
            }
        }
    }
    assert!(bench.double.requests.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_place_is_held_until_the_answer_is_read_or_dropped() {
    let keyed = Keyed::new();
    let key = keyed.add("two", |key| key.concurrent = Some(2));
    let double = Double::playing(Play::Beats(vec![Beat::Endless("x".into())]));
    let bench = bench_with(double, keyed.config(), Limits::default()).await;
    let start = || async {
        let request = Request::post("/api/chat")
            .header("x-api-key", &key)
            .body(Body::from(ask(true).to_string()))
            .unwrap();
        bench.app.clone().oneshot(request).await.unwrap()
    };
    let (mut one, two) = (start().await, start().await);
    assert!(one.body_mut().frame().await.unwrap().is_ok());
    let refused = start().await;
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["retry-after"], "1");
    drop(one);
    let three = start().await;
    assert_eq!(three.status(), 200);
    assert_eq!(start().await.status(), 429);
    drop((two, three));
    // What has its answer whole gives its place back by itself.
    for _ in 0..5 {
        assert_eq!(tags(&bench, &key).await.status, 200);
    }
}
