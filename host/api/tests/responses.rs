//! OpenAI's `/v1/responses`: the transcript of an answer, streamed and whole, and the conversation
//! that goes on.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests may fail loudly"
)]

mod support;

use axum::http::Method;
use gristmill_api::{ApiConfig, responses::store::Bounds};
use gristmill_core::{
    Code, Error,
    event::{Event, Usage},
    request::{Message, Prompt, Reasoning, Role},
};
use gristmill_router::Limits;
use serde_json::{Value, json};
use support::{
    Beat, Bench, Double, Play, Reply, arguments, ask_at, bench, bench_with, events, finish, hello,
    kinds, play, start, text, usage,
};

const PATH: &str = "/v1/responses";

fn ask(stream: bool) -> Value {
    ask_at(PATH, stream)
}

/// The events of a stream, numbered from 0 without a gap, with their ids made equal.
fn settle(reply: &Reply) -> Vec<Value> {
    assert_eq!(reply.header("content-type"), "text/event-stream");
    let events = events(reply.text());
    for (place, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], place);
    }
    events.into_iter().map(same_ids).collect()
}

/// Ids of the host's own making become their prefix.
fn same_ids(value: Value) -> Value {
    match value {
        Value::String(text) => {
            let prefix = ["resp_", "msg_", "rs_", "fc_"].into_iter().find(|p| text.starts_with(p));
            json!(prefix.unwrap_or(&text))
        }
        Value::Array(items) => items.into_iter().map(same_ids).collect(),
        Value::Object(map) => map
            .into_iter()
            .filter(|(key, _)| key != "created_at")
            .map(|(key, value)| (key, same_ids(value)))
            .collect(),
        other => other,
    }
}

async fn whole(bench: &Bench, body: Value) -> Value {
    let reply = bench.post(PATH, body).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    same_ids(reply.json())
}

/// Reasoning, text, and two calls side by side.
fn everything(second: &str) -> Vec<Event> {
    vec![
        Event::Reasoning("hm".into()),
        text("Hel"),
        text("lo"),
        start(0, "call_a", "f"),
        arguments(0, "{\"z\":"),
        start(1, second, "g"),
        arguments(0, " 1, \"a\": \"ü\"}"),
        Event::ToolEnd(1),
        Event::ToolEnd(0),
        Event::Usage(Usage { prompt: 5, cached: 1, completion: 9, reasoning: 2, extras: vec![] }),
        finish("tool-calls"),
    ]
}

#[tokio::test]
async fn a_streamed_text_reads_like_this() {
    let reply = bench(Double::playing(hello())).await.post(PATH, ask(true)).await;
    let events = settle(&reply);
    assert_eq!(
        kinds(&events),
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    let part = |text: &str| json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] });
    let item = |status: &str, content: Value| {
        json!({ "type": "message", "id": "msg_", "status": status, "role": "assistant",
            "content": content })
    };
    let expected = [
        json!({ "type": "response.output_item.added", "output_index": 0,
            "item": item("in_progress", json!([])), "sequence_number": 2 }),
        json!({ "type": "response.content_part.added", "item_id": "msg_", "output_index": 0,
            "content_index": 0, "part": part(""), "sequence_number": 3 }),
        json!({ "type": "response.output_text.delta", "item_id": "msg_", "output_index": 0,
            "content_index": 0, "delta": "Hel", "logprobs": [], "sequence_number": 4 }),
        json!({ "type": "response.output_text.delta", "item_id": "msg_", "output_index": 0,
            "content_index": 0, "delta": "lo", "logprobs": [], "sequence_number": 5 }),
        json!({ "type": "response.output_text.done", "item_id": "msg_", "output_index": 0,
            "content_index": 0, "text": "Hello", "logprobs": [], "sequence_number": 6 }),
        json!({ "type": "response.content_part.done", "item_id": "msg_", "output_index": 0,
            "content_index": 0, "part": part("Hello"), "sequence_number": 7 }),
        json!({ "type": "response.output_item.done", "output_index": 0,
            "item": item("completed", json!([part("Hello")])), "sequence_number": 8 }),
    ];
    assert_eq!(events[2..9], expected);
    assert_eq!(events[0]["response"]["status"], "in_progress");
    assert_eq!(events[0]["response"]["output"], json!([]));
}

#[tokio::test]
async fn a_whole_response_has_every_field_the_clients_expect() {
    let bench = bench(Double::playing(hello())).await;
    assert_eq!(
        whole(&bench, ask(false)).await,
        json!({
            "id": "resp_", "object": "response", "status": "completed", "background": false,
            "error": null, "incomplete_details": null, "model": "tiny",
            "output": [{ "type": "message", "id": "msg_", "status": "completed",
                "role": "assistant", "content": [
                    { "type": "output_text", "text": "Hello", "annotations": [], "logprobs": [] }] }],
            "store": true,
            "usage": { "input_tokens": 5,
                "input_tokens_details": { "cached_tokens": 1, "cache_write_tokens": 0 },
                "output_tokens": 2, "output_tokens_details": { "reasoning_tokens": 0 },
                "total_tokens": 7 },
            "tools": [], "tool_choice": "auto", "text": { "format": { "type": "text" } },
            "reasoning": { "effort": null, "summary": null }, "instructions": null,
            "max_output_tokens": null, "metadata": {}, "parallel_tool_calls": true,
            "previous_response_id": null, "temperature": null, "top_p": null, "top_logprobs": 0,
            "truncation": "disabled",
        })
    );
}

#[tokio::test]
async fn a_stream_says_what_the_whole_says() {
    let cut = vec![text("a"), start(0, "c", "f"), arguments(0, "{\"x"), finish("length")];
    let filtered = vec![text("a"), finish("content-filter")];
    let nothing = vec![finish("stop")];
    for list in [everything("call_b"), cut, filtered, nothing] {
        // One event at a time, and all at once.
        for play in [play(list.clone()), Play::Beats(vec![Beat::Events(list.clone())])] {
            let bench = bench(Double::playing(play)).await;
            let events = settle(&bench.post(PATH, ask(true)).await);
            let last = events.last().unwrap();
            let mut response = last["response"].clone();
            assert_eq!(whole(&bench, ask(false)).await, response);
            let status = response["status"].as_str().unwrap();
            assert_eq!(last["type"], format!("response.{status}"));
            // What the items were when they were done is what they are in the end.
            let mut done: Vec<_> = events
                .iter()
                .filter(|event| event["type"] == "response.output_item.done")
                .map(|event| (event["output_index"].as_u64().unwrap(), event["item"].clone()))
                .collect();
            done.sort_by_key(|(place, _)| *place);
            let items: Value = done.into_iter().map(|(_, item)| item).collect();
            assert_eq!(response["output"].take(), items);
        }
    }
}

#[tokio::test]
async fn calls_come_in_fragments_that_add_up_byte_for_byte() {
    let bench = bench(Double::playing(play(everything("")))).await;
    let reply = bench.post(PATH, ask(true)).await;
    let events = settle(&reply);
    let pieces = |place: u64| -> String {
        events
            .iter()
            .filter(|event| event["type"] == "response.function_call_arguments.delta")
            .filter(|event| event["output_index"] == place)
            .map(|event| event["delta"].as_str().unwrap())
            .collect()
    };
    assert_eq!((pieces(2).as_str(), pieces(3).as_str()), ("{\"z\": 1, \"a\": \"ü\"}", "{}"));
    let added: Vec<_> =
        events.iter().filter(|event| event["type"] == "response.output_item.added").collect();
    assert_eq!(added[2]["item"]["call_id"], "call_a");
    assert_eq!(
        (&added[2]["item"]["name"], &added[2]["item"]["arguments"]),
        (&json!("f"), &json!(""))
    );
    // An id is made where the back-end has none, and stays.
    let made = added[3]["item"]["call_id"].as_str().unwrap();
    assert!(made.starts_with("call_"));
    let output = &events.last().unwrap()["response"]["output"];
    assert_eq!(output[3]["call_id"], made);
    // One channel for each thing.
    assert_eq!(output[1]["content"][0]["text"], "Hello");
    assert_eq!(output[0]["content"], json!([{ "type": "reasoning_text", "text": "hm" }]));
    let usage = &events.last().unwrap()["response"]["usage"];
    assert_eq!(usage["output_tokens_details"]["reasoning_tokens"], 2);
}

#[tokio::test]
async fn what_was_answered_comes_back_as_input_byte_for_byte() {
    let bench = bench(Double::playing(play(everything("call_b")))).await;
    let output = bench.post(PATH, ask(false)).await.json()["output"].clone();
    let mut input = vec![json!({ "role": "user", "content": "hi" })];
    input.extend(output.as_array().unwrap().clone());
    input.push(json!({ "type": "function_call_output", "call_id": "call_a", "output": "7" }));
    let mut body = ask(false);
    body["input"] = json!(input);
    whole(&bench, body).await;
    let Prompt::Chat(messages) = bench.double.last().prompt else { panic!() };
    assert_eq!(messages.len(), 3);
    assert_eq!(messages[1].reasoning.as_deref(), Some("hm"));
    assert_eq!(messages[1].tool_calls[0].id, "call_a");
    assert_eq!(messages[1].tool_calls[0].arguments, "{\"z\": 1, \"a\": \"ü\"}");
    assert_eq!(messages[1].tool_calls[1].arguments, "{}");
    assert_eq!(messages[2].tool_call_id.as_deref(), Some("call_a"));
}

#[tokio::test]
async fn a_conversation_goes_on_from_a_response_that_was_kept() {
    let bench = bench(Double::playing(play(everything("call_b")))).await;
    let mut body = ask(true);
    body["instructions"] = json!("first");
    let events = events(bench.post(PATH, body).await.text());
    let first = events.last().unwrap()["response"]["id"].as_str().unwrap().to_owned();

    let kept = bench.get(&format!("{PATH}/{first}")).await;
    assert_eq!(kept.json(), events.last().unwrap()["response"]);

    let mut body = ask(false);
    body["previous_response_id"] = json!(first);
    body["instructions"] = json!("second");
    body["input"] = json!([{ "type": "function_call_output", "call_id": "call_a", "output": "7" }]);
    let second = bench.post(PATH, body).await.json();
    assert_eq!(second["previous_response_id"], first);
    let Prompt::Chat(messages) = bench.double.last().prompt else { panic!() };
    let roles: Vec<_> = messages.iter().map(|message| message.role.clone()).collect();
    assert_eq!(roles, [Role::System, Role::User, Role::Assistant, Role::Tool]);
    // Instructions hold for one response.
    assert_eq!(messages[0], Message::text(Role::System, "second"));
    assert_eq!(messages[2].tool_calls[0].arguments, "{\"z\": 1, \"a\": \"ü\"}");
    assert_eq!(messages[2].reasoning.as_deref(), Some("hm"));

    // The third goes on from the second.
    let mut body = ask(false);
    body["previous_response_id"] = second["id"].clone();
    whole(&bench, body).await;
    let Prompt::Chat(messages) = bench.double.last().prompt else { panic!() };
    assert_eq!(messages.len(), 5);

    let gone = bench.raw(Method::DELETE, &format!("{PATH}/{first}"), "").await;
    assert_eq!(gone.json(), json!({ "id": first, "object": "response", "deleted": true }));
    for method in [Method::GET, Method::DELETE] {
        assert_eq!(bench.raw(method, &format!("{PATH}/{first}"), "").await.status, 404);
    }
}

#[tokio::test]
async fn what_is_not_kept_cannot_be_continued() {
    let fail = Play::Beats(vec![Beat::Events(vec![text("a")]), Beat::Fail(Error::internal("x"))]);
    let off =
        ApiConfig { responses: Bounds { responses: 0, bytes: 1 << 20 }, ..ApiConfig::default() };
    for (store, config, play, says) in [
        (json!(false), ApiConfig::default(), hello(), json!(false)),
        (json!(true), off, hello(), json!(false)),
        (json!(true), ApiConfig::default(), fail, json!(true)),
    ] {
        let bench = bench_with(Double::playing(play), config, Limits::default()).await;
        let mut body = ask(true);
        body["store"] = store;
        let events = events(bench.post(PATH, body).await.text());
        assert_eq!(events[0]["response"]["store"], says);
        let id = events[0]["response"]["id"].as_str().unwrap();
        assert_eq!(bench.get(&format!("{PATH}/{id}")).await.status, 404);
        let mut body = ask(false);
        body["previous_response_id"] = json!(id);
        let reply = bench.post(PATH, body).await;
        assert_eq!(reply.status, 404);
        assert_eq!(reply.json()["error"]["param"], "previous_response_id");
    }
}

#[tokio::test]
async fn why_it_is_incomplete_is_said() {
    for (reason, status, details) in [
        ("stop", "completed", Value::Null),
        ("tool-calls", "completed", Value::Null),
        ("length", "incomplete", json!({ "reason": "max_output_tokens" })),
        ("content-filter", "incomplete", json!({ "reason": "content_filter" })),
    ] {
        let bench = bench(Double::playing(play(vec![text("a"), finish(reason)]))).await;
        let response = whole(&bench, ask(false)).await;
        assert_eq!(response["status"], status);
        assert_eq!(response["incomplete_details"], details);
        // No count is made up.
        assert_eq!(response["usage"], Value::Null);
    }
}

#[tokio::test]
async fn a_failure_in_the_stream_is_its_last_word() {
    let fault = Error::new(Code::PluginFault, "the component trapped").with("fault", "trap");
    let play = Play::Beats(vec![Beat::Events(vec![text("Hel")]), Beat::Fail(fault)]);
    let reply = bench(Double::playing(play)).await.post(PATH, ask(true)).await;
    assert_eq!(reply.status, 200);
    let events = settle(&reply);
    let [.., failed, error] = &events[..] else { panic!() };
    assert_eq!(failed["type"], "response.failed");
    assert_eq!(failed["response"]["status"], "failed");
    assert_eq!(
        failed["response"]["error"],
        json!({ "code": "plugin_fault", "message": "the component trapped" })
    );
    assert_eq!(error["type"], "error");
    assert_eq!((&error["code"], &error["param"]), (&json!("plugin_fault"), &Value::Null));
    assert_eq!(error["message"], "the component trapped");
    assert_eq!(error["error"]["details"]["fault"], "trap");
    assert!(!reply.text().contains("response.completed"));
}

#[tokio::test]
async fn effort_and_log_probabilities_reach_the_back_end() {
    let bench = bench(Double::playing(hello())).await;
    let mut body = ask(false);
    body["reasoning"] = json!({ "effort": "none" });
    body["include"] = json!(["message.output_text.logprobs"]);
    body["metadata"] = json!({ "a": "b" });
    let reply = bench.post(PATH, body).await;
    assert_eq!(reply.header("x-gristmill-unused"), "metadata");
    assert_eq!(reply.json()["metadata"], json!({ "a": "b" }));
    let request = bench.double.last();
    assert_eq!((request.reasoning, request.logprobs), (Reasoning::Off, Some(0)));
}

#[tokio::test]
async fn tokens_are_counted_without_an_answer() {
    let bench = bench(Double::playing(hello())).await;
    let mut body = json!({ "model": "tiny", "input": "hi", "instructions": "be brief" });
    let reply = bench.post("/v1/responses/input_tokens", body.clone()).await;
    let count = "<tiny>system=be brief;user=hi;".len();
    assert_eq!(reply.json(), json!({ "object": "response.input_tokens", "input_tokens": count }));
    assert!(bench.double.requests.lock().unwrap().is_empty());
    let first = bench.post(PATH, ask(false)).await.json()["id"].clone();
    body["previous_response_id"] = first;
    let more = bench.post("/v1/responses/input_tokens", body).await.json();
    assert_eq!(more["input_tokens"], count + "user=hi;assistant=Hello;".len());
}

#[tokio::test]
async fn usage_of_a_stream_comes_with_its_end() {
    let bench = bench(Double::playing(play(vec![text("a"), usage(5, 2), finish("stop")]))).await;
    let events = settle(&bench.post(PATH, ask(true)).await);
    assert_eq!(events[0]["response"]["usage"], Value::Null);
    assert_eq!(events.last().unwrap()["response"]["usage"]["total_tokens"], 7);
}
