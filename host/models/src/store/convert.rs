//! Checkpoints on their way into the store: read where they lie, written as GGUF into the staging
//! folder, quantised as asked.

use std::{
    fs::File,
    io::{BufWriter, Read, Seek},
    path::{Path, PathBuf},
};

use gristmill_kernels::Quant;
use zip::ZipArchive;

use super::{
    digest::Digest,
    error::{Result, StoreError},
    file,
    import::{Fetched, Staged},
    layout::{Layout, Staging, part_name},
    progress::{Progress, Reporter, Stage},
};
use crate::checkpoint::Checkpoint;

/// The most files of an archive that is a checkpoint.
const MAX_FILES: usize = 1_000;

/// Converts the checkpoint in `folder`, which the model is called `title` after.
pub(super) fn fetch(
    layout: &Layout,
    staging: &Staging<'_>,
    folder: &Path,
    title: &str,
    quantization: Option<Quant>,
    progress: &mut dyn Progress,
) -> Result<Fetched> {
    let mut reporter = Reporter::new(progress, title);
    reporter.at(Stage::Checking, 0)?;
    let unusable = |error| StoreError::unusable(title, folder, &error);
    let checkpoint = Checkpoint::open(folder, title, quantization).map_err(unusable)?;
    layout.room(title, checkpoint.size())?;
    reporter.total = Some(checkpoint.size());
    let path = staging.file(part_name(0, 1));
    let shown = layout.absolute(&path);
    let out = BufWriter::with_capacity(1 << 20, layout.create(&path)?);
    let out = checkpoint
        .write(&shown, out, |done| reporter.at(Stage::Converting, done).map_err(Stopped::Store))
        .map_err(|stopped| match stopped {
            Stopped::Store(error) => error,
            Stopped::Model(error) => unusable(error),
        })?;
    let file =
        out.into_inner().map_err(|error| StoreError::io("write", &shown, error.into_error()))?;
    file.sync_all().map_err(|error| StoreError::io("write", &shown, error))?;
    drop(file);
    let (digest, size) = Digest::read(layout.read(&path)?, &mut reporter, Stage::Verifying)?;
    let files = vec![Staged { path, digest, size }];
    Ok(Fetched { files, converted: true, ..Fetched::default() })
}

/// Why writing stopped: the caller of the store wished it, or the checkpoint is bad.
enum Stopped {
    Store(StoreError),
    Model(crate::ModelError),
}

impl From<crate::ModelError> for Stopped {
    fn from(error: crate::ModelError) -> Self {
        Self::Model(error)
    }
}

/// Unpacks an archive of a checkpoint into `to`, a folder of the store. Nothing of it leaves that
/// folder, and no member is larger than it says.
pub(super) fn unpack(
    layout: &Layout,
    archive: impl Read + Seek,
    label: &str,
    to: &Path,
    progress: &mut dyn Progress,
) -> Result<PathBuf> {
    let bad = |reason: String| StoreError::invalid(label.to_owned(), reason);
    let mut archive = ZipArchive::new(archive).map_err(|error| bad(error.to_string()))?;
    if archive.len() > MAX_FILES {
        return Err(bad(format!("it has {} files, at most {MAX_FILES} are read", archive.len())));
    }
    layout.folder(to)?;
    for index in 0..archive.len() {
        let member = archive.by_index(index).map_err(|error| bad(error.to_string()))?;
        let Some(name) = member.enclosed_name() else {
            return Err(bad(format!("its member {:?} points outside", member.name())));
        };
        if member.is_dir() {
            continue;
        }
        let (path, size) = (to.join(&name), member.size());
        layout.room(label, size)?;
        layout.folder(path.parent().unwrap_or(to))?;
        let mut reporter = Reporter::new(progress, label);
        reporter.total = Some(size);
        let out: File = layout.create(&path)?;
        file::copy(
            member.take(size.saturating_add(1)),
            out,
            &layout.absolute(&path),
            &mut reporter,
        )?;
        let found = layout.read(&path)?.metadata().map_or(0, |metadata| metadata.len());
        if found != size {
            return Err(bad(format!("its member {} has not {size} bytes", name.display())));
        }
    }
    Ok(layout.absolute(to))
}
