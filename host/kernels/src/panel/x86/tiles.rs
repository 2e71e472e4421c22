//! Tokens that come in bulk: weights become tiles of bf16, a chunk of columns of some pairs of
//! panels at a time, and meet all tokens while they are near.

use std::arch::x86_64::*;
use std::cell::RefCell;
use std::ops::Range;

use super::batch::Packed;
use super::format::{Format, Shape};
use super::vector::{Avx512, Output, Vector};
use super::{Product, ROWS};
use crate::bulk::{Bulk, SIDE, STEP, TILE};
use crate::codec::decode_blocks;
use crate::memory::Buf;
use crate::tile::{Tiles, pair};

/// Steps of 32 columns of a chunk: a multiple of the longest super-block.
const CHUNK: usize = 16;
/// Pairs of panels that share a chunk of activations.
const PAIRS: usize = 8;

/// A worker's tiles of weights, and the sums of all tokens with them so far.
#[derive(Default)]
pub(super) struct Scratch {
    weights: Buf<u16>,
    sums: Buf<f32>,
}

thread_local! {
    pub(super) static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Where tiles of weights come from.
pub(super) trait Weights {
    /// Writes the tiles of the steps of `steps` of the panel that begins with `row`: 512 numbers
    /// each, one per two steps of `out`. Rows that are not there get any finite number.
    ///
    /// # Safety
    /// AVX-512 with BF16 is there; the row is in the product, the steps are in its columns, and
    /// `out` has room.
    unsafe fn tiles(p: &Product<'_, Bulk>, row: usize, steps: Range<usize>, out: *mut u16);
}

impl<F: Format> Weights for Packed<F> {
    #[inline(always)]
    unsafe fn tiles(p: &Product<'_, Bulk>, row: usize, steps: Range<usize>, out: *mut u16) {
        // SAFETY: the panel is whole and the steps are in it; a step's two tiles are in `out`.
        unsafe {
            let panel = p.weights.as_ptr().add((row - p.first_row) / ROWS * p.panel_bytes);
            let offset = Avx512::splat(-p.kind.offset as f32);
            for s in steps.start / F::BLOCKS..steps.end.div_ceil(F::BLOCKS) {
                let data = panel.add(p.header_bytes + s * F::BYTES);
                for j in 0..F::BLOCKS {
                    let step = s * F::BLOCKS + j;
                    if step >= steps.end {
                        break;
                    }
                    let codes = F::codes::<Avx512>(data, j, 0);
                    let scales = F::scales::<Avx512>(data, panel.add(s * p.header), j, 0);
                    let out = out.add((step - steps.start) * 2 * TILE);
                    let halves = if F::Shape::SIXTEENS { 2 } else { 1 };
                    for h in 0..halves {
                        let d = scales[h];
                        let b =
                            if F::Shape::MIN { scales[halves + h] } else { Avx512::mul(d, offset) };
                        for u in h * 8 / halves..(h + 1) * 8 / halves {
                            brains(codes[u], d, b, out.add(u * 2 * STEP));
                        }
                    }
                }
            }
        }
    }
}

/// Writes the two rows of a tile that are made of one vector of codes: columns 0 and 2 of its four
/// in pairs, then 1 and 3; each `code * d + b`.
///
/// # Safety
/// AVX-512 is there; 64 numbers are writable.
#[inline(always)]
unsafe fn brains(codes: __m512i, d: __m512, b: __m512, out: *mut u16) {
    // SAFETY: the caller's promises.
    unsafe {
        let mask = _mm512_set1_epi32(0xff);
        let value = |code: __m512i| _mm512_fmadd_ps(_mm512_cvtepi32_ps(code), d, b);
        let first = value(_mm512_and_si512(codes, mask));
        let second = value(_mm512_and_si512(_mm512_srli_epi32::<8>(codes), mask));
        let third = value(_mm512_and_si512(_mm512_srli_epi32::<16>(codes), mask));
        let fourth = value(_mm512_srli_epi32::<24>(codes));
        _mm512_store_si512(out.cast(), pair(first, third));
        _mm512_store_si512(out.add(STEP).cast(), pair(second, fourth));
    }
}

/// Rows as the file has them, decoded in plain code.
pub(super) struct Unpacked;

impl Weights for Unpacked {
    unsafe fn tiles(p: &Product<'_, Bulk>, row: usize, steps: Range<usize>, out: *mut u16) {
        // SAFETY: the caller's promise.
        let out = unsafe { std::slice::from_raw_parts_mut(out, steps.len() * 2 * TILE - TILE) };
        let quant = p.matrix.quant();
        let at = |step: usize| step * STEP / quant.block_len() * quant.block_bytes();
        let mut values = [0.0; CHUNK * STEP];
        let values = &mut values[..steps.len() * STEP];
        for r in 0..ROWS {
            // Rows past the end are not stored: any will do.
            let Some(bytes) = p.matrix.row((row + r).min(p.matrix.rows() - 1)) else { return };
            decode_blocks(quant, &bytes[at(steps.start)..at(steps.end)], values);
            for (step, values) in values.as_chunks::<STEP>().0.iter().enumerate() {
                for (i, value) in values.iter().enumerate() {
                    let place = (i / 4 * 2 + i % 2) * STEP + 2 * r + i % 4 / 2;
                    out[step * 2 * TILE + place] = half::bf16::from_f32(*value).to_bits();
                }
            }
        }
    }
}

/// All panels and tokens.
///
/// # Safety
/// AMX is offered, and the product's ranges hold.
#[inline(always)]
pub(super) unsafe fn run<W: Weights>(p: &Product<'_, Bulk>, scratch: &mut Scratch) {
    let steps = p.x.steps();
    let pairs = (p.end_row - p.first_row).div_ceil(SIDE);
    let tokens = p.tokens.div_ceil(SIDE);
    let together = PAIRS.min(pairs);
    let weights = scratch.weights.resize(together * CHUNK.min(steps) * 2 * TILE).as_mut_ptr();
    let sums = scratch.sums.resize(tokens * together * SIDE * SIDE).as_mut_ptr();
    // SAFETY: AMX is offered. Weights and sums have room for `together` pairs, the activations have
    // two tiles for each step of each `SIDE` tokens.
    unsafe {
        let tiles = Tiles::configure();
        for first in (0..pairs).step_by(together) {
            let count = together.min(pairs - first);
            for step in (0..steps).step_by(CHUNK) {
                let chunk = step..(step + CHUNK).min(steps);
                let bytes = chunk.len() * 2 * TILE;
                for pair in 0..count {
                    let row = p.first_row + (first + pair) * SIDE;
                    let out = weights.add(pair * bytes);
                    W::tiles(p, row, chunk.clone(), out);
                    if row + ROWS < p.end_row {
                        W::tiles(p, row + ROWS, chunk.clone(), out.add(TILE));
                    }
                }
                for side in 0..tokens {
                    let x = p.x.tiles().as_ptr().add((side * steps + step) * 2 * TILE);
                    let sums_of = |pair| sums.add((side * together + pair) * SIDE * SIDE);
                    let weights_of = |pair| weights.add(pair * bytes).cast_const();
                    let few = p.tokens - side * SIDE <= SIDE / 2;
                    let mut pair = 0;
                    while pair < count {
                        if few && pair + 1 < count {
                            let w = [pair, pair + 1].map(weights_of);
                            let sums = [pair, pair + 1].map(sums_of);
                            tiles.multiply_few((x, w, chunk.len()), (sums, SIDE), step > 0);
                            pair += 2;
                        } else {
                            let (w, sums) = (weights_of(pair), sums_of(pair));
                            tiles.multiply((x, w, chunk.len()), (sums, SIDE), step > 0);
                            pair += 1;
                        }
                    }
                    if chunk.end == steps {
                        for pair in 0..count {
                            put(p, p.first_row + (first + pair) * SIDE, side, sums_of(pair));
                        }
                    }
                }
            }
        }
    }
}

/// Stores the sums of a pair of panels from `row` on with the tokens of a pair of tiles.
///
/// # Safety
/// AVX-512 is there; 32 x 32 sums are, and the row and the tokens are in the product.
#[inline(always)]
unsafe fn put(p: &Product<'_, Bulk>, row: usize, side: usize, sums: *const f32) {
    let lanes = SIDE.min(p.end_row - row);
    let bias = p.epilogue.bias.map_or(std::ptr::null(), |bias| bias.as_ptr().wrapping_add(row));
    for t in 0..SIDE.min(p.tokens - side * SIDE) {
        let to = p.to.out.pointer(p.to.at(row, side * SIDE + t));
        for from in (0..lanes).step_by(ROWS) {
            let out = Output {
                to: to.wrapping_add(from),
                scale: p.epilogue.scale,
                bias: if bias.is_null() { bias } else { bias.wrapping_add(from) },
                accumulate: p.epilogue.accumulate,
            };
            // SAFETY: the caller's promises; lanes before the end only.
            unsafe {
                let sum = Avx512::load(sums.add(t * SIDE + from));
                Avx512::put(sum, (lanes - from).min(ROWS), out);
            }
        }
    }
}
