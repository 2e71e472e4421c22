//! Bad input and bad endings: every one has its status and the dialect's envelope, and the server
//! serves on.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests may fail loudly"
)]

mod support;

use axum::http::Method;
use gristmill_core::{
    Code, Error,
    capability::{Claim, Reason, Support},
};
use serde_json::{Value, json};
use support::{Beat, Bench, CHATS, Double, Play, Reply, ask, ask_at, bench, hello, text};

/// Routes outside `/v1` that answer with OpenAI's error object.
const OBJECTS: [&str; 5] = ["/rerank", "/reranking", "/tokenize", "/detokenize", "/apply-template"];

/// Checks the dialect's envelope and returns message and code.
fn envelope(path: &str, reply: &Reply) -> (String, String) {
    let value = reply.json();
    assert!(reply.header("content-type").starts_with("application/json"), "{path}");
    if path.starts_with("/v1/messages") {
        assert_eq!(value["type"], "error", "{path}: {value}");
        assert_eq!(value["request_id"], reply.header("x-request-id"));
        let text = |field: &str| value["error"][field].as_str().unwrap_or_default().to_owned();
        assert!(!text("message").is_empty() && text("type").ends_with(|c: char| c.is_alphabetic()));
        (text("message"), reply.header("x-gristmill-error").replace('-', "_"))
    } else if path.starts_with("/v1") || OBJECTS.contains(&path) {
        let error = value["error"].as_object().unwrap_or_else(|| panic!("{path}: {value}"));
        for field in ["message", "type", "param", "code"] {
            assert!(error.contains_key(field), "{path}: {field} is missing in {value}");
        }
        let text = |field: &str| error[field].as_str().unwrap_or_default().to_owned();
        assert!(!text("message").is_empty() && !text("type").is_empty());
        (text("message"), text("code"))
    } else {
        assert_eq!(value.as_object().unwrap().len(), 1, "{path}: {value}");
        (value["error"].as_str().unwrap().to_owned(), reply.header("x-gristmill-error").to_owned())
    }
}

async fn still_serves(bench: &Bench) {
    assert_eq!(bench.get("/healthz").await.status, 200);
    assert_eq!(bench.state.metrics.bugs(), 0);
}

#[tokio::test]
async fn bytes_that_are_no_request_are_refused_by_every_route() {
    let bench = bench(Double::playing(hello())).await;
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    let bodies: Vec<(&str, Vec<u8>)> = vec![
        ("nothing", Vec::new()),
        ("half an object", b"{\"model\": \"tiny\"".to_vec()),
        ("two objects", b"{} {}".to_vec()),
        ("no JSON", b"model=tiny".to_vec()),
        ("an array", b"[]".to_vec()),
        ("a string", b"\"tiny\"".to_vec()),
        ("null", b"null".to_vec()),
        ("a lone surrogate", br#"{"model":"tiny","prompt":"\ud83d","input":"\ud83d","messages":[{"role":"user","content":"\ud83d"}]}"#.to_vec()),
        ("bytes that are no UTF-8", b"{\"model\":\"\xe6\xad\"}".to_vec()),
        ("a number beyond range", b"{\"model\":\"tiny\",\"seed\":1e999}".to_vec()),
        ("nesting without end", deep.into_bytes()),
        ("a byte order mark", b"\xef\xbb\xbf{\"model\":\"tiny\"}".to_vec()),
        ("no model", b"{}".to_vec()),
        ("an empty model", b"{\"model\":\"\"}".to_vec()),
        ("a model that is a number", b"{\"model\":5}".to_vec()),
        ("a model that is no name", b"{\"model\":\"a\\u0000b\",\"prompt\":\"x\",\"input\":\"x\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}".to_vec()),
    ];
    let paths = [
        "/api/chat",
        "/api/generate",
        "/api/embed",
        "/api/embeddings",
        "/api/show",
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/embeddings",
        "/v1/responses",
        "/v1/responses/input_tokens",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/v1/chat/completions/input_tokens",
        "/v1/rerank",
        "/rerank",
        "/tokenize",
        "/detokenize",
        "/apply-template",
    ];
    for path in paths {
        for (what, body) in &bodies {
            let reply = bench.raw(Method::POST, path, body.clone()).await;
            assert_eq!(reply.status, 400, "{path}: {what}: {}", reply.text());
            envelope(path, &reply);
        }
    }
    assert!(bench.double.requests.lock().unwrap().is_empty());
    still_serves(&bench).await;
}

#[tokio::test]
async fn wrong_types_and_numbers_are_refused_by_field() {
    let bench = bench(Double::playing(hello())).await;
    let ollama: &[(Value, &str)] = &[
        (json!({ "messages": "hi" }), "messages"),
        (json!({ "messages": ["hi"] }), "messages[0]"),
        (json!({ "messages": [{ "role": "alien", "content": "x" }] }), "messages[0].role"),
        (json!({ "messages": [{ "role": "user", "content": ["x"] }] }), "messages[0].content"),
        (
            json!({ "messages": [{ "role": "user", "images": ["data:,x"] }] }),
            "messages[0].images[0]",
        ),
        (json!({ "stream": "yes" }), "stream"),
        (json!({ "think": "very" }), "think"),
        (json!({ "think": 1 }), "think"),
        (json!({ "format": "xml" }), "format"),
        (json!({ "format": 5 }), "format"),
        (json!({ "keep_alive": "soon" }), "keep_alive"),
        (json!({ "keep_alive": [] }), "keep_alive"),
        (json!({ "top_logprobs": 21 }), "top_logprobs"),
        (json!({ "tools": {} }), "tools"),
        (json!({ "tools": [{ "type": "function" }] }), "tools[0].function"),
        (json!({ "options": [] }), "options"),
        (json!({ "options": { "temperature": "hot" } }), "options.temperature"),
        (json!({ "options": { "temperature": -0.1 } }), "options.temperature"),
        (json!({ "options": { "temperature": 1e300 } }), "options.temperature"),
        (json!({ "options": { "top_p": 1.1 } }), "options.top_p"),
        (json!({ "options": { "top_k": 5_000_000_000_u64 } }), "options.top_k"),
        (json!({ "options": { "num_predict": -3 } }), "options.num_predict"),
        (json!({ "options": { "num_ctx": -1 } }), "options.num_ctx"),
        (json!({ "options": { "num_ctx": u64::MAX } }), "options.num_ctx"),
        (json!({ "options": { "seed": 0.5 } }), "options.seed"),
        (json!({ "options": { "stop": [5] } }), "options.stop[0]"),
        (json!({ "options": { "mirostat": 2, "tfs_z": 1 } }), "options.mirostat"),
    ];
    for (extra, field) in ollama {
        let mut body = ask(false);
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let reply = bench.post("/api/chat", body).await;
        assert_eq!(reply.status, 400, "{extra}");
        let (message, _) = envelope("/api/chat", &reply);
        assert!(message.contains(field), "{extra}: {message}");
    }
    let openai: &[(Value, &str)] = &[
        (json!({ "messages": [] }), "messages"),
        (json!({ "messages": [{ "role": "user" }] }), "messages[0].content"),
        (json!({ "temperature": 3 }), "temperature"),
        (json!({ "max_tokens": 0 }), "max_tokens"),
        (json!({ "max_tokens": -5 }), "max_tokens"),
        (json!({ "max_completion_tokens": 1e20 }), "max_completion_tokens"),
        (json!({ "n": 1.5 }), "n"),
        (json!({ "stream": 1 }), "stream"),
        (json!({ "logit_bias": { "5": "x" } }), "logit_bias"),
        (json!({ "response_format": "json" }), "response_format"),
        (json!({ "an_invention": true }), "an_invention"),
    ];
    for (extra, field) in openai {
        let mut body = ask(false);
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let reply = bench.post("/v1/chat/completions", body).await;
        assert_eq!(reply.status, 400, "{extra}");
        envelope("/v1", &reply);
        assert_eq!(reply.json()["error"]["param"], *field, "{extra}");
        assert_eq!(reply.json()["error"]["type"], "invalid_request_error");
    }
    assert!(bench.double.requests.lock().unwrap().is_empty());
    still_serves(&bench).await;
}

#[tokio::test]
async fn messages_never_repeat_what_was_sent() {
    let bench = bench(Double::playing(hello())).await;
    for (path, body) in [
        (
            "/api/chat",
            json!({ "model": "tiny", "messages": [{ "role": "SECRET", "content": "SECRET" }] }),
        ),
        ("/api/chat", json!({ "model": "tiny", "messages": "SECRET" })),
        (
            "/v1/chat/completions",
            json!({ "model": "tiny", "messages": [{ "role": "user", "content": [{ "type": "SECRET" }] }] }),
        ),
        ("/v1/completions", json!({ "model": "tiny", "prompt": { "SECRET": 1 } })),
        ("/v1/responses", json!({ "model": "tiny", "input": [{ "type": "SECRET" }] })),
        (
            "/v1/responses",
            json!({ "model": "tiny", "input": "x", "previous_response_id": "SECRET" }),
        ),
        (
            "/v1/messages",
            json!({ "model": "tiny", "max_tokens": 9, "messages": [{ "role": "SECRET" }] }),
        ),
        (
            "/v1/rerank",
            json!({ "model": "tiny", "query": "SECRET", "documents": [{ "x": "SECRET" }] }),
        ),
        ("/tokenize", json!({ "model": "tiny", "content": ["SECRET"] })),
        ("/detokenize", json!({ "model": "tiny", "tokens": ["SECRET"] })),
    ] {
        let reply = bench.post(path, body).await;
        assert!([400, 404].contains(&reply.status.as_u16()), "{path}");
        assert!(!reply.text().contains("SECRET"), "{}", reply.text());
    }
}

#[tokio::test]
async fn unknown_models_routes_and_methods() {
    let bench = bench(Double::playing(hello())).await;
    for path in [
        "/api/chat",
        "/api/generate",
        "/api/embed",
        "/api/show",
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/embeddings",
        "/v1/responses",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/v1/rerank",
        "/tokenize",
        "/detokenize",
        "/apply-template",
    ] {
        let messages = json!([{ "role": "user", "content": "x" }]);
        let body = match path {
            "/v1/chat/completions" | "/v1/messages/count_tokens" | "/apply-template" => {
                json!({ "model": "absent", "messages": messages })
            }
            "/v1/messages" => json!({ "model": "absent", "messages": messages, "max_tokens": 9 }),
            "/v1/completions" => json!({ "model": "absent", "prompt": "x" }),
            "/v1/embeddings" | "/v1/responses" => json!({ "model": "absent", "input": "x" }),
            "/v1/rerank" => json!({ "model": "absent", "query": "x", "documents": ["x"] }),
            "/tokenize" => json!({ "model": "absent", "content": "x" }),
            "/detokenize" => json!({ "model": "absent", "tokens": [1] }),
            _ => json!({ "model": "absent", "prompt": "x", "input": "x", "messages": messages }),
        };
        let reply = bench.post(path, body).await;
        assert_eq!(reply.status, 404, "{path}");
        let (message, code) = envelope(path, &reply);
        assert_eq!(message, "model 'absent' not found");
        assert!(["model_not_found", "not-found", "not_found"].contains(&code.as_str()), "{code}");
    }
    for path in ["/api/nothing", "/v1/nothing", "/nothing", "/v1", "/api"] {
        let reply = bench.get(path).await;
        assert_eq!(reply.status, 404, "{path}");
        envelope(path, &reply);
    }
    for (method, path, allow) in [
        (Method::GET, "/api/chat", "POST"),
        (Method::POST, "/api/tags", "GET,HEAD"),
        (Method::POST, "/api/delete", "DELETE"),
        (Method::GET, "/v1/chat/completions", "POST"),
        (Method::GET, "/v1/messages", "POST"),
        (Method::POST, "/v1/responses/resp_x", "GET,HEAD,DELETE"),
        (Method::GET, "/tokenize", "POST"),
        (Method::DELETE, "/v1/models", "GET,HEAD"),
    ] {
        let reply = bench.raw(method, path, "").await;
        assert_eq!(reply.status, 405, "{path}");
        envelope(path, &reply);
        assert_eq!(reply.header("allow"), allow, "{path}");
    }
}

/// What the back-end says, the status, and OpenAI's code for it.
fn refusals() -> Vec<(Error, u16, &'static str)> {
    let fault = Error::new(Code::PluginFault, "the component trapped: unreachable")
        .with("fault", "trap")
        .with("digest", support::DIGEST);
    let overflow = Error::new(Code::ContextOverflow, "the prompt has 9 tokens, 8 fit")
        .with("limit", 8)
        .with("additional", 9);
    vec![
        (Error::unsupported("no tools here"), 400, "unsupported"),
        (Error::invalid("bad template"), 400, "invalid_request"),
        (overflow, 400, "context_length_exceeded"),
        (Error::new(Code::Busy, "full").retry_after(1500), 503, "busy"),
        (Error::new(Code::UpstreamUnavailable, "no route"), 503, "upstream_unavailable"),
        (Error::new(Code::UpstreamError, "nonsense"), 502, "upstream_error"),
        (Error::new(Code::UpstreamTimeout, "silence"), 504, "upstream_timeout"),
        (Error::new(Code::InsufficientMemory, "too big"), 503, "insufficient_memory"),
        (Error::new(Code::Blocked, "quarantined"), 403, "blocked"),
        (fault, 502, "plugin_fault"),
        (Error::new(Code::Other("new-word".into()), "new"), 500, "new_word"),
    ]
}

#[tokio::test]
async fn a_failure_before_the_first_byte_has_its_status() {
    for (error, status, code) in refusals() {
        for at_start in [true, false] {
            let play = if at_start {
                Play::Refuse(error.clone())
            } else {
                Play::Beats(vec![Beat::Fail(error.clone())])
            };
            let bench = bench(Double::playing(play)).await;
            for stream in [true, false] {
                for path in CHATS {
                    let reply = bench.post(path, ask_at(path, stream)).await;
                    assert_eq!(reply.status.as_u16(), status, "{path} {}", error.code);
                    let (message, word) = envelope(path, &reply);
                    assert_eq!(message, error.message);
                    if path.starts_with("/v1") && path != "/v1/messages" {
                        assert_eq!(word, code);
                    }
                    if error.retry_after_ms.is_some() {
                        assert_eq!(reply.header("retry-after"), "2");
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn a_failure_in_mid_stream_is_said_in_the_stream_and_nothing_looks_finished() {
    let fault = Error::new(Code::PluginFault, "the component trapped").with("fault", "trap");
    let play = Play::Beats(vec![Beat::Events(vec![text("Hel")]), Beat::Fail(fault)]);
    let bench = bench(Double::playing(play)).await;

    let lines = bench.post("/api/chat", ask(true)).await.lines();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["message"]["content"], "Hel");
    assert_eq!(lines[1], json!({ "error": "the component trapped" }));

    let reply = bench.post("/v1/chat/completions", ask(true)).await;
    assert_eq!(reply.status, 200);
    let frames = reply.frames();
    let last: Value = serde_json::from_str(frames.last().unwrap()).unwrap();
    assert_eq!(last["error"]["code"], "plugin_fault");
    assert_eq!(last["error"]["details"]["fault"], "trap");
    assert!(!reply.text().contains("[DONE]"));
    assert!(!reply.text().contains("\"finish_reason\":\"stop\""));

    for path in CHATS {
        assert_eq!(bench.post(path, ask_at(path, false)).await.status, 502, "{path}");
    }
    bench.double.left(0).await;
}

#[tokio::test]
async fn an_answer_without_an_end_or_with_a_cancelled_one_is_a_failure() {
    for (beats, status) in [
        (vec![Beat::Events(vec![text("Hel")])], 502),
        (
            vec![Beat::Events(vec![text("Hel")]), Beat::Events(vec![support::finish("cancelled")])],
            499,
        ),
    ] {
        let bench = bench(Double::playing(Play::Beats(beats))).await;
        let lines = bench.post("/api/chat", ask(true)).await.lines();
        assert!(lines[1]["error"].is_string(), "{lines:?}");
        for (path, end) in [
            ("/v1/chat/completions", "[DONE]"),
            ("/v1/responses", "response.completed"),
            ("/v1/messages", "message_stop"),
        ] {
            let reply = bench.post(path, ask_at(path, true)).await;
            assert!(!reply.text().contains(end) && reply.text().contains("\"error\""), "{path}");
        }
        assert_eq!(bench.post("/api/chat", ask(false)).await.status.as_u16(), status);
    }
}

#[tokio::test]
async fn a_defect_of_the_host_ends_its_request_and_is_counted() {
    for (play, before_head) in [
        (Play::PanicAtStart, true),
        (Play::Beats(vec![Beat::Panic]), true),
        (Play::Beats(vec![Beat::Events(vec![text("a")]), Beat::Panic]), false),
    ] {
        let bench = bench(Double::playing(play)).await;
        let mut bugs = 0;
        for path in CHATS {
            for stream in [true, false] {
                let reply = bench.post(path, ask_at(path, stream)).await;
                bugs += 1;
                assert_eq!(bench.state.metrics.bugs(), bugs);
                if before_head || !stream {
                    assert_eq!(reply.status, 500);
                    envelope(path, &reply);
                } else {
                    assert_eq!(reply.status, 200);
                    assert!(reply.text().contains("error") && !reply.text().contains("[DONE]"));
                }
            }
        }
        bench.double.left(0).await;
        assert_eq!(bench.get("/healthz").await.status, 200);
    }
}

#[tokio::test]
async fn what_is_declared_impossible_is_refused_with_its_reason() {
    let picture = json!([{ "role": "user", "content": [{ "type": "image_url",
        "image_url": { "url": "data:image/png;base64,iVBORw0KGgo=" } }] }]);
    let sound = json!([{ "role": "user", "content": [{ "type": "input_audio",
        "input_audio": { "format": "wav", "data": "AAAA" } }] }]);
    let tool = json!([{ "type": "function", "function": { "name": "f" } }]);
    for (capability, extra, field) in [
        (
            "structured_output",
            json!({ "response_format": { "type": "json_object" } }),
            "response_format",
        ),
        ("logprobs", json!({ "logprobs": true }), "logprobs"),
        ("reasoning.control", json!({ "reasoning_effort": "high" }), "reasoning_effort"),
        ("multimodal.vision", json!({ "messages": picture }), "image_url"),
        ("multimodal.audio", json!({ "messages": sound }), "input_audio"),
        // The model itself says that it can: its word counts, not the back-end's.
        ("tools.calling", json!({ "tools": tool }), ""),
    ] {
        for support in [
            Support::Unsupported(Reason { code: "x".into(), detail: "the reason".into() }),
            Support::Unknown,
            Support::Supported,
            Support::Conditional("true".into()),
        ] {
            let refused =
                matches!(support, Support::Unsupported(_) | Support::Unknown) && !field.is_empty();
            let reasoned = matches!(support, Support::Unsupported(_));
            let double = Double::playing(hello());
            double.claims.lock().unwrap().push(Claim {
                name: capability.into(),
                support,
                value: None,
            });
            let bench = bench(double).await;
            let mut body = ask(false);
            body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            let reply = bench.post("/v1/chat/completions", body).await;
            assert_eq!(reply.status.as_u16(), if refused { 400 } else { 200 }, "{capability}");
            if refused {
                assert_eq!(reply.json()["error"]["param"], field);
                assert_eq!(reply.text().contains("the reason"), reasoned);
            }
            // What does not need it is served all the same.
            assert_eq!(bench.post("/v1/chat/completions", ask(false)).await.status, 200);
        }
    }
}

#[tokio::test]
async fn a_full_queue_is_said_before_the_head_and_in_the_dialect() {
    let busy = Error::new(Code::Busy, "server busy").retry_after(2000);
    let bench = bench(Double::playing(Play::Refuse(busy))).await;
    for path in CHATS {
        let reply = bench.post(path, ask_at(path, true)).await;
        assert_eq!((reply.status.as_u16(), reply.header("retry-after")), (503, "2"), "{path}");
        assert!(reply.header("content-type").starts_with("application/json"));
    }
}

#[tokio::test]
async fn an_input_that_is_too_long_is_the_clients_mistake() {
    let overflow = Error::new(Code::ContextOverflow, "600 tokens, 512 fit");
    let double = Double::playing(Play::Refuse(overflow.clone()));
    *double.no_vectors.lock().unwrap() = Some(overflow.clone());
    *double.ranks.lock().unwrap() = Err(overflow);
    let bench = bench(double).await;
    let embed = json!({ "model": "tiny", "input": "x", "truncate": false });
    let mut requests: Vec<_> = CHATS.map(|path| (path, ask_at(path, false))).into();
    requests.extend([
        ("/v1/embeddings", json!({ "model": "tiny", "input": "x" })),
        ("/api/embed", embed),
        ("/v1/rerank", json!({ "model": "tiny", "query": "x", "documents": ["x"] })),
    ]);
    for (path, body) in requests {
        let reply = bench.post(path, body).await;
        assert_eq!(reply.status, 400, "{path}: {}", reply.text());
        assert_eq!(reply.header("x-gristmill-error"), "context-overflow", "{path}");
    }
    assert!(!bench.double.embeds.lock().unwrap().last().unwrap().truncate);
}
