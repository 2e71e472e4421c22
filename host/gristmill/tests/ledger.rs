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
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use gristmill_fakes::{Fake, Step};
use gristmill_testing::guests;
use serde_json::json;
use support::{
    Artifact, exchange, text,
    voice::{Home, answers, ready, said, until, voice},
};

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
fn a_changed_grant_takes_the_approval_that_the_pin_asks_for() {
    let home = Home::new();
    home.promote("teller");
    let serving = home.serve(&[]);
    assert_eq!(said(&serving.address, "8").unwrap().matches("teller").count(), 8);
    let grant = home.path("policies/grants/voice.toml");
    let approved = fs::read_to_string(&grant).unwrap();
    fs::write(&grant, format!("{approved}limits.answer-events = 5\n")).unwrap();
    serving.says("grant-changed");
    ready(&serving, |found| found.contains("grant-changed") && found.contains("grant-not-applied"));
    assert_eq!(said(&serving.address, "8").unwrap().matches("teller").count(), 8);

    // The same component, pinned with the grant as it is now.
    home.promote("teller");
    // One fault, and the limit is the new one.
    until(|| format!("{:?}", said(&serving.address, "8")), |found| found.starts_with("Err"));
    ready(&serving, |found| found.contains("\"problems\":[]"));
    assert_eq!(said(&serving.address, "1").unwrap(), "teller");
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
    let artifact = Artifact::new(component);
    let resolved = artifact.digest();
    let registry = Fake::start(move |request| {
        // "ada:sesame"
        let login = ("authorization".to_owned(), "Basic YWRhOnNlc2FtZQ==".to_owned());
        if request.target.starts_with("GET /v2/closed/") && !request.headers.contains(&login) {
            let ask = b"HTTP/1.1 401 X\r\nwww-authenticate: Basic realm=\"x\"\r\ncontent-length: 0\r\n\r\n";
            return vec![Step::Send(ask.to_vec())];
        }
        artifact.answer(&request.target)
    })
    .await;
    let at = registry.url().replace("http://", "oci:");
    let told = home.says(&["ledger", "pin", "voice", &format!("{at}/team/voice:1.0")]);
    assert!(told.contains(&format!("resolved to {at}/team/voice@{resolved}")), "{told}");
    home.says(&["ledger", "promote", "voice"]);
    let pin = fs::read_to_string(home.path("ledger/pins/voice.toml")).unwrap();
    assert!(pin.contains(&format!("original = \"{at}/team/voice:1.0\"")), "{pin}");
    assert!(pin.contains(&sha256), "{pin}");
    assert_eq!(voice(&home.serve(&[]).address), Ok("teller".to_owned()));

    home.refuses(&["ledger", "pin", "voice", &format!("{at}/team/voice:2.0")], "404");
    home.refuses(&["ledger", "pin", "voice", "oci:team/voice"], "expected oci:HOST/REPOSITORY:TAG");

    // With the login that docker has for it.
    let closed = format!("{at}/closed/voice:1.0");
    let pin = || {
        let mut command = home.command(&["ledger", "pin", "voice", &closed]);
        let done = command.env("DOCKER_CONFIG", home.path("docker")).output().unwrap();
        (done.status.success(), text(&done.stdout) + &text(&done.stderr))
    };
    let (pinned, said) = pin();
    assert!(!pinned && said.contains("docker/config.json, as `docker login` does"), "{said}");
    fs::create_dir(home.path("docker")).unwrap();
    let auths = json!({ at.trim_start_matches("oci:"): { "auth": "YWRhOnNlc2FtZQ==" } });
    fs::write(home.path("docker/config.json"), json!({ "auths": auths }).to_string()).unwrap();
    let (pinned, said) = pin();
    assert!(pinned && said.contains(&format!("{at}/closed/voice@{resolved}")), "{said}");
    assert!(!said.contains("YWRhOnNlc2FtZQ") && !said.contains("sesame"), "{said}");
}

#[test]
fn a_release_makes_no_ledger_of_a_folder_that_is_none() {
    let home = Home::new();
    home.refuses(&["ledger", "release", "voice"], "is no ledger yet");
    assert!(!home.path("ledger/log.jsonl").exists());
}

#[test]
fn quarantine_outlives_the_host_until_somebody_releases_it() {
    let home = Home::new();
    home.promote("teller");
    home.promote("teller_worse");
    let serving = home.serve(&[]);
    let digest = gristmill_ledger::sha256(&guests::guest("teller_worse").unwrap());
    // Nothing was before it since the host started; the ledger knows where to go back to.
    for _ in 0..5 {
        assert!(said(&serving.address, "1 trap").is_err());
    }
    answers(&serving, "teller");
    let log = home.says(&["ledger", "log", "voice"]);
    let line = log.lines().find(|line| line.contains(" quarantine ")).unwrap();
    assert!(line.contains("5 faults within 600 s") && line.ends_with("[the host]"), "{line}");

    // Killed, not stopped.
    drop(serving);
    let key = home.says(&["key", "add", "boss", "--operator"]);
    let serving = home.serve(&[]);
    let key = format!("x-api-key: {key}\r\n");
    let ask = |method: &str, path: &str, body: &str| {
        let answer = exchange(&serving.address, method, path, &key, body);
        (answer.status, answer.json())
    };
    let (_, ledger) = ask("GET", "/v1/ledger", "");
    let known = &ledger["status"]["quarantined"][0];
    assert_eq!(known["digest"], format!("sha256:{digest}"));
    assert_eq!((&known["name"], &ledger["status"]["sound"]), (&json!("voice"), &json!(true)));
    let status = home.says(&["ledger", "status"]);
    assert!(status.contains(&format!("quarantine voice sha256:{digest} since ")), "{status}");

    home.propose("teller_worse");
    home.refuses(&["ledger", "promote", "voice"], "is in quarantine since");
    let (status, error) = ask("POST", "/v1/ledger/promote", r#"{"name": "voice"}"#);
    assert_eq!((status, &error["error"]["code"]), (409, &json!("quarantined")), "{error}");
    home.refuses(&["ledger", "release", "nobody"], "not in quarantine");
    let nobody = r#"{"kind": "name", "name": "nobody"}"#;
    let (status, error) = ask("POST", "/v1/ledger/release", nobody);
    assert_eq!((status, &error["error"]["code"]), (409, &json!("not-quarantined")), "{error}");

    // The host takes part in what is released beside it: the router is asked in the end.
    let told = home.says(&["ledger", "release", "voice", "--reason", "seen to"]);
    assert_eq!(told, format!("released sha256:{digest}"));
    home.says(&["ledger", "promote", "voice"]);
    until(|| ask("GET", "/v1/backends", "").1.to_string(), |found| found.contains(&digest));
    assert!(home.says(&["ledger", "log", "voice"]).contains("release    voice: seen to"));
    assert_eq!(ask("GET", "/v1/ledger/status", "").1["quarantined"], json!([]));
}

#[test]
fn a_host_that_died_between_quarantine_and_the_way_back_goes_back_when_it_starts() {
    let home = Home::new();
    home.promote("teller");
    home.promote("teller_next");
    let digest = gristmill_ledger::sha256(&guests::guest("teller_next").unwrap());
    let state = home.path("data/gristmill/ledger-seen.toml");
    let keeper = || gristmill_ledger::Keeper::open(&home.path("ledger"), Some(&state)).unwrap();
    let now = gristmill_ledger::Date::now();
    keeper().quarantine(Some("voice"), &digest, "faults", now, "a test").unwrap();
    let serving = home.serve(&[]);
    answers(&serving, "teller");
    let log = home.says(&["ledger", "log", "voice"]);
    assert!(log.lines().any(|line| line.contains("rollback") && line.contains("[quarantined]")));

    // What is in force, and all that was before it: it serves on, and readiness tells.
    let first = gristmill_ledger::sha256(&guests::guest("teller").unwrap());
    keeper().quarantine(Some("voice"), &first, "faults", now, "a test").unwrap();
    ready(&serving, |found| found.contains("\"quarantined\""));
    assert_eq!(voice(&serving.address), Ok("teller".to_owned()));
    drop(serving);
    assert_eq!(voice(&home.serve(&[]).address), Ok("teller".to_owned()));

    // Released over HTTP, by a digest.
    let key = home.says(&["key", "add", "boss", "--operator"]);
    let serving = home.serve(&[]);
    let body = json!({ "kind": "digest", "digest": format!("sha256:{digest}") }).to_string();
    let key = format!("x-api-key: {key}\r\n");
    let answer = exchange(&serving.address, "POST", "/v1/ledger/release", &key, &body);
    assert_eq!(answer.json(), json!({ "digests": [format!("sha256:{digest}")] }));
    let status = home.says(&["ledger", "status"]);
    assert!(!status.contains(&digest) && status.contains(&first), "{status}");
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

#[test]
fn where_the_ledger_cannot_go_back_the_traffic_has_and_readiness_tells_both() {
    let home = Home::new();
    home.promote("teller");
    let serving = home.serve(&[]);
    answers(&serving, "teller");
    // The next component comes with another grant, so what was before it is not approved with that one.
    let grant = home.path("policies/grants/voice.toml");
    let approved = fs::read_to_string(&grant).unwrap();
    fs::write(&grant, format!("{approved}limits.answer-events = 5\n")).unwrap();
    home.promote("teller_worse");
    answers(&serving, "teller-worse");
    ready(&serving, |found| found.contains("\"problems\":[]"));
    for _ in 0..18 {
        assert_eq!(voice(&serving.address).unwrap(), "teller-worse");
    }
    // An error that it tells is no fault: the guardrail sees it and quarantine does not.
    for _ in 0..2 {
        assert!(said(&serving.address, "1 fail").is_err());
    }
    assert_eq!(voice(&serving.address).unwrap(), "teller");
    serving.says("the ledger could not go back");
    let codes = |found: &str| {
        ["grant-not-applied", "not-gone-back"].iter().all(|code| found.contains(code))
    };
    ready(&serving, |found| codes(found) && found.contains("pins/voice.toml"));
    assert_eq!(said(&serving.address, "8").unwrap().matches("teller").count(), 8, "the old grant");

    // Files that change do not bring it back, and the refusal in the log is such a change.
    let profiles = home.path("policies/profiles");
    fs::create_dir_all(&profiles).unwrap();
    for name in ["dry", "short"] {
        fs::write(profiles.join(".next"), "description = 'd'\n[parameters]\nseed = 1\n").unwrap();
        fs::rename(profiles.join(".next"), profiles.join(format!("{name}.toml"))).unwrap();
        // The second time, all that the first has led to is done.
        serving.says(if name == "dry" { "profiles=1" } else { "profiles=2" });
    }
    assert_eq!(voice(&serving.address).unwrap(), "teller");
    let log = home.says(&["ledger", "log", "voice"]);
    assert!(log.contains("(grant-changed)") && log.contains("guardrail"), "{log}");
    assert!(!log.contains("rollback"), "{log}");

    // Pinned anew with the grant as it is now, it is what the ledger names too.
    home.promote("teller");
    ready(&serving, |found| found.contains("\"problems\":[]"));
    assert!(said(&serving.address, "8").is_err(), "the new grant");
    assert_eq!(voice(&serving.address).unwrap(), "teller");
}
