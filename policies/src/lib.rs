//! Grants: what a plugin may import, and how much of everything it may use. Blocks: known regressions
//! of back-ends as data ([`block`]).
//!
//! A grant is one file, `policies/grants/<name>.toml`. The grant of a plugin is the one with the
//! plugin's name; a plugin without one gets the grant named like its kind (`family.toml`,
//! `probe.toml`), and where that is missing too it is not loaded: nothing is granted by silence.
//!
//! Of a grant is refused by name: unknown keys (with the nearest known one), an import pattern that is
//! not an interface, an upstream that says less than network, methods and paths, and a limit of zero or
//! beyond what the host can enforce.

pub mod block;
mod grant;
mod keys;
mod upstream;

use std::{
    collections::BTreeMap,
    fs,
    io::Read as _,
    path::{Path, PathBuf},
};

pub use block::Block;
pub use grant::{Grant, Limits};
pub use gristmill_ledger::Kind;
pub use upstream::{METHODS, Network, Upstream, is_plain_path};

/// A grant or a block is a page of text; a longer file is not one.
const MAX_GRANT_BYTES: u64 = 64 << 10;

/// Why grants were not read.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// A file or folder could not be read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// Which.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file is not what a grant must be.
    #[error("{path}: {reason}")]
    Invalid {
        /// Which file.
        path: PathBuf,
        /// What was expected and found.
        reason: String,
    },
    /// A file is not what a block must be.
    #[error("{path}: {reason}")]
    InvalidBlock {
        /// Which file.
        path: PathBuf,
        /// What was expected and found.
        reason: String,
    },
    /// No grant is meant for this plugin.
    #[error("no grant for the {kind} {name}: write policies/grants/{name}.toml")]
    Missing {
        /// The plugin.
        name: String,
        /// Its kind.
        kind: String,
    },
}

impl PolicyError {
    /// The documented word for the refusal.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Io { .. } => "policy-unreadable",
            Self::Invalid { .. } => "invalid-grant",
            Self::InvalidBlock { .. } => "invalid-block",
            Self::Missing { .. } => "no-grant",
        }
    }
}

/// The grants of a policy folder.
#[derive(Debug, Clone, Default)]
pub struct Policies {
    grants: BTreeMap<String, Grant>,
}

impl Policies {
    /// Reads every `*.toml` in `dir/grants`. A folder that is missing grants nothing.
    ///
    /// # Errors
    /// The first file that cannot be read or is not a grant.
    pub fn open(dir: &Path) -> Result<Self, PolicyError> {
        let folder = dir.join("grants");
        if !folder.exists() {
            return Ok(Self::default());
        }
        let io = |source| PolicyError::Io { path: folder.clone(), source };
        let mut grants = BTreeMap::new();
        for entry in fs::read_dir(&folder).map_err(io)? {
            let path = entry.map_err(io)?.path();
            if path.extension().is_none_or(|extension| extension != "toml") {
                continue;
            }
            let Some(name) = path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned)
            else {
                let reason = "expected a name in UTF-8".to_owned();
                return Err(PolicyError::Invalid { path, reason });
            };
            let grant = Grant::parse(&read(&path)?)
                .map_err(|reason| PolicyError::Invalid { path, reason })?;
            grants.insert(name, grant);
        }
        Ok(Self { grants })
    }

    /// The grant of this plugin: its own, or else the one of its kind.
    ///
    /// # Errors
    /// [`PolicyError::Missing`] when there is neither; [`PolicyError::Invalid`] when its own grant
    /// is for another kind.
    pub fn grant(&self, name: &str, kind: Kind) -> Result<&Grant, PolicyError> {
        if let Some(grant) = self.grants.get(name) {
            if grant.kind != kind {
                return Err(PolicyError::Invalid {
                    path: format!("grants/{name}.toml").into(),
                    reason: format!("the grant is for a {}, and {name} is a {kind}", grant.kind),
                });
            }
            return Ok(grant);
        }
        self.grants
            .get(kind.as_str())
            .filter(|grant| grant.kind == kind)
            .ok_or_else(|| PolicyError::Missing { name: name.to_owned(), kind: kind.to_string() })
    }

    /// All grants, by file name.
    pub fn grants(&self) -> impl Iterator<Item = (&str, &Grant)> {
        self.grants.iter().map(|(name, grant)| (name.as_str(), grant))
    }
}

fn read(path: &Path) -> Result<String, PolicyError> {
    let io = |source| PolicyError::Io { path: path.to_owned(), source };
    let mut text = String::new();
    let file = fs::File::open(path).map_err(io)?;
    file.take(MAX_GRANT_BYTES + 1).read_to_string(&mut text).map_err(io)?;
    if text.len() as u64 > MAX_GRANT_BYTES {
        return Err(PolicyError::Invalid {
            path: path.to_owned(),
            reason: format!(
                "longer than {MAX_GRANT_BYTES} bytes; that is neither a grant nor a block"
            ),
        });
    }
    Ok(text)
}
