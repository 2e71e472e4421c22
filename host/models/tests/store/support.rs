//! Stores in temporary folders, what is in them, and child processes that die on cue.

use std::{
    collections::BTreeMap,
    env, fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
};

use gristmill_models::store::{Sources, Store, Update};
use tempfile::TempDir;

use crate::fixture::Model;

pub(crate) struct Room {
    pub(crate) dir: TempDir,
    pub(crate) store: Store,
}

impl Room {
    pub(crate) fn new() -> Self {
        Self::with(Sources::default())
    }

    pub(crate) fn with(sources: Sources) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open_with(dir.path().join("store"), sources).unwrap();
        Self { dir, store }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    /// Writes a file outside of the store.
    pub(crate) fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    /// A small model outside of the store.
    pub(crate) fn model(&self, name: &str, salt: u32) -> String {
        self.file(name, &Model::new(salt).bytes()).display().to_string()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.store.list().unwrap().into_iter().map(|found| found.id).collect()
    }

    pub(crate) fn tree(&self) -> BTreeMap<String, Vec<u8>> {
        tree(&self.root())
    }
}

/// All files of a store and their bytes, but for locks and unfinished downloads.
pub(crate) fn tree(root: &Path) -> BTreeMap<String, Vec<u8>> {
    fn walk(root: &Path, folder: &Path, out: &mut BTreeMap<String, Vec<u8>>) {
        let Ok(entries) = fs::read_dir(folder) else { return };
        for entry in entries {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            if path.is_dir() {
                if name != "locks" && name != "downloads" {
                    walk(root, &path, out);
                }
            } else {
                out.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    let mut out = BTreeMap::new();
    walk(root, root, &mut out);
    out
}

/// The unfinished downloads of a store: file names with sizes.
pub(crate) fn parts(root: &Path) -> Vec<(String, u64)> {
    let Ok(entries) = fs::read_dir(root.join("downloads")) else { return Vec::new() };
    let mut out: Vec<_> = entries
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len())
        })
        .filter(|(name, _)| name.ends_with(".part"))
        .collect();
    out.sort();
    out
}

/// Stops at the given call, counted from 0.
pub(crate) fn stop_at(call: usize) -> impl FnMut(&Update<'_>) -> ControlFlow<()> {
    let mut calls = 0;
    move |_: &Update<'_>| {
        calls += 1;
        if calls > call { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Dies without any cleaning up, as by `kill -9`, at the given call.
pub(crate) fn die_at(call: usize) -> impl FnMut(&Update<'_>) -> ControlFlow<()> {
    let mut calls = 0;
    move |_: &Update<'_>| {
        calls += 1;
        if calls > call {
            std::process::abort();
        }
        ControlFlow::Continue(())
    }
}

/// What a test was told by its parent, when it runs as a child of itself.
pub(crate) fn role() -> Option<Vec<String>> {
    let role = env::var("STORE_TEST_ROLE").ok()?;
    Some(role.split('\n').map(str::to_owned).collect())
}

/// This test again, as a child process with a role.
pub(crate) fn child(test: &str, role: &[&str]) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env("STORE_TEST_ROLE", role.join("\n"));
    command
}

/// Runs it quietly to its end.
pub(crate) fn run(mut command: Command) -> ExitStatus {
    command.output().unwrap().status
}
