//! One token: each panel is read once, its codes live in registers only.

use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

use super::format::{Format, Shape};
use super::vector::Vector;
use super::{Product, ROWS, store};
use crate::act::MAGIC_BITS;

/// How far ahead of the bytes in use the next ones are fetched.
const AHEAD: usize = 2048;

/// Asks for the bytes that will be needed when block `j` of a super-block of another is at hand.
#[inline(always)]
pub(super) fn fetch<F: Format>(block: *const u8, j: usize) {
    let ahead = block.wrapping_add(AHEAD + F::BYTES * j / F::BLOCKS / 64 * 64);
    for line in 0..F::BYTES.div_ceil(64 * F::BLOCKS) {
        // SAFETY: a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(line * 64).cast()) };
    }
}

/// # Safety
/// The instruction set is there, and the product's ranges hold.
#[inline(always)]
pub(super) unsafe fn run<V: Vector, F: Format>(p: &Product<'_>) {
    let mut row = p.first_row;
    let mut weights = p.weights.as_ptr();
    while row < p.end_row {
        // SAFETY: the panel lies inside the weights, the token inside the activations.
        unsafe {
            let sums = panel::<V, F>(p, weights);
            for part in 0..V::PARTS {
                store::<V>(p, row + part * V::LANES, &sums[part..part + 1], 0);
            }
            weights = weights.add(p.panel_bytes);
        }
        row += ROWS;
    }
}

/// The 16 rows of a panel, in as many vectors as they take (the rest is zero).
#[inline(always)]
unsafe fn panel<V: Vector, F: Format>(p: &Product<'_>, weights: *const u8) -> [V::F; 2] {
    // SAFETY: super-blocks, headers and cells are all counted by `supers * F::BLOCKS`, which the
    // ranges were checked against.
    unsafe {
        let codes = p.x.codes.as_slice().as_ptr().cast::<i32>();
        let scale = p.x.scale.as_slice().as_ptr();
        let magic = p.x.magic.as_slice().as_ptr();
        let sum32 = p.x.scaled_sum.as_slice().as_ptr();
        let sum16 = p.x.scaled_halves.as_slice().as_ptr();
        let start = p.x.start.get_unchecked(p.kind.class).as_slice().as_ptr();
        let data = weights.add(p.header_bytes);
        let mut total = [V::splat(0.0); 2];
        for s in 0..p.supers {
            let block = data.add(s * F::BYTES);
            let head = weights.add(s * p.header);
            for j in 0..F::BLOCKS {
                fetch::<F>(block, j);
                let b = s * F::BLOCKS + j;
                let x = codes.add(b * 8);
                let dx = V::splat(*scale.add(b));
                let mx = V::splat(*magic.add(b));
                for part in 0..V::PARTS {
                    let w = F::codes::<V>(block, j, part);
                    let d = F::scales::<V>(block, head, j, part);
                    let mut sum = begin::<V, F>(start, b);
                    for u in 0..4 {
                        sum[0] = dot::<V, F>(sum[0], w[u], *x.add(u));
                        sum[1] = dot::<V, F>(sum[1], w[u + 4], *x.add(u + 4));
                    }
                    let t = &mut total[part];
                    if F::Shape::SIXTEENS {
                        *t = V::fma(V::fma(V::as_float(sum[0]), dx, mx), d[0], *t);
                        *t = V::fma(V::fma(V::as_float(sum[1]), dx, mx), d[1], *t);
                        if F::Shape::MIN {
                            *t = V::fma(d[2], V::splat(*sum16.add(2 * b)), *t);
                            *t = V::fma(d[3], V::splat(*sum16.add(2 * b + 1)), *t);
                        }
                    } else {
                        let sum = V::as_float(V::add32(sum[0], sum[1]));
                        *t = V::fma(V::fma(sum, dx, mx), d[0], *t);
                        if F::Shape::MIN {
                            *t = V::fma(d[1], V::splat(*sum32.add(b)), *t);
                        }
                    }
                }
            }
        }
        total
    }
}

/// The starting accumulators of the two halves of block `b`.
#[inline(always)]
unsafe fn begin<V: Vector, F: Format>(start: *const i32, b: usize) -> [V::I; 2] {
    // SAFETY: the caller's promise: there is a start (or two) per block.
    unsafe {
        let plain = V::SIGNED && F::Shape::WIDE;
        if F::Shape::SIXTEENS {
            let at = |h: usize| if plain { MAGIC_BITS } else { *start.add(2 * b + h) };
            [V::splat32(at(0)), V::splat32(at(1))]
        } else {
            [V::splat32(if plain { MAGIC_BITS } else { *start.add(b) }), V::splat32(0)]
        }
    }
}

#[inline(always)]
unsafe fn dot<V: Vector, F: Format>(sum: V::I, w: V::I, x: i32) -> V::I {
    // SAFETY: no memory; the instruction set is the caller's promise.
    unsafe { if F::Shape::WIDE { V::dot::<true>(sum, w, x) } else { V::dot::<false>(sum, w, x) } }
}
