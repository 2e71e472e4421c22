//! The list of models, kept while nothing changes.
//!
//! A router asks for it with every request, and reading all manifests takes longer than the rest of
//! its work. What is kept is believed as long as every file and folder of names looks as it did before
//! they were read: one `stat` each. Whoever changes them by whatever means, here, in another process
//! or in an editor, leaves another time, length or file behind. A change within the same tick of the
//! file system's clock may not, so what changed just now is not kept.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use super::Located;

/// Longer than any tick: FAT's two seconds.
const SETTLED: Duration = Duration::from_secs(3);

/// What a file or folder looks like.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    path: PathBuf,
    length: u64,
    modified: SystemTime,
    /// The file behind the name; another one after a rename. Zero where the system has none.
    file: u64,
}

/// Looks of all files and folders of names, taken before they are read.
#[derive(Debug)]
pub(super) struct Looks(Vec<Stamp>);

/// The list, if it is known.
#[derive(Debug, Default)]
pub(super) struct Listing(Mutex<Option<Arc<Kept>>>);

#[derive(Debug)]
struct Kept {
    looks: Looks,
    models: Arc<[Located]>,
}

impl Listing {
    /// The list, if nothing has changed since it was read.
    pub(super) fn unchanged(&self) -> Option<Arc<[Located]>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        kept.looks.hold().then(|| Arc::clone(&kept.models))
    }

    /// Keeps a list that was read after these looks were taken, if they are old enough to tell.
    pub(super) fn keep(&self, looks: Looks, models: &Arc<[Located]>) {
        let kept = looks.settled().then(|| Arc::new(Kept { looks, models: Arc::clone(models) }));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = kept;
    }
}

impl Looks {
    /// Of `manifests/NAMESPACE/MODEL/TAG.json` under the store's folder.
    pub(super) fn take(store: &Path) -> io::Result<Self> {
        let mut looks = Vec::new();
        let mut level = vec![store.join("manifests")];
        // The store's own folder tells when the first name comes.
        looks.push(look(store.to_owned())?);
        for depth in 0..4 {
            let mut below = Vec::new();
            for path in level {
                match look(path.clone()) {
                    Ok(stamp) => looks.push(stamp),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(error),
                }
                if depth < 3 && path.is_dir() {
                    for entry in fs::read_dir(&path)? {
                        below.push(entry?.path());
                    }
                }
            }
            level = below;
        }
        Ok(Self(looks))
    }

    /// Whether everything still looks so. A name that came or went has changed its folder.
    fn hold(&self) -> bool {
        self.0.iter().all(|stamp| look(stamp.path.clone()).is_ok_and(|now| now == *stamp))
    }

    /// Whether nothing has changed so lately that another change could look the same.
    fn settled(&self) -> bool {
        let now = SystemTime::now();
        // A time to come says nothing.
        self.0
            .iter()
            .all(|stamp| now.duration_since(stamp.modified).is_ok_and(|age| age >= SETTLED))
    }
}

fn look(path: PathBuf) -> io::Result<Stamp> {
    let found = fs::metadata(&path)?;
    #[cfg(unix)]
    let file = std::os::unix::fs::MetadataExt::ino(&found);
    #[cfg(not(unix))]
    let file = 0;
    Ok(Stamp { path, length: found.len(), modified: found.modified()?, file })
}
