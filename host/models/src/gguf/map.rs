//! The bytes behind a model file: a read-only mapping, or a buffer in tests.
//!
//! Assumption, documented because no code can check it: nobody writes to or truncates a model file
//! while it is mapped. The store gives out files that are read-only and content-addressed.

use std::{fs::File, ops::Range, path::Path, sync::Arc};

use memmap2::{Advice, Mmap};

use crate::{ModelError, Result};

/// Shared bytes that outlive the reader that found them.
pub type Shared = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// The bytes of one file.
#[derive(Clone)]
pub(crate) enum Bytes {
    Mapped(Arc<Mmap>),
    Owned(Shared),
}

impl Bytes {
    /// Maps a file for reading.
    #[allow(unsafe_code, reason = "a memory mapping is unsafe to make; see SAFETY")]
    pub(crate) fn map(path: &Path, file: &File) -> Result<Self> {
        // SAFETY: the mapping is read-only and private to this process's view; the module's
        // assumption is that the file does not change underneath it.
        let map = unsafe { Mmap::map(file) }
            .map_err(|source| ModelError::Io { file: path.to_owned(), source })?;
        Ok(Self::Mapped(Arc::new(map)))
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Owned(bytes) => (**bytes).as_ref(),
        }
    }

    pub(crate) fn shared(&self) -> Shared {
        match self {
            Self::Mapped(map) => Arc::clone(map) as Shared,
            Self::Owned(bytes) => Arc::clone(bytes),
        }
    }

    /// Asks the kernel to read a range ahead. Advice only: failure changes nothing.
    pub(crate) fn will_need(&self, range: Range<usize>) {
        if let Self::Mapped(map) = self
            && range.end <= map.len()
            && range.start < range.end
        {
            let _ = map.advise_range(Advice::WillNeed, range.start, range.end - range.start);
        }
    }

    /// Gives the pages that lie wholly inside a range back to the kernel; they are read from the
    /// file again if they are touched again.
    #[allow(unsafe_code, reason = "MADV_DONTNEED is unsafe to ask for; see SAFETY")]
    pub(crate) fn release(&self, range: Range<usize>) {
        const PAGE: usize = 4096;
        let Self::Mapped(map) = self else { return };
        let start = range.start.next_multiple_of(PAGE);
        let end = range.end.min(map.len()) / PAGE * PAGE;
        if start < end {
            // SAFETY: the mapping is file-backed and never written to, so dropping its pages loses
            // nothing: the next access reads the same bytes from the file.
            let _ = unsafe {
                map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, end - start)
            };
        }
    }
}
