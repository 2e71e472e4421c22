//! The control plane of the real binary: keys by command, what runs, and a component that is promoted
//! and taken back while the host serves.
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
    time::{Duration, Instant},
};

use gristmill_fakes::Fake;
use serde_json::{Value, json};
use support::{Home, Serving, exchange};

/// A host whose only back-end is a vLLM that has no models.
struct Host {
    serving: Serving,
    _fake: Fake,
}

impl Host {
    async fn serve(home: &Home) -> Self {
        let fake = Fake::start(|_| support::json(r#"{"object": "list", "data": []}"#)).await;
        let backend = format!("fast=vllm,{}", fake.url());
        let serving = home.serve(&["--plugins-backend", "", "--backend", &backend]);
        Self { serving, _fake: fake }
    }

    /// Status and body.
    fn ask(&self, key: &str, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let body = body.map_or_else(String::new, |body| body.to_string());
        let key = format!("X-Api-Key: {key}\r\n");
        let answer = exchange(&self.serving.address, method, path, &key, &body);
        (answer.status, answer.json())
    }

    fn get(&self, key: &str, path: &str) -> Value {
        let (status, body) = self.ask(key, "GET", path, None);
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    /// Digest and generation of what runs.
    fn runs(&self, key: &str) -> (String, u64) {
        let backends = self.get(key, "/v1/backends");
        let fast = &backends["backends"][0];
        (fast["digest"].as_str().unwrap().to_owned(), fast["generation"].as_u64().unwrap())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_made_listed_and_revoked_while_the_host_serves() {
    let home = Home::with_components();
    let serving = Host::serve(&home).await;
    assert_eq!(serving.ask("", "GET", "/api/version", None).0, 200, "no keys yet");
    let boss = home.says(&["key", "add", "boss", "--operator"]);
    let limits = ["--models", "m,fast/n", "--rate", "0.5", "--concurrent", "4"];
    let app = home.says(&[&["key", "add", "app"][..], &limits[..]].concat());
    for (key, path, status) in [
        ("", "/api/version", 401),
        ("wrong", "/api/version", 401),
        (&*app, "/api/version", 200),
        (&*app, "/v1/runtime", 403),
        (&*boss, "/v1/runtime", 200),
    ] {
        assert_eq!(serving.ask(key, "GET", path, None).0, status, "{path}");
    }
    let listed = home.says(&["key", "list"]);
    for line in ["boss", "app", "m,fast/n", "0.5", "everything"] {
        assert!(listed.contains(line), "{listed}");
    }
    assert!(!listed.contains(&boss) && !listed.contains(&app), "{listed}");
    home.says(&["key", "revoke", "app"]);
    assert_eq!(serving.ask(&app, "GET", "/api/version", None).0, 401);
    for (arguments, word) in [
        (&["key", "revoke", "app"][..], "was revoked"),
        (&["key", "add", "app"], "not used again"),
        (&["key", "add", "x", "--operator", "--models", "m"], "cannot be used with"),
    ] {
        home.refuses(arguments, word);
    }
}

#[test]
fn an_address_that_strangers_reach_is_served_with_a_key_alone() {
    let home = Home::with_components();
    let serve = ["serve", "--server-listen", "0.0.0.0:0", "--plugins-backend", ""];
    home.refuses(&serve, "gristmill key add");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pin_is_promoted_and_taken_back_by_an_operator() {
    let home = Home::with_components();
    let key = home.says(&["key", "add", "boss", "--operator"]);
    let serving = Host::serve(&home).await;
    let post = |path: &str, body: Value| serving.ask(&key, "POST", path, Some(body));
    let (old, first) = serving.runs(&key);
    assert_eq!(first, 1);
    let plugins = serving.get(&key, "/v1/plugins");
    let vllm = |plugins: &Value| {
        let all = plugins["plugins"].as_array().unwrap();
        all.iter().find(|plugin| plugin["name"] == "vllm").unwrap().clone()
    };
    assert_eq!(vllm(&plugins)["digest"], old.as_str());
    assert_eq!(
        (&vllm(&plugins)["runs_as"], &vllm(&plugins)["behind"]),
        (&json!(["fast"]), &json!([]))
    );

    let name = json!({ "name": "vllm" });
    let (status, swap) = post("/v1/ledger/promote", name.clone());
    assert_eq!((status, &swap["backends"][0]["standing"]), (200, &json!("unchanged")), "{swap}");
    assert_eq!(post("/v1/ledger/rollback", name.clone()).0, 409, "nothing to go back to");

    // Another component under the name: it waits until it is promoted.
    let other = home.path("plugins/gristmill_backend_openai_compatible.wasm");
    home.says(&["ledger", "pin", "vllm", other.to_str().unwrap()]);
    let waits = vllm(&serving.get(&key, "/v1/plugins"));
    assert_eq!((&waits["waiting"], &waits["runs_as"]), (&json!(true), &json!(["fast"])));
    assert_eq!(serving.runs(&key), (old.clone(), 1));
    let wrong = json!({ "name": "vllm", "digest": old });
    let (status, error) = post("/v1/ledger/promote", wrong);
    assert_eq!((status, &error["error"]["code"]), (409, &json!("unexpected-digest")));

    // One flipped bit, and nothing changes.
    let kept = fs::read_dir(home.path("plugins")).unwrap().map(|entry| entry.unwrap().path());
    let is_kept = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with("vllm-") && name.ends_with(".wasm")
    };
    let kept = kept.filter(is_kept).collect::<Vec<_>>();
    let flip = |path: &Path| {
        let mut bytes = fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(path, bytes).unwrap();
    };
    flip(&kept[0]);
    let (status, error) = post("/v1/ledger/promote", name.clone());
    assert_eq!((status, &error["error"]["code"]), (409, &json!("digest-mismatch")), "{error}");
    assert_eq!(serving.runs(&key), (old.clone(), 1));
    flip(&kept[0]);
    let in_force = home.path("plugins/gristmill_backend_vllm.wasm");
    flip(&in_force);
    let (_, verified) = post("/v1/ledger/verify", json!({}));
    assert_eq!(verified["sound"], false, "{verified}");
    flip(&in_force);
    assert_eq!(post("/v1/ledger/verify", json!({})).1["sound"], true);

    let (status, swap) = post("/v1/ledger/promote", name.clone());
    assert_eq!((status, &swap["backends"][0]["standing"]), (200, &json!("live")), "{swap}");
    let (new, second) = serving.runs(&key);
    assert_eq!((&swap["digest"], second), (&json!(new), 2));
    assert_ne!(new, old);
    assert_eq!(swap["backends"][0]["replaced"], old.as_str());
    let (status, swap) = post("/v1/ledger/rollback", name);
    assert_eq!((status, &swap["digest"]), (200, &json!(old)), "{swap}");
    assert_eq!(serving.runs(&key).0, old);
    assert_eq!(post("/v1/ledger/promote", json!({ "name": "nobody" })).0, 404);
    let (status, family) = post("/v1/ledger/promote", json!({ "name": "llama" }));
    assert_eq!((status, &family["backends"]), (200, &json!([])), "it has no traffic: {family}");

    let revoke = json!({ "kind": "digest", "digest": old, "reason": "a test" });
    let (status, revoked) = post("/v1/ledger/revoke", revoke);
    assert_eq!((status, &revoked["pins"]), (200, &json!(["vllm"])), "{revoked}");
    assert_eq!(post("/v1/ledger/verify", json!({})).1["sound"], false);
    let log = serving.get(&key, "/v1/ledger/log?limit=1000");
    let entries = log["entries"].as_array().unwrap();
    let by_boss = entries.iter().map(|entry| &entry["document"]).filter(|one| one["by"] == "boss");
    let what: Vec<_> = by_boss.map(|one| one["what"].as_str().unwrap()).collect();
    for word in ["refusal", "rollback", "revocation"] {
        assert!(what.contains(&word), "{word}: {what:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trial_goes_on_while_the_ledgers_files_are_followed() {
    let home = Home::with_components();
    let key = home.says(&["key", "add", "boss", "--operator"]);
    let serving = Host::serve(&home).await;
    let (old, _) = serving.runs(&key);
    let other = home.path("plugins/gristmill_backend_openai_compatible.wasm");
    home.says(&["ledger", "pin", "vllm", other.to_str().unwrap()]);
    let trial = json!({ "kind": "canary", "share": 0.5, "requests": 1000 });
    let promote = json!({ "name": "vllm", "trial": trial });
    let (status, swap) = serving.ask(&key, "POST", "/v1/ledger/promote", Some(promote));
    assert_eq!((status, &swap["backends"][0]["standing"]), (200, &json!("on-trial")), "{swap}");

    // The grant of what is on trial changes: it waits for the trial's end.
    let grant = home.path("policies/grants/vllm.toml");
    let narrow = fs::read_to_string(&grant).unwrap().replace("/v1/completions", "/v1/other");
    fs::write(home.path("policies/grants/.next"), narrow).unwrap();
    fs::rename(home.path("policies/grants/.next"), &grant).unwrap();

    // Two changes of another plugin, and the second is followed in another look than the first.
    let (place, history) = (home.path("ledger/pins/llama.toml"), home.path("ledger/history/llama"));
    let family = home.path("plugins/gristmill_family_llama.wasm");
    fs::create_dir_all(&history).unwrap();
    for sequence in [2, 3] {
        home.says(&["ledger", "pin", "llama", family.to_str().unwrap()]);
        fs::copy(&place, history.join(format!("{}.toml", sequence - 1))).unwrap();
        fs::rename(home.path("ledger/candidates/llama.toml"), &place).unwrap();
        let begun = Instant::now();
        while !home.says(&["ledger", "log", "llama"]).contains(&format!("sequence {sequence}")) {
            assert!(begun.elapsed() < Duration::from_secs(60), "sequence {sequence}");
        }
    }
    let backends = serving.get(&key, "/v1/backends");
    let generations = backends["backends"][0]["generations"].as_array().unwrap().iter();
    let found: Vec<_> = generations.map(|one| (&one["role"], &one["digest"])).collect();
    let (current, candidate) = (json!("current"), json!("candidate"));
    assert_eq!(found, [(&current, &json!(old)), (&candidate, &swap["digest"])]);
    let problems = || {
        let (_, ready) = serving.ask(&key, "GET", "/readyz", None);
        let problems = ready["problems"].as_array().unwrap().clone();
        problems.into_iter().map(|one| one["code"].clone()).collect::<Vec<_>>()
    };
    assert!(problems().contains(&json!("grant-not-applied")), "{:?}", problems());
    let name = json!({ "name": "vllm" });
    let (status, swap) = serving.ask(&key, "POST", "/v1/ledger/rollback", Some(name));
    assert_eq!((status, &swap["backends"][0]["standing"]), (200, &json!("live")), "{swap}");
    assert_eq!(serving.runs(&key), (old, 3), "the same component, bound anew");
    assert!(problems().is_empty(), "{:?}", problems());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_on_disk_is_said_and_stops_nothing() {
    let home = Home::with_components();
    let key = home.says(&["key", "add", "boss", "--operator"]);
    let serving = Host::serve(&home).await;
    let words = || {
        let (_, ready) = serving.ask(&key, "GET", "/readyz", None);
        let problems = ready["problems"].as_array().unwrap().clone();
        problems.iter().map(|one| one["code"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(words().is_empty());
    let pin = home.path("ledger/pins/vllm.toml");
    let sound = fs::read(&pin).unwrap();
    fs::write(&pin, &sound[..sound.len() / 2]).unwrap();
    assert!(words().contains(&"invalid-pin".to_owned()), "{:?}", words());
    let status = serving.get(&key, "/v1/ledger/status");
    assert_eq!(status["sound"], false);
    let message = status["problems"][0]["message"].as_str().unwrap();
    assert!(message.contains("vllm.toml"), "{message}");
    assert_eq!(serving.runs(&key).1, 1, "it serves on");
    let promote = json!({ "name": "vllm" });
    let (status, error) = serving.ask(&key, "POST", "/v1/ledger/promote", Some(promote));
    assert_eq!((status, &error["error"]["code"]), (409, &json!("invalid-pin")));
    fs::write(&pin, sound).unwrap();
    assert!(words().is_empty());

    let runtime = serving.get(&key, "/v1/runtime");
    assert!(runtime["host"]["threads"].as_u64().unwrap() > 0, "{runtime}");
    let upstreams = serving.get(&key, "/v1/upstreams");
    assert_eq!(upstreams["servers"][0]["backend"], "fast", "{upstreams}");
    let policies = serving.get(&key, "/v1/model-policies");
    let ids: Vec<_> =
        policies["policies"].as_array().unwrap().iter().map(|one| &one["id"]).collect();
    assert!(ids.contains(&&json!("gemma4-ollama-minimal")), "{policies}");
    let first = &serving.get(&key, "/v1/ledger/log?limit=1")["entries"][0];
    assert_eq!((&first["number"], &first["document"]["what"]), (&json!(1), &json!("promotion")));
}
