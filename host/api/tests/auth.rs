//! Who gets in: tokens, host names, origins, preflights, the switch for model changes.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests may fail loudly")]

mod support;

use axum::{
    body::Body,
    http::{Method, Request},
};
use gristmill_api::ApiConfig;
use gristmill_router::Limits;
use serde_json::json;
use support::{Bench, CHATS, Double, Reply, ask, bench, bench_with, hello};

async fn with(config: ApiConfig) -> Bench {
    bench_with(Double::playing(hello()), config, Limits::default()).await
}

async fn send(bench: &Bench, method: &str, path: &str, headers: &[(&str, &str)]) -> Reply {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    bench.send(request.body(Body::empty()).unwrap()).await
}

#[tokio::test]
async fn a_token_opens_every_route_and_only_healthz_needs_none() {
    let bench = with(support::tokens(&["one", "two"])).await;
    let routes = [
        "/",
        "/api/tags",
        "/api/version",
        "/api/ps",
        "/v1/models",
        "/readyz",
        "/nothing",
        "/v1/nothing",
    ];
    for path in routes {
        for headers in
            [&[][..], &[("authorization", "Bearer three")], &[("authorization", "Basic one")]]
        {
            let reply = send(&bench, "GET", path, headers).await;
            assert_eq!(reply.status, 401, "{path}");
            assert_eq!(reply.header("www-authenticate"), "Bearer");
            assert!(!reply.text().contains("three"));
        }
        for token in ["Bearer one", "bearer two"] {
            assert_ne!(
                send(&bench, "GET", path, &[("authorization", token)]).await.status,
                401,
                "{path}"
            );
        }
    }
    assert_eq!(
        send(&bench, "GET", "/v1/models", &[]).await.json()["error"]["code"],
        "invalid_api_key"
    );
    assert_eq!(send(&bench, "GET", "/healthz", &[]).await.status, 200);
    assert_eq!(bench.post("/api/chat", ask(false)).await.status, 401);
    assert!(bench.double.requests.lock().unwrap().is_empty());
}

#[tokio::test]
async fn on_loopback_only_local_host_names_pass() {
    let bench =
        with(ApiConfig { hosts: vec!["mill.lan.example".into()], ..ApiConfig::default() }).await;
    for host in ["localhost", "127.0.0.1:11450", "[::1]:11450", "mill.lan.example:80"] {
        assert_eq!(send(&bench, "GET", "/api/tags", &[("host", host)]).await.status, 200, "{host}");
    }
    for host in ["evil.example", "localhost.evil.example", "8.8.8.8"] {
        let reply = send(&bench, "GET", "/api/tags", &[("host", host)]).await;
        assert_eq!(reply.status, 403, "{host}");
        assert!(reply.json()["error"].is_string());
    }
    let open = with(ApiConfig { loopback: false, ..ApiConfig::default() }).await;
    assert_eq!(send(&open, "GET", "/api/tags", &[("host", "any.example")]).await.status, 200);
}

#[tokio::test]
async fn pages_of_other_origins_are_refused_even_for_simple_requests() {
    let bench =
        with(ApiConfig { origins: vec!["https://ui.example".into()], ..ApiConfig::default() })
            .await;
    for origin in ["http://localhost:3000", "tauri://localhost", "https://ui.example"] {
        let reply = send(&bench, "GET", "/api/tags", &[("origin", origin)]).await;
        assert_eq!(reply.status, 200, "{origin}");
        assert_eq!(reply.header("access-control-allow-origin"), origin);
        assert!(reply.header("access-control-expose-headers").contains("x-request-id"));
    }
    for origin in ["https://evil.example", "null", "http://localhost.evil.example"] {
        let reply = send(&bench, "GET", "/v1/models", &[("origin", origin)]).await;
        assert_eq!(reply.status, 403, "{origin}");
        assert!(reply.headers.get("access-control-allow-origin").is_none());
        assert_eq!(reply.json()["error"]["type"], "permission_error");
    }
    // A page that may come in gets to read why a request failed.
    let failed = send(&bench, "GET", "/api/chat", &[("origin", "https://ui.example")]).await;
    assert_eq!(
        (failed.status.as_u16(), failed.header("access-control-allow-origin")),
        (405, "https://ui.example")
    );
}

#[tokio::test]
async fn a_preflight_echoes_what_it_asks_and_needs_no_token() {
    let bench = with(support::tokens(&["one"])).await;
    let ask = |origin| {
        [
            ("origin", origin),
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", "authorization, baggage, x-anything"),
        ]
    };
    for path in CHATS {
        let reply = send(&bench, "OPTIONS", path, &ask("http://localhost:3000")).await;
        assert_eq!(reply.status, 204);
        assert_eq!(reply.header("access-control-allow-origin"), "http://localhost:3000");
        assert_eq!(reply.header("access-control-allow-methods"), "POST");
        assert_eq!(
            reply.header("access-control-allow-headers"),
            "authorization, baggage, x-anything"
        );
        assert_eq!(send(&bench, "OPTIONS", path, &ask("https://evil.example")).await.status, 403);
    }
}

#[tokio::test]
async fn models_change_only_where_the_switch_is_on() {
    let off = bench(Double::playing(hello())).await;
    let requests = [
        (Method::POST, "/api/pull", json!({ "model": "new", "stream": false })),
        (Method::POST, "/api/copy", json!({ "source": "tiny", "destination": "other" })),
        (Method::DELETE, "/api/delete", json!({ "model": "other" })),
    ];
    for (method, path, body) in &requests {
        let reply = off.raw(method.clone(), path, body.to_string()).await;
        assert_eq!(reply.status, 403, "{path}");
        assert!(reply.text().contains("server.model_changes"), "{}", reply.text());
    }
    let on = with(ApiConfig { mutation: true, ..ApiConfig::default() }).await;
    for (method, path, body) in &requests {
        assert_eq!(on.raw(method.clone(), path, body.to_string()).await.status, 200, "{path}");
    }
}
