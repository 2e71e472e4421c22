//! One to eight tokens: each panel is read once, its codes live in registers only.

use std::arch::x86_64::*;

use super::format::Format;
use super::{Product, ROWS};

/// How far ahead of the bytes in use the next ones are fetched.
const AHEAD: usize = 2048;

/// One token.
///
/// # Safety
/// The processor has AVX-512 VNNI, and the product's ranges hold.
#[inline(always)]
pub(super) unsafe fn one<F: Format>(p: &Product<'_>) {
    // SAFETY: the caller's promises, passed on.
    unsafe { several::<F, 1>(p) }
}

/// `N` tokens (or fewer: the tile's rest is zero).
///
/// # Safety
/// The processor has AVX-512 VNNI, and the product's ranges hold, with tiles of `N`.
#[inline(always)]
pub(super) unsafe fn several<F: Format, const N: usize>(p: &Product<'_>) {
    let mut row = p.first_row;
    let mut weights = p.weights.as_ptr();
    while row < p.end_row {
        // SAFETY: the panel lies inside the weights, the tile inside the activations.
        unsafe {
            let sums = panel::<F, N>(p, weights);
            store(p, row, sums.get_unchecked(..p.tokens.min(N)), 0);
            weights = weights.add(p.panel_bytes);
        }
        row += ROWS;
    }
}

/// The 16 rows of a panel times `N` tokens.
#[inline(always)]
unsafe fn panel<F: Format, const N: usize>(p: &Product<'_>, weights: *const u8) -> [__m512; N] {
    // SAFETY: super-blocks, headers and cells are all counted by `supers * F::BLOCKS`, which the
    // ranges were checked against.
    unsafe {
        let codes = p.x.codes.as_slice().as_ptr().cast::<i32>();
        let scale = p.x.scale.as_slice().as_ptr();
        let magic = p.x.magic.as_slice().as_ptr();
        let scaled_sum = p.x.scaled_sum.as_slice().as_ptr();
        let start = p.x.start.get_unchecked(p.class).as_slice().as_ptr();
        let data = weights.add(p.header_bytes);
        let lines = F::BYTES.div_ceil(64 * F::BLOCKS);
        let mut total = [_mm512_setzero_ps(); N];
        for s in 0..p.supers {
            let block = data.add(s * F::BYTES);
            let head = F::head(block, weights.add(s * 32));
            for j in 0..F::BLOCKS {
                let ahead = block.wrapping_add(AHEAD + F::BYTES * j / F::BLOCKS / 64 * 64);
                for line in 0..lines {
                    _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(line * 64).cast());
                }
                let w = F::codes(block, j);
                let (d, e) = F::scales(head, block, j);
                let b = s * F::BLOCKS + j;
                for n in 0..N {
                    let cell = b * N + n;
                    let x = codes.add(b * 8 * N + n);
                    let dx = _mm512_set1_ps(*scale.add(cell));
                    let mx = _mm512_set1_ps(*magic.add(cell));
                    let (first, second) = if F::SIXTEENS {
                        (*start.add(2 * b * N + n), *start.add((2 * b + 1) * N + n))
                    } else {
                        (*start.add(cell), 0)
                    };
                    let mut low = _mm512_set1_epi32(first);
                    let mut high = _mm512_set1_epi32(second);
                    for u in 0..4 {
                        low = _mm512_dpbusd_epi32(low, w[u], _mm512_set1_epi32(*x.add(u * N)));
                        high = _mm512_dpbusd_epi32(
                            high,
                            w[u + 4],
                            _mm512_set1_epi32(*x.add((u + 4) * N)),
                        );
                    }
                    if F::SIXTEENS {
                        let t = _mm512_fmadd_ps(_mm512_castsi512_ps(low), dx, mx);
                        total[n] = _mm512_fmadd_ps(t, d, total[n]);
                        let t = _mm512_fmadd_ps(_mm512_castsi512_ps(high), dx, mx);
                        total[n] = _mm512_fmadd_ps(t, e, total[n]);
                    } else {
                        let sum = _mm512_add_epi32(low, high);
                        let t = _mm512_fmadd_ps(_mm512_castsi512_ps(sum), dx, mx);
                        total[n] = _mm512_fmadd_ps(t, d, total[n]);
                        if F::MIN {
                            let sx = _mm512_set1_ps(*scaled_sum.add(cell));
                            total[n] = _mm512_fmadd_ps(e, sx, total[n]);
                        }
                    }
                }
            }
        }
        total
    }
}

/// Stores 16 rows from `row` on for consecutive tokens from `token` on.
///
/// # Safety
/// The rows below `end_row` and the tokens are inside the product's output.
#[inline(always)]
pub(super) unsafe fn store(p: &Product<'_>, row: usize, sums: &[__m512], token: usize) {
    let lanes = (p.end_row - row).min(ROWS);
    let mask = (u32::MAX >> (32 - lanes)) as u16;
    // SAFETY: masked accesses touch only rows below `end_row`; the bias has a value per row.
    unsafe {
        let scale = _mm512_set1_ps(p.epilogue.scale);
        let bias = match p.epilogue.bias {
            Some(bias) => _mm512_maskz_loadu_ps(mask, bias.as_ptr().add(row)),
            None => _mm512_setzero_ps(),
        };
        for (t, &sum) in sums.iter().enumerate() {
            let to = p.out.pointer((token + t) * p.stride + row - p.origin);
            let mut y = _mm512_mul_ps(sum, scale);
            if p.epilogue.bias.is_some() {
                y = _mm512_add_ps(y, bias);
            }
            if p.epilogue.accumulate {
                y = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, to), y);
            }
            _mm512_mask_storeu_ps(to, mask, y);
        }
    }
}
