//! What the bytes of the grid types (IQ1, IQ2, IQ3) name: points, signs and scales. Plain code
//! that the kernels of every instruction set share.
#![allow(clippy::indexing_slicing, reason = "indices are masked to the grid, blocks are whole")]

use super::grids::{GRIDS, Grids};
use super::{half_at, iq1_m_scale, u16_at, u32_at};
use crate::quant::Quant;

/// How the bytes of a type name points and scales.
pub(crate) trait Grid {
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

/// A grid block as the integer kernels see it: levels plus 128, and a scale per 16 values.
pub(super) fn levels(quant: Quant, block: &[u8], q: &mut [u8; 256], d: &mut [f32; 16]) {
    match quant {
        Quant::IQ2_XXS => levels_of::<Iq2Xxs>(block, q, d),
        Quant::IQ2_XS => levels_of::<Iq2Xs>(block, q, d),
        Quant::IQ2_S => levels_of::<Iq2S>(block, q, d),
        Quant::IQ3_XXS => levels_of::<Iq3Xxs>(block, q, d),
        Quant::IQ3_S => levels_of::<Iq3S>(block, q, d),
        Quant::IQ1_S => levels_of::<Iq1S>(block, q, d),
        _ => levels_of::<Iq1M>(block, q, d),
    }
}

fn levels_of<G: Grid>(block: &[u8], q: &mut [u8; 256], d: &mut [f32; 16]) {
    let grids = &*GRIDS;
    let (scale, n) = G::scales(block);
    for (d, n) in d.iter_mut().zip(n) {
        *d = (f32::from(n) + 0.5) * scale;
    }
    for (c, q) in q.as_chunks_mut::<64>().0.iter_mut().enumerate() {
        let signs = G::signs(block, c).to_le_bytes();
        let points = G::points(grids, block, c);
        for ((q, point), signs) in q.as_chunks_mut::<8>().0.iter_mut().zip(points).zip(signs) {
            for (j, (q, level)) in q.iter_mut().zip(point.to_le_bytes()).enumerate() {
                let negative = (signs >> j) & 1 == 1;
                *q = if negative { 128 - level } else { 128 - G::OFFSET as u8 + level };
            }
        }
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

/// See [`Grid`].
pub(crate) struct Iq2Xxs;
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

/// See [`Grid`].
pub(crate) struct Iq2Xs;
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

/// See [`Grid`].
pub(crate) struct Iq2S;
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

/// See [`Grid`].
pub(crate) struct Iq3Xxs;
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

/// See [`Grid`].
pub(crate) struct Iq3S;
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
pub(crate) struct Iq1S;
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

/// See [`Grid`].
pub(crate) struct Iq1M;
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
