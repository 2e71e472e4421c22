//! A list is kept while nothing changes, and never longer.

use std::{
    fs::{self, File},
    path::Path,
    time::{Duration, SystemTime},
};

use gristmill_models::store::{Silent, Store};

use crate::support::Room;

/// Makes everything under a folder look changed at this time.
fn age(path: &Path, time: SystemTime) {
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            age(&entry.unwrap().path(), time);
        }
    }
    File::open(path).unwrap().set_modified(time).unwrap();
}

#[test]
fn a_list_is_read_once_while_nothing_changes() {
    let room = Room::new();
    room.store.import(&room.model("a.gguf", 1), Some("first"), &mut Silent).unwrap();
    let names = room.root().join("manifests");
    let hour = SystemTime::now() - Duration::from_secs(3600);
    age(&names, hour);
    let listed = room.store.list().unwrap();
    assert_eq!((listed.len(), listed[0].source.is_empty()), (1, false));

    // What it cannot see without reading it again: other bytes, as long and of the same time.
    let manifest = names.join("library/first/latest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace("a.gguf", "b.gguf")).unwrap();
    age(&names, hour);
    assert_eq!(room.store.list().unwrap(), listed);

    // Another time: it is read.
    age(&names, hour + Duration::from_secs(1));
    let read = room.store.list().unwrap();
    assert!(read != listed && read[0].source.ends_with("b.gguf"), "{read:?}");
}

#[test]
fn whatever_changes_the_names_is_seen_at_once() {
    let room = Room::new();
    // Another process, as far as the store can tell.
    let other = Store::open(room.root()).unwrap();
    let names = || -> Vec<Vec<String>> {
        room.store.list().unwrap().into_iter().map(|found| found.names).collect()
    };
    let settle = || {
        age(&room.root().join("manifests"), SystemTime::now() - Duration::from_secs(60));
        names()
    };
    assert!(names().is_empty());
    other.import(&room.model("a.gguf", 1), Some("first"), &mut Silent).unwrap();
    assert_eq!(settle(), [["first:latest"]]);
    other.copy("first", "second").unwrap();
    assert_eq!(names(), [["first:latest", "second:latest"]]);
    assert_eq!(settle(), names());
    other.import(&room.model("b.gguf", 2), Some("second"), &mut Silent).unwrap();
    assert_eq!(names(), [["first:latest"], ["second:latest"]]);
    settle();
    other.copy("first", "first:small").unwrap();
    assert_eq!(names()[0], ["first:latest", "first:small"]);
    settle();
    other.remove("first:small").unwrap();
    other.remove("second").unwrap();
    assert_eq!(names(), [["first:latest"]]);
    settle();
    fs::remove_dir_all(room.root().join("manifests")).unwrap();
    assert!(names().is_empty());
    // Two changes in one tick of the clock: nothing of them is kept too early.
    for n in 0..50 {
        other.import(&room.model("c.gguf", 3), Some(&format!("m{n}")), &mut Silent).unwrap();
        assert_eq!(names().concat().len(), n + 1);
    }
}
