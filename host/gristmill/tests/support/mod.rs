//! A running `gristmill serve`, and fake servers for its bridges.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "shared by test files, each of which uses a part; tests may fail loudly"
)]

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::Duration,
};

use gristmill_fakes::{Fake, Received, Step, Transcript};
use gristmill_testing::{components, fetch};
use tempfile::TempDir;

pub const BINARY: &str = env!("CARGO_BIN_EXE_gristmill");

/// A running `gristmill serve`; stopped when dropped.
pub struct Serving {
    pub child: Child,
    pub address: String,
    pub home: TempDir,
    lines: mpsc::Receiver<String>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Serving {
    /// With this configuration; `model`: with the demo model in its store.
    pub fn start(configuration: &str, model: bool) -> Self {
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
        let (line, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for text in log.lines().map_while(Result::ok) {
                let _ = line.send(text);
            }
        });
        Self { child, address, home, lines }
    }

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

    /// A file below its home.
    pub fn path(&self, file: &str) -> PathBuf {
        self.home.path().join(file)
    }

    /// Status and body of an answer, chunks joined.
    pub fn post(&self, path: &str, body: &str) -> (u16, String) {
        let (head, body) = self.answer(path, "", body);
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body)
    }

    /// Head and body of an answer; `headers`: lines of the request's own.
    pub fn answer(&self, path: &str, headers: &str, body: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "POST {path} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             {headers}Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        (head.to_owned(), body.to_owned())
    }

    pub fn chat(&self, model: &str, stream: bool) -> (u16, String) {
        let body = format!(
            r#"{{"model":"{model}","stream":{stream},"messages":[{{"role":"user","content":"hi"}}]}}"#
        );
        self.post("/v1/chat/completions", &body)
    }
}

/// A server of this kind that lists one model and answers with this transcript.
pub async fn server(kind: &'static str, model: &'static str, case: &'static str) -> Fake {
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

/// A section of the configuration.
pub fn backend(name: &str, plugin: &str, url: &str) -> String {
    format!("[backends.{name}]\nplugin = \"{plugin}\"\nurl = \"{url}\"\n")
}

/// No back-end but the bridges.
pub const ALONE: &str = "[plugins]\nbackend = \"\"\n";
