//! The list of models is read once and kept, and never older than the store.

use std::{
    fs,
    path::Path,
    time::{Duration, SystemTime},
};

use gristmill_models::store::{Silent, Store};

use crate::support::Room;

/// As if nothing had been written for an hour: a list of what was just written is not kept.
fn age(path: &Path) {
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            age(&entry.unwrap().path());
        }
    }
    let hour = SystemTime::now() - Duration::from_secs(3600);
    fs::File::open(path).unwrap().set_modified(hour).unwrap();
}

fn names(store: &Store) -> Vec<String> {
    store.list().unwrap().into_iter().flat_map(|found| found.names).collect()
}

#[test]
fn a_list_is_kept_until_the_store_changes_by_whatever_hand() {
    let room = Room::new();
    let model = room.model("a.gguf", 1);
    room.store.import(&model, Some("one"), &mut Silent).unwrap();
    assert!(room.store.unchanged().is_none(), "nobody has asked");
    assert_eq!(names(&room.store), ["one:latest"]);
    assert!(room.store.unchanged().is_none(), "written just now");

    age(&room.root());
    assert_eq!(names(&room.store), ["one:latest"]);
    let kept = room.store.unchanged().expect("old enough");
    assert_eq!(kept.to_vec(), room.store.list().unwrap());

    // Another process: a name more, and one gone.
    let other = Store::open(room.root()).unwrap();
    other.copy("one", "two").unwrap();
    assert!(room.store.unchanged().is_none());
    assert_eq!(names(&room.store), ["one:latest", "two:latest"]);
    age(&room.root());
    assert_eq!(names(&room.store), ["one:latest", "two:latest"]);
    assert!(room.store.unchanged().is_some());
    other.remove("one").unwrap();
    assert!(room.store.unchanged().is_none());
    assert_eq!(names(&room.store), ["two:latest"]);

    // A person with an editor, who saves in place.
    age(&room.root());
    assert_eq!(names(&room.store), ["two:latest"]);
    let manifest = room.root().join("manifests/library/two/latest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace("\"modified\"", "\n\"modified\"")).unwrap();
    assert!(room.store.unchanged().is_none());
    fs::write(&manifest, "{").unwrap();
    assert_eq!(names(&room.store), [""; 0], "a damaged one is left out");
}

#[test]
fn an_empty_store_is_known_to_be_empty_until_the_first_model_comes() {
    let room = Room::new();
    age(&room.root());
    assert_eq!(names(&room.store), [""; 0]);
    assert!(room.store.unchanged().is_some());
    let model = room.model("a.gguf", 1);
    room.store.import(&model, Some("one"), &mut Silent).unwrap();
    assert_eq!(names(&room.store), ["one:latest"]);
}
