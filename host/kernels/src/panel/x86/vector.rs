//! The vectors the panel kernels are written with: 64 bytes with AVX-512 VNNI, 32 with AVX2.
//!
//! A panel's vector of 16 rows is one of the former or two of the latter; `part` says which.

use std::arch::x86_64::*;

/// Where a vector of results goes, and what happens to it on the way.
#[derive(Clone, Copy)]
pub(super) struct Output {
    pub(super) to: *mut f32,
    pub(super) scale: f32,
    /// Null without one.
    pub(super) bias: *const f32,
    pub(super) accumulate: bool,
}

/// Vectors of one instruction set. All functions are inlined into code compiled for it; calling
/// them elsewhere is undefined where the processor lacks it.
pub(super) trait Vector {
    /// Vectors per 16 rows.
    const PARTS: usize;
    /// Rows per vector.
    const LANES: usize;
    /// Whether codes of a full byte are multiplied as signed numbers: then no offset is paid.
    const SIGNED: bool;
    /// Integers.
    type I: Copy;
    /// Floats.
    type F: Copy;

    /// Vector `i` of a panel's codes.
    ///
    /// # Safety
    /// The instruction set is there, here and below; 64 bytes after `64 * i` are readable and
    /// aligned to 64.
    unsafe fn codes(p: *const u8, i: usize, part: usize) -> Self::I;
    /// # Safety
    /// A vector is writable, aligned to its size.
    unsafe fn store_codes(p: *mut u8, v: Self::I);
    /// # Safety
    /// A vector is readable, aligned to its size.
    unsafe fn load_codes(p: *const u8) -> Self::I;
    /// # Safety
    /// A vector is writable, aligned to its size.
    unsafe fn store(p: *mut f32, v: Self::F);
    /// # Safety
    /// A vector is readable, aligned to its size.
    unsafe fn load(p: *const f32) -> Self::F;
    /// The 16 half floats of a panel's rows.
    ///
    /// # Safety
    /// 32 bytes are readable.
    unsafe fn halves(p: *const u8, part: usize) -> Self::F;
    /// The 16 bytes of a panel's rows, each in 32 bits.
    ///
    /// # Safety
    /// 16 bytes are readable.
    unsafe fn bytes(p: *const u8, part: usize) -> Self::I;
    /// As [`Vector::bytes`], with sign.
    ///
    /// # Safety
    /// As there.
    unsafe fn signed_bytes(p: *const u8, part: usize) -> Self::I;
    /// # Safety
    /// As above, here and below.
    unsafe fn float(v: Self::I) -> Self::F;
    /// The bits as a float.
    unsafe fn as_float(v: Self::I) -> Self::F;
    unsafe fn splat8(x: u8) -> Self::I;
    unsafe fn splat32(x: i32) -> Self::I;
    unsafe fn splat(x: f32) -> Self::F;
    unsafe fn and(a: Self::I, b: Self::I) -> Self::I;
    /// `a | (b & mask)`.
    unsafe fn merge(a: Self::I, b: Self::I, mask: Self::I) -> Self::I;
    /// Bits `count` places up (down if negative) in 16-bit lanes.
    unsafe fn shift(v: Self::I, count: i32) -> Self::I;
    /// Bits `count` places up (down if negative) in 32-bit lanes.
    unsafe fn shift32(v: Self::I, count: i32) -> Self::I;
    unsafe fn add8(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn add32(a: Self::I, b: Self::I) -> Self::I;
    /// The larger of 32-bit lanes.
    unsafe fn max32(a: Self::I, b: Self::I) -> Self::I;
    /// One in each byte of `v` that is at least `x`, otherwise zero.
    unsafe fn at_least(v: Self::I, x: u8) -> Self::I;
    /// `v`, but zero where the 32-bit lane of `key` is `x`.
    unsafe fn unless_equal(v: Self::I, key: Self::I, x: i32) -> Self::I;
    /// Entries of a table by the low four bits of each byte, whose other bits are zero.
    unsafe fn lookup(table: &[u8; 16], v: Self::I) -> Self::I;
    /// Small half floats in the low 16 bits of each lane.
    unsafe fn wide_halves(v: Self::I) -> Self::F;
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`.
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    unsafe fn negate(a: Self::F) -> Self::F;
    /// Adds to each lane of `sum` the products of 4 codes with 4 activations. `WIDE`: codes of a
    /// full byte (see [`Vector::SIGNED`]).
    unsafe fn dot<const WIDE: bool>(sum: Self::I, w: Self::I, x: i32) -> Self::I;
    /// Writes the first `lanes` lanes times `scale`, plus those of `bias`, over or onto `to`.
    ///
    /// # Safety
    /// So many floats are writable at `to` and, unless it is null, readable at `bias`.
    unsafe fn put(v: Self::F, lanes: usize, out: Output);
}

/// AVX-512 F, BW, DQ, VL, VBMI and VNNI.
pub(super) struct Avx512;

impl Vector for Avx512 {
    const PARTS: usize = 1;
    const LANES: usize = 16;
    const SIGNED: bool = false;
    type I = __m512i;
    type F = __m512;

    #[inline(always)]
    unsafe fn codes(p: *const u8, i: usize, _: usize) -> __m512i {
        // SAFETY: the caller's promises, here and below.
        unsafe { _mm512_load_si512(p.add(64 * i).cast()) }
    }
    #[inline(always)]
    unsafe fn store_codes(p: *mut u8, v: __m512i) {
        // SAFETY: as above.
        unsafe { _mm512_store_si512(p.cast(), v) }
    }
    #[inline(always)]
    unsafe fn load_codes(p: *const u8) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_load_si512(p.cast()) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: __m512) {
        // SAFETY: as above.
        unsafe { _mm512_store_ps(p, v) }
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_load_ps(p) }
    }
    #[inline(always)]
    unsafe fn halves(p: *const u8, _: usize) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) }
    }
    #[inline(always)]
    unsafe fn bytes(p: *const u8, _: usize) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast())) }
    }
    #[inline(always)]
    unsafe fn signed_bytes(p: *const u8, _: usize) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast())) }
    }
    #[inline(always)]
    unsafe fn float(v: __m512i) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_cvtepi32_ps(v) }
    }
    #[inline(always)]
    unsafe fn as_float(v: __m512i) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_castsi512_ps(v) }
    }
    #[inline(always)]
    unsafe fn splat8(x: u8) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_set1_epi8(x as i8) }
    }
    #[inline(always)]
    unsafe fn splat32(x: i32) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_set1_epi32(x) }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn and(a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_and_si512(a, b) }
    }
    #[inline(always)]
    unsafe fn merge(a: __m512i, b: __m512i, mask: __m512i) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_ternarylogic_epi32::<0xF8>(a, b, mask) }
    }
    #[inline(always)]
    unsafe fn shift(v: __m512i, count: i32) -> __m512i {
        // SAFETY: as above.
        unsafe {
            match count {
                0 => v,
                1.. => _mm512_sll_epi16(v, _mm_cvtsi32_si128(count)),
                _ => _mm512_srl_epi16(v, _mm_cvtsi32_si128(-count)),
            }
        }
    }
    #[inline(always)]
    unsafe fn shift32(v: __m512i, count: i32) -> __m512i {
        // SAFETY: as above.
        unsafe {
            match count {
                0 => v,
                1.. => _mm512_sll_epi32(v, _mm_cvtsi32_si128(count)),
                _ => _mm512_srl_epi32(v, _mm_cvtsi32_si128(-count)),
            }
        }
    }
    #[inline(always)]
    unsafe fn add8(a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_add_epi8(a, b) }
    }
    #[inline(always)]
    unsafe fn add32(a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_add_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn max32(a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_max_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn at_least(v: __m512i, x: u8) -> __m512i {
        // SAFETY: as above.
        unsafe {
            let there = _mm512_cmpge_epu8_mask(v, _mm512_set1_epi8(x as i8));
            _mm512_maskz_mov_epi8(there, _mm512_set1_epi8(1))
        }
    }
    #[inline(always)]
    unsafe fn unless_equal(v: __m512i, key: __m512i, x: i32) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_maskz_mov_epi32(_mm512_cmpneq_epi32_mask(key, _mm512_set1_epi32(x)), v) }
    }
    #[inline(always)]
    unsafe fn lookup(table: &[u8; 16], v: __m512i) -> __m512i {
        // SAFETY: as above; the table is 16 bytes.
        unsafe {
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            _mm512_shuffle_epi8(table, v)
        }
    }
    #[inline(always)]
    unsafe fn wide_halves(v: __m512i) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v)) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn negate(a: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_xor_ps(a, _mm512_set1_ps(-0.0)) }
    }
    #[inline(always)]
    unsafe fn dot<const WIDE: bool>(sum: __m512i, w: __m512i, x: i32) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_dpbusd_epi32(sum, w, _mm512_set1_epi32(x)) }
    }
    #[inline(always)]
    unsafe fn put(v: __m512, lanes: usize, out: Output) {
        let mask = (u32::MAX >> (32 - lanes.clamp(1, 16))) as u16;
        // SAFETY: as above: masked accesses touch only the lanes that are there.
        unsafe {
            let mut y = _mm512_mul_ps(v, _mm512_set1_ps(out.scale));
            if !out.bias.is_null() {
                y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(mask, out.bias));
            }
            if out.accumulate {
                y = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, out.to), y);
            }
            _mm512_mask_storeu_ps(out.to, mask, y);
        }
    }
}

/// AVX2, FMA and F16C.
pub(super) struct Avx2;

impl Vector for Avx2 {
    const PARTS: usize = 2;
    const LANES: usize = 8;
    const SIGNED: bool = true;
    type I = __m256i;
    type F = __m256;

    #[inline(always)]
    unsafe fn codes(p: *const u8, i: usize, part: usize) -> __m256i {
        // SAFETY: the caller's promises, here and below.
        unsafe { _mm256_load_si256(p.add(64 * i + 32 * part).cast()) }
    }
    #[inline(always)]
    unsafe fn store_codes(p: *mut u8, v: __m256i) {
        // SAFETY: as above.
        unsafe { _mm256_store_si256(p.cast(), v) }
    }
    #[inline(always)]
    unsafe fn load_codes(p: *const u8) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_load_si256(p.cast()) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: __m256) {
        // SAFETY: as above.
        unsafe { _mm256_store_ps(p, v) }
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> __m256 {
        // SAFETY: as above.
        unsafe { _mm256_load_ps(p) }
    }
    #[inline(always)]
    unsafe fn halves(p: *const u8, part: usize) -> __m256 {
        // SAFETY: as above.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(p.add(16 * part).cast())) }
    }
    #[inline(always)]
    unsafe fn bytes(p: *const u8, part: usize) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_cvtepu8_epi32(_mm_loadl_epi64(p.add(8 * part).cast())) }
    }
    #[inline(always)]
    unsafe fn signed_bytes(p: *const u8, part: usize) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_cvtepi8_epi32(_mm_loadl_epi64(p.add(8 * part).cast())) }
    }
    #[inline(always)]
    unsafe fn float(v: __m256i) -> __m256 {
        // SAFETY: as above.
        unsafe { _mm256_cvtepi32_ps(v) }
    }
    #[inline(always)]
    unsafe fn as_float(v: __m256i) -> __m256 {
        // SAFETY: as above.
        unsafe { _mm256_castsi256_ps(v) }
    }
    #[inline(always)]
    unsafe fn splat8(x: u8) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_set1_epi8(x as i8) }
    }
    #[inline(always)]
    unsafe fn splat32(x: i32) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_set1_epi32(x) }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> __m256 {
        // SAFETY: as above.
        unsafe { _mm256_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn and(a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_and_si256(a, b) }
    }
    #[inline(always)]
    unsafe fn merge(a: __m256i, b: __m256i, mask: __m256i) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_or_si256(a, _mm256_and_si256(b, mask)) }
    }
    #[inline(always)]
    unsafe fn shift(v: __m256i, count: i32) -> __m256i {
        // SAFETY: as above.
        unsafe {
            match count {
                0 => v,
                1.. => _mm256_sll_epi16(v, _mm_cvtsi32_si128(count)),
                _ => _mm256_srl_epi16(v, _mm_cvtsi32_si128(-count)),
            }
        }
    }
    #[inline(always)]
    unsafe fn shift32(v: __m256i, count: i32) -> __m256i {
        // SAFETY: as above.
        unsafe {
            match count {
                0 => v,
                1.. => _mm256_sll_epi32(v, _mm_cvtsi32_si128(count)),
                _ => _mm256_srl_epi32(v, _mm_cvtsi32_si128(-count)),
            }
        }
    }
    #[inline(always)]
    unsafe fn add8(a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_add_epi8(a, b) }
    }
    #[inline(always)]
    unsafe fn add32(a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_add_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn max32(a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_max_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn at_least(v: __m256i, x: u8) -> __m256i {
        // SAFETY: as above.
        unsafe {
            let there = _mm256_cmpeq_epi8(_mm256_max_epu8(v, _mm256_set1_epi8(x as i8)), v);
            _mm256_and_si256(there, _mm256_set1_epi8(1))
        }
    }
    #[inline(always)]
    unsafe fn unless_equal(v: __m256i, key: __m256i, x: i32) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_andnot_si256(_mm256_cmpeq_epi32(key, _mm256_set1_epi32(x)), v) }
    }
    #[inline(always)]
    unsafe fn lookup(table: &[u8; 16], v: __m256i) -> __m256i {
        // SAFETY: as above; the table is 16 bytes.
        unsafe {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            _mm256_shuffle_epi8(table, v)
        }
    }
    #[inline(always)]
    unsafe fn wide_halves(v: __m256i) -> __m256 {
        // SAFETY: as above. Lanes are below 2^15, so packing does not saturate.
        unsafe {
            let (low, high) = (_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v));
            _mm256_cvtph_ps(_mm_packus_epi32(low, high))
        }
    }
    #[inline(always)]
    unsafe fn mul(a: __m256, b: __m256) -> __m256 {
        // SAFETY: as above.
        unsafe { _mm256_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn fma(a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: as above.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn negate(a: __m256) -> __m256 {
        // SAFETY: as above.
        unsafe { _mm256_xor_ps(a, _mm256_set1_ps(-0.0)) }
    }
    #[inline(always)]
    unsafe fn dot<const WIDE: bool>(sum: __m256i, w: __m256i, x: i32) -> __m256i {
        // SAFETY: as above. Narrow codes are at most 63 and signed ones at most 128 in size, so
        // that pairs of products stay below 2^15.
        unsafe {
            let x = _mm256_set1_epi32(x);
            let pairs = if WIDE {
                let w = _mm256_xor_si256(w, _mm256_set1_epi8(-128));
                _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
            } else {
                _mm256_maddubs_epi16(w, x)
            };
            _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
        }
    }
    #[inline(always)]
    unsafe fn put(v: __m256, lanes: usize, out: Output) {
        // SAFETY: as above: whole vectors only where they are there.
        unsafe {
            let mut y = _mm256_mul_ps(v, _mm256_set1_ps(out.scale));
            if lanes >= 8 {
                if !out.bias.is_null() {
                    y = _mm256_add_ps(y, _mm256_loadu_ps(out.bias));
                }
                if out.accumulate {
                    y = _mm256_add_ps(_mm256_loadu_ps(out.to), y);
                }
                return _mm256_storeu_ps(out.to, y);
            }
            let mut values = [0.0f32; 8];
            _mm256_storeu_ps(values.as_mut_ptr(), y);
            for (lane, y) in values.iter().take(lanes).enumerate() {
                let y = if out.bias.is_null() { *y } else { *y + *out.bias.add(lane) };
                let to = out.to.add(lane);
                *to = if out.accumulate { *to + y } else { y };
            }
        }
    }
}
