//! A component in quarantine does not come in force, however often the ledger is opened anew, until
//! somebody releases it; the log has both.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use std::{env, fs, os::unix::process::ExitStatusExt as _, path::PathBuf, process::Command};

use common::{Home, NAME, NOW, Told, date, die};
use gristmill_ledger::{
    Keeper,
    log::{Chain, LOG, What},
    sha256,
};

const FOLDER: &str = "GRISTMILL_TEST_LEDGER";
const RELEASE: &str = "GRISTMILL_TEST_RELEASE";
const FAULTS: &str = "5 faults within 600 s";

fn quarantine(keeper: &mut Keeper, component: &[u8]) -> bool {
    let digest = format!("sha256:{}", sha256(component));
    keeper.quarantine(Some(NAME), &digest, FAULTS, date(NOW), "the host").unwrap()
}

fn release(keeper: &mut Keeper, what: &str) -> Result<Vec<String>, &'static str> {
    let released = keeper.release(what, Some("mended"), date(NOW), "ledger release");
    released.map_err(|error| error.code())
}

fn component(home: &Home, bytes: &[u8]) {
    fs::write(home.path("components/one.wasm"), bytes).unwrap();
}

#[test]
fn what_is_in_quarantine_is_neither_promoted_nor_gone_back_to() {
    let home = Home::signed();
    let first = home.promoted(b"first");
    let mut keeper = home.keeper();
    let next = home.sealed(home.draft(&keeper, b"secnd"), &[1, 2]);
    assert!(quarantine(&mut keeper, b"secnd") && !quarantine(&mut keeper, b"secnd"), "told once");
    drop(keeper);

    // Whoever opens the ledger next knows it too.
    let mut keeper = home.keeper();
    let mut host = Told::default();
    let error = home.promote(&mut keeper, &next, &mut host).unwrap_err();
    assert_eq!(error.code(), "quarantined");
    let said = error.to_string();
    for word in [FAULTS, &sha256(b"secnd"), NOW, "ledger release", "pins/one.toml"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(host.asked.is_empty(), "nothing of it was touched: {:?}", host.asked);
    assert_eq!(home.in_place(), first);

    let digest = sha256(b"secnd");
    assert_eq!(release(&mut keeper, &digest), Ok(vec![digest]));
    home.promote(&mut keeper, &next, &mut Told::default()).unwrap();

    // The way back leads past nothing that had too many faults.
    quarantine(&mut keeper, b"first");
    component(&home, b"first");
    let error = home.rollback(&mut keeper, None, &mut Told::default()).unwrap_err();
    assert_eq!(error.code(), "quarantined");
    assert_eq!(release(&mut keeper, &format!("sha256:{}", sha256(b"first"))).unwrap().len(), 1);
    home.rollback(&mut keeper, None, &mut Told::default()).unwrap();
    assert_eq!(home.in_place(), first);
    drop(keeper);
    assert!(home.audit().is_sound(), "{:?}", home.audit().faults);
}

#[test]
fn what_is_in_force_serves_on_and_is_told() {
    let home = Home::signed();
    let text = home.promoted(b"first");
    let mut keeper = home.keeper();
    quarantine(&mut keeper, b"first");
    assert_eq!(home.serve(&keeper, &mut Told::default()).unwrap(), sha256(text.as_bytes()));
    drop(keeper);
    assert_eq!(home.faults(), ["quarantined"]);
    let report = home.audit();
    let known = &report.quarantined[&sha256(b"first")];
    assert_eq!((&*known.name, &*known.reason, known.since), (NAME, FAULTS, date(NOW)));
    assert!(gristmill_ledger::status(&home.ledger()).unwrap()[0].quarantined);
}

#[test]
fn a_name_releases_every_component_that_pins_of_it_are_of() {
    let home = Home::signed();
    for component in [b"first", b"secnd"] {
        home.promoted(component);
    }
    let mut keeper = home.keeper();
    quarantine(&mut keeper, b"first");
    // By whom nobody knew any more; and one that is a stranger's.
    let (second, other) = (sha256(b"secnd"), sha256(b"other"));
    for digest in [&second, &other] {
        assert!(keeper.quarantine(None, digest, FAULTS, date(NOW), "the host").unwrap());
    }
    let mut both = [sha256(b"first"), second];
    both.sort();
    assert_eq!(release(&mut keeper, NAME), Ok(both.to_vec()));
    assert_eq!(release(&mut keeper, NAME), Err("not-quarantined"));
    assert_eq!(release(&mut keeper, &sha256(b"first")), Err("not-quarantined"));
    assert_eq!(release(&mut keeper, "../one"), Err("invalid-pin"));
    assert_eq!(keeper.log().quarantined().into_keys().collect::<Vec<_>>(), [other]);
    let error = keeper.quarantine(None, "sha256:1", FAULTS, date(NOW), "x").unwrap_err();
    assert_eq!(error.code(), "invalid-pin");

    let what = |what: What| {
        let entries = keeper.log().entries.iter().filter(|entry| entry.event.what == what);
        entries.map(|entry| (entry.event.name.clone(), entry.event.by.clone())).collect::<Vec<_>>()
    };
    let by = |by: &str| Some(by.to_owned());
    assert_eq!(what(What::Quarantine)[0], (NAME.to_owned(), by("the host")));
    assert_eq!(what(What::Release).len(), 2);
    assert_eq!(what(What::Release)[0].1, by("ledger release"));
}

/// Runs in a process of its own, which is killed as soon as its line is written; without the variables it
/// does nothing.
#[test]
fn child() {
    let Some(folder) = env::var_os(FOLDER) else { return };
    let mut keeper = Home::at(PathBuf::from(folder)).keeper();
    match env::var_os(RELEASE) {
        Some(_) => drop(release(&mut keeper, NAME).unwrap()),
        None => drop(quarantine(&mut keeper, b"first")),
    }
    die();
}

#[test]
fn it_outlives_a_kill_and_a_line_cut_anywhere_leaves_what_was_before() {
    let home = Home::signed();
    home.promoted(b"first");
    let path = home.ledger().join(LOG);
    let known = || Chain::open(&home.ledger()).unwrap().quarantined().len();
    for released in [false, true] {
        let before = fs::read(&path).unwrap();
        let mut child = Command::new(env::current_exe().unwrap());
        child.args(["child", "--exact", "--nocapture"]).env(FOLDER, &home.root);
        if released {
            child.env(RELEASE, "1");
        }
        let done = child.output().unwrap();
        assert_eq!(done.status.signal(), Some(9), "{}", String::from_utf8_lossy(&done.stderr));
        drop(home.keeper());
        assert_eq!(known(), usize::from(!released));

        let whole = fs::read(&path).unwrap();
        for end in before.len()..whole.len() {
            fs::write(&path, &whole[..end]).unwrap();
            drop(home.keeper());
            assert_eq!(fs::read(&path).unwrap(), before, "cut at {end}");
            assert_eq!(known(), usize::from(released), "cut at {end}");
        }
        fs::write(&path, &whole).unwrap();
    }
}
