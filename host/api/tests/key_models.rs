//! A model outside a key's list is not there for it: not found, not listed, and no word of why.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests may fail loudly")]

mod support;

use std::sync::Arc;

use axum::http::Method;
use gristmill_api::{AppState, app};
use gristmill_ledger::evidence::Evidence;
use gristmill_policies::Block;
use gristmill_router::{Known, Limits, Router, RouterConfig, Source};
use serde_json::{Value, json};
use support::{Bench, CHATS, DIGEST, Double, Keyed, Memory, Shelf, ask_at, hello};

const LISTS: [&str; 2] = ["/api/tags", "/v1/models"];

fn named(list: &Value) -> usize {
    let items = list.get("models").or_else(|| list.get("data")).unwrap();
    items.as_array().unwrap().len()
}

#[tokio::test]
async fn what_is_not_in_the_list_is_not_there() {
    let keyed = Keyed::new();
    let all = keyed.add("all", |_| {});
    // By another name than the requests use, and on the back-end.
    let tiny = keyed.add("tiny", |key| key.models = Some(vec!["TinyModel:latest".into()]));
    let there = keyed.add("there", |key| key.models = Some(vec!["scripted/tiny".into()]));
    let other = keyed.add("other", |key| key.models = Some(vec!["big".into(), "slow/tiny".into()]));
    let bench = keyed.bench().await;
    let get = async |key: &str, path: &str| bench.by(Some(key), Method::GET, path, "").await;

    for path in CHATS {
        let body = ask_at(path, false).to_string();
        for key in [&all, &tiny, &there] {
            let reply = bench.by(Some(key), Method::POST, path, &body).await;
            assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        }
        let refused = bench.by(Some(&other), Method::POST, path, &body).await;
        let unknown = body.replace("\"tiny\"", "\"tinz\"");
        let unknown = bench.by(Some(&all), Method::POST, path, &unknown).await;
        assert_eq!((refused.status, unknown.status), (404.try_into().unwrap(), refused.status));
        // Word for word as for a model that nobody has.
        let id = unknown.header("x-request-id").to_owned();
        let unknown = unknown.text().replace("tinz", "tiny").replace(&id, "ID");
        let id = refused.header("x-request-id").to_owned();
        assert_eq!(refused.text().replace(&id, "ID"), unknown);
    }
    let load = json!({ "model": "tiny", "messages": [] }).to_string();
    assert_eq!(bench.by(Some(&all), Method::POST, "/api/chat", &load).await.status, 200);
    for (key, seen) in [(&all, true), (&tiny, true), (&there, true), (&other, false)] {
        for path in LISTS {
            assert_eq!(named(&get(key, path).await.json()) > 0, seen, "{path}");
        }
        assert_eq!(named(&get(key, "/api/ps").await.json()) > 0, seen);
        let found = if seen { 200 } else { 404 };
        assert_eq!(get(key, "/v1/models/tiny").await.status, found);
        let show = json!({ "model": "tiny" }).to_string();
        assert_eq!(bench.by(Some(key), Method::POST, "/api/show", &show).await.status, found);
    }
    for (path, body) in [
        ("/api/embed", json!({ "model": "tiny", "input": "x" })),
        ("/v1/embeddings", json!({ "model": "tiny", "input": "x" })),
        ("/tokenize", json!({ "model": "tiny", "content": "x" })),
        ("/detokenize", json!({ "model": "tiny", "tokens": [120] })),
        ("/v1/rerank", json!({ "model": "tiny", "query": "q", "documents": ["a"] })),
        ("/v1/completions", json!({ "model": "tiny", "prompt": "x" })),
        ("/api/generate", json!({ "model": "tiny", "prompt": "x" })),
    ] {
        let reply = bench.by(Some(&other), Method::POST, path, &body.to_string()).await;
        assert_eq!(reply.status, 404, "{path}: {}", reply.text());
    }
}

#[tokio::test]
async fn a_kept_response_is_there_for_its_own_key_alone() {
    let keyed = Keyed::new();
    let mine = keyed.add("mine", |_| {});
    let yours = keyed.add("yours", |_| {});
    let bench = keyed.bench().await;
    let ask = ask_at("/v1/responses", false).to_string();
    let made = bench.by(Some(&mine), Method::POST, "/v1/responses", &ask).await.json();
    let id = made["id"].as_str().unwrap();
    let path = format!("/v1/responses/{id}");
    let go_on = json!({ "model": "tiny", "input": "x", "previous_response_id": id }).to_string();
    let all = async |key: &str| {
        [
            bench.by(Some(key), Method::POST, "/v1/responses", &go_on).await.status.as_u16(),
            bench.by(Some(key), Method::GET, &path, "").await.status.as_u16(),
            bench.by(Some(key), Method::DELETE, &path, "").await.status.as_u16(),
        ]
    };
    assert_eq!(all(&yours).await, [404, 404, 404]);
    assert_eq!(all(&mine).await, [200, 200, 200]);
}

#[tokio::test]
async fn a_key_for_one_back_end_gets_no_alternative() {
    let keyed = Keyed::new();
    let here = keyed.add("here", |key| key.models = Some(vec!["here/tiny".into()]));
    let both =
        keyed.add("both", |key| key.models = Some(vec!["here/tiny".into(), "there/tiny".into()]));
    let any = keyed.add("any", |key| key.models = Some(vec!["tiny".into()]));
    let all = keyed.add("all", |_| {});

    let block = "backend = \"scripted\"\nversions = \"*\"\ncapability = \"inference.text\"\n\
                 reason = \"r\"\nevidence = \"e\"\nexpires = \"2999-01-01\"\nalternative = \"there\"";
    let block = Block::parse("no-text", block).unwrap();
    let known = Known::new(vec![block], Vec::new(), Evidence::default());
    let other = Double::playing(hello());
    *other.kind.lock().unwrap() = "other";
    let bench = two(&keyed, known, &other).await;

    for path in CHATS {
        let body = ask_at(path, false).to_string();
        for key in [&here, &both] {
            let reply = bench.by(Some(key), Method::POST, path, &body).await;
            assert_eq!(reply.status, 403, "{path}: {}", reply.text());
            assert_eq!(reply.header("x-gristmill-error"), "blocked", "{path}");
        }
        assert!(other.requests.lock().unwrap().is_empty(), "{path}");
        for key in [&any, &all] {
            let reply = bench.by(Some(key), Method::POST, path, &body).await;
            assert_eq!(reply.status, 200, "{path}: {}", reply.text());
            assert_eq!(reply.header("x-gristmill-backend"), "there", "{path}");
        }
        other.requests.lock().unwrap().clear();
    }
    assert!(bench.double.requests.lock().unwrap().is_empty());
}

/// A back-end `here`, and `there`, this one.
async fn two(keyed: &Keyed, known: Known, there: &Arc<Double>) -> Bench {
    let double = Double::playing(hello());
    let shelf = Arc::new(Shelf::default());
    let router =
        Router::new(RouterConfig::default(), shelf, Arc::new(Memory::default())).with_known(known);
    for (name, double) in [("here", &double), ("there", there)] {
        let limits = Limits::default();
        router.install(name, Source::Store, limits, double.clone()).await.unwrap();
    }
    let state = AppState::new(keyed.config(), Arc::new(router));
    Bench { app: app(state.clone()), state, double }
}

#[tokio::test]
async fn a_key_that_may_not_have_the_fastest_gets_what_it_may_have() {
    let keyed = Keyed::new();
    let here = keyed.add("here", |key| key.models = Some(vec!["here/tiny".into()]));
    let any = keyed.add("any", |key| key.models = Some(vec!["tiny".into()]));
    let record = |component: &str, decode: u32| {
        let record = json!({
            "component": "double", "component-digest": component, "model": "tiny",
            "model-digest": "abcd", "quantization": "Q8_0", "placement": "cpu", "threads": 2,
            "host": { "os": "linux", "arch": "x86_64", "isa": "avx2", "processors": 2,
                      "memory": 1, "runtime": "0.1.0" },
            "prefill-tokens": 1, "decode-tokens": 1, "prefill-per-second": 100.0,
            "decode-per-second": decode, "memory": {}, "result": "steady",
            "date": "2026-11-30T12:00:00Z"
        });
        serde_json::from_value(record).unwrap()
    };
    let own = DIGEST.trim_start_matches("sha256:");
    let measured = vec![record(own, 10), record("fast", 20)];
    let mut other = Double::playing(hello());
    Arc::get_mut(&mut other).unwrap().digest = "sha256:fast";
    let bench = two(&keyed, Known::default().with_measured(measured), &other).await;
    for path in CHATS {
        for (key, backend) in [(&here, "here"), (&any, "there")] {
            let reply =
                bench.by(Some(key), Method::POST, path, &ask_at(path, false).to_string()).await;
            assert_eq!(reply.status, 200, "{path}: {}", reply.text());
            assert_eq!(reply.header("x-gristmill-backend"), backend, "{path}");
        }
    }
    for path in LISTS {
        let list = bench.by(Some(&here), Method::GET, path, "").await;
        assert!(named(&list.json()) > 0, "{path}");
    }
}
