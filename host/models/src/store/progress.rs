//! How an import reports what it does, and how its caller stops it.

use std::ops::ControlFlow;

use super::error::{Result, StoreError};

/// What an import is doing. A pull goes through some of these, in this order for each file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Asking the source what there is.
    Resolving,
    /// Another process is fetching the same file.
    Waiting,
    /// Bytes arrive.
    Downloading,
    /// Bytes are copied out of an archive or from another disk.
    Copying,
    /// Weights are written in another format.
    Converting,
    /// The digest is computed.
    Verifying,
    /// The model file is read and checked.
    Checking,
    /// The manifest is written.
    Writing,
    /// Weights are brought into the kernels' layout.
    Packing,
    /// It can be used.
    Done,
}

impl Stage {
    /// A status line as clients of `/api/pull` know it.
    #[must_use]
    pub fn status(self) -> &'static str {
        match self {
            Self::Resolving => "pulling manifest",
            Self::Waiting => "waiting for another process that does the same",
            Self::Downloading => "downloading",
            Self::Copying => "copying",
            Self::Converting => "converting",
            Self::Verifying => "verifying sha256 digest",
            Self::Checking => "checking model",
            Self::Writing => "writing manifest",
            Self::Packing => "packing weights",
            Self::Done => "success",
        }
    }
}

/// One report.
#[derive(Debug, Clone, Copy)]
pub struct Update<'a> {
    /// What is being done.
    pub stage: Stage,
    /// To which file, in words: a file name, a package, the model's name.
    pub what: &'a str,
    /// `sha256:…` where it is known beforehand.
    pub digest: Option<&'a str>,
    /// Bytes done of this file.
    pub completed: u64,
    /// Bytes of this file in all, where known.
    pub total: Option<u64>,
}

/// Receives reports: at every stage, and while bytes move about once a MiB and at least five
/// times a second while waiting. `Break` stops the import; the call then returns
/// [`StoreError::Cancelled`] and the store is as it was. Never called while the store is locked.
pub trait Progress {
    /// One report; `Break` to stop.
    fn update(&mut self, update: &Update<'_>) -> ControlFlow<()>;
}

impl<F: FnMut(&Update<'_>) -> ControlFlow<()>> Progress for F {
    fn update(&mut self, update: &Update<'_>) -> ControlFlow<()> {
        self(update)
    }
}

/// Wants no reports and never stops.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn update(&mut self, _: &Update<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Reports about one file.
pub(crate) struct Reporter<'a> {
    pub(crate) sink: &'a mut dyn Progress,
    pub(crate) what: &'a str,
    pub(crate) digest: Option<&'a str>,
    pub(crate) total: Option<u64>,
}

impl<'a> Reporter<'a> {
    pub(crate) fn new(sink: &'a mut dyn Progress, what: &'a str) -> Self {
        Self { sink, what, digest: None, total: None }
    }

    pub(crate) fn at(&mut self, stage: Stage, completed: u64) -> Result<()> {
        let update =
            Update { stage, what: self.what, digest: self.digest, completed, total: self.total };
        match self.sink.update(&update) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(StoreError::Cancelled),
        }
    }
}
