//! Files as a ledger writes them: never half. A new content is written beside, brought to the disk,
//! and renamed into place; who looks sees the old one or the new one.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
};

use crate::LedgerError;

/// Reads a file of at most `most` bytes.
pub(crate) fn read(path: &Path, most: u64) -> Result<Vec<u8>, LedgerError> {
    let unreadable = |source| LedgerError::Io { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    File::open(path)
        .map_err(unreadable)?
        .take(most + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.len() as u64 > most {
        let source = std::io::Error::other(format!("longer than {most} bytes"));
        return Err(unreadable(source));
    }
    Ok(bytes)
}

/// As [`read`], or nothing where there is no such file.
pub(crate) fn read_if_there(path: &Path, most: u64) -> Result<Option<Vec<u8>>, LedgerError> {
    match read(path, most) {
        Err(LedgerError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Ok(None)
        }
        other => other.map(Some),
    }
}

/// The files with this extension, sorted. None where there is no folder. Hidden files are an
/// editor's and not the ledger's.
pub(crate) fn list(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, LedgerError> {
    let unreadable = |source| LedgerError::Io { path: folder.to_owned(), source };
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(unreadable)?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(unreadable)?.path();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && path.extension().is_some_and(|found| found == extension) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Where the next content of a file waits for its rename.
pub(crate) fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}

/// Refuses a content that would not be read again.
pub(crate) fn check(path: &Path, length: u64, most: u64) -> Result<(), LedgerError> {
    if length <= most {
        return Ok(());
    }
    let reason =
        format!("{length} bytes; more than {most} are not read again, so none are written");
    Err(LedgerError::refused("ledger-full", path, reason))
}

/// Writes the next content of `path` beside it, of at most `most` bytes, and waits until it is on the
/// disk.
pub(crate) fn stage(path: &Path, bytes: &[u8], most: u64) -> Result<(), LedgerError> {
    check(path, bytes.len() as u64, most)?;
    let beside = beside(path);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|source| unwritable(folder, source))?;
    }
    let written = File::create(&beside).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(|source| {
        // A part of a file is of no use to anybody; what matters is the first error.
        let _ = fs::remove_file(&beside);
        unwritable(&beside, source)
    })?;
    sync_folder(path)
}

/// Renames the staged content into place, and waits until that is on the disk.
pub(crate) fn settle(path: &Path) -> Result<(), LedgerError> {
    fs::rename(beside(path), path).map_err(|source| unwritable(path, source))?;
    sync_folder(path)
}

/// Both at once.
pub(crate) fn write(path: &Path, bytes: &[u8], most: u64) -> Result<(), LedgerError> {
    stage(path, bytes, most)?;
    settle(path)
}

/// Removes what was staged, if there is any.
pub(crate) fn unstage(path: &Path) -> Result<(), LedgerError> {
    match fs::remove_file(beside(path)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(unwritable(path, error)),
        _ => Ok(()),
    }
}

/// Removes a file, if there is one, and waits until that is on the disk.
pub(crate) fn remove(path: &Path) -> Result<(), LedgerError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(unwritable(path, error)),
        _ => sync_folder(path),
    }
}

/// Brings the entry of a file in its folder to the disk.
pub(crate) fn sync_folder(path: &Path) -> Result<(), LedgerError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|source| unwritable(folder, source))
}

pub(crate) fn unwritable(path: &Path, source: std::io::Error) -> LedgerError {
    LedgerError::Write { path: path.to_owned(), source }
}
