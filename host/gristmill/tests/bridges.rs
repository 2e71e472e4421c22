//! `gristmill serve` with `[backends]`: bridges to fake servers, and to another Gristmill behind the
//! `ollama` bridge.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may fail loudly")]

mod support;

use gristmill_fakes::Transcript;
use support::{ALONE, Home, Started, backend, server};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn five_servers_stand_behind_one_address() {
    let mut configuration = ALONE.to_owned();
    let mut fakes = Vec::new();
    for (kind, model) in [
        ("ollama", "from-ollama"),
        ("vllm", "from-vllm"),
        ("llama-server", "m"),
        ("mlx", "from-mlx"),
        ("openai-compatible", "from-others"),
    ] {
        let fake = server(kind, model, "chat-text").await;
        configuration += &backend(kind, kind, &fake.url());
        fakes.push((kind, model, fake));
    }
    let serving = Started::new(Home::with_components(), &configuration);
    for (kind, model, fake) in &fakes {
        let wanted: String = Transcript::named(kind, "chat-text")
            .events
            .lines()
            .filter_map(|line| line.strip_prefix("text \"")?.strip_suffix('"'))
            .collect();
        let (status, body) = serving.chat(model, false);
        assert_eq!(status, 200, "{kind}: {body}");
        assert!(body.contains(&wanted), "{kind}: {wanted} is not in {body}");
        let native = format!(
            r#"{{"model":"{model}","stream":false,"messages":[{{"role":"user","content":"hi"}}]}}"#
        );
        let (status, body) = serving.post("/api/chat", &native);
        assert_eq!(status, 200, "{kind}: {body}");
        assert!(body.contains(&wanted), "{kind}: {wanted} is not in {body}");
        // Nothing was asked for that the client did not ask for.
        let sent = fake
            .received()
            .into_iter()
            .rfind(|request| {
                request.target.ends_with("chat") || request.target.ends_with("completions")
            })
            .unwrap();
        for field in ["temperature", "max_tokens", "num_predict", "num_ctx", "top_p", "seed"] {
            assert!(!sent.text().contains(field), "{kind}: {field} in {}", sent.text());
        }
    }
    let (status, body) = serving.chat("from-nobody", false);
    assert_eq!(status, 404, "{body}");
}

/// Case, status, and a word of what the server said.
const FAILURES: [(&str, u16, &str); 6] = [
    ("error-too-long", 400, "maximum context length is 4096"),
    ("error-busy", 503, "overloaded"),
    ("error-unauthorized", 502, "credentials"),
    ("error-first-event", 400, "5000"),
    ("error-empty-body", 502, "an empty body"),
    ("error-mid-stream", 502, "EngineCore"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_failure_has_its_status_before_the_stream_and_is_in_it_afterwards() {
    let mut configuration = ALONE.to_owned();
    let mut fakes = Vec::new();
    for (n, (case, ..)) in FAILURES.into_iter().enumerate() {
        let fake = server("vllm", case, case).await;
        configuration += &backend(&format!("big{n}"), "vllm", &fake.url());
        fakes.push(fake);
    }
    let serving = Started::new(Home::with_components(), &configuration);
    for (n, (case, status, word)) in FAILURES.into_iter().enumerate() {
        for stream in [false, true] {
            let (found, body) = serving.chat(case, stream);
            let begun = stream && case == "error-mid-stream";
            assert_eq!(found, if begun { 200 } else { status }, "{case}: {body}");
            let named = format!("back-end big{n}: vllm");
            assert!(body.contains(word) && body.contains(&named), "{case}: {body}");
            if begun {
                assert!(body.contains("Hal"), "what came before is delivered: {body}");
                assert!(
                    !body.contains("\"finish_reason\":\"stop\""),
                    "a clean-looking end: {body}"
                );
            }
        }
    }
}

#[test]
fn gristmill_itself_stands_behind_the_ollama_bridge() {
    let inner = Started::new(Home::with_model(), "");
    let url = format!("http://{}", inner.address);
    let outer = Started::new(
        Home::with_components(),
        &format!("{ALONE}{}", backend("inner", "ollama", &url)),
    );
    let ask = r#"{"model":"smollm2:latest","stream":false,"options":{"temperature":0,"num_predict":12},"messages":[{"role":"user","content":"Why is the sky blue?"}]}"#;
    let field = |body: &str, name: &str| {
        let at = body.find(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{name}: {body}"));
        let rest = body.split_at(at + name.len() + 3).1;
        rest.split_at(rest.find([',', '}']).unwrap()).0.to_owned()
    };
    let (status, direct) = inner.post("/api/chat", ask);
    assert_eq!(status, 200, "{direct}");
    let (status, bridged) = outer.post("/api/chat", ask);
    assert_eq!(status, 200, "{bridged}");
    for name in ["content", "done_reason", "eval_count", "prompt_eval_count"] {
        assert_eq!(field(&direct, name), field(&bridged, name), "{name}");
    }
    let (status, body) = outer.post("/api/show", r#"{"model":"smollm2:latest"}"#);
    assert_eq!(status, 200, "{body}");
    let (status, body) = outer.chat("no-such-model", false);
    assert_eq!(status, 404, "{body}");
}
