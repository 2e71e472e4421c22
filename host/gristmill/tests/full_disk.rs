//! The ledger's disk is full, really: a file system of a few pages, and a host that serves from it. Whatever
//! was about to happen, what answers goes on, the error names the file and what to do, and once there is
//! room all is well.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod support;

use std::{
    fs::{self, File},
    io::{ErrorKind, Write as _},
    path::{Path, PathBuf},
    process::Command,
};

use gristmill_ledger::{Date, Keeper, Revoke, sha256};
use serde_json::{Value, json};
use support::{
    exchange,
    voice::{Home, answers, ready, said, voice},
};

/// A file system of its own, of 512 KiB.
struct Disk(PathBuf);

impl Disk {
    /// None, and why is printed, where this user may not mount.
    fn mount(at: &Path) -> Option<Self> {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=512k", "gristmill-test"])
            .arg(at)
            .output()
            .unwrap();
        if mounted.status.success() {
            return Some(Self(at.to_owned()));
        }
        let why = String::from_utf8_lossy(&mounted.stderr).into_owned();
        println!("skipped: a file system cannot be mounted here: {why}");
        None
    }

    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }

    /// Takes all the room there is; how many bytes that is.
    fn fill(&self) -> u64 {
        let mut file = File::create(self.ballast()).unwrap();
        loop {
            if let Err(error) = file.write_all(&[0; 4096]) {
                assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
                return file.metadata().unwrap().len();
            }
        }
    }

    /// Leaves so much of it.
    fn shrink(&self, bytes: u64) {
        File::options().write(true).open(self.ballast()).unwrap().set_len(bytes).unwrap();
    }

    fn empty(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// The files of the ledger, but for what the test itself put there.
fn ledger(home: &Home) -> Vec<(PathBuf, Vec<u8>)> {
    fn below(folder: &Path, found: &mut Vec<(PathBuf, Vec<u8>)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                below(&path, found);
            } else if path.file_name().unwrap() != "ballast" {
                found.push((path.clone(), fs::read(&path).unwrap()));
            }
        }
    }
    let mut found = Vec::new();
    below(&home.path("ledger"), &mut found);
    found.sort();
    found
}

#[test]
fn a_promotion_without_room_changes_nothing_and_is_done_as_soon_as_there_is_some() {
    let home = Home::new();
    let Some(disk) = Disk::mount(&home.path("ledger")) else { return };
    home.promote("teller");
    without_reserve(&home);
    let key = home.says(&["key", "add", "boss", "--operator"]);
    let head = format!("x-api-key: {key}\r\n");
    let serving = home.serve(&[]);
    let ask = |method: &str, path: &str, body: &Value| {
        let answer = exchange(&serving.address, method, path, &head, &body.to_string());
        (answer.status, answer.json())
    };
    let tells = || {
        let body = json!({ "model": "teller", "prompt": "1", "stream": false, "raw": true });
        ask("POST", "/api/generate", &body).1["response"].as_str().unwrap().trim().to_owned()
    };
    let problems = || ask("GET", "/readyz", &json!({})).1["problems"].clone();
    home.propose("teller_next");
    let promote = || ask("POST", "/v1/ledger/promote", &json!({ "name": "voice" }));

    let before = ledger(&home);
    let mut taken = disk.fill();
    let mut refused = Vec::new();
    // A page more each time, until there is enough: the disk is full at each step in turn.
    let swap = loop {
        let (status, answer) = promote();
        if status == 200 {
            break answer;
        }
        let error = &answer["error"];
        assert_eq!((status, &error["code"]), (500, &json!("ledger-full")), "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("free space on this disk"), "{message}");
        let file = message.strip_prefix("cannot write ").unwrap().split(": ").next().unwrap();
        assert!(Path::new(file).starts_with(home.path("ledger")), "{message}");
        refused.push(file.rsplit('/').next().unwrap().to_owned());
        assert_eq!((tells(), problems()), ("teller".to_owned(), json!([])), "{message}");
        // Of what was before nothing is changed; the superseded pin may be kept already.
        let after = ledger(&home);
        let kept = after.iter().filter(|it| !before.contains(it)).collect::<Vec<_>>();
        assert!(before.iter().all(|it| after.contains(it)), "{message}");
        assert!(
            kept.iter().all(|(path, bytes)| path.ends_with("history/voice/1.toml")
                && before.iter().any(|(_, pin)| pin == bytes)),
            "{message}: {kept:?}"
        );
        taken = taken.checked_sub(4096).expect("there is room by now");
        disk.shrink(taken);
    };
    assert_eq!((&swap["backends"][0]["standing"], tells()), (&json!("live"), "teller-next".into()));
    // It was full where the history, the log and the pin go.
    for file in ["1.toml.new", "log.jsonl", "voice.toml.new"] {
        assert!(refused.iter().any(|one| one == file), "{file}: {refused:?}");
    }
    assert!(
        refused[0].contains("history")
            || refused[0].starts_with("voice")
            || refused[0] == "1.toml.new",
        "{refused:?}"
    );
    disk.empty();
    assert_eq!(problems(), json!([]));
    assert!(home.says(&["ledger", "verify"]).contains("sound"));
    let log = home.says(&["ledger", "log", "voice"]);
    assert_eq!(log.lines().count(), 3, "two promotions and a swap: {log}");
    drop(serving);
    let serving = home.serve(&[]);
    let body = json!({ "model": "teller", "prompt": "1", "stream": false, "raw": true });
    let answer = exchange(&serving.address, "POST", "/api/generate", &head, &body.to_string());
    assert!(answer.body.contains("teller-next"), "{}", answer.body);
}

/// Gives back what earlier promotions have reserved behind the log's end.
fn without_reserve(home: &Home) {
    let log = home.path("ledger/log.jsonl");
    let bytes = fs::read(&log).unwrap();
    fs::remove_file(&log).unwrap();
    fs::write(&log, bytes).unwrap();
}

/// Lengthens the log until not one more line goes into the page that it ends in.
fn to_the_brim(home: &Home) {
    let (folder, log) = (home.path("ledger"), home.path("ledger/log.jsonl"));
    let state = home.path("data/gristmill/ledger-seen.toml");
    let mut keeper = Keeper::open(&folder, Some(&state)).unwrap();
    let length = || usize::try_from(fs::metadata(&log).unwrap().len()).unwrap();
    let mut write = |number: usize, reason: usize| {
        let before = length();
        let (stranger, reason) = (sha256(&number.to_le_bytes()), "x".repeat(reason));
        keeper.revoke(Revoke::Digest(&stranger), &reason, Date::now(), "a test").unwrap();
        length() - before - reason.len()
    };
    let bare = write(0, 1);
    for number in 1.. {
        let room = 4096 - length() % 4096;
        if room < 100 {
            return;
        }
        // A line less than fills the page, or one that is in two.
        let fits = room.checked_sub(bare + 50).filter(|reason| *reason > 0);
        write(number, fits.unwrap_or(500).min(900));
    }
}

#[test]
fn quarantine_without_room_in_the_log_is_told_and_written_when_there_is_some() {
    let home = Home::new();
    let Some(disk) = Disk::mount(&home.path("ledger")) else { return };
    home.promote("teller");
    home.promote("teller_worse");
    without_reserve(&home);
    to_the_brim(&home);
    let serving = home.serve(&[]);
    answers(&serving, "teller-worse");
    ready(&serving, |found| found.contains("\"problems\":[]"));
    let before = ledger(&home);
    disk.fill();
    for _ in 0..5 {
        assert!(said(&serving.address, "1 trap").is_err());
    }
    let told = serving.says("a restart forgets it");
    assert!(told.contains("ledger-full"), "{told}");
    ready(&serving, |found| found.contains("quarantine-unrecorded") && found.contains("log.jsonl"));
    assert_eq!(voice(&serving.address).unwrap(), "teller-worse", "what answers goes on");
    assert!(ledger(&home) == before, "no part of a line stays");

    disk.empty();
    let pid = serving.child.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    answers(&serving, "teller");
    ready(&serving, |found| found.contains("\"problems\":[]"));
    let log = home.says(&["ledger", "log", "voice"]);
    assert!(log.contains(" quarantine ") && log.contains("[quarantined]"), "{log}");
}
