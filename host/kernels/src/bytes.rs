//! Shared read-only bytes: a range of whatever owns them (a file map, a vector).

use std::ops::Range;
use std::sync::Arc;

use crate::error::KernelError;

/// Whatever keeps bytes alive.
pub type Owner = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// A cheap clone of a range of shared bytes. The owner must always return the same slice.
#[derive(Clone)]
pub struct Bytes {
    owner: Owner,
    range: Range<usize>,
}

impl Bytes {
    /// The range of the owner's bytes.
    ///
    /// # Errors
    /// The range is not inside the owner's bytes.
    pub fn new(owner: Owner, range: Range<usize>) -> Result<Bytes, KernelError> {
        let limit = owner.as_ref().as_ref().len();
        if range.start > range.end || range.end > limit {
            return Err(KernelError::Index { what: "byte range", index: range.end, limit });
        }
        Ok(Bytes { owner, range })
    }

    /// Bytes of their own.
    pub fn from_vec(bytes: Vec<u8>) -> Bytes {
        let range = 0..bytes.len();
        Bytes { owner: Arc::new(bytes), range }
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        self.owner.as_ref().as_ref().get(self.range.clone()).unwrap_or(&[])
    }

    /// Tells the operating system that they are about to be read, so that what is mapped from a
    /// file and not in memory begins to come in at once instead of page by page as it is touched.
    #[allow(unsafe_code, reason = "advice on a range of live memory")]
    pub fn will_need(&self) {
        #[cfg(all(target_os = "linux", not(miri)))]
        {
            const PAGE: usize = 4096;
            let bytes = self.as_slice();
            let before = bytes.as_ptr() as usize % PAGE;
            let start = bytes.as_ptr().wrapping_sub(before).cast_mut();
            // SAFETY: the range lies in pages that hold live bytes; this advice changes no contents,
            // and a refusal is harmless.
            unsafe {
                libc::madvise(start.cast(), before + bytes.len(), libc::MADV_WILLNEED);
            }
        }
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }
}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bytes({} bytes)", self.len())
    }
}
