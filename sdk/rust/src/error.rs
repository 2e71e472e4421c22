//! Constructors for the contract's error. The words are the documented codes; messages are lower
//! case and say what was expected, what was found and what to do.

use alloc::{string::String, string::ToString, vec::Vec};

use crate::Error;

impl Error {
    /// An error with this code and sentence. Prefer the constructors below; a code of your own
    /// reaches the caller as it is.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: message.into(),
            retry_after_ms: None,
            details: Vec::new(),
        }
    }

    /// No such model, tensor or server.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new("not-found", message)
    }

    /// Understood, and not offered here; the message says what is.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new("unsupported", message)
    }

    /// The request, or the model's metadata, contradicts itself.
    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self::new("invalid-request", message)
    }

    /// A queue is full; come back after `retry_after_ms`.
    pub fn busy(message: impl Into<String>, retry_after_ms: u32) -> Self {
        Self { retry_after_ms: Some(retry_after_ms), ..Self::new("busy", message) }
    }

    /// A granted server answered with a failure, or with nonsense.
    pub fn upstream(message: impl Into<String>) -> Self {
        Self::new("upstream-error", message)
    }

    /// A defect of this plugin.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new("internal", message)
    }

    /// The same error with one more detail: a number or name behind the sentence.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.details.push((name.into(), value.to_string()));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_its_code_numbers_and_retry_time() {
        let error = Error::busy("4 requests wait, at most 4 may", 250).with("limit", 4);
        assert_eq!(error.code, "busy");
        assert_eq!(error.retry_after_ms, Some(250));
        assert_eq!(crate::extra(&error.details, "limit"), Some("4"));
        assert_eq!(crate::extra(&error.details, "resident"), None);
    }
}
