//! What a request says reaches the back-end, whichever dialect says it: stop strings, reasoning that
//! comes back, calls and their results, schemas byte for byte.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests may fail loudly"
)]

mod support;

use gristmill_core::request::Prompt;
use serde_json::{Value, json};
use support::{CHATS, Double, ask_at, bench, hello};

#[tokio::test]
async fn stop_strings_reach_the_back_end_from_every_route() {
    let bench = bench(Double::playing(hello())).await;
    let stops = json!(["beta gamma", "delta"]);
    for (path, field) in [
        ("/v1/chat/completions", "stop"),
        ("/v1/completions", "stop"),
        ("/v1/responses", "stop"),
        ("/v1/messages", "stop_sequences"),
    ] {
        for stream in [true, false] {
            let mut body = ask_at(path, stream);
            if path == "/v1/completions" {
                body = json!({ "model": "tiny", "prompt": "alpha", "stream": stream });
            }
            body[field] = stops.clone();
            assert_eq!(bench.post(path, body).await.status, 200, "{path}");
            assert_eq!(bench.double.last().stop, ["beta gamma", "delta"], "{path}");
        }
    }
    for path in ["/api/chat", "/api/generate"] {
        let mut body = ask_at("/api/chat", false);
        body["prompt"] = json!("alpha");
        body["options"] = json!({ "stop": stops });
        assert_eq!(bench.post(path, body).await.status, 200, "{path}");
        assert_eq!(bench.double.last().stop, ["beta gamma", "delta"], "{path}");
    }
}

#[tokio::test]
async fn reasoning_comes_back_under_the_name_each_dialect_gave_it() {
    let bench = bench(Double::playing(hello())).await;
    let turns = |name: &str| {
        json!([{ "role": "user", "content": "?" },
            { "role": "assistant", "content": "a", name: "hm" }, { "role": "user", "content": "!" }])
    };
    let mut bodies = Vec::new();
    for path in ["/api/chat", "/v1/chat/completions"] {
        for name in ["reasoning", "reasoning_content", "thinking"] {
            let mut body = ask_at(path, false);
            body["messages"] = turns(name);
            bodies.push((path, body));
        }
    }
    let mut body = ask_at("/v1/messages", false);
    body["messages"] = turns("content");
    body["messages"][1]["content"] = json!([{ "type": "thinking", "thinking": "hm", "signature": "s" },
        { "type": "text", "text": "a" }]);
    bodies.push(("/v1/messages", body));
    let mut body = ask_at("/v1/responses", false);
    body["input"] = json!([{ "role": "user", "content": "?" },
        { "type": "reasoning", "summary": [], "content": [{ "type": "reasoning_text", "text": "hm" }] },
        { "role": "assistant", "content": "a" }, { "role": "user", "content": "!" }]);
    bodies.push(("/v1/responses", body));
    for (path, body) in bodies {
        assert_eq!(bench.post(path, body.clone()).await.status, 200, "{path}: {body}");
        let Prompt::Chat(messages) = bench.double.last().prompt else { panic!() };
        assert_eq!(messages.len(), 3, "{path}: {body}");
        assert_eq!(messages[1].reasoning.as_deref(), Some("hm"), "{path}: {body}");
    }
}

#[tokio::test]
async fn a_tool_result_that_lost_its_id_answers_the_open_call() {
    let bench = bench(Double::playing(hello())).await;
    let mut body = ask_at("/api/chat", false);
    body["messages"] = json!([{ "role": "user", "content": "?" },
        { "role": "assistant", "tool_calls": [{ "id": "c7", "function": { "name": "f", "arguments": {} } }] },
        { "role": "tool", "tool_name": "f", "content": "1" }]);
    assert_eq!(bench.post("/api/chat", body).await.status, 200);
    let Prompt::Chat(messages) = bench.double.last().prompt else { panic!() };
    assert_eq!(messages[2].tool_call_id.as_deref(), Some("c7"));
}

#[tokio::test]
async fn schemas_keep_their_keys_and_foreign_words_in_every_dialect() {
    let schema = r##"{"$schema":"x","$id":"y","type":"object","properties":{"z":{"type":"string","description":"a \"quote\" { } <tool_call> ```"},"a":{},"m":{"$ref":"#/properties/z"}}}"##;
    let value: Value = serde_json::from_str(schema).unwrap();
    let bench = bench(Double::playing(hello())).await;
    for path in CHATS {
        let mut body = ask_at(path, false);
        body["tools"] = match path {
            "/v1/responses" => json!([{ "type": "function", "name": "f", "parameters": value }]),
            "/v1/messages" => json!([{ "name": "f", "input_schema": value }]),
            _ => json!([{ "type": "function", "function": { "name": "f", "parameters": value } }]),
        };
        let reply = bench.post(path, body).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        assert_eq!(bench.double.last().tools[0].parameters, schema, "{path}");
    }
}
