//! Packages: a model's weights in the kernels' own layout, made once and mapped by every process.
//!
//! Owns `packages/`: one file per model and kind of kernels, `sha256-HEX.KIND`. It is derived from
//! the model's file, which stays as it is, and can be deleted at any time. A package is written in
//! a staging folder, made durable, and only then named; of several processes that want to make one
//! the first does and the others wait. Every byte is verified before any of them is computed with;
//! what is not as it was written is refused with the reason. Removing a model removes its
//! packages.

mod format;
mod read;
mod write;

use std::path::{Path, PathBuf};

use super::{
    Store,
    digest::Digest,
    error::{Result, StoreError},
    layout::Layout,
    progress::{Progress, Reporter, Stage},
};

use self::read::Look;
pub use self::{format::Section, read::Package, write::PackageWriter};

const FOLDER: &str = "packages";

/// A package file, as found in the folder; whether it is sound is asked by [`Store::package`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageFile {
    /// The kernels it is for.
    pub kind: String,
    /// Bytes.
    pub size: u64,
    /// Where it is.
    pub path: PathBuf,
}

impl Store {
    /// Opens the package of the model with this digest for this kind of kernels (letters, digits
    /// and `-`), and verifies all of it. None if there is none.
    ///
    /// # Errors
    /// `Package` with the reason for one that must not be used; `Io`.
    pub fn package(&self, model: &str, kind: &str) -> Result<Option<Package>> {
        self.open_package(model, kind, Look::Mapped)
    }

    fn open_package(&self, model: &str, kind: &str, look: Look) -> Result<Option<Package>> {
        let path = path(model, kind)?;
        if !self.layout.dir.exists(&path) {
            return Ok(None);
        }
        let file = self.layout.read(&path)?;
        Package::open(&self.layout.absolute(&path), &file, model, kind, look).map(Some)
    }

    /// The package files of the model with this digest.
    #[must_use]
    pub fn packages(&self, model: &str) -> Vec<PackageFile> {
        let Some(digest) = Digest::parse(model) else { return Vec::new() };
        let prefix = format!("sha256-{}.", digest.hex());
        let names = self.layout.entries(Path::new(FOLDER)).unwrap_or_default();
        names
            .into_iter()
            .filter_map(|name| {
                let kind = name.strip_prefix(&prefix)?.to_owned();
                let path = Path::new(FOLDER).join(&name);
                let size = self.layout.dir.metadata(&path).ok()?.len();
                Some(PackageFile { kind, size, path: self.layout.absolute(path) })
            })
            .collect()
    }

    /// Makes a package, unless a sound one is there by the time it is this process's turn. `fill`
    /// puts the tensors in; when it puts none, no package is made and none is returned. On any
    /// failure nothing stays behind.
    ///
    /// # Errors
    /// What `fill` returns; `Space` before beginning when `estimate` bytes are not free; `Io` when
    /// the disk fills up on the way; `NotFound` when the model was removed meanwhile; `Cancelled`
    /// when `progress` says so.
    pub fn make_package<E: From<StoreError>>(
        &self,
        model: &str,
        kind: &str,
        estimate: u64,
        progress: &mut dyn Progress,
        fill: impl FnOnce(&mut PackageWriter<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<Option<Package>, E> {
        let target = path(model, kind)?;
        let label = format!("{kind} package");
        let mut reporter = Reporter::new(progress, &label);
        let digest = Digest::parse(model).unwrap_or_else(|| Digest::of(model.as_bytes()));
        let _turn = self.layout.shard_lock("package", &digest, &mut reporter)?;
        match self.open_package(model, kind, Look::Read) {
            Ok(Some(package)) => return Ok(Some(package)),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%error, "a package is made again");
                self.layout.remove(&target)?;
            }
        }
        self.layout.room(&label, estimate)?;
        let staging = self.layout.staging()?;
        let aside = staging.file("package");
        reporter.total = Some(estimate);
        reporter.at(Stage::Packing, 0)?;
        let absolute = self.layout.absolute(&aside);
        let mut writer = PackageWriter::new(self.layout.create(&aside)?, absolute, reporter);
        fill(&mut writer)?;
        if writer.tensors() == 0 {
            return Ok(None);
        }
        writer.finish(model, kind)?;
        {
            let _lock = self.layout.lock()?;
            let used = self.readable()?.iter().any(|(_, m)| m.digest.to_string() == model);
            if !used {
                return Err(StoreError::NotFound {
                    name: model.to_owned(),
                    suggestions: Vec::new(),
                    known: false,
                }
                .into());
            }
            self.layout.folder(Path::new(FOLDER))?;
            self.layout.rename(&aside, &target)?;
        }
        let _ = Reporter::new(progress, &label).at(Stage::Done, 0);
        Ok(self.open_package(model, kind, Look::Read)?)
    }
}

/// Removes packages of models that `used` does not know. The store is locked.
pub(super) fn collect(layout: &Layout, used: impl Fn(&Digest) -> bool) -> Result<()> {
    for name in layout.entries(Path::new(FOLDER))? {
        let model = name
            .strip_prefix("sha256-")
            .and_then(|rest| rest.split_once('.'))
            .and_then(|(hex, _)| Digest::parse(hex));
        if !model.is_some_and(|model| used(&model)) {
            layout.remove(&Path::new(FOLDER).join(name))?;
        }
    }
    Ok(())
}

/// Where a package is, relative to the store.
fn path(model: &str, kind: &str) -> Result<PathBuf> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    match Digest::parse(model) {
        Some(digest) if !kind.is_empty() && kind.len() < 64 && kind.chars().all(plain) => {
            Ok(Path::new(FOLDER).join(format!("sha256-{}.{kind}", digest.hex())))
        }
        _ => Err(StoreError::invalid(
            format!("{model} {kind}"),
            "expected a model's sha256 and a kind of letters, digits and `-`",
        )),
    }
}
