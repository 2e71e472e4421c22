//! What a component without `std` has to bring along: an allocator, a panic handler and the
//! function through which the host asks for memory. A panic is a trap without a message; the host
//! reports it as a fault of the plugin.

use alloc::alloc::{Layout, alloc, realloc};
use core::{arch::wasm32, panic::PanicInfo, ptr};

#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    wasm32::unreachable()
}

/// The canonical ABI's `realloc`: the host calls it to place arguments in this component's memory.
///
/// # Safety
/// As the canonical ABI has it: `align` is a power of two, and `old` either came from here with
/// `old_len` and `align` or `old_len` is 0.
#[unsafe(no_mangle)]
#[allow(unsafe_code, reason = "the canonical ABI is a C function; without std nobody defines it")]
unsafe extern "C" fn cabi_realloc(
    old: *mut u8,
    old_len: usize,
    align: usize,
    new_len: usize,
) -> *mut u8 {
    if new_len == 0 {
        return ptr::without_provenance_mut(align);
    }
    let Ok(layout) = Layout::from_size_align(if old_len == 0 { new_len } else { old_len }, align)
    else {
        wasm32::unreachable()
    };
    let place = if old_len == 0 {
        // SAFETY: the layout's size is `new_len`, which is not 0.
        unsafe { alloc(layout) }
    } else {
        // SAFETY: `old` was allocated by this function with this layout; `new_len` is not 0.
        unsafe { realloc(old, layout, new_len) }
    };
    if place.is_null() {
        wasm32::unreachable()
    }
    place
}

// `memcmp` and its like: compiled code calls them, and without std nobody links them. They are
// plain functions; nothing of WASI comes with them.
#[allow(unsafe_code, reason = "names the library; declares nothing")]
#[link(name = "c")]
unsafe extern "C" {}
