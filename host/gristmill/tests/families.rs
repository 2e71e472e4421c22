//! What a family may use, and which component it is, changes under a host that serves: for the models that
//! are opened from then on.
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
    path::{Path, PathBuf},
};

use gristmill_testing::models::{self, Family, Shape};
use serde_json::Value;
use support::{Home, Serving, exchange};

/// A machine with small models of the family that is called `llama`.
fn home(names: &[&str]) -> Home {
    let home = Home::with_components();
    for (seed, name) in (1..).zip(names) {
        let file = home.path(&format!("{name}.gguf"));
        models::write(&Shape::tiny(Family::Llama), "q8_0", seed, &file).unwrap();
        home.says(&["import", file.to_str().unwrap(), "--name", name]);
    }
    home
}

/// Writes a file as whoever knows that somebody looks: whole or not at all.
fn put(path: &Path, text: &str) {
    let beside = path.with_file_name(".next");
    fs::write(&beside, text).unwrap();
    fs::rename(&beside, path).unwrap();
}

/// A grant of `llama` alone, under which it can be told nothing.
fn narrow(home: &Home) -> PathBuf {
    let shared = fs::read_to_string(home.path("policies/grants/family.toml")).unwrap();
    assert!(!shared.contains("[limits]"), "{shared}");
    let grant = home.path("policies/grants/llama.toml");
    put(&grant, &format!("{shared}\n[limits]\nhost-call-bytes = 1\n"));
    grant
}

fn answers(serving: &Serving, model: &str) {
    let (status, body) = serving.chat(model, false);
    assert_eq!(status, 200, "{model}: {body}");
}

/// The code and message of the only problem there is, if there is one.
fn problem(serving: &Serving) -> Option<(String, String)> {
    let ready = exchange(&serving.address, "GET", "/readyz", "", "").json();
    assert_eq!(ready["ready"], true, "{ready}");
    let problems = ready["problems"].as_array().unwrap();
    assert!(problems.len() < 2, "{ready}");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    problems.first().map(|one| (text(&one["code"]), text(&one["message"])))
}

const FOLLOWS: &str = "follows the ledger plugin=\"llama\"";

#[test]
fn a_changed_grant_holds_for_the_models_that_are_opened_from_then_on() {
    let home = home(&["open", "next", "last"]);
    let serving = home.serve(&[]);
    answers(&serving, "open");
    let grant = narrow(&home);
    serving.says(FOLLOWS);
    // Its faults are its own, however often, and not those of the back-end that passes them on.
    for _ in 0..8 {
        let (status, body) = serving.chat("next", false);
        assert!(status == 502 && body.contains("plugin_fault"), "{status} {body}");
        assert!(body.contains("plugin llama: "), "{body}");
    }
    assert!(!home.says(&["ledger", "status"]).contains("quarantine"));
    answers(&serving, "open");
    assert_eq!(problem(&serving), None);
    fs::remove_file(&grant).unwrap();
    serving.says(FOLLOWS);
    answers(&serving, "next");

    // A pin that names the grant it was approved with wants a new approval for another.
    let file = home.path("plugins/gristmill_family_llama.wasm");
    let approve = || {
        home.says(&["ledger", "pin", "llama", file.to_str().unwrap()]);
        home.says(&["ledger", "promote", "llama"]);
    };
    approve();
    narrow(&home);
    let said = serving.says("the ledger's pin is not followed");
    assert!(said.contains("grant-changed") && said.contains("llama"), "{said}");
    let (code, message) = problem_of_grant(&serving);
    assert_eq!(code, "grant-not-applied");
    assert!(
        message.contains("the family llama") && message.contains("pin llama anew"),
        "{message}"
    );
    answers(&serving, "last");
    approve();
    serving.says(FOLLOWS);
    assert_eq!(problem(&serving), None);
}

/// The audit has the pin's side of it: the grant is another.
fn problem_of_grant(serving: &Serving) -> (String, String) {
    let ready = exchange(&serving.address, "GET", "/readyz", "", "").json();
    let problems = ready["problems"].as_array().unwrap();
    let codes: Vec<_> = problems.iter().map(|one| one["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["grant-changed", "grant-not-applied"], "{ready}");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&problems[1]["code"]), text(&problems[1]["message"]))
}

#[test]
fn another_component_takes_the_place_of_a_family_and_goes_back() {
    let home = home(&["open", "next"]);
    let serving = home.serve(&[]);
    answers(&serving, "open");
    // One that knows other models.
    let other = home.path("plugins/gristmill_family_bert.wasm");
    home.says(&["ledger", "pin", "llama", other.to_str().unwrap()]);
    home.says(&["ledger", "promote", "llama"]);
    serving.says(FOLLOWS);
    let (status, body) = serving.chat("next", false);
    assert!(status == 400 && body.contains("no installed family knows"), "{status} {body}");
    answers(&serving, "open");
    home.says(&["ledger", "rollback", "llama"]);
    serving.says(FOLLOWS);
    answers(&serving, "next");
    assert_eq!(problem(&serving), None);
}
