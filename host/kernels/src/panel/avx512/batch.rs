//! Many tokens: pairs of panels are unpacked once per block of tokens and met by tiles of six.

use std::arch::x86_64::*;
use std::cell::RefCell;

use super::format::Format;
use super::small::store;
use super::{Product, ROWS};
use crate::memory::Buf;

/// Tokens per tile.
pub(super) const WIDTH: usize = 6;

/// Bytes of activations that stay in the second-level cache while panels pass by.
const ACTIVATIONS: usize = 512 << 10;

/// Unpacked weights of up to two panels.
#[derive(Default)]
struct Scratch {
    /// Per 32 columns: 8 units, each a vector per panel.
    codes: Buf<u8>,
    /// Per 32 columns: a vector of scales per panel, and one of minima (or second scales).
    scales: Buf<f32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// # Safety
/// The processor has AVX-512 VNNI, and the product's ranges hold, with tiles of [`WIDTH`].
pub(super) unsafe fn run<F: Format>(p: &Product<'_>) {
    // The closure itself is not compiled for AVX-512: the work is in a function that is.
    // SAFETY: the caller's promises, passed on.
    SCRATCH.with_borrow_mut(|scratch| unsafe { groups::<F>(p, scratch) });
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
unsafe fn groups<F: Format>(p: &Product<'_>, scratch: &mut Scratch) {
    let blocks = p.supers * F::BLOCKS;
    let tiles = p.tokens.div_ceil(WIDTH);
    // Tiles whose codes and scales fit the cache.
    let together = (ACTIVATIONS / (blocks * (32 + 16) * WIDTH).max(1)).max(8);
    scratch.codes.resize(blocks * 8 * 2 * 64);
    scratch.scales.resize(blocks * 2 * 2 * 16);
    let mut tile = 0;
    while tile < tiles {
        let end = (tile + together).min(tiles);
        let mut row = p.first_row;
        let mut weights = p.weights.as_ptr();
        while row < p.end_row {
            // SAFETY: one or two whole panels are left; the scratch holds two.
            unsafe {
                if row + ROWS < p.end_row {
                    group::<F, 2>(p, scratch, weights, row, tile, end);
                } else {
                    group::<F, 1>(p, scratch, weights, row, tile, end);
                }
                weights = weights.wrapping_add(2 * p.panel_bytes);
            }
            row += 2 * ROWS;
        }
        tile = end;
    }
}

/// `R` panels times the tiles `from..to`.
#[inline(always)]
unsafe fn group<F: Format, const R: usize>(
    p: &Product<'_>,
    scratch: &mut Scratch,
    weights: *const u8,
    row: usize,
    from: usize,
    to: usize,
) {
    // SAFETY: the caller's promises.
    unsafe {
        let codes = scratch.codes.as_mut_slice().as_mut_ptr();
        let scales = scratch.scales.as_mut_slice().as_mut_ptr();
        for r in 0..R {
            unpack::<F, R>(p, weights.add(r * p.panel_bytes), r, codes, scales);
        }
        for tile in from..to {
            let sums = kernel::<F, R>(p, codes, scales, tile);
            let tokens = (p.tokens - tile * WIDTH).min(WIDTH);
            for (r, sums) in sums.iter().enumerate() {
                store(p, row + r * ROWS, sums.get_unchecked(..tokens), tile * WIDTH);
            }
        }
    }
}

#[inline(always)]
unsafe fn unpack<F: Format, const R: usize>(
    p: &Product<'_>,
    weights: *const u8,
    r: usize,
    codes: *mut u8,
    scales: *mut f32,
) {
    // SAFETY: the scratch holds `R <= 2` panels of this many blocks; the panel is whole.
    unsafe {
        let data = weights.add(p.header_bytes);
        for s in 0..p.supers {
            let block = data.add(s * F::BYTES);
            let head = F::head(block, weights.add(s * 32));
            for j in 0..F::BLOCKS {
                let b = s * F::BLOCKS + j;
                for (u, w) in F::codes(block, j).into_iter().enumerate() {
                    _mm512_store_si512(codes.add(((b * 8 + u) * R + r) * 64).cast(), w);
                }
                let (d, e) = F::scales(head, block, j);
                _mm512_store_ps(scales.add((b * 2 * R + r) * 16), d);
                if F::MIN || F::SIXTEENS {
                    _mm512_store_ps(scales.add(((b * 2 + 1) * R + r) * 16), e);
                }
            }
        }
    }
}

/// Unpacked panels times one tile, everything in registers.
#[inline(always)]
unsafe fn kernel<F: Format, const R: usize>(
    p: &Product<'_>,
    codes: *const u8,
    scales: *const f32,
    tile: usize,
) -> [[__m512; WIDTH]; R] {
    let blocks = p.supers * F::BLOCKS;
    let cell = tile * blocks * WIDTH;
    // SAFETY: the tile's cells lie inside the activations, the scratch holds `blocks` blocks.
    unsafe {
        let x = p.x.codes.as_slice().as_ptr().cast::<i32>().add(cell * 8);
        let scale = p.x.scale.as_slice().as_ptr().add(cell);
        let magic = p.x.magic.as_slice().as_ptr().add(cell);
        let scaled_sum = p.x.scaled_sum.as_slice().as_ptr().add(cell);
        let start = p.x.start.get_unchecked(p.class).as_slice().as_ptr();
        let start = start.add(if F::SIXTEENS { 2 * cell } else { cell });
        let halves = if F::SIXTEENS { 2 } else { 1 };
        let units = 8 / halves;
        let mut total = [[_mm512_setzero_ps(); WIDTH]; R];
        for b in 0..blocks {
            for h in 0..halves {
                let mut sums = [[_mm512_setzero_si512(); WIDTH]; R];
                for n in 0..WIDTH {
                    let v = _mm512_set1_epi32(*start.add((b * halves + h) * WIDTH + n));
                    for r in 0..R {
                        sums[r][n] = v;
                    }
                }
                for u in h * units..(h + 1) * units {
                    let mut w = [_mm512_setzero_si512(); R];
                    for r in 0..R {
                        w[r] = _mm512_load_si512(codes.add(((b * 8 + u) * R + r) * 64).cast());
                    }
                    for n in 0..WIDTH {
                        let v = _mm512_set1_epi32(*x.add((b * 8 + u) * WIDTH + n));
                        for r in 0..R {
                            sums[r][n] = _mm512_dpbusd_epi32(sums[r][n], w[r], v);
                        }
                    }
                }
                let mut d = [_mm512_setzero_ps(); R];
                for r in 0..R {
                    d[r] = _mm512_load_ps(scales.add(((b * 2 + h) * R + r) * 16));
                }
                for n in 0..WIDTH {
                    let dx = _mm512_set1_ps(*scale.add(b * WIDTH + n));
                    let mx = _mm512_set1_ps(*magic.add(b * WIDTH + n));
                    for r in 0..R {
                        let t = _mm512_fmadd_ps(_mm512_castsi512_ps(sums[r][n]), dx, mx);
                        total[r][n] = _mm512_fmadd_ps(t, d[r], total[r][n]);
                    }
                }
                if F::MIN {
                    let mut m = [_mm512_setzero_ps(); R];
                    for r in 0..R {
                        m[r] = _mm512_load_ps(scales.add(((b * 2 + 1) * R + r) * 16));
                    }
                    for n in 0..WIDTH {
                        let sx = _mm512_set1_ps(*scaled_sum.add(b * WIDTH + n));
                        for r in 0..R {
                            total[r][n] = _mm512_fmadd_ps(m[r], sx, total[r][n]);
                        }
                    }
                }
            }
        }
        total
    }
}
