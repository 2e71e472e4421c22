//! The ledger's commands beside a host that serves from it: what is put in force there answers here,
//! nobody is dropped on the way, and what is not proven does not answer.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use gristmill_testing::guests;
use serde_json::{Value, json};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_gristmill");

/// A machine of its own with an empty ledger.
struct Home {
    folder: TempDir,
}

impl Home {
    fn new() -> Self {
        let home = Self { folder: TempDir::new().unwrap() };
        for folder in ["plugins", "ledger", "policies/grants"] {
            fs::create_dir_all(home.path(folder)).unwrap();
        }
        let grant = "kind = 'backend'\nimports = ['gristmill:contract/*', 'wasi:cli/*', 'wasi:clocks/*', 'wasi:io/*']\n";
        fs::write(home.path("policies/grants/voice.toml"), grant).unwrap();
        home
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env("XDG_DATA_HOME", self.path("data"))
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("GRISTMILL_PATHS_PLUGINS", self.path("plugins"))
            .env("GRISTMILL_PATHS_LEDGER", self.path("ledger"))
            .env("GRISTMILL_PATHS_POLICIES", self.path("policies"))
            .env("GRISTMILL_PLUGINS_BACKEND", "voice")
            .env("GRISTMILL_PLUGINS_FAMILIES", "")
            .stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn says(&self, arguments: &[&str]) -> String {
        let done = self.run(arguments);
        let error = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{arguments:?}: {error}");
        String::from_utf8(done.stdout).unwrap()
    }

    fn refuses(&self, arguments: &[&str], word: &str) {
        let done = self.run(arguments);
        let error = String::from_utf8_lossy(&done.stderr);
        assert!(!done.status.success() && error.contains(word), "{arguments:?}: {error}");
    }

    /// Proposes a guest as `voice` and puts it in force.
    fn promote(&self, guest: &str) {
        self.propose(guest);
        self.says(&["ledger", "promote", "voice"]);
    }

    fn propose(&self, guest: &str) {
        let file = self.path(&format!("{guest}.wasm"));
        fs::write(&file, guests::guest(guest).unwrap()).unwrap();
        self.says(&["ledger", "pin", "voice", file.to_str().unwrap()]);
    }

    fn serve(&self) -> Serving {
        let mut child = self
            .command(&["serve", "--server-listen", "127.0.0.1:0"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let (mut said, mut line) = (String::new(), String::new());
        while !line.contains("listening on") {
            line.clear();
            assert!(log.read_line(&mut line).unwrap() > 0, "the server ended early:\n{said}");
            said.push_str(&line);
        }
        thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        let address = line.trim().rsplit("http://").next().unwrap().to_owned();
        Serving { child, address }
    }
}

struct Serving {
    child: Child,
    address: String,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn exchange(address: &str, method: &str, path: &str, body: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    write!(stream, "{head}Content-Length: {length}\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    (status, serde_json::from_str(body).unwrap_or_else(|_| panic!("not JSON: {answer}")))
}

/// Whose answer it is: the component tells its own name.
fn voice(address: &str) -> Result<String, String> {
    let body = json!({"model": "teller", "prompt": "1", "stream": false, "raw": true}).to_string();
    let (status, answer) = exchange(address, "POST", "/api/generate", &body);
    match status {
        200 => Ok(answer["response"].as_str().unwrap().trim().to_owned()),
        _ => Err(format!("{status} {answer}")),
    }
}

impl Serving {
    /// Asks until this one answers.
    fn until(&self, name: &str) {
        let begun = Instant::now();
        loop {
            let found = voice(&self.address).unwrap();
            if found == name {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{found} instead of {name}");
        }
    }

    /// Asks `/readyz` until it says this of the ledger.
    fn ready(&self, wanted: impl Fn(&str) -> bool) {
        let begun = Instant::now();
        loop {
            let (_, found) = exchange(&self.address, "GET", "/readyz", "");
            if wanted(&found.to_string()) {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{found}");
        }
    }
}

#[test]
fn a_promotion_and_a_rollback_move_the_traffic_and_drop_nobody() {
    let home = Home::new();
    home.promote("teller");
    let serving = home.serve();
    serving.until("teller");

    let stop = Arc::new(AtomicBool::new(false));
    let (address, stopped) = (serving.address.clone(), Arc::clone(&stop));
    let crowd = thread::spawn(move || {
        let mut answers = Vec::new();
        while !stopped.load(Ordering::Relaxed) {
            answers.push(voice(&address));
        }
        answers
    });
    home.promote("teller_next");
    serving.until("teller-next");
    home.says(&["ledger", "rollback", "voice"]);
    serving.until("teller");
    stop.store(true, Ordering::Relaxed);
    for answer in crowd.join().unwrap() {
        let name = answer.unwrap();
        assert!(name == "teller" || name == "teller-next", "{name}");
    }

    let log = home.says(&["ledger", "log", "voice"]);
    for word in ["promotion", "rollback", "sequence 2", "[ledger rollback]"] {
        assert!(log.contains(word), "{word}: {log}");
    }
    assert!(home.says(&["ledger", "verify"]).contains("sound"));
    assert!(home.says(&["ledger", "status"]).contains("voice"));
}

#[test]
fn a_changed_file_is_followed_and_a_broken_one_is_not() {
    let home = Home::new();
    home.promote("teller");
    let serving = home.serve();
    serving.until("teller");
    let place = home.path("ledger/pins/voice.toml");
    let good = fs::read_to_string(&place).unwrap();

    // Half written by an editor: what answers goes on, and readiness tells.
    fs::write(&place, good.split_at(good.len() / 2).0).unwrap();
    serving.ready(|found| found.contains("voice"));
    assert_eq!(voice(&serving.address).unwrap(), "teller");
    fs::write(&place, &good).unwrap();
    serving.ready(|found| !found.contains("invalid-pin"));

    // A pin for bytes that are not there is refused, by its word.
    let other = good.replace("sequence = 1", "sequence = 2");
    let digest = other.lines().find(|line| line.starts_with("sha256")).unwrap().to_owned();
    fs::write(&place, other.replace(&digest, &format!("sha256 = \"{}\"", "0".repeat(64)))).unwrap();
    serving.ready(|found| found.contains("digest-mismatch") || found.contains("voice"));
    assert_eq!(voice(&serving.address).unwrap(), "teller");
    fs::write(&place, &good).unwrap();

    // A reviewed change: the candidate in the pin's place, and what it follows in the history.
    home.propose("teller_next");
    fs::create_dir_all(home.path("ledger/history/voice")).unwrap();
    fs::copy(&place, home.path("ledger/history/voice/1.toml")).unwrap();
    fs::rename(home.path("ledger/candidates/voice.toml"), &place).unwrap();
    serving.until("teller-next");
    let log = home.says(&["ledger", "log", "voice"]);
    assert!(log.contains("[a changed file]") && log.contains("generation 2"), "{log}");
}

#[test]
fn what_was_revoked_does_not_start() {
    let home = Home::new();
    home.promote("teller");
    let digest = gristmill_ledger::sha256(&guests::guest("teller").unwrap());
    home.says(&["ledger", "revoke", "--digest", &digest, "--reason", "it leaks"]);
    let serve = ["serve", "--server-listen", "127.0.0.1:0"];
    home.refuses(&serve, "refused (revoked)");
    // Without the file the log still knows that there was one.
    fs::remove_file(home.path("ledger/revoked.toml")).unwrap();
    home.refuses(&serve, "revoked.toml");
}

#[test]
fn what_lacks_signatures_or_was_revoked_is_refused_with_its_word() {
    let home = Home::new();
    home.promote("teller");
    let key = home.path("key");
    let public = home.says(&["ledger", "keygen", key.to_str().unwrap()]);
    home.refuses(&["ledger", "keygen", key.to_str().unwrap()], "exists");
    home.refuses(&["ledger", "trust", "ada", "not a key"], "Ed25519 public key");
    home.says(&["ledger", "trust", "ada", public.trim()]);

    home.propose("teller_next");
    home.refuses(&["ledger", "promote", "voice"], "signature");
    home.says(&["ledger", "sign", "voice", "--key", key.to_str().unwrap()]);
    // Where keys are asked for, so is all that qualifies it.
    home.refuses(&["ledger", "promote", "voice"], "evidence");

    let digest = gristmill_ledger::sha256(&guests::guest("teller_next").unwrap());
    home.says(&["ledger", "revoke", "--digest", &digest, "--reason", "it was wrong"]);
    home.refuses(&["ledger", "promote", "voice"], "it was wrong");
    let log = home.says(&["ledger", "log"]);
    for word in ["(signature-threshold)", "(evidence-missing)", "revocation", "(revoked)"] {
        assert!(log.contains(word), "{word}: {log}");
    }
}

#[test]
fn a_component_that_breaks_is_taken_back_and_the_ledger_says_why() {
    let home = Home::new();
    home.promote("teller");
    let serving = home.serve();
    serving.until("teller");
    home.promote("teller_worse");
    serving.until("teller-worse");
    let body = json!({"model": "teller", "prompt": "1 trap", "stream": false, "raw": true});
    let begun = Instant::now();
    while voice(&serving.address).unwrap() != "teller" {
        exchange(&serving.address, "POST", "/api/generate", &body.to_string());
        assert!(begun.elapsed() < Duration::from_secs(60), "it serves on");
    }
    let begun = Instant::now();
    loop {
        let log = home.says(&["ledger", "log", "voice"]);
        if log.contains("rollback") && (log.contains("guardrail") || log.contains("quarantined")) {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{log}");
    }
    serving.until("teller");
    assert!(home.says(&["ledger", "verify"]).contains("sound"));
}
