//! Back in one step: the earlier pin, byte for byte, proven again; and not by a way around.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use std::fs;

use common::{Home, NAME, Told};
use gristmill_ledger::{Ledger, log::What, sha256};

fn three() -> (Home, [String; 3]) {
    let home = Home::signed();
    let texts = [b"first", b"secnd", b"third"].map(|component| home.promoted(component));
    (home, texts)
}

fn component(home: &Home, bytes: &[u8]) {
    fs::write(home.path("components/one.wasm"), bytes).unwrap();
}

#[test]
fn the_pin_before_is_in_force_again_as_it_was() {
    let (home, [_, second, third]) = three();
    component(&home, b"secnd");
    let mut keeper = home.keeper();
    let changed = home.rollback(&mut keeper, None, &mut Told::default()).unwrap();
    assert_eq!((changed.pin.sequence, changed.generation), (2, Some(2)));
    assert_eq!(home.in_place(), second);
    assert_eq!(fs::read_to_string(home.ledger().join("history/one/3.toml")).unwrap(), third);
    let whats: Vec<_> =
        keeper.log().entries.iter().rev().take(2).map(|one| one.event.what).collect();
    assert_eq!(whats, [What::Swap, What::Rollback]);
    drop(keeper);
    assert!(home.audit().is_sound(), "{:?}", home.audit().faults);
    assert_eq!(Ledger::in_force(&home.ledger()).unwrap().pin(NAME).unwrap().sequence, 2);

    // It serves after a restart, further back goes too, and what comes next has a new number.
    let mut keeper = home.keeper();
    assert_eq!(home.serve(&keeper, &mut Told::default()).unwrap(), sha256(second.as_bytes()));
    component(&home, b"first");
    let changed = home.rollback(&mut keeper, None, &mut Told::default()).unwrap();
    assert_eq!(changed.pin.sequence, 1);
    let next = home.draft(&keeper, b"fourth");
    assert_eq!((next.sequence, next.previous), (4, Some(changed.digest)));
    drop(keeper);
    home.promoted(b"fourth");
    assert!(home.audit().is_sound(), "{:?}", home.audit().faults);
    let mut keeper = home.keeper();
    component(&home, b"third");
    let error = home.rollback(&mut keeper, Some(3), &mut Told::default()).unwrap_err();
    assert_eq!(error.code(), "no-rollback-target", "the third is not behind the fourth");
}

#[test]
fn a_pin_names_where_to_go_back_to() {
    let home = Home::signed();
    let first = home.promoted(b"first");
    home.promoted(b"secnd");
    let mut keeper = home.keeper();
    let mut pin = home.draft(&keeper, b"third");
    pin.rollback = Some(1);
    let text = home.sealed(pin, &[1, 2]);
    home.promote(&mut keeper, &text, &mut Told::default()).unwrap();
    component(&home, b"first");
    home.rollback(&mut keeper, None, &mut Told::default()).unwrap();
    assert_eq!(home.in_place(), first);
}

#[test]
fn what_is_gone_back_to_is_proven_and_a_refusal_changes_nothing() {
    for (fails, spoiled, code) in [
        ("", &b"other"[..], "digest-mismatch"),
        ("smoke", b"secnd", "smoke-failed"),
        ("swap", b"secnd", "swap-failed"),
    ] {
        let (home, [_, _, third]) = three();
        component(&home, spoiled);
        let mut keeper = home.keeper();
        let error = home.rollback(&mut keeper, None, &mut Told::failing(fails)).unwrap_err();
        assert_eq!(error.code(), code);
        assert_eq!(home.in_place(), third);
        assert_eq!(keeper.standing(NAME).pin, Some(sha256(third.as_bytes())));
        component(&home, b"third");
        drop(keeper);
        let keeper = home.keeper();
        assert!(home.serve(&keeper, &mut Told::default()).is_ok(), "{code}");
        drop(keeper);
        assert!(home.audit().is_sound(), "{code}: {:?}", home.audit().faults);
    }
}

#[test]
fn a_cycle_of_rollbacks_is_named() {
    for (second, third) in
        [(None, Some(3)), (None, Some(9)), (Some(2), Some(2)), (Some(3), Some(2))]
    {
        let home = Home::signed();
        home.promoted(b"first");
        let mut last = String::new();
        for (component, rollback) in [(b"secnd", second), (b"third", third)] {
            let mut keeper = home.keeper();
            let mut pin = home.draft(&keeper, component);
            pin.rollback = rollback;
            last = home.sealed(pin, &[1, 2]);
            home.promote(&mut keeper, &last, &mut Told::default()).unwrap();
        }
        // It is told before anybody needs the way back.
        assert!(home.faults().contains(&"rollback-cycle"), "{second:?} {third:?}");
        component(&home, b"secnd");
        let mut keeper = home.keeper();
        let error = home.rollback(&mut keeper, None, &mut Told::default()).unwrap_err();
        assert_eq!(error.code(), "rollback-cycle", "{second:?} {third:?}");
        assert!(error.to_string().contains(".toml"), "{error}");
        assert_eq!(home.in_place(), last);
        // Whoever says where to does not go by what the pins name.
        home.rollback(&mut keeper, Some(2), &mut Told::default()).unwrap();
        assert_eq!(keeper.standing(NAME).sequence, 2);
    }
}

#[test]
fn there_is_nothing_before_the_first_pin_and_nothing_of_an_unknown_name() {
    let home = Home::signed();
    let mut keeper = home.keeper();
    let none = home.rollback(&mut keeper, None, &mut Told::default()).unwrap_err();
    assert_eq!(none.code(), "no-rollback-target");
    drop(keeper);
    home.promoted(b"first");
    let mut keeper = home.keeper();
    let first = home.rollback(&mut keeper, None, &mut Told::default()).unwrap_err();
    assert_eq!(first.code(), "no-rollback-target");
}

#[test]
fn a_pin_written_into_its_place_waits_and_the_one_before_serves() {
    let home = Home::signed();
    let first = home.promoted(b"first");
    // The machine that pinned it put the superseded one into the history, in the same commit.
    let keeper = home.keeper();
    let text = home.sealed(home.draft(&keeper, b"secnd"), &[1, 2]);
    drop(keeper);
    fs::create_dir_all(home.ledger().join("history/one")).unwrap();
    fs::write(home.ledger().join("history/one/1.toml"), &first).unwrap();
    fs::write(home.place(), &text).unwrap();
    component(&home, b"first");
    let report = home.audit();
    assert!(report.is_sound() && report.pending == [NAME], "{:?}", report.faults);
    assert_eq!(Ledger::in_force(&home.ledger()).unwrap().pin(NAME).unwrap().sequence, 1);
    let lines = gristmill_ledger::status(&home.ledger()).unwrap();
    assert!(lines[0].pending && lines[0].proven && lines[0].pin.sequence == 1);

    let mut keeper = home.keeper();
    assert_eq!(home.serve(&keeper, &mut Told::default()).unwrap(), sha256(first.as_bytes()));
    component(&home, b"secnd");
    let error = home.promote(&mut keeper, &text, &mut Told::failing("smoke")).unwrap_err();
    assert_eq!(error.code(), "smoke-failed");
    assert_eq!(keeper.standing(NAME).sequence, 1);
    home.promote(&mut keeper, &text, &mut Told::default()).unwrap();
    assert_eq!((keeper.standing(NAME).sequence, home.in_place()), (2, text));
    drop(keeper);
    assert!(home.audit().pending.is_empty() && home.audit().is_sound());
}

#[test]
fn a_pin_that_is_retired_is_in_force_nowhere_and_its_number_stays_used() {
    let home = Home::signed();
    let first = home.promoted(b"first");
    let mut keeper = home.keeper();
    keeper.retire(NAME, "not needed", common::date(common::NOW), "test").unwrap();
    assert!(!home.place().exists() && keeper.in_force(NAME).unwrap().is_none());
    assert_eq!(home.serve(&keeper, &mut Told::default()).unwrap_err().code(), "pin-changed");
    drop(keeper);
    assert!(home.audit().is_sound(), "{:?}", home.audit().faults);
    assert_eq!(Ledger::in_force(&home.ledger()).unwrap().pins().count(), 0);

    // A crash before the file was removed.
    fs::write(home.place(), &first).unwrap();
    let mut keeper = home.keeper();
    assert!(!home.place().exists());

    component(&home, b"first");
    let error = home.promote(&mut keeper, &first, &mut Told::default()).unwrap_err();
    assert_eq!(error.code(), "sequence-replayed");
    drop(keeper);
    home.promoted(b"secnd");
    let found = Ledger::in_force(&home.ledger()).unwrap();
    assert_eq!(found.pin(NAME).map(|pin| (pin.sequence, pin.previous.clone())), Some((2, None)));
    assert!(home.audit().is_sound(), "{:?}", home.audit().faults);
}
