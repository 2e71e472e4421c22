//! What can go wrong in the store, and which documented code each failure is.

use std::{fmt, io, path::Path};

use gristmill_core as domain;
use gristmill_core::error::Code;

use crate::ModelError;

/// A result of the store.
pub type Result<T> = std::result::Result<T, StoreError>;

/// A failure of the store. Every message says what was expected, what was found and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A model name outside the grammar.
    #[error("`{name}` is not a model name: {reason}; expected [namespace/]model[:tag]")]
    Name {
        /// As given, shortened and escaped.
        name: String,
        /// Which rule it breaks.
        reason: String,
    },
    /// No model of that name.
    #[error("no model `{name}` in the store{}", hint(.suggestions, *.known))]
    NotFound {
        /// The full name that was looked for.
        name: String,
        /// Near names that are there.
        suggestions: Vec<String>,
        /// Whether the catalogue knows where to get it.
        known: bool,
    },
    /// A source that cannot be read as one.
    #[error("cannot use source `{spec}`: {reason}")]
    Source {
        /// As given, shortened and escaped.
        spec: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The operating system refused.
    #[error("cannot {action} {path}: {error}{}", advice(.error))]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: String,
        /// Its answer.
        #[source]
        error: io::Error,
    },
    /// The disk has less room than the model needs.
    #[error(
        "not enough room for {what}: it needs {needed} bytes and {path} has {free} free; \
         remove a model or use a store on another disk"
    )]
    Space {
        /// What was to be stored.
        what: String,
        /// The store's folder.
        path: String,
        /// Bytes needed.
        needed: u64,
        /// Bytes there are.
        free: u64,
    },
    /// Bytes that are not the published ones.
    #[error("{what} has sha256 {found}, expected {expected}; it was not kept")]
    Digest {
        /// Which file.
        what: String,
        /// The published digest, in hex.
        expected: String,
        /// The digest of the bytes, in hex.
        found: String,
    },
    /// Not a model file that can be used.
    #[error("{what} is not a usable model: {reason}")]
    Invalid {
        /// Which file.
        what: String,
        /// Field and fault.
        reason: String,
    },
    /// The file was written to while it was being imported.
    #[error("{path} changed while it was read; import it again when nothing writes to it")]
    Changed {
        /// Which file.
        path: String,
    },
    /// The store's own record is unreadable.
    #[error("the manifest {path} is damaged: {reason}; remove the model and pull it again")]
    Manifest {
        /// Which one.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A model whose weights are not what its manifest says.
    #[error("`{name}` is damaged: {reason}; remove it and pull it again")]
    Damaged {
        /// Its full name.
        name: String,
        /// What was expected and what is there.
        reason: String,
    },
    /// A package that must not be computed with.
    #[error("cannot use the package {path}: {reason}; it is made again, or delete it")]
    Package {
        /// Which one.
        path: String,
        /// What was expected and what is there.
        reason: String,
    },
    /// A server cannot be reached, or the connection broke.
    #[error("cannot fetch {url}: {reason}; what has arrived is kept, try again to continue")]
    Unreachable {
        /// What was asked for.
        url: String,
        /// How it failed.
        reason: String,
    },
    /// A server was silent for too long.
    #[error("{url} sent nothing for {seconds} s; what has arrived is kept, try again to continue")]
    Silent {
        /// What was asked for.
        url: String,
        /// For how long.
        seconds: u64,
    },
    /// A server answered with a failure, or with nonsense.
    #[error("{url} answered {reason}")]
    Upstream {
        /// What was asked for.
        url: String,
        /// What it said, and what to do.
        reason: String,
    },
    /// pip could not be run, or failed.
    #[error("cannot download {package} with pip: {reason}")]
    Pip {
        /// The requirement.
        package: String,
        /// What it said.
        reason: String,
    },
    /// The caller asked to stop.
    #[error("cancelled; what a resumable download has fetched is kept")]
    Cancelled,
}

impl StoreError {
    pub(crate) fn io(action: &'static str, path: impl AsRef<Path>, error: io::Error) -> Self {
        Self::Io { action, path: path.as_ref().display().to_string(), error }
    }

    pub(crate) fn source(spec: &str, reason: impl Into<String>) -> Self {
        Self::Source { spec: shorten(spec), reason: reason.into() }
    }

    pub(crate) fn invalid(what: impl Into<String>, reason: impl fmt::Display) -> Self {
        Self::Invalid { what: what.into(), reason: reason.to_string() }
    }

    /// For what the model reader refused; its message names files, here relative to `folder`.
    pub(crate) fn unusable(what: &str, folder: &Path, error: &ModelError) -> Self {
        let text = error.to_string().replace(&format!("{}/", folder.display()), "");
        let name = Path::new(what).file_name().unwrap_or_default().to_string_lossy();
        let reason = text.strip_prefix(&format!("{name}: ")).unwrap_or(&text);
        Self::invalid(what, reason)
    }

    pub(crate) fn upstream(url: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Upstream { url: url.into(), reason: reason.into() }
    }

    /// The documented code of this failure.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Name { .. } | Self::Source { .. } | Self::Invalid { .. } => Code::InvalidRequest,
            Self::NotFound { .. } => Code::NotFound,
            Self::Digest { .. } | Self::Damaged { .. } | Self::Package { .. } => {
                Code::DigestMismatch
            }
            Self::Unreachable { .. } => Code::UpstreamUnavailable,
            Self::Silent { .. } => Code::UpstreamTimeout,
            Self::Upstream { .. } | Self::Pip { .. } => Code::UpstreamError,
            Self::Cancelled => Code::Cancelled,
            Self::Io { .. } | Self::Space { .. } | Self::Changed { .. } | Self::Manifest { .. } => {
                Code::Other("storage-error".to_owned())
            }
        }
    }

    /// Whether asking the same server again, at once, may succeed.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Silent { .. })
    }
}

impl From<StoreError> for domain::Error {
    fn from(error: StoreError) -> Self {
        let out = Self::new(error.code(), error.to_string());
        match error {
            StoreError::Space { needed, free, .. } => out.with("needed", needed).with("free", free),
            StoreError::Digest { expected, found, .. } => {
                out.with("expected", expected).with("found", found)
            }
            StoreError::NotFound { suggestions, .. } if !suggestions.is_empty() => {
                out.with("suggestions", suggestions.join(" "))
            }
            _ => out,
        }
    }
}

fn hint(suggestions: &[String], known: bool) -> String {
    let mut hint = String::new();
    if !suggestions.is_empty() {
        hint.push_str("; did you mean ");
        hint.push_str(&suggestions.join(", "));
        hint.push('?');
    }
    if known {
        hint.push_str("; it is in the catalogue and can be pulled by this name");
    }
    hint
}

fn advice(error: &io::Error) -> &'static str {
    use io::ErrorKind as Kind;
    match error.kind() {
        Kind::StorageFull | Kind::QuotaExceeded => {
            "; the disk is full: remove a model or use a store on another disk"
        }
        Kind::FileTooLarge => "; the file system or a limit forbids a file of this size",
        Kind::PermissionDenied => "; check who owns the folder and its permissions",
        Kind::ReadOnlyFilesystem => "; the store is on a read-only file system",
        _ => "",
    }
}

/// Foreign text for a message: escaped, at most 120 characters.
pub(crate) fn shorten(text: &str) -> String {
    let mut out: String = text.chars().take(120).flat_map(char::escape_debug).collect();
    if text.chars().nth(120).is_some() {
        out.push('…');
    }
    out
}
