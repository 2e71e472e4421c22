//! One pin: a plugin's name, and everything about its component that must be as approved.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::sha256;

/// What kind of plugin it is; each kind has a world of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Serves models.
    Backend,
    /// Defines a model family.
    Family,
    /// Tests a back-end.
    Probe,
}

impl Kind {
    /// The word pins and grants use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Backend => "backend",
            Self::Family => "family",
            Self::Probe => "probe",
        }
    }

    /// The contract's world for this kind.
    #[must_use]
    pub fn world(self) -> &'static str {
        match self {
            Self::Backend => "backend",
            Self::Family => "model-family",
            Self::Probe => "probe",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which bytes run under a name. Machine-written (`cargo xtask ledger pin`), reviewed as a diff.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Pin {
    /// The plugin's name: lower-case letters, digits and `-`. Its grant and its file carry it too.
    pub name: String,
    /// What kind of plugin.
    pub kind: Kind,
    /// The plugin's own version.
    pub version: String,
    /// Contract version without the patch: `0.1`.
    pub contract: String,
    /// The contract's world: `backend`, `model-family` or `probe`.
    pub world: String,
    /// File name of the component, next to the other components.
    pub file: String,
    /// SHA-256 of the component: 64 lower-case hexadecimal digits.
    pub sha256: String,
    /// Size of the component in bytes.
    pub size: u64,
    /// Counts the pins this name has had; it never goes down.
    pub sequence: u64,
    /// Everything the component imports, by full name, sorted. A new import is a new approval.
    pub imports: Vec<String>,
}

/// Why bytes are not the pinned ones.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// Another length.
    #[error("{name}: the pin says {expected} bytes, found {found}; fetch the component again")]
    Size {
        /// The plugin.
        name: String,
        /// Pinned length.
        expected: u64,
        /// Length of what was found.
        found: u64,
    },
    /// Another content.
    #[error(
        "{name}: the pin says sha256 {expected}, found {found}; fetch the component again or pin the new one"
    )]
    Digest {
        /// The plugin.
        name: String,
        /// Pinned digest.
        expected: String,
        /// Digest of what was found.
        found: String,
    },
}

impl VerifyError {
    /// `size-mismatch` or `digest-mismatch`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Size { .. } => "size-mismatch",
            Self::Digest { .. } => "digest-mismatch",
        }
    }
}

impl Pin {
    /// Reads a pin from TOML.
    ///
    /// # Errors
    /// What was expected and found: an unknown or missing key, or a value a pin cannot have.
    pub fn parse(text: &str) -> Result<Self, String> {
        let pin: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        pin.check()?;
        Ok(pin)
    }

    /// Writes the pin as TOML; [`Pin::parse`] reads it back unchanged.
    ///
    /// # Errors
    /// What makes this pin invalid.
    pub fn to_toml(&self) -> Result<String, String> {
        self.check()?;
        toml::to_string(self).map_err(|error| error.to_string())
    }

    /// Whether these are the pinned bytes.
    ///
    /// # Errors
    /// [`VerifyError::Size`] for another length, [`VerifyError::Digest`] for another content.
    pub fn verify(&self, bytes: &[u8]) -> Result<(), VerifyError> {
        let found = bytes.len() as u64;
        if found != self.size {
            return Err(VerifyError::Size { name: self.name.clone(), expected: self.size, found });
        }
        let found = sha256(bytes);
        if found != self.sha256 {
            return Err(VerifyError::Digest {
                name: self.name.clone(),
                expected: self.sha256.clone(),
                found,
            });
        }
        Ok(())
    }

    /// `sha256:…`, as answers and errors name it.
    #[must_use]
    pub fn digest(&self) -> String {
        format!("sha256:{}", self.sha256)
    }

    fn check(&self) -> Result<(), String> {
        let plain = |text: &str| {
            !text.is_empty()
                && text.len() <= 64
                && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        };
        if !plain(&self.name) {
            return Err(format!(
                "name {:?}: expected up to 64 lower-case letters, digits and hyphens",
                self.name
            ));
        }
        if self.world != self.kind.world() {
            return Err(format!(
                "world {:?}: a {} has world {:?}",
                self.world,
                self.kind,
                self.kind.world()
            ));
        }
        let stem = self.file.strip_suffix(".wasm").unwrap_or_default();
        let file_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        if stem.is_empty() || stem.starts_with('.') || !stem.bytes().all(file_name) {
            return Err(format!(
                "file {:?}: expected a file name that ends in .wasm, without folders",
                self.file
            ));
        }
        if self.sha256.len() != 64
            || !self.sha256.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        {
            return Err(format!(
                "sha256 {:?}: expected 64 lower-case hexadecimal digits",
                self.sha256
            ));
        }
        if self.contract.split('.').count() != 2
            || !self.contract.split('.').all(|part| part.parse::<u32>().is_ok())
        {
            return Err(format!("contract {:?}: expected major.minor, as in 0.1", self.contract));
        }
        if !self.imports.is_sorted_by(|a, b| a < b) {
            return Err("imports: expected a sorted list without repetition".to_owned());
        }
        Ok(())
    }
}
