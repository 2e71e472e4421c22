//! Sixteen floats at a time, on each instruction set: what the float kernels are written with.
#![allow(unsafe_code, reason = "vector loads and stores through pointers")]

use crate::codec::half_to_f32;

/// Sixteen floats. All functions are inlined into code compiled for the instruction set; calling
/// them elsewhere is undefined where the processor lacks it.
pub(crate) trait Lanes: Copy {
    /// Rows worth a register block of their own.
    const ROWS: usize = 6;
    /// # Safety
    /// The instruction set is there.
    unsafe fn splat(x: f32) -> Self;
    /// # Safety
    /// The instruction set is there; 16 floats are readable.
    unsafe fn load(p: *const f32) -> Self;
    /// # Safety
    /// The instruction set is there; 16 half floats are readable.
    unsafe fn load_half(p: *const u16) -> Self;
    /// # Safety
    /// The instruction set is there; 16 floats are writable.
    unsafe fn store(self, p: *mut f32);
    /// # Safety
    /// The instruction set is there; 16 bfloat16 are readable.
    unsafe fn load_brain(p: *const u16) -> Self;
    /// # Safety
    /// The instruction set is there; a half float is readable, aligned or not.
    #[inline(always)]
    unsafe fn splat_half(p: *const u16) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::splat(half_to_f32(p.read_unaligned())) }
    }
    /// # Safety
    /// The instruction set is there; 16 signed bytes are readable.
    unsafe fn load_bytes(p: *const i8) -> Self;
    /// The low (or, with `HIGH`, the high) nibbles of 16 bytes, minus 8.
    ///
    /// # Safety
    /// The instruction set is there; 16 bytes are readable.
    unsafe fn load_nibbles<const HIGH: bool>(p: *const u8) -> Self;
    /// # Safety
    /// The instruction set is there.
    unsafe fn mul(self, b: Self) -> Self;
    /// Asks for a cache line that will soon be read, wherever it is.
    #[inline(always)]
    fn prefetch(p: *const u8) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a prefetch never faults, and every x86-64 processor has it.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(p.cast());
        }
        let _ = p;
    }
    /// The sum of all lanes, pair by pair.
    ///
    /// # Safety
    /// The instruction set is there.
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        let mut lanes = [0.0f32; 16];
        // SAFETY: 16 floats are there.
        unsafe { self.store(lanes.as_mut_ptr()) };
        let mut width = 8;
        while width > 0 {
            let (low, high) = lanes.split_at_mut(width);
            low.iter_mut().zip(high).for_each(|(a, b)| *a += *b);
            width /= 2;
        }
        let [first, ..] = lanes;
        first
    }
    /// `self * b + c`.
    ///
    /// # Safety
    /// The instruction set is there.
    unsafe fn fma(self, b: Self, c: Self) -> Self;
}

/// Stored numbers that load as floats.
pub(crate) trait Element: Copy {
    /// # Safety
    /// The instruction set is there; 16 numbers are readable.
    unsafe fn load<V: Lanes>(p: *const Self) -> V;
    /// # Safety
    /// A number is readable, aligned or not.
    unsafe fn one(p: *const Self) -> f32;
}

/// A bfloat16.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Brain(u16);

impl Element for Brain {
    #[inline(always)]
    unsafe fn load<V: Lanes>(p: *const Brain) -> V {
        // SAFETY: the caller's promise.
        unsafe { V::load_brain(p.cast()) }
    }

    #[inline(always)]
    unsafe fn one(p: *const Brain) -> f32 {
        // SAFETY: the caller's promise.
        f32::from_bits(u32::from(unsafe { p.read_unaligned() }.0) << 16)
    }
}

impl Element for f32 {
    #[inline(always)]
    unsafe fn load<V: Lanes>(p: *const f32) -> V {
        // SAFETY: the caller's promise.
        unsafe { V::load(p) }
    }

    #[inline(always)]
    unsafe fn one(p: *const f32) -> f32 {
        // SAFETY: the caller's promise.
        unsafe { p.read_unaligned() }
    }
}

impl Element for u16 {
    #[inline(always)]
    unsafe fn load<V: Lanes>(p: *const u16) -> V {
        // SAFETY: the caller's promise.
        unsafe { V::load_half(p) }
    }

    #[inline(always)]
    unsafe fn one(p: *const u16) -> f32 {
        // SAFETY: the caller's promise.
        half_to_f32(unsafe { p.read_unaligned() })
    }
}

/// Plain code.
#[derive(Clone, Copy)]
pub(crate) struct Plain([f32; 16]);

impl Lanes for Plain {
    // Plain code has no registers to block for.
    const ROWS: usize = 1;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        Plain([x; 16])
    }

    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        // SAFETY: the caller's promise; floats in buffers are aligned to their size.
        Plain(unsafe { p.cast::<[f32; 16]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn load_half(p: *const u16) -> Self {
        // SAFETY: the caller's promise.
        Plain(unsafe { p.cast::<[u16; 16]>().read_unaligned() }.map(half_to_f32))
    }

    #[inline(always)]
    unsafe fn load_brain(p: *const u16) -> Self {
        // SAFETY: the caller's promise.
        let bits = unsafe { p.cast::<[u16; 16]>().read_unaligned() };
        Plain(bits.map(|b| f32::from_bits(u32::from(b) << 16)))
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[f32; 16]>().write_unaligned(self.0) };
    }

    #[inline(always)]
    unsafe fn load_bytes(p: *const i8) -> Self {
        // SAFETY: the caller's promise.
        Plain(unsafe { p.cast::<[i8; 16]>().read_unaligned() }.map(f32::from))
    }

    #[inline(always)]
    unsafe fn load_nibbles<const HIGH: bool>(p: *const u8) -> Self {
        // SAFETY: the caller's promise.
        let bytes = unsafe { p.cast::<[u8; 16]>().read_unaligned() };
        Plain(bytes.map(|b| f32::from(if HIGH { b >> 4 } else { b & 15 }) - 8.0))
    }

    #[inline(always)]
    unsafe fn mul(self, b: Self) -> Self {
        let mut out = self.0;
        out.iter_mut().zip(b.0).for_each(|(out, b)| *out *= b);
        Plain(out)
    }

    #[inline(always)]
    unsafe fn fma(self, b: Self, c: Self) -> Self {
        let mut out = c.0;
        for ((out, a), b) in out.iter_mut().zip(self.0).zip(b.0) {
            *out += a * b;
        }
        Plain(out)
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) use x86::{Avx2, Avx512};

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use std::arch::x86_64::*;

    use super::Lanes;

    /// Two vectors of eight.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx2(__m256, __m256);

    impl Lanes for Avx2 {
        #[inline(always)]
        unsafe fn splat(x: f32) -> Self {
            // SAFETY: the caller's promise, here and below.
            unsafe { Avx2(_mm256_set1_ps(x), _mm256_set1_ps(x)) }
        }

        #[inline(always)]
        unsafe fn load(p: *const f32) -> Self {
            // SAFETY: as above.
            unsafe { Avx2(_mm256_loadu_ps(p), _mm256_loadu_ps(p.add(8))) }
        }

        #[inline(always)]
        unsafe fn load_half(p: *const u16) -> Self {
            // SAFETY: as above.
            unsafe {
                Avx2(
                    _mm256_cvtph_ps(_mm_loadu_si128(p.cast())),
                    _mm256_cvtph_ps(_mm_loadu_si128(p.add(8).cast())),
                )
            }
        }

        #[inline(always)]
        unsafe fn load_brain(p: *const u16) -> Self {
            // SAFETY: as above.
            unsafe {
                let low = _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()));
                let high = _mm256_cvtepu16_epi32(_mm_loadu_si128(p.add(8).cast()));
                Avx2(
                    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(low)),
                    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(high)),
                )
            }
        }

        #[inline(always)]
        unsafe fn store(self, p: *mut f32) {
            // SAFETY: as above.
            unsafe {
                _mm256_storeu_ps(p, self.0);
                _mm256_storeu_ps(p.add(8), self.1);
            }
        }

        #[inline(always)]
        unsafe fn splat_half(p: *const u16) -> Self {
            // SAFETY: as above.
            unsafe {
                let bits = _mm_cvtsi32_si128(i32::from(p.read_unaligned()));
                Self::splat(_mm_cvtss_f32(_mm_cvtph_ps(bits)))
            }
        }

        #[inline(always)]
        unsafe fn load_bytes(p: *const i8) -> Self {
            // SAFETY: as above.
            unsafe {
                let bytes = _mm_loadu_si128(p.cast());
                let high = _mm256_cvtepi8_epi32(_mm_srli_si128::<8>(bytes));
                Avx2(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)), _mm256_cvtepi32_ps(high))
            }
        }

        #[inline(always)]
        unsafe fn load_nibbles<const HIGH: bool>(p: *const u8) -> Self {
            // SAFETY: as above.
            unsafe {
                let bytes = _mm_loadu_si128(p.cast());
                let bytes = if HIGH { _mm_srli_epi16::<4>(bytes) } else { bytes };
                let codes = _mm_and_si128(bytes, _mm_set1_epi8(15));
                let codes = _mm_sub_epi8(codes, _mm_set1_epi8(8));
                let high = _mm256_cvtepi8_epi32(_mm_srli_si128::<8>(codes));
                Avx2(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes)), _mm256_cvtepi32_ps(high))
            }
        }

        #[inline(always)]
        unsafe fn mul(self, b: Self) -> Self {
            // SAFETY: as above.
            unsafe { Avx2(_mm256_mul_ps(self.0, b.0), _mm256_mul_ps(self.1, b.1)) }
        }

        #[inline(always)]
        unsafe fn fma(self, b: Self, c: Self) -> Self {
            // SAFETY: as above.
            unsafe { Avx2(_mm256_fmadd_ps(self.0, b.0, c.0), _mm256_fmadd_ps(self.1, b.1, c.1)) }
        }
    }

    /// One vector of sixteen.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx512(pub(crate) __m512);

    impl Lanes for Avx512 {
        #[inline(always)]
        unsafe fn splat(x: f32) -> Self {
            // SAFETY: the caller's promise, here and below.
            unsafe { Avx512(_mm512_set1_ps(x)) }
        }

        #[inline(always)]
        unsafe fn load(p: *const f32) -> Self {
            // SAFETY: as above.
            unsafe { Avx512(_mm512_loadu_ps(p)) }
        }

        #[inline(always)]
        unsafe fn load_half(p: *const u16) -> Self {
            // SAFETY: as above.
            unsafe { Avx512(_mm512_cvtph_ps(_mm256_loadu_si256(p.cast()))) }
        }

        #[inline(always)]
        unsafe fn load_brain(p: *const u16) -> Self {
            // SAFETY: as above.
            unsafe {
                let bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast()));
                Avx512(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(bits)))
            }
        }

        #[inline(always)]
        unsafe fn store(self, p: *mut f32) {
            // SAFETY: as above.
            unsafe { _mm512_storeu_ps(p, self.0) };
        }

        #[inline(always)]
        unsafe fn splat_half(p: *const u16) -> Self {
            // SAFETY: as above.
            unsafe {
                let bits = _mm_cvtsi32_si128(i32::from(p.read_unaligned()));
                Self::splat(_mm_cvtss_f32(_mm_cvtph_ps(bits)))
            }
        }

        #[inline(always)]
        unsafe fn load_bytes(p: *const i8) -> Self {
            // SAFETY: as above.
            unsafe {
                let codes = _mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast()));
                Avx512(_mm512_cvtepi32_ps(codes))
            }
        }

        #[inline(always)]
        unsafe fn load_nibbles<const HIGH: bool>(p: *const u8) -> Self {
            // SAFETY: as above.
            unsafe {
                let bytes = _mm_loadu_si128(p.cast());
                let bytes = if HIGH { _mm_srli_epi16::<4>(bytes) } else { bytes };
                let codes = _mm_and_si128(bytes, _mm_set1_epi8(15));
                let codes = _mm_sub_epi8(codes, _mm_set1_epi8(8));
                Avx512(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes)))
            }
        }

        #[inline(always)]
        unsafe fn mul(self, b: Self) -> Self {
            // SAFETY: as above.
            unsafe { Avx512(_mm512_mul_ps(self.0, b.0)) }
        }

        #[inline(always)]
        unsafe fn fma(self, b: Self, c: Self) -> Self {
            // SAFETY: as above.
            unsafe { Avx512(_mm512_fmadd_ps(self.0, b.0, c.0)) }
        }
    }
}
