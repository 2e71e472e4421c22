//! A folder of pins without a log or keys, as ledgers once were: a host serves from it as it lies there, and
//! nothing in it is changed until somebody makes it a ledger.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod support;

use std::{collections::BTreeMap, fs, path::Path};

use gristmill_fakes::Fake;
use serde_json::{Value, json};
use support::{Home, Serving, exchange};

/// Every file below a folder.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(self::files(&path));
        } else {
            files.insert(path.display().to_string(), fs::read(&path).unwrap());
        }
    }
    files
}

/// Back-ends and their generations; each is asked for its models.
fn live(serving: &Serving, key: &str) -> Vec<(String, u64)> {
    let backends = exchange(&serving.address, "GET", "/v1/backends", key, "").json();
    let of = |one: &Value| {
        assert_eq!(one["ready"], true, "{backends}");
        (one["name"].as_str().unwrap().to_owned(), one["generation"].as_u64().unwrap())
    };
    backends["backends"].as_array().unwrap().iter().map(of).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pins_without_a_log_serve_and_are_not_made_a_ledger_of_one_of_them() {
    let fake = Fake::start(|_| support::json(r#"{"object": "list", "data": []}"#)).await;
    let home = Home::with_components().set("GRISTMILL_PLUGINS_FAMILIES", "");
    let ledger = home.path("ledger");
    for name in ["log.jsonl", "keys.toml"] {
        fs::remove_file(ledger.join(name)).unwrap();
    }
    let key = home.says(&["key", "add", "boss", "--operator"]);
    let head = format!("x-api-key: {key}\r\n");
    let backends =
        ["fast=vllm", "plain=openai-compatible"].map(|it| format!("{it},{}", fake.url()));
    let flags = ["--plugins-backend", "", "--backend", &backends[0], "--backend", &backends[1]];
    let serving = home.serve(&flags);
    let both = |generations: [u64; 2]| {
        let names = ["fast", "plain"].map(str::to_owned);
        names.into_iter().zip(generations).collect::<Vec<_>>()
    };
    assert_eq!(live(&serving, &head), both([1, 1]));
    let before = files(&ledger);

    // Refused with what to do, and nothing is there that was not there before.
    let file = home.path("plugins/gristmill_backend_vllm.wasm");
    let file = file.to_str().unwrap();
    let promote = json!({ "name": "vllm" }).to_string();
    let answer = exchange(&serving.address, "POST", "/v1/ledger/promote", &head, &promote);
    let error = &answer.json()["error"];
    assert_eq!((answer.status, &error["code"]), (409, &json!("invalid-keys")), "{error}");
    for word in ["keys.toml", "log.jsonl", "move pins/ away", "runs on"] {
        assert!(error["message"].as_str().unwrap().contains(word), "{word}: {error}");
    }
    for arguments in [
        &["ledger", "promote", "vllm"][..],
        &["ledger", "pin", "vllm", file],
        &["ledger", "rollback", "vllm"],
        &["ledger", "revoke", "--digest", &"0".repeat(64), "--reason", "r"],
    ] {
        home.refuses(arguments, "move pins/ away");
    }
    assert!(files(&ledger) == before);
    let ready = exchange(&serving.address, "GET", "/readyz", &head, "").json();
    let problems: Vec<_> =
        ready["problems"].as_array().unwrap().iter().map(|one| &one["code"]).collect();
    assert_eq!((&ready["ready"], problems), (&json!(true), vec![&json!("invalid-keys")]));
    assert_eq!(live(&serving, &head), both([1, 1]));
    drop(serving);

    // It starts as it did. And then somebody does what the refusal says, while it serves.
    let serving = home.serve(&flags);
    fs::rename(ledger.join("pins"), home.path("away")).unwrap();
    for (name, file) in [("vllm", "vllm"), ("openai-compatible", "openai_compatible")] {
        let file = home.path(&format!("plugins/gristmill_backend_{file}.wasm"));
        home.says(&["ledger", "pin", name, file.to_str().unwrap()]);
        home.says(&["ledger", "promote", name]);
        assert_eq!(live(&serving, &head), both([1, 1]), "{name}: the same components");
    }
    let sound = || exchange(&serving.address, "GET", "/readyz", &head, "").body;
    support::voice::until(sound, |found| found.contains("\"problems\":[]"));
    assert_eq!(live(&serving, &head), both([1, 1]));
    drop(serving);
    assert!(home.says(&["ledger", "verify"]).contains("sound"));
    assert_eq!(live(&home.serve(&flags), &head), both([1, 1]));
}
