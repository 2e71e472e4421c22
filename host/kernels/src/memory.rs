//! Memory the kernels need: aligned growable buffers, huge-page regions for weights, and a shared
//! view of an output that threads write in disjoint parts.
#![allow(unsafe_code, reason = "aligned storage and disjoint parallel writes need raw pointers")]

use std::marker::PhantomData;
use std::ops::Range;

/// One cache line; the unit of alignment.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Numbers for which any bytes are a value.
pub(crate) trait Plain: Copy + 'static {}
impl Plain for u8 {}
impl Plain for i8 {}
impl Plain for u16 {}
impl Plain for u32 {}
impl Plain for i32 {}
impl Plain for f32 {}

/// A growable buffer aligned to a cache line. Growing keeps no contents.
pub(crate) struct Buf<T> {
    lines: Vec<Line>,
    len: usize,
    kind: PhantomData<T>,
}

impl<T> Default for Buf<T> {
    fn default() -> Self {
        Buf { lines: Vec::new(), len: 0, kind: PhantomData }
    }
}

impl<T: Plain> Buf<T> {
    /// Sets the length; contents are unspecified but initialised. Never shrinks its memory.
    pub(crate) fn resize(&mut self, len: usize) -> &mut [T] {
        let lines = (len * size_of::<T>()).div_ceil(64);
        if lines > self.lines.len() {
            self.lines.resize(lines, Line([0; 64]));
        }
        self.len = len;
        self.as_mut_slice()
    }

    /// The contents.
    #[inline(always)]
    pub(crate) fn as_slice(&self) -> &[T] {
        // SAFETY: `lines` holds at least `len * size_of::<T>()` initialised bytes, aligned to 64,
        // and every bit pattern is a value of a `Plain` type.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }

    /// The contents, to write.
    #[inline(always)]
    pub(crate) fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as for `as_slice`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}

/// A region of zeroed memory aligned to 2 MiB when it is that large, with huge pages asked for.
pub(crate) struct Region {
    start: *mut u8,
    len: usize,
    layout: std::alloc::Layout,
}

// SAFETY: the region is plain owned memory; nothing in it depends on a thread.
unsafe impl Send for Region {}
// SAFETY: as above; shared access is read-only.
unsafe impl Sync for Region {}

const HUGE: usize = 2 << 20;

impl Region {
    /// Zeroed memory of `len` bytes, or `None` if there is not that much.
    pub(crate) fn zeroed(len: usize) -> Option<Region> {
        let align = if len >= HUGE { HUGE } else { 64 };
        let size = len.max(1).checked_next_multiple_of(64)?;
        let layout = std::alloc::Layout::from_size_align(size, align).ok()?;
        // The pages must be fresh when the advice is given, so they are zeroed only afterwards.
        // SAFETY: the layout's size is not zero.
        let start = unsafe { std::alloc::alloc(layout) };
        if start.is_null() {
            return None;
        }
        #[cfg(all(target_os = "linux", not(miri)))]
        if size >= HUGE {
            let whole = size / HUGE * HUGE;
            // SAFETY: `start..start + whole` lies inside the allocation just made. The advice only
            // changes how it is backed; a refusal is harmless.
            unsafe { libc::madvise(start.cast(), whole, libc::MADV_HUGEPAGE) };
        }
        // SAFETY: `size` bytes were just allocated at `start`.
        unsafe { std::ptr::write_bytes(start, 0, size) };
        Some(Region { start, len, layout })
    }

    /// The bytes.
    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes owned by the region.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    /// The bytes, to write.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `zeroed`, freed once.
        unsafe { std::alloc::dealloc(self.start, self.layout) };
    }
}

/// Zeroed memory whose pages the operating system provides as they are first written; in huge
/// pages, where it has them, once it is a few of those long.
pub(crate) struct Slab {
    start: *mut u8,
    len: usize,
    /// The mapping, if it is one: its start and length. Otherwise a plain allocation.
    mapping: Option<(*mut u8, usize)>,
}

// SAFETY: plain owned memory, as for `Region`.
unsafe impl Send for Slab {}
// SAFETY: as above.
unsafe impl Sync for Slab {}

impl Slab {
    /// Zeroed memory of `len` bytes, or `None` if there is not that much.
    pub(crate) fn zeroed(len: usize) -> Option<Slab> {
        #[cfg(all(target_os = "linux", not(miri)))]
        if len >= 2 * HUGE {
            return Slab::mapped(len);
        }
        // SAFETY: the layout's size is not zero.
        let start = unsafe { std::alloc::alloc_zeroed(Slab::layout(len)?) };
        (!start.is_null()).then_some(Slab { start, len, mapping: None })
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    fn mapped(len: usize) -> Option<Slab> {
        let whole = len.checked_next_multiple_of(HUGE)?;
        let size = whole.checked_add(HUGE)?;
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
        // SAFETY: a fresh private mapping touches no other memory.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), size, prot, flags | libc::MAP_ANONYMOUS, -1, 0)
        };
        if base == libc::MAP_FAILED {
            return None;
        }
        let base = base.cast::<u8>();
        let start = base.wrapping_add(base.align_offset(HUGE));
        // SAFETY: inside the mapping just made; a refusal of the advice is harmless.
        unsafe { libc::madvise(start.cast(), whole, libc::MADV_HUGEPAGE) };
        Some(Slab { start, len, mapping: Some((base, size)) })
    }

    fn layout(len: usize) -> Option<std::alloc::Layout> {
        std::alloc::Layout::from_size_align(len.max(1), 64).ok()
    }

    /// Number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The bytes.
    #[inline(always)]
    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: `len` initialised (zeroed) bytes owned by the slab.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    /// The bytes, to write.
    #[inline(always)]
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl Clone for Slab {
    fn clone(&self) -> Slab {
        let Some(mut copy) = Slab::zeroed(self.len) else {
            let layout = Slab::layout(self.len).unwrap_or(std::alloc::Layout::new::<u8>());
            std::alloc::handle_alloc_error(layout);
        };
        copy.as_mut_slice().copy_from_slice(self.as_slice());
        copy
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        match self.mapping {
            #[cfg(all(target_os = "linux", not(miri)))]
            // SAFETY: this mapping was made in `mapped` and is given back once.
            Some((base, size)) => unsafe {
                libc::munmap(base.cast(), size);
            },
            _ => {
                if let Some(layout) = Slab::layout(self.len) {
                    // SAFETY: allocated with this layout in `zeroed`, freed once.
                    unsafe { std::alloc::dealloc(self.start, layout) };
                }
            }
        }
    }
}

/// A mutable slice that several threads write at once, each in parts of its own.
pub(crate) struct Parts<'a, T> {
    start: *mut T,
    len: usize,
    life: PhantomData<&'a mut [T]>,
}

// SAFETY: access goes through `part`, whose callers promise that parts do not overlap.
unsafe impl<T: Send> Sync for Parts<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Parts<'_, T> {}

impl<'a, T> Parts<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Parts<'a, T> {
        Parts { start: slice.as_mut_ptr(), len: slice.len(), life: PhantomData }
    }

    /// One part.
    ///
    /// # Safety
    /// While the returned slice lives, no other part that overlaps it may exist.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "the caller promises that parts do not overlap")]
    pub(crate) unsafe fn part(&self, range: Range<usize>) -> &'a mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "part outside the slice");
        // SAFETY: in bounds by the check above, unaliased by the caller's promise, alive for 'a.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }

    /// [`Parts::part`], or `None` if the slice is shorter.
    ///
    /// # Safety
    /// As for [`Parts::part`].
    pub(crate) unsafe fn try_part(&self, range: Range<usize>) -> Option<&'a mut [T]> {
        // SAFETY: the caller's promise.
        (range.end <= self.len).then(|| unsafe { self.part(range) })
    }

    /// Where element `at` lies, for kernels that write strided tiles.
    #[inline(always)]
    pub(crate) fn pointer(&self, at: usize) -> *mut T {
        assert!(at <= self.len, "pointer outside the slice");
        self.start.wrapping_add(at)
    }
}
