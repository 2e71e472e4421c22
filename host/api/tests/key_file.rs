//! The file of the keys: what is in it, who may write it, and that a running host follows it.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests may fail loudly")]

mod support;

use std::{fs, os::unix::fs::PermissionsExt as _};

use axum::http::Method;
use gristmill_api::keys::{KeyRing, Wanted};
use support::{Bench, Keyed};

async fn status(bench: &Bench, key: Option<&str>) -> u16 {
    bench.by(key, Method::GET, "/api/tags", "").await.status.as_u16()
}

/// The words of what is wrong, as `/readyz` has them.
async fn problems(bench: &Bench, key: &str) -> Vec<String> {
    let reply = bench.by(Some(key), Method::GET, "/readyz", "").await;
    assert_eq!(reply.status, 200, "it serves all the same");
    let body = reply.json();
    let problems = body["problems"].as_array().unwrap();
    assert!(problems.iter().all(|problem| problem["part"] == "keys"), "{body}");
    problems.iter().map(|problem| problem["code"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_key_is_made_ended_and_never_told_again() {
    let keyed = Keyed::new();
    let bench = keyed.bench().await;
    assert_eq!(status(&bench, None).await, 200, "no keys yet");

    let key = keyed.add("ci", |_| {});
    let text = fs::read_to_string(keyed.file.path()).unwrap();
    assert!(!text.contains(&key) && !text.contains(key.trim_start_matches("gm_")), "{text}");
    assert_eq!(key.len(), 3 + 64);
    let mode = fs::metadata(keyed.file.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    for (shown, expected) in [(None, 401), (Some(key.as_str()), 200), (Some(&key[..66]), 401)] {
        assert_eq!(status(&bench, shown).await, expected, "with the next request");
    }

    let second = keyed.add("second", |_| {});
    keyed.file.revoke("ci").unwrap();
    assert_eq!((status(&bench, Some(&key)).await, status(&bench, Some(&second)).await), (401, 200));
    keyed.file.revoke("second").unwrap();
    assert_eq!(status(&bench, None).await, 401, "the last key's end opens no door");
    for (again, word) in [("ci", "was revoked"), ("nobody", "there are: ci, second")] {
        let error = keyed.file.revoke(again).unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_read_leaves_the_keys_as_they_were() {
    let keyed = Keyed::new();
    let key = keyed.add("ci", |_| {});
    let bench = keyed.bench().await;
    let path = keyed.file.path();
    let sound = fs::read_to_string(path).unwrap();
    let put = |text: &str, mode: u32| {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };

    for (text, mode, code) in [
        (&sound[..sound.len() / 2], 0o600, "invalid-keys"),
        (&format!("{sound}color = 1\n"), 0o600, "invalid-keys"),
        (&sound, 0o622, "keys-writable-by-others"),
    ] {
        put(text, mode);
        assert_eq!(problems(&bench, &key).await, [code]);
        assert_eq!((status(&bench, Some(&key)).await, status(&bench, None).await), (200, 401));
    }
    fs::remove_file(path).unwrap();
    assert_eq!(problems(&bench, &key).await, ["keys-unreadable"]);
    assert_eq!((status(&bench, Some(&key)).await, status(&bench, None).await), (200, 401));

    put(&sound, 0o600);
    assert!(problems(&bench, &key).await.is_empty(), "it is sound again");
    put("", 0o600);
    assert_eq!((status(&bench, Some(&key)).await, status(&bench, None).await), (401, 401));
}

#[test]
fn a_host_does_not_start_over_a_bad_file_and_the_file_says_where() {
    let keyed = Keyed::new();
    let entry = |more: &str| {
        format!(
            "[[key]]\nname = \"a\"\nsha256 = \"{}\"\ncreated = \"2026-11-30T12:00:00Z\"\n{more}",
            "0".repeat(64)
        )
    };
    let sound = entry("");
    let second = sound.replace("\"a\"", "\"b\"");
    for (text, word) in [
        ("key = 1", "key"),
        ("[[keys]]", "keys"),
        (&entry("color = 1"), "color"),
        (&entry("models = []"), "models"),
        (&entry("models = [\"\"]"), "models"),
        (&entry("operator = true\nmodels = [\"m\"]"), "operator"),
        (&entry("rate = 0.0"), "rate"),
        (&entry("rate = inf"), "rate"),
        (&entry("concurrent = 0"), "concurrent"),
        (&entry("concurrent = -1"), "concurrent"),
        (&entry("revoked = \"yesterday\""), "revoked"),
        (&sound.replace("\"a\"", "\"a b\""), "name"),
        (&sound.replace("\"a\"", "\"\""), "name"),
        (&sound.replace(&"0".repeat(64), "0"), "sha256"),
        (&sound.replace(&"0".repeat(64), &"A".repeat(64)), "sha256"),
        (&format!("{sound}{sound}"), "taken"),
        (&format!("{sound}{second}"), "same sha256"),
        (&sound.replace("created = \"2026-11-30T12:00:00Z\"", ""), "created"),
    ] {
        fs::write(keyed.file.path(), text).unwrap();
        fs::set_permissions(keyed.file.path(), fs::Permissions::from_mode(0o600)).unwrap();
        let error = KeyRing::open(&[], Some(keyed.file.clone())).unwrap_err();
        assert_eq!(error.code(), "invalid-keys", "{text}");
        let message = error.to_string();
        assert!(message.contains("keys.toml") && message.contains(word), "{word}: {message}");
    }
}

#[test]
fn the_schema_takes_what_is_written_and_refuses_what_the_reader_does() {
    let schema = jsonschema::validator_for(&gristmill_api::keys::file::schema()).unwrap();
    let value = |text: &str| serde_json::to_value(text.parse::<toml::Table>().unwrap()).unwrap();
    let keyed = Keyed::new();
    keyed.add("all", |wanted| {
        wanted.models = Some(vec!["m".into()]);
        wanted.rate = Some(0.5);
        wanted.concurrent = Some(4);
    });
    keyed.add("boss", |wanted| wanted.operator = true);
    keyed.file.revoke("boss").unwrap();
    let whole = fs::read_to_string(keyed.file.path()).unwrap();
    assert!(schema.is_valid(&value(&whole)), "{whole}");
    let properties = gristmill_api::keys::file::schema()["$defs"]["Key"]["properties"].clone();
    for name in properties.as_object().unwrap().keys() {
        assert!(whole.contains(&format!("{name} = ")), "{name}: {whole}");
    }
    for (from, to) in [
        ("name", "nam"),
        ("\"all\"", "\"a b\""),
        ("sha256 = \"", "sha256 = \"A"),
        ("[\"m\"]", "[]"),
        ("rate = 0.5", "rate = 0"),
        ("concurrent = 4", "concurrent = 0"),
        ("concurrent = 4", "concurrent = 65537"),
        ("operator = true", "operator = 1"),
        ("created", "made"),
        ("[[key]]", "[[keys]]"),
    ] {
        let text = whole.replacen(from, to, 1);
        assert_ne!(text, whole, "{from}");
        fs::write(keyed.file.path(), &text).unwrap();
        assert!(keyed.file.read().is_err(), "the reader takes {text}");
        assert!(!schema.is_valid(&value(&text)), "the schema takes {text}");
    }
}

#[test]
fn what_cannot_be_a_key_is_not_written() {
    let keyed = Keyed::new();
    keyed.add("ci", |_| {});
    keyed.file.revoke("ci").unwrap();
    let before = fs::read_to_string(keyed.file.path()).unwrap();
    let wanted = |name: &str| Wanted { name: name.to_owned(), ..Wanted::default() };
    for (wanted, word) in [
        (wanted("ci"), "not used again"),
        (wanted("a/b"), "letters"),
        (Wanted { rate: Some(-1.0), ..wanted("x") }, "rate"),
        (Wanted { concurrent: Some(0), ..wanted("x") }, "concurrent"),
        (Wanted { models: Some(Vec::new()), ..wanted("x") }, "models"),
        (Wanted { models: Some(vec!["m".into()]), operator: true, ..wanted("x") }, "operator"),
    ] {
        let error = keyed.file.add(wanted).unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
    }
    assert_eq!(fs::read_to_string(keyed.file.path()).unwrap(), before);
}
