//! Packages: what is damaged is never given out, what fails leaves nothing behind.

use std::{
    fs,
    ops::ControlFlow,
    path::PathBuf,
    sync::{Arc, Barrier},
    thread,
};

use gristmill_models::store::{Package, PackageWriter, Silent, Stage, Store, StoreError, Update};

use crate::support::{Room, child, role};

const KIND: &str = "test-kernels";

/// Bytes of matrix `n` of the test's tensors.
fn matrix(salt: u8, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i as u8).wrapping_mul(31).wrapping_add(salt)).collect()
}

/// Two small tensors, the second of three matrices, and optionally one large.
fn fill(large: usize) -> impl Fn(&mut PackageWriter<'_>) -> Result<(), StoreError> {
    move |writer| {
        writer.tensor("a", [8, 1], [16, 64, 1], 1088)?;
        writer.part(&matrix(1, 1088))?;
        writer.tensor("b", [2, 2], [16, 64, 3], 576)?;
        for n in 0..3 {
            writer.part(&matrix(2 + n, 576))?;
        }
        if large > 0 {
            writer.tensor("c", [8, 1], [16, large / 16, 1], large)?;
            writer.part(&matrix(9, large))?;
        }
        Ok(())
    }
}

fn packed(room: &Room, large: usize) -> (String, PathBuf) {
    let model = room.store.import(&room.model("1.gguf", 1), Some("m"), &mut Silent).unwrap();
    let made =
        room.store.make_package(&model.digest, KIND, 0, &mut Silent, fill(large)).unwrap().unwrap();
    sound(&made, large);
    (model.digest, made.path().to_owned())
}

fn sound(package: &Package, large: usize) {
    let part = |name: &str, n: usize| {
        let section = package.section(name).unwrap();
        let (owner, range) = package.part(section, n).unwrap();
        assert_eq!(range.start % 64, 0);
        (*owner).as_ref()[range].to_vec()
    };
    assert_eq!(part("a", 0), matrix(1, 1088));
    for n in 0..3 {
        assert_eq!(part("b", n as usize), matrix(2 + n, 576));
    }
    assert!(package.part(package.section("b").unwrap(), 3).is_none());
    assert!(package.section("d").is_none());
    if large > 0 {
        let (_, range) = package.part(package.section("c").unwrap(), 0).unwrap();
        assert_eq!(range.start % 4096, 0, "a large tensor begins a page");
        assert_eq!(part("c", 0), matrix(9, large));
    }
}

/// Why a package is refused.
fn reason(store: &Store, model: &str, kind: &str) -> String {
    match store.package(model, kind) {
        Err(StoreError::Package { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_flipped_bit_anywhere_is_refused() {
    let room = Room::new();
    let (model, path) = packed(&room, 0);
    let good = fs::read(&path).unwrap();
    for at in 0..good.len() {
        // Every byte, and every bit of it over eight of them.
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        fs::write(&path, &bad).unwrap();
        reason(&room.store, &model, KIND);
    }
    for bit in 0..8 {
        for at in (0..96).chain(4096..4200).chain(good.len() - 100..good.len()) {
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            fs::write(&path, &bad).unwrap();
            reason(&room.store, &model, KIND);
        }
    }
    fs::write(&path, &good).unwrap();
    sound(&room.store.package(&model, KIND).unwrap().unwrap(), 0);
}

#[test]
fn a_flipped_bit_names_its_tensor_whichever_chunk_it_is_in() {
    let room = Room::new();
    let large = 5 << 20;
    let (model, path) = packed(&room, large);
    let good = fs::read(&path).unwrap();
    for (at, tensor) in [(4096, "a"), (3 << 20, "c"), ((5 << 20) + 4096, "c")] {
        let mut bad = good.clone();
        bad[at] ^= 16;
        fs::write(&path, &bad).unwrap();
        let reason = reason(&room.store, &model, KIND);
        assert!(reason.contains("damaged") && reason.contains(&format!("`{tensor}`")), "{reason}");
    }
}

#[test]
fn a_file_of_another_length_is_refused() {
    let room = Room::new();
    let (model, path) = packed(&room, 0);
    let good = fs::read(&path).unwrap();
    // Every length near where a part ends, and some between.
    let near =
        |length: usize| length < 100 || length.abs_diff(4096) < 70 || length + 70 > good.len();
    for length in (0..good.len()).filter(|length| near(*length) || length % 16 == 0) {
        fs::write(&path, &good[..length]).unwrap();
        reason(&room.store, &model, KIND);
    }
    fs::write(&path, [&good[..], &[0]].concat()).unwrap();
    assert!(reason(&room.store, &model, KIND).contains("bytes"));
}

#[test]
fn another_version_kind_or_model_is_refused_by_name() {
    let room = Room::new();
    let (model, path) = packed(&room, 0);
    let good = fs::read(&path).unwrap();
    for version in [1, 3] {
        let mut other = good.clone();
        other[8] = version;
        fs::write(&path, &other).unwrap();
        let why = reason(&room.store, &model, KIND);
        assert!(why.contains(&format!("version {version}, this build reads 2")), "{why}");
    }
    fs::write(&path, &good).unwrap();

    // The file of one kind under the name of another, as when a store moves between machines.
    let other = path.with_extension("other-kernels");
    fs::copy(&path, &other).unwrap();
    let why = reason(&room.store, &model, "other-kernels");
    assert!(why.contains("made for test-kernels, this machine runs other-kernels"), "{why}");

    let two = room.store.import(&room.model("2.gguf", 2), Some("n"), &mut Silent).unwrap();
    let moved = path.with_file_name(format!("{}.{KIND}", two.digest.replace(':', "-")));
    fs::copy(&path, &moved).unwrap();
    assert!(reason(&room.store, &two.digest, KIND).contains(&model));

    // Whoever makes it again gets a sound one.
    let made = room.store.make_package(&two.digest, KIND, 0, &mut Silent, fill(0));
    sound(&made.unwrap().unwrap(), 0);
    sound(&room.store.package(&two.digest, KIND).unwrap().unwrap(), 0);
}

#[test]
fn packages_go_when_their_model_goes() {
    let room = Room::new();
    let (model, path) = packed(&room, 0);
    assert_eq!(room.store.packages(&model)[0].kind, KIND);
    let open = room.store.package(&model, KIND).unwrap().unwrap();
    room.store.copy("m", "other").unwrap();
    room.store.remove("m").unwrap();
    assert!(path.exists(), "another name still means the model");
    room.store.remove("other").unwrap();
    assert!(!path.exists());
    assert!(room.store.packages(&model).is_empty());
    sound(&open, 0);
    let late = room.store.make_package(&model, KIND, 0, &mut Silent, fill(0));
    assert!(matches!(late, Err(StoreError::NotFound { .. })), "{late:?}");
    assert!(room.tree().is_empty());
}

#[test]
fn several_at_once_pack_once() {
    let room = Room::new();
    let model = room.store.import(&room.model("1.gguf", 1), Some("m"), &mut Silent).unwrap();
    let store = Arc::new(Store::open(room.root()).unwrap());
    let barrier = Arc::new(Barrier::new(4));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            // A store of its own is what another process has: locks belong to open files.
            let (own, barrier) = (Store::open(store.path()).unwrap(), Arc::clone(&barrier));
            let digest = model.digest.clone();
            thread::spawn(move || {
                barrier.wait();
                let mut filled = 0;
                let made = own.make_package(&digest, KIND, 0, &mut Silent, |writer| {
                    filled += 1;
                    fill(1 << 20)(writer)
                });
                sound(&made.unwrap().unwrap(), 1 << 20);
                filled
            })
        })
        .collect();
    let filled: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert_eq!(filled, 1);
}

#[test]
fn a_failure_or_a_stop_leaves_nothing_behind() {
    let room = Room::new();
    let model = room.store.import(&room.model("1.gguf", 1), Some("m"), &mut Silent).unwrap();
    let before = room.tree();
    let failed = room.store.make_package(&model.digest, KIND, 0, &mut Silent, |writer| {
        fill(4 << 20)(writer)?;
        Err(StoreError::Cancelled)
    });
    assert!(matches!(failed, Err(StoreError::Cancelled)));
    let mut stop = |update: &Update<'_>| {
        if update.stage == Stage::Packing && update.completed > 5000 {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    };
    let stopped = room.store.make_package(&model.digest, KIND, 0, &mut stop, fill(0));
    assert!(matches!(stopped, Err(StoreError::Cancelled)));
    let short = room.store.make_package(&model.digest, KIND, 0, &mut Silent, |writer| {
        writer.tensor("a", [8, 1], [16, 64, 2], 1088)?;
        writer.part(&matrix(1, 1088))
    });
    assert!(matches!(short, Err(StoreError::Invalid { .. })));
    let none =
        room.store.make_package(&model.digest, KIND, 0, &mut Silent, |_| Ok::<_, StoreError>(()));
    assert!(none.unwrap().is_none());
    let huge = room.store.make_package(&model.digest, KIND, u64::MAX, &mut Silent, fill(0));
    assert!(matches!(huge, Err(StoreError::Space { .. })));
    assert_eq!(room.tree(), before);
}

/// A process whose files may not grow meets the same refusal from the system as one whose disk is
/// full.
#[cfg(unix)]
#[test]
fn a_full_disk_leaves_nothing_behind() {
    if let Some(role) = role() {
        let store = Store::open(&role[0]).unwrap();
        let failed = store.make_package(&role[1], KIND, 0, &mut Silent, fill(8 << 20));
        assert!(matches!(failed, Err(StoreError::Io { action: "write", .. })), "{failed:?}");
        sound(&store.make_package(&role[1], KIND, 0, &mut Silent, fill(0)).unwrap().unwrap(), 0);
        return;
    }
    let room = Room::new();
    let model = room.store.import(&room.model("1.gguf", 1), Some("m"), &mut Silent).unwrap();
    let command = child(
        "packages::a_full_disk_leaves_nothing_behind",
        &[&room.root().display().to_string(), &model.digest],
    );
    // A limit of 1 MiB (in units of 512 bytes); the signal it comes with is ignored.
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 2048; exec \"$@\"", "sh"]);
    limited.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        limited.env(name, value.unwrap());
    }
    let out = limited.output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let tree = room.tree();
    assert_eq!(tree.len(), 3, "blob, manifest and the small package: {:?}", tree.keys());
    sound(&room.store.package(&model.digest, KIND).unwrap().unwrap(), 0);
}
