//! Readiness tells the truth, and what happens is counted.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests may fail loudly"
)]

mod support;

use std::sync::Arc;

use gristmill_api::{ApiConfig, AppState, ServeConfig, app};
use gristmill_core::{Code, Error};
use gristmill_router::{NoModels, NoResidency, Router, RouterConfig};
use serde_json::json;
use support::{Beat, Bench, Double, Play, ask, bench, hello, text};

/// The value of a sample by its exact name and labels.
async fn sample(bench: &Bench, name: &str) -> f64 {
    let reply = bench.get("/metrics").await;
    assert!(reply.header("content-type").starts_with("application/openmetrics-text"));
    let text = reply.text();
    assert!(text.ends_with("# EOF\n"));
    let line = text.lines().find(|line| line.rsplit_once(' ').is_some_and(|(key, _)| key == name));
    line.map_or(0.0, |line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
}

#[tokio::test]
async fn requests_tokens_and_times_are_counted() {
    let bench = bench(Double::playing(hello())).await;
    for stream in [true, false] {
        bench.post("/api/chat", ask(stream)).await;
    }
    bench.post("/api/chat", json!({ "model": "absent", "messages": [] })).await;
    bench.get("/nothing/at/all").await;
    for (name, expected) in [
        (r#"gristmill_requests_total{route="/api/chat",status="200"}"#, 2.0),
        (r#"gristmill_requests_total{route="/api/chat",status="404"}"#, 1.0),
        (r#"gristmill_requests_total{route="other",status="404"}"#, 1.0),
        (r#"gristmill_tokens_total{model="tiny",kind="prompt"}"#, 10.0),
        (r#"gristmill_tokens_total{model="tiny",kind="completion"}"#, 4.0),
        (r#"gristmill_time_to_first_token_seconds_count{route="/api/chat"}"#, 2.0),
        (r#"gristmill_request_duration_seconds_count{route="/api/chat"}"#, 3.0),
        (r#"gristmill_active{backend="scripted"}"#, 0.0),
        ("gristmill_host_bugs_total", 0.0),
        ("gristmill_cancelled_requests_total", 0.0),
    ] {
        assert_eq!(sample(&bench, name).await, expected, "{name}");
    }
}

#[tokio::test]
async fn faults_defects_and_clients_that_go_are_counted() {
    let fault = Error::new(Code::PluginFault, "trapped").with("fault", "trap");
    let faulty =
        bench(Double::playing(Play::Beats(vec![Beat::Events(vec![text("a")]), Beat::Fail(fault)])))
            .await;
    faulty.post("/api/chat", ask(true)).await;
    faulty.post("/api/chat", ask(false)).await;
    assert_eq!(sample(&faulty, r#"gristmill_plugin_faults_total{fault="trap"}"#).await, 2.0);

    let broken = bench(Double::playing(Play::PanicAtStart)).await;
    broken.post("/api/chat", ask(true)).await;
    assert_eq!(sample(&broken, "gristmill_host_bugs_total").await, 1.0);

    let left = bench(Double::playing(Play::Beats(vec![Beat::Hang]))).await;
    let server = left.listen(ServeConfig::default()).await;
    let client = server.begin("/api/chat", &ask(false)).await;
    left.double.begun(1).await;
    assert_eq!(sample(&left, r#"gristmill_active{backend="scripted"}"#).await, 1.0);
    drop(client);
    left.double.left(0).await;
    support::within(async {
        while left.state.metrics.cancellations() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(
        sample(&left, r#"gristmill_requests_total{route="/api/chat",status="499"}"#).await,
        1.0
    );
    assert_eq!(sample(&left, r#"gristmill_active{backend="scripted"}"#).await, 0.0);
}

#[tokio::test]
async fn readiness_is_the_back_ends_word() {
    let bench = bench(Double::playing(hello())).await;
    let ready = bench.get("/readyz").await;
    assert_eq!((ready.status.as_u16(), &ready.json()["ready"]), (200, &json!(true)));
    *bench.double.ready.lock().unwrap() = false;
    let not = bench.get("/readyz").await;
    assert_eq!(not.status, 503);
    assert_eq!(
        not.json(),
        json!({ "ready": false, "checks": [{ "name": "backend scripted", "ready": false, "detail": "as scripted" }], "problems": [] })
    );
    assert_eq!(bench.get("/healthz").await.json(), json!({ "status": "ok" }));

    let empty = Router::new(RouterConfig::default(), Arc::new(NoModels), Arc::new(NoResidency));
    let state = AppState::new(ApiConfig::default(), Arc::new(empty));
    let none = Bench { app: app(state.clone()), state, double: Double::playing(hello()) };
    assert_eq!(none.get("/readyz").await.status, 503);
}
