//! Policies end to end: the shipped one for Gemma 4 in front of a fake Ollama, files that change while
//! the host serves, and files that keep it from starting.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod support;

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use gristmill_fakes::{Fake, Received, Transcript};
use serde_json::{Value, json};
use support::{ALONE, Home, Serving, Started, backend, exchange, text};

/// An Ollama with a Gemma 4 and a Llama.
async fn ollama() -> Fake {
    Fake::start(move |request: &Received| match request.target.as_str() {
        "GET /api/version" => support::json(r#"{"version":"0.12.0"}"#),
        "GET /api/tags" => support::json(
            r#"{"models":[{"name":"gemma4:e4b","details":{"family":"gemma4"}},
                {"name":"llama3","details":{"family":"llama"}}]}"#,
        ),
        "POST /api/show" => support::json(r#"{"capabilities":["completion"]}"#),
        _ => Transcript::named("ollama", "chat-text").steps(),
    })
    .await
}

/// What the server was asked to generate the last time.
fn asked(fake: &Fake) -> Value {
    let all = fake.received();
    let last = all.iter().rfind(|request| request.target == "POST /api/chat").unwrap();
    serde_json::from_str(last.text()).unwrap()
}

fn chats(fake: &Fake) -> usize {
    fake.received().iter().filter(|request| request.target == "POST /api/chat").count()
}

fn chat(model: &str, stream: bool, more: Value) -> String {
    let mut body = json!({ "model": model, "stream": stream,
        "messages": [{ "role": "user", "content": "hi" }] });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body.to_string()
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")))
}

/// The profile that was measured to be slow, with the three controls that are known to be good.
fn old_profile() -> Value {
    json!({ "options": {
        "temperature": 1.0, "top_k": 64, "top_p": 0.95, "num_ctx": 32768, "num_predict": 512,
        "num_thread": 32, "repeat_penalty": 1.1, "repeat_last_n": 64, "seed": 7, "stop": ["END"] } })
}

const TOLD: &str = "stripped options.repeat_penalty (unverified); stripped options.repeat_last_n (unverified); \
    stripped options.seed (unverified); passed options.num_predict (unverified); \
    stripped options.num_ctx (override-unverified); passed options.stop (unverified); \
    stripped options.num_thread (unverified)";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn gemma_4_behind_ollama_is_asked_for_what_is_permitted_and_the_answer_says_the_rest() {
    let fake = ollama().await;
    let serving = Started::new(
        Home::with_components(),
        &format!("{ALONE}{}", backend("big", "ollama", &fake.url())),
    );
    let minimal = json!({ "temperature": 1, "top_k": 64, "top_p": 0.95 });
    let same = |found: &Value, wanted: &Value| {
        let numbers = |value: &Value| {
            let object = value.as_object().unwrap().iter();
            let number = |value: &Value| (value.as_f64().unwrap() as f32).to_string();
            object.map(|(key, value)| (key.clone(), number(value))).collect::<BTreeMap<_, _>>()
        };
        assert_eq!(numbers(found), numbers(wanted));
    };

    for stream in [false, true] {
        let (head, body) =
            serving.answer("/api/chat", "", &chat("gemma4:e4b", stream, old_profile()));
        assert!(head.contains(" 200 "), "{head}\n{body}");
        assert_eq!(header(&head, "x-gristmill-policy"), Some("gemma4-ollama-minimal"));
        assert_eq!(header(&head, "x-gristmill-policy-detail"), Some(TOLD));
        // The caller's own bounds of its answer go on as they came.
        let mut sent = asked(&fake);
        let options = sent["options"].as_object_mut().unwrap();
        assert_eq!(options.remove("stop"), Some(json!(["END"])));
        assert_eq!(options.remove("num_predict"), Some(json!(512)));
        same(&sent["options"], &minimal);
        let keys: Vec<_> = sent.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["model", "messages", "options", "truncate", "shift", "stream"]);
    }

    // Nothing asked: nothing injected, by policy or profile.
    let (head, _) = serving.answer("/api/chat", "", &chat("gemma4:e4b", false, json!({})));
    assert_eq!(header(&head, "x-gristmill-policy"), Some("gemma4-ollama-minimal"));
    assert_eq!(header(&head, "x-gristmill-policy-detail"), None);
    assert!(asked(&fake).get("options").is_none(), "{}", asked(&fake));

    // The same in another dialect's words; another value than the known-good one goes on and is told.
    let more = json!({ "max_tokens": 9, "temperature": 0.2, "min_p": 0.1 });
    let (head, _) = serving.answer("/v1/chat/completions", "", &chat("gemma4:e4b", false, more));
    let told = "passed temperature (known-good is 1); stripped min_p (unverified); passed max_tokens (unverified)";
    assert_eq!(header(&head, "x-gristmill-policy-detail"), Some(told));
    same(&asked(&fake)["options"], &json!({ "temperature": 0.2, "num_predict": 9 }));

    // The profile, asked for by name.
    let select = "x-gristmill-profile: gemma4-minimal\r\n";
    let (head, _) = serving.answer("/api/chat", select, &chat("gemma4:e4b", false, json!({})));
    assert_eq!(header(&head, "x-gristmill-profile"), Some("gemma4-minimal"));
    same(&asked(&fake)["options"], &minimal);

    // Another family has no policy; the bridge itself then does not take a context that nobody verified.
    let before = chats(&fake);
    let (head, body) = serving.answer("/api/chat", "", &chat("llama3", false, old_profile()));
    assert_eq!(header(&head, "x-gristmill-error"), Some("unsupported"), "{head}");
    assert!(body.contains("context") && header(&head, "x-gristmill-policy").is_none(), "{body}");
    assert_eq!(chats(&fake), before);
}

/// Writes a file as whoever knows that somebody looks: whole or not at all.
fn put(path: &Path, text: &str) {
    let beside = path.with_file_name(".next");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&beside, text).unwrap();
    fs::rename(&beside, path).unwrap();
}

/// Tells a running host to read its files again.
fn hang_up(serving: &Serving) {
    let pid = serving.child.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn files_are_read_again_at_a_signal_and_a_broken_one_changes_nothing() {
    let fake = ollama().await;
    let serving = Started::new(
        Home::with_components(),
        &format!("{ALONE}{}", backend("big", "ollama", &fake.url())),
    );
    let file = serving.home.path("policies/parameters/gemma4-ollama-minimal.toml");
    let shipped = fs::read_to_string(&file).unwrap();
    let ask = || {
        let body = chat("gemma4:e4b", false, json!({ "options": { "num_ctx": 4096 } }));
        serving.answer("/api/chat", "", &body)
    };
    let refused = |(head, body): (String, String)| {
        assert!(head.contains(" 403 "), "{head}\n{body}");
        assert_eq!(header(&head, "x-gristmill-error"), Some("blocked"));
        let detail = Some("refused options.num_ctx (override-unverified)");
        assert_eq!(header(&head, "x-gristmill-policy-detail"), detail);
        for word in
            ["options.num_ctx", "gemma4-ollama-minimal", "only temperature, top_k and top_p"]
        {
            assert!(body.contains(word), "{word}: {body}");
        }
    };
    let (head, _) = ask();
    assert!(head.contains(" 200 ") && asked(&fake).get("options").is_none(), "{head}");

    put(&file, &shipped.replace("action = \"strip\"\n\n[parameters", "\n\n[parameters"));
    hang_up(&serving);
    serving.says("policies read again by=\"SIGHUP\"");
    let before = chats(&fake);
    refused(ask());
    assert_eq!(chats(&fake), before, "the server was not asked");

    put(&file, &shipped.replace("override-verified", "override-verfied"));
    hang_up(&serving);
    let said = serving.says("stay in force");
    for word in ["invalid-policy", "gemma4-ollama-minimal.toml", "override-verfied"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    refused(ask());

    // Verified: it reaches the server, as it was asked.
    let verified = shipped.replace("override-verified = false", "override-verified = true");
    put(&file, &verified);
    hang_up(&serving);
    serving.says("policies read again by=\"SIGHUP\"");
    let (head, body) = ask();
    assert!(head.contains(" 200 "), "{head}\n{body}");
    assert_eq!(asked(&fake)["options"], json!({ "num_ctx": 4096 }));
    assert_eq!(header(&head, "x-gristmill-policy-detail"), None, "{head}");
}

/// The codes of what `/readyz` calls wrong, and all that it says.
fn problems(serving: &Serving) -> (Vec<String>, String) {
    let answer = exchange(&serving.address, "GET", "/readyz", "", "");
    let problems = answer.json()["problems"].as_array().unwrap().clone();
    let code = |problem: &Value| problem["code"].as_str().unwrap().to_owned();
    (problems.iter().map(code).collect(), answer.body)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_changed_file_is_read_without_a_signal_whole_or_not_at_all() {
    const AGAIN: &str = "policies read again by=\"a changed file\"";
    let fake = ollama().await;
    let serving = Started::new(
        Home::with_components(),
        &format!("{ALONE}{}", backend("big", "ollama", &fake.url())),
    );
    let policies = serving.home.path("policies");
    let ask = || serving.answer("/api/chat", "", &chat("llama3", false, json!({})));
    let generation = || {
        let backends = exchange(&serving.address, "GET", "/v1/backends", "", "").json();
        backends["backends"][0]["generation"].as_u64().unwrap()
    };
    assert!(ask().0.contains(" 200 "));

    // A block, and a broken file beside it: neither is taken, and readiness says which file.
    let block = "backend = 'ollama'\nversions = '*'\ncapability = 'inference.text'\n\
        reason = 'it drops words'\nevidence = 'seen'\nexpires = '2999-01-01'\n";
    let broken = policies.join("parameters/other.toml");
    put(&broken, "reson = 'r'");
    put(&policies.join("blocks/words.toml"), block);
    // Of two looks the second has seen both.
    let said = serving.says("stay in force");
    assert!(said.contains("invalid-policy") && said.contains("parameters/other.toml"), "{said}");
    hang_up(&serving);
    serving.says("stay in force by=\"SIGHUP\"");
    assert!(ask().0.contains(" 200 "));
    let (codes, body) = problems(&serving);
    assert_eq!(codes, ["invalid-policy"]);
    assert!(body.contains("parameters/other.toml") && body.contains("reson"), "{body}");

    fs::remove_file(&broken).unwrap();
    serving.says(AGAIN);
    let (head, body) = ask();
    assert!(head.contains(" 403 ") && body.contains("it drops words"), "{head}\n{body}");
    assert!(problems(&serving).0.is_empty());
    fs::remove_file(policies.join("blocks/words.toml")).unwrap();
    serving.says(AGAIN);
    assert!(ask().0.contains(" 200 ") && generation() == 1);

    // A grant: the same component with less, and what it had before does not come back.
    let file = policies.join("grants/ollama.toml");
    let shipped = fs::read_to_string(&file).unwrap();
    let narrow = shipped.replace("/api/chat", "/api/other");
    assert_ne!(narrow, shipped);
    put(&file, &narrow);
    serving.says("follows the ledger backend=\"big\"");
    let before = chats(&fake);
    let (head, body) = ask();
    assert!(!head.contains(" 200 "), "{head}\n{body}");
    assert_eq!((generation(), chats(&fake)), (2, before), "{body}");
    assert!(problems(&serving).0.is_empty());

    put(&file, "kind = 'backend'\nimport = []\n");
    let said = serving.says("stay in force");
    assert!(said.contains("invalid-grant") && said.contains("grants/ollama.toml"), "{said}");
    assert!(!ask().0.contains(" 200 "), "the narrow one");
    assert!(problems(&serving).0.contains(&"invalid-grant".to_owned()));
    put(&file, &shipped);
    serving.says("follows the ledger backend=\"big\"");
    let (head, body) = ask();
    assert!(head.contains(" 200 ") && generation() == 3, "{head}\n{body}");

    // A sound grant beside a policy that is not waits for the whole folder.
    put(&broken, "reson = 'r'");
    serving.says("stay in force");
    put(&file, &narrow);
    serving.says("stay in force");
    assert!(ask().0.contains(" 200 ") && generation() == 3);
    assert!(problems(&serving).0.contains(&"grant-not-applied".to_owned()));
    fs::remove_file(&broken).unwrap();
    serving.says("follows the ledger backend=\"big\"");
    assert!(!ask().0.contains(" 200 ") && generation() == 4);
}

/// Success, and what was said, of a command.
fn run(home: &Home, arguments: &[&str]) -> (bool, String) {
    let output = home.run(arguments);
    (output.status.success(), text(&output.stdout) + &text(&output.stderr))
}

#[test]
fn a_broken_or_unknown_file_refuses_the_start_with_file_and_key() {
    let home = Home::with_components();
    let (sound, said) = run(&home, &["policy", "check"]);
    assert!(sound && said.contains("1 parameter policies, 1 profiles"), "{said}");
    for (file, text, code, key) in [
        ("parameters/x.toml", "reason = \"r\"\nfamly = \"x\"", "invalid-policy", "famly"),
        (
            "parameters/x.toml",
            "family = \"gemma4\"\nbackend = \"ollama\"\nreason = \"r\"",
            "ambiguous-policy",
            "x.toml",
        ),
        ("profiles/x.toml", "description = \"d\"\nparameters.sed = 1", "invalid-profile", "sed"),
        ("parmeters/x.toml", "", "unknown-policy", "parmeters"),
    ] {
        let path = home.path("policies").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        let (sound, said) = run(&home, &["policy", "check"]);
        assert!(!sound && said.contains(code) && said.contains(key), "{said}");
        for word in [code, key, file.split('/').next().unwrap()] {
            home.refuses(&["serve", "--server-listen", "127.0.0.1:0"], word);
        }
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn the_schemas_are_printed() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let home = Home::empty();
    let (listed, kinds) = run(&home, &["policy", "schema"]);
    assert!(listed);
    let mut count = 0;
    for line in kinds.lines() {
        let kind = line.split_whitespace().next().unwrap();
        let (printed, schema) = run(&home, &["policy", "schema", kind]);
        assert!(printed && serde_json::from_str::<Value>(&schema).unwrap()["title"].is_string());
        let shipped = ["policies", "ledger"].map(|room| {
            fs::read_to_string(here.join(format!("../../{room}/schema/{kind}.json"))).ok()
        });
        // The host's own files lie in no folder of schemas.
        match shipped.into_iter().flatten().next() {
            Some(shipped) => assert_eq!(schema, shipped, "{kind}"),
            None => assert!(["key", "settings"].contains(&kind), "{kind}"),
        }
        count += 1;
    }
    assert_eq!(count, 15);
    let (printed, said) = run(&home, &["policy", "schema", "grants"]);
    assert!(!printed && said.contains("known are grant, block"), "{said}");
}
