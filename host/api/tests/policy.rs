//! What a policy or a profile did is told in the headers of every answer, and its refusal in the
//! dialect's envelope, always under the name by which the dialect calls the control.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests may fail loudly")]

mod support;

use axum::{
    body::Body,
    http::{Method, Request as HttpRequest},
};
use gristmill_policies::{ParameterPolicy, Profile, Rules};
use serde_json::{Value, json};
use support::{Bench, CHATS, Double, Reply, ask_at, bench, hello};

async fn with(policy: &str) -> Bench {
    let bench = bench(Double::playing(hello())).await;
    let policy = format!("family = \"llama\"\nreason = \"nobody measured it\"\n{policy}");
    let policy = ParameterPolicy::parse("careful", &policy).unwrap();
    let profile =
        "description = \"to the point\"\n[parameters]\ntemperature = 0.5\nstop = [\"End\"]";
    let profile = Profile::parse("terse", profile).unwrap();
    let rules = Rules::new(vec![policy], vec![profile], Vec::new()).unwrap();
    bench.state.router.policy().replace(rules);
    bench
}

fn asking(path: &str, stream: bool, more: &Value) -> Value {
    let mut body = ask_at(path, stream);
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// What each dialect calls the end strings, the bound and the penalty.
fn fields(path: &str) -> Value {
    match path {
        "/api/chat" => json!({ "options": {
            "stop": ["x"], "num_predict": 9, "repeat_penalty": 1.1, "num_ctx": 2048, "num_thread": 4 } }),
        "/v1/chat/completions" => {
            json!({ "stop": ["x"], "max_completion_tokens": 9, "repetition_penalty": 1.1 })
        }
        "/v1/responses" => {
            json!({ "stop": ["x"], "max_output_tokens": 9, "repetition_penalty": 1.1 })
        }
        _ => json!({ "stop_sequences": ["x"], "max_tokens": 9 }),
    }
}

const STRIP: &str = "unlisted = \"unverified\"\nactions.unverified = \"strip\"\ncontext = \
    { backend-managed = true, override-supported = true, override-verified = false, action = \"strip\" }";

#[tokio::test]
async fn what_was_stripped_is_told_streamed_or_whole() {
    let bench = with(STRIP).await;
    for (path, told) in [
        (
            "/api/chat",
            "stripped options.repeat_penalty (unverified); stripped options.num_predict (unverified); \
             stripped options.num_ctx (override-unverified); stripped options.stop (unverified); \
             stripped options.num_thread (unverified)",
        ),
        (
            "/v1/chat/completions",
            "stripped repetition_penalty (unverified); stripped max_completion_tokens (unverified); \
             stripped stop (unverified)",
        ),
        (
            "/v1/responses",
            "stripped repetition_penalty (unverified); stripped max_output_tokens (unverified); \
             stripped stop (unverified)",
        ),
        ("/v1/messages", "stripped max_tokens (unverified); stripped stop_sequences (unverified)"),
    ] {
        for stream in [false, true] {
            let reply = bench.post(path, asking(path, stream, &fields(path))).await;
            assert_eq!(reply.status, 200, "{path}: {}", reply.text());
            assert_eq!(reply.header("x-gristmill-policy"), "careful", "{path}");
            assert_eq!(reply.header("x-gristmill-policy-detail"), told, "{path} {stream}");
            let sent = bench.double.last();
            assert_eq!((sent.max_tokens, sent.context), (None, None), "{path}");
            assert!(sent.stop.is_empty() && sent.sampling == Default::default(), "{path}");
            assert!(sent.extras.is_empty(), "{path}: {:?}", sent.extras);
        }
    }
    let older = json!({ "max_tokens": 9 });
    let path = "/v1/chat/completions";
    let reply = bench.post(path, asking(path, false, &older)).await;
    assert_eq!(reply.header("x-gristmill-policy-detail"), "stripped max_tokens (unverified)");
}

#[tokio::test]
async fn a_refusal_is_in_the_dialects_envelope_and_words() {
    for (path, control, field) in [
        ("/api/chat", "num_ctx", "options.num_ctx"),
        ("/api/chat", "num_thread", "options.num_thread"),
        ("/api/chat", "num_predict", "options.num_predict"),
        ("/v1/chat/completions", "num_predict", "max_completion_tokens"),
        ("/v1/responses", "num_predict", "max_output_tokens"),
        ("/v1/messages", "num_predict", "max_tokens"),
        ("/v1/messages", "stop", "stop_sequences"),
        ("/v1/responses", "repeat_penalty", "repetition_penalty"),
    ] {
        let policy = match control {
            "num_ctx" => STRIP
                .replace(", action = \"strip\"", "")
                .replace("\"unverified\"\n", "\"optional\"\n"),
            _ => format!("[parameters.{control}]\nclass = \"unverified\""),
        };
        let bench = with(&policy).await;
        let class = if control == "num_ctx" { "override-unverified" } else { "unverified" };
        for stream in [false, true] {
            let reply = bench.post(path, asking(path, stream, &fields(path))).await;
            assert_eq!(reply.status, 403, "{path}: {}", reply.text());
            assert_eq!(reply.header("x-gristmill-error"), "blocked");
            assert_eq!(reply.header("x-gristmill-policy"), "careful");
            assert_eq!(
                reply.header("x-gristmill-policy-detail"),
                format!("refused {field} ({class})")
            );
            let body = reply.json();
            let message = match path {
                "/api/chat" => &body["error"],
                _ => &body["error"]["message"],
            };
            let expected = format!(
                "{field} is refused by the policy careful: {class}; nobody measured it; leave it out \
                 (\"tiny\" on scripted)"
            );
            assert_eq!(message, &expected, "{path}");
            match path {
                "/api/chat" => {}
                "/v1/messages" => assert_eq!(body["error"]["type"], "permission_error"),
                _ => assert_eq!(body["error"]["param"], field),
            }
            if path != "/api/chat" {
                assert_eq!(body["error"]["details"]["policy"], "careful", "{body}");
                assert_eq!(body["error"]["details"]["reason"], "nobody measured it");
            }
        }
        assert!(bench.double.requests.lock().unwrap().is_empty(), "nothing reached the back-end");
    }
}

async fn selecting(bench: &Bench, path: &str, profile: &str) -> Reply {
    let request = HttpRequest::builder()
        .method(Method::POST)
        .uri(path)
        .header("x-gristmill-profile", profile)
        .body(Body::from(ask_at(path, false).to_string()))
        .unwrap();
    bench.send(request).await
}

#[tokio::test]
async fn a_caller_selects_a_profile_by_a_header_and_is_told_what_it_put_in() {
    let bench = with("").await;
    for path in CHATS {
        let reply = selecting(&bench, path, "terse").await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(reply.header("x-gristmill-profile"), "terse");
        let name = |ollama: &str, other: &str| {
            if path == "/api/chat" { ollama.to_owned() } else { other.to_owned() }
        };
        let stop = if path == "/v1/messages" {
            "stop_sequences".to_owned()
        } else {
            name("options.stop", "stop")
        };
        let told = format!(
            "set {}=0.5 (profile); set {stop}=[\"End\"] (profile)",
            name("options.temperature", "temperature")
        );
        assert_eq!(reply.header("x-gristmill-policy-detail"), told, "{path}");
        let sent = bench.double.last();
        assert_eq!((sent.sampling.temperature, sent.stop), (Some(0.5), vec!["End".to_owned()]));

        let reply = selecting(&bench, path, "verbose").await;
        assert_eq!(reply.status, 400, "{}", reply.text());
        assert!(
            reply.text().contains("verbose") && reply.text().contains("terse"),
            "{}",
            reply.text()
        );
    }
    let reply = selecting(&bench, "/v1/responses", "verbose").await;
    assert_eq!(reply.json()["error"]["param"], "x-gristmill-profile");
    let reply = selecting(&bench, "/api/chat", "none").await;
    assert_eq!((reply.status.as_u16(), reply.header("x-gristmill-profile")), (200, ""));
}

#[tokio::test]
async fn without_a_policy_nothing_is_told() {
    let bench = bench(Double::playing(hello())).await;
    for path in CHATS {
        let reply = bench.post(path, asking(path, false, &fields(path))).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        for header in ["x-gristmill-policy", "x-gristmill-policy-detail", "x-gristmill-profile"] {
            assert!(!reply.headers.contains_key(header), "{path}: {header}");
        }
        assert!(bench.double.last().extras.is_empty(), "the host's own words end in the host");
    }
    // A policy that applies and finds nothing says its id alone.
    let bench = with("").await;
    let reply = bench.post("/api/chat", ask_at("/api/chat", false)).await;
    assert_eq!(reply.header("x-gristmill-policy"), "careful");
    assert!(!reply.headers.contains_key("x-gristmill-policy-detail"));
}

#[tokio::test]
async fn counting_tokens_takes_the_same_fields_without_the_hosts_words() {
    let bench = with(STRIP).await;
    let path = "/v1/chat/completions/input_tokens";
    let body = asking("/v1/chat/completions", false, &json!({ "max_completion_tokens": 9 }));
    let reply = bench.post(path, body).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
}
