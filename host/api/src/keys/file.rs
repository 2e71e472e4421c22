//! `keys.toml`: one table for each key, written whole or not at all.

use std::{
    fmt::Write as _,
    fs,
    io::{self, Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::ids::seconds;

/// What a key's text begins with.
pub const PREFIX: &str = "gm_";
/// Largest file.
pub const MOST_BYTES: u64 = 1 << 20;
/// Most answers at the same time that an entry may name.
const MOST_CONCURRENT: u32 = 65_536;

/// One key's entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Key")]
pub struct Entry {
    /// What it is called. A name is not used again, not even after it was revoked: a log never means
    /// two keys by it.
    #[schemars(extend("pattern" = "^[A-Za-z0-9_.@-]{1,64}$"))]
    pub name: String,
    /// SHA-256 of the key's text: 64 lower-case hexadecimal digits.
    #[schemars(extend("pattern" = "^[0-9a-f]{64}$"))]
    pub sha256: String,
    /// Whether it reaches everything.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub operator: bool,
    /// The models it reaches; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minItems" = 1))]
    pub models: Option<Vec<String>>,
    /// Requests per second. As many may come at once, and one at least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub rate: Option<f64>,
    /// Requests at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MOST_CONCURRENT))]
    pub concurrent: Option<u32>,
    /// When it was made.
    pub created: String,
    /// Since when it opens nothing any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<String>,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "keys of who may come in over HTTP")]
struct Document {
    /// The keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    key: Vec<Entry>,
}

/// The JSON Schema of the file.
#[must_use]
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Document).to_value()
}

/// What a new key shall be.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Wanted {
    /// As [`Entry::name`].
    pub name: String,
    /// As [`Entry::operator`].
    pub operator: bool,
    /// As [`Entry::models`].
    pub models: Option<Vec<String>>,
    /// As [`Entry::rate`].
    pub rate: Option<f64>,
    /// As [`Entry::concurrent`].
    pub concurrent: Option<u32>,
}

/// Why the keys were not read or changed. What was in the file stays in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeysError {
    /// The file could not be read or written.
    #[error("{path}: {reason}", path = path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// The system's reason.
        reason: String,
    },
    /// The file is not what it must be.
    #[error("{path}: {reason}", path = path.display())]
    Invalid {
        /// Which.
        path: PathBuf,
        /// What was expected and found.
        reason: String,
    },
    /// Others may write to it, and could let themselves in.
    #[error("{path}: others may write to it (mode {mode:o}); say chmod 600", path = path.display())]
    Writable {
        /// Which.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// What is asked for cannot be a key, or is none.
    #[error("{0}")]
    Wanted(String),
}

impl KeysError {
    /// The documented word: `keys-unreadable`, `invalid-keys`, `keys-writable-by-others`,
    /// `invalid-request`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Io { .. } => "keys-unreadable",
            Self::Invalid { .. } => "invalid-keys",
            Self::Writable { .. } => "keys-writable-by-others",
            Self::Wanted(_) => "invalid-request",
        }
    }
}

/// What changes when a file does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp([i64; 7]);

/// The file of the keys. One that is not there has none.
#[derive(Debug, Clone)]
pub struct KeyFile {
    path: PathBuf,
}

impl KeyFile {
    /// The file at this path.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn io(&self, error: &io::Error) -> KeysError {
        KeysError::Io { path: self.path.clone(), reason: error.to_string() }
    }

    /// What it is like now; none: it is not there.
    pub(super) fn stamp(&self) -> Result<Option<Stamp>, KeysError> {
        match fs::metadata(&self.path) {
            Ok(now) => Ok(Some(Stamp([
                now.dev().cast_signed(),
                now.ino().cast_signed(),
                now.size().cast_signed(),
                now.mtime(),
                now.mtime_nsec(),
                now.ctime(),
                now.ctime_nsec(),
            ]))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.io(&error)),
        }
    }

    /// Every key in it, the revoked ones too.
    ///
    /// # Errors
    /// [`KeysError::Io`], [`KeysError::Writable`], and [`KeysError::Invalid`] for the first thing
    /// that is not as it must be.
    pub fn read(&self) -> Result<Vec<Entry>, KeysError> {
        self.read_if_there().map(Option::unwrap_or_default)
    }

    /// As [`KeyFile::read`]; none: it is not there.
    pub(super) fn read_if_there(&self) -> Result<Option<Vec<Entry>>, KeysError> {
        let file = match fs::File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.io(&error)),
        };
        let mode = file.metadata().map_err(|error| self.io(&error))?.mode() & 0o777;
        if mode & 0o022 != 0 {
            return Err(KeysError::Writable { path: self.path.clone(), mode });
        }
        let mut text = String::new();
        file.take(MOST_BYTES + 1).read_to_string(&mut text).map_err(|error| self.io(&error))?;
        let invalid = |reason| KeysError::Invalid { path: self.path.clone(), reason };
        if text.len() as u64 > MOST_BYTES {
            return Err(invalid(format!("longer than {MOST_BYTES} bytes")));
        }
        let document: Document =
            toml::from_str(&text).map_err(|error| invalid(error.to_string()))?;
        check(&document.key).map_err(invalid)?;
        Ok(Some(document.key))
    }

    /// Makes a key and writes its entry. The answer is the key itself: nobody can tell it again.
    ///
    /// # Errors
    /// As [`KeyFile::read`]; [`KeysError::Wanted`] for a name that is taken and whatever cannot be an
    /// entry.
    pub fn add(&self, wanted: Wanted) -> Result<String, KeysError> {
        let _lock = self.lock()?;
        let mut entries = self.read()?;
        let key = fresh()?;
        entries.push(Entry {
            name: wanted.name,
            sha256: hex(&hash(key.as_bytes())),
            operator: wanted.operator,
            models: wanted.models,
            rate: wanted.rate,
            concurrent: wanted.concurrent,
            created: seconds(Timestamp::now()),
            revoked: None,
        });
        check(&entries).map_err(KeysError::Wanted)?;
        self.write(entries)?;
        Ok(key)
    }

    /// Ends a key. Running answers end in peace, the next request is refused.
    ///
    /// # Errors
    /// As [`KeyFile::read`]; [`KeysError::Wanted`] when there is no such key, or it was revoked
    /// before.
    pub fn revoke(&self, name: &str) -> Result<(), KeysError> {
        let _lock = self.lock()?;
        let mut entries = self.read()?;
        let Some(entry) = entries.iter_mut().find(|entry| entry.name == name) else {
            let known: Vec<_> = entries.iter().map(|entry| entry.name.as_str()).collect();
            let reason = format!("no key is called {name:?}; there are: {}", known.join(", "));
            return Err(KeysError::Wanted(reason));
        };
        if let Some(since) = &entry.revoked {
            return Err(KeysError::Wanted(format!("the key {name:?} was revoked at {since}")));
        }
        entry.revoked = Some(seconds(Timestamp::now()));
        self.write(entries)
    }

    /// Keeps other hands off while an entry is added.
    fn lock(&self) -> Result<fs::File, KeysError> {
        let locked = || {
            if let Some(folder) = self.path.parent() {
                fs::create_dir_all(folder)?;
            }
            let path = self.path.with_extension("lock");
            let file = fs::OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .mode(0o600)
                .open(path)?;
            file.lock()?;
            Ok(file)
        };
        locked().map_err(|error| self.io(&error))
    }

    fn write(&self, key: Vec<Entry>) -> Result<(), KeysError> {
        let text = toml::to_string(&Document { key })
            .map_err(|error| KeysError::Wanted(error.to_string()))?;
        let written = || {
            let new = self.path.with_extension("new");
            let mut file = fs::OpenOptions::new()
                .create(true)
                .truncate(true)
                .write(true)
                .mode(0o600)
                .open(&new)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &self.path)
        };
        written().map_err(|error| self.io(&error))
    }
}

/// The key's text: [`PREFIX`] and 64 hexadecimal digits.
fn fresh() -> Result<String, KeysError> {
    let mut bits = [0_u8; 32];
    getrandom::fill(&mut bits)
        .map_err(|error| KeysError::Wanted(format!("no random bits from the system: {error}")))?;
    Ok(format!("{PREFIX}{}", hex(&bits)))
}

/// SHA-256.
pub(super) fn hash(text: &[u8]) -> [u8; 32] {
    Sha256::digest(text).into()
}

/// The hash an entry names; none where it is not 64 lower-case hexadecimal digits.
pub(super) fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0_u8; 32];
    if text.len() != 64 || !text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    for (place, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * place..2 * place + 2)?, 16).ok()?;
    }
    Some(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// What is wrong with these entries, the first thing.
fn check(entries: &[Entry]) -> Result<(), String> {
    for (place, entry) in entries.iter().enumerate() {
        let name = &entry.name;
        let fail = |what: String| Err(format!("key {name:?}: {what}"));
        let good = |b: u8| b.is_ascii_alphanumeric() || b"-_.@".contains(&b);
        if name.is_empty() || name.len() > 64 || !name.bytes().all(good) {
            return fail("expected a name of up to 64 letters, digits, -, _, . and @".to_owned());
        }
        let before = entries.get(..place).unwrap_or_default();
        if before.iter().any(|other| other.name == *name) {
            return fail("the name is taken; names are not used again".to_owned());
        }
        if before.iter().any(|other| other.sha256 == entry.sha256) {
            return fail("another entry has the same sha256".to_owned());
        }
        if unhex(&entry.sha256).is_none() {
            return fail("sha256: expected 64 lower-case hexadecimal digits".to_owned());
        }
        if let Some(models) = &entry.models {
            if entry.operator {
                return fail("an operator key reaches everything; leave models out".to_owned());
            }
            if models.is_empty() || models.iter().any(|model| model.trim().is_empty()) {
                return fail("models: expected names; leave it out for all models".to_owned());
            }
        }
        if entry.rate.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)) {
            return fail("rate: expected requests per second, more than 0".to_owned());
        }
        if entry.concurrent.is_some_and(|count| !(1..=MOST_CONCURRENT).contains(&count)) {
            return fail(format!("concurrent: expected 1 to {MOST_CONCURRENT}"));
        }
        for (field, time) in
            [("created", Some(&entry.created)), ("revoked", entry.revoked.as_ref())]
        {
            if time.is_some_and(|time| time.parse::<Timestamp>().is_err()) {
                return fail(format!("{field}: expected a time, as in 2026-11-30T12:00:00Z"));
            }
        }
    }
    Ok(())
}
