//! Each way in which a server breaks, behind each bridge, in each dialect, streamed and whole: an error
//! that names the back-end and what was seen, in the stream if it has begun, and never a clean end.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod support;

use gristmill_fakes::{Fake, Received, SERVERS, Step};
use serde_json::Value;
use support::{ALONE, Answer, Home, Started, exchange, json};

/// What goes wrong, whether some text came before it, and what is said of it: where servers differ, one
/// or the other.
const FAULTS: [(&str, bool, &[&str]); 11] = [
    ("closed", false, &["the connection ended before its answer began"]),
    ("reset", false, &["the connection ended before its answer began", "reset"]),
    ("silent", false, &["no progress within 700 ms"]),
    ("page", false, &["html page"]),
    ("inside", false, &["out of memory"]),
    ("half-a-frame", true, &["the stream closed before", "ended without", "another shape"]),
    ("no-utf8", true, &["is not UTF-8"]),
    ("no-json", true, &["another shape"]),
    ("no-finish", true, &["the stream closed before", "ended without"]),
    ("stalled", true, &["no progress within 700 ms"]),
    ("endless", true, &["is longer than"]),
];

/// Text, as a server of this kind streams it.
fn frame(kind: &str, model: &str, text: &str) -> Vec<u8> {
    match kind {
        "ollama" => format!(
            "{{\"model\":\"{model}\",\"created_at\":\"2026-11-29T20:00:01Z\",\"message\":{{\"role\":\"assistant\",\"content\":\"{text}\"}},\"done\":false}}\n"
        ),
        _ => format!(
            "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"{model}\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},\"finish_reason\":null}}]}}\n\n"
        ),
    }
    .into_bytes()
}

/// What a server of this kind does when this fault is asked for as its model.
fn breaks(kind: &str, fault: &str) -> Vec<Step> {
    let head = |status: &str, kind: &str| {
        format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n")
            .into_bytes()
    };
    let stream = if kind == "ollama" { "application/x-ndjson" } else { "text/event-stream" };
    let begun = [head("200 OK", stream), frame(kind, fault, "Hel")].concat();
    let then = |more: &[u8], step: Step| vec![Step::Send([&begun, more].concat()), step];
    match fault {
        "closed" => vec![Step::Close],
        "reset" => vec![Step::Reset],
        "silent" => vec![Step::Hang],
        "page" => {
            let page = b"<html><body><h1>502 Bad Gateway page</h1></body></html>";
            vec![
                Step::Send([&head("502 Bad Gateway", "text/html"), &page[..]].concat()),
                Step::Close,
            ]
        }
        "inside" => {
            let error = match kind {
                "ollama" => "{\"error\":\"out of memory\"}\n",
                _ => "{\"error\":{\"message\":\"out of memory\",\"type\":\"server_error\"}}",
            };
            let head = head("200 OK", "application/json");
            vec![Step::Send([&head, error.as_bytes()].concat()), Step::Close]
        }
        "half-a-frame" => {
            let next = frame(kind, fault, "lo");
            then(&next[..next.len() / 2], Step::Close)
        }
        "no-utf8" => {
            let mut next = frame(kind, fault, "__");
            let at = next.windows(2).position(|two| two == b"__").unwrap();
            next[at..at + 2].copy_from_slice(&[0xe6, 0xad]);
            then(&next, Step::Close)
        }
        "no-json" if kind == "ollama" => then(b"{\"message\": [}\n", Step::Close),
        "no-json" => then(b"data: {\"choices\": [}\n\n", Step::Close),
        "no-finish" => then(&frame(kind, fault, "lo"), Step::Close),
        "stalled" => then(b"", Step::Hang),
        "endless" => then(b"data: {\"x\": \"", Step::Endless(vec![b'x'; 1 << 16])),
        other => panic!("no fault {other}"),
    }
}

async fn server(kind: &'static str) -> Fake {
    let names = |form: fn(&str) -> String| {
        FAULTS.iter().map(|(name, ..)| form(name)).collect::<Vec<_>>().join(",")
    };
    let listed = names(|name| format!("{{\"id\":\"{name}\",\"object\":\"model\"}}"));
    let tags = names(|name| format!("{{\"name\":\"{name}\"}}"));
    Fake::start(move |request: &Received| match request.target.as_str() {
        "GET /v1/models" => json(&format!("{{\"object\":\"list\",\"data\":[{listed}]}}")),
        "GET /api/tags" => json(&format!("{{\"models\":[{tags}]}}")),
        "POST /api/show" => json(r#"{"capabilities":["completion","tools"]}"#),
        "GET /props" => json("{}"),
        "GET /version" => json(r#"{"version":"0.20.0"}"#),
        _ => {
            let asked: Value = serde_json::from_slice(&request.body).unwrap_or_default();
            breaks(kind, asked["model"].as_str().unwrap_or_default())
        }
    })
    .await
}

const DIALECTS: [&str; 4] = ["/api/chat", "/v1/chat/completions", "/v1/responses", "/v1/messages"];

fn ask(address: &str, path: &str, model: &str, stream: bool) -> Answer {
    let said = match path {
        "/v1/responses" => r#""input":"hi""#,
        _ => r#""messages":[{"role":"user","content":"hi"}]"#,
    };
    let length = if path == "/v1/messages" { r#","max_tokens":64"# } else { "" };
    let body = format!(r#"{{"model":"{model}","stream":{stream},{said}{length}}}"#);
    exchange(address, "POST", path, "", &body)
}

/// The message of an error as the dialect writes it.
fn message(path: &str, error: &Value) -> String {
    let message = match path {
        "/api/chat" => &error["error"],
        _ => &error["error"]["message"],
    };
    message.as_str().unwrap_or_else(|| panic!("{path}: {error}")).to_owned()
}

/// The last thing in a stream, which must be an error.
fn last(path: &str, body: &str) -> String {
    let line = body.lines().rfind(|line| !line.trim().is_empty()).unwrap();
    let event: Value = serde_json::from_str(line.trim_start_matches("data: ")).unwrap();
    for clean in ["\"done\":true", "data: [DONE]", "message_stop", "response.completed", "\"stop\""]
    {
        assert!(!body.contains(clean), "{path} looks finished: {body}");
    }
    match path {
        "/v1/responses" if event["type"] == "response.failed" => message(path, &event["response"]),
        "/v1/responses" => event["message"].as_str().unwrap_or_else(|| panic!("{body}")).to_owned(),
        _ => message(path, &event),
    }
}

/// Asks for everything that can go wrong behind one bridge.
fn all(address: &str, kind: &str) {
    let mut wrong = Vec::new();
    for (fault, begun, words) in FAULTS {
        for path in DIALECTS {
            for stream in [false, true] {
                let answer = ask(address, path, &format!("{kind}-there/{fault}"), stream);
                let shown =
                    format!("{kind} {fault} {path} {stream}: {} {}", answer.status, answer.body);
                let said = if stream && begun {
                    assert!(answer.status == 200 && answer.body.contains("Hel"), "{shown}");
                    last(path, &answer.body)
                } else {
                    assert!((500..505).contains(&answer.status), "{shown}");
                    message(path, &answer.json())
                };
                let named = said.contains(&format!("back-end {kind}-there: "));
                if !named || !words.iter().any(|word| said.contains(word)) {
                    wrong.push(format!("none of {words:?} in {shown}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Nobody listens there: not a word of another back-end's.
    for path in DIALECTS {
        for stream in [false, true] {
            let answer = ask(address, path, &format!("{kind}-gone/closed"), stream);
            let shown = format!("{kind} gone {path} {stream}: {} {}", answer.status, answer.body);
            assert!((500..505).contains(&answer.status), "{shown}");
            assert!(message(path, &answer.json()).contains(&format!("{kind}-gone")), "{shown}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_breaks_behind_a_bridge_is_said_in_every_dialect() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut configuration = ALONE.to_owned();
    let mut fakes = Vec::new();
    for kind in SERVERS {
        let fake = server(kind).await;
        for (name, url) in [("there", fake.url()), ("gone", format!("http://{nobody}"))] {
            configuration += &format!(
                "[backends.{kind}-{name}]\nplugin = \"{kind}\"\nurl = \"{url}\"\nhead-ms = 700\nidle-ms = 700\n"
            );
        }
        fakes.push(fake);
    }
    let serving = Started::new(Home::with_components(), &configuration);
    let asking: Vec<_> = SERVERS
        .into_iter()
        .map(|kind| {
            let address = serving.address.clone();
            tokio::task::spawn_blocking(move || all(&address, kind))
        })
        .collect();
    for asked in asking {
        asked.await.unwrap();
    }
}
