//! Compiled components, kept from one process to the next.
//!
//! Machine code is run as it lies there, so a file is used only if it was written by who runs this
//! host: its last bytes are a keyed digest (BLAKE3 with a key) over the component's digest, everything
//! that the compiler's output depends on, and the code. The key is a file beside them that nobody
//! else may read. Whatever is missing, damaged or somebody else's is compiled anew and replaced.
//! Code is mapped, so that processes share it and read only what they run; a file is never written
//! to once it has its name.
//! Bounds: [`MOST`] files, of at most [`LARGEST`] bytes each.

use std::{
    fs::{self, File, OpenOptions},
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
    time::SystemTime,
};

use blake3::Hash as Mac;
use wasmtime::{Engine, component::Component};

/// Files that are kept; the oldest go first.
const MOST: usize = 256;
/// Bytes of one file.
const LARGEST: u64 = 256 << 20;
const MAC: usize = 32;

/// A folder of compiled components.
#[derive(Debug, Clone)]
pub(crate) struct Compiled {
    folder: PathBuf,
    key: [u8; 32],
}

impl Compiled {
    /// Opens or makes the folder and its key.
    ///
    /// # Errors
    /// When the folder cannot be made, or the key is not this user's alone.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        own(folder)?;
        let path = folder.join("key");
        let key = match read_key(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_key(folder, &path)?;
                read_key(&path)?
            }
            found => found?,
        };
        Ok(Self { folder: folder.to_owned(), key })
    }

    /// The component with this digest, from its file. Trouble with files is logged and costs only time.
    pub(crate) fn find(&self, engine: &Engine, digest: &str) -> Option<Component> {
        let path = self.folder.join(self.name(engine, digest));
        match self.vouched(&path) {
            Ok(true) => match mapped(engine, &path) {
                Ok(component) => return Some(component),
                Err(error) => tracing::warn!(%error, path = %path.display(), "compiling again"),
            },
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, path = %path.display(), "compiling again"),
        }
        None
    }

    /// Keeps the code of the component with this digest, if that can be done.
    pub(crate) fn keep(&self, engine: &Engine, digest: &str, code: &[u8]) {
        let path = self.folder.join(self.name(engine, digest));
        if let Err(error) = self.write(&path, code) {
            tracing::warn!(%error, path = %path.display(), "a compiled component is not kept");
        }
    }

    /// Digest and engine: another compiler, processor feature or setting is another file.
    fn name(&self, engine: &Engine, digest: &str) -> String {
        let mut hasher = DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut hasher);
        let digest = digest.trim_start_matches("sha256:");
        format!("{digest}-{:016x}.cwasm", hasher.finish())
    }

    /// Whether there is a file, which then was written with this host's key.
    fn vouched(&self, path: &Path) -> io::Result<bool> {
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let length = file.metadata()?.len();
        if length > LARGEST {
            return Err(wrong("the file is too large"));
        }
        let code = length.checked_sub(MAC as u64).ok_or_else(|| wrong("the file is cut short"))?;
        let mut hasher = self.hasher(path);
        hasher.update_reader(Read::by_ref(&mut file).take(code))?;
        let mut mac = [0; MAC];
        file.read_exact(&mut mac)?;
        // Compared in constant time.
        if hasher.finalize() != Mac::from_bytes(mac) {
            return Err(wrong("the file was not written with this host's key"));
        }
        Ok(true)
    }

    fn write(&self, path: &Path, code: &[u8]) -> io::Result<()> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let aside = path.with_extension(format!("{}-{count}.new", process::id()));
        let put = || -> io::Result<()> {
            let mut file = private(&aside)?;
            file.write_all(code)?;
            file.write_all(self.hasher(path).update(code).finalize().as_bytes())?;
            fs::rename(&aside, path)?;
            self.sweep()
        };
        put().inspect_err(|_| {
            // What is half written is nobody's.
            let _ = fs::remove_file(&aside);
        })
    }

    /// The file's name is part of what is signed: code for one component is not another's.
    fn hasher(&self, path: &Path) -> blake3::Hasher {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(path.file_name().unwrap_or_default().as_encoded_bytes());
        hasher.update(&[0]);
        hasher
    }

    /// Removes the oldest files beyond [`MOST`].
    fn sweep(&self) -> io::Result<()> {
        let mut files: Vec<(SystemTime, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if entry.path().extension().is_some_and(|extension| extension == "cwasm") {
                files.push((entry.metadata()?.modified()?, entry.path()));
            }
        }
        files.sort();
        let excess = files.len().saturating_sub(MOST);
        for (_, path) in files.iter().take(excess) {
            fs::remove_file(path)?;
        }
        Ok(())
    }
}

/// A component of its machine code, which came from the compiler a moment ago.
///
/// # Errors
/// Code of another version or configuration of wasmtime, or what is no code.
#[allow(unsafe_code, reason = "machine code is trusted by whoever vouches for it; see SAFETY")]
pub(crate) fn component(engine: &Engine, code: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: the bytes are what `Engine::precompile_component` returned, here or in a process that this
    // one started from a program its operator chose. wasmtime itself refuses those of another version or
    // configuration.
    unsafe { Component::deserialize(engine, code) }
}

/// A component whose machine code is mapped from a file that was vouched for.
///
/// # Errors
/// As [`component`].
#[allow(unsafe_code, reason = "machine code is trusted by whoever vouches for it; see SAFETY")]
fn mapped(engine: &Engine, path: &Path) -> wasmtime::Result<Component> {
    // SAFETY: the file carries a keyed digest over what `Engine::precompile_component` returned, which only
    // a host with this user's key can have made; the digest after the code is part of no section. Under this
    // name there is never another file than such a host's, put there whole by renaming, and no host writes
    // to it afterwards: the folder is this user's alone to write to (`own`), who may change this process too.
    unsafe { Component::deserialize_file(engine, path) }
}

/// Makes sure that nobody else can put a file into the folder, between a look at it and its use.
fn own(folder: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        let metadata = fs::metadata(folder)?;
        if metadata.uid() != rustix::process::geteuid().as_raw() {
            let what = format!("{} is another user's folder", folder.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        if metadata.mode() & 0o022 != 0 {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
        }
    }
    Ok(())
}

fn read_key(path: &Path) -> io::Result<[u8; 32]> {
    let mut file = File::open(path)?;
    let metadata = file.metadata()?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let mine = metadata.uid() == rustix::process::geteuid().as_raw();
        if !mine || metadata.mode() & 0o077 != 0 {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("{} must be this user's alone (mode 600)", path.display()),
            ));
        }
    }
    let mut key = [0; 32];
    if metadata.len() != key.len() as u64 {
        let what = format!("{} is not a key of 32 bytes; remove it", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    file.read_exact(&mut key)?;
    Ok(key)
}

/// Makes a key; if another process has just made one, that one stays.
fn make_key(folder: &Path, path: &Path) -> io::Result<()> {
    let mut key = [0; 32];
    getrandom::fill(&mut key).map_err(io::Error::other)?;
    let aside = folder.join(format!("key.{}.new", process::id()));
    let mut file = private(&aside)?;
    file.write_all(&key)?;
    file.sync_all()?;
    let made = fs::hard_link(&aside, path);
    fs::remove_file(&aside)?;
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// A new file that only this user may read.
fn private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAT: &str = r#"(component (core module (func (export "f") (result i32) i32.const 7)))"#;

    fn digest() -> String {
        format!("sha256:{}", "ab".repeat(32))
    }

    fn is_taken(cache: &Compiled, engine: &Engine) -> bool {
        cache.find(engine, &digest()).is_some()
    }

    #[test]
    fn what_was_compiled_once_is_taken_and_any_flipped_byte_is_compiled_again() {
        let folder = tempfile::tempdir().unwrap();
        let engine = Engine::default();
        let code = engine.precompile_component(&wat::parse_str(WAT).unwrap()).unwrap();
        let cache = Compiled::open(folder.path()).unwrap();
        assert!(!is_taken(&cache, &engine));
        cache.keep(&engine, &digest(), &code);
        let again = Compiled::open(folder.path()).unwrap();
        assert!(is_taken(&again, &engine), "another process with the same key");

        let path = folder.path().join(cache.name(&engine, &digest()));
        let sound = fs::read(&path).unwrap();
        for at in 0..sound.len() {
            let mut flipped = sound.clone();
            flipped[at] ^= 1 << (at % 8);
            fs::write(&path, flipped).unwrap();
            assert!(!is_taken(&cache, &engine), "byte {at}");
        }
        for length in [0, MAC - 1, MAC, sound.len() - 1] {
            fs::write(&path, &sound[..length]).unwrap();
            assert!(!is_taken(&cache, &engine), "{length} bytes");
        }
        cache.keep(&engine, &digest(), &code);
        assert_eq!(fs::read(&path).unwrap(), sound, "the damaged file is replaced");
    }

    #[test]
    fn another_key_another_component_and_another_engine_are_not_taken() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let engine = Engine::default();
        let code = engine.precompile_component(&wat::parse_str(WAT).unwrap()).unwrap();
        let cache = Compiled::open(folder.path()).unwrap();
        cache.keep(&engine, &digest(), &code);
        let name = cache.name(&engine, &digest());

        let foreign = Compiled::open(other.path()).unwrap();
        fs::copy(folder.path().join(&name), other.path().join(&name)).unwrap();
        assert!(!is_taken(&foreign, &engine), "another host's file");

        let elsewhere = format!("sha256:{}", "cd".repeat(32));
        let target = cache.name(&engine, &elsewhere);
        fs::copy(folder.path().join(&name), folder.path().join(target)).unwrap();
        assert!(cache.find(&engine, &elsewhere).is_none());

        let mut config = wasmtime::Config::new();
        config.epoch_interruption(true);
        assert!(!is_taken(&cache, &Engine::new(&config).unwrap()));
    }

    #[cfg(unix)]
    #[test]
    fn a_key_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        Compiled::open(folder.path()).unwrap();
        let key = folder.path().join("key");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
        let refused = Compiled::open(folder.path()).unwrap_err();
        assert!(refused.to_string().contains("mode 600"), "{refused}");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&key, "short").unwrap();
        assert!(Compiled::open(folder.path()).unwrap_err().to_string().contains("32 bytes"));
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_that_others_can_write_to_becomes_the_users_own() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let mode = || fs::metadata(folder.path()).unwrap().permissions().mode() & 0o777;
        for (before, after) in [(0o777, 0o700), (0o775, 0o700), (0o755, 0o755), (0o700, 0o700)] {
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(before)).unwrap();
            Compiled::open(folder.path()).unwrap();
            assert_eq!(mode(), after, "{before:o}");
        }
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Compiled::open(folder.path()).unwrap();
        for n in 0..MOST + 3 {
            fs::write(folder.path().join(format!("{n:04}.cwasm")), "x").unwrap();
        }
        cache.sweep().unwrap();
        let left = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, MOST + 1, "and the key");
    }
}
