//! Names are cheap and weights are shared: they go when the last name goes.

use std::fs;

use gristmill_core::error::Code;
use gristmill_models::store::Silent;

use crate::support::Room;

#[test]
fn copies_share_weights_and_removal_keeps_what_is_used() {
    let room = Room::new();
    let one = room.store.import(&room.model("1.gguf", 1), Some("one"), &mut Silent).unwrap();
    let two = room.store.import(&room.model("2.gguf", 2), Some("two"), &mut Silent).unwrap();
    let copy = room.store.copy("ONE", "Alias/one:v1").unwrap();
    assert_eq!(copy.id, "one:latest", "the first name is the canonical one");
    assert_eq!(copy.names, ["one:latest", "Alias/one:v1"]);
    assert_eq!((&copy.digest, &copy.paths), (&one.digest, &one.paths));
    assert_eq!(room.names(), ["one:latest", "two:latest"], "one entry a model");

    room.store.remove("one").unwrap();
    let rest = room.store.verify("alias/ONE:V1", &mut Silent).unwrap();
    assert_eq!(rest.id, "Alias/one:v1");
    assert_eq!(rest.paths, one.paths);

    room.store.remove("alias/one:v1").unwrap();
    assert!(!one.paths[0].exists());
    assert!(two.paths[0].exists());
    room.store.remove("two").unwrap();
    assert!(room.tree().is_empty());
    assert_eq!(fs::read_dir(room.root().join("manifests")).unwrap().count(), 0);
}

#[test]
fn a_name_that_is_taken_moves_to_the_new_model() {
    let room = Room::new();
    let old = room.store.import(&room.model("1.gguf", 1), Some("m"), &mut Silent).unwrap();
    let new = room.store.import(&room.model("2.gguf", 2), Some("m"), &mut Silent).unwrap();
    assert_ne!(old.digest, new.digest);
    assert!(!old.paths[0].exists(), "nothing uses the old weights any more");
    assert_eq!(room.store.locate("m").unwrap(), new);

    let again = room.store.import(&room.model("2.gguf", 2), Some("m"), &mut Silent).unwrap();
    assert_eq!(again, new, "importing the same again changes nothing");

    room.store.import(&room.model("3.gguf", 3), Some("n"), &mut Silent).unwrap();
    room.store.copy("n", "m").unwrap();
    assert!(!new.paths[0].exists());
    assert_eq!(room.store.copy("n", "N").unwrap().names.len(), 2, "onto itself: nothing");
}

#[test]
fn what_is_not_there_cannot_be_removed_or_copied() {
    let room = Room::new();
    room.store.import(&room.model("1.gguf", 1), Some("one"), &mut Silent).unwrap();
    let before = room.tree();
    for error in [
        room.store.remove("onE:v2").unwrap_err(),
        room.store.copy("two", "three").unwrap_err(),
        room.store.verify("two", &mut Silent).unwrap_err(),
    ] {
        assert_eq!(error.code(), Code::NotFound, "{error}");
    }
    assert_eq!(room.tree(), before);
}

#[test]
fn open_weights_stay_readable_after_removal() {
    let room = Room::new();
    let found = room.store.import(&room.model("1.gguf", 1), Some("one"), &mut Silent).unwrap();
    let open = gristmill_models::Gguf::open(&found.paths[0]).unwrap();
    room.store.remove("one").unwrap();
    assert_eq!(open.tensor_bytes("weights").unwrap().as_slice().len(), 256);
}
