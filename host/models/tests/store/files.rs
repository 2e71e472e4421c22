//! Models come in from files of this machine; the files stay as they are, and what is no model
//! leaves nothing behind.

use std::{fs, time::SystemTime};

use gristmill_models::{
    Gguf,
    store::{Digest, Silent, Store, StoreError},
};

use crate::{
    fixture::{Model, split},
    support::Room,
};

#[test]
fn a_file_comes_in_with_its_facts_and_stays_as_it_was() {
    let room = Room::new();
    let bytes = Model::new(7)
        .text("general.license", "mit")
        .text("tokenizer.chat_template", "{% if tools %}{% endif %}")
        .bytes();
    let path = room.file("Some Model.gguf", &bytes);
    let before = fs::metadata(&path).unwrap();

    let start = SystemTime::now() - std::time::Duration::from_secs(1);
    let found = room.store.import(&path.display().to_string(), None, &mut Silent).unwrap();
    assert_eq!(found.id, "Some-Model:latest");
    assert_eq!(found.names, ["Some-Model:latest"]);
    assert_eq!(found.digest, Digest::of(&bytes).to_string());
    assert_eq!(found.size, bytes.len() as u64);
    assert_eq!(found.source, format!("file:{}", path.display()));
    assert_eq!(found.license.as_deref(), Some("mit"));
    assert!(found.modified >= start && found.modified <= SystemTime::now());
    assert_eq!(found.facts.architecture, "llama");
    assert_eq!(found.facts.parameters, 64);
    assert_eq!(found.facts.quantization, "F32");
    assert_eq!(found.facts.context_length, Some(128));
    assert_eq!(found.facts.embedding_length, Some(64));
    assert_eq!(found.facts.capabilities, ["completion", "tools"]);
    assert_eq!(fs::read(&found.paths[0]).unwrap(), bytes);
    assert_eq!(room.store.locate("some-model").unwrap(), found);
    assert_eq!(room.store.list().unwrap(), [found]);

    let after = fs::metadata(&path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), bytes);
    assert_eq!(before.modified().unwrap(), after.modified().unwrap());
    assert_eq!(before.permissions(), after.permissions());
    let names: Vec<_> = room.tree().into_keys().collect();
    let blob = format!("blobs/sha256-{}", Digest::of(&bytes).hex());
    assert_eq!(names, [blob.as_str(), "manifests/library/some-model/latest.json"]);
}

/// On one file system an import of our own file takes no space.
#[cfg(unix)]
#[test]
fn a_file_of_the_same_file_system_is_shared_and_outlives_its_first_name() {
    use std::os::unix::fs::MetadataExt;
    let room = Room::new();
    let path = room.model("a.gguf", 1);
    let found = room.store.import(&path, Some("a"), &mut Silent).unwrap();
    let (source, blob) = (fs::metadata(&path).unwrap(), fs::metadata(&found.paths[0]).unwrap());
    // Otherwise the file system shares blocks between files, which cannot be seen from here.
    if source.ino() == blob.ino() {
        assert_eq!(source.nlink(), 2);
    }
    fs::remove_file(&path).unwrap();
    room.store.verify("a", &mut Silent).unwrap();
}

#[test]
fn a_link_is_followed_to_its_file() {
    let room = Room::new();
    let path = room.model("a.gguf", 1);
    let link = room.dir.path().join("b.gguf");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let found = room.store.import(&link.display().to_string(), None, &mut Silent).unwrap();
    assert_eq!(found.id, "b:latest");
    assert!(fs::symlink_metadata(&found.paths[0]).unwrap().is_file());
}

#[test]
fn all_parts_of_a_split_model_come_in_and_open() {
    let room = Room::new();
    let files = split(3, 5);
    for (index, bytes) in files.iter().enumerate() {
        room.file(&format!("big-{:05}-of-00003.gguf", index + 1), bytes);
    }
    let first = room.dir.path().join("big-00001-of-00003.gguf").display().to_string();
    let found = room.store.import(&first, None, &mut Silent).unwrap();
    assert_eq!(found.id, "big:latest");
    assert_eq!(found.size, files.iter().map(|file| file.len() as u64).sum::<u64>());
    assert_eq!(found.paths.len(), 3);
    for (path, bytes) in found.paths.iter().zip(&files) {
        assert_eq!(&fs::read(path).unwrap(), bytes);
    }
    assert_eq!(Gguf::open(&found.paths[0]).unwrap().tensors().len(), 3);
    room.store.verify("big", &mut Silent).unwrap();

    let second = room.dir.path().join("big-00002-of-00003.gguf").display().to_string();
    let error = room.store.import(&second, None, &mut Silent).unwrap_err().to_string();
    assert!(error.contains("part 2 of 3; import big-00001-of-00003.gguf"), "{error}");

    let before = room.tree();
    fs::remove_file(room.dir.path().join("big-00003-of-00003.gguf")).unwrap();
    let error = room.store.import(&first, Some("other"), &mut Silent).unwrap_err().to_string();
    assert!(error.contains("big-00003-of-00003.gguf"), "{error}");
    assert_eq!(room.tree(), before);

    room.store.remove("big").unwrap();
    assert!(room.tree().is_empty(), "{:?}", room.tree().keys());
}

#[test]
fn what_is_no_model_is_named_and_leaves_nothing_behind() {
    let room = Room::new();
    let whole = Model::new(1).bytes();
    let lfs = format!(
        "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 5\n",
        Digest::of(b"").hex()
    );
    let folder = room.dir.path().join("folder.gguf");
    fs::create_dir(&folder).unwrap();
    let cases: Vec<(std::path::PathBuf, &str)> = vec![
        (room.file("empty.gguf", b""), "empty"),
        (room.file("pointer.gguf", lfs.as_bytes()), "Git LFS pointer"),
        (room.file("page.gguf", b"<!DOCTYPE html><html>no</html>"), "web page"),
        (room.file("zip.gguf", b"PK\x03\x04 and so on and so forth"), "zip"),
        (folder, "directory"),
        (room.dir.path().join("absent.gguf"), "absent.gguf"),
        (room.file("truncated.gguf", &whole[..whole.len() - 1]), "truncated.gguf"),
        (room.file("half.gguf", &whole[..whole.len() / 2]), "half.gguf"),
        (room.file("head.gguf", &whole[..5]), "head.gguf"),
        (std::path::PathBuf::from("/dev/null"), "not a regular file"),
    ];
    for (path, expected) in cases {
        let path = path.display().to_string();
        let error = room.store.import(&path, Some("x"), &mut Silent).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(expected) && text.contains(&path), "{path}: {text}");
        assert!(!text.contains("staging"), "{text}");
        assert!(room.tree().is_empty(), "{path} left {:?}", room.tree().keys());
    }
    // Every truncation of a good file is refused, and none leaves a trace.
    for length in 0..whole.len() {
        let path = room.file("cut.gguf", &whole[..length]).display().to_string();
        assert!(room.store.import(&path, Some("x"), &mut Silent).is_err(), "{length} bytes");
    }
    assert!(room.tree().is_empty(), "{:?}", room.tree().keys());
    assert!(room.names().is_empty());
}

#[test]
fn an_expected_digest_is_checked() {
    let room = Room::new();
    let path = room.model("a.gguf", 1);
    let good = Digest::of(&fs::read(&path).unwrap());
    let wrong = Digest::of(b"something else");
    let error = room.store.import(&format!("{path}@{wrong}"), Some("a"), &mut Silent).unwrap_err();
    assert!(matches!(error, StoreError::Digest { .. }), "{error}");
    assert!(room.tree().is_empty());
    room.store.import(&format!("{path}@{good}"), Some("a"), &mut Silent).unwrap();
}

#[test]
fn damage_is_found_and_repaired_by_importing_again() {
    let room = Room::new();
    let path = room.model("a.gguf", 1);
    let found = room.store.import(&path, Some("a"), &mut Silent).unwrap();
    let good = fs::read(&path).unwrap();
    // Separate the blob from its source, then flip a bit of it.
    let mut bad = good.clone();
    *bad.last_mut().unwrap() ^= 1;
    fs::remove_file(&found.paths[0]).unwrap();
    fs::write(&found.paths[0], &bad).unwrap();
    assert!(room.store.locate("a").is_ok(), "same size: only reading it all can tell");
    let error = room.store.verify("a", &mut Silent).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");

    fs::write(&found.paths[0], &bad[1..]).unwrap();
    let error = room.store.locate("a").unwrap_err().to_string();
    assert!(error.contains("bytes, expected"), "{error}");
    fs::remove_file(&found.paths[0]).unwrap();
    assert!(matches!(room.store.locate("a"), Err(StoreError::Damaged { .. })));

    room.store.import(&path, Some("a"), &mut Silent).unwrap();
    room.store.verify("a", &mut Silent).unwrap();
}

#[test]
fn a_damaged_manifest_spoils_only_its_own_model() {
    let room = Room::new();
    for (name, salt) in [("a", 1), ("b", 2), ("c", 3)] {
        room.store.import(&room.model("m.gguf", salt), Some(name), &mut Silent).unwrap();
    }
    let path = room.root().join("manifests/library/a/latest.json");
    let whole = fs::read_to_string(&path).unwrap();
    for (broken, expected) in [
        (whole[..whole.len() / 2].to_owned(), "EOF"),
        (whole.replace("\"schema\": 1", "\"schema\": 2"), "schema 2, this version reads 1"),
        (whole.replace("\"name\": \"a:latest\"", "\"name\": \"../b\""), "does not"),
        (whole.replace("\"schema\": 1,", "\"schema\": 1, \"more\": 1,"), "unknown field `more`"),
        (whole.replacen("sha256:", "sha256:../", 1), "not a sha256 digest"),
    ] {
        fs::write(&path, &broken).unwrap();
        let error = room.store.locate("a").unwrap_err();
        assert!(matches!(error, StoreError::Manifest { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(room.names(), ["b:latest", "c:latest"]);
    }
    // While it cannot be read it may name any weights, so none are removed.
    room.store.remove("b").unwrap();
    assert_eq!(fs::read_dir(room.root().join("blobs")).unwrap().count(), 3);
    room.store.remove("a").unwrap();
    assert_eq!(fs::read_dir(room.root().join("blobs")).unwrap().count(), 1);
}

#[test]
fn nothing_planted_in_the_store_leads_outside() {
    let room = Room::new();
    room.store.import(&room.model("m.gguf", 1), Some("a"), &mut Silent).unwrap();
    let outside = room.file("outside/x/latest.json", b"{}");
    let link = room.root().join("manifests/evil");
    std::os::unix::fs::symlink(outside.parent().unwrap().parent().unwrap(), &link).unwrap();
    assert!(matches!(room.store.locate("evil/x"), Err(StoreError::Io { .. })));
    assert!(room.store.copy("a", "evil/x").is_err());
    assert_eq!(fs::read(&outside).unwrap(), b"{}");
}

#[cfg(unix)]
#[test]
fn a_store_that_cannot_be_written_says_so_and_can_be_read() {
    use std::os::unix::fs::PermissionsExt;
    let room = Room::new();
    let path = room.model("m.gguf", 1);
    room.store.import(&path, Some("a"), &mut Silent).unwrap();
    let locked = |mode| {
        for folder in ["locks", "staging", "."] {
            let path = room.root().join(folder);
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    locked(0o500);
    // Root writes wherever it likes; then there is nothing to see.
    let probe = fs::write(room.root().join("staging/probe"), b"").is_err();
    let store = Store::open(room.root()).unwrap();
    assert_eq!(store.locate("a").unwrap().id, "a:latest");
    let result = store.import(&path, Some("b"), &mut Silent);
    locked(0o700);
    if probe {
        let error = result.unwrap_err().to_string();
        assert!(error.contains("check who owns the folder"), "{error}");
    }
    assert!(Store::open("/dev/null/store").is_err());
}
