//! The schemas say what the readers read: of a whole file of each kind they know every key, ask for the
//! same ones, and refuse every other, at every depth. The shipped files fit them; the shipped schemas are
//! those of the types.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use common::{NOW, date, record, report, seed, upstream};
use gristmill_ledger::{
    Kind, Pin, Seen,
    evidence::{Envelope, Statement},
    guardrail::{Guardrail, Measured},
    keys::{self, Key, Keys},
    log::{Chain, Entry, Event, LOG, What},
    performance::Record,
    revoked::{Revocation, Revoked},
    schema::{self, KINDS},
    sha256,
    upstream::{Disabled, FamilyNote, Status, Upstream},
};
use jsonschema::Validator;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A kind of file: a whole one, and whether its type takes a value.
struct Case {
    kind: &'static str,
    whole: Value,
    reads: fn(&Value) -> bool,
}

fn validator(kind: &str) -> Validator {
    jsonschema::validator_for(&schema::of(kind).unwrap()).unwrap()
}

/// Whether a type takes it, by TOML, as its files are written.
fn toml<T: DeserializeOwned>(value: &Value) -> bool {
    toml::to_string(value).is_ok_and(|text| toml::from_str::<T>(&text).is_ok())
}

/// The same of a sealed file: the seal is the file's first line and not the type's.
fn sealed<T: DeserializeOwned>(value: &Value) -> bool {
    let mut value = value.clone();
    let seal = value.as_object_mut().unwrap().remove("seal");
    seal.is_some_and(|seal| seal.is_string()) && toml::<T>(&value)
}

fn json<T: DeserializeOwned>(value: &Value) -> bool {
    serde_json::from_value::<T>(value.clone()).is_ok()
}

/// A line of the log is what would be written, to the letter.
fn line(value: &Value) -> bool {
    let entry = serde_json::from_value::<Entry>(value.clone());
    entry.is_ok_and(|entry| whole(entry) == *value)
}

fn whole(value: impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap()
}

fn with_seal(value: impl serde::Serialize) -> Value {
    let mut value = whole(value);
    value.as_object_mut().unwrap().insert("seal".into(), json!(sha256(b"")));
    value
}

fn pin() -> Pin {
    let imports = vec!["gristmill:contract/types@0.1.0".to_owned()];
    let mut pin = Pin::first("one", "one.wasm", b"first", Kind::Backend, "0.1", imports);
    let digest = || Some(sha256(b"x"));
    pin.world_digest = digest();
    pin.original = Some("one.wasm".into());
    pin.grant = digest();
    (pin.sequence, pin.previous, pin.rollback) = (2, digest(), Some(1));
    pin.not_before = Some(date(NOW));
    pin.expires = Some(date("2027-11-30T12:00:00Z"));
    pin.evidence = vec![sha256(b"report")];
    let measured = Measured { host_class: "c".into(), prefill: 100.5, decode: 20.5 };
    pin.guardrail = Some(Guardrail { tolerance: 0.05, measured: vec![measured] });
    keys::sign(&mut pin, &seed(1)).unwrap();
    pin
}

fn cases() -> Vec<Case> {
    let revocation = Revocation { digest: sha256(b"x"), reason: "r".into(), date: date(NOW) };
    let upstream = Upstream {
        status: Status::Tested,
        version: Some("1.0".into()),
        commit: Some("c".into()),
        transcripts: Some(sha256(b"t")),
        hardware: vec!["x86_64".into()],
        disabled: vec![Disabled { capability: "c".into(), reason: "r".into() }],
        families: vec![FamilyNote { family: "f".into(), note: "n".into() }],
        ..upstream()
    };
    let mut record = record(b"first");
    record.host.processor = Some("p".into());
    (record.prefill_per_second, record.decode_per_second) = (100.5, 20.5);
    let mut statement = report(b"first", NOW);
    let tested = &mut statement.predicate;
    tested.backend.server_version = Some("1".into());
    (tested.model.digest, tested.model.family, tested.model.quantization) =
        (Some("sha256:x".into()), Some("f".into()), Some("q".into()));
    tested.checks[0].reason = Some("r".into());
    let statement = statement.seal().unwrap();
    let text = || Some("t".to_owned());
    let mut event = Event::new(What::Swap, "one");
    (event.sequence, event.generation) = (Some(1), Some(1));
    (event.pin, event.component, event.from) = (text(), text(), text());
    (event.code, event.reason, event.by) = (text(), text(), text());
    let entry =
        Entry { number: 1, date: date(NOW), event, previous: sha256(b"x"), hash: sha256(b"y") };
    let seen = Seen { highest: 2, rollback: text(), before: text() };
    let keys = Keys { threshold: 1, keys: vec![Key::of("ada", &seed(1))] };
    let revoked = Revoked { digests: vec![revocation.clone()], keys: vec![revocation] };
    vec![
        Case { kind: "pin", whole: whole(pin()), reads: toml::<Pin> },
        Case { kind: "upstream", whole: with_seal(upstream), reads: sealed::<Upstream> },
        Case { kind: "trust", whole: with_seal(keys), reads: sealed::<Keys> },
        Case { kind: "revoked", whole: with_seal(revoked), reads: sealed::<Revoked> },
        Case { kind: "performance", whole: whole(&record), reads: json::<Record> },
        Case { kind: "evidence", whole: whole(&statement), reads: json::<Statement> },
        Case { kind: "log", whole: whole(&entry), reads: line },
        Case {
            kind: "seen",
            whole: with_seal(BTreeMap::from([("one", seen)])),
            reads: sealed::<BTreeMap<String, Seen>>,
        },
        Case {
            kind: "evidence",
            whole: whole(statement.sign(&seed(1)).unwrap()),
            reads: json::<Envelope>,
        },
    ]
}

/// Where there is something in a value: its pointer, outermost first.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let name = name.replace('~', "~0").replace('/', "~1");
                places(value, &format!("{at}/{name}"), found);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                places(value, &format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
}

/// Every name of a property in a schema, and every name of a field in a value.
fn names(value: &Value, properties_only: bool, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match properties_only {
                    true if name == "properties" => {
                        found.extend(value.as_object().unwrap().keys().cloned());
                    }
                    true => {}
                    false => drop(found.insert(name.clone())),
                }
                names(value, properties_only, found);
            }
        }
        Value::Array(items) => {
            items.iter().for_each(|value| names(value, properties_only, found));
        }
        _ => {}
    }
}

#[test]
fn schema_and_type_take_the_same() {
    let mut known: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for Case { kind, whole, reads } in cases() {
        let schema = validator(kind);
        let says = |value: &Value, what: &str| {
            let (read, valid) = (reads(value), schema.is_valid(value));
            assert_eq!(read, valid, "{kind}: {what}: the type says {read}: {value:#}");
            read
        };
        assert!(says(&whole, "whole"), "{kind}");
        names(&whole, false, known.entry(kind).or_default());
        let mut all = Vec::new();
        places(&whole, "", &mut all);
        for at in &all {
            let mut spoiled = whole.clone();
            let place = spoiled.pointer_mut(at).unwrap();
            let free = at.ends_with("/memory");
            if let Some(fields) = place.as_object_mut() {
                fields.insert("zzz".into(), json!(1));
                assert_eq!(says(&spoiled, &format!("more in {at}")), free, "{kind}: {at}");
            }
            let mut spoiled = whole.clone();
            let place = spoiled.pointer_mut(at).unwrap();
            *place = match place {
                Value::Object(_) | Value::Array(_) => json!("zzz"),
                _ => json!([["zzz"]]),
            };
            if at.is_empty() {
                continue;
            }
            assert!(!says(&spoiled, &format!("another type of {at}")), "{kind}: {at}");
            let (parent, name) = at.rsplit_once('/').unwrap();
            let mut less = whole.clone();
            let parent = less.pointer_mut(parent).unwrap();
            if let Some(fields) = parent.as_object_mut() {
                fields.remove(name).unwrap();
                says(&less, &format!("without {at}"));
            }
        }
    }
    for (kind, _) in KINDS {
        let (own, mut properties) = (known.remove(kind).unwrap(), BTreeSet::new());
        names(&schema::of(kind).unwrap(), true, &mut properties);
        let missing: Vec<_> = properties.difference(&own).collect();
        assert!(missing.is_empty(), "{kind}: no type has {missing:?}");
    }
    assert!(schema::of("pins").is_none());
}

/// The text of a sealed file.
fn sealed_text(value: &Value) -> String {
    let mut value = value.clone();
    value.as_object_mut().unwrap().remove("seal");
    let text = toml::to_string(&value).unwrap();
    format!("seal = \"{}\"\n{text}", sha256(text.as_bytes()))
}

#[test]
fn what_a_reader_refuses_in_one_field_the_schema_refuses_too() {
    let reads = |kind: &str, value: &Value| match kind {
        "pin" => Pin::parse(&toml::to_string(value).unwrap()).map(drop),
        "upstream" => Upstream::parse(&sealed_text(value)).map(drop),
        "trust" => Keys::parse(&sealed_text(value)).map(drop),
        "revoked" => Revoked::parse(&sealed_text(value)).map(drop),
        "performance" => Record::parse(&value.to_string()).map(drop),
        other => panic!("{other}"),
    };
    let all = cases();
    for (kind, at, wrong) in [
        ("pin", "/name", json!("One")),
        ("pin", "/kind", json!("kernel")),
        ("pin", "/contract", json!("1")),
        ("pin", "/world-digest", json!("abc")),
        ("pin", "/original", json!("x".repeat(513))),
        ("pin", "/file", json!("../one.wasm")),
        ("pin", "/file", json!("one.so")),
        ("pin", "/sha256", json!("A".repeat(64))),
        ("pin", "/size", json!(-1)),
        ("pin", "/sequence", json!(0)),
        ("pin", "/expires", json!("2027-11-30")),
        ("pin", "/evidence/0", json!("abc")),
        ("pin", "/guardrail/tolerance", json!(1.0)),
        ("pin", "/guardrail/measured/0/host-class", json!("")),
        ("pin", "/signatures/0/key", json!("abc")),
        ("upstream", "/status", json!("fine")),
        ("upstream", "/project", json!("a b")),
        ("upstream", "/transcripts", json!("abc")),
        ("upstream", "/licence", json!("")),
        ("upstream", "/disabled/0/reason", json!("")),
        ("trust", "/keys/0/public", json!("abc")),
        ("trust", "/keys/0/name", json!("x".repeat(129))),
        ("trust", "/threshold", json!(-1)),
        ("revoked", "/digests/0/digest", json!("abc")),
        ("revoked", "/keys/0/reason", json!("x".repeat(1_001))),
        ("performance", "/component", json!(".one")),
        ("performance", "/model-digest", json!("sha256:abc")),
        ("performance", "/result", json!("good")),
        ("performance", "/date", json!("today")),
    ] {
        let case = all.iter().find(|case| case.kind == kind).unwrap();
        reads(kind, &case.whole).unwrap_or_else(|error| panic!("{kind}: {error}"));
        let mut spoiled = case.whole.clone();
        *spoiled.pointer_mut(at).unwrap() = wrong;
        assert!(reads(kind, &spoiled).is_err(), "{kind} {at}: the reader takes {spoiled}");
        assert!(!validator(kind).is_valid(&spoiled), "{kind} {at}: the schema takes {spoiled}");
    }
    let Case { whole, .. } = all.into_iter().find(|case| case.kind == "evidence").unwrap();
    let mut other = whole;
    other["_type"] = json!("https://in-toto.io/Statement/v0.1");
    assert!(Statement::parse(other.to_string().as_bytes(), "it").is_err());
    assert!(!validator("evidence").is_valid(&other));
}

/// The TOML files of a folder and the folders in it.
fn shipped(folder: &Path) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(shipped(&path));
            continue;
        }
        let table: toml::Table = fs::read_to_string(&path).unwrap().parse().unwrap();
        found.push((path.display().to_string(), whole(table)));
    }
    found
}

#[test]
fn every_shipped_file_fits_its_schema() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (folder, kind) in [("pins", "pin"), ("history", "pin"), ("upstreams", "upstream")] {
        let schema = validator(kind);
        let files = shipped(&root.join(folder));
        assert!(files.len() > 3, "{folder}");
        for (path, value) in files {
            assert!(schema.is_valid(&value), "{path}: {:?}", schema.validate(&value).err());
        }
    }
    let keys: toml::Table = fs::read_to_string(root.join("keys.toml")).unwrap().parse().unwrap();
    assert!(validator("trust").is_valid(&whole(keys)));
    let (schema, log) = (validator("log"), fs::read_to_string(root.join(LOG)).unwrap());
    for line in log.lines() {
        assert!(schema.is_valid(&serde_json::from_str(line).unwrap()), "{line}");
    }
    assert!(!Chain::open(root).unwrap().entries.is_empty());
}

#[test]
fn the_shipped_schemas_are_those_of_the_types() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema");
    for (kind, _) in KINDS {
        let shipped = fs::read_to_string(root.join(format!("{kind}.json"))).unwrap_or_default();
        let made = format!("{:#}\n", schema::of(kind).unwrap());
        assert!(
            shipped == made,
            "write it anew: gristmill policy schema {kind} > ledger/schema/{kind}.json"
        );
    }
}

#[test]
fn editors_are_told_of_files_and_schemas_that_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let text = fs::read_to_string(root.join(".taplo.toml")).unwrap();
    let document: toml::Table = text.parse().unwrap();
    let rules = document["rule"].as_array().unwrap();
    assert!(!rules.is_empty());
    for rule in rules {
        let schema = root.join(rule["schema"]["path"].as_str().unwrap());
        assert!(schema.is_file(), "{}", schema.display());
        for include in rule["include"].as_array().unwrap() {
            // Up to the first part that stands for several.
            let parts = include.as_str().unwrap().split('/').take_while(|part| !part.contains('*'));
            let place = parts.fold(root.to_owned(), |place, part| place.join(part));
            assert!(place.exists(), "{}", place.display());
        }
    }
}
