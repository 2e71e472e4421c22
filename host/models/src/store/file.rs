//! Models that are files of this machine already. They are only ever read.

use std::{
    fs::{self, File, Metadata},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use cap_std::{ambient_authority, fs::Dir};

use super::{
    digest::Digest,
    error::{Result, StoreError},
    import::{Fetched, Staged},
    layout::{Layout, Staging, part_name},
    progress::{Progress, Reporter, Stage},
    source::{siblings, split_of},
};
use crate::Gguf;

/// Stages a GGUF file, or all files of a split one given its first.
pub(super) fn fetch(
    layout: &Layout,
    staging: &Staging<'_>,
    path: &Path,
    progress: &mut dyn Progress,
) -> Result<Fetched> {
    let paths = parts(path)?;
    for path in &paths {
        plain(path)?;
    }
    // Once before anything is copied, so that a bad file fails at once and under its own name.
    Reporter::new(progress, &path.display().to_string()).at(Stage::Checking, 0)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    Gguf::open(path)
        .map_err(|error| StoreError::unusable(&path.display().to_string(), folder, &error))?;
    let count = paths.len();
    let mut files = Vec::with_capacity(count);
    for (index, path) in paths.iter().enumerate() {
        let to = staging.file(part_name(index, count));
        files.push(adopt(layout, path, to, progress)?);
    }
    Ok(Fetched { files, ..Fetched::default() })
}

/// All files of the model whose first is `path`.
fn parts(path: &Path) -> Result<Vec<PathBuf>> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Some(split) = split_of(name) else {
        return Ok(vec![path.to_owned()]);
    };
    let names = siblings(name, split);
    if split.index != 1 {
        let reason = format!(
            "it is part {} of {}; import {}, which brings them all",
            split.index,
            split.count,
            names.first().map_or(name, String::as_str)
        );
        return Err(StoreError::invalid(path.display().to_string(), reason));
    }
    Ok(names.iter().map(|name| path.with_file_name(name)).collect())
}

/// Fails unless `path` is a file with something in it.
fn plain(path: &Path) -> Result<Metadata> {
    let metadata = fs::metadata(path).map_err(|error| StoreError::io("open", path, error))?;
    let reason = if metadata.is_dir() {
        "it is a directory without config.json and model.safetensors; name the GGUF file in it"
    } else if !metadata.is_file() {
        "it is not a regular file"
    } else if metadata.len() == 0 {
        "it is empty"
    } else {
        return Ok(metadata);
    };
    Err(StoreError::invalid(path.display().to_string(), reason))
}

/// Stages one file: by reflink or link where the file system can, by copying otherwise.
fn adopt(layout: &Layout, path: &Path, to: PathBuf, progress: &mut dyn Progress) -> Result<Staged> {
    let label = path.display().to_string();
    let mut reporter = Reporter::new(progress, &label);
    // A link to a link would be one, and point anywhere.
    let path = &path.canonicalize().map_err(|error| StoreError::io("open", path, error))?;
    let before = plain(path)?;
    reporter.total = Some(before.len());
    if !reflink(layout, path, &to)? && !link(layout, path, &before, &to) {
        layout.room(&label, before.len())?;
        let source = File::open(path).map_err(|error| StoreError::io("open", path, error))?;
        copy(source, layout.create(&to)?, &layout.absolute(&to), &mut reporter)?;
    }
    let (digest, size) = Digest::read(layout.read(&to)?, &mut reporter, Stage::Verifying)?;
    let after = plain(path)?;
    let same = before.len() == after.len()
        && size == after.len()
        && before.modified().ok() == after.modified().ok();
    if !same {
        return Err(StoreError::Changed { path: label });
    }
    Ok(Staged { path: to, digest, size })
}

/// Copies everything and makes it durable.
pub(super) fn copy(
    mut from: impl Read,
    mut to: File,
    to_path: &Path,
    reporter: &mut Reporter<'_>,
) -> Result<()> {
    let mut buffer = vec![0; 1 << 20];
    let mut done = 0;
    loop {
        reporter.at(Stage::Copying, done)?;
        let read = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(StoreError::io("read", reporter.what, error)),
        };
        to.write_all(buffer.get(..read).unwrap_or_default())
            .map_err(|error| StoreError::io("write", to_path, error))?;
        done += read as u64;
    }
    to.sync_all().map_err(|error| StoreError::io("write", to_path, error))
}

/// A second file with the same blocks, which later writes to either do not share. True when made.
#[cfg(target_os = "linux")]
fn reflink(layout: &Layout, from: &Path, to: &Path) -> Result<bool> {
    let source = File::open(from).map_err(|error| StoreError::io("open", from, error))?;
    let target = layout.create(to)?;
    if rustix::fs::ioctl_ficlone(&target, &source).is_ok() {
        target.sync_all().map_err(|error| StoreError::io("write", layout.absolute(to), error))?;
        return Ok(true);
    }
    layout.remove(to)?;
    Ok(false)
}

#[cfg(not(target_os = "linux"))]
fn reflink(_: &Layout, _: &Path, _: &Path) -> Result<bool> {
    Ok(false)
}

/// A second name of the same file, if it is ours: another user's could be changed under us by its
/// owner. True when made.
fn link(layout: &Layout, from: &Path, metadata: &Metadata, to: &Path) -> bool {
    let (Some(parent), Some(name)) = (from.parent(), from.file_name()) else {
        return false;
    };
    ours(metadata)
        && Dir::open_ambient_dir(parent, ambient_authority())
            .and_then(|parent| parent.hard_link(name, &layout.dir, to))
            .is_ok()
}

#[cfg(unix)]
fn ours(metadata: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    metadata.uid() == rustix::process::geteuid().as_raw()
}

#[cfg(not(unix))]
fn ours(_: &Metadata) -> bool {
    true
}
