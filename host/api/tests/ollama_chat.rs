//! Ollama's `/api/chat` and `/api/generate`: the transcript of an answer, streamed and whole.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests may fail loudly")]

mod support;

use gristmill_core::{
    capability::{Claim, Reason, Support},
    event::{Alternative, Event, TokenInfo, ToolStart},
    request::{Prompt, Reasoning},
};
use serde_json::{Value, json};
use support::{Beat, CHATS, Double, Play, ask, ask_at, bench, finish, hello, text, timings, usage};

/// Removes what differs from run to run, after checking that it is what it should be.
fn settle(mut value: Value) -> Value {
    let object = value.as_object_mut().unwrap();
    let created = object.remove("created_at").unwrap();
    let created: jiff::Timestamp = created.as_str().unwrap().parse().unwrap();
    assert!(created.as_second() > 1_700_000_000);
    if let Some(total) = object.remove("total_duration") {
        assert!(total.as_u64().unwrap() > 0);
    }
    value
}

fn call(index: u32, name: &str, pieces: &[&str]) -> Vec<Event> {
    let start = ToolStart { index, id: format!("call_{index}"), name: name.into() };
    let mut events = vec![Event::ToolStart(start)];
    events.extend(pieces.iter().map(|piece| Event::ToolArguments(index, (*piece).into())));
    events.push(Event::ToolEnd(index));
    events
}

#[tokio::test]
async fn a_streamed_chat_reads_like_this() {
    let reply = bench(Double::playing(hello())).await.post("/api/chat", ask(true)).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-type"), "application/x-ndjson");
    let line = |content: &str| json!({ "model": "tiny", "message": { "role": "assistant", "content": content }, "done": false });
    let mut last = line("");
    last.as_object_mut().unwrap().extend(
        json!({
            "done": true, "done_reason": "stop", "prompt_eval_count": 5,
            "prompt_eval_duration": 2_000_000, "eval_count": 2, "eval_duration": 3_000_000,
        })
        .as_object()
        .unwrap()
        .clone(),
    );
    let lines: Vec<_> = reply.lines().into_iter().map(settle).collect();
    assert_eq!(lines, [line("Hel"), line("lo"), last]);
}

#[tokio::test]
async fn streaming_is_the_default_and_whole_says_the_same() {
    let bench = bench(Double::playing(hello())).await;
    let mut unsaid = ask(true);
    unsaid.as_object_mut().unwrap().remove("stream");
    assert_eq!(bench.post("/api/chat", unsaid).await.lines().len(), 3);

    let whole = bench.post("/api/chat", ask(false)).await;
    assert_eq!(whole.header("content-type"), "application/json; charset=utf-8");
    assert_eq!(
        settle(whole.json()),
        json!({
            "model": "tiny", "message": { "role": "assistant", "content": "Hello" },
            "done": true, "done_reason": "stop", "prompt_eval_count": 5,
            "prompt_eval_duration": 2_000_000, "eval_count": 2, "eval_duration": 3_000_000,
        })
    );
}

#[tokio::test]
async fn generate_says_response_and_thinking() {
    let play = Play::Beats(vec![
        Beat::Events(vec![Event::Reasoning("hm".into()), text("42")]),
        Beat::Events(vec![finish("length")]),
    ]);
    let bench = bench(Double::playing(play)).await;
    let lines =
        bench.post("/api/generate", json!({ "model": "tiny", "prompt": "p" })).await.lines();
    let lines: Vec<_> = lines.into_iter().map(settle).collect();
    assert_eq!(
        lines,
        [
            json!({ "model": "tiny", "response": "", "thinking": "hm", "done": false }),
            json!({ "model": "tiny", "response": "42", "done": false }),
            json!({ "model": "tiny", "response": "", "done": true, "done_reason": "length" }),
        ]
    );
    let whole = bench
        .post("/api/generate", json!({ "model": "tiny", "prompt": "p", "stream": false }))
        .await
        .json();
    assert_eq!((&whole["response"], &whole["thinking"]), (&json!("42"), &json!("hm")));
    assert_eq!(bench.double.last().reasoning, Reasoning::Unset);
    assert!(matches!(bench.double.last().prompt, Prompt::Chat(messages) if messages.len() == 1));
}

#[tokio::test]
async fn tool_calls_come_whole_and_the_same_in_both_modes() {
    let mut events = call(0, "weather", &["{\"city\":", "\"Ulm\", \"z\":1,\"a\":2}"]);
    events.extend(call(1, "now", &[]));
    events.extend([usage(9, 9), timings(), finish("tool-calls")]);
    let bench = bench(Double::playing(Play::Beats(vec![Beat::Events(events)]))).await;

    let expected = [
        json!({ "id": "call_0", "function": { "index": 0, "name": "weather",
            "arguments": { "city": "Ulm", "z": 1, "a": 2 } } }),
        json!({ "id": "call_1", "function": { "index": 1, "name": "now", "arguments": {} } }),
    ];
    let lines = bench.post("/api/chat", ask(true)).await.lines();
    assert_eq!(lines.len(), 3);
    for (line, call) in lines.iter().zip(&expected) {
        assert_eq!(line["message"]["tool_calls"], json!([call]));
        assert_eq!(line["message"]["content"], "");
    }
    assert_eq!(lines[2]["done_reason"], "stop");
    // Keys stay in the model's order.
    assert!(lines[0].to_string().contains(r#"{"city":"Ulm","z":1,"a":2}"#));

    let whole = bench.post("/api/chat", ask(false)).await.json();
    assert_eq!(whole["message"]["tool_calls"], json!(expected));
}

#[tokio::test]
async fn arguments_that_are_no_object_are_text_and_a_cut_call_is_none() {
    let events = call(0, "f", &["[1, 2"]).into_iter().chain([finish("stop")]).collect();
    let odd = bench(Double::playing(Play::Beats(vec![Beat::Events(events)]))).await;
    assert_eq!(odd.post("/api/chat", ask(true)).await.lines()[0]["message"]["content"], "[1, 2");
    let whole = odd.post("/api/chat", ask(false)).await.json();
    assert_eq!(whole["message"], json!({ "role": "assistant", "content": "[1, 2" }));

    let mut events = call(0, "f", &["{\"a\":"]);
    events.pop();
    events.push(finish("length"));
    let cut = bench(Double::playing(Play::Beats(vec![Beat::Events(events)]))).await;
    let lines = cut.post("/api/chat", ask(true)).await.lines();
    assert_eq!((lines.len(), &lines[0]["done_reason"]), (1, &json!("length")));
    let whole = cut.post("/api/chat", ask(false)).await.json();
    assert_eq!(whole["message"], json!({ "role": "assistant", "content": "" }));
}

#[tokio::test]
async fn log_probabilities_come_beside_their_text() {
    let token = TokenInfo {
        id: 7,
        bytes: b"Hi".to_vec(),
        logprob: -0.5,
        alternatives: vec![Alternative { id: 8, bytes: vec![0xff], logprob: -1.5 }],
    };
    let events = vec![text("Hi"), Event::Tokens(vec![token]), finish("stop")];
    let bench = bench(Double::playing(Play::Beats(vec![Beat::Events(events)]))).await;
    let mut body = ask(true);
    body["logprobs"] = json!(true);
    body["top_logprobs"] = json!(1);
    let lines = bench.post("/api/chat", body).await.lines();
    assert_eq!(
        lines[0]["logprobs"],
        json!([{ "token": "Hi", "logprob": -0.5, "bytes": [72, 105],
            "top_logprobs": [{ "token": "\u{fffd}", "logprob": -1.5, "bytes": [255] }] }])
    );
    assert_eq!(bench.double.last().logprobs, Some(1));
}

#[tokio::test]
async fn an_empty_prompt_loads_and_with_zero_keep_alive_unloads() {
    let bench = bench(Double::playing(hello())).await;
    let loaded = async || bench.get("/api/ps").await.json()["models"].as_array().unwrap().clone();
    for (path, empty) in [
        ("/api/chat", json!({ "model": "tiny", "messages": [] })),
        ("/api/generate", json!({ "model": "tiny" })),
    ] {
        let reply = bench.post(path, empty.clone()).await.json();
        assert_eq!((&reply["done"], &reply["done_reason"]), (&json!(true), &json!("load")));
        let models = loaded().await;
        assert_eq!(models[0]["name"], "tiny:latest");
        assert_eq!(models[0]["context_length"], 2048);
        let expires: jiff::Timestamp = models[0]["expires_at"].as_str().unwrap().parse().unwrap();
        let left = expires.as_second() - jiff::Timestamp::now().as_second();
        assert!((290..=301).contains(&left), "{left}");

        let mut unload = empty;
        unload["keep_alive"] = json!(0);
        assert_eq!(bench.post(path, unload).await.json()["done_reason"], "unload");
        assert!(loaded().await.is_empty());
    }
    assert!(bench.double.requests.lock().unwrap().is_empty());
}

#[tokio::test]
async fn keep_alive_said_here_is_not_reset_by_the_other_dialects() {
    let bench = bench(Double::playing(hello())).await;
    bench.post("/api/chat", json!({ "model": "tiny", "keep_alive": "-1" })).await;
    for path in CHATS {
        assert_eq!(bench.post(path, ask_at(path, false)).await.status, 200, "{path}");
    }
    bench.post("/tokenize", json!({ "model": "tiny", "content": "x" })).await;
    let expires = bench.get("/api/ps").await.json()["models"][0]["expires_at"].clone();
    let expires: jiff::Timestamp = expires.as_str().unwrap().parse().unwrap();
    assert!(expires.as_second() > jiff::Timestamp::now().as_second() + 50 * 365 * 24 * 3600);
}

#[tokio::test]
async fn thinking_asked_of_a_model_that_cannot_is_refused() {
    let double = Double::playing(hello());
    double.claims.lock().unwrap().push(Claim {
        name: "reasoning.control".into(),
        support: Support::Unsupported(Reason { code: "family".into(), detail: "no marks".into() }),
        value: None,
    });
    let bench = bench(double).await;
    for think in [json!(true), json!("high")] {
        let mut body = ask(false);
        body["think"] = think;
        let reply = bench.post("/api/chat", body).await;
        assert_eq!(reply.status, 400);
        assert!(
            reply.json()["error"].as_str().unwrap().contains("\"tiny\" does not support thinking")
        );
    }
    let mut body = ask(false);
    body["think"] = json!(false);
    assert_eq!(bench.post("/api/chat", body).await.status, 200);
    assert_eq!(bench.double.last().reasoning, Reasoning::Off);
}
