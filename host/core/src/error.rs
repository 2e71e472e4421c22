//! The domain error: one documented code, a sentence, and the numbers behind it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Extras;

/// A result whose failure is a domain [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// What kind of failure it was. The word (see [`Code::as_str`]) is what crosses the contract.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Code {
    /// No such model, session, tensor or back-end.
    NotFound,
    /// Understood, and not offered here; the message says what is.
    Unsupported,
    /// The request contradicts itself or the dialect's rules.
    InvalidRequest,
    /// The prompt does not fit; details carry `resident`, `additional`, `limit`.
    ContextOverflow,
    /// A bounded queue is full; `retry_after_ms` says when to come back.
    Busy,
    /// The caller went away or asked to stop.
    Cancelled,
    /// A granted server cannot be reached.
    UpstreamUnavailable,
    /// A granted server answered with a failure, or with nonsense.
    UpstreamError,
    /// A granted server was silent for too long.
    UpstreamTimeout,
    /// The plan does not fit this machine.
    InsufficientMemory,
    /// Saved state belongs to another model, program or tokenizer.
    ManifestMismatch,
    /// The session met a failure and is gone.
    SessionFatal,
    /// The session was closed.
    SessionClosed,
    /// Bytes are not the ones that were pinned or published.
    DigestMismatch,
    /// The component that answered was replaced, and its time to finish is over; asking again helps.
    Drained,
    /// A policy or a known regression forbids it; details name the block.
    Blocked,
    /// A plugin trapped, ran out of a limit or broke the contract; details carry `fault` and `digest`.
    PluginFault,
    /// A defect of the host.
    Internal,
    /// A word this build does not know, kept as it came.
    Other(String),
}

impl Code {
    /// The documented word.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::NotFound => "not-found",
            Self::Unsupported => "unsupported",
            Self::InvalidRequest => "invalid-request",
            Self::ContextOverflow => "context-overflow",
            Self::Busy => "busy",
            Self::Cancelled => "cancelled",
            Self::UpstreamUnavailable => "upstream-unavailable",
            Self::UpstreamError => "upstream-error",
            Self::UpstreamTimeout => "upstream-timeout",
            Self::InsufficientMemory => "insufficient-memory",
            Self::ManifestMismatch => "manifest-mismatch",
            Self::SessionFatal => "session-fatal",
            Self::SessionClosed => "session-closed",
            Self::DigestMismatch => "digest-mismatch",
            Self::Drained => "drained",
            Self::Blocked => "blocked",
            Self::PluginFault => "plugin-fault",
            Self::Internal => "internal",
            Self::Other(word) => word,
        }
    }
}

impl From<String> for Code {
    fn from(word: String) -> Self {
        match word.as_str() {
            "not-found" => Self::NotFound,
            "unsupported" => Self::Unsupported,
            "invalid-request" => Self::InvalidRequest,
            "context-overflow" => Self::ContextOverflow,
            "busy" => Self::Busy,
            "cancelled" => Self::Cancelled,
            "upstream-unavailable" => Self::UpstreamUnavailable,
            "upstream-error" => Self::UpstreamError,
            "upstream-timeout" => Self::UpstreamTimeout,
            "insufficient-memory" => Self::InsufficientMemory,
            "manifest-mismatch" => Self::ManifestMismatch,
            "session-fatal" => Self::SessionFatal,
            "session-closed" => Self::SessionClosed,
            "digest-mismatch" => Self::DigestMismatch,
            "drained" => Self::Drained,
            "blocked" => Self::Blocked,
            "plugin-fault" => Self::PluginFault,
            "internal" => Self::Internal,
            _ => Self::Other(word),
        }
    }
}

impl From<Code> for String {
    fn from(code: Code) -> Self {
        code.as_str().to_owned()
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What went wrong, in words a caller can act on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// The kind.
    pub code: Code,
    /// Lower case; what was expected, what was found, what to do.
    pub message: String,
    /// When trying again may help, in milliseconds.
    pub retry_after_ms: Option<u32>,
    /// Numbers and names behind it: `stage`, `resident`, `additional`, `limit`, `field`, `block`, …
    pub details: Extras,
}

impl Error {
    /// An error of this kind with this sentence.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retry_after_ms: None, details: Vec::new() }
    }

    /// The same error with one more detail.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.details.push((name.into(), value.to_string()));
        self
    }

    /// The same error with a time after which to try again.
    #[must_use]
    pub fn retry_after(mut self, ms: u32) -> Self {
        self.retry_after_ms = Some(ms);
        self
    }

    /// The value of a detail.
    #[must_use]
    pub fn detail(&self, name: &str) -> Option<&str> {
        self.details.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// `not-found` with this sentence.
    #[must_use]
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Code::NotFound, message)
    }

    /// `unsupported` with this sentence.
    #[must_use]
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(Code::Unsupported, message)
    }

    /// `invalid-request` with this sentence.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidRequest, message)
    }

    /// `internal` with this sentence.
    #[must_use]
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Code::Internal, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_comes_back_as_its_code() {
        for word in ["not-found", "busy", "plugin-fault", "context-overflow", "a-new-word"] {
            let code = Code::from(word.to_owned());
            assert_eq!(code.as_str(), word);
            assert_eq!(matches!(code, Code::Other(_)), word == "a-new-word");
        }
    }
}
