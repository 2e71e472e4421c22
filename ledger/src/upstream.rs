//! What is known of the servers that bridges are made for: `upstreams/PROJECT….toml`, one file for each
//! version that was tested or behaviour that was recorded.
//!
//! An entry says what was seen, where, and what was switched off and why. Only an entry with a tested
//! version or commit can be the latest known good: behaviour that was recorded from nobody knows which
//! version is worth a test and no recommendation.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    LedgerError,
    date::Date,
    digest::{is_digest, is_file_name},
    disk, seal, sha256,
};

/// The folder's name in a ledger.
pub const UPSTREAMS: &str = "upstreams";

const MAX_UPSTREAM_BYTES: u64 = 256 << 10;

/// How well a server is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// This version ran, and the bridge was tested against it.
    Tested,
    /// Its behaviour was recorded or read, of no version in particular.
    ObservedUnpinned,
    /// To come.
    Planned,
    /// Not to be used, for the reasons given.
    Blocked,
}

/// A capability, and why it is off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Disabled {
    /// The capability's word.
    pub capability: String,
    /// Why.
    #[schemars(length(min = 1))]
    pub reason: String,
}

/// Something to know about a model family on this server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FamilyNote {
    /// The family.
    pub family: String,
    /// What to know.
    pub note: String,
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(title = "entry on a server")]
pub struct Upstream {
    /// The server's project; the bridge of the same name is made for it.
    #[schemars(extend("pattern" = crate::digest::FILE_NAME))]
    pub project: String,
    /// How well it is known.
    pub status: Status,
    /// The version that was tested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The commit that was tested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// When it was tested or recorded.
    pub date: Date,
    /// Digest of the recorded answers ([`transcripts`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = crate::digest::PATTERN))]
    pub transcripts: Option<String>,
    /// Its licence, as SPDX has it.
    #[schemars(length(min = 1))]
    pub licence: String,
    /// Where it, or what is known of it, comes from.
    #[schemars(length(min = 1))]
    pub provenance: String,
    /// Classes of hardware it was seen on; none, where nothing ran.
    #[serde(default)]
    pub hardware: Vec<String>,
    /// Capabilities that the bridge uses.
    #[serde(default)]
    pub enabled: Vec<String>,
    /// Capabilities that it does not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disabled: Vec<Disabled>,
    /// What is known about single families.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub families: Vec<FamilyNote>,
}

impl Upstream {
    /// Reads a sealed entry.
    ///
    /// # Errors
    /// What was expected and found.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::parse_unsealed(seal::open(text)?)
    }

    /// Reads an entry whose seal may be missing or of an earlier text, for who seals it anew.
    ///
    /// # Errors
    /// What was expected and found.
    pub fn draft(text: &str) -> Result<Self, String> {
        Self::parse_unsealed(seal::strip(text))
    }

    fn parse_unsealed(text: &str) -> Result<Self, String> {
        let entry: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        entry.check()?;
        Ok(entry)
    }

    /// The sealed text of the file.
    ///
    /// # Errors
    /// What makes this entry invalid.
    pub fn to_toml(&self) -> Result<String, String> {
        self.check()?;
        toml::to_string(self).map(|text| seal::seal(&text)).map_err(|error| error.to_string())
    }

    /// Whether it says which version or commit it is about.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.version.is_some() || self.commit.is_some()
    }

    fn check(&self) -> Result<(), String> {
        if !is_file_name(&self.project) {
            return Err(format!("project {:?}: expected a name without blanks", self.project));
        }
        match (self.status, self.is_pinned()) {
            (Status::Tested, false) => {
                return Err(
                    "status tested: expected the version or commit that was tested".to_owned()
                );
            }
            (Status::ObservedUnpinned, true) => {
                let reason = "status observed-unpinned: expected neither version nor commit; if it was tested, say so";
                return Err(reason.to_owned());
            }
            _ => {}
        }
        if let Some(digest) = self.transcripts.as_ref().filter(|digest| !is_digest(digest)) {
            return Err(format!(
                "transcripts {digest:?}: expected 64 lower-case hexadecimal digits"
            ));
        }
        for text in [&self.licence, &self.provenance] {
            if text.is_empty() {
                return Err("licence and provenance: expected both".to_owned());
            }
        }
        let silent = self.disabled.iter().find(|one| one.reason.is_empty());
        if let Some(Disabled { capability, .. }) = silent {
            return Err(format!("disabled {capability}: expected a reason"));
        }
        let both = |one: &&Disabled| self.enabled.contains(&one.capability);
        if let Some(Disabled { capability, .. }) = self.disabled.iter().find(both) {
            return Err(format!("{capability}: enabled and disabled"));
        }
        Ok(())
    }
}

/// Reads every entry of a ledger.
///
/// # Errors
/// The first that is `invalid-upstream`, or cannot be read.
pub fn open(ledger: &Path) -> Result<Vec<Upstream>, LedgerError> {
    let paths = disk::list(&ledger.join(UPSTREAMS), "toml")?;
    paths.iter().map(|path| read(path)).collect()
}

pub(crate) fn read(path: &Path) -> Result<Upstream, LedgerError> {
    let invalid = |reason: String| LedgerError::refused("invalid-upstream", path, reason);
    let bytes = disk::read(path, MAX_UPSTREAM_BYTES)?;
    let text = String::from_utf8(bytes).map_err(|error| invalid(error.to_string()))?;
    let entry = Upstream::parse(&text).map_err(invalid)?;
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let rest = stem.strip_prefix(&entry.project);
    if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-')) {
        Ok(entry)
    } else {
        Err(invalid(format!("the entry is of {}; its file's name begins with that", entry.project)))
    }
}

/// The newest entry of this project that was tested in a version that is known. What is unpinned,
/// planned or blocked is never it.
#[must_use]
pub fn latest_known_good<'a>(
    entries: impl IntoIterator<Item = &'a Upstream>,
    project: &str,
) -> Option<&'a Upstream> {
    entries
        .into_iter()
        .filter(|entry| {
            entry.project == project && entry.status == Status::Tested && entry.is_pinned()
        })
        .max_by_key(|entry| entry.date)
}

/// The digest of a folder of recorded answers: over the names and digests of its files.
///
/// # Errors
/// A file that cannot be read.
pub fn transcripts(folder: &Path) -> Result<String, LedgerError> {
    let mut paths = disk::list(folder, "http")?;
    paths.extend(disk::list(folder, "events")?);
    paths.sort();
    let mut text = String::new();
    for path in paths {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        text.push_str(&format!("{name} {}\n", sha256(&disk::read(&path, 64 << 20)?)));
    }
    Ok(sha256(text.as_bytes()))
}
