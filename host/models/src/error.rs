//! What can be wrong with a model's files, and the domain error it becomes.

use std::{io, path::PathBuf};

use gristmill_core::{Code, Error};

/// A result whose failure is a [`ModelError`].
pub type Result<T> = std::result::Result<T, ModelError>;

/// Why a model's file, tokenizer or template cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The operating system refused.
    #[error("{}: {source}", file.display())]
    Io {
        /// Which file.
        file: PathBuf,
        /// Its answer.
        source: io::Error,
    },
    /// The file is something else: a directory, a pointer, empty, another format.
    #[error("{}: {what}", file.display())]
    NotAModel {
        /// Which file.
        file: PathBuf,
        /// What it is instead, and what to do.
        what: String,
    },
    /// A field does not say what it must.
    #[error("{}: {field}: expected {expected}, found {found}", file.display())]
    Malformed {
        /// Which file.
        file: PathBuf,
        /// Which header field, key or tensor.
        field: String,
        /// What the format demands.
        expected: String,
        /// What is there.
        found: String,
    },
    /// Well formed, and not implemented here.
    #[error("{}: {what}", file.display())]
    Unsupported {
        /// Which file.
        file: PathBuf,
        /// What is not implemented, by name.
        what: String,
    },
    /// A text could not be turned into tokens.
    #[error("cannot tokenize: {0}")]
    Tokenize(String),
    /// A chat template does not compile, or fails while it renders.
    #[error("chat template: {0}")]
    Template(String),
    /// A chat template refused the conversation with `raise_exception`.
    #[error("the chat template refuses this conversation: {0}")]
    TemplateRefused(String),
}

impl ModelError {
    pub(crate) fn malformed(
        file: impl Into<PathBuf>,
        field: impl Into<String>,
        expected: impl Into<String>,
        found: impl ToString,
    ) -> Self {
        Self::Malformed {
            file: file.into(),
            field: field.into(),
            expected: expected.into(),
            found: found.to_string(),
        }
    }
}

impl From<ModelError> for Error {
    fn from(error: ModelError) -> Self {
        let code = match &error {
            ModelError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Code::NotFound
            }
            ModelError::Io { .. } => Code::Internal,
            ModelError::NotAModel { .. }
            | ModelError::Malformed { .. }
            | ModelError::Tokenize(_)
            | ModelError::Template(_)
            | ModelError::TemplateRefused(_) => Code::InvalidRequest,
            ModelError::Unsupported { .. } => Code::Unsupported,
        };
        let message = error.to_string();
        match error {
            ModelError::Malformed { field, expected, found, .. } => Self::new(code, message)
                .with("field", field)
                .with("expected", expected)
                .with("found", found),
            _ => Self::new(code, message),
        }
    }
}
