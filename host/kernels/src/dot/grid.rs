//! Rows on a grid (IQ1, IQ2, IQ3), straight from their bytes: 64 values at a time, whose points are
//! looked up one by one and multiplied together, with AVX-512 VNNI or AVX2.
#![allow(unsafe_code, reason = "intrinsics on blocks whose length is checked")]
#![allow(clippy::indexing_slicing, reason = "constant bounds")]

use std::arch::x86_64::*;

use super::Token;
use crate::codec::grids::GRIDS;
use crate::codec::points::{Grid, Iq1M, Iq1S, Iq2S, Iq2Xs, Iq2Xxs, Iq3S, Iq3Xxs};
use crate::quant::Quant;

macro_rules! row {
    ($name:ident, $rows:ident, $features:literal) => {
        /// The dot of a row with one token.
        ///
        /// # Safety
        /// The processor has the features. The row is whole blocks of a grid type.
        #[target_feature(enable = $features)]
        pub(super) unsafe fn $name(quant: Quant, row: &[u8], token: Token<'_>) -> f32 {
            // SAFETY: the caller's promises, passed on.
            unsafe {
                match quant {
                    Quant::IQ2_XXS => $rows::<Iq2Xxs>(row, &token),
                    Quant::IQ2_XS => $rows::<Iq2Xs>(row, &token),
                    Quant::IQ2_S => $rows::<Iq2S>(row, &token),
                    Quant::IQ3_XXS => $rows::<Iq3Xxs>(row, &token),
                    Quant::IQ3_S => $rows::<Iq3S>(row, &token),
                    Quant::IQ1_S => $rows::<Iq1S>(row, &token),
                    Quant::IQ1_M => $rows::<Iq1M>(row, &token),
                    _ => f32::NAN,
                }
            }
        }
    };
}

row!(avx512, rows512, "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c");
row!(avx2, rows256, "avx2,fma,f16c");

/// Blocks of the row; the activations hold as many.
fn check<G: Grid>(row: &[u8], token: &Token<'_>) {
    let blocks = row.len() / G::BYTES;
    assert!(
        token.codes.len() >= blocks * 256
            && token.scale.len() >= blocks * 8
            && token.sums.len() >= blocks * 16,
        "activations shorter than the row"
    );
}

#[inline(always)]
unsafe fn rows512<G: Grid>(row: &[u8], token: &Token<'_>) -> f32 {
    check::<G>(row, token);
    let grids = &*GRIDS;
    // SAFETY: blocks are exact, and the activations hold as many.
    unsafe {
        let fours = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
        let twos = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
        let mut total = _mm512_setzero_ps();
        for (b, block) in row.chunks_exact(G::BYTES).enumerate() {
            let (d, n) = G::scales(block);
            let n = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(n.as_ptr().cast())));
            let d = _mm512_mul_ps(_mm512_add_ps(n, _mm512_set1_ps(0.5)), _mm512_set1_ps(d));
            // Times the activations' scales, each of which covers two of the 16.
            let x = _mm256_loadu_ps(token.scale.as_ptr().add(8 * b));
            let x = _mm512_permutexvar_ps(twos, _mm512_castps256_ps512(x));
            let d = _mm512_mul_ps(d, x);
            if G::OFFSET > 0.0 {
                let sums = _mm512_loadu_si512(token.sums.as_ptr().add(16 * b).cast());
                let sums = _mm512_mul_ps(_mm512_cvtepi32_ps(sums), _mm512_set1_ps(-G::OFFSET));
                total = _mm512_fmadd_ps(sums, d, total);
            }
            let mut scales = [0.0f32; 16];
            _mm512_storeu_ps(scales.as_mut_ptr(), d);
            for c in 0..4 {
                let w = G::points(grids, block, c).map(|point| point as i64);
                let w = _mm512_setr_epi64(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]);
                let x = _mm512_loadu_si512(token.codes.as_ptr().add(256 * b + 64 * c).cast());
                let x = if G::OFFSET > 0.0 {
                    x
                } else {
                    _mm512_mask_sub_epi8(x, G::signs(block, c), _mm512_setzero_si512(), x)
                };
                let dot = _mm512_dpbusd_epi32(_mm512_setzero_si512(), w, x);
                let d = _mm_loadu_ps(scales.as_ptr().add(4 * c));
                let d = _mm512_permutexvar_ps(fours, _mm512_castps128_ps512(d));
                total = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), d, total);
            }
        }
        _mm512_reduce_add_ps(total)
    }
}

#[inline(always)]
unsafe fn rows256<G: Grid>(row: &[u8], token: &Token<'_>) -> f32 {
    check::<G>(row, token);
    let grids = &*GRIDS;
    // SAFETY: blocks are exact, and the activations hold as many.
    unsafe {
        let bits = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
        // Byte `i` of a 32-bit word to bytes `8 i..8 i + 8`.
        let spread = _mm256_setr_epi64x(
            0,
            0x0101_0101_0101_0101,
            0x0202_0202_0202_0202,
            0x0303_0303_0303_0303,
        );
        let mut total = _mm256_setzero_ps();
        let mut rest = 0.0f32;
        for (b, block) in row.chunks_exact(G::BYTES).enumerate() {
            let (d, n) = G::scales(block);
            for c in 0..4 {
                let points = G::points(grids, block, c).map(|point| point as i64);
                let signs = if G::OFFSET > 0.0 { 0 } else { G::signs(block, c) };
                for h in 0..2 {
                    let at = 8 * b + 2 * c + h;
                    let [p, q, r, s] = if h == 0 {
                        [points[0], points[1], points[2], points[3]]
                    } else {
                        [points[4], points[5], points[6], points[7]]
                    };
                    let w = _mm256_setr_epi64x(p, q, r, s);
                    let x = _mm256_loadu_si256(token.codes.as_ptr().add(32 * at).cast());
                    let x = if G::OFFSET > 0.0 {
                        x
                    } else {
                        let word = _mm256_set1_epi32((signs >> (32 * h)) as u32 as i32);
                        let set = _mm256_and_si256(_mm256_shuffle_epi8(word, spread), bits);
                        let mask = _mm256_cmpeq_epi8(set, bits);
                        _mm256_sub_epi8(_mm256_xor_si256(x, mask), mask)
                    };
                    // Levels are at most 62, so pairs stay below 2^15.
                    let pairs = _mm256_maddubs_epi16(w, x);
                    let dot = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
                    let g = 4 * c + 2 * h;
                    let x = *token.scale.as_ptr().add(at) * d;
                    let (first, second) =
                        ((f32::from(n[g]) + 0.5) * x, (f32::from(n[g + 1]) + 0.5) * x);
                    let scales = _mm256_set_m128(_mm_set1_ps(second), _mm_set1_ps(first));
                    total = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), scales, total);
                    if G::OFFSET > 0.0 {
                        let sums = token.sums.as_ptr().add(2 * at);
                        rest -= G::OFFSET * (first * *sums as f32 + second * *sums.add(1) as f32);
                    }
                }
            }
        }
        let mut lanes = [0.0f32; 8];
        _mm256_storeu_ps(lanes.as_mut_ptr(), total);
        lanes.iter().sum::<f32>() + rest
    }
}
