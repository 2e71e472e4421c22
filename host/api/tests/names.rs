//! What a name means, who answered, and what the listings say.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests may fail loudly")]

mod support;

use std::sync::Arc;

use axum::{
    body::Body,
    http::{Method, Request},
};
use gristmill_api::{ApiConfig, AppState, app};
use gristmill_router::{Limits, NoModels, NoResidency, Router, RouterConfig, Source};
use serde_json::{Value, json};
use support::{Bench, DIGEST, Double, ask, ask_at, bench, bench_with, hello};

#[tokio::test]
async fn every_spelling_finds_its_model_and_no_other_name_does() {
    let bench = bench(Double::playing(hello())).await;
    for name in [
        "tiny",
        "TINY",
        "tiny:latest",
        "tinymodel",
        "TinyModel:latest",
        "tiny:135M",
        "registry.ollama.ai/library/tiny",
    ] {
        let mut body = ask(false);
        body["model"] = json!(name);
        let reply = bench.post("/v1/chat/completions", body.clone()).await;
        assert_eq!(reply.status, 200, "{name}");
        assert_eq!(reply.json()["model"], name, "the client's spelling comes back");
        assert_eq!(reply.header("x-gristmill-model"), "tiny");
        assert_eq!(bench.double.last().model, "tiny", "the back-end gets the canonical id");
    }
    for name in ["tin", "tiny2", "tiny:1b", "other/tiny", "TinyModel:135m"] {
        let mut body = ask(false);
        body["model"] = json!(name);
        assert_eq!(bench.post("/api/chat", body).await.status, 404, "{name}");
    }
}

#[tokio::test]
async fn every_answer_names_its_source() {
    let bench = bench(Double::playing(hello())).await;
    let embed = json!({ "model": "tiny", "input": "x" });
    for (path, body) in [
        ("/api/chat", ask(true)),
        ("/api/chat", ask(false)),
        ("/v1/chat/completions", ask(true)),
        ("/v1/chat/completions", ask(false)),
        ("/api/embed", embed.clone()),
        ("/v1/embeddings", embed),
        ("/v1/responses", ask_at("/v1/responses", true)),
        ("/v1/responses", ask_at("/v1/responses", false)),
        ("/v1/messages", ask_at("/v1/messages", true)),
        ("/v1/messages", ask_at("/v1/messages", false)),
        ("/tokenize", json!({ "model": "tiny", "content": "x" })),
        ("/detokenize", json!({ "model": "tiny", "tokens": [1] })),
        ("/apply-template", ask(false)),
    ] {
        let reply = bench.post(path, body).await;
        assert_eq!(reply.header("x-gristmill-model"), "tiny", "{path}");
        assert_eq!(reply.header("x-gristmill-backend"), "scripted");
        assert_eq!(reply.header("x-gristmill-digest"), DIGEST);
        assert_eq!(reply.header("x-gristmill-generation"), "1");
        assert!(reply.header("x-request-id").starts_with("req_"));
    }
    let again = Double::playing(hello());
    let router = &bench.state.router;
    let number = router.install("scripted", Source::Store, Limits::default(), again).await.unwrap();
    assert_eq!(number, 2);
    assert_eq!(bench.post("/api/chat", ask(false)).await.header("x-gristmill-generation"), "2");
}

#[tokio::test]
async fn a_sane_request_id_is_kept_and_another_replaced() {
    let bench = bench(Double::playing(hello())).await;
    for (given, kept) in [("trace-1.a_B", true), ("a b", false), (&*"x".repeat(200), false)] {
        let request = Request::post("/api/chat").header("x-request-id", given);
        let reply = bench.send(request.body(Body::from(ask(false).to_string())).unwrap()).await;
        assert_eq!(reply.header("x-request-id") == given, kept, "{given}");
        assert_eq!(bench.double.last().id, reply.header("x-request-id"));
    }
}

#[tokio::test]
async fn listings_have_every_name() {
    let bench = bench(Double::playing(hello())).await;
    let tags = bench.get("/api/tags").await.json();
    let names: Vec<_> =
        tags["models"].as_array().unwrap().iter().map(|m| m["name"].clone()).collect();
    assert_eq!(names, ["tiny:latest", "TinyModel:latest", "tiny:135m"]);
    assert_eq!(
        tags["models"][0],
        json!({
            "name": "tiny:latest", "model": "tiny:latest", "modified_at": "2023-11-14T22:13:20.25Z",
            "size": 98_000_000, "digest": "abcd", "capabilities": ["completion", "tools"],
            "details": { "parent_model": "", "format": "gguf", "family": "llama", "families": ["llama"],
                "parameter_size": "134.52M", "quantization_level": "Q4_1", "context_length": 2048,
                "embedding_length": 576 },
        })
    );
    let models = bench.get("/v1/models").await.json();
    assert_eq!(models["object"], "list");
    assert_eq!(
        models["data"][0],
        json!({ "id": "tiny", "object": "model", "created": 1_700_000_000, "owned_by": "gristmill" })
    );
    for path in ["/v1/models/tiny", "/v1/models/Tiny%3Alatest", "/v1/models/tiny:135m"] {
        assert_eq!(bench.get(path).await.status, 200, "{path}");
    }
    let absent = bench.get("/v1/models/a/b%2Fc").await;
    assert_eq!(
        (absent.status.as_u16(), &absent.json()["error"]["code"]),
        (404, &json!("model_not_found"))
    );
    assert_eq!(bench.raw(Method::HEAD, "/api/tags", "").await.status, 200);
}

#[tokio::test]
async fn show_tells_what_the_file_says() {
    let bench = bench(Double::playing(hello())).await;
    for field in ["model", "name"] {
        let shown = bench.post("/api/show", json!({ field: "tiny" })).await.json();
        assert_eq!(
            shown["model_info"],
            json!({
                "general.architecture": "llama", "llama.context_length": 2048,
                "tokenizer.ggml.tokens": null, "general.parameter_count": 134_515_008,
            })
        );
        assert_eq!(shown["template"], "{{ messages }}");
        assert_eq!(shown["capabilities"], json!(["completion", "tools"]));
        assert!(shown["parameters"].as_str().unwrap().starts_with("stop "));
        assert!(shown.get("tensors").is_none());
    }
    let verbose = bench.post("/api/show", json!({ "model": "tiny", "verbose": true })).await.json();
    assert_eq!(
        verbose["tensors"][0],
        json!({ "name": "output_norm.weight", "type": "F32", "shape": [576] })
    );
}

#[tokio::test]
async fn the_root_and_the_version() {
    let bench = bench(Double::playing(hello())).await;
    assert_eq!(bench.get("/").await.text(), "Gristmill is running");
    assert_eq!(bench.raw(Method::HEAD, "/", "").await.status, 200);
    let version = bench.get("/api/version").await.json();
    assert_eq!(version["version"], ApiConfig::default().version);
}

#[tokio::test]
async fn models_are_pulled_copied_and_deleted_by_any_spelling() {
    let config = ApiConfig { mutation: true, ..ApiConfig::default() };
    let bench = bench_with(Double::playing(hello()), config, Limits::default()).await;
    let lines = bench.post("/api/pull", json!({ "model": "new" })).await.lines();
    assert_eq!(
        lines,
        [
            json!({ "status": "downloading", "total": 10, "completed": 5 }),
            json!({ "status": "downloading", "total": 10, "completed": 10 }),
            json!({ "status": "success" }),
        ]
    );
    let failed = bench.post("/api/pull", json!({ "model": "absent" })).await.lines();
    assert_eq!(failed, [json!({ "error": "pull: no source has 'absent'" })]);
    let failed = bench.post("/api/pull", json!({ "model": "absent", "stream": false })).await;
    assert_eq!(failed.status, 404);
    assert_eq!(
        bench.post("/api/pull", json!({ "model": "x", "insecure": true })).await.status,
        400
    );

    let known = async |name: &str| {
        let tags: Value = bench.get("/api/tags").await.json();
        tags["models"].as_array().unwrap().iter().any(|model| model["name"] == name)
    };
    assert!(known("new:latest").await);
    let copy = json!({ "source": "NEW:latest", "destination": "newer" });
    assert_eq!(bench.post("/api/copy", copy).await.status, 200);
    assert!(known("newer:latest").await);
    let remove = async |name: &str| {
        bench.raw(Method::DELETE, "/api/delete", json!({ "model": name }).to_string()).await.status
    };
    assert_eq!(remove("NEWER").await, 200);
    assert!(!known("newer:latest").await && known("new:latest").await);
    assert_eq!(remove("newer").await, 404);
    let absent = json!({ "source": "absent", "destination": "x" });
    assert_eq!(bench.post("/api/copy", absent).await.status, 404);
}

#[tokio::test]
async fn a_back_end_with_a_list_of_its_own_serves_that() {
    let router = Router::new(RouterConfig::default(), Arc::new(NoModels), Arc::new(NoResidency));
    let double = Double::playing(hello());
    router.install("bridge", Source::Listed, Limits::default(), double.clone()).await.unwrap();
    let state = AppState::new(ApiConfig::default(), Arc::new(router));
    let bench = Bench { app: app(state.clone()), state, double };
    let mut body = ask(false);
    body["model"] = json!("Listed/One");
    let reply = bench.post("/api/chat", body).await;
    assert_eq!(reply.header("x-gristmill-model"), "listed/one");
    assert_eq!(bench.get("/v1/models").await.json()["data"][0]["id"], "listed/one");
    assert_eq!(bench.post("/api/chat", ask(false)).await.status, 404);
}
