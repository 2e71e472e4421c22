//! A machine of its own, what the binary says on it, a running `gristmill serve`, and fake servers for
//! its bridges.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "shared by test files, each of which uses a part; tests may fail loudly"
)]

pub mod voice;

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    ops::Deref,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::mpsc,
    time::Duration,
};

use gristmill_fakes::{Fake, Received, Step, Transcript};
use gristmill_ledger::sha256;
use gristmill_testing::{components, fetch};
use serde_json::{Value, json};
use tempfile::TempDir;

pub const BINARY: &str = env!("CARGO_BIN_EXE_gristmill");

/// A machine of its own: a home, a store, components and their pins.
pub struct Home {
    folder: TempDir,
    settings: Vec<(&'static str, PathBuf)>,
}

impl Home {
    /// Without components.
    pub fn empty() -> Self {
        Self { folder: TempDir::new().unwrap(), settings: Vec::new() }
    }

    /// With the first-party components.
    pub fn with_components() -> Self {
        let folder = TempDir::new().unwrap();
        let settings = components::share(Path::new(BINARY), folder.path()).unwrap();
        Self { folder, settings }
    }

    /// With the demo model too.
    pub fn with_model() -> Self {
        let home = Self::with_components();
        let file = fetch::smollm2().unwrap();
        home.says(&["import", file.to_str().unwrap(), "--name", "smollm2"]);
        home
    }

    /// With this setting in the environment of every command.
    pub fn set(mut self, variable: &'static str, value: impl Into<PathBuf>) -> Self {
        self.settings.push((variable, value.into()));
        self
    }

    /// A file below it.
    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env("XDG_DATA_HOME", self.path("data"))
            .envs(self.settings.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// What a command that must succeed prints.
    pub fn says(&self, arguments: &[&str]) -> String {
        let done = self.run(arguments);
        assert!(done.status.success(), "{arguments:?}: {}", text(&done.stderr));
        text(&done.stdout).trim().to_owned()
    }

    /// A command that must fail says this.
    pub fn refuses(&self, arguments: &[&str], word: &str) {
        let done = self.run(arguments);
        let error = text(&done.stderr);
        assert!(!done.status.success() && error.contains(word), "{arguments:?}: {error}");
    }

    /// `gristmill serve` with these flags.
    pub fn serve(&self, flags: &[&str]) -> Serving {
        Self::serves(self.command(&["serve", "--server-listen", "127.0.0.1:0"]), flags)
    }

    /// The same of a command that was made for it.
    pub fn serves(mut command: Command, flags: &[&str]) -> Serving {
        let mut child = command.args(flags).stderr(Stdio::piped()).spawn().unwrap();
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
        let (line, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for text in log.lines().map_while(Result::ok) {
                let _ = line.send(text);
            }
        });
        Serving { child, address, lines }
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A running `gristmill serve`; stopped when dropped.
pub struct Serving {
    pub child: Child,
    pub address: String,
    lines: mpsc::Receiver<String>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Serving {
    /// Waits for a line of its log with this word, and returns what was logged up to it.
    pub fn says(&self, word: &str) -> String {
        let mut said = String::new();
        while !said.contains(word) {
            let line = self.lines.recv_timeout(Duration::from_secs(60));
            said += &line.unwrap_or_else(|_| panic!("{word} is not in the log:\n{said}"));
            said.push('\n');
        }
        said
    }

    /// Status and body of an answer.
    pub fn post(&self, path: &str, body: &str) -> (u16, String) {
        let answer = exchange(&self.address, "POST", path, "", body);
        (answer.status, answer.body)
    }

    /// Head and body of an answer; `headers`: lines of the request's own.
    pub fn answer(&self, path: &str, headers: &str, body: &str) -> (String, String) {
        let answer = exchange(&self.address, "POST", path, headers, body);
        (answer.head, answer.body)
    }

    pub fn chat(&self, model: &str, stream: bool) -> (u16, String) {
        let body = format!(
            r#"{{"model":"{model}","stream":{stream},"messages":[{{"role":"user","content":"hi"}}]}}"#
        );
        self.post("/v1/chat/completions", &body)
    }
}

/// An answer over HTTP.
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("not JSON: {}", self.body))
    }
}

/// Asks whoever listens there; `headers`: lines of the request's own.
pub fn exchange(address: &str, method: &str, path: &str, headers: &str, body: &str) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    // In this version bodies come whole, and the connection ends with them.
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         {headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

/// A host that serves on a machine of its own.
pub struct Started {
    pub home: Home,
    serving: Serving,
}

impl Deref for Started {
    type Target = Serving;

    fn deref(&self) -> &Serving {
        &self.serving
    }
}

impl Started {
    /// With this configuration.
    pub fn new(home: Home, configuration: &str) -> Self {
        fs::write(home.path("gristmill.toml"), configuration).unwrap();
        let serving = home.serve(&[]);
        Self { home, serving }
    }
}

/// A server of this kind that lists one model and answers with this transcript.
pub async fn server(kind: &'static str, model: &'static str, case: &'static str) -> Fake {
    Fake::start(move |request: &Received| match request.target.as_str() {
        "GET /v1/models" => json(&format!(r#"{{"object":"list","data":[{{"id":"{model}"}}]}}"#)),
        "GET /api/tags" => json(&format!(r#"{{"models":[{{"name":"{model}"}}]}}"#)),
        "POST /api/show" => json(r#"{"capabilities":["completion","tools"]}"#),
        "GET /props" => json("{}"),
        _ => Transcript::named(kind, case).steps(),
    })
    .await
}

/// What a fake server answers with this body.
pub fn json(body: &str) -> Vec<Step> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json";
    let wire = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    vec![Step::Send(wire.into_bytes())]
}

/// One component as a registry has it, under the tag `1.0`.
pub struct Artifact {
    pub component: Vec<u8>,
    manifest: String,
}

impl Artifact {
    pub fn new(component: Vec<u8>) -> Self {
        let (config, size) = ("application/vnd.wasm.config.v0+json", component.len());
        let digest = format!("sha256:{}", sha256(&component));
        let manifest = json!({
            "schemaVersion": 2,
            "config": { "mediaType": config, "digest": "sha256:", "size": 2 },
            "layers": [{ "mediaType": "application/wasm", "digest": digest, "size": size }],
        });
        Self { component, manifest: manifest.to_string() }
    }

    /// What its tag is resolved to.
    pub fn digest(&self) -> String {
        format!("sha256:{}", sha256(self.manifest.as_bytes()))
    }

    /// The registry's answer to a request for this.
    pub fn answer(&self, target: &str) -> Vec<Step> {
        let blob = format!("/blobs/sha256:{}", sha256(&self.component));
        let body = if target.ends_with("/manifests/1.0") {
            self.manifest.as_bytes()
        } else if target.ends_with(&blob) {
            &self.component
        } else {
            return vec![Step::Send(b"HTTP/1.1 404 X\r\ncontent-length: 0\r\n\r\n".to_vec())];
        };
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        vec![Step::Send([head.as_bytes(), body].concat())]
    }
}

/// A section of the configuration.
pub fn backend(name: &str, plugin: &str, url: &str) -> String {
    format!("[backends.{name}]\nplugin = \"{plugin}\"\nurl = \"{url}\"\n")
}

/// No back-end but the bridges.
pub const ALONE: &str = "[plugins]\nbackend = \"\"\n";
