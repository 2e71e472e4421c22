//! The integer dot with AVX2, and with the 8-bit multiply-add of AVX-512 VNNI.
//!
//! Per 32 values: 8 partial integer sums, converted and scaled together. Offsets and minima need
//! only the activations' code sums, so they are a scalar per block.
#![allow(unsafe_code, reason = "intrinsics on blocks whose length is checked")]
#![allow(clippy::indexing_slicing, reason = "a row has at most as many values as its activations")]

use std::arch::x86_64::*;

use super::Token;
use crate::codec::scale_min;
use crate::quant::Quant;

/// The dot on a processor with AVX2, FMA and F16C.
///
/// # Safety
/// The processor has them. The row is whole blocks of an integer type, no longer than the token.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn avx2(quant: Quant, row: &[u8], token: Token<'_>) -> f32 {
    // SAFETY: the caller's promises, passed on.
    unsafe { row_dot::<false>(quant, row, token) }
}

/// The dot on a processor with AVX-512 VL and VNNI as well.
///
/// # Safety
/// As for [`avx2`].
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) unsafe fn avx512(quant: Quant, row: &[u8], token: Token<'_>) -> f32 {
    // SAFETY: the caller's promises, passed on.
    unsafe { row_dot::<true>(quant, row, token) }
}

/// Sums so far: 8 lanes, and the scalar part.
#[derive(Clone, Copy)]
struct Sums {
    lanes: __m256,
    rest: f32,
}

#[inline(always)]
unsafe fn row_dot<const VNNI: bool>(quant: Quant, row: &[u8], token: Token<'_>) -> f32 {
    let blocks = row.len() / quant.block_bytes() * (quant.block_len() / 32);
    assert!(
        token.codes.len() >= blocks * 32
            && token.scale.len() >= blocks
            && token.scaled_sum.len() >= blocks
            && token.sums.len() >= blocks * 2,
        "activations shorter than the row"
    );
    // SAFETY: the instruction set is the caller's promise; blocks are exact, and the activations
    // hold `blocks` blocks.
    unsafe {
        let mut sums = Sums { lanes: _mm256_setzero_ps(), rest: 0.0 };
        let per_block = quant.block_len() / 32;
        for (b, block) in row.chunks_exact(quant.block_bytes()).enumerate() {
            let at = b * per_block;
            match quant {
                Quant::Q4_0 => {
                    let w = nibbles(block, 2);
                    step::<VNNI>(&mut sums, w, &token, at, half(block, 0), -8.0, 0.0);
                }
                Quant::Q4_1 => {
                    let (w, m) = (nibbles(block, 4), half(block, 2));
                    step::<VNNI>(&mut sums, w, &token, at, half(block, 0), 0.0, m);
                }
                Quant::Q5_0 => {
                    let w = fifth(nibbles(block, 6), block, 2);
                    step::<VNNI>(&mut sums, w, &token, at, half(block, 0), -16.0, 0.0);
                }
                Quant::Q5_1 => {
                    let (w, m) = (fifth(nibbles(block, 8), block, 4), half(block, 2));
                    step::<VNNI>(&mut sums, w, &token, at, half(block, 0), 0.0, m);
                }
                Quant::Q8_0 => {
                    // Signed codes: the sign moves to the activations, which never are -128.
                    let w = load(block, 2);
                    let x = codes(&token, at);
                    let dot = multiply::<VNNI>(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
                    let d = _mm256_set1_ps(half(block, 0) * token.scale[at]);
                    sums.lanes = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), d, sums.lanes);
                }
                Quant::Q4_K | Quant::Q5_K => k_block::<VNNI>(&mut sums, quant, block, &token, at),
                Quant::Q6_K => q6_block::<VNNI>(&mut sums, block, &token, at),
                _ => {}
            }
        }
        add_lanes(sums.lanes) + sums.rest
    }
}

/// Adds one 32-value block: `d * (codes + offset) + m`.
#[inline(always)]
unsafe fn step<const VNNI: bool>(
    sums: &mut Sums,
    w: __m256i,
    token: &Token<'_>,
    at: usize,
    d: f32,
    offset: f32,
    m: f32,
) {
    // SAFETY: the caller's promises.
    unsafe {
        let dot = _mm256_cvtepi32_ps(multiply::<VNNI>(w, codes(token, at)));
        sums.lanes = _mm256_fmadd_ps(dot, _mm256_set1_ps(d * token.scale[at]), sums.lanes);
        sums.rest += (d * offset + m) * token.scaled_sum[at];
    }
}

#[inline(always)]
unsafe fn k_block<const VNNI: bool>(
    sums: &mut Sums,
    quant: Quant,
    block: &[u8],
    token: &Token<'_>,
    at: usize,
) {
    // SAFETY: the caller's promises; offsets are those of the block.
    unsafe {
        let (d, dmin) = (half(block, 0), half(block, 2));
        let five = quant == Quant::Q5_K;
        let (high, base) = if five { (load(block, 16), 48) } else { (_mm256_setzero_si256(), 16) };
        let (fifteen, sixteen) = (_mm256_set1_epi8(15), _mm256_set1_epi8(16));
        for j in 0..8 {
            let (sc, mn) = scale_min(&block[4..16], j);
            let bytes = load(block, base + j / 2 * 32);
            let shifted = if j % 2 == 0 { bytes } else { _mm256_srli_epi16::<4>(bytes) };
            let mut w = _mm256_and_si256(shifted, fifteen);
            if five {
                // Bit j of every byte to bit 4.
                let count = _mm_cvtsi32_si128(j as i32);
                let bit = _mm256_slli_epi16::<4>(_mm256_and_si256(
                    _mm256_srl_epi16(high, count),
                    _mm256_set1_epi8(1),
                ));
                w = _mm256_or_si256(w, _mm256_and_si256(bit, sixteen));
            }
            let m = -dmin * f32::from(mn);
            step::<VNNI>(sums, w, token, at + j, d * f32::from(sc), 0.0, m);
        }
    }
}

#[inline(always)]
unsafe fn q6_block<const VNNI: bool>(sums: &mut Sums, block: &[u8], token: &Token<'_>, at: usize) {
    // SAFETY: the caller's promises; offsets are those of the block.
    unsafe {
        let d = half(block, 208);
        let (fifteen, three) = (_mm256_set1_epi8(15), _mm256_set1_epi8(3));
        for j in 0..8 {
            let (part, quarter) = (j / 4, j % 4);
            let low = load(block, part * 64 + quarter % 2 * 32);
            let low = if quarter < 2 { low } else { _mm256_srli_epi16::<4>(low) };
            let count = _mm_cvtsi32_si128(2 * quarter as i32);
            let high = _mm256_srl_epi16(load(block, 128 + part * 32), count);
            let high = _mm256_slli_epi16::<4>(_mm256_and_si256(high, three));
            let w = _mm256_or_si256(_mm256_and_si256(low, fifteen), high);
            let scale = |g: usize| d * f32::from(block[192 + 2 * j + g] as i8);
            let (first, second) = (scale(0), scale(1));
            let x = token.scale[at + j];
            let scales = _mm256_set_m128(_mm_set1_ps(second * x), _mm_set1_ps(first * x));
            let dot = _mm256_cvtepi32_ps(multiply::<VNNI>(w, codes(token, at + j)));
            sums.lanes = _mm256_fmadd_ps(dot, scales, sums.lanes);
            let (a, b) = (token.sums[2 * (at + j)] as f32, token.sums[2 * (at + j) + 1] as f32);
            sums.rest -= 32.0 * x * (first * a + second * b);
        }
    }
}

/// 32 unsigned codes times 32 signed ones, as 8 sums of 4.
#[inline(always)]
unsafe fn multiply<const VNNI: bool>(w: __m256i, x: __m256i) -> __m256i {
    // SAFETY: no memory; the instruction set is the caller's promise.
    unsafe {
        if VNNI {
            _mm256_dpbusd_epi32(_mm256_setzero_si256(), w, x)
        } else {
            // Codes are at most 128, so pairs stay below 2^15.
            _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), _mm256_set1_epi16(1))
        }
    }
}

#[inline(always)]
unsafe fn codes(token: &Token<'_>, at: usize) -> __m256i {
    // SAFETY: checked on entry: the activations hold block `at`.
    unsafe { _mm256_loadu_si256(token.codes.as_ptr().add(at * 32).cast()) }
}

#[inline(always)]
unsafe fn load(block: &[u8], at: usize) -> __m256i {
    // SAFETY: the slice checks that 32 bytes are there.
    unsafe { _mm256_loadu_si256(block[at..at + 32].as_ptr().cast()) }
}

/// 16 bytes of nibbles as 32 codes.
#[inline(always)]
unsafe fn nibbles(block: &[u8], at: usize) -> __m256i {
    // SAFETY: the slice checks that 16 bytes are there.
    unsafe {
        let bytes = _mm_loadu_si128(block[at..at + 16].as_ptr().cast());
        let both = _mm256_set_m128i(_mm_srli_epi16::<4>(bytes), bytes);
        _mm256_and_si256(both, _mm256_set1_epi8(15))
    }
}

/// Adds the fifth bits, 32 of them at `at`.
#[inline(always)]
unsafe fn fifth(w: __m256i, block: &[u8], at: usize) -> __m256i {
    let bits = crate::codec::u32_at(block, at) as i32;
    // SAFETY: no memory; the instruction set is the caller's promise.
    unsafe {
        // Byte i of the vector gets byte i / 8 of the bits, and keeps bit i % 8.
        let spread = _mm256_setr_epi64x(
            0,
            0x0101_0101_0101_0101,
            0x0202_0202_0202_0202,
            0x0303_0303_0303_0303,
        );
        let bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(bits), spread);
        let masks = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
        let set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, masks), masks);
        _mm256_or_si256(w, _mm256_and_si256(set, _mm256_set1_epi8(16)))
    }
}

#[inline(always)]
unsafe fn half(block: &[u8], at: usize) -> f32 {
    let bits = i32::from(crate::codec::u16_at(block, at));
    // SAFETY: no memory; the instruction set is the caller's promise.
    unsafe { _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits))) }
}

#[inline(always)]
unsafe fn add_lanes(v: __m256) -> f32 {
    // SAFETY: no memory; the instruction set is the caller's promise.
    unsafe {
        let four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
        let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
    }
}
