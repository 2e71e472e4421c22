//! `kill -9` at every step of a promotion or rollback leaves the old pin or the new one, complete, and
//! a log that verifies; the next who opens the ledger ends what was begun.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use std::{env, fs, os::unix::process::ExitStatusExt as _, path::PathBuf, process::Command};

use common::{Home, NAME, NOW, Told, date, files};
use gristmill_ledger::{
    Revoke, Step,
    log::{Chain, LOG},
    revoked::{REVOKED, Revoked},
    sha256,
};

const FOLDER: &str = "GRISTMILL_TEST_LEDGER";
const STEP: &str = "GRISTMILL_TEST_STEP";
const ACT: &str = "GRISTMILL_TEST_ACT";

/// Runs in a process of its own and is killed there; without the variables it does nothing.
#[test]
fn child() {
    let Some(folder) = env::var_os(FOLDER) else { return };
    let number: u8 = env::var(STEP).unwrap().parse().unwrap();
    let dies = Step::ALL.into_iter().find(|step| step.number() == number);
    let home = Home::at(PathBuf::from(folder));
    let (mut keeper, mut host) = (home.keeper(), Told { dies, ..Told::default() });
    match env::var(ACT).unwrap().as_str() {
        "rollback" | "further rollback" => home.rollback(&mut keeper, None, &mut host).unwrap(),
        _ => {
            let text = fs::read_to_string(home.path("candidate.toml")).unwrap();
            home.promote(&mut keeper, &text, &mut host).unwrap()
        }
    };
}

fn killed(home: &Home, act: &str, step: Step) {
    let done = Command::new(env::current_exe().unwrap())
        .args(["child", "--exact", "--nocapture"])
        .env(FOLDER, &home.root)
        .env(STEP, step.number().to_string())
        .env(ACT, act)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.signal(), Some(9), "{act}, {step:?}: {said}");
}

#[test]
fn every_step_leaves_the_old_pin_or_the_new_one_and_a_log_that_verifies() {
    for act in ["first", "promotion", "rollback"] {
        for step in Step::ALL {
            let home = Home::signed();
            let (mut old, new) = match act {
                "first" => (None, None),
                "promotion" => (Some(home.promoted(b"first")), None),
                _ => {
                    let first = home.promoted(b"first");
                    (Some(home.promoted(b"second")), Some(first))
                }
            };
            let new = new.unwrap_or_else(|| {
                let keeper = home.keeper();
                home.sealed(home.draft(&keeper, b"next"), &[1, 2])
            });
            if act == "rollback" {
                fs::write(home.path("components/one.wasm"), b"first").unwrap();
            }
            fs::write(home.path("candidate.toml"), &new).unwrap();
            killed(&home, act, step);

            // As it was left.
            let case = format!("{act}, {step:?}");
            let place = fs::read_to_string(home.place()).ok();
            assert!(place == old || place.as_ref() == Some(&new), "{case}");
            assert!(Chain::open(&home.ledger()).unwrap().torn.is_none(), "{case}");
            let report = home.audit();
            let unserved = act == "rollback" || act == "promotion";
            let sound = report.faults.iter().all(|fault| {
                // The component beside it is the new one already or still.
                unserved && matches!(fault.code(), "digest-mismatch" | "size-mismatch")
            });
            assert!(sound, "{case}: {:?}", report.faults);
            assert_eq!(
                report.interrupted.is_empty(),
                step < Step::Logged || step >= Step::Placed,
                "{case}"
            );

            // As it is after a restart: what was logged is in force.
            let keeper = home.keeper();
            if step >= Step::Logged {
                old = Some(new.clone());
            }
            assert_eq!(fs::read_to_string(home.place()).ok(), old, "{case}");
            let digest = old.as_ref().map(|text| sha256(text.as_bytes()));
            assert_eq!(keeper.standing(NAME).pin, digest, "{case}");
            if step >= Step::Logged {
                assert_eq!(home.serve(&keeper, &mut Told::default()).ok(), digest, "{case}");
            }
            drop(keeper);

            // And the same once more comes to its end.
            let (mut keeper, mut host) = (home.keeper(), Told::default());
            if act != "rollback" {
                home.promote(&mut keeper, &new, &mut host).unwrap();
            } else if step < Step::Logged {
                home.rollback(&mut keeper, None, &mut host).unwrap();
            }
            drop(keeper);
            assert_eq!(home.in_place(), new, "{case}");
            let report = home.audit();
            assert!(
                report.is_sound() && report.interrupted.is_empty(),
                "{case}: {:?}",
                report.faults
            );
            assert!(
                !files(&home.ledger()).keys().any(|path| path.ends_with("one.toml.new")),
                "{case}"
            );
        }
    }
}

/// The third pin was rolled back to the second, and a rollback from there to the first comes to nothing.
fn rolled_back() -> (Home, [String; 2]) {
    let home = Home::signed();
    let [first, second] = [b"first", b"secnd"].map(|component| home.promoted(component));
    home.promoted(b"third");
    component(&home, b"secnd");
    home.rollback(&mut home.keeper(), None, &mut Told::default()).unwrap();
    component(&home, b"first");
    (home, [first, second])
}

fn component(home: &Home, bytes: &[u8]) {
    fs::write(home.path("components/one.wasm"), bytes).unwrap();
}

#[test]
fn a_rollback_of_a_rollback_leaves_the_pin_permitted_that_is_in_force() {
    for step in Step::ALL {
        let (home, [first, second]) = rolled_back();
        killed(&home, "further rollback", step);
        let (old, bytes) = match step >= Step::Logged {
            true => (&first, b"first"),
            false => (&second, b"secnd"),
        };
        component(&home, bytes);
        let report = home.audit();
        let interrupted = !report.interrupted.is_empty();
        assert!(report.is_sound() || interrupted, "{step:?}: {:?}", report.faults);
        // Twice: what was taken back stays so.
        for _ in 0..2 {
            let keeper = home.keeper();
            let digest = sha256(old.as_bytes());
            assert_eq!(keeper.permitted(NAME).as_ref(), Some(&digest), "{step:?}");
            assert_eq!(home.serve(&keeper, &mut Told::default()).unwrap(), digest, "{step:?}");
        }
        assert!(home.audit().is_sound(), "{step:?}: {:?}", home.audit().faults);
        // What the finished rollback left does not come back by an older log.
        let state = fs::read_to_string(home.state()).unwrap();
        assert!(!state.contains("before"), "{step:?}: {state}");
    }
}

#[test]
fn a_rollback_of_a_rollback_that_fails_leaves_the_pin_permitted_that_is_in_force() {
    let (home, [_, second]) = rolled_back();
    let digest = sha256(second.as_bytes());
    let mut keeper = home.keeper();
    let error = home.rollback(&mut keeper, None, &mut Told::failing("swap")).unwrap_err();
    assert_eq!(error.code(), "swap-failed");
    assert_eq!(keeper.permitted(NAME).as_ref(), Some(&digest), "not swapped");
    component(&home, b"secnd");
    assert_eq!(home.serve(&keeper, &mut Told::default()).unwrap(), digest);
    drop(keeper);
    assert!(home.audit().is_sound(), "{:?}", home.audit().faults);
}

#[test]
fn a_revocation_that_was_logged_is_put_in_place() {
    let home = Home::signed();
    let mut keeper = home.keeper();
    let revoke = |keeper: &mut gristmill_ledger::Keeper, what: &[u8]| {
        keeper.revoke(Revoke::Digest(&sha256(what)), "why", date(NOW), "test").unwrap();
    };
    revoke(&mut keeper, b"a");
    let path = home.ledger().join(REVOKED);
    let before = fs::read(&path).unwrap();
    revoke(&mut keeper, b"b");
    drop(keeper);
    // As a crash between the log and the rename leaves it.
    fs::rename(&path, home.ledger().join("revoked.toml.new")).unwrap();
    fs::write(&path, before).unwrap();
    assert_eq!(home.audit().interrupted, [REVOKED]);
    drop(home.keeper());
    assert_eq!(Revoked::open(&home.ledger()).unwrap().0.digests.len(), 2);
    assert!(home.audit().is_sound());
}

#[test]
fn a_log_line_cut_anywhere_is_torn_and_mended_by_cutting_it_off() {
    let home = Home::signed();
    let text = home.promoted(b"first");
    let path = home.ledger().join(LOG);
    let whole = fs::read(&path).unwrap();
    let last = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    for end in last + 1..whole.len() {
        fs::write(&path, &whole[..end]).unwrap();
        assert_eq!(home.faults(), ["log-torn"], "cut at {end}");
        assert_eq!(Chain::open(&home.ledger()).unwrap().torn, Some(last as u64));
        drop(home.keeper());
        assert_eq!(fs::read(&path).unwrap(), &whole[..last], "cut at {end}");
        assert!(home.audit().is_sound());
    }
    // Zeros, as a file system may leave them.
    fs::write(&path, [&whole[..], &[0; 100]].concat()).unwrap();
    assert_eq!(home.faults(), ["log-torn"]);
    drop(home.keeper());
    assert_eq!((fs::read(&path).unwrap(), home.in_place()), (whole, text));
}
