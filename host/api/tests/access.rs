//! Every route with every kind of key: who gets in, who is told what, in which envelope.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests may fail loudly")]

mod support;

use axum::http::Method;
use gristmill_api::{
    ApiConfig,
    endpoint::{Access, Endpoint, endpoints},
    error::Dialect,
};
use gristmill_router::Limits;
use support::{Bench, Double, Keyed, Reply, bench_with, hello};

/// A path of the route, and a body that is at least an object.
async fn ask(bench: &Bench, endpoint: &Endpoint, key: Option<&str>) -> Reply {
    let path: String = endpoint
        .path
        .split('/')
        .map(|part| if part.starts_with('{') { "x" } else { part })
        .collect::<Vec<_>>()
        .join("/");
    let body = if endpoint.method == Method::GET { "" } else { "{}" };
    bench.by(key, endpoint.method.clone(), &path, body).await
}

/// Whether a request with this kind of key gets past the guard.
fn expected(kind: &str, access: Access) -> Result<(), u16> {
    let inside = match (kind, access) {
        (_, Access::Open) | ("operator", _) => true,
        ("inference" | "token", Access::Key | Access::Inference) => true,
        ("inference" | "token", _) => return Err(403),
        _ => false,
    };
    if inside { Ok(()) } else { Err(401) }
}

fn envelope(dialect: Dialect, reply: &Reply, word: &str) {
    let body = reply.json();
    let id = reply.header("x-request-id");
    assert!(!id.is_empty());
    match dialect {
        Dialect::Ollama => assert!(body["error"].is_string(), "{body}"),
        Dialect::OpenAi => assert!(body["error"]["code"].is_string(), "{body}"),
        Dialect::Anthropic => {
            assert_eq!((&body["type"], &body["request_id"]), (&"error".into(), &id.into()));
        }
        Dialect::Control => {
            let inner = body["error"].as_object().unwrap();
            assert_eq!(inner.keys().collect::<Vec<_>>(), ["code", "message", "request_id"]);
            assert_eq!((&inner["code"], &inner["request_id"]), (&word.into(), &id.into()));
        }
    }
    assert_eq!(reply.header("x-gristmill-error"), word);
}

#[tokio::test]
async fn each_kind_of_key_reaches_what_is_its_own() {
    let keyed = Keyed::new();
    let operator = keyed.add("boss", |key| key.operator = true);
    let inference = keyed.add("app", |_| {});
    let revoked = keyed.add("gone", |key| key.operator = true);
    keyed.file.revoke("gone").unwrap();
    let config = ApiConfig { mutation: true, ..keyed.config() };
    let bench = bench_with(Double::playing(hello()), config, Limits::default()).await;
    let kinds = [
        ("operator", Some(operator.as_str())),
        ("inference", Some(&inference)),
        ("revoked", Some(&revoked)),
        ("unknown", Some("gm_0000")),
        ("none", None),
    ];
    for endpoint in endpoints() {
        for (kind, key) in kinds {
            let what = format!("{kind} {} {}", endpoint.method, endpoint.path);
            let reply = ask(&bench, &endpoint, key).await;
            let status = reply.status.as_u16();
            match expected(kind, endpoint.access) {
                Ok(()) => assert!(status != 401 && status != 403, "{what}: {}", reply.text()),
                Err(refused) => {
                    assert_eq!(status, refused, "{what}");
                    let word = if status == 401 { "unauthorized" } else { "forbidden" };
                    envelope(Dialect::of(endpoint.path), &reply, word);
                    assert_eq!(reply.header("www-authenticate").is_empty(), status == 403);
                }
            }
        }
    }
    assert_eq!(bench.by(None, Method::GET, "/v1/nothing", "").await.status, 401);
    assert_eq!(bench.by(Some(&inference), Method::GET, "/v1/nothing", "").await.status, 404);
}

#[tokio::test]
async fn tokens_of_the_configuration_are_inference_keys() {
    let bench =
        bench_with(Double::playing(hello()), support::tokens(&["one"]), Limits::default()).await;
    for endpoint in endpoints() {
        let reply = ask(&bench, &endpoint, Some("one")).await;
        let refused = reply.status == 401 || reply.status == 403;
        assert_eq!(refused, expected("token", endpoint.access).is_err(), "{}", endpoint.path);
    }
}

#[tokio::test]
async fn a_host_without_keys_lets_everybody_do_all_but_change_what_runs() {
    let bench = bench_with(Double::playing(hello()), ApiConfig::default(), Limits::default()).await;
    for endpoint in endpoints() {
        let reply = ask(&bench, &endpoint, None).await;
        let expected = match endpoint.access {
            Access::Verb => Some(401),
            Access::Change => Some(403),
            _ => None,
        };
        match expected {
            Some(expected) => assert_eq!(reply.status, expected, "{}", endpoint.path),
            None => assert!(reply.status != 401 && reply.status != 403, "{}", endpoint.path),
        }
    }
}

#[tokio::test]
async fn who_may_not_come_in_is_told_before_a_body_is_read() {
    let keyed = Keyed::new();
    let inference = keyed.add("app", |_| {});
    let bench = keyed.bench().await;
    // A body that never ends: an answer means that nobody waited for it.
    let endless = || {
        axum::body::Body::from_stream(futures_util::stream::pending::<
            Result<axum::body::Bytes, std::convert::Infallible>,
        >())
    };
    for (key, status) in [("wrong", 401), (inference.as_str(), 403)] {
        for path in ["/api/pull", "/v1/ledger/promote"] {
            let request =
                axum::http::Request::post(path).header("x-api-key", key).body(endless()).unwrap();
            assert_eq!(bench.send(request).await.status, status, "{path}");
        }
    }
    let open = bench_with(Double::playing(hello()), ApiConfig::default(), Limits::default()).await;
    let request = axum::http::Request::post("/api/pull").body(endless()).unwrap();
    let reply = open.send(request).await;
    assert_eq!(reply.status, 403);
    assert!(reply.text().contains("server.model_changes"), "{}", reply.text());
}
