//! A ledger says exactly which bytes run under a name, and is refused where it does not.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use std::{fs, path::Path};

use gristmill_ledger::{Kind, Ledger, Pin, sha256};

const BYTES: &[u8] = b"not a component, but bytes all the same";

fn pin(name: &str) -> Pin {
    Pin {
        name: name.into(),
        kind: Kind::Backend,
        version: "0.1.0".into(),
        contract: "0.1".into(),
        world: "backend".into(),
        file: format!("{name}.wasm"),
        sha256: sha256(BYTES),
        size: BYTES.len() as u64,
        sequence: 1,
        imports: vec!["gristmill:contract/clock@0.1.0".into(), "wasi:io/poll@0.2.6".into()],
    }
}

fn ledger(
    files: &[(&str, &str)],
) -> (tempfile::TempDir, Result<Ledger, gristmill_ledger::LedgerError>) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("pins")).unwrap();
    for (name, text) in files {
        fs::write(dir.path().join("pins").join(name), text).unwrap();
    }
    let ledger = Ledger::open(dir.path());
    (dir, ledger)
}

#[test]
fn a_written_pin_is_read_back_unchanged() {
    let (_dir, ledger) = ledger(&[
        ("one.toml", &pin("one").to_toml().unwrap()),
        ("two.toml", &pin("two").to_toml().unwrap()),
        ("README.md", "not a pin"),
    ]);
    let ledger = ledger.unwrap();
    assert_eq!(ledger.pin("one"), Some(&pin("one")));
    assert_eq!(ledger.pins().map(|pin| pin.name.as_str()).collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!(ledger.pin("three"), None);
}

#[test]
fn a_folder_without_pins_is_an_empty_ledger() {
    assert_eq!(Ledger::open(Path::new("/nonexistent/ledger")).unwrap().pins().count(), 0);
}

#[test]
fn every_flipped_byte_and_every_other_length_is_refused() {
    let pin = pin("one");
    pin.verify(BYTES).unwrap();
    for at in 0..BYTES.len() {
        let mut bytes = BYTES.to_vec();
        bytes[at] ^= 1;
        assert_eq!(pin.verify(&bytes).unwrap_err().code(), "digest-mismatch");
        assert_eq!(pin.verify(&BYTES[..at]).unwrap_err().code(), "size-mismatch");
    }
}

#[test]
fn what_is_not_a_pin_is_refused_and_named() {
    let good = pin("one").to_toml().unwrap();
    let cases = [
        ("one.toml", good.replace("sequence", "sequense"), "sequense"),
        ("one.toml", format!("{good}\napproved = true\n"), "approved"),
        ("one.toml", good.replace("size = 39\n", ""), "size"),
        ("other.toml", good.clone(), "one.toml"),
        ("one.toml", good.replace("name = \"one\"", "name = \"../one\""), "name"),
        ("one.toml", good.replace("one.wasm", "../one.wasm"), "file"),
        ("one.toml", good.replace("one.wasm", ".wasm"), "file"),
        ("one.toml", good.replace("world = \"backend\"", "world = \"probe\""), "world"),
        ("one.toml", good.replace("contract = \"0.1\"", "contract = \"0.1.0\""), "contract"),
        ("one.toml", good.replace("kind = \"backend\"", "kind = \"kernel\""), "kernel"),
        ("one.toml", good.replace(&sha256(BYTES), &sha256(BYTES).to_uppercase()), "sha256"),
        ("one.toml", good.replace("wasi:io/poll", "aaaa:io/poll"), "sorted"),
        ("one.toml", "not toml".to_owned(), "one.toml"),
    ];
    for (file, text, word) in cases {
        let (_dir, ledger) = ledger(&[(file, &text)]);
        let error = ledger.expect_err(&text);
        assert_eq!(error.code(), "invalid-pin");
        assert!(error.to_string().contains(word), "{word}: {error}");
    }
}

#[test]
fn a_name_has_one_pin() {
    let mut newer = pin("one");
    newer.sequence = 2;
    let error = Ledger::from_pins([pin("one"), newer]).unwrap_err();
    assert_eq!(error.code(), "duplicate-pin");
}
