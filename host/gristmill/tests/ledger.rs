//! The ledger's commands beside a host that serves from it: what is put in force there answers here,
//! nobody is dropped on the way, and what is not proven does not answer.
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
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use gristmill_fakes::{Fake, Step};
use gristmill_testing::guests;
use serde_json::json;
use support::{Serving, exchange};

/// A machine with an empty ledger, and a grant for what tells its own name.
struct Home(support::Home);

impl Deref for Home {
    type Target = support::Home;

    fn deref(&self) -> &support::Home {
        &self.0
    }
}

impl Home {
    fn new() -> Self {
        let home = support::Home::empty();
        let folders = ["plugins", "ledger", "policies"].map(|folder| home.path(folder));
        let [plugins, ledger, policies] = folders;
        for folder in [&plugins, &ledger, &policies.join("grants")] {
            fs::create_dir_all(folder).unwrap();
        }
        let imports = "'gristmill:contract/*', 'wasi:cli/*', 'wasi:clocks/*', 'wasi:io/*'";
        let grant = format!("kind = 'backend'\nimports = [{imports}]\n");
        fs::write(policies.join("grants/voice.toml"), grant).unwrap();
        fs::write(policies.join("approvals.toml"), "otherwise = 0\n").unwrap();
        let cache = home.path("cache");
        Self(
            home.set("XDG_CACHE_HOME", cache)
                .set("GRISTMILL_PATHS_PLUGINS", plugins)
                .set("GRISTMILL_PATHS_LEDGER", ledger)
                .set("GRISTMILL_PATHS_POLICIES", policies)
                .set("GRISTMILL_PLUGINS_BACKEND", "voice")
                .set("GRISTMILL_PLUGINS_FAMILIES", ""),
        )
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
}

/// What a component that tells its own name answers.
fn said(address: &str, prompt: &str) -> Result<String, String> {
    let body = json!({"model": "teller", "prompt": prompt, "stream": false, "raw": true});
    let answer = exchange(address, "POST", "/api/generate", "", &body.to_string());
    match answer.status {
        200 => Ok(answer.json()["response"].as_str().unwrap().trim().to_owned()),
        status => Err(format!("{status} {}", answer.body)),
    }
}

fn voice(address: &str) -> Result<String, String> {
    said(address, "1")
}

/// Looks until it is so.
fn until(mut found: impl FnMut() -> String, wanted: impl Fn(&str) -> bool) {
    let begun = Instant::now();
    loop {
        let found = found();
        if wanted(&found) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{found}");
    }
}

/// Asks until this one answers.
fn answers(serving: &Serving, name: &str) {
    until(|| voice(&serving.address).unwrap(), |found| found == name);
}

/// Asks `/readyz` until it is so.
fn ready(serving: &Serving, wanted: impl Fn(&str) -> bool) {
    until(|| exchange(&serving.address, "GET", "/readyz", "", "").body, wanted);
}

#[test]
fn a_promotion_and_a_rollback_move_the_traffic_and_drop_nobody() {
    let home = Home::new();
    home.promote("teller");
    let serving = home.serve(&[]);
    answers(&serving, "teller");

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
    answers(&serving, "teller-next");
    home.says(&["ledger", "rollback", "voice"]);
    answers(&serving, "teller");
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
    let serving = home.serve(&[]);
    answers(&serving, "teller");
    let place = home.path("ledger/pins/voice.toml");
    let good = fs::read_to_string(&place).unwrap();

    // Half written by an editor: what answers goes on, and readiness tells.
    fs::write(&place, good.split_at(good.len() / 2).0).unwrap();
    ready(&serving, |found| found.contains("voice"));
    assert_eq!(voice(&serving.address).unwrap(), "teller");
    fs::write(&place, &good).unwrap();
    ready(&serving, |found| !found.contains("invalid-pin"));

    // A pin for bytes that are not there is refused, by its word.
    let other = good.replace("sequence = 1", "sequence = 2");
    let digest = other.lines().find(|line| line.starts_with("sha256")).unwrap().to_owned();
    fs::write(&place, other.replace(&digest, &format!("sha256 = \"{}\"", "0".repeat(64)))).unwrap();
    until(
        || home.says(&["ledger", "log", "voice"]),
        |log| log.contains("(digest-mismatch)") && log.contains("[a changed file]"),
    );
    assert_eq!(voice(&serving.address).unwrap(), "teller");
    fs::write(&place, &good).unwrap();

    // A reviewed change: the candidate in the pin's place, and what it follows in the history.
    home.propose("teller_next");
    fs::create_dir_all(home.path("ledger/history/voice")).unwrap();
    fs::copy(&place, home.path("ledger/history/voice/1.toml")).unwrap();
    fs::rename(home.path("ledger/candidates/voice.toml"), &place).unwrap();
    answers(&serving, "teller-next");
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
    home.says(&["ledger", "trust", "ada", &public]);

    home.propose("teller_next");
    home.refuses(&["ledger", "promote", "voice"], "signature");
    home.says(&["ledger", "sign", "voice", "--key", key.to_str().unwrap()]);
    // Rules may ask for more approvals than the threshold does; without the file, one is asked for.
    let approvals = home.path("policies/approvals.toml");
    let rules = "otherwise = 0\n[[rules]]\nchanges = ['new-bytes']\napprovals = 2\nreason = 'r'\n";
    fs::write(&approvals, rules).unwrap();
    home.refuses(&["ledger", "promote", "voice"], "needs 2 approvals, found 1");
    fs::write(&approvals, "otherwise = 0\n[[rules]]\n").unwrap();
    home.refuses(&["ledger", "promote", "voice"], "approvals.toml");
    fs::remove_file(&approvals).unwrap();
    // Where keys are asked for, so is all that qualifies it.
    home.refuses(&["ledger", "promote", "voice"], "evidence");

    let digest = gristmill_ledger::sha256(&guests::guest("teller_next").unwrap());
    home.says(&["ledger", "revoke", "--digest", &digest, "--reason", "it was wrong"]);
    home.refuses(&["ledger", "promote", "voice"], "it was wrong");
    let log = home.says(&["ledger", "log"]);
    for word in [
        "(signature-threshold)",
        "(approval-missing)",
        "(evidence-missing)",
        "revocation",
        "(revoked)",
    ] {
        assert!(log.contains(word), "{word}: {log}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_component_of_a_registry_is_pinned_as_what_its_tag_was_resolved_to() {
    let home = Home::new();
    let component = guests::guest("teller").unwrap();
    let sha256 = gristmill_ledger::sha256(&component);
    let (config, size) = ("application/vnd.wasm.config.v0+json", component.len());
    let manifest = json!({
        "schemaVersion": 2,
        "config": { "mediaType": config, "digest": "sha256:", "size": 2 },
        "layers": [{ "mediaType": "application/wasm", "digest": format!("sha256:{sha256}"), "size": size }],
    });
    let manifest = manifest.to_string();
    let resolved = gristmill_ledger::sha256(manifest.as_bytes());
    let blob = format!("GET /v2/team/voice/blobs/sha256:{sha256}");
    let registry = Fake::start(move |request| {
        let body = match request.target.as_str() {
            "GET /v2/team/voice/manifests/1.0" => manifest.as_bytes(),
            target if target == blob => &component,
            _ => return vec![Step::Send(b"HTTP/1.1 404 X\r\ncontent-length: 0\r\n\r\n".to_vec())],
        };
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        vec![Step::Send([head.as_bytes(), body].concat())]
    })
    .await;
    let at = registry.url().replace("http://", "oci:");
    let told = home.says(&["ledger", "pin", "voice", &format!("{at}/team/voice:1.0")]);
    assert!(told.contains(&format!("resolved to {at}/team/voice@sha256:{resolved}")), "{told}");
    home.says(&["ledger", "promote", "voice"]);
    let pin = fs::read_to_string(home.path("ledger/pins/voice.toml")).unwrap();
    assert!(pin.contains(&format!("original = \"{at}/team/voice:1.0\"")), "{pin}");
    assert!(pin.contains(&sha256), "{pin}");
    assert_eq!(voice(&home.serve(&[]).address), Ok("teller".to_owned()));

    home.refuses(&["ledger", "pin", "voice", &format!("{at}/team/voice:2.0")], "404");
    home.refuses(&["ledger", "pin", "voice", "oci:team/voice"], "expected oci:HOST/REPOSITORY:TAG");
}

#[test]
fn a_component_that_breaks_is_taken_back_and_the_ledger_says_why() {
    let home = Home::new();
    home.promote("teller");
    let serving = home.serve(&[]);
    answers(&serving, "teller");
    home.promote("teller_worse");
    answers(&serving, "teller-worse");
    until(
        || {
            // Its own fault ends each of these.
            let _ = said(&serving.address, "1 trap");
            voice(&serving.address).unwrap()
        },
        |found| found == "teller",
    );
    until(
        || home.says(&["ledger", "log", "voice"]),
        |log| {
            log.contains("rollback") && (log.contains("guardrail") || log.contains("quarantined"))
        },
    );
    answers(&serving, "teller");
    assert!(home.says(&["ledger", "verify"]).contains("sound"));
}
