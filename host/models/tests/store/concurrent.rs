//! Several processes and threads may use one store at the same time.

use std::{process::Stdio, sync::Barrier, thread};

use gristmill_models::store::{Silent, Sources, Store};

use crate::support::{Room, child, role};

#[test]
fn processes_and_threads_import_the_same_model_at_once() {
    const NAME: &str = "concurrent::processes_and_threads_import_the_same_model_at_once";
    if let Some(role) = role() {
        let store = Store::open_with(&role[0], Sources::default()).unwrap();
        for round in 0..10 {
            let path = &role[1 + round % 2];
            store.import(path, Some("m"), &mut Silent).unwrap();
            store.import(path, Some(&role[3]), &mut Silent).unwrap();
        }
        return;
    }
    let room = Room::new();
    let root = room.root().display().to_string();
    let models = [room.model("a.gguf", 1), room.model("b.gguf", 2)];
    let children: Vec<_> = ["p1", "p2"]
        .iter()
        .map(|own| {
            child(NAME, &[&root, &models[0], &models[1], own])
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    thread::scope(|scope| {
        for own in ["t1", "t2"] {
            let (room, models) = (&room, &models);
            scope.spawn(move || {
                let store = Store::open_with(room.root(), Sources::default()).unwrap();
                for round in 0..10 {
                    store.import(&models[round % 2], Some("m"), &mut Silent).unwrap();
                    store.import(&models[round % 2], Some(own), &mut Silent).unwrap();
                }
            });
        }
        // A reader meanwhile: what is listed can be read, or has just been replaced.
        for _ in 0..50 {
            room.store.list().unwrap();
            if let Ok(found) = room.store.locate("t1") {
                assert_eq!(found.size, found.paths[0].metadata().map_or(found.size, |m| m.len()));
            }
        }
    });
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    for name in ["m", "p1", "p2", "t1", "t2"] {
        room.store.verify(name, &mut Silent).unwrap();
    }
    let kept: Vec<_> = room.tree().into_keys().collect();
    let blobs = kept.iter().filter(|name| name.starts_with("blobs/")).count();
    assert!(blobs <= 2 && kept.len() == blobs + 5, "{kept:?}");
}

#[test]
fn importing_and_removing_at_once_never_leaves_a_name_without_weights() {
    let room = Room::new();
    let model = room.model("a.gguf", 1);
    let start = Barrier::new(3);
    thread::scope(|scope| {
        for own in ["x", "y"] {
            let (room, model, start) = (&room, &model, &start);
            scope.spawn(move || {
                let store = Store::open_with(room.root(), Sources::default()).unwrap();
                start.wait();
                for _ in 0..30 {
                    store.import(model, Some(own), &mut Silent).unwrap();
                    store.remove(own).unwrap();
                }
                store.import(model, Some(own), &mut Silent).unwrap();
            });
        }
        let store = Store::open_with(room.root(), Sources::default()).unwrap();
        start.wait();
        for _ in 0..30 {
            store.import(&model, Some("z"), &mut Silent).unwrap();
            store.copy("z", "w").unwrap();
            store.remove("z").unwrap();
            store.verify("w", &mut Silent).unwrap();
        }
    });
    for name in ["x", "y", "w"] {
        room.store.verify(name, &mut Silent).unwrap();
    }
    assert_eq!(room.store.locate("x").unwrap().names.len(), 3);
}
