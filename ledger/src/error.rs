//! What can be wrong with a ledger, each under its documented word (`docs/ledger.md`).

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use crate::evidence::EvidenceError;

/// Why a ledger was not read, proven or changed. Nothing of a ledger that fails is used.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// A file or folder could not be read.
    #[error("cannot read {path}: {source}; restore it, or give this user the right to read it")]
    Io {
        /// Which.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file or folder could not be written. What was in use stays in use.
    #[error(
        "cannot write {path}: {source}; {}",
        if full(.source) { "free space on this disk and repeat" } else { "give this user the right to write it, and repeat" }
    )]
    Write {
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
    /// Evidence is not what evidence must be.
    #[error(transparent)]
    Evidence(#[from] EvidenceError),
    /// Another part of the ledger is not what it must be, or a step was refused.
    #[error("{path}: {reason}")]
    Refused {
        /// The documented word.
        code: &'static str,
        /// Which file.
        path: PathBuf,
        /// What was expected and found, and what to do.
        reason: String,
    },
}

impl LedgerError {
    /// The documented word for the refusal.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Io { .. } => "ledger-unreadable",
            Self::Write { source, .. } if full(source) => "ledger-full",
            Self::Write { .. } => "ledger-unwritable",
            Self::Invalid { .. } => "invalid-pin",
            Self::Duplicate { .. } => "duplicate-pin",
            Self::Evidence(error) => error.code(),
            Self::Refused { code, .. } => code,
        }
    }

    pub(crate) fn refused(code: &'static str, path: &Path, reason: impl Into<String>) -> Self {
        Self::Refused { code, path: path.to_owned(), reason: reason.into() }
    }
}

fn full(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge
    )
}
