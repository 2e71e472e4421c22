//! Kinds of faults that people met in other servers, each tried in every dialect, streamed and whole:
//! what a client has in the end is the same, and nothing of it is lost, doubled or in the wrong place.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests may fail loudly"
)]

mod support;

use gristmill_core::event::{Event, Finish};
use serde_json::Value;
use support::{
    Beat, CHATS, Double, Play, Reply, arguments, ask_at, bench, events, finish, play, start, text,
};

/// What a client has when an answer is over.
#[derive(Debug, Clone, Default, PartialEq)]
struct Seen {
    text: String,
    reasoning: String,
    /// Id, name, arguments as the dialect writes them.
    calls: Vec<(String, String, String)>,
    /// `stop`, `length` or `calls`.
    finish: String,
}

/// A string, or nothing.
fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn seen(path: &str, reply: &Reply, stream: bool) -> Seen {
    assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    let mut seen = match (path, stream) {
        ("/api/chat", true) => native(&reply.lines()),
        ("/api/chat", false) => native(&[reply.json()]),
        ("/v1/chat/completions", true) => chunks(&reply.chunks()),
        ("/v1/chat/completions", false) => {
            let choice = &reply.json()["choices"][0];
            let message = &choice["message"];
            assert_eq!(message["reasoning"], message["reasoning_content"]);
            let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
            Seen {
                text: string(&message["content"]),
                reasoning: string(&message["reasoning"]),
                calls: calls
                    .iter()
                    .map(|call| (string(&call["id"]), call["function"].clone()))
                    .map(|(id, f)| (id, string(&f["name"]), string(&f["arguments"])))
                    .collect(),
                finish: string(&choice["finish_reason"]),
            }
        }
        ("/v1/responses", true) => {
            let events = events(reply.text());
            let seen = response(&events.last().unwrap()["response"]);
            let deltas = |kind: &str| -> String {
                let of_kind = events.iter().filter(|event| event["type"] == kind);
                of_kind.map(|event| string(&event["delta"])).collect()
            };
            assert_eq!(deltas("response.output_text.delta"), seen.text);
            assert_eq!(deltas("response.reasoning_text.delta"), seen.reasoning);
            seen
        }
        ("/v1/responses", false) => response(&reply.json()),
        (_, true) => blocks(&events(reply.text())),
        (_, false) => message(&reply.json()),
    };
    seen.finish = match seen.finish.as_str() {
        "length" | "max_output_tokens" | "max_tokens" => "length",
        "tool_calls" | "tool_use" => "calls",
        "stop" | "end_turn" | "stop_sequence" | "" => "stop",
        other => panic!("{other}"),
    }
    .to_owned();
    seen
}

fn native(lines: &[Value]) -> Seen {
    let mut seen = Seen::default();
    for line in lines {
        let message = &line["message"];
        seen.text.push_str(&string(&message["content"]));
        seen.reasoning.push_str(&string(&message["thinking"]));
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let function = &call["function"];
            assert!(function["arguments"].is_object());
            seen.calls.push((
                string(&call["id"]),
                string(&function["name"]),
                function["arguments"].to_string(),
            ));
        }
        seen.finish = string(&line["done_reason"]);
    }
    seen
}

/// As official clients put chunks together: by index.
fn chunks(chunks: &[Value]) -> Seen {
    let mut seen = Seen::default();
    for chunk in chunks {
        let choice = &chunk["choices"][0];
        let delta = &choice["delta"];
        seen.text.push_str(&string(&delta["content"]));
        assert_eq!(delta["reasoning"], delta["reasoning_content"]);
        seen.reasoning.push_str(&string(&delta["reasoning"]));
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let index = call["index"].as_u64().unwrap() as usize;
            if index == seen.calls.len() {
                assert_eq!(call["type"], "function");
                let name = string(&call["function"]["name"]);
                seen.calls.push((string(&call["id"]), name, String::new()));
            } else {
                assert!(call.get("id").is_none() && index < seen.calls.len());
            }
            seen.calls[index].2.push_str(&string(&call["function"]["arguments"]));
        }
        seen.finish = string(&choice["finish_reason"]);
    }
    seen
}

fn response(response: &Value) -> Seen {
    let mut seen =
        Seen { finish: string(&response["incomplete_details"]["reason"]), ..Seen::default() };
    for item in response["output"].as_array().unwrap() {
        match item["type"].as_str().unwrap() {
            "message" => seen.text.push_str(&string(&item["content"][0]["text"])),
            "reasoning" => seen.reasoning.push_str(&string(&item["content"][0]["text"])),
            _ => seen.calls.push((
                string(&item["call_id"]),
                string(&item["name"]),
                string(&item["arguments"]),
            )),
        }
    }
    seen
}

fn message(message: &Value) -> Seen {
    let mut seen = Seen { finish: string(&message["stop_reason"]), ..Seen::default() };
    for block in message["content"].as_array().unwrap() {
        match block["type"].as_str().unwrap() {
            "text" => seen.text.push_str(&string(&block["text"])),
            "thinking" => seen.reasoning.push_str(&string(&block["thinking"])),
            _ => {
                let input = match block["input"].get("INVALID_JSON") {
                    Some(text) => string(text),
                    None => block["input"].to_string(),
                };
                seen.calls.push((string(&block["id"]), string(&block["name"]), input));
            }
        }
    }
    seen
}

fn blocks(events: &[Value]) -> Seen {
    let mut seen = Seen::default();
    let mut places = std::collections::HashMap::new();
    for event in events {
        let block = &event["content_block"];
        if block["type"] == "tool_use" {
            places.insert(event["index"].as_u64().unwrap(), seen.calls.len());
            seen.calls.push((string(&block["id"]), string(&block["name"]), String::new()));
        }
        let delta = &event["delta"];
        seen.text.push_str(&string(&delta["text"]));
        seen.reasoning.push_str(&string(&delta["thinking"]));
        if let Some(piece) = delta["partial_json"].as_str() {
            seen.calls[places[&event["index"].as_u64().unwrap()]].2.push_str(piece);
        }
        if event["type"] == "message_delta" {
            seen.finish = string(&delta["stop_reason"]);
        }
    }
    seen
}

/// What the dialect makes of arguments: the same bytes, or the same object.
fn written(path: &str, stream: bool, text: &str) -> String {
    let value: Result<Value, _> = serde_json::from_str(text);
    match (path, stream, value) {
        ("/api/chat", _, Ok(value)) | ("/v1/messages", false, Ok(value)) => value.to_string(),
        _ => text.to_owned(),
    }
}

/// Kind of fault; what the back-end says; text, reasoning, calls and finish that must be seen.
type Kind = (
    &'static str,
    Vec<Event>,
    &'static str,
    &'static str,
    Vec<(&'static str, &'static str)>,
    &'static str,
);

#[tokio::test]
async fn every_kind_of_answer_is_the_same_in_all_dialects_and_both_modes() {
    let end = Event::ToolEnd;
    let kinds: Vec<Kind> = vec![
        (
            "fragments of a call without their index",
            vec![
                start(0, "c0", "f"),
                arguments(0, "{\"x\":"),
                arguments(0, " 1}"),
                end(0),
                finish("stop"),
            ],
            "",
            "",
            vec![("f", "{\"x\": 1}")],
            "calls",
        ),
        (
            "a call without an id",
            vec![start(0, "", "f"), arguments(0, "{}"), end(0), finish("tool-calls")],
            "",
            "",
            vec![("f", "{}")],
            "calls",
        ),
        (
            "a tool without parameters",
            vec![start(0, "c0", "f"), end(0), finish("tool-calls")],
            "",
            "",
            vec![("f", "{}")],
            "calls",
        ),
        (
            "blank arguments",
            vec![start(0, "c0", "f"), arguments(0, ""), end(0), finish("tool-calls")],
            "",
            "",
            vec![("f", "{}")],
            "calls",
        ),
        (
            "parallel calls, fragment by fragment",
            vec![
                start(0, "c0", "f"),
                start(1, "c1", "g"),
                arguments(1, "{\"b\":2"),
                arguments(0, "{\"a\":1"),
                arguments(1, "}"),
                arguments(0, "}"),
                end(0),
                end(1),
                finish("tool-calls"),
            ],
            "",
            "",
            vec![("f", "{\"a\":1}"), ("g", "{\"b\":2}")],
            "calls",
        ),
        (
            "keys out of their order, and numbers of another spelling",
            vec![
                start(0, "c0", "f"),
                arguments(0, "{\"z\":1.0,\"a\":{\"y\":[],\"b\":\"ü😀\"}}"),
                end(0),
                finish("stop"),
            ],
            "",
            "",
            vec![("f", "{\"z\":1.0,\"a\":{\"y\":[],\"b\":\"ü😀\"}}")],
            "calls",
        ),
        (
            "a call that is also in the text",
            vec![
                text("Let me see."),
                start(0, "c0", "f"),
                arguments(0, "{\"x\":1}"),
                end(0),
                finish("tool-calls"),
            ],
            "Let me see.",
            "",
            vec![("f", "{\"x\":1}")],
            "calls",
        ),
        (
            "reasoning in the text",
            vec![
                Event::Reasoning("hm, ".into()),
                Event::Reasoning("so".into()),
                text("42"),
                finish("stop"),
            ],
            "42",
            "hm, so",
            vec![],
            "stop",
        ),
        (
            "an answer that ate its length with reasoning",
            vec![Event::Reasoning("hm".into()), finish("length")],
            "",
            "hm",
            vec![],
            "length",
        ),
        ("an empty answer", vec![finish("stop")], "", "", vec![], "stop"),
        (
            "a stop string at the end of the answer",
            vec![
                text("alpha "),
                Event::Finish(Finish { reason: "stop".into(), stop: Some("beta gamma".into()) }),
            ],
            "alpha ",
            "",
            vec![],
            "stop",
        ),
        (
            "characters of four bytes, one at a time",
            vec![text("😀"), text("e\u{301}"), text("漢"), text("👩‍👩‍👧"), finish("stop")],
            "😀e\u{301}漢👩‍👩‍👧",
            "",
            vec![],
            "stop",
        ),
    ];
    for (kind, list, words, reasoning, calls, ending) in kinds {
        for play in [play(list.clone()), Play::Beats(vec![Beat::Events(list.clone())])] {
            let bench = bench(Double::playing(play)).await;
            for path in CHATS {
                for stream in [true, false] {
                    let reply = bench.post(path, ask_at(path, stream)).await;
                    let seen = seen(path, &reply, stream);
                    let at = format!("{kind}: {path}, stream {stream}: {seen:?}");
                    assert_eq!((&*seen.text, &*seen.reasoning), (words, reasoning), "{at}");
                    let got: Vec<_> =
                        seen.calls.iter().map(|(_, name, args)| (&**name, &**args)).collect();
                    let expected: Vec<_> = calls
                        .iter()
                        .map(|(name, args)| (*name, written(path, stream, args)))
                        .collect();
                    let expected: Vec<_> =
                        expected.iter().map(|(name, args)| (*name, &**args)).collect();
                    assert_eq!(got, expected, "{at}");
                    // Ollama's word for the end of a call is the one for any end.
                    let ending = match (path, ending) {
                        ("/api/chat" | "/v1/responses", "calls") => "stop",
                        (_, ending) => ending,
                    };
                    assert_eq!(seen.finish, ending, "{at}");
                    let mut ids: Vec<_> = seen.calls.iter().map(|(id, ..)| id.clone()).collect();
                    assert!(ids.iter().all(|id| !id.is_empty()), "{at}");
                    ids.dedup();
                    assert_eq!(ids.len(), calls.len(), "{at}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_call_that_was_cut_or_is_no_json_is_never_an_error_of_the_server_and_never_lost() {
    let tables = [
        ("cut off by the length", "{\"city\": \"Pa", false, "length"),
        ("an array", "[{\"input\":\"x\"}]", true, "calls"),
        ("half an array", "{\"input\":\"x\"}]", true, "calls"),
        ("no JSON at all", "city=Paris", true, "calls"),
    ];
    for (kind, broken, ended, ending) in tables {
        let mut list = vec![start(0, "c0", "f"), arguments(0, broken)];
        list.extend(ended.then_some(Event::ToolEnd(0)));
        list.push(finish(if ended { "tool-calls" } else { "length" }));
        let bench = bench(Double::playing(play(list))).await;
        for path in CHATS {
            let whole = seen(path, &bench.post(path, ask_at(path, false)).await, false);
            let streamed = seen(path, &bench.post(path, ask_at(path, true)).await, true);
            assert_eq!(whole, streamed, "{kind}: {path}");
            if path == "/api/chat" {
                // Arguments are objects there: what is none comes as content, what was cut does not.
                assert!(whole.calls.is_empty());
                assert_eq!(whole.text, if ended { broken } else { "" }, "{kind}");
            } else {
                assert_eq!(
                    whole.calls,
                    [("c0".into(), "f".into(), broken.into())],
                    "{kind}: {path}"
                );
                assert_eq!(whole.text, "");
            }
            let ending = match path {
                "/api/chat" | "/v1/responses" if ended => "stop",
                _ => ending,
            };
            assert_eq!(whole.finish, ending, "{kind}: {path}");
        }
    }
}
