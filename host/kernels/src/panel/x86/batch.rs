//! Several tokens: some super-blocks of one or two panels are unpacked, and met by all tiles of
//! tokens while they are near.

use std::cell::RefCell;
use std::marker::PhantomData;

use super::format::{Format, Shape};
use super::one::fetch;
use super::vector::Vector;
use super::{Product, ROWS, store};
use crate::act::MAGIC_BITS;
use crate::codec::codes::Levels;
use crate::memory::Buf;

/// Bytes of activations that stay in the second-level cache while panels pass by.
const ACTIVATIONS: usize = 512 << 10;

/// Unpacked weights of up to two panels.
#[derive(Default)]
pub(super) struct Scratch {
    /// Per 32 columns: 8 units, each 64 bytes per panel.
    codes: Buf<u8>,
    /// Per 32 columns: vectors of scales, each 16 per panel.
    scales: Buf<f32>,
}

thread_local! {
    /// A worker's unpacked weights.
    pub(super) static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Where unpacked weights come from.
pub(super) trait Source {
    /// What the products look like.
    type Shape: Shape;
    /// Fills the scratch with `panels` panels from `row` on.
    ///
    /// # Safety
    /// The instruction set is there; the panels are, and the scratch has room for them.
    unsafe fn unpack<V: Vector>(p: &Product<'_>, scratch: &mut Scratch, row: usize, panels: usize);
}

/// Packed panels.
pub(super) struct Packed<F>(PhantomData<F>);

impl<F: Format> Source for Packed<F> {
    type Shape = F::Shape;

    #[inline(always)]
    unsafe fn unpack<V: Vector>(p: &Product<'_>, scratch: &mut Scratch, row: usize, panels: usize) {
        let at = (row - p.first_row) / ROWS;
        for r in 0..panels {
            // SAFETY: the caller's promises.
            unsafe { unpack::<V, F>(p, (at + r) * p.panel_bytes, r, panels, scratch) };
        }
    }
}

/// Rows as the file has them, taken apart in plain code.
pub(super) struct Rows<S>(PhantomData<S>);

impl<S: Shape> Source for Rows<S> {
    type Shape = S;

    unsafe fn unpack<V: Vector>(p: &Product<'_>, scratch: &mut Scratch, row: usize, panels: usize) {
        let (codes, scales) = (scratch.codes.as_mut_slice(), scratch.scales.as_mut_slice());
        let quant = p.matrix.quant();
        let len = quant.block_len();
        // The activations may go on beyond the row's end.
        codes[p.matrix.cols() / 4 * panels * 64..].fill(0);
        scales[p.matrix.cols() / 32 * S::SCALES * panels * ROWS..].fill(0.0);
        for r in 0..panels * ROWS {
            // Rows past the end are not stored: any will do.
            let Some(bytes) = p.matrix.row((row + r).min(p.matrix.rows() - 1)) else { return };
            for (b, block) in bytes.chunks_exact(quant.block_bytes()).enumerate() {
                let levels = Levels::of(quant, block);
                for (unit, four) in levels.q[..len].as_chunks::<4>().0.iter().enumerate() {
                    let at = (b * len / 4 + unit) * panels * 64 + 4 * r;
                    codes[at..at + 4].copy_from_slice(four);
                }
                for j in 0..len / 32 {
                    let mut at = (b * len / 32 + j) * S::SCALES * panels * ROWS + r;
                    for from in [&levels.d, &levels.m].into_iter().take(1 + usize::from(S::MIN)) {
                        for number in &from[2 * j..][..1 + usize::from(S::SIXTEENS)] {
                            scales[at] = *number;
                            at += panels * ROWS;
                        }
                    }
                }
            }
        }
    }
}

/// All panels and tiles.
///
/// # Safety
/// The instruction set is there, and the product's ranges hold.
#[inline(always)]
pub(super) unsafe fn run<V: Vector, U: Source>(p: &Product<'_>, scratch: &mut Scratch) {
    let blocks = p.x.blocks;
    let tiles = p.tokens.div_ceil(p.x.width);
    // Tiles whose codes and scales fit the cache.
    let together = (ACTIVATIONS / (blocks * (32 + 16) * p.x.width).max(1)).max(8);
    scratch.codes.resize(blocks * 8 * 2 * 64);
    scratch.scales.resize(blocks * U::Shape::SCALES * 2 * 16);
    let mut tile = 0;
    while tile < tiles {
        let end = (tile + together).min(tiles);
        let mut row = p.first_row;
        while row < p.end_row {
            let panels = if row + ROWS < p.end_row { 2 } else { 1 };
            // SAFETY: the panels are there, the scratch holds two and is filled before it is used;
            // the tiles are inside the activations.
            unsafe {
                U::unpack::<V>(p, scratch, row, panels);
                tiles_of::<V, U::Shape>(p, scratch, row, panels, tile..end);
            }
            row += 2 * ROWS;
        }
        tile = end;
    }
}

/// Unpacks the panel that starts at byte `at` as panel `r` of `panels`.
#[inline(always)]
unsafe fn unpack<V: Vector, F: Format>(
    p: &Product<'_>,
    at: usize,
    r: usize,
    panels: usize,
    scratch: &mut Scratch,
) {
    let codes = scratch.codes.as_mut_slice().as_mut_ptr();
    let scales = scratch.scales.as_mut_slice().as_mut_ptr();
    // SAFETY: the scratch holds `panels` panels of this many blocks; the panel is whole.
    unsafe {
        let weights = p.weights.as_ptr().add(at);
        let data = weights.add(p.header_bytes);
        for s in 0..p.supers {
            let block = data.add(s * F::BYTES);
            for j in 0..F::BLOCKS {
                fetch::<F>(block, j);
                let b = s * F::BLOCKS + j;
                for part in 0..V::PARTS {
                    let lane = part * V::LANES;
                    let w = F::codes::<V>(block, j, part);
                    for u in 0..8 {
                        let to = codes.add(((b * 8 + u) * panels + r) * 64 + 4 * lane);
                        V::store_codes(to, w[u]);
                    }
                    let d = F::scales::<V>(block, weights.add(s * p.header), j, part);
                    for i in 0..F::Shape::SCALES {
                        let to = scales.add(((b * F::Shape::SCALES + i) * panels + r) * 16 + lane);
                        V::store(to, d[i]);
                    }
                }
            }
        }
    }
}

/// Unpacked panels times the tiles of `range`.
#[inline(always)]
unsafe fn tiles_of<V: Vector, S: Shape>(
    p: &Product<'_>,
    scratch: &Scratch,
    row: usize,
    panels: usize,
    range: std::ops::Range<usize>,
) {
    // SAFETY: the caller's promises, passed on.
    unsafe {
        for tile in range {
            if V::PARTS == 1 {
                match (panels, p.x.width) {
                    (2, 2) => tile_of::<V, S, 2, 2>(p, scratch, row, 2, 0, tile),
                    (2, 3) => tile_of::<V, S, 2, 3>(p, scratch, row, 2, 0, tile),
                    (2, 4) => tile_of::<V, S, 2, 4>(p, scratch, row, 2, 0, tile),
                    (2, 6) => tile_of::<V, S, 2, 6>(p, scratch, row, 2, 0, tile),
                    (_, 8) => {
                        for first in 0..panels {
                            tile_of::<V, S, 1, 8>(p, scratch, row, panels, first, tile);
                        }
                    }
                    (_, 2) => tile_of::<V, S, 1, 2>(p, scratch, row, 1, 0, tile),
                    (_, 3) => tile_of::<V, S, 1, 3>(p, scratch, row, 1, 0, tile),
                    (_, 4) => tile_of::<V, S, 1, 4>(p, scratch, row, 1, 0, tile),
                    (_, 6) => tile_of::<V, S, 1, 6>(p, scratch, row, 1, 0, tile),
                    _ => {}
                }
                continue;
            }
            for part in 0..panels * V::PARTS {
                match p.x.width {
                    2 => tile_of::<V, S, 1, 2>(p, scratch, row, panels, part, tile),
                    4 => tile_of::<V, S, 1, 4>(p, scratch, row, panels, part, tile),
                    _ => {}
                }
            }
        }
    }
}

/// `R` vectors of rows from vector `first` of the scratch's `panels` panels, times one tile,
/// everything in registers.
#[inline(always)]
unsafe fn tile_of<V: Vector, S: Shape, const R: usize, const N: usize>(
    p: &Product<'_>,
    scratch: &Scratch,
    row: usize,
    panels: usize,
    first: usize,
    tile: usize,
) {
    let blocks = p.x.blocks;
    let cell = tile * blocks * N;
    // SAFETY: the tile's cells lie inside the activations, the scratch holds `blocks` blocks.
    unsafe {
        let codes = scratch.codes.as_slice().as_ptr().add(first * V::LANES * 4);
        let scales = scratch.scales.as_slice().as_ptr().add(first * V::LANES);
        let x = p.x.codes.as_slice().as_ptr().cast::<i32>().add(cell * 8);
        let scale = p.x.scale.as_slice().as_ptr().add(cell);
        let magic = p.x.magic.as_slice().as_ptr().add(cell);
        let halves = if S::SIXTEENS { 2 } else { 1 };
        let start = p.x.start.get_unchecked(p.kind.class).as_slice().as_ptr().add(halves * cell);
        let mins = if !S::MIN {
            scale
        } else if S::SIXTEENS {
            p.x.scaled_halves.as_slice().as_ptr().add(2 * cell)
        } else {
            p.x.scaled_sum.as_slice().as_ptr().add(cell)
        };
        let units = 8 / halves;
        let plain = V::SIGNED && S::WIDE;
        let mut total = [[V::splat(0.0); N]; R];
        for b in 0..blocks {
            for h in 0..halves {
                let mut sums = [[V::splat32(0); N]; R];
                for n in 0..N {
                    let v = if plain { MAGIC_BITS } else { *start.add((b * halves + h) * N + n) };
                    for r in 0..R {
                        sums[r][n] = V::splat32(v);
                    }
                }
                for u in h * units..(h + 1) * units {
                    let mut w = [V::splat32(0); R];
                    for r in 0..R {
                        let at = (b * 8 + u) * panels * 64 + r * V::LANES * 4;
                        w[r] = V::load_codes(codes.add(at));
                    }
                    for n in 0..N {
                        let v = *x.add((b * 8 + u) * N + n);
                        for r in 0..R {
                            sums[r][n] = if S::WIDE {
                                V::dot::<true>(sums[r][n], w[r], v)
                            } else {
                                V::dot::<false>(sums[r][n], w[r], v)
                            };
                        }
                    }
                }
                let mut d = [V::splat(0.0); R];
                for r in 0..R {
                    let at = (b * S::SCALES + h) * panels * 16 + r * V::LANES;
                    d[r] = V::load(scales.add(at));
                }
                for n in 0..N {
                    let dx = V::splat(*scale.add(b * N + n));
                    let mx = V::splat(*magic.add(b * N + n));
                    for r in 0..R {
                        let t = V::fma(V::as_float(sums[r][n]), dx, mx);
                        total[r][n] = V::fma(t, d[r], total[r][n]);
                    }
                }
            }
            if S::MIN {
                for h in 0..halves {
                    for r in 0..R {
                        let at = (b * S::SCALES + halves + h) * panels * 16 + r * V::LANES;
                        let m = V::load(scales.add(at));
                        for n in 0..N {
                            let sx = V::splat(*mins.add((b * halves + h) * N + n));
                            total[r][n] = V::fma(m, sx, total[r][n]);
                        }
                    }
                }
            }
        }
        let tokens = (p.tokens - tile * N).min(N);
        for (r, sums) in total.iter().enumerate() {
            store::<V>(p, row + (first + r) * V::LANES, &sums[..tokens], tile * N);
        }
    }
}
