//! Anthropic's `/v1/messages`: the transcript of an answer, streamed and whole, and the count of what
//! is read.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests may fail loudly"
)]

mod support;

use axum::{body::Body, http::Request};
use gristmill_api::ApiConfig;
use gristmill_core::{
    Code, Error,
    event::{Event, Finish},
    request::{Prompt, ToolChoice},
};
use gristmill_router::{Limits, Source};
use serde_json::{Value, json};
use support::{
    Beat, Bench, Double, Play, Reply, arguments, ask_at, bench, bench_with, events, finish, hello,
    kinds, play, start, text, usage,
};

const PATH: &str = "/v1/messages";
const COUNT: &str = "/v1/messages/count_tokens";

fn ask(stream: bool) -> Value {
    ask_at(PATH, stream)
}

/// The answer's own id becomes `msg_`.
fn same_id(value: Value) -> Value {
    match value {
        Value::String(text) if text.starts_with("msg_") => json!("msg_"),
        Value::Array(items) => items.into_iter().map(same_id).collect(),
        Value::Object(map) => map.into_iter().map(|(key, item)| (key, same_id(item))).collect(),
        other => other,
    }
}

async fn whole(bench: &Bench, body: Value) -> Value {
    let reply = bench.post(PATH, body).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    same_id(reply.json())
}

fn stream(reply: &Reply) -> Vec<Value> {
    assert_eq!(reply.header("content-type"), "text/event-stream");
    events(reply.text()).into_iter().map(same_id).collect()
}

/// What a client puts together from a stream, as the official ones do.
fn assemble(events: &[Value]) -> Value {
    let mut message = Value::Null;
    let mut texts: Vec<String> = Vec::new();
    for event in events {
        let place = event["index"].as_u64().unwrap_or(0) as usize;
        let delta = &event["delta"];
        match event["type"].as_str().unwrap() {
            "message_start" => message = event["message"].clone(),
            "content_block_start" => {
                let content = message["content"].as_array_mut().unwrap();
                assert_eq!(content.len(), place);
                content.push(event["content_block"].clone());
                texts.push(String::new());
            }
            "content_block_delta" => match delta["type"].as_str().unwrap() {
                "text_delta" => texts[place].push_str(delta["text"].as_str().unwrap()),
                "thinking_delta" => texts[place].push_str(delta["thinking"].as_str().unwrap()),
                "input_json_delta" => {
                    texts[place].push_str(delta["partial_json"].as_str().unwrap())
                }
                "signature_delta" => {
                    message["content"][place]["signature"] = delta["signature"].clone();
                }
                other => panic!("{other}"),
            },
            "content_block_stop" => {
                let text = &texts[place];
                let block = &mut message["content"][place];
                match block["type"].as_str().unwrap() {
                    "text" => block["text"] = json!(text),
                    "thinking" => block["thinking"] = json!(text),
                    "tool_use" => {
                        block["input"] = serde_json::from_str(text)
                            .unwrap_or_else(|_| json!({ "INVALID_JSON": text }));
                    }
                    other => panic!("{other}"),
                }
            }
            "message_delta" => {
                for field in ["stop_reason", "stop_sequence"] {
                    message[field] = delta[field].clone();
                }
                message["usage"] = event["usage"].clone();
            }
            "message_stop" | "ping" => {}
            other => panic!("{other}"),
        }
    }
    message
}

fn everything() -> Vec<Event> {
    vec![
        Event::Reasoning("hm".into()),
        text("Hel"),
        text("lo"),
        start(0, "call_a", "f"),
        arguments(0, "{\"z\":"),
        start(1, "call_b", "g"),
        arguments(0, " 1.50, \"a\": \"ü\"}"),
        Event::ToolEnd(1),
        Event::ToolEnd(0),
        usage(5, 9),
        finish("tool-calls"),
    ]
}

#[tokio::test]
async fn a_streamed_message_reads_like_this() {
    let list = vec![
        Event::Reasoning("hm".into()),
        text("Hel"),
        text("lo"),
        start(0, "call_a", "f"),
        arguments(0, "{\"x\":"),
        arguments(0, " 1}"),
        Event::ToolEnd(0),
        usage(5, 2),
        finish("tool-calls"),
    ];
    let reply = bench(Double::playing(play(list))).await.post(PATH, ask(true)).await;
    let delta = |index: u64, delta: Value| json!({ "type": "content_block_delta", "index": index, "delta": delta });
    let begin = |index: u64, block: Value| json!({ "type": "content_block_start", "index": index, "content_block": block });
    let stop = |index: u64| json!({ "type": "content_block_stop", "index": index });
    assert_eq!(
        stream(&reply),
        [
            json!({ "type": "message_start", "message": { "id": "msg_", "type": "message",
                "role": "assistant", "model": "tiny", "content": [], "stop_reason": null,
                "stop_sequence": null, "usage": { "input_tokens": 0, "output_tokens": 0 } } }),
            json!({ "type": "ping" }),
            begin(0, json!({ "type": "thinking", "thinking": "", "signature": "" })),
            delta(0, json!({ "type": "thinking_delta", "thinking": "hm" })),
            delta(0, json!({ "type": "signature_delta", "signature": "msg_" })),
            stop(0),
            begin(1, json!({ "type": "text", "text": "" })),
            delta(1, json!({ "type": "text_delta", "text": "Hel" })),
            delta(1, json!({ "type": "text_delta", "text": "lo" })),
            stop(1),
            begin(2, json!({ "type": "tool_use", "id": "call_a", "name": "f", "input": {} })),
            delta(2, json!({ "type": "input_json_delta", "partial_json": "{\"x\":" })),
            delta(2, json!({ "type": "input_json_delta", "partial_json": " 1}" })),
            stop(2),
            json!({ "type": "message_delta",
                "delta": { "stop_reason": "tool_use", "stop_sequence": null },
                "usage": { "input_tokens": 4, "cache_creation_input_tokens": 0,
                    "cache_read_input_tokens": 1, "output_tokens": 2 } }),
            json!({ "type": "message_stop" }),
        ]
    );
}

#[tokio::test]
async fn a_whole_message_has_every_field_the_clients_expect() {
    let bench = bench(Double::playing(hello())).await;
    assert_eq!(
        whole(&bench, ask(false)).await,
        json!({
            "id": "msg_", "type": "message", "role": "assistant", "model": "tiny",
            "content": [{ "type": "text", "text": "Hello" }],
            "stop_reason": "end_turn", "stop_sequence": null,
            "usage": { "input_tokens": 4, "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 1, "output_tokens": 2 },
        })
    );
}

#[tokio::test]
async fn a_stream_adds_up_to_the_whole() {
    let cut = vec![text("a"), start(0, "c", "f"), arguments(0, "{\"x"), finish("length")];
    let empty = vec![start(0, "c", "f"), Event::ToolEnd(0), finish("stop")];
    let nothing = vec![finish("stop")];
    for list in [everything(), cut, empty, nothing] {
        for play in [play(list.clone()), Play::Beats(vec![Beat::Events(list.clone())])] {
            let bench = bench(Double::playing(play)).await;
            let events = stream(&bench.post(PATH, ask(true)).await);
            assert_eq!(assemble(&events), whole(&bench, ask(false)).await);
            assert_eq!(kinds(&events)[..2], ["message_start", "ping"]);
            assert_eq!(*kinds(&events).last().unwrap(), "message_stop");
        }
    }
}

#[tokio::test]
async fn why_it_ended_is_said_in_the_dialects_words() {
    let call = || vec![start(0, "c", "f"), Event::ToolEnd(0)];
    let stopped =
        |stop: &str| Event::Finish(Finish { reason: "stop".into(), stop: Some(stop.into()) });
    for (list, reason, sequence) in [
        (vec![text("a"), finish("stop")], "end_turn", Value::Null),
        (vec![text("a"), stopped("END")], "stop_sequence", json!("END")),
        // The family's own mark for the end of a turn is nobody's stop sequence.
        (vec![text("a"), stopped("<|im_end|>")], "end_turn", Value::Null),
        (vec![text("a"), finish("length")], "max_tokens", Value::Null),
        (vec![text("a"), finish("content-filter")], "refusal", Value::Null),
        ([call(), vec![finish("tool-calls")]].concat(), "tool_use", Value::Null),
        // A back-end that says stop although it called.
        ([call(), vec![finish("stop")]].concat(), "tool_use", Value::Null),
        ([call(), vec![finish("length")]].concat(), "max_tokens", Value::Null),
    ] {
        let bench = bench(Double::playing(play(list))).await;
        let mut body = ask(false);
        body["stop_sequences"] = json!(["END"]);
        let message = whole(&bench, body.clone()).await;
        assert_eq!(
            (&message["stop_reason"], &message["stop_sequence"]),
            (&json!(reason), &sequence)
        );
        body["stream"] = json!(true);
        let events = stream(&bench.post(PATH, body).await);
        assert_eq!(assemble(&events)["stop_reason"], reason);
        // No count is made up.
        assert_eq!(message["usage"]["output_tokens"], Value::Null);
    }
}

#[tokio::test]
async fn calls_results_and_thoughts_round_trip() {
    let bench = bench(Double::playing(play(everything()))).await;
    let content = bench.post(PATH, ask(false)).await.json()["content"].clone();
    let signature = content[0]["signature"].as_str().unwrap();
    assert!(signature.starts_with("msg_"));
    assert_eq!(content[2]["input"].to_string(), r#"{"z":1.5,"a":"ü"}"#);
    let mut body = ask(false);
    body["messages"] = json!([
        { "role": "user", "content": "hi" },
        { "role": "assistant", "content": content },
        { "role": "user", "content": [
            { "type": "tool_result", "tool_use_id": "call_b", "content": "8" },
            { "type": "tool_result", "tool_use_id": "call_a", "content": [{ "type": "text", "text": "7" }] }] },
    ]);
    whole(&bench, body).await;
    let Prompt::Chat(messages) = bench.double.last().prompt else { panic!() };
    assert_eq!(messages.len(), 4);
    assert_eq!(messages[1].reasoning.as_deref(), Some("hm"));
    // Keys in the model's order.
    assert_eq!(messages[1].tool_calls[0].arguments, r#"{"z":1.5,"a":"ü"}"#);
    assert_eq!(messages[1].tool_calls[1].id, "call_b");
    assert_eq!(messages[2].tool_call_id.as_deref(), Some("call_b"));
}

#[tokio::test]
async fn arguments_that_are_no_object_are_not_lost() {
    for broken in ["{\"x", "[{\"input\":\"x\"}]", "{\"input\":\"x\"}]", "nonsense"] {
        let list =
            vec![start(0, "c", "f"), arguments(0, broken), Event::ToolEnd(0), finish("stop")];
        let bench = bench(Double::playing(play(list))).await;
        let content = whole(&bench, ask(false)).await["content"].clone();
        assert_eq!(content[0]["input"], json!({ "INVALID_JSON": broken }));
        let mut body = ask(false);
        body["messages"] = json!([{ "role": "assistant", "content": content },
            { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "c" }] }]);
        whole(&bench, body).await;
        let Prompt::Chat(messages) = bench.double.last().prompt else { panic!() };
        assert_eq!(messages[0].tool_calls[0].arguments, broken);
    }
}

#[tokio::test]
async fn tool_choices_arrive_in_the_domains_words() {
    let bench = bench(Double::playing(hello())).await;
    for (choice, expected, parallel) in [
        (json!({ "type": "auto" }), ToolChoice::Auto, None),
        (
            json!({ "type": "any", "disable_parallel_tool_use": true }),
            ToolChoice::Required,
            Some(false),
        ),
        (json!({ "type": "tool", "name": "f" }), ToolChoice::Named("f".into()), None),
        (
            json!({ "type": "none", "disable_parallel_tool_use": false }),
            ToolChoice::None,
            Some(true),
        ),
    ] {
        let mut body = ask(false);
        body["tools"] = json!([{ "name": "f", "input_schema": { "type": "object" } }]);
        body["tool_choice"] = choice;
        whole(&bench, body).await;
        let request = bench.double.last();
        assert_eq!((request.tool_choice, request.parallel_tool_calls), (expected, parallel));
    }
}

/// The envelope's type and message.
fn envelope(reply: &Reply) -> (String, String) {
    let value = reply.json();
    assert_eq!(value["type"], "error");
    assert_eq!(value["request_id"], reply.header("x-request-id"));
    assert_eq!(reply.header("request-id"), reply.header("x-request-id"));
    let text = |field: &str| value["error"][field].as_str().unwrap().to_owned();
    (text("type"), text("message"))
}

#[tokio::test]
async fn failures_have_their_type_and_status() {
    for (error, status, kind) in [
        (Error::unsupported("no tools here"), 400, "invalid_request_error"),
        (Error::new(Code::ContextOverflow, "too long"), 400, "invalid_request_error"),
        (Error::new(Code::Blocked, "quarantined"), 403, "permission_error"),
        (Error::new(Code::Busy, "full").retry_after(1500), 503, "overloaded_error"),
        (Error::new(Code::UpstreamError, "nonsense"), 502, "api_error"),
        (Error::new(Code::UpstreamTimeout, "silence"), 504, "timeout_error"),
        (Error::internal("a defect"), 500, "api_error"),
    ] {
        let bench = bench(Double::playing(Play::Refuse(error.clone()))).await;
        for stream in [true, false] {
            let reply = bench.post(PATH, ask(stream)).await;
            assert_eq!(reply.status.as_u16(), status);
            assert_eq!(envelope(&reply), (kind.to_owned(), error.message.clone()));
            assert_eq!(reply.header("x-gristmill-error"), error.code.as_str());
        }
    }
    let bench = bench(Double::playing(hello())).await;
    let mut body = ask(false);
    body["model"] = json!("absent");
    let reply = bench.post(PATH, body).await;
    assert_eq!((reply.status.as_u16(), envelope(&reply).0.as_str()), (404, "not_found_error"));
    let reply = bench.get(PATH).await;
    assert_eq!(
        (reply.status.as_u16(), envelope(&reply).0.as_str()),
        (405, "invalid_request_error")
    );
    let reply = bench.post("/v1/messages/batches", json!({})).await;
    assert_eq!((reply.status.as_u16(), envelope(&reply).0.as_str()), (404, "not_found_error"));
    let small = ApiConfig { body_limit: 100, ..ApiConfig::default() };
    let bench = bench_with(Double::playing(hello()), small, Limits::default()).await;
    let reply = bench.post(PATH, json!({ "model": "x".repeat(200) })).await;
    assert_eq!((reply.status.as_u16(), envelope(&reply).0.as_str()), (413, "request_too_large"));
}

#[tokio::test]
async fn a_failure_in_the_stream_is_its_last_word() {
    let fault = Error::new(Code::PluginFault, "the component trapped").with("fault", "trap");
    let play = Play::Beats(vec![Beat::Events(vec![text("Hel")]), Beat::Fail(fault)]);
    let reply = bench(Double::playing(play)).await.post(PATH, ask(true)).await;
    assert_eq!(reply.status, 200);
    let events = stream(&reply);
    assert_eq!(
        *events.last().unwrap(),
        json!({ "type": "error", "error": { "type": "api_error", "message": "the component trapped",
            "details": { "fault": "trap" } }, "request_id": reply.header("x-request-id") })
    );
    assert!(!reply.text().contains("message_stop") && !reply.text().contains("message_delta"));
}

#[tokio::test]
async fn a_key_opens_the_door_like_a_bearer_token() {
    let config = support::tokens(&["one"]);
    let bench = bench_with(Double::playing(hello()), config, Limits::default()).await;
    for (header, value, status) in [
        ("x-api-key", "one", 200),
        ("authorization", "Bearer one", 200),
        ("x-api-key", "two", 401),
        ("x-api-key", "Bearer one", 401),
        ("x-other", "one", 401),
    ] {
        // Any version and any beta, known or not.
        let request = Request::post(format!("{PATH}?beta=true"))
            .header(header, value)
            .header("anthropic-version", "2099-01-01")
            .header("anthropic-beta", "anything-2099");
        let reply = bench.send(request.body(Body::from(ask(false).to_string())).unwrap()).await;
        assert_eq!(reply.status.as_u16(), status, "{header}: {value}");
        if status == 401 {
            assert_eq!(envelope(&reply).0, "authentication_error");
            assert!(!reply.text().contains(value));
        }
    }
}

#[tokio::test]
async fn tokens_are_counted_exactly_or_not_at_all() {
    let bench = bench(Double::playing(hello())).await;
    let body = json!({ "model": "TinyModel", "system": "be brief",
        "tools": [{ "name": "f", "input_schema": { "type": "object" } }],
        "messages": [{ "role": "user", "content": "hi" }] });
    let reply = bench.post(COUNT, body.clone()).await;
    assert_eq!(reply.json(), json!({ "input_tokens": "<tiny>[f]system=be brief;user=hi;".len() }));
    assert_eq!(reply.header("x-gristmill-model"), "tiny");
    assert!(bench.double.requests.lock().unwrap().is_empty());

    // A bridge's server keeps its rendering to itself.
    let other = Double::playing(hello());
    bench.state.router.install("bridge", Source::Listed, Limits::default(), other).await.unwrap();
    let mut body = body;
    body["model"] = json!("listed/one");
    let reply = bench.post(COUNT, body).await;
    assert_eq!(reply.status, 400);
    let (kind, message) = envelope(&reply);
    assert_eq!(kind, "invalid_request_error");
    assert!(message.contains("bridge") && message.contains("listed/one"), "{message}");
    assert_eq!(reply.header("x-gristmill-error"), "unsupported");
}

#[tokio::test]
async fn fields_without_effect_are_named_in_a_header() {
    let bench = bench(Double::playing(hello())).await;
    let mut body = ask(false);
    body["metadata"] = json!({ "user_id": "u" });
    body["messages"] = json!([
        { "role": "assistant", "content": [{ "type": "tool_use", "id": "c", "name": "f", "input": {} }] },
        { "role": "user", "content": [
            { "type": "tool_result", "tool_use_id": "c", "is_error": true, "content": "no" },
            { "type": "text", "text": "x", "cache_control": { "type": "ephemeral" } }] }]);
    let reply = bench.post(PATH, body).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.header("x-gristmill-unused"), "metadata, cache_control, is_error");
}
