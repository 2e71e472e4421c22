//! A ledger says exactly which bytes run under a name, and is refused where it does not.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use std::{fs, path::Path};

use ed25519_dalek::SigningKey;
use gristmill_ledger::{
    Kind, Ledger, Pin,
    guardrail::{Guardrail, Measured},
    keys, sha256,
};

const BYTES: &[u8] = b"not a component, but bytes all the same";

fn pin(name: &str) -> Pin {
    let imports = vec!["gristmill:contract/clock@0.1.0".into(), "wasi:io/poll@0.2.6".into()];
    Pin::first(name, format!("{name}.wasm"), BYTES, Kind::Backend, "0.1", imports)
}

/// A pin with everything a pin can have.
fn full(name: &str) -> Pin {
    let digest = |byte: u8| sha256(&[byte]);
    let rates = |host_class: &str| Measured {
        host_class: host_class.into(),
        prefill: 120.5,
        decode: 20.25,
    };
    let mut pin = Pin {
        world_digest: Some(digest(1)),
        original: Some(format!("target/plugins/{name}.wasm")),
        grant: Some(digest(2)),
        sequence: 3,
        previous: Some(digest(3)),
        rollback: Some(1),
        not_before: Some("2026-11-30T00:00:00Z".parse().unwrap()),
        expires: Some("2027-11-30T00:00:00Z".parse().unwrap()),
        evidence: vec![digest(4), digest(5)],
        guardrail: Some(Guardrail {
            tolerance: 0.05,
            measured: vec![rates("x86_64-avx2-2"), rates("aarch64-neon-8")],
        }),
        ..pin(name)
    };
    for seed in [7, 8] {
        keys::sign(&mut pin, &SigningKey::from_bytes(&[seed; 32])).unwrap();
    }
    pin
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
        ("two.toml", &full("two").to_toml().unwrap()),
        (".two.toml", "left by an editor"),
        ("two.toml.new", "half a pin"),
        ("README.md", "not a pin"),
    ]);
    let ledger = ledger.unwrap();
    assert_eq!(ledger.pin("one"), Some(&pin("one")));
    assert_eq!(ledger.pins().map(|pin| pin.name.as_str()).collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!(ledger.pin("two"), Some(&full("two")));
    assert_eq!(ledger.pin("three"), None);
}

#[test]
fn a_pin_from_before_there_was_more_to_say_is_read_and_written_as_it_was() {
    let old = "name = \"cpu\"\nkind = \"backend\"\nversion = \"0.1.0\"\ncontract = \"0.1\"\n\
               world = \"backend\"\nfile = \"cpu.wasm\"\n\
               sha256 = \"33eded2047f3abb76f5defbb8b0f909cde0ccdf37210b8808284a166fbda3947\"\n\
               size = 73438\nsequence = 2\nimports = [\"gristmill:contract/types@0.1.0\"]\n";
    let pin = Pin::parse(old).unwrap();
    assert_eq!((pin.previous.as_ref(), pin.signatures.len()), (None, 0));
    assert_eq!(pin.to_toml().unwrap(), old);
}

#[test]
fn a_signature_covers_everything_but_the_signatures() {
    let mut pin = full("one");
    let signed = pin.signed().unwrap();
    pin.signatures.clear();
    assert_eq!(pin.signed().unwrap(), signed);
    let later = Pin { expires: None, ..pin };
    assert_ne!(later.signed().unwrap(), signed);
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
        ("one.toml", good.replace("sequence = 1", "sequence = 0"), "sequence"),
    ];
    let whole = full("one").to_toml().unwrap();
    let more = [
        ("grant = \"", "grant = \"x", "grant"),
        ("previous = \"", "previous = \"x", "previous"),
        ("world-digest = \"", "world-digest = \"x", "world-digest"),
        ("evidence = [\"", "evidence = [\"x", "evidence"),
        ("original = \"", "original = \"\\u0007", "original"),
        ("2027-11-30T00:00:00Z", "2027-11-30", "RFC 3339"),
        ("2027-11-30T00:00:00Z", "2026-11-29T00:00:00Z", "not-before"),
        ("tolerance = 0.05", "tolerance = 1.0", "tolerance"),
        ("tolerance = 0.05", "tolerance = nan", "tolerance"),
        ("decode = 20.25", "decode = 0.0", "zero tokens"),
        ("aarch64-neon-8", "x86_64-avx2-2", "two"),
        ("signature = \"", "signature = \"AAAA", "base64"),
    ];
    let more = more.map(|(from, to, word)| {
        assert!(whole.contains(from), "{from}");
        ("one.toml", whole.replacen(from, to, 1), word)
    });
    for (file, text, word) in cases.into_iter().chain(more) {
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
    let text = pin("one").to_toml().unwrap();
    let (_dir, two) = ledger(&[("one.toml", &text), ("copy.toml", &text)]);
    assert_eq!(two.unwrap_err().code(), "duplicate-pin");
}
