//! Approval rules: the strictest that is about a change counts; what is no rule is refused.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail loudly")]

use std::{collections::BTreeSet, fs, path::Path};

use gristmill_ledger::Pin;
use gristmill_policies::{Approvals, Change, Kind};

/// The example of docs/policies.md.
fn example() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/policies.md");
    let page = fs::read_to_string(page).unwrap();
    let from = page.split_once("```toml\n# approvals.toml\n").unwrap().1;
    from.split_once("```").unwrap().0.to_owned()
}

#[test]
fn the_strictest_rule_counts() {
    let approvals = Approvals::parse(&example()).unwrap();
    for (name, kind, changes, expected) in [
        ("cpu", Kind::Backend, &[][..], 0),
        ("cpu", Kind::Backend, &[Change::NewBytes], 2),
        ("llama", Kind::Family, &[Change::NewBytes], 1),
        ("llama", Kind::Family, &[Change::NewBytes, Change::NewImports], 2),
        ("ollama", Kind::Backend, &[Change::OtherGrant], 2),
        ("ollama", Kind::Backend, &[Change::Rollback], 0),
        ("llama", Kind::Family, &[Change::OtherContract], 1),
    ] {
        let changes: BTreeSet<_> = changes.iter().copied().collect();
        let needed = approvals.needed(name, kind, &changes);
        assert_eq!(needed.approvals, expected, "{name} {changes:?}");
        assert_eq!(needed.because.len(), changes.len(), "each change says how many");
    }
    let rollback = approvals.needed("cpu", Kind::Backend, &BTreeSet::from([Change::Rollback]));
    assert!(rollback.because.iter().all(|(_, _, reason)| reason.is_some()), "{rollback:?}");
}

#[test]
fn no_file_is_one_approval_for_everything() {
    let empty = tempfile::tempdir().unwrap();
    let approvals = Approvals::open(empty.path()).unwrap();
    let needed = approvals.needed("x", Kind::Probe, &BTreeSet::from([Change::Rollback]));
    assert_eq!(needed.approvals, 1);
    fs::write(empty.path().join("approvals.toml"), "otherwse = 0").unwrap();
    let error = Approvals::open(empty.path()).unwrap_err();
    assert_eq!(error.code(), "invalid-approval");
    assert!(error.to_string().contains("approvals.toml"), "{error}");
}

#[test]
fn what_is_no_rule_is_refused_by_name() {
    let whole = "otherwise = 1\n[[rules]]\nchanges = [\"rollback\"]\napprovals = 0\nreason = \"r\"";
    assert!(Approvals::parse(whole).is_ok());
    for (text, word) in [
        (whole.replace("rollback", "roll-back"), "roll-back"),
        (whole.replace("[\"rollback\"]", "[]"), "rules[0]: changes"),
        (whole.replace("approvals = 0", "approvals = 17"), "at most 16"),
        (whole.replace("approvals = 0", "approval = 0"), "approval"),
        (whole.replace("\"r\"", "\"\""), "reason"),
        (whole.replace("otherwise = 1", ""), "otherwise"),
        (whole.replace("otherwise = 1", "otherwise = -1"), "otherwise"),
    ] {
        let error = Approvals::parse(&text).unwrap_err();
        assert!(error.contains(word), "{word}: {error}");
    }
}

#[test]
fn a_pin_says_what_it_changes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ledger/pins/cpu.toml");
    let pin = Pin::parse(&fs::read_to_string(root).unwrap()).unwrap();
    let set = |changes: &[Change]| changes.iter().copied().collect::<BTreeSet<_>>();
    assert_eq!(Change::between(None, &pin), set(&[Change::NewPlugin]));
    assert_eq!(Change::between(Some(&pin), &pin), set(&[]));
    let mut next = pin.clone();
    next.sha256 = "0".repeat(64);
    next.sequence += 1;
    assert_eq!(Change::between(Some(&pin), &next), set(&[Change::NewBytes]));
    next.imports.pop();
    assert_eq!(Change::between(Some(&pin), &next), set(&[Change::NewBytes]), "fewer imports");
    next.imports.push("z:z/z@1.0.0".to_owned());
    next.contract = "0.9".to_owned();
    assert_eq!(
        Change::between(Some(&pin), &next),
        set(&[Change::NewBytes, Change::NewImports, Change::OtherContract])
    );
    let mut next = pin.clone();
    next.grant = Some("0".repeat(64));
    assert_eq!(Change::between(Some(&pin), &next), set(&[Change::OtherGrant]));
}
