//! What must not run any more, whoever has signed it: components and pins by digest, and keys.
//!
//! The file is sealed, and the log has the digest of its last content: a revocation cannot get lost.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{LedgerError, Pin, date::Date, digest::is_digest, disk, log::MAX_WORDS, seal, sha256};

/// The file's name in a ledger.
pub const REVOKED: &str = "revoked.toml";

pub(crate) const MAX_REVOKED_BYTES: u64 = 1 << 20;

/// One revocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Revocation {
    /// SHA-256 of a component or of a pin's file, or the id of a key.
    #[schemars(extend("pattern" = crate::digest::PATTERN))]
    pub digest: String,
    /// Why.
    #[schemars(length(max = 1000))]
    pub reason: String,
    /// Since when.
    pub date: Date,
}

/// All revocations of a ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "revocations")]
pub struct Revoked {
    /// Components and pins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub digests: Vec<Revocation>,
    /// Keys, by their ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<Revocation>,
}

impl Revoked {
    /// Reads `revoked.toml` of a ledger and the digest of its bytes; nothing is revoked where there
    /// is none.
    ///
    /// # Errors
    /// `invalid-revoked`, or that it cannot be read.
    pub fn open(ledger: &Path) -> Result<(Self, Option<String>), LedgerError> {
        let path = ledger.join(REVOKED);
        let invalid = |reason: String| LedgerError::refused("invalid-revoked", &path, reason);
        let Some(bytes) = disk::read_if_there(&path, MAX_REVOKED_BYTES)? else {
            return Ok((Self::default(), None));
        };
        let digest = sha256(&bytes);
        let text = String::from_utf8(bytes).map_err(|error| invalid(error.to_string()))?;
        Ok((Self::parse(&text).map_err(invalid)?, Some(digest)))
    }

    /// Reads sealed revocations.
    ///
    /// # Errors
    /// What was expected and found.
    pub fn parse(text: &str) -> Result<Self, String> {
        let revoked: Self = toml::from_str(seal::open(text)?).map_err(|error| error.to_string())?;
        revoked.check()?;
        Ok(revoked)
    }

    fn check(&self) -> Result<(), String> {
        for Revocation { digest, reason, .. } in self.digests.iter().chain(&self.keys) {
            if !is_digest(digest) {
                return Err(format!(
                    "digest {digest:?}: expected 64 lower-case hexadecimal digits"
                ));
            }
            if reason.chars().count() > MAX_WORDS {
                return Err(format!(
                    "{digest}: expected a reason of at most {MAX_WORDS} characters"
                ));
            }
        }
        Ok(())
    }

    /// The sealed text of the file.
    ///
    /// # Errors
    /// What makes these revocations invalid.
    pub fn to_toml(&self) -> Result<String, String> {
        self.check()?;
        toml::to_string(self).map(|text| seal::seal(&text)).map_err(|error| error.to_string())
    }

    /// The revocation of this component or pin.
    #[must_use]
    pub fn digest(&self, digest: &str) -> Option<&Revocation> {
        self.digests.iter().find(|one| one.digest == digest)
    }

    /// Whether neither this pin's component nor its file, which has this digest, is revoked.
    ///
    /// # Errors
    /// Which of them is, and why.
    pub(crate) fn allows(&self, pin: &Pin, digest: &str) -> Result<(), String> {
        let found = [pin.sha256.as_str(), digest].into_iter().find_map(|one| self.digest(one));
        match found {
            None => Ok(()),
            Some(Revocation { digest, reason, .. }) => {
                Err(format!("{digest} was revoked: {reason}; roll back, or pin another component"))
            }
        }
    }

    /// The revocation of this key.
    #[must_use]
    pub fn key(&self, id: &str) -> Option<&Revocation> {
        self.keys.iter().find(|one| one.digest == id)
    }
}
