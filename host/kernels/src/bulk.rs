//! Activations of rows that come in bulk, as bf16 in the tiles that AMX multiplies.
//!
//! Pairs of 16 tokens; per pair the steps of 32 columns; per step two tiles, of 16 tokens each; per
//! token its 32 columns, each four of them in the order 0, 2, 1, 3: the order in which codes of four
//! columns, packed in 32 bits, fall apart.
#![allow(unsafe_code, reason = "intrinsics; workers fill disjoint pairs of tiles")]

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::memory::{Buf, Parts};
use crate::pool::Pool;

/// Numbers of a tile of bf16.
pub(crate) const TILE: usize = 16 * 32;
/// Tokens of a pair of tiles.
pub(crate) const SIDE: usize = 32;
/// Columns of a step.
pub(crate) const STEP: usize = 32;

/// The activations of some rows, each of whole steps.
#[derive(Default)]
pub(crate) struct Bulk {
    tokens: usize,
    steps: usize,
    brains: Buf<u16>,
    /// The first row of those given with a value that is no finite number.
    nonfinite: Option<usize>,
}

impl Bulk {
    /// Tiles of the rows of `x` that `rows` names, each of `cols` values. Columns after the last
    /// whole step are left out: the types that use them have rows of whole blocks of 32.
    pub(crate) fn prepare(&mut self, pool: &Pool, x: &[f32], rows: &[u32], cols: usize) {
        let tokens = rows.len();
        (self.tokens, self.steps, self.nonfinite) = (tokens, cols / STEP, None);
        if tokens == 0 {
            return;
        }
        let pair = self.steps * 2 * TILE;
        let pairs = tokens.div_ceil(SIDE);
        let brains = Parts::new(self.brains.resize(pairs * pair));
        let first = AtomicUsize::new(usize::MAX);
        let steps = self.steps;
        pool.chunks(pairs, 1, &|_, range| {
            for index in range {
                // SAFETY: ranges of different pairs do not overlap, and each pair has one worker.
                let tiles = unsafe { brains.part(index * pair..(index + 1) * pair) };
                let rows = rows.chunks(SIDE).nth(index).unwrap_or_default();
                for (row, &token) in rows.iter().enumerate() {
                    let token = token as usize;
                    let Some(x) = x.get(token * cols..token * cols + steps * STEP) else { return };
                    if !fill(x, row, tiles) {
                        first.fetch_min(token, Ordering::Relaxed);
                    }
                }
                for row in rows.len()..SIDE {
                    rows_of(tiles, row).for_each(|row| row.fill(0));
                }
            }
        });
        self.nonfinite = Some(first.into_inner()).filter(|token| *token < usize::MAX);
    }

    /// Number of rows.
    pub(crate) fn tokens(&self) -> usize {
        self.tokens
    }

    /// Steps of 32 columns per row.
    pub(crate) fn steps(&self) -> usize {
        self.steps
    }

    /// The tiles: `2 * steps` of [`TILE`] numbers for each [`SIDE`] tokens.
    pub(crate) fn tiles(&self) -> &[u16] {
        self.brains.as_slice()
    }

    /// The first row of those given with a value that is no finite number.
    pub(crate) fn first_nonfinite(&self) -> Option<usize> {
        self.nonfinite.filter(|_| self.tokens > 0)
    }
}

/// Rounds a token into row `row` of its pair of tiles; whether all of it is finite.
fn fill(x: &[f32], row: usize, tiles: &mut [u16]) -> bool {
    let mut finite = true;
    for (x, to) in x.as_chunks::<STEP>().0.iter().zip(rows_of(tiles, row)) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: tiles are filled only where AVX-512 with BF16 is offered.
        let whole = unsafe { x86::round(x, to) };
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let whole = round(x, to);
        finite &= whole;
    }
    finite
}

/// Row `row` of each step of a pair of tiles.
fn rows_of(tiles: &mut [u16], row: usize) -> impl Iterator<Item = &mut [u16; STEP]> {
    let (rows, _) = tiles.as_chunks_mut::<STEP>();
    rows.iter_mut().skip(row).step_by(SIDE)
}

/// Rounds 32 columns to nearest, ties to even; whether all results are finite.
#[cfg(any(test, not(all(target_arch = "x86_64", not(miri)))))]
fn round(x: &[f32; STEP], to: &mut [u16; STEP]) -> bool {
    let brain = |x: f32| half::bf16::from_f32(x).to_bits();
    for ([a, b, c, d], to) in x.as_chunks::<4>().0.iter().zip(to.as_chunks_mut::<4>().0) {
        *to = [brain(*a), brain(*c), brain(*b), brain(*d)];
    }
    to.iter().all(|brain| brain & 0x7f80 != 0x7f80)
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use super::STEP;
    use std::arch::x86_64::*;

    /// # Safety
    /// AVX-512 F, BW and BF16 are there.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    pub(super) unsafe fn round(x: &[f32; STEP], to: &mut [u16; STEP]) -> bool {
        let order = _mm512_broadcast_i32x4(_mm_setr_epi8(
            0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15,
        ));
        let exponent = _mm512_set1_epi16(0x7f80);
        // SAFETY: 32 floats are there to read, 32 numbers to write.
        unsafe {
            let (low, high) = (_mm512_loadu_ps(x.as_ptr()), _mm512_loadu_ps(x.as_ptr().add(16)));
            let brains = crate::tile::row(low, high);
            _mm512_storeu_si512(to.as_mut_ptr().cast(), _mm512_shuffle_epi8(brains, order));
            _mm512_cmpeq_epi16_mask(_mm512_and_si512(brains, exponent), exponent) == 0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(not(miri))]
    proptest::proptest! {
        /// Numbers below the normal ones become zero on the processor, which the plain code keeps.
        #[test]
        fn the_processor_rounds_as_plain_code_does(bits in proptest::array::uniform32(0u32..)) {
            if crate::isa::offered() < crate::Isa::Amx {
                return Ok(());
            }
            let x = bits.map(|bits| match f32::from_bits(bits) {
                x if x.is_normal() => x,
                _ => 0.0,
            });
            let (mut got, mut want) = ([0; STEP], [0; STEP]);
            // SAFETY: AMX is offered only with BF16.
            let whole = unsafe { x86::round(&x, &mut got) };
            proptest::prop_assert_eq!(whole, round(&x, &mut want));
            proptest::prop_assert_eq!(got, want);
        }
    }

    #[test]
    fn a_token_that_is_not_finite_is_found() {
        let pool = Pool::with_isa(1, false, crate::isa::offered());
        if cfg!(all(target_arch = "x86_64", not(miri))) && pool.isa() < crate::Isa::Amx {
            return;
        }
        let mut bulk = Bulk::default();
        let mut x = vec![1.0; 72 * 64];
        let rows: Vec<u32> = (2..72).collect();
        x[64] = f32::NAN;
        bulk.prepare(&pool, &x, &rows, 64);
        assert_eq!(bulk.first_nonfinite(), None);
        x[40 * 64 + 63] = f32::NAN;
        x[69 * 64] = f32::INFINITY;
        bulk.prepare(&pool, &x, &rows, 64);
        assert_eq!(bulk.first_nonfinite(), Some(40));
    }
}
