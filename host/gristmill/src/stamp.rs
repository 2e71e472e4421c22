//! What files look like from outside: whether something changed since they were last looked at, for the
//! price of a `stat` each.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// A file that was changed this short a while ago may change again without looking different.
const SETTLES: Duration = Duration::from_secs(1);

/// Device, inode, length, and when its content and its entry last changed.
type Look = [i64; 7];

/// What files and folders looked like at one moment. What is not there, or cannot be looked at, looks
/// different from everything that can.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Stamp(BTreeMap<PathBuf, Option<Look>>);

impl Stamp {
    /// Adds a file, or a folder with what lies in it; `below`: with its folders' files too.
    pub(crate) fn add(&mut self, path: &Path, below: bool) {
        let found = fs::metadata(path).ok();
        let folder = found.as_ref().is_some_and(fs::Metadata::is_dir);
        self.0.insert(path.to_owned(), found.as_ref().map(look));
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        for entry in entries.filter(|_| folder) {
            let path = entry.path();
            // Links are followed: what they lead to is what is read.
            match fs::metadata(&path).ok() {
                Some(found) if found.is_dir() => {
                    if below {
                        self.add(&path, true);
                    }
                }
                found => {
                    self.0.insert(path, found.as_ref().map(look));
                }
            }
        }
    }

    /// The same, with what lies in this folder.
    pub(crate) fn with(mut self, path: &Path, below: bool) -> Self {
        self.add(path, below);
        self
    }

    /// Whether all of it was left alone for long enough that a later change shows.
    pub(crate) fn settled(&self) -> bool {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let latest = i64::try_from(now.saturating_sub(SETTLES).as_secs()).unwrap_or(i64::MAX);
        self.0.values().flatten().all(|[.., changed, _]| *changed < latest)
    }
}

fn look(found: &fs::Metadata) -> Look {
    [
        found.dev().cast_signed(),
        found.ino().cast_signed(),
        found.len().cast_signed(),
        found.mtime(),
        found.mtime_nsec(),
        found.ctime(),
        found.ctime_nsec(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_shows_and_nothing_else_does() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("history/one")).unwrap();
        fs::write(at("log"), "1").unwrap();
        let all = || Stamp::default().with(folder.path(), true).with(&at("state"), false);
        let flat = || Stamp::default().with(folder.path(), false);
        let mut before = (all(), flat());
        assert_eq!((all(), flat()), before);
        assert!(!all().settled(), "it was written just now");

        let mut changes = |what: &str, in_flat: bool, change: &dyn Fn()| {
            change();
            let after = (all(), flat());
            assert_ne!(after.0, before.0, "{what}");
            assert_eq!(after.1 != before.1, in_flat, "{what}");
            before = after;
        };
        changes("a file more", true, &|| fs::write(at("keys"), "k").unwrap());
        changes("a file below", false, &|| fs::write(at("history/one/1.toml"), "p").unwrap());
        changes("longer", true, &|| fs::write(at("log"), "12").unwrap());
        changes("the same length, and as old as before", true, &|| {
            let then = fs::metadata(at("log")).unwrap().modified().unwrap();
            fs::write(at("new"), "21").unwrap();
            let file = fs::File::options().write(true).open(at("new")).unwrap();
            file.set_modified(then).unwrap();
            fs::rename(at("new"), at("log")).unwrap();
        });
        changes("gone", true, &|| fs::remove_file(at("keys")).unwrap());
        changes("a file that was not there", true, &|| fs::write(at("state"), "s").unwrap());
    }

    #[test]
    fn what_nobody_touches_settles() {
        // It was there before this program was built.
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        assert!(Stamp::default().with(&own, false).settled());
        assert!(Stamp::default().with(Path::new("/nowhere"), true).settled(), "nothing there");
    }
}
