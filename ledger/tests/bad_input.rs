//! What goes wrong around a ledger has a name, says which file and what to do, and changes nothing that
//! is in use.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use std::{
    env, fs,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::PathBuf,
    process::Command,
};

use common::{Home, NAME, NOW, Told, date, files};
use gristmill_ledger::{Ledger, Revoke, log::LOG, sha256};

const FOLDER: &str = "GRISTMILL_TEST_LEDGER";
const REVOKE: &str = "GRISTMILL_TEST_REVOKE";

#[test]
fn two_pins_for_one_name() {
    let home = Home::signed();
    let text = home.promoted(b"first");
    let copy = home.ledger().join("pins/copy.toml");
    // The same once more, and the next pin under a file name of its own: neither is anybody's pin.
    let next = {
        let keeper = home.keeper();
        home.sealed(home.draft(&keeper, b"secnd"), &[1, 2])
    };
    fs::write(home.path("components/one.wasm"), b"first").unwrap();
    for text in [text, next] {
        fs::write(&copy, text).unwrap();
        for error in [
            Ledger::open(&home.ledger()).unwrap_err(),
            gristmill_ledger::status(&home.ledger()).unwrap_err(),
        ] {
            assert_eq!(error.code(), "duplicate-pin");
            let said = error.to_string();
            assert!(said.contains("pins/copy.toml") && said.contains("remove"), "{said}");
        }
        assert_eq!(home.faults(), ["duplicate-pin"]);
    }
    // Without a pin of that name it is a file under a wrong name.
    fs::rename(&copy, home.ledger().join("pins/other.toml")).unwrap();
    fs::remove_file(home.place()).unwrap();
    let error = Ledger::open(&home.ledger()).unwrap_err();
    assert_eq!(error.code(), "invalid-pin");
    assert!(error.to_string().contains("must be named one.toml"), "{error}");
}

#[test]
fn a_pin_for_a_missing_file() {
    let home = Home::signed();
    home.promoted(b"first");
    fs::remove_file(home.path("components/one.wasm")).unwrap();
    let report = home.audit();
    assert_eq!(report.faults[0].code(), "component-missing");
    let said = report.faults[0].to_string();
    assert!(said.contains("components/one.wasm") && said.contains("build or fetch"), "{said}");
}

#[test]
fn a_clock_that_was_set_back() {
    let home = Home::signed();
    let text = home.promoted(b"first");
    let mut keeper = home.keeper();
    let next = home.sealed(home.draft(&keeper, b"secnd"), &[1, 2]);
    let error = home
        .promote_at("2026-11-30T11:59:59Z", &mut keeper, &next, &mut Told::default())
        .unwrap_err();
    assert_eq!(error.code(), "clock-set-back");
    let said = error.to_string();
    assert!(said.contains("/ledger/log.jsonl"), "{said}");
    assert!(said.contains("2026-11-30T12:00:00Z") && said.contains("11:59:59"), "{said}");
    assert_eq!(home.in_place(), text);
    fs::write(home.path("components/one.wasm"), b"first").unwrap();
    let report = home.audit_at("2026-11-30T11:59:59Z");
    assert_eq!(report.faults[0].code(), "clock-set-back");
}

#[test]
fn a_pin_half_written_by_an_editor() {
    let home = Home::signed();
    let text = home.promoted(b"first");
    let log = fs::read(home.ledger().join(LOG)).unwrap();
    for end in 0..text.len() {
        fs::write(home.place(), &text[..end]).unwrap();
        let faults = home.faults();
        assert!(
            faults.iter().any(|code| ["invalid-pin", "pin-changed"].contains(code)),
            "{end}: {faults:?}"
        );
        let error = Ledger::in_force(&home.ledger()).unwrap_err();
        assert_eq!(error.code(), "pin-changed", "{end}");
        assert!(error.to_string().contains("pins/one.toml"), "{error}");
    }
    // Nobody made anything of it, and with the rest of it all is well.
    drop(home.keeper());
    assert_eq!(fs::read(home.ledger().join(LOG)).unwrap(), log);
    fs::write(home.place(), &text).unwrap();
    assert!(home.audit().is_sound());
}

#[test]
fn a_log_keys_or_history_half_written_or_gone() {
    let home = Home::signed();
    home.promoted(b"first");
    home.promoted(b"secnd");
    for (file, codes) in [
        ("keys.toml", &["invalid-keys"][..]),
        ("history/one/1.toml", &["broken-history"]),
        (LOG, &["log-torn", "log-tampered"]),
    ] {
        let path = home.ledger().join(file);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        assert!(
            home.faults().iter().any(|code| codes.contains(code)),
            "{file}: {:?}",
            home.faults()
        );
        fs::remove_file(&path).unwrap();
        if file != LOG {
            assert!(home.faults().iter().any(|code| codes.contains(code)), "{file} gone");
        }
        fs::write(&path, whole).unwrap();
    }
    assert!(home.audit().is_sound());
}

#[test]
fn a_revocation_that_was_taken_out() {
    let home = Home::signed();
    home.promoted(b"first");
    let mut keeper = home.keeper();
    let bad = sha256(b"bad");
    let revoke = Revoke::Digest(&bad);
    keeper.revoke(revoke, "it leaks", date(NOW), "test").unwrap();
    assert_eq!(
        keeper.revoke(revoke, "again", date(NOW), "test").unwrap_err().code(),
        "invalid-revoked"
    );
    fs::remove_file(home.ledger().join("revoked.toml")).unwrap();
    assert_eq!(home.faults(), ["revocation-missing"]);
    let text = home.sealed(home.draft(&keeper, b"secnd"), &[1, 2]);
    let error = home.promote(&mut keeper, &text, &mut Told::default()).unwrap_err();
    assert_eq!(error.code(), "revocation-missing");
}

#[test]
fn a_pin_in_force_that_is_revoked_or_expired_is_told() {
    let home = Home::signed();
    let mut keeper = home.keeper();
    let mut pin = home.draft(&keeper, b"first");
    pin.expires = Some(date("2026-12-31T00:00:00Z"));
    let text = home.sealed(pin, &[1, 2]);
    home.promote(&mut keeper, &text, &mut Told::default()).unwrap();
    drop(keeper);
    assert_eq!(home.audit_at("2026-12-31T00:00:00Z").faults[0].code(), "expired");
    let digest = sha256(b"first");
    let revoke = Revoke::Digest(&digest);
    home.keeper().revoke(revoke, "it leaks", date(NOW), "test").unwrap();
    assert_eq!(home.faults(), ["revoked"]);
    let keeper = home.keeper();
    assert_eq!(home.serve(&keeper, &mut Told::default()).unwrap_err().code(), "revoked");
}

#[test]
fn one_writer_at_a_time() {
    let home = Home::signed();
    let keeper = home.keeper();
    let error = home.try_keeper().unwrap_err();
    assert_eq!(error.code(), "ledger-busy");
    drop(keeper);
    home.try_keeper().unwrap();
}

#[test]
fn a_folder_where_a_file_must_be() {
    let home = Home::signed();
    let text = home.promoted(b"first");
    fs::write(home.ledger().join("history"), "no folder").unwrap();
    let mut keeper = home.keeper();
    let next = home.sealed(home.draft(&keeper, b"secnd"), &[1, 2]);
    let error = home.promote(&mut keeper, &next, &mut Told::default()).unwrap_err();
    assert!(["ledger-unwritable", "ledger-unreadable"].contains(&error.code()), "{error}");
    assert!(error.to_string().contains("history"), "{error}");
    assert_eq!(home.in_place(), text);
}

/// Runs in a process of its own that may not write what it must; says how that went.
#[test]
fn child() {
    let Some(folder) = env::var_os(FOLDER) else { return };
    let home = Home::at(PathBuf::from(folder));
    let text = fs::read_to_string(home.path("candidate.toml")).unwrap();
    let result = home.try_keeper().and_then(|mut keeper| match env::var_os(REVOKE) {
        Some(_) => keeper.revoke(Revoke::Digest(&sha256(b"bad")), "it leaks", date(NOW), "test"),
        None => home.promote(&mut keeper, &text, &mut Told::default()).map(|_| ()),
    });
    match result {
        Ok(_) => println!("RESULT none"),
        Err(error) => println!("RESULT {} {error}", error.code()),
    }
}

fn refused(home: &Home, command: &mut Command) -> String {
    let before = files(&home.ledger().join("pins"));
    let done =
        command.args(["child", "--exact", "--nocapture"]).env(FOLDER, &home.root).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let result = said
        .split("RESULT ")
        .nth(1)
        .unwrap_or_else(|| panic!("no result: {said}{}", String::from_utf8_lossy(&done.stderr)));
    assert_eq!(files(&home.ledger().join("pins")), before, "nothing in use changes");
    result.lines().next().unwrap().to_owned()
}

fn candidate(home: &Home) -> String {
    let text = {
        let keeper = home.keeper();
        home.sealed(home.draft(&keeper, b"secnd"), &[1, 2])
    };
    fs::write(home.path("candidate.toml"), &text).unwrap();
    text
}

#[test]
fn a_disk_that_is_full_when_the_log_is_written() {
    let home = Home::signed();
    home.promoted(b"first");
    // The log is the only file that comes near 16 KiB: the next line is the one that does not fit.
    let path = home.ledger().join(LOG);
    let mut filler = 0;
    while fs::metadata(&path).unwrap().len() < 16 * 1_024 - 300 {
        let left = 16 * 1_024 - 300 - fs::metadata(&path).unwrap().len();
        let mut keeper = home.keeper();
        let reason = "x".repeat(left.saturating_sub(600).clamp(1, 1_000) as usize);
        let digest = sha256(format!("{filler}").as_bytes());
        let revoke = Revoke::Digest(&digest);
        keeper.revoke(revoke, &reason, date(NOW), "test").unwrap();
        filler += 1;
    }
    assert!(fs::metadata(&path).unwrap().len() < 16 * 1_024);
    let text = candidate(&home);
    let log = fs::read(&path).unwrap();
    let shell = "trap '' XFSZ; ulimit -f 16; exec \"$0\" \"$@\"";
    // A promotion makes sure of room before it begins; a single line is taken back where it ends early.
    for revoke in [false, true] {
        let mut limited = Command::new("bash");
        limited.args(["-c", shell]).arg(env::current_exe().unwrap());
        if revoke {
            limited.env(REVOKE, "1");
        }
        let revoked = fs::read(home.ledger().join("revoked.toml")).unwrap();
        let result = refused(&home, &mut limited);
        assert!(result.starts_with("ledger-full "), "{result}");
        assert!(result.contains(LOG) && result.contains("free space"), "{result}");
        assert_eq!(fs::read(&path).unwrap(), log, "no part of a line stays");
        assert_eq!(fs::read(home.ledger().join("revoked.toml")).unwrap(), revoked);
    }

    // With space it goes.
    let mut keeper = home.keeper();
    home.promote(&mut keeper, &text, &mut Told::default()).unwrap();
    drop(keeper);
    assert!(home.audit().is_sound());
}

#[test]
fn permissions_that_were_lost() {
    let home = Home::signed();
    home.promoted(b"first");
    candidate(&home);
    let mode = |path: &str, mode: u32| {
        fs::set_permissions(home.path(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    // Whoever may do everything becomes somebody who may not.
    let other = || {
        let mut command = Command::new(env::current_exe().unwrap());
        let writable = home.path("probe");
        fs::write(&writable, "").unwrap();
        fs::set_permissions(&writable, fs::Permissions::from_mode(0o400)).unwrap();
        if fs::OpenOptions::new().append(true).open(&writable).is_ok() {
            command.uid(65_534).gid(65_534);
        }
        fs::remove_file(writable).unwrap();
        command
    };
    for path in ["", "ledger", "ledger/pins", "ledger/evidence", "components"] {
        mode(path, 0o755);
    }
    mode("ledger/log.jsonl", 0o444);
    let result = refused(&home, &mut other());
    assert!(result.starts_with("ledger-unwritable "), "{result}");
    assert!(result.contains(LOG) && result.contains("give this user the right"), "{result}");

    mode("ledger/log.jsonl", 0o666);
    mode("ledger/keys.toml", 0o000);
    let result = refused(&home, &mut other());
    assert!(result.starts_with("ledger-unreadable "), "{result}");
    assert!(result.contains("keys.toml"), "{result}");
    let standing = home.keeper().standing(NAME);
    assert_eq!(standing.sequence, 1);
}
