//! Secret keys stay secret, and what counts as approval is said in one file.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use std::{fs, os::unix::fs::PermissionsExt as _};

use common::{Home, NAME, seed};
use gristmill_ledger::{
    Pin,
    keys::{self, Key, Keys},
    revoked::Revoked,
};

#[test]
fn a_new_key_is_for_its_owner_alone_is_never_written_over_and_never_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("release.key");
    let key = keys::keygen(&path, "release").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let secret = keys::secret(&path).unwrap();
    assert_eq!(Key::of("release", &secret), key);
    let text = fs::read_to_string(&path).unwrap();
    assert!(!format!("{key:?}{secret:?}").contains(text.trim()));
    assert_eq!(keys::keygen(&path, "release").unwrap_err().code(), "ledger-unwritable");
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    let other = keys::keygen(&folder.path().join("other.key"), "other").unwrap();
    assert_ne!(other.public, key.public);
}

#[test]
fn a_key_that_others_may_read_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("release.key");
    keys::keygen(&path, "release").unwrap();
    for mode in [0o640, 0o604, 0o660, 0o644] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let error = keys::secret(&path).unwrap_err();
        assert_eq!(error.code(), "key-exposed");
        assert!(error.to_string().contains(&format!("{mode:o}")), "{error}");
    }
}

#[test]
fn a_secret_that_is_none_is_refused_and_not_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("release.key");
    keys::keygen(&path, "release").unwrap();
    for text in ["", "0707", &"zz".repeat(32), &"+7".repeat(32), &"é".repeat(32)] {
        fs::write(&path, text).unwrap();
        let error = keys::secret(&path).unwrap_err();
        assert_eq!(error.code(), "invalid-keys");
        let error = error.to_string();
        assert!(error.contains("64 hexadecimal digits"), "{error}");
        assert!(text.is_empty() || !error.contains(text), "{error}");
    }
    fs::write(&path, format!("{}\n", "07".repeat(32))).unwrap();
    assert_eq!(Key::of("", &keys::secret(&path).unwrap()), Key::of("", &seed(7)));
}

#[test]
fn keys_that_cannot_be_are_refused() {
    let key = |number| Key::of(format!("key {number}"), &seed(number));
    let weak = Key { name: "weak".into(), public: format!("01{}", "0".repeat(62)) };
    let short = Key { name: "short".into(), public: "0707".into() };
    for (threshold, list, word) in [
        (1, vec![], "0 keys"),
        (3, vec![key(1), key(2)], "2 keys"),
        (1, vec![key(1), key(1)], "twice"),
        (1, vec![weak], "public key"),
        (1, vec![short], "public key"),
    ] {
        let error = Keys { threshold, keys: list }.to_toml().unwrap_err();
        assert!(error.contains(word), "{word}: {error}");
    }
    let good = Keys { threshold: 1, keys: vec![key(1)] };
    let text = good.to_toml().unwrap();
    assert_eq!(Keys::parse(&text).unwrap(), good);
    for (from, to, word) in
        [("threshold = 1", "threshold = 0", "seal"), ("seal = ", "zeal = ", "seal")]
    {
        let error = Keys::parse(&text.replace(from, to)).unwrap_err();
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn a_ledger_without_keys_approves_nothing_and_a_new_one_says_that_it_asks_for_none() {
    let home = Home::unsigned();
    fs::remove_file(home.ledger().join("keys.toml")).unwrap();
    drop(home.keeper());
    assert_eq!(Keys::open(&home.ledger()).unwrap(), Keys::default());
    fs::remove_file(home.ledger().join("keys.toml")).unwrap();
    // It has a log by now, so it is none that is new.
    drop(home.keeper());
    assert_eq!(Keys::open(&home.ledger()).unwrap_err().code(), "invalid-keys");
    assert_eq!(home.faults(), ["invalid-keys"]);
}

#[test]
fn several_sign_one_candidate_one_after_another() {
    let home = Home::signed();
    let mut keeper = home.keeper();
    let pin = home.draft(&keeper, b"first");
    assert_eq!(keeper.sign(NAME, &seed(1)).unwrap_err().code(), "no-candidate");
    let path = keeper.propose(&pin).unwrap();
    let keys = Keys::open(&home.ledger()).unwrap();
    let counted = |pin: &Pin| keys.verify(pin, &Revoked::default()).ok();
    let once = keeper.sign(NAME, &seed(1)).unwrap();
    assert_eq!(counted(&once), None);
    assert_eq!(counted(&keeper.sign(NAME, &seed(1)).unwrap()), None, "a key counts once");
    let twice = keeper.sign(NAME, &seed(3)).unwrap();
    assert_eq!((counted(&twice), twice.signatures.len()), (Some(2), 2));
    let text = fs::read_to_string(&path).unwrap();
    home.promote(&mut keeper, &text, &mut common::Told::default()).unwrap();
    assert!(!path.exists(), "a candidate that is in force is none any more");
}

#[test]
fn a_signature_made_elsewhere_counts_if_it_is_of_this_candidate() {
    let home = Home::signed();
    let mut keeper = home.keeper();
    let pin = home.draft(&keeper, b"first");
    let public = |number| Key::of("", &seed(number)).public;
    let signature = |pin: &Pin, number| keys::detached(pin, &seed(number)).unwrap().signature;
    let first = signature(&pin, 1);
    assert_eq!(keeper.attach(NAME, &public(1), &first).unwrap_err().code(), "no-candidate");
    keeper.propose(&pin).unwrap();
    let before = fs::read_to_string(keeper.candidate(NAME)).unwrap();
    let mut other = pin.clone();
    other.size += 1;
    for (public, signature, word) in [
        (public(1), signature(&other, 1), "not of this candidate"),
        (public(2), first.clone(), "not of this candidate"),
        (public(1), "AAAA".to_owned(), "64 bytes"),
        (public(1), "no base64".to_owned(), "64 bytes"),
        ("07".to_owned(), first.clone(), "public key"),
        (format!("01{}", "0".repeat(62)), first.clone(), "public key"),
    ] {
        let error = keeper.attach(NAME, &public, &signature).unwrap_err();
        assert_eq!(error.code(), "invalid-signature", "{error}");
        assert!(error.to_string().contains(word), "{word}: {error}");
        assert_eq!(fs::read_to_string(keeper.candidate(NAME)).unwrap(), before);
    }
    assert_eq!(keeper.attach("../one", &public(1), &first).unwrap_err().code(), "invalid-pin");

    // It is the one that the secret's own machine would have made.
    let attached = keeper.attach(NAME, &public(1), &first).unwrap();
    keeper.propose(&pin).unwrap();
    assert_eq!(keeper.sign(NAME, &seed(1)).unwrap(), attached);
    let again = keeper.attach(NAME, &public(1), &first).unwrap();
    assert_eq!(again.signatures.len(), 1, "a key signs once");
    keeper.attach(NAME, &public(3), &signature(&pin, 3)).unwrap();
    let text = fs::read_to_string(keeper.candidate(NAME)).unwrap();
    home.promote(&mut keeper, &text, &mut common::Told::default()).unwrap();
}
