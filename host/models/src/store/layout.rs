//! The store's folder: what lies where, and the few ways in which it changes.
//!
//! ```text
//! blobs/sha256-HEX                   weights, named by their digest
//! manifests/NAMESPACE/MODEL/TAG.json what a name means
//! packages/sha256-HEX.KIND           packed weights, made from a model's
//! splits/sha256-HEX/model-00001-of-00002.gguf   links to blobs, for models in several files
//! downloads/KEY.part, KEY.json       unfinished downloads and what they are of
//! staging/ID/                        one import's work; gone when it ends
//! locks/                             empty files to lock
//! ```
//!
//! Everything goes through a `cap_std` directory handle, so neither a name, a manifest nor a
//! planted link leads outside. A file gets its final name by rename, after its bytes are on disk;
//! names change only under the store's lock, which is never held while bytes move.

use std::{
    fs::{File, TryLockError},
    io::{self, Write},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, UNIX_EPOCH},
};

use cap_std::{
    ambient_authority,
    fs::{Dir, OpenOptions},
};

use super::{
    digest::Digest,
    error::{Result, StoreError},
    progress::{Reporter, Stage},
};

/// How often a wait looks up.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// The store's folder, opened.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) dir: Dir,
    pub(crate) path: PathBuf,
}

impl Layout {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        std::fs::create_dir_all(path).map_err(|e| StoreError::io("create", path, e))?;
        let path = path.canonicalize().map_err(|e| StoreError::io("open", path, e))?;
        let dir = Dir::open_ambient_dir(&path, ambient_authority())
            .map_err(|e| StoreError::io("open", &path, e))?;
        Ok(Self { dir, path })
    }

    /// Where a path of the store is for the rest of the process.
    pub(crate) fn absolute(&self, path: impl AsRef<Path>) -> PathBuf {
        self.path.join(path)
    }

    fn fail<'a>(
        &'a self,
        action: &'static str,
        path: &'a Path,
    ) -> impl FnOnce(io::Error) -> StoreError + 'a {
        move |error| StoreError::io(action, self.absolute(path), error)
    }

    /// Creates a folder of the store with its parents, and makes their names durable.
    pub(crate) fn folder(&self, path: &Path) -> Result<()> {
        if self.dir.is_dir(path) {
            return Ok(());
        }
        self.dir.create_dir_all(path).map_err(self.fail("create", path))?;
        for parent in path.ancestors().skip(1) {
            self.sync(parent)?;
        }
        Ok(())
    }

    /// Makes the names in a folder durable.
    pub(crate) fn sync(&self, path: &Path) -> Result<()> {
        // Windows has no such call and needs none.
        if cfg!(unix) {
            let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
            let folder = self.dir.open(path).map_err(self.fail("open", path))?;
            folder.sync_all().map_err(self.fail("write", path))?;
        }
        Ok(())
    }

    /// Moves a file within the store, over whatever is there, and makes that durable.
    pub(crate) fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.dir.rename(from, &self.dir, to).map_err(self.fail("write", to))?;
        self.sync(to.parent().unwrap_or(Path::new(".")))
    }

    /// Replaces a small file: all of it, or nothing. `aside` is a path nobody else writes to.
    pub(crate) fn replace(&self, path: &Path, aside: &Path, bytes: &[u8]) -> Result<()> {
        let mut file = self.create(aside)?;
        file.write_all(bytes).and_then(|()| file.sync_all()).map_err(self.fail("write", aside))?;
        self.rename(aside, path)
    }

    /// Creates or truncates a file.
    pub(crate) fn create(&self, path: &Path) -> Result<File> {
        let file = self.dir.create(path).map_err(self.fail("create", path))?;
        Ok(file.into_std())
    }

    /// Opens a file to read.
    pub(crate) fn read(&self, path: &Path) -> Result<File> {
        let file = self.dir.open(path).map_err(self.fail("open", path))?;
        Ok(file.into_std())
    }

    /// Opens a file to append to, creating it.
    pub(crate) fn append(&self, path: &Path) -> Result<File> {
        let file = self
            .dir
            .open_with(path, OpenOptions::new().append(true).create(true))
            .map_err(self.fail("open", path))?;
        Ok(file.into_std())
    }

    /// Removes a file; one that is not there is as good as removed.
    pub(crate) fn remove(&self, path: &Path) -> Result<()> {
        match self.dir.remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(self.fail("remove", path)(error))
            }
            _ => Ok(()),
        }
    }

    /// The entries of a folder by name, sorted; a missing folder has none. Names that are not
    /// Unicode are not the store's and are left out.
    pub(crate) fn entries(&self, path: &Path) -> Result<Vec<String>> {
        let entries = match self.dir.read_dir(path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(Vec::new()),
            Err(error) => return Err(self.fail("list", path)(error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(self.fail("list", path))?;
            names.extend(entry.file_name().into_string().ok());
        }
        names.sort();
        Ok(names)
    }

    /// Takes the store's lock: who holds it may change names. Held for moments only.
    pub(crate) fn lock(&self) -> Result<File> {
        let path = Path::new("locks/store");
        self.folder(Path::new("locks"))?;
        let file = self.append(path)?;
        file.lock().map_err(self.fail("lock", path))?;
        Ok(file)
    }

    /// Takes the lock of one download, reporting while another process holds it.
    pub(crate) fn download_lock(&self, key: &Digest, reporter: &mut Reporter<'_>) -> Result<File> {
        self.shard_lock("download", key, reporter)
    }

    /// Takes the lock of one piece of work, reporting while another process holds it. Each kind of
    /// work shares 256 locks, so that the files can stay: removing a lock file safely is harder
    /// than having it.
    pub(crate) fn shard_lock(
        &self,
        kind: &str,
        key: &Digest,
        reporter: &mut Reporter<'_>,
    ) -> Result<File> {
        let shard: String = key.hex().chars().take(2).collect();
        let path = PathBuf::from(format!("locks/{kind}-{shard}"));
        self.folder(Path::new("locks"))?;
        let file = self.append(&path)?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) => {
                    reporter.at(Stage::Waiting, 0)?;
                    std::thread::sleep(TICK);
                }
                Err(TryLockError::Error(error)) => return Err(self.fail("lock", &path)(error)),
            }
        }
    }

    /// A fresh folder for one import. Folders that killed processes left are cleared away first.
    pub(crate) fn staging(&self) -> Result<Staging<'_>> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let _lock = self.lock()?;
        self.folder(Path::new("staging"))?;
        self.sweep()?;
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        // Unique even where process ids are not, as between containers that share a store.
        let nanos = UNIX_EPOCH.elapsed().map_or(0, |elapsed| elapsed.as_nanos());
        let path = PathBuf::from(format!("staging/{nanos}-{}-{count}", process::id()));
        self.dir.create_dir(&path).map_err(self.fail("create", &path))?;
        let lock_path = path.join("lock");
        let lock = self.create(&lock_path)?;
        lock.lock().map_err(self.fail("lock", &lock_path))?;
        Ok(Staging { layout: self, path, _lock: lock })
    }

    /// Removes staging folders whose owner is gone: their lock is free. The store is locked.
    fn sweep(&self) -> Result<()> {
        for name in self.entries(Path::new("staging"))? {
            let path = Path::new("staging").join(name);
            let lock = self.dir.open(path.join("lock")).map(cap_std::fs::File::into_std);
            let busy = lock.as_ref().is_ok_and(|lock| lock.try_lock().is_err());
            if !busy {
                tracing::info!(path = %path.display(), "clearing what an interrupted import left");
                self.dir.remove_dir_all(&path).map_err(self.fail("remove", &path))?;
            }
        }
        Ok(())
    }

    /// Fails when the disk has less than `needed` bytes left; only an early and friendly warning,
    /// others write too.
    pub(crate) fn room(&self, what: &str, needed: u64) -> Result<()> {
        match free(&self.path) {
            Some(free) if free < needed => Err(StoreError::Space {
                what: what.to_owned(),
                path: self.path.display().to_string(),
                needed,
                free,
            }),
            _ => Ok(()),
        }
    }
}

/// One import's folder; removed when dropped. Its lock tells others that it is in use.
#[derive(Debug)]
pub(crate) struct Staging<'a> {
    layout: &'a Layout,
    path: PathBuf,
    _lock: File,
}

impl Staging<'_> {
    /// The path of a file in it, relative to the store.
    pub(crate) fn file(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Staging<'_> {
    fn drop(&mut self) {
        // Under the store's lock, or another's sweep would get in between. Without it, the next
        // sweep does the work.
        let Ok(_lock) = self.layout.lock() else { return };
        if let Err(error) = self.layout.dir.remove_dir_all(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove a staging folder");
        }
    }
}

/// The path of a blob, relative to the store.
pub(crate) fn blob(digest: &Digest) -> PathBuf {
    PathBuf::from(format!("blobs/sha256-{}", digest.hex()))
}

/// The folder of a split model, relative to the store.
pub(crate) fn split(digest: &Digest) -> PathBuf {
    PathBuf::from(format!("splits/sha256-{}", digest.hex()))
}

/// What readers expect the files of a model to be called.
pub(crate) fn part_name(index: usize, count: usize) -> String {
    match count {
        1 => "model.gguf".to_owned(),
        _ => format!("model-{:05}-of-{count:05}.gguf", index + 1),
    }
}

#[cfg(unix)]
fn free(path: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(path).ok()?;
    stat.f_bavail.checked_mul(stat.f_frsize)
}

#[cfg(not(unix))]
fn free(_: &Path) -> Option<u64> {
    None
}
