//! A candidate that loses correctness or speed against what is in force cannot be promoted, and one that
//! does not can: with real components on both sides, whose clocks are told and not measured.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod support;

use std::{fs, path::Path};

use gristmill_ledger::Pin;
use gristmill_testing::guests;
use support::Home;

/// A machine on which the honest guest is in force as `liar`.
fn home() -> Home {
    let home = Home::with_components()
        .set("GRISTMILL_PLUGINS_BACKEND", "liar")
        .set("GRISTMILL_PLUGINS_FAMILIES", "");
    let grants = home.path("policies/grants");
    fs::copy(grants.join("cpu.toml"), grants.join("liar.toml")).unwrap();
    propose(&home, &guests::guest("liar").unwrap());
    home.says(&["ledger", "promote", "liar"]);
    home
}

fn propose(home: &Home, component: &[u8]) {
    let file = home.path("next.wasm");
    fs::write(&file, component).unwrap();
    home.says(&["ledger", "pin", "liar", file.to_str().unwrap()]);
}

const QUALIFY: &[&str] = &["ledger", "qualify", "liar", "--model", "honest", "--rounds", "4"];

fn in_force(home: &Home) -> Pin {
    Pin::parse(&fs::read_to_string(home.path("ledger/pins/liar.toml")).unwrap()).unwrap()
}

/// The files of the reports and of the measurements.
fn written(home: &Home) -> [usize; 2] {
    let count = |folder: &Path| fs::read_dir(folder).map_or(0, Iterator::count);
    ["evidence", "performance"].map(|folder| count(&home.path("ledger").join(folder)))
}

#[test]
fn what_loses_is_withdrawn_and_cannot_be_promoted() {
    let home = home();
    let before = in_force(&home);
    for (guest, word) in [
        ("liar_slower", "decode is at 0.500 of what is in force"),
        ("liar_worse", "it fails tools.ids"),
    ] {
        let [reports, records] = written(&home);
        propose(&home, &guests::guest(guest).unwrap());
        home.refuses(QUALIFY, word);
        assert_eq!(written(&home), [reports + 1, records + 1], "{guest}: why is kept");
        assert!(!home.path("ledger/candidates/liar.toml").exists(), "{guest}");
        home.says(&["ledger", "promote", "liar"]);
        assert_eq!(in_force(&home), before, "{guest}");
    }
    assert!(home.says(&["ledger", "verify"]).contains("sound"));
}

#[test]
fn what_does_not_lose_gets_its_evidence_and_a_guardrail_and_is_promoted() {
    let home = home();
    // Other bytes that do the same: a custom section behind them.
    let same = [&guests::guest("liar").unwrap()[..], b"\0\x05\x04same"].concat();
    propose(&home, &same);
    let said = home.says(QUALIFY);
    for line in ["prefill 1.000 of what is in force", "decode 1.000", "qualified liar"] {
        assert!(said.contains(line), "{said}");
    }
    home.says(&["ledger", "promote", "liar"]);
    let pin = in_force(&home);
    assert_eq!((pin.sequence, pin.sha256), (2, gristmill_ledger::sha256(&same)));
    assert_eq!((pin.evidence.len(), pin.guardrail.unwrap().measured.len()), (1, 1));
    assert!(home.says(&["ledger", "verify"]).contains("sound"));
}

#[test]
fn what_cannot_be_compared_is_named() {
    let home = home();
    home.refuses(QUALIFY, "no candidate");
    propose(&home, &guests::guest("liar_slower").unwrap());
    for (arguments, word) in [
        (&["--model", "nobody"][..], "nobody"),
        (&["--model", "honest", "--tolerance", "1"], "--tolerance"),
        (&["--model", "honest", "--rounds", "0"], "--rounds"),
        (&["--model", "honest", "--key", "nowhere"], "nowhere"),
    ] {
        home.refuses(&[&["ledger", "qualify", "liar"], arguments].concat(), word);
    }
    assert!(home.path("ledger/candidates/liar.toml").exists(), "nothing was said against it");
}

/// As if the candidate had been measured on another class of host.
fn elsewhere(home: &Home) {
    let file = home.path("ledger/candidates/liar.toml");
    let mut pin = Pin::parse(&fs::read_to_string(&file).unwrap()).unwrap();
    pin.guardrail.as_mut().unwrap().measured[0].host_class = "aarch64-neon-8".to_owned();
    fs::write(file, pin.to_toml().unwrap()).unwrap();
}

#[test]
fn what_was_measured_elsewhere_is_measured_here_before_it_is_promoted() {
    let home = home();
    let marked =
        |mark: &[u8; 4]| [&guests::guest("liar").unwrap()[..], b"\0\x05\x04", mark].concat();
    propose(&home, &marked(b"same"));
    home.says(QUALIFY);
    home.says(&["ledger", "promote", "liar"]);

    propose(&home, &marked(b"mute"));
    home.refuses(&["ledger", "promote", "liar"], "no report says with which model");

    propose(&home, &marked(b"more"));
    home.says(QUALIFY);
    elsewhere(&home);
    let [_, records] = written(&home);
    home.says(&["ledger", "promote", "liar"]);
    assert_eq!((in_force(&home).sequence, written(&home)[1]), (3, records + 1));

    // What is in force does not know this class, and what was measured of it does.
    let before = in_force(&home);
    propose(&home, &guests::guest("liar_slower").unwrap());
    home.says(&[QUALIFY, &["--tolerance", "0.6"]].concat());
    elsewhere(&home);
    home.refuses(&["ledger", "promote", "liar"], "expected at least");
    assert_eq!(in_force(&home), before);
    assert!(home.says(&["ledger", "verify"]).contains("sound"));
}
