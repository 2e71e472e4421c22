//! Grants: what a plugin may import, and how much of everything it may use. Blocks: known regressions
//! of back-ends as data ([`block`]). Parameter policies: which controls of a generation are known to be
//! good or bad where ([`parameter`], [`rules`]). Profiles: named sets of controls ([`profile`]).
//! Approvals: how many people approve which change ([`approval`]).
//!
//! A grant is one file, `policies/grants/<name>.toml`. The grant of a plugin is the one with the
//! plugin's name; a plugin without one gets the grant named like its kind (`family.toml`,
//! `probe.toml`), and where that is missing too it is not loaded: nothing is granted by silence.
//!
//! Of a grant is refused by name: unknown keys (with the nearest known one), an import pattern that is
//! not an interface, an upstream that says less than network, methods and paths, and a limit of zero or
//! beyond what the host can enforce.

pub mod approval;
pub mod block;
pub mod control;
mod files;
mod grant;
pub mod judge;
mod keys;
pub mod parameter;
pub mod profile;
pub mod rules;
pub mod schema;
mod upstream;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

pub use approval::{Approvals, Change};
pub use block::Block;
pub use control::{Asked, Control, Setting};
pub use grant::{Grant, Limits};
pub use gristmill_ledger::Kind;
pub use judge::{Judgement, Outcome, Refusal, Verdict};
pub use parameter::ParameterPolicy;
pub use profile::Profile;
pub use rules::{Rules, Subject};
pub use upstream::{METHODS, Network, Upstream, is_plain_path};

/// Why policies were not read. Nothing of a folder that fails is used.
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
    /// A file is not what its folder says: a grant, a block, a parameter policy, a profile, approval
    /// rules.
    #[error("{path}: {reason}")]
    InvalidFile {
        /// Its folder, or for approvals the file's own name.
        folder: &'static str,
        /// Which file.
        path: PathBuf,
        /// What was expected and found.
        reason: String,
    },
    /// Two files are equally specific for the same request.
    #[error("{path}: {reason}")]
    Ambiguous {
        /// Their folder.
        path: PathBuf,
        /// Which two.
        reason: String,
    },
    /// A file or folder that would not be kept to.
    #[error("{path}: {reason}")]
    Unknown {
        /// Which.
        path: PathBuf,
        /// What is known.
        reason: String,
    },
    /// A file is no page of text.
    #[error("{path}: longer than {most} bytes; that is no policy")]
    TooLong {
        /// Which.
        path: PathBuf,
        /// The most it may have.
        most: u64,
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
            Self::InvalidFile { folder: "grants", .. } => "invalid-grant",
            Self::InvalidFile { folder: "blocks", .. } => "invalid-block",
            Self::InvalidFile { folder: "profiles", .. } => "invalid-profile",
            Self::InvalidFile { folder: "approvals", .. } => "invalid-approval",
            Self::InvalidFile { .. } => "invalid-policy",
            Self::Ambiguous { .. } => "ambiguous-policy",
            Self::Unknown { .. } => "unknown-policy",
            Self::TooLong { .. } => "policy-unreadable",
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
    /// Reads every grant in `dir/grants`. A folder that is missing grants nothing.
    ///
    /// # Errors
    /// The first file that cannot be read, is not a grant, or would not be read because of its name.
    pub fn open(dir: &Path) -> Result<Self, PolicyError> {
        let parse = |name: &str, text: &str| Ok((name.to_owned(), Grant::parse(text)?));
        let grants = files::each(dir, "grants", parse).collect::<Result<_, _>>()?;
        Ok(Self { grants })
    }

    /// The grant of this plugin: its own, or else the one of its kind.
    ///
    /// # Errors
    /// [`PolicyError::Missing`] when there is neither; [`PolicyError::InvalidFile`] when its own
    /// grant is for another kind.
    pub fn grant(&self, name: &str, kind: Kind) -> Result<&Grant, PolicyError> {
        if let Some(grant) = self.grants.get(name) {
            if grant.kind != kind {
                return Err(PolicyError::InvalidFile {
                    folder: "grants",
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
