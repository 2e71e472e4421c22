//! Rows on a grid (IQ1, IQ2, IQ3) with AVX-512 VNNI, straight from their bytes: 64 values at a
//! time, whose points are looked up one by one and multiplied together.
#![allow(unsafe_code, reason = "intrinsics on blocks whose length is checked")]
#![allow(clippy::indexing_slicing, reason = "indices are masked to the grid, blocks are whole")]

use std::arch::x86_64::*;

use super::Token;
use crate::codec::grids::{GRIDS, Grids};
use crate::codec::{half_at, iq1_m_scale, u16_at, u32_at};
use crate::quant::Quant;

/// The dot of a row with one token.
///
/// # Safety
/// The processor has the features. The row is whole blocks of a grid type.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) unsafe fn row(quant: Quant, row: &[u8], token: Token<'_>) -> f32 {
    // SAFETY: the caller's promises, passed on.
    unsafe {
        match quant {
            Quant::IQ2_XXS => rows::<Iq2Xxs>(row, &token),
            Quant::IQ2_XS => rows::<Iq2Xs>(row, &token),
            Quant::IQ2_S => rows::<Iq2S>(row, &token),
            Quant::IQ3_XXS => rows::<Iq3Xxs>(row, &token),
            Quant::IQ3_S => rows::<Iq3S>(row, &token),
            Quant::IQ1_S => rows::<Iq1S>(row, &token),
            Quant::IQ1_M => rows::<Iq1M>(row, &token),
            _ => f32::NAN,
        }
    }
}

/// How the bytes of a type name points and scales.
trait Grid {
    /// Bytes per block of 256.
    const BYTES: usize;
    /// What unsigned levels must be reduced by; types without have signs instead.
    const OFFSET: f32;
    /// Eight points of eight levels: values `64 c..64 c + 64`.
    fn points(grids: &Grids, block: &[u8], c: usize) -> [u64; 8];
    /// A set bit for each of those that is negated.
    fn signs(block: &[u8], c: usize) -> u64;
    /// The block's scale, and numbers `n` of which each 16 values' scale is `(n + 0.5)` times it.
    fn scales(block: &[u8]) -> (f32, [u8; 16]);
}

#[inline(always)]
unsafe fn rows<G: Grid>(row: &[u8], token: &Token<'_>) -> f32 {
    let blocks = row.len() / G::BYTES;
    assert!(
        token.codes.len() >= blocks * 256
            && token.scale.len() >= blocks * 8
            && token.sums.len() >= blocks * 16,
        "activations shorter than the row"
    );
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

/// Eight bytes from `at` on.
#[inline(always)]
fn eight(block: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| block[at + i]))
}

/// The eight signs of each 7-bit byte: its bits, and a last one that makes their number even.
#[inline(always)]
fn even(seven: u64) -> u64 {
    let p = seven ^ (seven >> 4);
    let p = p ^ (p >> 2);
    let p = (p ^ (p >> 1)) & 0x0101_0101_0101_0101;
    seven | p << 7
}

/// The signs in two 32-bit words of four 7-bit indices each.
#[inline(always)]
fn signs_of(first: u32, second: u32) -> u64 {
    let m = u64::from(first) | u64::from(second) << 32;
    even(
        (m & 0x0000_007f_0000_007f)
            | (m << 1 & 0x0000_7f00_0000_7f00)
            | (m << 2 & 0x007f_0000_007f_0000)
            | (m << 3 & 0x7f00_0000_7f00_0000),
    )
}

/// Two points of four levels.
#[inline(always)]
fn both(grid: &[[i8; 4]], first: usize, second: usize) -> u64 {
    let four = |i: usize| u32::from_le_bytes(grid[i].map(|level| level as u8));
    u64::from(four(first)) | u64::from(four(second)) << 32
}

#[inline(always)]
fn point(grid: &[[i8; 8]], i: usize) -> u64 {
    u64::from_le_bytes(grid[i].map(|level| level as u8))
}

/// Numbers of 32 values, each for both of its halves.
#[inline(always)]
fn twice(n: impl Fn(usize) -> u8) -> [u8; 16] {
    std::array::from_fn(|g| n(g / 2))
}

struct Iq2Xxs;
impl Grid for Iq2Xxs {
    const BYTES: usize = 66;
    const OFFSET: f32 = 0.0;
    #[inline(always)]
    fn points(grids: &Grids, block: &[u8], c: usize) -> [u64; 8] {
        std::array::from_fn(|i| {
            point(&grids.iq2xxs, usize::from(block[2 + 8 * (2 * c + i / 4) + i % 4]))
        })
    }
    #[inline(always)]
    fn signs(block: &[u8], c: usize) -> u64 {
        signs_of(u32_at(block, 6 + 16 * c), u32_at(block, 14 + 16 * c))
    }
    #[inline(always)]
    fn scales(block: &[u8]) -> (f32, [u8; 16]) {
        (half_at(block, 0) * 0.25, twice(|ib| block[9 + 8 * ib] >> 4))
    }
}

struct Iq2Xs;
impl Grid for Iq2Xs {
    const BYTES: usize = 74;
    const OFFSET: f32 = 0.0;
    #[inline(always)]
    fn points(grids: &Grids, block: &[u8], c: usize) -> [u64; 8] {
        std::array::from_fn(|i| {
            point(&grids.iq2xs, usize::from(u16_at(block, 2 + 16 * c + 2 * i) & 511))
        })
    }
    #[inline(always)]
    fn signs(block: &[u8], c: usize) -> u64 {
        even(u64::from_le_bytes(std::array::from_fn(|i| block[3 + 16 * c + 2 * i] >> 1)))
    }
    #[inline(always)]
    fn scales(block: &[u8]) -> (f32, [u8; 16]) {
        let n = std::array::from_fn(|g| (block[66 + g / 2] >> (4 * (g % 2))) & 15);
        (half_at(block, 0) * 0.25, n)
    }
}

struct Iq2S;
impl Grid for Iq2S {
    const BYTES: usize = 82;
    const OFFSET: f32 = 0.0;
    #[inline(always)]
    fn points(grids: &Grids, block: &[u8], c: usize) -> [u64; 8] {
        let high = u16_at(block, 66 + 2 * c);
        std::array::from_fn(|i| {
            let high = usize::from((high >> (2 * i)) & 3) << 8;
            point(&grids.iq2s, usize::from(block[2 + 8 * c + i]) | high)
        })
    }
    #[inline(always)]
    fn signs(block: &[u8], c: usize) -> u64 {
        eight(block, 34 + 8 * c)
    }
    #[inline(always)]
    fn scales(block: &[u8]) -> (f32, [u8; 16]) {
        let n = std::array::from_fn(|g| (block[74 + g / 2] >> (4 * (g % 2))) & 15);
        (half_at(block, 0) * 0.25, n)
    }
}

struct Iq3Xxs;
impl Grid for Iq3Xxs {
    const BYTES: usize = 98;
    const OFFSET: f32 = 0.0;
    #[inline(always)]
    fn points(grids: &Grids, block: &[u8], c: usize) -> [u64; 8] {
        std::array::from_fn(|i| {
            let at = 2 + 16 * c + 2 * i;
            both(&grids.iq3xxs, usize::from(block[at]), usize::from(block[at + 1]))
        })
    }
    #[inline(always)]
    fn signs(block: &[u8], c: usize) -> u64 {
        signs_of(u32_at(block, 66 + 8 * c), u32_at(block, 70 + 8 * c))
    }
    #[inline(always)]
    fn scales(block: &[u8]) -> (f32, [u8; 16]) {
        (half_at(block, 0) * 0.5, twice(|ib| block[69 + 4 * ib] >> 4))
    }
}

struct Iq3S;
impl Grid for Iq3S {
    const BYTES: usize = 110;
    const OFFSET: f32 = 0.0;
    #[inline(always)]
    fn points(grids: &Grids, block: &[u8], c: usize) -> [u64; 8] {
        let high = usize::from(u16_at(block, 66 + 2 * c));
        std::array::from_fn(|i| {
            let (at, high) = (2 + 16 * c + 2 * i, high >> (2 * i));
            let first = usize::from(block[at]) | (high & 1) << 8;
            let second = usize::from(block[at + 1]) | (high >> 1 & 1) << 8;
            both(&grids.iq3s, first, second)
        })
    }
    #[inline(always)]
    fn signs(block: &[u8], c: usize) -> u64 {
        eight(block, 74 + 8 * c)
    }
    #[inline(always)]
    fn scales(block: &[u8]) -> (f32, [u8; 16]) {
        let n = twice(|ib| (block[106 + ib / 2] >> (4 * (ib % 2))) & 15);
        (half_at(block, 0) * 2.0, n)
    }
}

/// The points of IQ1 in eighths, shifted and made positive.
struct Iq1S;
impl Grid for Iq1S {
    const BYTES: usize = 50;
    const OFFSET: f32 = 9.0;
    #[inline(always)]
    fn points(grids: &Grids, block: &[u8], c: usize) -> [u64; 8] {
        std::array::from_fn(|i| {
            let (ib, l) = (2 * c + i / 4, i % 4);
            let high = usize::from(u16_at(block, 34 + 2 * ib));
            let index = usize::from(block[2 + 4 * ib + l]) | (high >> (3 * l) & 7) << 8;
            u64::from_le_bytes(grids.iq1_shifted[index | high >> 15 << 11])
        })
    }
    #[inline(always)]
    fn signs(_: &[u8], _: usize) -> u64 {
        0
    }
    #[inline(always)]
    fn scales(block: &[u8]) -> (f32, [u8; 16]) {
        (half_at(block, 0) * 0.25, twice(|ib| (block[35 + 2 * ib] >> 4) & 7))
    }
}

struct Iq1M;
impl Grid for Iq1M {
    const BYTES: usize = 56;
    const OFFSET: f32 = 9.0;
    #[inline(always)]
    fn points(grids: &Grids, block: &[u8], c: usize) -> [u64; 8] {
        std::array::from_fn(|i| {
            let i = 8 * c + i;
            let high = usize::from(block[32 + i / 2]) >> (4 * (i % 2));
            let index = usize::from(block[i]) | (high & 7) << 8 | (high & 8) << 8;
            u64::from_le_bytes(grids.iq1_shifted[index])
        })
    }
    #[inline(always)]
    fn signs(_: &[u8], _: usize) -> u64 {
        0
    }
    #[inline(always)]
    fn scales(block: &[u8]) -> (f32, [u8; 16]) {
        let n = std::array::from_fn(|g| (u16_at(block, 48 + g / 4 * 2) >> (3 * (g % 4)) & 7) as u8);
        (iq1_m_scale(block) * 0.25, n)
    }
}
