//! AMX tiles of bf16, through the assembler: the intrinsics are not stable.
//!
//! A tile is 16 rows of 64 bytes. `tdpbf16ps` multiplies 16 rows of 32 activations with 32 columns
//! of 16 weight rows and adds to 16 x 16 floats. Four of those make a [`Tiles::multiply`]: 32 tokens
//! times 32 weight rows, so that each tile that is loaded is used twice.
#![allow(unsafe_code, reason = "tile instructions work on pointers")]

use std::arch::asm;
use std::arch::x86_64::*;
use std::sync::OnceLock;

use crate::bulk::STEP;

/// Whether the processor has bf16 tiles that this process may use. The first call asks the operating
/// system for permission, for all threads.
///
/// # Errors
/// Why the processor's tiles are not to be had.
pub(crate) fn offered() -> Result<bool, &'static str> {
    static OFFERED: OnceLock<Result<bool, &'static str>> = OnceLock::new();
    *OFFERED.get_or_init(|| {
        if !has_tiles() {
            Ok(false)
        } else if !saves_tiles() {
            Err("it has AMX tiles, which the operating system does not save")
        } else if !permitted() {
            Err("it has AMX tiles, which the operating system did not permit")
        } else {
            Ok(true)
        }
    })
}

/// CPUID leaf 7: AMX-BF16 (bit 22) and AMX-TILE (bit 24).
fn has_tiles() -> bool {
    const BITS: u32 = 1 << 22 | 1 << 24;
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & BITS == BITS
}

/// XCR0: the operating system saves the tiles and their configuration.
fn saves_tiles() -> bool {
    const BITS: u64 = 1 << 17 | 1 << 18;
    if __cpuid(1).ecx & 1 << 27 == 0 {
        return false;
    }
    // SAFETY: OSXSAVE (bit 27) was just seen.
    unsafe { xcr0() & BITS == BITS }
}

#[target_feature(enable = "xsave")]
unsafe fn xcr0() -> u64 {
    // SAFETY: the caller saw OSXSAVE.
    unsafe { _xgetbv(0) }
}

/// Linux gives tiles to a process that asks.
fn permitted() -> bool {
    #[cfg(target_os = "linux")]
    {
        const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
        const XFEATURE_XTILEDATA: libc::c_long = 18;
        // SAFETY: asks for a permission; touches no memory of ours.
        unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
    }
    #[cfg(not(target_os = "linux"))]
    false
}

/// `LDTILECFG`'s operand.
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    /// Bytes per row of each tile.
    bytes: [u16; 16],
    /// Rows of each tile.
    rows: [u8; 16],
}

static CONFIG: Config = Config {
    palette: 1,
    start_row: 0,
    reserved: [0; 14],
    bytes: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
    rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
};

/// Sums of four tiles over `{steps}` steps: `$step` adds to tiles 0 and 1, which belong to `{c}` and
/// the 64 bytes beside it, and to 2 and 3, which belong to `{d}` likewise. It may use 4 to 7, and
/// `{row}`, the 64 bytes from a tile's row to the next. They begin with what is there if `{add}` is
/// not zero; `{wide}` are the bytes from a row of theirs to the next.
macro_rules! sums {
    ([$($step:literal),*], $steps:ident, $add:ident, $stride:ident, $($operand:tt)*) => {
        asm!(
            "test {add:e}, {add:e}",
            "jz 3f",
            "tileloadd tmm0, [{c} + {wide}*1]",
            "tileloadd tmm1, [{c} + {wide}*1 + 64]",
            "tileloadd tmm2, [{d} + {wide}*1]",
            "tileloadd tmm3, [{d} + {wide}*1 + 64]",
            "jmp 4f",
            "3:",
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "4:",
            "test {steps}, {steps}",
            "jz 5f",
            "2:",
            $($step,)*
            "dec {steps}",
            "jnz 2b",
            "5:",
            "tilestored [{c} + {wide}*1], tmm0",
            "tilestored [{c} + {wide}*1 + 64], tmm1",
            "tilestored [{d} + {wide}*1], tmm2",
            "tilestored [{d} + {wide}*1 + 64], tmm3",
            $($operand)*
            steps = inout(reg) $steps => _,
            add = in(reg) u32::from($add),
            row = in(reg) 64usize,
            wide = in(reg) 4 * $stride,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        )
    };
}

/// All eight tiles of this thread, whole. Given back when dropped.
pub(crate) struct Tiles(());

impl Tiles {
    /// Configures the tiles.
    ///
    /// # Safety
    /// Tiles are [`offered`].
    pub(crate) unsafe fn configure() -> Tiles {
        // SAFETY: the operand is a whole configuration; tiles are offered.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &raw const CONFIG, options(nostack, readonly));
        }
        Tiles(())
    }

    /// `c (+)= a b`: 32 x 32 sums, token after token, over `steps` steps of 32 columns. Each step
    /// has two tiles of `a` (16 tokens each) and two of `b` (16 weight rows each: a pair of columns
    /// of all rows after the other). Without `add` the sums start at zero.
    ///
    /// # Safety
    /// `2 * steps` tiles are readable at `a` and at `b`, and 32 times 32 floats, `stride` floats
    /// apart, writable (and, with `add`, readable) at `c`.
    #[inline(always)]
    pub(crate) unsafe fn multiply(
        &self,
        (a, b, steps): (*const u16, *const u16, usize),
        (c, stride): (*mut f32, usize),
        add: bool,
    ) {
        // SAFETY: the tiles are configured; the loop reads 2 KiB of `a` and of `b` a step, loads and
        // stores cover 32 rows of 128 bytes at `c`. Nothing else is touched but the tiles.
        unsafe {
            sums!(
                [
                    "tileloadd tmm4, [{a} + {row}*1]",
                    "tileloadd tmm6, [{b} + {row}*1]",
                    "tdpbf16ps tmm0, tmm4, tmm6",
                    "tileloadd tmm7, [{b} + {row}*1 + 1024]",
                    "tdpbf16ps tmm1, tmm4, tmm7",
                    "tileloadd tmm5, [{a} + {row}*1 + 1024]",
                    "tdpbf16ps tmm2, tmm5, tmm6",
                    "tdpbf16ps tmm3, tmm5, tmm7",
                    "add {a}, 2048",
                    "add {b}, 2048"
                ],
                steps, add, stride,
                a = inout(reg) a => _,
                b = inout(reg) b => _,
                c = in(reg) c,
                d = in(reg) c.wrapping_add(16 * stride),
            );
        }
    }

    /// [`Tiles::multiply`] for 16 tokens with twice as many weight rows: `b` and `c` twice, `a`'s
    /// second tile of each step left alone. The sums are the same to the last bit.
    ///
    /// # Safety
    /// As there, for both; of `c` the first 16 rows.
    #[inline(always)]
    pub(crate) unsafe fn multiply_few(
        &self,
        (a, [b, e], steps): (*const u16, [*const u16; 2], usize),
        ([c, d], stride): ([*mut f32; 2], usize),
        add: bool,
    ) {
        // SAFETY: as for `multiply`: 2 KiB a step of `a` and of each `b`, 16 rows of each `c`.
        unsafe {
            sums!(
                [
                    "tileloadd tmm4, [{a} + {row}*1]",
                    "tileloadd tmm5, [{b} + {row}*1]",
                    "tdpbf16ps tmm0, tmm4, tmm5",
                    "tileloadd tmm6, [{b} + {row}*1 + 1024]",
                    "tdpbf16ps tmm1, tmm4, tmm6",
                    "tileloadd tmm7, [{e} + {row}*1]",
                    "tdpbf16ps tmm2, tmm4, tmm7",
                    "tileloadd tmm5, [{e} + {row}*1 + 1024]",
                    "tdpbf16ps tmm3, tmm4, tmm5",
                    "add {a}, 2048",
                    "add {b}, 2048",
                    "add {e}, 2048"
                ],
                steps, add, stride,
                a = inout(reg) a => _,
                b = inout(reg) b => _,
                e = inout(reg) e => _,
                c = in(reg) c,
                d = in(reg) d,
            );
        }
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: a `Tiles` is made only where tiles are offered.
        unsafe { asm!("tilerelease", options(nostack, nomem, preserves_flags)) };
    }
}

/// Number `i` of the low half beside number `i` of the high one.
static PAIRED: [u16; 32] = [
    0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28,
    13, 29, 14, 30, 15, 31,
];

/// A tile's row of `b`: two columns of 16 rows, rounded to bf16, in pairs.
///
/// # Safety
/// AVX-512 F, BW and BF16 are there.
#[inline(always)]
pub(crate) unsafe fn pair(first: __m512, second: __m512) -> __m512i {
    // SAFETY: the caller's promise; the order is 64 bytes. Vectors of one size have the same bits.
    unsafe {
        let brains: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(second, first));
        _mm512_permutexvar_epi16(_mm512_loadu_si512(PAIRED.as_ptr().cast()), brains)
    }
}

/// 32 numbers rounded to bf16, in their order.
///
/// # Safety
/// As for [`pair`].
#[inline(always)]
pub(crate) unsafe fn row(low: __m512, high: __m512) -> __m512i {
    // SAFETY: as above.
    unsafe { std::mem::transmute(_mm512_cvtne2ps_pbh(high, low)) }
}

/// [`pair`] of two columns, and of what rounding left of them.
///
/// # Safety
/// As for [`pair`].
#[inline(always)]
pub(crate) unsafe fn split_pair(first: __m512, second: __m512) -> [__m512i; 2] {
    // SAFETY: as above.
    unsafe { [pair(first, second), pair(rest(first), rest(second))] }
}

/// [`row`] of 32 numbers, and of what rounding left of them.
///
/// # Safety
/// As for [`pair`].
#[inline(always)]
pub(crate) unsafe fn split_row(x: &[f32; STEP]) -> [__m512i; 2] {
    // SAFETY: as above; 32 floats are there.
    unsafe {
        let (low, high) = (_mm512_loadu_ps(x.as_ptr()), _mm512_loadu_ps(x.as_ptr().add(16)));
        [row(low, high), row(rest(low), rest(high))]
    }
}

/// What rounding to bf16 leaves of 16 numbers.
///
/// # Safety
/// As for [`pair`].
#[inline(always)]
unsafe fn rest(x: __m512) -> __m512 {
    // SAFETY: as above.
    unsafe {
        let brains: __m256i = std::mem::transmute(_mm512_cvtneps_pbh(x));
        let wide = _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(brains));
        _mm512_sub_ps(x, _mm512_castsi512_ps(wide))
    }
}
