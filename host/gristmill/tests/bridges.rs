//! `gristmill serve` with `[backends]`: bridges to fake servers, and to another Gristmill behind the
//! `ollama` bridge.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may fail loudly")]

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
};

use gristmill_fakes::{Fake, Received, Step, Transcript};
use gristmill_testing::{components, fetch};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_gristmill");

/// A running `gristmill serve`; stopped when dropped.
struct Serving {
    child: Child,
    address: String,
    _home: TempDir,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Serving {
    /// With this configuration; `model`: with the demo model in its store.
    fn start(configuration: &str, model: bool) -> Self {
        let home = TempDir::new().unwrap();
        let settings = components::share(Path::new(BINARY), home.path()).unwrap();
        fs::write(home.path().join("gristmill.toml"), configuration).unwrap();
        let command = |arguments: &[&str]| {
            let mut command = Command::new(BINARY);
            command
                .args(arguments)
                .current_dir(home.path())
                .env("XDG_DATA_HOME", home.path().join("data"))
                .envs(settings.iter().map(|(name, value)| (name, value)))
                .stdin(Stdio::null());
            command
        };
        if model {
            let file = fetch::smollm2().unwrap();
            let import = ["import", file.to_str().unwrap(), "--name", "smollm2"];
            assert!(command(&import).output().unwrap().status.success());
        }
        let mut child = command(&["serve", "--server-listen", "127.0.0.1:0"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        let address = loop {
            let from = said.len();
            assert!(log.read_line(&mut said).unwrap() > 0, "the server ended early:\n{said}");
            let line = said.split_at(from).1;
            if line.contains("listening on") {
                break line.trim().rsplit("http://").next().unwrap().to_owned();
            }
        };
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Self { child, address, _home: home }
    }

    /// Status and body of an answer, chunks joined.
    fn post(&self, path: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "POST {path} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, body.to_owned())
    }

    fn chat(&self, model: &str, stream: bool) -> (u16, String) {
        let body = format!(
            r#"{{"model":"{model}","stream":{stream},"messages":[{{"role":"user","content":"hi"}}]}}"#
        );
        self.post("/v1/chat/completions", &body)
    }
}

/// A server of this kind that lists one model and answers with this transcript.
async fn server(kind: &'static str, model: &'static str, case: &'static str) -> Fake {
    let json = |body: String| {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json";
        let wire = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        vec![Step::Send(wire.into_bytes())]
    };
    Fake::start(move |request: &Received| match request.target.as_str() {
        "GET /v1/models" => json(format!(r#"{{"object":"list","data":[{{"id":"{model}"}}]}}"#)),
        "GET /api/tags" => json(format!(r#"{{"models":[{{"name":"{model}"}}]}}"#)),
        "POST /api/show" => json(r#"{"capabilities":["completion","tools"]}"#.to_owned()),
        "GET /props" => json("{}".to_owned()),
        _ => Transcript::named(kind, case).steps(),
    })
    .await
}

fn backend(name: &str, plugin: &str, url: &str) -> String {
    format!("[backends.{name}]\nplugin = \"{plugin}\"\nurl = \"{url}\"\n")
}

const ALONE: &str = "[plugins]\nbackend = \"\"\n";

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
    let serving = Serving::start(&configuration, false);
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
    let serving = Serving::start(&configuration, false);
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
    let inner = Serving::start("", true);
    let url = format!("http://{}", inner.address);
    let outer = Serving::start(&format!("{ALONE}{}", backend("inner", "ollama", &url)), false);
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
