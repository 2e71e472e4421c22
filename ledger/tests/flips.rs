//! One flipped byte, at every position of everything that a ledger consists of or is held against, is
//! refused under the code of that file.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use std::{fs, path::Path};

use common::{Home, NOW, Told, date, record, report, seed, upstream};
use gristmill_ledger::{
    Revoke,
    log::{Chain, LOG},
    sha256,
    upstream::UPSTREAMS,
};

/// A ledger with something of everything.
fn whole() -> Home {
    let home = Home::signed();
    home.promoted(b"first");
    let mut keeper = home.keeper();
    let mut pin = home.draft(&keeper, b"a component");
    // The report that it names is in an envelope, signed by a key of the ledger.
    let envelope = report(b"a component", "2026-11-29T12:00:00Z").sign(&seed(1)).unwrap();
    let bytes = serde_json::to_vec(&envelope).unwrap();
    fs::write(home.ledger().join("evidence/signed.json"), &bytes).unwrap();
    pin.evidence.push(sha256(&bytes));
    let text = home.sealed(pin, &[1, 2]);
    home.promote(&mut keeper, &text, &mut Told::default()).unwrap();
    keeper.revoke(Revoke::Digest(&sha256(b"bad")), "it leaks", date(NOW), "test").unwrap();
    record(b"a component").store(&home.ledger()).unwrap();
    fs::create_dir_all(home.ledger().join(UPSTREAMS)).unwrap();
    let entry = upstream().to_toml().unwrap();
    fs::write(home.ledger().join(UPSTREAMS).join("ollama.toml"), entry).unwrap();
    drop(keeper);
    let report = home.audit();
    assert!(report.is_sound(), "{:?}", report.faults);
    assert_eq!((report.pins, report.history, report.upstreams, report.performance), (1, 1, 1, 1));
    home
}

fn flip(home: &Home, path: &Path, codes: &[&str]) {
    let bytes = fs::read(path).unwrap();
    assert!(bytes.len() > 10, "{}", path.display());
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1;
        fs::write(path, &flipped).unwrap();
        let faults = home.faults();
        let named = faults.iter().any(|fault| codes.contains(fault));
        assert!(named, "{} at {at}: {faults:?}, expected one of {codes:?}", path.display());
    }
    fs::write(path, bytes).unwrap();
    assert!(home.audit().is_sound());
}

#[test]
fn of_a_component() {
    let home = whole();
    flip(&home, &home.path("components/one.wasm"), &["digest-mismatch"]);
}

#[test]
fn of_a_grant() {
    let home = whole();
    flip(&home, &home.path("policies/grants/one.toml"), &["grant-changed"]);
}

#[test]
fn of_a_pin() {
    let home = whole();
    flip(&home, &home.place(), &["invalid-pin", "pin-changed"]);
}

#[test]
fn of_a_superseded_pin() {
    let home = whole();
    flip(&home, &home.ledger().join("history/one/1.toml"), &["broken-history"]);
}

#[test]
fn of_evidence() {
    let home = whole();
    let text = home.in_place();
    for entry in fs::read_dir(home.ledger().join("evidence")).unwrap() {
        let path = entry.unwrap().path();
        let digest = sha256(&fs::read(&path).unwrap());
        // A report that no pin names is held against its own digest alone.
        let codes: &[&str] = match text.contains(&digest) {
            true => &["invalid-evidence", "evidence-missing"],
            false => &["invalid-evidence"],
        };
        flip(&home, &path, codes);
    }
}

#[test]
fn of_the_log() {
    let home = whole();
    let path = home.ledger().join(LOG);
    let bytes = fs::read(&path).unwrap();
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1;
        fs::write(&path, &flipped).unwrap();
        // Without its end the last line looks like one that was never written whole.
        let code = if at + 1 == bytes.len() { "log-torn" } else { "log-tampered" };
        let read = Chain::open(&home.ledger()).and_then(|chain| chain.whole(&home.ledger()));
        assert_eq!(read.unwrap_err().code(), code, "{at}");
        if at % 16 == 0 || code == "log-torn" {
            assert!(home.faults().contains(&code), "{at}: {:?}", home.faults());
        }
        if at % 16 == 0 {
            assert_eq!(home.try_keeper().unwrap_err().code(), code, "{at}");
        }
    }
}

#[test]
fn of_keys_revocations_upstreams_measurements_and_the_state_outside() {
    let home = whole();
    flip(&home, &home.ledger().join("keys.toml"), &["invalid-keys"]);
    flip(&home, &home.ledger().join("revoked.toml"), &["invalid-revoked"]);
    flip(&home, &home.ledger().join("upstreams/ollama.toml"), &["invalid-upstream"]);
    let record = fs::read_dir(home.ledger().join("performance")).unwrap().next().unwrap().unwrap();
    flip(&home, &record.path(), &["invalid-performance"]);
    flip(&home, &home.state(), &["invalid-state"]);
}

#[test]
fn of_a_candidate_before_anything_is_done_with_it() {
    let home = Home::signed();
    let mut keeper = home.keeper();
    let text = home.sealed(home.draft(&keeper, b"first"), &[1, 2]);
    let mut codes = std::collections::BTreeMap::new();
    for at in 0..text.len() {
        let mut flipped = text.clone().into_bytes();
        flipped[at] ^= 1;
        let flipped = String::from_utf8(flipped).unwrap();
        let mut host = Told::default();
        let error = home.promote(&mut keeper, &flipped, &mut host).unwrap_err();
        assert!(host.asked.is_empty(), "{at}: {error}");
        *codes.entry(error.code()).or_insert(0) += 1;
    }
    let expected = ["invalid-pin", "signature-threshold", "wrong-previous"];
    assert!(codes.keys().all(|code| expected.contains(code)), "{codes:?}");
    assert!(!home.place().exists());
}
