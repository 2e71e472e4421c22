//! Kills and failures between any two changes of a commit. (What a whole import promises is
//! tested from outside, in `tests/store`.)
#![allow(clippy::indexing_slicing, reason = "tests may fail loudly")]

use std::{cell::Cell, env, io, process::Command};

use super::{Silent, Sources, Store, StoreError, error::Result};

#[allow(dead_code, reason = "not all of it is used here")]
#[path = "../../tests/store/fixture.rs"]
mod fixture;

#[derive(Clone, Copy)]
enum Fault {
    Fail,
    Die,
}

thread_local! {
    /// How many checkpoints to pass before what happens.
    static FAULT: Cell<Option<(u32, Fault)>> = const { Cell::new(None) };
}

/// Called between any two changes.
pub(super) fn checkpoint() -> Result<()> {
    match FAULT.take() {
        None => Ok(()),
        Some((0, Fault::Die)) => std::process::abort(),
        Some((0, Fault::Fail)) => {
            Err(StoreError::io("write", "a test", io::ErrorKind::StorageFull.into()))
        }
        Some((left, fault)) => {
            FAULT.set(Some((left - 1, fault)));
            Ok(())
        }
    }
}

struct Scene {
    dir: tempfile::TempDir,
    store: Store,
}

/// A store where `m` is one model, and another model in three parts beside it.
fn scene() -> Scene {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open_with(dir.path().join("store"), Sources::default()).unwrap();
    let old = dir.path().join("old.gguf");
    std::fs::write(&old, fixture::Model::new(1).bytes()).unwrap();
    store.import(&old.display().to_string(), Some("m"), &mut Silent).unwrap();
    for (index, bytes) in fixture::split(3, 5).iter().enumerate() {
        std::fs::write(dir.path().join(format!("new-{:05}-of-00003.gguf", index + 1)), bytes)
            .unwrap();
    }
    Scene { dir, store }
}

impl Scene {
    fn new_model(&self) -> String {
        self.dir.path().join("new-00001-of-00003.gguf").display().to_string()
    }

    fn blobs(&self) -> usize {
        std::fs::read_dir(self.store.path().join("blobs")).unwrap().count()
    }
}

#[test]
fn a_failure_between_any_two_changes_undoes_the_commit() {
    let scene = scene();
    let old = scene.store.locate("m").unwrap();
    let mut failures = 0;
    loop {
        FAULT.set(Some((failures, Fault::Fail)));
        let result = scene.store.import(&scene.new_model(), Some("m"), &mut Silent);
        if FAULT.take().is_some() {
            assert_eq!(result.unwrap().paths.len(), 3);
            break;
        }
        let error = result.unwrap_err().to_string();
        assert!(error.contains("the disk is full"), "{error}");
        // The last checkpoint is after the deed.
        if scene.store.locate("m").unwrap() != old {
            break;
        }
        assert_eq!(scene.blobs(), 1, "after failure {failures}");
        assert_eq!(std::fs::read_dir(scene.store.path().join("staging")).unwrap().count(), 0);
        failures += 1;
    }
    assert_eq!(failures, 7, "three blobs, three links, one manifest");
    assert_eq!(scene.blobs(), 3);
}

#[test]
fn a_kill_between_any_two_changes_leaves_one_model_or_the_other() {
    const NAME: &str = "store::tests::a_kill_between_any_two_changes_leaves_one_model_or_the_other";
    if let Ok(role) = env::var("STORE_TEST_ROLE") {
        let role: Vec<&str> = role.split('\n').collect();
        let store = Store::open_with(role[0], Sources::default()).unwrap();
        FAULT.set(Some((role[2].parse().unwrap(), Fault::Die)));
        store.import(role[1], Some("m"), &mut Silent).unwrap();
        return;
    }
    let mut kills = 0;
    let mut replaced = 0;
    loop {
        let scene = scene();
        let old = scene.store.locate("m").unwrap();
        let role = [scene.store.path().display().to_string(), scene.new_model(), kills.to_string()];
        let output = Command::new(env::current_exe().unwrap())
            .args([NAME, "--exact"])
            .env("STORE_TEST_ROLE", role.join("\n"))
            .output()
            .unwrap();
        let found = scene.store.verify("m", &mut Silent).unwrap();
        if output.status.success() {
            assert_eq!(found.paths.len(), 3);
            break;
        }
        replaced += u32::from(found != old);
        // The next import of anything clears what was left.
        let other = scene.dir.path().join("old.gguf").display().to_string();
        scene.store.import(&other, Some("other"), &mut Silent).unwrap();
        scene.store.verify("m", &mut Silent).unwrap();
        let blobs = if found == old { 1 } else { 4 };
        assert_eq!(scene.blobs(), blobs, "after kill {kills}");
        assert_eq!(std::fs::read_dir(scene.store.path().join("staging")).unwrap().count(), 0);
        kills += 1;
    }
    assert_eq!((kills, replaced), (8, 1));
}
