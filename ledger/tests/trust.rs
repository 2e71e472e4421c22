//! A start holds the pins in force against what can lapse, as a proof does, without the ledger's lock.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use std::fs;

use common::{Home, NAME, NOW, Told, date, files, report};
use gristmill_ledger::{
    Keeper, Kind, Revoke, Trust, earlier, evidence::Verdict, grant_digest, in_force, in_place,
    keys::Keys, log::LOG, sha256, waiting,
};

/// Whether the pin in force may serve at this time; otherwise the word.
fn starts_at(home: &Home, now: &str) -> Result<u64, &'static str> {
    let opened = Trust::open(&home.ledger(), Some(&home.state()), home.worlds.clone());
    let (trust, ledger) = opened.map_err(|error| error.code())?.expect("a log or keys");
    let pin = ledger.pin(NAME).ok_or("none")?;
    let grant = grant_digest(&home.path("policies"), NAME, Kind::Backend).unwrap();
    let held = trust.holds(pin, grant.as_deref(), date(now));
    held.map(|()| pin.sequence).map_err(|error| error.code())
}

fn starts(home: &Home) -> Result<u64, &'static str> {
    starts_at(home, NOW)
}

#[test]
fn what_lapsed_does_not_start() {
    let home = Home::signed();
    let mut keeper = home.keeper();
    let mut pin = home.draft(&keeper, b"first");
    pin.expires = Some(date("2026-12-31T00:00:00Z"));
    let text = home.sealed(pin, &[1, 2]);
    home.promote(&mut keeper, &text, &mut Told::default()).unwrap();
    // The lock is not asked for.
    assert_eq!(starts(&home), Ok(1));
    drop(keeper);
    assert_eq!(starts_at(&home, "2026-11-30T11:59:59Z"), Err("clock-set-back"));
    assert_eq!(starts_at(&home, "2026-12-31T00:00:00Z"), Err("expired"));

    let grant = home.path("policies/grants/one.toml");
    let approved = fs::read(&grant).unwrap();
    fs::write(&grant, "kind = \"backend\"\n").unwrap();
    assert_eq!(starts(&home), Err("grant-changed"));
    fs::write(&grant, approved).unwrap();

    let mut other = Home::at(home.root.clone());
    for world in &mut other.worlds {
        world.digest = sha256(b"another world");
    }
    assert_eq!(starts(&other), Err("unsupported-contract"));

    home.trust(3, &[1, 2, 3]);
    assert_eq!(starts(&home), Err("signature-threshold"));
    home.trust(2, &[1, 2, 3]);
    assert_eq!(starts(&home), Ok(1));

    // The pin's file alone is revoked, and not the component.
    let revoke = Revoke::Digest(&sha256(text.as_bytes()));
    home.keeper().revoke(revoke, "wrong limits", date(NOW), "test").unwrap();
    assert_eq!(starts(&home), Err("revoked"));
}

#[test]
fn a_report_that_is_gone_or_has_failures_does_not_let_a_pin_start() {
    let home = Home::signed();
    home.promoted(b"first");
    fs::remove_dir_all(home.ledger().join("evidence")).unwrap();
    assert_eq!(starts(&home), Err("evidence-missing"));

    let home = Home::unsigned();
    let mut keeper = home.keeper();
    let mut pin = home.draft(&keeper, b"first");
    let mut failed = report(b"first", "2026-11-29T12:00:00Z");
    failed.predicate.result = Verdict::Failed;
    let bytes = serde_json::to_vec(&failed.seal().unwrap()).unwrap();
    fs::write(home.ledger().join("evidence/failed.json"), &bytes).unwrap();
    pin.evidence = vec![sha256(&bytes)];
    let text = home.sealed(pin, &[]);
    let error = home.promote(&mut keeper, &text, &mut Told::default()).unwrap_err();
    assert_eq!(error.code(), "evidence-failed");
}

#[test]
fn an_older_folder_does_not_start_and_a_rollback_made_here_does() {
    let home = Home::signed();
    home.promoted(b"first");
    let older = files(&home.ledger());
    home.promoted(b"secnd");
    let newer = files(&home.ledger());
    let put = |files: &std::collections::BTreeMap<std::path::PathBuf, Vec<u8>>| {
        fs::remove_dir_all(home.ledger()).unwrap();
        for (path, bytes) in files {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
    };
    put(&older);
    assert_eq!(starts(&home), Err("sequence-replayed"));
    put(&newer);
    assert_eq!(starts(&home), Ok(2));
    fs::write(home.path("components/one.wasm"), b"first").unwrap();
    home.rollback(&mut home.keeper(), None, &mut Told::default()).unwrap();
    assert_eq!(starts(&home), Ok(1));
}

#[test]
fn without_the_log_or_the_keys_nothing_starts_and_no_new_ledger_is_made() {
    let home = Home::signed();
    home.promoted(b"first");
    let log = fs::read(home.ledger().join(LOG)).unwrap();
    fs::remove_file(home.ledger().join(LOG)).unwrap();
    assert_eq!(starts(&home), Err("none"), "no log names a pin");
    fs::write(home.ledger().join(LOG), log).unwrap();
    fs::remove_file(home.ledger().join("keys.toml")).unwrap();
    assert_eq!(starts(&home), Err("invalid-keys"));

    // Neither of them: who opens it to write makes no ledger that anybody may change, and leaves
    // nothing behind.
    fs::remove_file(home.ledger().join(LOG)).unwrap();
    let before = files(&home.ledger());
    for (state, word) in [(Some(home.state()), "remembers pins"), (None, "move pins/ away")] {
        let error = Keeper::open(&home.ledger(), state.as_deref()).unwrap_err();
        assert_eq!(error.code(), "invalid-keys", "{error}");
        for word in [word, "keys.toml", LOG] {
            assert!(error.to_string().contains(word), "{word}: {error}");
        }
        assert_eq!(files(&home.ledger()), before);
    }
    fs::remove_dir_all(home.ledger()).unwrap();
    let error = Keeper::open(&home.ledger(), Some(&home.state())).unwrap_err();
    assert_eq!(error.code(), "invalid-keys", "what is remembered: {error}");
    assert!(files(&home.ledger()).is_empty());

    let bare = tempfile::tempdir().unwrap();
    assert!(Trust::open(bare.path(), None, Vec::new()).unwrap().is_none());
    drop(Keeper::open(bare.path(), None).unwrap());
    assert_eq!(Keys::open(bare.path()).unwrap(), Keys::default());
}

#[test]
fn a_name_from_outside_is_no_path() {
    let home = Home::signed();
    let first = home.promoted(b"first");
    fs::write(home.path("secret.toml"), "seed").unwrap();
    for name in ["../../secret", "../pins/one", "/etc/hosts", "", ".", "..", "a/b", "a\0b"] {
        for code in [
            waiting(&home.ledger(), name).unwrap_err().code(),
            in_place(&home.ledger(), name).unwrap_err().code(),
            in_force(&home.ledger(), name).unwrap_err().code(),
            earlier(&home.ledger(), name, "sha256:").unwrap_err().code(),
        ] {
            assert_eq!(code, "invalid-pin", "{name:?}");
        }
    }
    assert_eq!(waiting(&home.ledger(), NAME).unwrap(), Some(first));
    assert_eq!(waiting(&home.ledger(), "nobody").unwrap(), None);
    let candidates = home.ledger().join("candidates");
    fs::create_dir_all(&candidates).unwrap();
    fs::write(candidates.join("one.toml"), vec![b'#'; (256 << 10) + 1]).unwrap();
    assert_eq!(waiting(&home.ledger(), NAME).unwrap_err().code(), "ledger-unreadable");
    fs::write(candidates.join("one.toml"), [0xff]).unwrap();
    assert_eq!(waiting(&home.ledger(), NAME).unwrap_err().code(), "invalid-pin");
    fs::write(candidates.join("one.toml"), "next").unwrap();
    assert_eq!(waiting(&home.ledger(), NAME).unwrap().as_deref(), Some("next"));
}

#[test]
fn what_is_too_long_to_be_read_is_not_written() {
    let home = Home::signed();
    let first = home.promoted(b"first");
    let mut keeper = home.keeper();
    let before = files(&home.ledger());
    let long = "x".repeat(1_001);
    let refused = keeper.revoke(Revoke::Digest(&sha256(b"bad")), &long, date(NOW), "test");
    assert_eq!(refused.unwrap_err().code(), "invalid-revoked");
    let mut pin = home.draft(&keeper, b"first");
    pin.imports =
        (0..10_000).map(|number| format!("a:b/c{number:05}-{}@0.1.0", "d".repeat(30))).collect();
    assert_eq!(keeper.propose(&pin).unwrap_err().code(), "ledger-full");
    let text = home.sealed(pin, &[1, 2]);
    let refused = home.promote(&mut keeper, &text, &mut Told::default()).unwrap_err();
    assert_eq!(refused.code(), "invalid-pin");
    let name = "n".repeat(129);
    let keys =
        Keys { threshold: 0, keys: vec![gristmill_ledger::keys::Key::of(name, &common::seed(1))] };
    assert_eq!(keeper.trust(&keys).unwrap_err().code(), "invalid-keys");
    let retired = keeper.retire("../one", "no name", date(NOW), "test");
    assert_eq!(retired.unwrap_err().code(), "invalid-pin");
    drop(keeper);
    let mut after = files(&home.ledger());
    for (path, bytes) in before {
        let same = after.remove(&path).is_some_and(|now| now == bytes);
        assert!(same || path.ends_with(LOG), "{}", path.display());
    }
    assert_eq!((after.len(), home.in_place()), (0, first));
}
