//! `/tokenize`, `/detokenize`, `/apply-template`: the shapes of llama-server and of vLLM, and bytes
//! that are no text.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests may fail loudly")]

mod support;

use axum::http::Method;
use gristmill_router::{Limits, Source};
use serde_json::{Value, json};
use support::{Bench, Double, bench, hello};

async fn ready() -> Bench {
    bench(Double::playing(hello())).await
}

async fn good(bench: &Bench, path: &str, body: Value) -> Value {
    let reply = bench.post(path, body).await;
    assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    assert_eq!(reply.header("x-gristmill-model"), "tiny");
    reply.json()
}

#[tokio::test]
async fn texts_become_tokens_in_both_servers_forms() {
    let bench = ready().await;
    for body in [
        json!({ "model": "tiny", "content": "hé" }),
        json!({ "model": "tiny", "prompt": "hé", "add_special_tokens": false }),
    ] {
        let value = good(&bench, "/tokenize", body).await;
        assert_eq!(
            value,
            json!({ "tokens": [104, 0xc3, 0xa9], "count": 3, "max_model_len": 2048 })
        );
    }
    // With the beginning of text, as the model would read it.
    let begun = "<tiny>h".bytes().collect::<Vec<_>>();
    for body in [
        json!({ "model": "tiny", "content": "h", "add_special": true }),
        json!({ "model": "tiny", "prompt": "h" }),
    ] {
        assert_eq!(good(&bench, "/tokenize", body).await["tokens"], json!(begun));
    }
    let chat = json!({ "model": "tiny", "messages": [{ "role": "user", "content": "h" }] });
    assert_eq!(good(&bench, "/tokenize", chat).await["count"], "<tiny>user=h;".len());
}

#[tokio::test]
async fn pieces_are_text_where_they_are_and_bytes_where_not() {
    let bench = ready().await;
    let body =
        json!({ "model": "tiny", "content": "hé", "with_pieces": true, "return_token_strs": true });
    let value = good(&bench, "/tokenize", body).await;
    assert_eq!(
        value["tokens"],
        json!([{ "id": 104, "piece": "h" }, { "id": 0xc3, "piece": [0xc3] },
            { "id": 0xa9, "piece": [0xa9] }])
    );
    assert_eq!(value["token_strs"], json!(["h", "\u{fffd}", "\u{fffd}"]));
}

#[tokio::test]
async fn bytes_that_are_no_text_are_told_as_they_are() {
    let bench = ready().await;
    let ask = |tokens: &[u8]| json!({ "model": "tiny", "tokens": tokens });
    let text = json!({ "content": "hé", "prompt": "hé" });
    assert_eq!(good(&bench, "/detokenize", ask("hé".as_bytes())).await, text);
    assert_eq!(good(&bench, "/detokenize", ask(&[])).await, json!({ "content": "", "prompt": "" }));
    // Half a character: marked, and whole in base64.
    assert_eq!(
        good(&bench, "/detokenize", ask(&[104, 0xe6, 0xad])).await,
        json!({ "content": "h\u{fffd}", "prompt": "h\u{fffd}", "lossy": true, "bytes": "aOat" })
    );
}

#[tokio::test]
async fn half_characters_and_lone_surrogates_are_refused_and_the_server_serves_on() {
    let bench = ready().await;
    let bodies: [&[u8]; 4] = [
        b"{\"model\":\"tiny\",\"content\":\"\xe6\xad\"}",
        br#"{"model":"tiny","content":"\ud83d"}"#,
        br#"{"model":"tiny","content":"\ude00\ud83d"}"#,
        br#"{"model":"tiny","tokens":[-1]}"#,
    ];
    for body in bodies {
        for path in ["/tokenize", "/detokenize"] {
            let reply = bench.raw(Method::POST, path, body.to_vec()).await;
            assert_eq!(reply.status, 400, "{}", reply.text());
            assert_eq!(reply.json()["error"]["type"], "invalid_request_error");
        }
    }
    let pair = br#"{"model":"tiny","content":"\ud83d\ude00"}"#;
    let reply = bench.raw(Method::POST, "/tokenize", pair.to_vec()).await;
    assert_eq!(reply.json()["tokens"], json!([0xf0, 0x9f, 0x98, 0x80]));
}

#[tokio::test]
async fn a_conversation_is_rendered_and_counted_as_it_would_be_read() {
    let bench = ready().await;
    let body = json!({ "model": "tiny", "add_generation_prompt": true,
        "messages": [{ "role": "developer", "content": "s" }, { "role": "user", "content": "u" }],
        "tools": [{ "type": "function", "function": { "name": "f" } }] });
    let text = "<tiny>[f]system=s;user=u;";
    assert_eq!(good(&bench, "/apply-template", body.clone()).await, json!({ "prompt": text }));
    assert_eq!(
        good(&bench, "/v1/chat/completions/input_tokens", body).await,
        json!({ "object": "response.input_tokens", "input_tokens": text.len() })
    );
    assert!(bench.double.requests.lock().unwrap().is_empty());
}

#[tokio::test]
async fn what_a_bridge_does_not_tell_is_refused_by_name() {
    let bench = ready().await;
    let other = Double::playing(hello());
    bench.state.router.install("bridge", Source::Listed, Limits::default(), other).await.unwrap();
    let messages = json!([{ "role": "user", "content": "h" }]);
    for (path, body) in [
        ("/apply-template", json!({ "messages": messages })),
        ("/tokenize", json!({ "messages": messages })),
        ("/tokenize", json!({ "content": "h", "add_special": true })),
        ("/v1/chat/completions/input_tokens", json!({ "messages": messages })),
    ] {
        let mut body = body;
        body["model"] = json!("listed/one");
        let reply = bench.post(path, body).await;
        assert_eq!(reply.status, 400, "{path}");
        assert_eq!(reply.json()["error"]["code"], "unsupported");
        assert_eq!(reply.json()["error"]["param"], "model");
        assert!(reply.text().contains("bridge"), "{}", reply.text());
    }
    // What the contract has, it has.
    let reply = bench.post("/tokenize", json!({ "model": "listed/one", "content": "h" })).await;
    assert_eq!(reply.json()["tokens"], json!([104]));
}
