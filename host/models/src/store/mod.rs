//! The local store: models by name, weights by digest.
//!
//! Owns one folder (`layout`): what is in it, how it changes, and how models get in. It refuses
//! names outside the grammar (`name`), bytes that are not what was published, and files that the
//! model reader refuses. Bounds: no name, manifest or link leads outside the folder; memory is a
//! few MiB however large the model; a manifest has at most 1 MiB. Several processes may use one
//! store at the same time, and any of them may be killed at any moment: a name then means what it
//! meant before, and the next import clears what was left.

mod convert;
mod digest;
mod download;
mod error;
mod file;
mod http;
mod hub;
mod import;
mod layout;
mod listing;
mod manifest;
mod name;
mod packages;
mod progress;
mod pypi;
mod settings;
mod source;

use std::{
    collections::HashSet,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    time::SystemTime,
};

pub use self::{
    digest::Digest,
    error::{Result, StoreError},
    manifest::Facts,
    name::Name,
    packages::{Package, PackageFile, PackageWriter, Section},
    progress::{Progress, Silent, Stage, Update},
    settings::Sources,
    source::{Entry, catalogue},
};
use self::{
    layout::{Layout, blob, part_name, split},
    listing::{Listing, Marks},
    manifest::{MAX_BYTES, Manifest, now, time},
    progress::Reporter,
};

/// A store of models, opened.
///
/// Cheap to share behind an `Arc`; every method may be called from any thread, and blocks.
#[derive(Debug)]
pub struct Store {
    layout: Layout,
    sources: Sources,
    listing: Listing,
}

/// A model in the store.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Located {
    /// The canonical name: of all names of this model, the one that had it first.
    pub id: String,
    /// All its names, the canonical one first.
    pub names: Vec<String>,
    /// Its files in order, absolute; opening the first opens the model.
    pub paths: Vec<PathBuf>,
    /// `sha256:` and the digest of its file; for several files, of the list of their digests.
    pub digest: String,
    /// Bytes of all its files.
    pub size: u64,
    /// When its name last got another model.
    pub modified: SystemTime,
    /// Where it came from: `file:`, `pypi:` or `hf:`.
    pub source: String,
    /// The hub's commit or the package's version.
    pub revision: Option<String>,
    /// Its licence, where known.
    pub license: Option<String>,
    /// What its file says of itself.
    pub facts: Facts,
}

impl Store {
    /// Opens the store in a folder, creating the folder if need be. Reading works on a read-only
    /// file system. Pulls follow the environment ([`Sources::from_env`]).
    ///
    /// # Errors
    /// When the folder can be neither opened nor created.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(folder, Sources::from_env())
    }

    /// Opens the store with these settings for pulls.
    ///
    /// # Errors
    /// When the folder can be neither opened nor created.
    pub fn open_with(folder: impl AsRef<Path>, sources: Sources) -> Result<Self> {
        let layout = Layout::open(folder.as_ref())?;
        Ok(Self { layout, sources, listing: Listing::default() })
    }

    /// Where the store is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.layout.path
    }

    /// Every model with all its names, by canonical name in order. A damaged manifest is logged and left out;
    /// [`Store::locate`] says what is wrong with it. What was read is kept, and read again when the
    /// folder of names has changed, by whomever.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn list(&self) -> Result<Vec<Located>> {
        self.listing.get(&self.layout, |marks| self.read_list(marks))
    }

    fn read_list(&self, marks: &mut Marks) -> Result<Vec<Located>> {
        let manifests = self.readable_marked(marks)?;
        let mut out: Vec<Located> = manifests
            .iter()
            .map(|(_, manifest)| (manifest, self.located(manifest, &manifests)))
            .filter_map(|(manifest, found)| (found.id == manifest.name).then_some(found))
            .collect();
        out.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(out)
    }

    /// Finds a model by any of its names and checks that its files are there in full.
    ///
    /// # Errors
    /// `Name` for what is no name, `NotFound` with near names, `Manifest` or `Damaged` for what
    /// has been harmed.
    pub fn locate(&self, name: &str) -> Result<Located> {
        let name = Name::parse(name)?;
        let manifest = self.manifest(&name)?;
        for (index, file) in manifest.files.iter().enumerate() {
            let path = file_path(&manifest, index);
            let size = self.layout.dir.metadata(&path).map(|metadata| metadata.len());
            let reason = match size {
                Ok(size) if size == file.size => continue,
                Ok(size) => {
                    format!("{} has {size} bytes, expected {}", path.display(), file.size)
                }
                Err(error) => format!("cannot open {}: {error}", path.display()),
            };
            return Err(StoreError::Damaged { name: name.to_string(), reason });
        }
        Ok(self.located(&manifest, &self.readable()?))
    }

    /// Gives a model one more name; what that name meant before is let go.
    ///
    /// # Errors
    /// As [`Store::locate`] for `from`, `Name` for `to`, and what the disk says.
    pub fn copy(&self, from: &str, to: &str) -> Result<Located> {
        let (from, to) = (Name::parse(from)?, Name::parse(to)?);
        {
            let staging = self.layout.staging()?;
            let _lock = self.layout.lock()?;
            let mut manifest = self.manifest(&from)?;
            if from != to {
                manifest.name = to.to_string();
                manifest.created = now();
                manifest.modified = manifest.created;
                self.write(&to, &manifest, &staging.file("manifest.json"))?;
                self.collect()?;
            }
        }
        self.locate(&to.to_string())
    }

    /// Removes a name, and the weights nothing else uses. A model that is in use keeps running.
    ///
    /// # Errors
    /// `NotFound` with near names, and what the disk says.
    pub fn remove(&self, name: &str) -> Result<()> {
        let name = Name::parse(name)?;
        let path = name.manifest_path();
        let _lock = self.layout.lock()?;
        if !self.layout.dir.exists(&path) {
            return Err(self.not_found(&name));
        }
        self.layout.remove(&path)?;
        // Only empty folders can be removed, so a failure means they are still needed.
        for folder in path.ancestors().skip(1).take(2) {
            if self.layout.dir.remove_dir(folder).is_err() {
                break;
            }
        }
        self.layout.sync(Path::new("manifests"))?;
        self.collect()
    }

    /// Reads all weights of a model and compares them with their digests.
    ///
    /// # Errors
    /// `Damaged` when they differ; otherwise as [`Store::locate`].
    pub fn verify(&self, name: &str, progress: &mut dyn Progress) -> Result<Located> {
        let found = self.locate(name)?;
        let manifest = self.manifest(&Name::parse(name)?)?;
        for (index, record) in manifest.files.iter().enumerate() {
            let path = file_path(&manifest, index);
            let label = path.display().to_string();
            let known = record.digest.to_string();
            let mut reporter = Reporter::new(progress, &label);
            reporter.digest = Some(&known);
            reporter.total = Some(record.size);
            let file = self.layout.read(&path)?;
            let (digest, _) = Digest::read(file, &mut reporter, Stage::Verifying)?;
            if digest != record.digest {
                return Err(StoreError::Damaged {
                    name: found.id,
                    reason: format!("{label} has {digest}, expected {}", record.digest),
                });
            }
        }
        Ok(found)
    }

    /// The error for a name that is not there.
    fn not_found(&self, name: &Name) -> StoreError {
        let names: Vec<Name> =
            self.readable().unwrap_or_default().into_iter().map(|(name, _)| name).collect();
        StoreError::NotFound {
            name: name.to_string(),
            suggestions: name::near(name, names.iter()),
            known: source::entry(name).is_ok_and(|entry| entry.is_some()),
        }
    }

    fn manifest(&self, name: &Name) -> Result<Manifest> {
        match self.load(&name.manifest_path())? {
            Some(manifest) => Ok(manifest),
            None => Err(self.not_found(name)),
        }
    }

    fn load(&self, path: &Path) -> Result<Option<Manifest>> {
        let file: File = match self.layout.dir.open(path) {
            Ok(file) => file.into_std(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StoreError::io("open", self.layout.absolute(path), error)),
        };
        let mut bytes = Vec::new();
        file.take(MAX_BYTES)
            .read_to_end(&mut bytes)
            .map_err(|error| StoreError::io("read", self.layout.absolute(path), error))?;
        let label = self.layout.absolute(path).display().to_string();
        let manifest = Manifest::parse(&label, &bytes)?;
        let named = Name::parse(&manifest.name).map(|name| name.manifest_path());
        if named.is_ok_and(|named| named == path) {
            Ok(Some(manifest))
        } else {
            let reason = format!("it lies where the name in it, `{}`, does not", manifest.name);
            Err(StoreError::Manifest { path: label, reason })
        }
    }

    /// Every manifest, or why it cannot be read.
    fn manifests(&self) -> Result<Vec<Result<(Name, Manifest)>>> {
        self.manifests_marked(&mut Marks::default())
    }

    fn manifests_marked(&self, marks: &mut Marks) -> Result<Vec<Result<(Name, Manifest)>>> {
        let mut out = Vec::new();
        let root = Path::new("manifests");
        for namespace in self.noted(root, marks)? {
            let namespace = root.join(namespace);
            for model in self.noted(&namespace, marks)? {
                let model = namespace.join(model);
                for tag in self.noted(&model, marks)? {
                    let path = model.join(tag);
                    marks.note(&self.layout, path.clone());
                    let one = self.load(&path).and_then(|manifest| {
                        // Gone since the folder was listed.
                        let Some(manifest) = manifest else { return Ok(None) };
                        Ok(Some((Name::parse(&manifest.name)?, manifest)))
                    });
                    out.extend(one.transpose());
                }
            }
        }
        Ok(out)
    }

    fn noted(&self, folder: &Path, marks: &mut Marks) -> Result<Vec<String>> {
        marks.note(&self.layout, folder.to_owned());
        self.layout.entries(folder)
    }

    fn readable(&self) -> Result<Vec<(Name, Manifest)>> {
        self.readable_marked(&mut Marks::default())
    }

    fn readable_marked(&self, marks: &mut Marks) -> Result<Vec<(Name, Manifest)>> {
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        for one in self.manifests_marked(marks)? {
            match one {
                Ok(one) => good.push(one),
                Err(error) => bad.push(error),
            }
        }
        for error in bad {
            tracing::warn!(%error, "leaving out a model");
        }
        Ok(good)
    }

    fn located(&self, manifest: &Manifest, all: &[(Name, Manifest)]) -> Located {
        let mut names: Vec<(u64, String)> = all
            .iter()
            .map(|(_, other)| other)
            .filter(|other| other.digest == manifest.digest)
            .map(|other| (other.created, other.name.clone()))
            .collect();
        names.sort();
        let mut names: Vec<String> = names.into_iter().map(|(_, name)| name).collect();
        if names.is_empty() {
            names.push(manifest.name.clone());
        }
        Located {
            id: names.first().cloned().unwrap_or_default(),
            names,
            paths: (0..manifest.files.len())
                .map(|index| self.layout.absolute(file_path(manifest, index)))
                .collect(),
            digest: manifest.digest.to_string(),
            size: manifest.size(),
            modified: time(manifest.modified),
            source: manifest.source.clone(),
            revision: manifest.revision.clone(),
            license: manifest.license.clone(),
            facts: manifest.facts.clone(),
        }
    }

    /// Writes a manifest under its name. The store is locked.
    fn write(&self, name: &Name, manifest: &Manifest, aside: &Path) -> Result<()> {
        let path = name.manifest_path();
        self.layout.folder(path.parent().unwrap_or(Path::new("manifests")))?;
        self.layout.replace(&path, aside, &manifest.bytes()?)
    }

    /// Removes weights that no manifest names. While one cannot be read, nothing is removed, for
    /// it may name any of them. The store is locked.
    fn collect(&self) -> Result<()> {
        let Ok(manifests) = self.manifests()?.into_iter().collect::<Result<Vec<_>>>() else {
            tracing::warn!("a manifest is damaged, so unused weights are kept");
            return Ok(());
        };
        let mut used: HashSet<PathBuf> = HashSet::new();
        for (_, manifest) in &manifests {
            used.extend(manifest.files.iter().map(|file| blob(&file.digest)));
            used.insert(split(&manifest.digest));
        }
        let models: HashSet<Digest> = manifests.iter().map(|(_, m)| m.digest).collect();
        packages::collect(&self.layout, |model| models.contains(model))?;
        for name in self.layout.entries(Path::new("blobs"))? {
            let path = Path::new("blobs").join(name);
            if !used.contains(&path) {
                self.layout.remove(&path)?;
            }
        }
        for name in self.layout.entries(Path::new("splits"))? {
            let path = Path::new("splits").join(name);
            if !used.contains(&path) {
                self.layout
                    .dir
                    .remove_dir_all(&path)
                    .map_err(|e| StoreError::io("remove", self.layout.absolute(&path), e))?;
            }
        }
        Ok(())
    }
}

/// Where a model's file is read from, relative to the store: the blob, or for split models the
/// link that has the name readers expect.
fn file_path(manifest: &Manifest, index: usize) -> PathBuf {
    match manifest.files.as_slice() {
        [one] => blob(&one.digest),
        many => split(&manifest.digest).join(part_name(index, many.len())),
    }
}

#[cfg(test)]
mod tests;
