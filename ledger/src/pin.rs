//! One pin: a plugin's name, and everything about its component that must be as approved.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    MAX_PIN_BYTES,
    date::Date,
    digest::{encoding, is_digest, is_file_name, sorted},
    guardrail::Guardrail,
    keys::Signature,
    sha256,
};

/// What a signature of a pin covers, as a DSSE payload type.
const PAYLOAD: &str = "application/vnd.gristmill.pin+json";

/// What kind of plugin it is; each kind has a world of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
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

/// The longest version, and most reports, of a pin: people read it before they sign it.
const MAX_VERSION_BYTES: usize = 128;
const MAX_EVIDENCE: usize = 64;

/// Which bytes run under a name. Machine-written (`cargo xtask plugins --pin`), reviewed as a diff.
///
/// Digests are SHA-256, 64 lower-case hexadecimal digits; that of a *pin* is of its file's bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(title = "pin")]
pub struct Pin {
    /// The plugin's name: lower-case letters, digits and `-`. Its grant and its file carry it too.
    #[schemars(extend("pattern" = "^[a-z0-9-]{1,64}$"))]
    pub name: String,
    /// What kind of plugin.
    pub kind: Kind,
    /// The plugin's own version.
    pub version: String,
    /// Contract version without the patch: `0.1`.
    #[schemars(extend("pattern" = "^[0-9]+\\.[0-9]+$"))]
    pub contract: String,
    /// The contract's world: `backend`, `model-family` or `probe`.
    pub world: String,
    /// Digest of that world's text ([`crate::contract`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = crate::digest::PATTERN))]
    pub world_digest: Option<String>,
    /// What was asked for: a file, a folder, `oci:…`. What it was resolved to follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = 512))]
    pub original: Option<String>,
    /// File name of the component, next to the other components.
    #[schemars(extend("pattern" = "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,122}\\.wasm$"))]
    pub file: String,
    /// SHA-256 of the component: 64 lower-case hexadecimal digits.
    #[schemars(extend("pattern" = crate::digest::PATTERN))]
    pub sha256: String,
    /// Size of the component in bytes.
    pub size: u64,
    /// Digest of the grant's file that it was approved with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = crate::digest::PATTERN))]
    pub grant: Option<String>,
    /// Counts the pins this name has had; it never goes down.
    #[schemars(range(min = 1))]
    pub sequence: u64,
    /// Digest of the pin that this one supersedes; it lies in `history/NAME/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = crate::digest::PATTERN))]
    pub previous: Option<String>,
    /// Sequence of the pin to go back to; otherwise the previous one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback: Option<u64>,
    /// Not in force before this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Date>,
    /// Not in force from this moment on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Date>,
    /// Digests of the reports in `evidence/` that speak for it, each of a file's bytes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(regex(pattern = crate::digest::PATTERN)))]
    pub evidence: Vec<String>,
    /// Everything the component imports, by full name, sorted. A new import is a new approval.
    pub imports: Vec<String>,
    /// How fast it is, and how much slower what follows it may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guardrail: Option<Guardrail>,
    /// Who stands for it: Ed25519 over [`Pin::signed`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signatures: Vec<Signature>,
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
    /// The first pin of a component: version 0.1.0, sequence 1, and nothing beyond its facts.
    #[must_use]
    pub fn first(
        name: impl Into<String>,
        file: impl Into<String>,
        bytes: &[u8],
        kind: Kind,
        contract: impl Into<String>,
        imports: Vec<String>,
    ) -> Self {
        Self {
            name: name.into(),
            kind,
            version: "0.1.0".to_owned(),
            contract: contract.into(),
            world: kind.world().to_owned(),
            world_digest: None,
            original: None,
            file: file.into(),
            sha256: sha256(bytes),
            size: bytes.len() as u64,
            grant: None,
            sequence: 1,
            previous: None,
            rollback: None,
            not_before: None,
            expires: None,
            evidence: Vec::new(),
            imports,
            guardrail: None,
            signatures: Vec::new(),
        }
    }

    /// What signatures cover: the pin without them, as JSON with sorted keys and no blanks, and the
    /// type of that (DSSE's pre-authentication encoding).
    ///
    /// # Errors
    /// What cannot be written.
    pub fn signed(&self) -> Result<Vec<u8>, String> {
        let bare = Self { signatures: Vec::new(), ..self.clone() };
        let value = serde_json::to_value(&bare).map_err(|error| error.to_string())?;
        let json = serde_json::to_vec(&sorted(value)).map_err(|error| error.to_string())?;
        Ok(encoding(PAYLOAD, &json))
    }

    /// Reads a pin from TOML.
    ///
    /// # Errors
    /// What was expected and found: an unknown or missing key, or a value a pin cannot have.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() as u64 > MAX_PIN_BYTES {
            return Err(format!("expected at most {MAX_PIN_BYTES} bytes, found {}", text.len()));
        }
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
        if !self.file.strip_suffix(".wasm").is_some_and(is_file_name) {
            return Err(format!(
                "file {:?}: expected a file name that ends in .wasm, without folders",
                self.file
            ));
        }
        let digests = [
            ("world-digest", self.world_digest.as_ref()),
            ("sha256", Some(&self.sha256)),
            ("grant", self.grant.as_ref()),
            ("previous", self.previous.as_ref()),
        ];
        let evidence = self.evidence.iter().map(|digest| ("evidence", Some(digest)));
        for (key, digest) in digests.into_iter().chain(evidence) {
            if let Some(digest) = digest.filter(|digest| !is_digest(digest)) {
                return Err(format!("{key} {digest:?}: expected 64 lower-case hexadecimal digits"));
            }
        }
        let sound = |text: &String| text.len() <= 512 && !text.chars().any(char::is_control);
        let version = &self.version;
        if version.len() > MAX_VERSION_BYTES || version.chars().any(char::is_control) {
            return Err(format!(
                "version: expected at most {MAX_VERSION_BYTES} bytes without control characters"
            ));
        }
        let (found, most) = (self.evidence.len(), MAX_EVIDENCE);
        if found > most {
            return Err(format!("evidence: expected at most {most} reports, found {found}"));
        }
        if !self.original.as_ref().is_none_or(sound) {
            return Err(
                "original: expected at most 512 bytes without control characters".to_owned()
            );
        }
        if self.sequence == 0 {
            return Err("sequence 0: expected a number from 1 on".to_owned());
        }
        if let (Some(from), Some(end)) = (self.not_before, self.expires)
            && from >= end
        {
            return Err(format!("expires {end}: expected a date after not-before {from}"));
        }
        if let Some(guardrail) = &self.guardrail {
            guardrail.check()?;
        }
        for (at, signature) in self.signatures.iter().enumerate() {
            signature.check()?;
            if self.signatures.iter().skip(at + 1).any(|other| other.key == signature.key) {
                return Err(format!("two signatures of the key {}: expected one", signature.key));
            }
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
