//! What goes wrong on the disk beside a host that serves: what answers goes on, `/readyz` says which file
//! and what to do, and once it is mended all is well.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod support;

use std::{
    fs,
    net::{TcpListener, TcpStream},
    os::unix::{fs::PermissionsExt as _, fs::chown, process::CommandExt as _},
    path::Path,
    process::{Child, Command},
};

use gristmill_ledger::{Date, Keeper, Revoke, sha256};
use serde_json::{Value, json};
use support::{
    Serving, exchange,
    voice::{Home, answers, ready, said, until, voice},
};

const NEXT: &str = "teller-next";
const WORSE: &str = "teller-worse";

/// A host with one component and another that was there before it.
fn serving() -> (Home, Serving) {
    let home = Home::new();
    home.promote("teller");
    home.promote("teller_next");
    let serving = home.serve(&[]);
    answers(&serving, NEXT);
    ready(&serving, |found| found.contains("\"problems\":[]"));
    (home, serving)
}

/// Waits until `/readyz` has this problem; what it says of it. What answers goes on meanwhile.
fn told(serving: &Serving, name: &str, code: &str) -> String {
    let mut message = String::new();
    until(
        || exchange(&serving.address, "GET", "/readyz", "", "").body,
        |found| {
            let found: Value = serde_json::from_str(found).unwrap();
            assert_eq!(found["ready"], true, "{found}");
            let problems = found["problems"].as_array().unwrap();
            let one = problems.iter().find(|problem| problem["code"] == code);
            one.is_some()
        },
    );
    let found = exchange(&serving.address, "GET", "/readyz", "", "").json();
    for problem in found["problems"].as_array().unwrap() {
        if problem["code"] == code {
            message = problem["message"].as_str().unwrap().to_owned();
        }
    }
    assert_eq!(voice(&serving.address), Ok(name.to_owned()), "{code}");
    message
}

fn well(serving: &Serving, name: &str) {
    ready(serving, |found| found.contains("\"problems\":[]"));
    assert_eq!(voice(&serving.address), Ok(name.to_owned()));
}

#[test]
fn two_pins_for_one_name() {
    let (home, serving) = serving();
    home.propose("teller");
    let copy = home.path("ledger/pins/copy.toml");
    fs::rename(home.path("ledger/candidates/voice.toml"), &copy).unwrap();
    // Neither is taken for the other's: the second one is proven under no name.
    let said = serving.says("the ledger is not followed");
    assert!(said.contains("duplicate-pin"), "{said}");
    let message = told(&serving, NEXT, "duplicate-pin");
    assert!(message.contains("pins/copy.toml") && message.contains("remove"), "{message}");
    home.refuses(&["ledger", "status"], "copy.toml");
    assert!(!home.says(&["ledger", "log"]).contains("sequence 3"));
    fs::remove_file(copy).unwrap();
    well(&serving, NEXT);
}

#[test]
fn a_pin_for_a_missing_or_a_changed_file() {
    let (home, serving) = serving();
    let pin = fs::read_to_string(home.path("ledger/pins/voice.toml")).unwrap();
    let file = pin.lines().find_map(|line| line.strip_prefix("file = ")).unwrap();
    let file = home.path("plugins").join(file.trim_matches('"'));
    let whole = fs::read(&file).unwrap();
    fs::remove_file(&file).unwrap();
    let message = told(&serving, NEXT, "component-missing");
    let name = file.file_name().unwrap().to_str().unwrap();
    assert!(message.contains(name) && message.contains("build or fetch"), "{message}");
    home.refuses(&["serve", "--server-listen", "127.0.0.1:0"], name);
    let mut other = whole.clone();
    other[100] ^= 1;
    fs::write(&file, other).unwrap();
    assert!(told(&serving, NEXT, "digest-mismatch").contains("pins/voice.toml"));
    fs::write(&file, whole).unwrap();
    well(&serving, NEXT);
}

#[test]
fn a_cycle_of_rollbacks() {
    let (home, serving) = serving();
    home.propose("teller_next");
    let candidate = home.path("ledger/candidates/voice.toml");
    let text = fs::read_to_string(&candidate).unwrap();
    let text = text.replace("sequence = 3\n", "sequence = 3\nrollback = 3\n");
    fs::write(&candidate, text).unwrap();
    home.says(&["ledger", "promote", "voice"]);
    let message = told(&serving, NEXT, "rollback-cycle");
    assert!(message.contains("pins/voice.toml") && message.contains("--to"), "{message}");
    home.refuses(&["ledger", "rollback", "voice"], "goes back to 3");
    let key = home.says(&["key", "add", "boss", "--operator"]);
    let key = format!("x-api-key: {key}\r\n");
    let body = json!({ "name": "voice" }).to_string();
    let answer = exchange(&serving.address, "POST", "/v1/ledger/rollback", &key, &body);
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (409, &json!("rollback-cycle")));
    // Named, there is a way.
    let body = json!({ "name": "voice", "to": 2 }).to_string();
    let answer = exchange(&serving.address, "POST", "/v1/ledger/rollback", &key, &body);
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(home.says(&["ledger", "log", "voice"]).contains("rollback   voice sequence 2"));
    let ready = || exchange(&serving.address, "GET", "/readyz", &key, "").body;
    until(ready, |found| found.contains("\"problems\":[]"));
}

#[test]
fn a_clock_that_was_set_back() {
    let (home, serving) = serving();
    // As if the last change had been made while the clock was ahead.
    let state = home.path("data/gristmill/ledger-seen.toml");
    let mut keeper = Keeper::open(&home.path("ledger"), Some(&state)).unwrap();
    let later: Date = "2999-01-01T00:00:00Z".parse().unwrap();
    let log = home.path("ledger/log.jsonl");
    let before = fs::read(&log).unwrap();
    let stranger = sha256(b"a stranger");
    keeper.revoke(Revoke::Digest(&stranger), "it leaks", later, "a test").unwrap();
    drop(keeper);
    let message = told(&serving, NEXT, "clock-set-back");
    for word in ["log.jsonl", "2999-01-01", "set the clock"] {
        assert!(message.contains(word), "{word}: {message}");
    }
    home.propose("teller");
    home.refuses(&["ledger", "promote", "voice"], "set the clock");
    home.refuses(&["serve", "--server-listen", "127.0.0.1:0"], "clock-set-back");
    fs::remove_file(home.path("ledger/revoked.toml")).unwrap();
    fs::write(&log, before).unwrap();
    well(&serving, NEXT);
}

#[test]
fn quarantine_that_cannot_be_written_is_told_and_written_as_soon_as_it_can_be() {
    let home = Home::new();
    home.promote("teller");
    home.promote("teller_worse");
    let serving = home.serve(&[]);
    answers(&serving, WORSE);
    let log = home.path("ledger/log.jsonl");
    let before = fs::read(&log).unwrap();
    fs::write(&log, [&before[..], b"tampered\n"].concat()).unwrap();
    ready(&serving, |found| found.contains("log-tampered"));
    for _ in 0..5 {
        assert!(said(&serving.address, "1 trap").is_err());
    }
    // Nothing was before it in this process, so it answers on.
    ready(&serving, |found| found.contains("quarantine-unrecorded") && found.contains("log.jsonl"));
    assert_eq!(voice(&serving.address), Ok(WORSE.to_owned()));
    fs::write(&log, before).unwrap();
    ready(&serving, |found| !found.contains("quarantine-unrecorded"));
    // And now the ledger knows where to go back to.
    answers(&serving, "teller");
    let said = home.says(&["ledger", "log", "voice"]);
    let at = |word: &str| said.find(word).unwrap_or_else(|| panic!("{word}: {said}"));
    assert!(at(" quarantine ") < at(" rollback "), "{said}");
}

/// Sets the longest file that a process may write, as a full disk would.
fn limit(serving: &Serving, bytes: &str) {
    let pid = serving.child.id().to_string();
    let done = Command::new("prlimit").args(["--pid", &pid, &format!("--fsize={bytes}:")]).status();
    assert!(done.unwrap().success());
}

#[test]
fn a_disk_that_is_full_at_the_log() {
    let home = Home::new();
    home.promote("teller");
    home.promote("teller_worse");
    let key = home.says(&["key", "add", "boss", "--operator"]);
    let key = format!("x-api-key: {key}\r\n");
    // Beyond its limit a process gets a signal and not only an error, unless it does not want it.
    let serve = home.command(&["serve", "--server-listen", "127.0.0.1:0"]);
    let mut command = Command::new("bash");
    command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]).arg(serve.get_program());
    command.args(serve.get_args()).envs(serve.get_envs().filter_map(|(k, v)| Some((k, v?))));
    let serving = support::Home::serves(command, &[]);
    let ask =
        |method: &str, path: &str, body: &str| exchange(&serving.address, method, path, &key, body);
    let tell = |prompt: &str| {
        let body = json!({ "model": "teller", "prompt": prompt, "stream": false, "raw": true });
        ask("POST", "/api/generate", &body.to_string())
    };
    let log = home.path("ledger/log.jsonl");
    let before = fs::read(&log).unwrap();
    limit(&serving, &before.len().to_string());

    let stranger = json!({ "kind": "digest", "digest": sha256(b"a stranger"), "reason": "r" });
    let refused = ask("POST", "/v1/ledger/revoke", &stranger.to_string()).json();
    assert_eq!(refused["error"]["code"], "ledger-full", "{refused}");
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("log.jsonl") && message.contains("free space"), "{message}");
    for _ in 0..5 {
        assert_eq!(tell("1 trap").status, 502);
    }
    let said = serving.says("a restart forgets it");
    assert!(said.contains("ledger-full"), "{said}");
    let ready = || ask("GET", "/readyz", "").body;
    until(ready, |found| found.contains("quarantine-unrecorded"));
    assert!(tell("1").body.contains("teller-worse"));
    assert_eq!(fs::read(&log).unwrap(), before, "no part of a line stays");
    assert!(!home.path("ledger/revoked.toml").exists());

    limit(&serving, "unlimited");
    let pid = serving.child.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    until(|| tell("1").body, |found| found.contains("\"teller \""));
    until(ready, |found| found.contains("\"problems\":[]"));
    let log = home.says(&["ledger", "log", "voice"]);
    assert!(log.contains(" quarantine ") && log.contains("[quarantined]"), "{log}");
}

/// A process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_disk_that_is_full_where_its_own_log_goes() {
    let home = Home::new();
    home.promote("teller");
    // What it says goes to a full disk, so it cannot tell where it listens.
    let free = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let serve = home.command(&["serve", "--server-listen", &address]);
    let mut command = Command::new("bash");
    command.args(["-c", "exec \"$0\" \"$@\" 2> /dev/full"]).arg(serve.get_program());
    command.args(serve.get_args()).envs(serve.get_envs().filter_map(|(k, v)| Some((k, v?))));
    let mut running = Ended(command.spawn().unwrap());
    until(
        || format!("{:?}", (TcpStream::connect(&address).is_ok(), running.0.try_wait().unwrap())),
        |found| found == "(true, None)",
    );
    for _ in 0..3 {
        assert_eq!(voice(&address), Ok("teller".to_owned()));
    }
}

/// Everything below a folder becomes this user's.
fn give(path: &Path, user: u32) {
    chown(path, Some(user), Some(user)).unwrap();
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            give(&entry.unwrap().path(), user);
        }
    }
}

#[test]
fn permissions_that_were_lost() {
    let home = Home::new();
    home.promote("teller");
    home.promote("teller_worse");
    let log = home.path("ledger/log.jsonl");
    let mode = |mode: u32| fs::set_permissions(&log, fs::Permissions::from_mode(mode)).unwrap();
    // Whoever may do everything becomes somebody who may not.
    mode(0o000);
    let mut command = home.command(&["serve", "--server-listen", "127.0.0.1:0"]);
    if fs::read(&log).is_ok() {
        command.uid(65_534).gid(65_534);
        give(&home.path(""), 65_534);
    }
    mode(0o644);
    let serving = support::Home::serves(command, &[]);
    answers(&serving, WORSE);
    mode(0o000);
    let message = told(&serving, WORSE, "ledger-unreadable");
    assert!(message.contains("log.jsonl") && message.contains("right to read"), "{message}");
    mode(0o444);
    well(&serving, WORSE);
    // Readable, and no more: what the host has to write is told, and written when it may.
    for _ in 0..5 {
        assert!(said(&serving.address, "1 trap").is_err());
    }
    let message = told(&serving, WORSE, "quarantine-unrecorded");
    assert!(message.contains("log.jsonl") && message.contains("can be written"), "{message}");
    mode(0o644);
    answers(&serving, "teller");
    well(&serving, "teller");
}
