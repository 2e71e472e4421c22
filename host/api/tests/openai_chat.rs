//! OpenAI's `/v1/chat/completions` and `/v1/completions`: the transcript of an answer, streamed and
//! whole.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests may fail loudly")]

mod support;

use gristmill_core::{
    event::{Alternative, Event, TokenInfo, ToolStart},
    request::Prompt,
};
use serde_json::{Value, json};
use support::{Beat, Double, Play, Reply, ask, bench, finish, hello, play, text, timings, usage};

/// Checks that all chunks share id, time, model and fingerprint, and takes those away.
fn settle(reply: &Reply, object: &str) -> Vec<Value> {
    let mut chunks = reply.chunks();
    let first = chunks[0].clone();
    for chunk in &mut chunks {
        let map = chunk.as_object_mut().unwrap();
        for name in ["id", "created", "model", "system_fingerprint", "object"] {
            assert_eq!(map.remove(name).as_ref(), first.get(name), "{name}");
        }
    }
    assert_eq!(first["object"], object);
    assert_eq!(first["model"], "tiny");
    assert_eq!(first["system_fingerprint"], "fp_0011223344");
    chunks
}

fn delta(delta: Value, reason: Value) -> Value {
    json!({ "choices": [{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": reason }] })
}

fn usage_value() -> Value {
    json!({
        "prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7,
        "prompt_tokens_details": { "cached_tokens": 1 },
        "completion_tokens_details": { "reasoning_tokens": 0 },
    })
}

#[tokio::test]
async fn a_streamed_chat_reads_like_this() {
    let reply = bench(Double::playing(hello())).await.post("/v1/chat/completions", ask(true)).await;
    assert_eq!(reply.header("content-type"), "text/event-stream");
    assert_eq!(
        settle(&reply, "chat.completion.chunk"),
        [
            delta(json!({ "role": "assistant", "content": "", "refusal": null }), Value::Null),
            delta(json!({ "content": "Hel" }), Value::Null),
            delta(json!({ "content": "lo" }), Value::Null),
            delta(json!({}), json!("stop")),
        ]
    );
    let raw = reply.text();
    assert!(raw.ends_with("\n\ndata: [DONE]\n\n"));
    assert!(raw.starts_with("data: {\"id\":\"chatcmpl-"));
}

#[tokio::test]
async fn usage_when_asked_for_is_null_until_the_last_chunk() {
    let mut body = ask(true);
    body["stream_options"] = json!({ "include_usage": true });
    let reply = bench(Double::playing(hello())).await.post("/v1/chat/completions", body).await;
    let chunks = settle(&reply, "chat.completion.chunk");
    let (last, earlier) = chunks.split_last().unwrap();
    assert_eq!(earlier.len(), 4);
    assert!(earlier.iter().all(|chunk| chunk.get("usage") == Some(&Value::Null)));
    assert_eq!(*last, json!({ "choices": [], "usage": usage_value() }));
}

#[tokio::test]
async fn a_whole_chat_reads_like_this() {
    let reply =
        bench(Double::playing(hello())).await.post("/v1/chat/completions", ask(false)).await;
    let mut value = reply.json();
    let map = value.as_object_mut().unwrap();
    assert!(map.remove("id").unwrap().as_str().unwrap().starts_with("chatcmpl-"));
    assert!(map.remove("created").unwrap().as_u64().unwrap() > 1_700_000_000);
    assert_eq!(
        value,
        json!({
            "object": "chat.completion", "model": "tiny", "system_fingerprint": "fp_0011223344",
            "choices": [{ "index": 0, "message": { "role": "assistant", "content": "Hello", "refusal": null },
                "logprobs": null, "finish_reason": "stop" }],
            "usage": usage_value(),
        })
    );
}

#[tokio::test]
async fn reasoning_goes_out_under_both_names() {
    let events = vec![Event::Reasoning("hm".into()), text("42"), finish("stop")];
    let bench = bench(Double::playing(play(events))).await;
    let reply = bench.post("/v1/chat/completions", ask(true)).await;
    let chunks = settle(&reply, "chat.completion.chunk");
    assert_eq!(
        chunks[1],
        delta(json!({ "reasoning": "hm", "reasoning_content": "hm" }), Value::Null)
    );
    let message =
        &bench.post("/v1/chat/completions", ask(false)).await.json()["choices"][0]["message"];
    assert_eq!(
        (&message["reasoning"], &message["reasoning_content"]),
        (&json!("hm"), &json!("hm"))
    );
    assert_eq!(message["content"], "42");
}

#[tokio::test]
async fn tool_calls_come_in_fragments_that_add_up_to_the_whole() {
    let start = |index, id: &str, name: &str| {
        Event::ToolStart(ToolStart { index, id: id.into(), name: name.into() })
    };
    let events = vec![
        start(0, "call_a", "f"),
        Event::ToolArguments(0, "{\"x\":".into()),
        Event::ToolArguments(0, " 1}".into()),
        Event::ToolEnd(0),
        start(1, "", "g"),
        Event::ToolEnd(1),
        usage(5, 2),
        // A back-end that says stop although it called.
        finish("stop"),
    ];
    let bench = bench(Double::playing(play(events))).await;
    let reply = bench.post("/v1/chat/completions", ask(true)).await;
    let chunks = settle(&reply, "chat.completion.chunk");
    let calls: Vec<_> = chunks[1..chunks.len() - 1]
        .iter()
        .map(|c| c["choices"][0]["delta"]["tool_calls"][0].clone())
        .collect();
    assert_eq!(
        calls[0],
        json!({ "index": 0, "id": "call_a", "type": "function", "function": { "name": "f", "arguments": "" } })
    );
    assert_eq!(calls[1], json!({ "index": 0, "function": { "arguments": "{\"x\":" } }));
    assert_eq!(calls[2], json!({ "index": 0, "function": { "arguments": " 1}" } }));
    assert!(calls[3]["id"].as_str().unwrap().starts_with("call_"), "an id is made where none is");
    assert_eq!(calls[4], json!({ "index": 1, "function": { "arguments": "{}" } }));
    assert_eq!(calls.len(), 5);
    assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");

    let choice = bench.post("/v1/chat/completions", ask(false)).await.json()["choices"][0].clone();
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(choice["message"]["content"], Value::Null);
    let whole = &choice["message"]["tool_calls"];
    assert_eq!(whole[0]["function"], json!({ "name": "f", "arguments": "{\"x\": 1}" }));
    assert_eq!(whole[1]["function"], json!({ "name": "g", "arguments": "{}" }));
}

#[tokio::test]
async fn a_cut_call_ends_with_length_in_both_modes() {
    let events = vec![
        Event::ToolStart(ToolStart { index: 0, id: "c".into(), name: "f".into() }),
        Event::ToolArguments(0, "{\"x".into()),
        finish("length"),
    ];
    let bench = bench(Double::playing(play(events))).await;
    let reply = bench.post("/v1/chat/completions", ask(true)).await;
    let chunks = settle(&reply, "chat.completion.chunk");
    assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "length");
    let choice = bench.post("/v1/chat/completions", ask(false)).await.json()["choices"][0].clone();
    assert_eq!(choice["finish_reason"], "length");
    assert_eq!(choice["message"]["tool_calls"][0]["function"]["arguments"], "{\"x");
}

#[tokio::test]
async fn several_choices_are_computed_one_after_the_other() {
    let double = Double::new(|request| {
        let seed = request.sampling.seed.unwrap_or(0);
        play(vec![text(&format!("seed {seed}")), usage(5, 2), finish("stop")])
    });
    let bench = bench(double).await;
    let mut body = ask(false);
    body["n"] = json!(3);
    body["seed"] = json!(10);
    let value = bench.post("/v1/chat/completions", body.clone()).await.json();
    let texts: Vec<_> =
        value["choices"].as_array().unwrap().iter().map(|c| &c["message"]["content"]).collect();
    assert_eq!(texts, ["seed 10", "seed 11", "seed 12"]);
    // One prompt, read once; three answers.
    assert_eq!(
        (&value["usage"]["prompt_tokens"], &value["usage"]["completion_tokens"]),
        (&json!(5), &json!(6))
    );

    body["stream"] = json!(true);
    let reply = bench.post("/v1/chat/completions", body).await;
    let chunks = settle(&reply, "chat.completion.chunk");
    let order: Vec<_> = chunks.iter().map(|c| c["choices"][0]["index"].as_u64().unwrap()).collect();
    assert_eq!(order, [0, 0, 0, 1, 1, 1, 2, 2, 2]);
    assert_eq!(chunks[3]["choices"][0]["delta"]["role"], "assistant");
}

#[tokio::test]
async fn completions_take_prompts_of_every_form_and_echo_them() {
    let bench = bench(Double::playing(hello())).await;
    let body = json!({ "model": "tiny", "prompt": ["a", "b"], "echo": true });
    let value = bench.post("/v1/completions", body).await.json();
    assert_eq!(value["object"], "text_completion");
    let texts: Vec<_> = value["choices"].as_array().unwrap().iter().map(|c| &c["text"]).collect();
    assert_eq!(texts, ["aHello", "bHello"]);
    assert_eq!(value["usage"]["prompt_tokens"], 10);

    let body = json!({ "model": "tiny", "prompt": [104, 105], "echo": true, "stream": true });
    let reply = bench.post("/v1/completions", body).await;
    assert_eq!(bench.double.last().prompt, Prompt::Tokens(vec![104, 105]));
    let texts: Vec<_> = settle(&reply, "text_completion")
        .iter()
        .map(|chunk| chunk["choices"][0]["text"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(texts, ["hi", "Hel", "lo", ""]);

    let body = json!({ "model": "tiny", "prompt": "a", "suffix": "z" });
    bench.post("/v1/completions", body).await;
    assert_eq!(bench.double.last().prompt, Prompt::Infill("a".into(), "z".into()));
}

#[tokio::test]
async fn log_probabilities_have_all_their_fields() {
    let token = |bytes: &[u8]| TokenInfo {
        id: 1,
        bytes: bytes.to_vec(),
        logprob: -0.25,
        alternatives: vec![Alternative { id: 2, bytes: b"x".to_vec(), logprob: -2.0 }],
    };
    let events = vec![
        text("é"),
        Event::Tokens(vec![token(&[0xc3]), token(&[0xa9])]),
        timings(),
        finish("stop"),
    ];
    let bench = bench(Double::playing(Play::Beats(vec![Beat::Events(events)]))).await;
    let mut body = ask(false);
    body["logprobs"] = json!(true);
    body["top_logprobs"] = json!(1);
    let entry = json!({ "token": "\u{fffd}", "logprob": -0.25, "bytes": [0xc3],
        "top_logprobs": [{ "token": "x", "logprob": -2.0, "bytes": [120] }] });
    let choice =
        bench.post("/v1/chat/completions", body.clone()).await.json()["choices"][0].clone();
    assert_eq!(choice["logprobs"]["content"][0], entry);
    assert_eq!(choice["logprobs"]["refusal"], Value::Null);
    body["stream"] = json!(true);
    let chunks = settle(&bench.post("/v1/chat/completions", body).await, "chat.completion.chunk");
    assert_eq!(chunks[1]["choices"][0]["delta"]["content"], "é");
    assert_eq!(chunks[1]["choices"][0]["logprobs"]["content"].as_array().unwrap().len(), 2);

    let body = json!({ "model": "tiny", "prompt": "p", "logprobs": 1 });
    let logprobs = &bench.post("/v1/completions", body).await.json()["choices"][0]["logprobs"];
    assert_eq!(logprobs["text_offset"], json!([0, 1]));
    assert_eq!(logprobs["token_logprobs"], json!([-0.25, -0.25]));
    assert_eq!(logprobs["top_logprobs"][0], json!({ "x": -2.0 }));
}

#[tokio::test]
async fn no_count_is_made_up() {
    let bench = bench(Double::playing(play(vec![text("a"), finish("stop")]))).await;
    assert_eq!(bench.post("/v1/chat/completions", ask(false)).await.json()["usage"], Value::Null);
}

#[tokio::test]
async fn fields_without_effect_are_named_in_a_header() {
    let bench = bench(Double::playing(hello())).await;
    let mut body = ask(false);
    body["user"] = json!("u");
    body["service_tier"] = json!("auto");
    let reply = bench.post("/v1/chat/completions", body).await;
    assert_eq!(reply.header("x-gristmill-unused"), "user, service_tier");
}
