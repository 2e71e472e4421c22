//! The ledger in the tree verifies offline, and the words of this crate are the documented ones.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use std::{collections::BTreeSet, fs, path::Path};

use gristmill_ledger::{
    Audit, Date, Ledger, contract,
    keys::Keys,
    upstream::{self, Status, latest_known_good},
};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

#[test]
fn the_shipped_ledger_is_sound() {
    let worlds = contract::worlds();
    let audit = Audit {
        components: None,
        policies: Some(&root().join("policies")),
        transcripts: Some(&root().join("tests/fakes/transcripts")),
        worlds: &worlds,
        state: None,
        now: Date::now(),
    };
    let ledger = root().join("ledger");
    let report = Ledger::verify(&ledger, &audit).unwrap();
    assert!(report.is_sound(), "{:#?}", report.faults);
    assert!(report.pending.is_empty() && report.interrupted.is_empty(), "{report:#?}");
    let (open, in_force) = (Ledger::open(&ledger).unwrap(), Ledger::in_force(&ledger).unwrap());
    assert!(open.pins().eq(in_force.pins()), "every pin was promoted");
    for pin in open.pins() {
        assert!(pin.grant.is_some() && pin.world_digest.is_some(), "{}", pin.name);
    }
}

#[test]
fn developers_can_build_without_keys() {
    assert_eq!(Keys::open(&root().join("ledger")).unwrap(), Keys::default());
}

#[test]
fn what_is_known_of_servers_is_no_more_than_was_seen() {
    let entries = upstream::open(&root().join("ledger")).unwrap();
    let known: Vec<_> = ["llama-server", "ollama", "vllm", "mlx"]
        .into_iter()
        .filter(|project| latest_known_good(&entries, project).is_some())
        .collect();
    assert_eq!(known, ["llama-server"]);
    let recorded: BTreeSet<_> = entries
        .iter()
        .filter(|entry| entry.status == Status::ObservedUnpinned)
        .map(|entry| entry.project.as_str())
        .collect();
    assert_eq!(recorded, BTreeSet::from(["mlx", "ollama", "vllm"]));
    // The version that was tested is the one that is built for the tests.
    let version = latest_known_good(&entries, "llama-server").unwrap().version.clone().unwrap();
    let servers = fs::read_to_string(root().join("xtask/src/servers.rs")).unwrap();
    let (package, number) = version.split_once(' ').unwrap();
    assert!(servers.contains(package) && servers.contains(&format!("\"{number}\"")), "{version}");
}

#[test]
fn every_code_is_documented_and_every_documented_code_exists() {
    let mut codes = BTreeSet::from(["expired", "revoked", "quarantined"].map(str::to_owned));
    for entry in fs::read_dir(root().join("ledger/src")).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        for literal in text.split('"').skip(1).step_by(2) {
            let word =
                |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase());
            if literal.contains('-') && literal.split('-').all(word) {
                codes.insert(literal.to_owned());
            }
        }
    }
    for other in ["date-time", "kebab-case", "model-family", "world-digest", "www-authenticate"] {
        codes.remove(other);
    }
    let docs = fs::read_to_string(root().join("docs/ledger.md")).unwrap();
    let quoted: BTreeSet<&str> = docs.split('`').skip(1).step_by(2).collect();
    let missing: Vec<_> = codes.iter().filter(|code| !quoted.contains(code.as_str())).collect();
    assert!(missing.is_empty(), "not in docs/ledger.md: {missing:?}");
    for row in docs.lines().filter(|line| line.starts_with("| ") && line.contains('`')) {
        let last = row.trim_end_matches('|').rsplit('|').next().unwrap();
        for code in last.split('`').skip(1).step_by(2) {
            assert!(codes.contains(code) || code == "not-a-component", "{code} is no code");
        }
    }
}
