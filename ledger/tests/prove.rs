//! Every check refuses under its own code, in its order, and what it refuses changes nothing in use.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use std::fs;

use common::{CLASS, Home, NAME, NOW, Told, date, files, report, seed};
use gristmill_ledger::{
    Inspected, Keeper, Kind, Pin, Plan, Revoke, Rules,
    evidence::{Resource, Verdict},
    guardrail::Rates,
    keys::Key,
    log::What,
    sha256,
};

/// What is done to a good candidate.
type Spoil = fn(&Home, &mut Keeper, &mut Pin, &mut Told);

fn rewrite(home: &Home, pin: &mut Pin, statement: gristmill_ledger::evidence::Statement) {
    let bytes = serde_json::to_vec(&statement.seal().unwrap()).unwrap();
    fs::write(home.ledger().join("evidence/other.json"), &bytes).unwrap();
    pin.evidence = vec![sha256(&bytes)];
}

/// In the order in which they are checked; nothing further is asked of the host than this.
const CASES: &[(&str, &str, &[&str], Spoil)] = &[
    ("another name", "invalid-pin", &[], |_, _, pin, _| pin.name = "two".into()),
    ("of tomorrow", "not-yet-valid", &[], |_, _, pin, _| {
        pin.not_before = Some(date("2026-12-01T00:00:00Z"));
    }),
    ("of yesterday", "expired", &[], |_, _, pin, _| {
        pin.expires = Some(date("2026-11-30T00:00:00Z"));
    }),
    ("revoked component", "revoked", &[], |_, keeper, pin, _| {
        keeper.revoke(Revoke::Digest(&pin.sha256), "leaks", date(NOW), "test").unwrap();
    }),
    ("a sequence that was used", "sequence-replayed", &[], |_, _, pin, _| pin.sequence = 1),
    ("after another pin", "wrong-previous", &[], |_, _, pin, _| {
        pin.previous = Some(sha256(b"another"));
    }),
    ("a revoked key", "signature-threshold", &[], |_, keeper, _, _| {
        let id = Key::of("", &seed(1)).id().unwrap();
        keeper.revoke(Revoke::Key(&id), "lost", date(NOW), "test").unwrap();
    }),
    ("no component", "component-missing", &[], |home, _, _, _| {
        fs::remove_file(home.path("components/one.wasm")).unwrap();
    }),
    ("a longer component", "size-mismatch", &[], |home, _, _, _| {
        fs::write(home.path("components/one.wasm"), "second and more").unwrap();
    }),
    ("another component", "digest-mismatch", &[], |home, _, _, _| {
        fs::write(home.path("components/one.wasm"), "secund").unwrap();
    }),
    ("no component at all", "invalid-component", &["inspect"], |_, _, _, host| {
        host.fails = "inspect";
    }),
    ("a further import", "import-mismatch", &["inspect"], |_, _, _, host| {
        host.inspected.imports.push("wasi:sockets/tcp@0.2.6".into());
    }),
    ("an import less", "import-mismatch", &["inspect"], |_, _, _, host| {
        host.inspected.imports.pop();
    }),
    ("another grant", "grant-changed", &["inspect"], |home, _, _, _| {
        fs::write(home.path("policies/grants/one.toml"), "kind = \"backend\"\n").unwrap();
    }),
    ("an import not granted", "import-not-granted", &["inspect"], |_, _, pin, host| {
        pin.imports.push("wasi:sockets/tcp@0.2.6".into());
        host.inspected.imports.clone_from(&pin.imports);
    }),
    ("a contract to come", "unsupported-contract", &["inspect"], |_, _, pin, host| {
        pin.contract = "0.2".into();
        host.inspected.contract = "0.2".into();
    }),
    ("another kind", "unsupported-contract", &["inspect"], |_, _, _, host| {
        host.inspected = Inspected { kind: Kind::Probe, ..host.inspected.clone() };
    }),
    ("another world", "unsupported-contract", &["inspect"], |_, _, pin, _| {
        pin.world_digest = Some(sha256(b"another world"));
    }),
    ("no evidence", "evidence-missing", &["inspect"], |_, _, pin, _| pin.evidence.clear()),
    ("evidence that is nowhere", "evidence-missing", &["inspect"], |_, _, pin, _| {
        pin.evidence = vec![sha256(b"nowhere")];
    }),
    ("evidence of another", "evidence-missing", &["inspect"], |home, _, pin, _| {
        rewrite(home, pin, report(b"another", "2026-11-29T12:00:00Z"));
    }),
    ("evidence of failure", "evidence-failed", &["inspect"], |home, _, pin, _| {
        let mut statement = report(b"second", "2026-11-29T12:00:00Z");
        statement.predicate.result = Verdict::Failed;
        rewrite(home, pin, statement);
    }),
    ("evidence of nothing", "evidence-missing", &["inspect"], |home, _, pin, _| {
        let mut statement = report(b"second", "2026-11-29T12:00:00Z");
        statement.predicate.result = Verdict::Unproven;
        rewrite(home, pin, statement);
    }),
    (
        "evidence of nothing that says it passed",
        "evidence-missing",
        &["inspect"],
        |home, _, pin, _| {
            let mut statement = report(b"second", "2026-11-29T12:00:00Z");
            statement.predicate.passed_tests.clear();
            rewrite(home, pin, statement);
        },
    ),
    (
        "evidence of failure that says it passed",
        "evidence-failed",
        &["inspect"],
        |home, _, pin, _| {
            let mut statement = report(b"second", "2026-11-29T12:00:00Z");
            statement.predicate.failed_tests.push("text.seed".into());
            rewrite(home, pin, statement);
        },
    ),
    ("evidence of long ago", "evidence-stale", &["inspect"], |home, _, pin, _| {
        rewrite(home, pin, report(b"second", "2026-08-30T12:00:00Z"));
    }),
    ("evidence of tomorrow", "evidence-stale", &["inspect"], |home, _, pin, _| {
        rewrite(home, pin, report(b"second", "2026-12-01T12:00:01Z"));
    }),
    ("no guardrail", "guardrail-missing", &["inspect"], |_, _, pin, _| pin.guardrail = None),
    ("slower", "guardrail-broken", &["inspect"], |_, _, pin, _| {
        pin.guardrail.as_mut().unwrap().measured[0].decode = 18.9;
    }),
    ("slower, with a tolerance of its own", "guardrail-broken", &["inspect"], |_, _, pin, _| {
        let own = pin.guardrail.as_mut().unwrap();
        (own.tolerance, own.measured[0].decode) = (0.5, 15.0);
    }),
    ("measured here: slower", "guardrail-broken", &["inspect", "measure"], |_, _, pin, host| {
        pin.guardrail.as_mut().unwrap().measured.clear();
        host.rates = Ok(Rates { prefill: 100.0, decode: 18.0 });
    }),
    ("measured here: nothing", "guardrail-broken", &["inspect", "measure"], |_, _, pin, host| {
        pin.guardrail.as_mut().unwrap().measured.clear();
        host.rates = Ok(Rates { prefill: 100.0, decode: 0.0 });
    }),
    ("not measured", "guardrail-unmeasured", &["inspect", "measure"], |_, _, pin, host| {
        pin.guardrail.as_mut().unwrap().measured[0].host_class = "aarch64-neon-8".into();
        host.fails = "measure";
    }),
    ("not compiled", "compile-failed", &["inspect", "compile"], |_, _, _, host| {
        host.fails = "compile";
    }),
    ("smoke", "smoke-failed", &["inspect", "compile", "smoke"], |_, _, _, host| {
        host.fails = "smoke";
    }),
    ("not swapped", "swap-failed", &["inspect", "compile", "smoke", "swap"], |_, _, _, host| {
        host.fails = "swap";
    }),
];

#[test]
fn every_refusal_has_its_code_is_logged_and_changes_nothing() {
    for (case, code, asked, spoil) in CASES {
        let home = Home::signed();
        let first = home.promoted(b"first");
        let mut keeper = home.keeper();
        let (mut pin, mut host) = (home.draft(&keeper, b"second"), Told::default());
        spoil(&home, &mut keeper, &mut pin, &mut host);
        let text = home.sealed(pin, &[1, 2]);
        let history = home.ledger().join("history");
        let error = home.promote(&mut keeper, &text, &mut host).expect_err(case);
        assert_eq!((error.code(), host.asked.as_slice()), (*code, *asked), "{case}: {error}");
        assert!(error.to_string().contains("one."), "{case}: no file is named: {error}");
        assert_eq!(home.in_place(), first, "{case}");
        assert_eq!(keeper.standing(NAME).pin, Some(sha256(first.as_bytes())), "{case}");
        assert_eq!(keeper.highest(NAME), 1, "{case}");
        let last = keeper.log().entries.last().unwrap();
        let what = if *code == "swap-failed" { What::Abandoned } else { What::Refusal };
        assert_eq!((last.event.what, last.event.code.as_deref()), (what, Some(*code)), "{case}");
        assert!(what == What::Abandoned || !history.exists(), "{case}");
    }
}

#[test]
fn the_earlier_of_two_faults_is_told() {
    // Each candidate has the faults of two neighbours in the list, as far as these go together.
    for pair in CASES.windows(2) {
        let [(case, code, _, spoil), (next, _, _, spoil_more)] = pair else { panic!() };
        let together = ![
            // One undoes the other, or they are the same check.
            ("of tomorrow", "of yesterday"),
            ("revoked component", "a sequence that was used"),
            ("no component", "a longer component"),
            ("a longer component", "another component"),
            ("no component at all", "a further import"),
            ("a further import", "an import less"),
            ("another grant", "an import not granted"),
            ("an import not granted", "a contract to come"),
            ("no evidence", "evidence that is nowhere"),
            ("evidence that is nowhere", "evidence of another"),
            ("evidence of another", "evidence of failure"),
            ("evidence of failure", "evidence of long ago"),
            ("no guardrail", "slower"),
            ("slower, with a tolerance of its own", "measured here: slower"),
            ("measured here: slower", "measured here: nothing"),
            ("measured here: nothing", "not measured"),
            ("not measured", "not compiled"),
            ("not compiled", "smoke"),
            ("smoke", "not swapped"),
        ]
        .contains(&(*case, *next));
        if !together {
            continue;
        }
        let home = Home::signed();
        home.promoted(b"first");
        let mut keeper = home.keeper();
        let (mut pin, mut host) = (home.draft(&keeper, b"second"), Told::default());
        spoil_more(&home, &mut keeper, &mut pin, &mut host);
        spoil(&home, &mut keeper, &mut pin, &mut host);
        let text = home.sealed(pin, &[1, 2]);
        let error = home.promote(&mut keeper, &text, &mut host).expect_err(case);
        assert_eq!(error.code(), *code, "{case}, and {next}: {error}");
    }
}

#[test]
fn a_good_candidate_is_asked_everything_in_order_and_comes_in_force() {
    let home = Home::signed();
    home.promoted(b"first");
    let mut keeper = home.keeper();
    let mut pin = home.draft(&keeper, b"second");
    pin.guardrail.as_mut().unwrap().measured.clear();
    let text = home.sealed(pin, &[3, 1]);
    let mut host = Told::default();
    let changed = home.promote(&mut keeper, &text, &mut host).unwrap();
    assert_eq!(host.asked, ["inspect", "measure", "compile", "smoke", "swap"]);
    assert_eq!((changed.changed, changed.generation), (true, Some(2)));
    assert!(changed.unrecorded.is_none());
    assert_eq!(home.in_place(), text);
    let whats: Vec<_> = keeper.log().entries.iter().map(|entry| entry.event.what).collect();
    assert_eq!(whats, [What::Promotion, What::Swap, What::Promotion, What::Swap]);
    drop(keeper);
    assert!(home.audit().is_sound(), "{:?}", home.audit().faults);

    // Once more: it is in force, and nobody is asked.
    let (mut keeper, mut host) = (home.keeper(), Told::default());
    let again = home.promote(&mut keeper, &text, &mut host).unwrap();
    assert_eq!((again.changed, host.asked.len()), (false, 0));
}

#[test]
fn too_few_signatures_and_wrong_ones_do_not_count() {
    let home = Home::signed();
    let mut keeper = home.keeper();
    let pin = home.draft(&keeper, b"first");
    for seeds in [&[][..], &[1], &[9, 8], &[1, 9]] {
        let text = home.sealed(pin.clone(), seeds);
        let error = home.promote(&mut keeper, &text, &mut Told::default()).unwrap_err();
        assert_eq!(error.code(), "signature-threshold", "{seeds:?}: {error}");
    }
    // Signatures of another text.
    let mut moved = Pin::parse(&home.sealed(pin, &[1, 2])).unwrap();
    moved.version = "0.2.0".into();
    let text = moved.to_toml().unwrap();
    let error = home.promote(&mut keeper, &text, &mut Told::default()).unwrap_err();
    assert_eq!(error.code(), "signature-threshold");
}

#[test]
fn a_text_that_is_no_pin_is_refused_and_the_same_refusal_is_logged_once() {
    let home = Home::unsigned();
    let mut keeper = home.keeper();
    for _ in 0..3 {
        let error = home.promote(&mut keeper, "name = ", &mut Told::default()).unwrap_err();
        assert_eq!(error.code(), "invalid-pin");
    }
    assert_eq!(keeper.log().entries.len(), 1);
}

#[test]
fn an_older_validly_signed_pin_does_not_come_back() {
    let home = Home::signed();
    let first = home.promoted(b"first");
    let before = files(&home.ledger());
    home.promoted(b"second");

    // As a candidate.
    let mut keeper = home.keeper();
    fs::write(home.path("components/one.wasm"), b"first").unwrap();
    let error = home.promote(&mut keeper, &first, &mut Told::default()).unwrap_err();
    assert_eq!(error.code(), "sequence-replayed");
    drop(keeper);

    // Put in its place.
    fs::write(home.place(), &first).unwrap();
    assert!(home.faults().contains(&"pin-changed"), "{:?}", home.faults());

    // With the whole folder as it was then: what is remembered outside still tells.
    fs::remove_dir_all(home.ledger()).unwrap();
    for (path, bytes) in before {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    assert_eq!(home.faults(), ["sequence-replayed"]);
    let keeper = home.keeper();
    let error = home.serve(&keeper, &mut Told::default()).unwrap_err();
    assert_eq!(error.code(), "sequence-replayed");
    drop(keeper);
    assert_eq!(home.faults(), ["sequence-replayed"], "opening it does not bless it");
}

#[test]
fn a_change_takes_the_approvals_that_rules_ask_for_and_what_is_in_force_does_not() {
    let home = Home::signed();
    let mut keeper = home.keeper();
    let ask = |approvals| Rules { approvals, ..Rules::default() };
    let pin = home.draft(&keeper, b"first");
    for (seeds, approvals, found) in [
        (&[1_u8, 2][..], 3, Err("approval-missing")),
        (&[1, 2, 9], 3, Err("approval-missing")),
        (&[1, 2, 3], 3, Ok(())),
    ] {
        let (text, rules) = (home.sealed(pin.clone(), seeds), ask(approvals));
        let result = home.with_terms(NOW, |terms| {
            let terms = gristmill_ledger::Terms { rules: &rules, ..terms };
            keeper.promote(&Plan { name: NAME, text: &text, terms }, &mut Told::default())
        });
        assert_eq!(result.map(drop).map_err(|error| error.code()), found, "{seeds:?}");
    }
    fs::write(home.path("components/one.wasm"), b"secnd").unwrap();
    let text = home.sealed(home.draft(&keeper, b"secnd"), &[1, 2, 3]);
    home.promote(&mut keeper, &text, &mut Told::default()).unwrap();
    fs::write(home.path("components/one.wasm"), b"first").unwrap();
    for (approvals, found) in [(4, Err("approval-missing")), (3, Ok(()))] {
        let rules = ask(approvals);
        let result = home.with_terms(NOW, |terms| {
            let terms = gristmill_ledger::Terms { rules: &rules, ..terms };
            keeper.rollback(NAME, None, terms, &mut Told::default())
        });
        assert_eq!(result.map(drop).map_err(|error| error.code()), found, "{approvals}");
    }
    let rules = ask(16);
    let served = home.with_terms(NOW, |terms| {
        let terms = gristmill_ledger::Terms { rules: &rules, ..terms };
        keeper.serve(NAME, terms, &mut Told::default())
    });
    assert!(served.is_ok());
}

#[test]
fn evidence_must_be_of_the_suite_of_today() {
    let home = Home::unsigned();
    let mut keeper = home.keeper();
    let text = home.draft(&keeper, b"first").to_toml().unwrap();
    for (probe, fine) in [("another", false), ("probe", true)] {
        let suite = vec![Resource::new("probe-text", &sha256(probe.as_bytes()))];
        let rules = Rules { suite, ..Rules::default() };
        let result = home.with_terms(NOW, |terms| {
            let terms = gristmill_ledger::Terms { rules: &rules, ..terms };
            keeper.promote(&Plan { name: NAME, text: &text, terms }, &mut Told::default())
        });
        assert_eq!(result.is_ok(), fine);
        assert_eq!(result.err().map(|error| error.code()), (!fine).then_some("evidence-stale"));
    }
}

#[test]
fn a_pin_in_force_does_not_lapse_because_its_reports_grow_old() {
    let home = Home::signed();
    home.promoted(b"first");
    let keeper = home.keeper();
    let later = "2027-11-30T12:00:00Z";
    let serve = |host: &mut Told| home.with_terms(later, |terms| keeper.serve(NAME, terms, host));
    assert_eq!(serve(&mut Told::default()).unwrap().pin.sequence, 1);
    assert_eq!(serve(&mut Told::failing("smoke")).unwrap_err().code(), "smoke-failed");
    assert!(home.audit_at(later).is_sound());
}

#[test]
fn rates_are_compared_with_the_tolerance_of_the_pin_in_force() {
    let baseline = Rates { prefill: 100.0, decode: 20.0 };
    for (decode, fine) in [(25.0, true), (19.0, true), (18.99, false)] {
        assert_eq!(
            Rates { prefill: 100.0, decode }.holds(baseline, 0.05).is_ok(),
            fine,
            "{decode}"
        );
    }
    let error = Rates { prefill: 94.0, decode: 20.0 }.holds(baseline, 0.05).unwrap_err();
    assert!(error.contains("prefill") && error.contains("95.00"), "{error}");
    assert!(!Rates { prefill: f64::NAN, decode: 1.0 }.is_run());
    assert_eq!(common::record(b"").host.class(), CLASS);
}
