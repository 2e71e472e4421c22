//! Pins: which component runs, by digest.
//!
//! A ledger is a folder. `pins/<name>.toml` says for one plugin name which bytes may run and what
//! they may import; one name has one pin, so a change of what runs is one reviewed diff. What probes
//! found out about a pinned component lies in `evidence/` ([`evidence`]); the folder has room for
//! more that proves a pin (`signatures/`, `log.jsonl`).
//!
//! What is refused: an unknown key, a file whose name is not the pin's, a digest that is not 64
//! lower-case hexadecimal digits, an import list that is not sorted, and a `file` that is a path.

mod digest;
pub mod evidence;
mod pin;

use std::{
    collections::BTreeMap,
    fs,
    io::Read as _,
    path::{Path, PathBuf},
};

pub use digest::sha256;
pub use pin::{Kind, Pin, VerifyError};

/// A pin is a page of text; a longer file is not one.
const MAX_PIN_BYTES: u64 = 256 << 10;

/// The pins of a ledger folder.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    pins: BTreeMap<String, Pin>,
}

/// Why a ledger was not read. Nothing of a ledger that fails is used.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// A file or folder could not be read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// Which.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A pin is not what a pin must be.
    #[error("{path}: {reason}")]
    Invalid {
        /// Which file.
        path: PathBuf,
        /// What was expected and found.
        reason: String,
    },
    /// Two pins claim one name.
    #[error("two pins for {name}: a plugin has exactly one pin; remove one of them")]
    Duplicate {
        /// The name.
        name: String,
    },
}

impl LedgerError {
    /// The documented word for the refusal.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Io { .. } => "ledger-unreadable",
            Self::Invalid { .. } => "invalid-pin",
            Self::Duplicate { .. } => "duplicate-pin",
        }
    }
}

impl Ledger {
    /// Reads every `*.toml` in `dir/pins`. A ledger without that folder has no pins.
    ///
    /// # Errors
    /// The first file that cannot be read, or is not a valid pin under its own name.
    pub fn open(dir: &Path) -> Result<Self, LedgerError> {
        let folder = dir.join("pins");
        if !folder.exists() {
            return Ok(Self::default());
        }
        let io = |source| LedgerError::Io { path: folder.clone(), source };
        let mut paths = Vec::new();
        for entry in fs::read_dir(&folder).map_err(io)? {
            let path = entry.map_err(io)?.path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                paths.push(path);
            }
        }
        paths.sort();

        let mut pins = Vec::with_capacity(paths.len());
        for path in paths {
            let invalid = |reason| LedgerError::Invalid { path: path.clone(), reason };
            let pin = Pin::parse(&read(&path)?).map_err(invalid)?;
            if path.file_stem().and_then(|stem| stem.to_str()) != Some(pin.name.as_str()) {
                return Err(invalid(format!(
                    "the pin is for {}; its file must be named {}.toml",
                    pin.name, pin.name
                )));
            }
            pins.push(pin);
        }
        Self::from_pins(pins)
    }

    /// A ledger of these pins, for instance for one plugin under development.
    ///
    /// # Errors
    /// [`LedgerError::Duplicate`] when two of them have one name.
    pub fn from_pins(pins: impl IntoIterator<Item = Pin>) -> Result<Self, LedgerError> {
        let mut by_name = BTreeMap::new();
        for pin in pins {
            let name = pin.name.clone();
            if by_name.insert(name.clone(), pin).is_some() {
                return Err(LedgerError::Duplicate { name });
            }
        }
        Ok(Self { pins: by_name })
    }

    /// The pin of a plugin.
    #[must_use]
    pub fn pin(&self, name: &str) -> Option<&Pin> {
        self.pins.get(name)
    }

    /// All pins, by name.
    pub fn pins(&self) -> impl Iterator<Item = &Pin> {
        self.pins.values()
    }
}

fn read(path: &Path) -> Result<String, LedgerError> {
    let io = |source| LedgerError::Io { path: path.to_owned(), source };
    let mut text = String::new();
    let file = fs::File::open(path).map_err(io)?;
    file.take(MAX_PIN_BYTES + 1).read_to_string(&mut text).map_err(io)?;
    if text.len() as u64 > MAX_PIN_BYTES {
        return Err(LedgerError::Invalid {
            path: path.to_owned(),
            reason: format!("longer than {MAX_PIN_BYTES} bytes; that is not a pin"),
        });
    }
    Ok(text)
}
