//! Dot products with float activations: rows of floats, half floats and bfloat16 as they are, and
//! blocks of decoded rows against blocks of tokens.
#![allow(unsafe_code, reason = "vector loops over pointers whose ranges are checked on entry")]
#![allow(
    clippy::indexing_slicing,
    clippy::needless_range_loop,
    reason = "register blocks: constant bounds, unrolled, several arrays by one index"
)]

use crate::isa::Isa;
use crate::quant::Quant;
use crate::simd::{Brain, Element, Lanes, Plain};

/// Rows and tokens of one register block.
const ROWS: usize = 4;
const TOKENS: usize = 2;

/// Dots of `count` rows of `cols` numbers with whole tokens of `x`.
type Block = unsafe fn(rows: *const u8, count: usize, x: &[f32], cols: usize, out: &mut [f32]);

struct Kernels {
    float: Block,
    half: Block,
    brain: Block,
}

macro_rules! kernels {
    ($module:ident, $lanes:ty $(, $features:literal)?) => {
        mod $module {
            use super::*;

            $(#[target_feature(enable = $features)])?
            unsafe fn block<E: Element>(
                rows: *const u8,
                count: usize,
                x: &[f32],
                cols: usize,
                out: &mut [f32],
            ) {
                // SAFETY: the caller's promises, passed on.
                unsafe { block_body::<$lanes, E>(rows.cast(), count, x, cols, out) }
            }

            pub(super) static KERNELS: Kernels =
                Kernels { float: block::<f32>, half: block::<u16>, brain: block::<Brain> };
        }
    };
}

kernels!(plain, Plain);
#[cfg(all(target_arch = "x86_64", not(miri)))]
kernels!(avx2, crate::simd::Avx2, "avx2,fma,f16c");
#[cfg(all(target_arch = "x86_64", not(miri)))]
kernels!(avx512, crate::simd::Avx512, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c");

fn of(isa: Isa) -> &'static Kernels {
    match isa {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        Isa::Avx512 | Isa::Amx => &avx512::KERNELS,
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        Isa::Avx2 => &avx2::KERNELS,
        _ => &plain::KERNELS,
    }
}

/// Dots of rows of F32, F16 or BF16, of `cols` numbers each, with `x.len() / cols` tokens into
/// `out[token * rows + row]`. A row and a token are summed in the same order whatever else is there.
/// Whether the type is one of these.
pub(crate) fn block(
    isa: Isa,
    quant: Quant,
    rows: &[u8],
    x: &[f32],
    cols: usize,
    out: &mut [f32],
) -> bool {
    let kernels = of(isa);
    let kernel = match quant {
        Quant::F32 => kernels.float,
        Quant::F16 => kernels.half,
        Quant::BF16 => kernels.brain,
        _ => return false,
    };
    let (count, tokens) = (rows.len() / (cols * quant.block_bytes()).max(1), x.len() / cols.max(1));
    assert!(out.len() >= count * tokens, "output shorter than the block");
    // SAFETY: an `Isa` above scalar is offered; lengths are whole rows and tokens of `cols`.
    unsafe { kernel(rows.as_ptr(), count, x, cols, out) };
    true
}

/// # Safety
/// The instruction set is there; `count` rows of `cols` numbers are readable at `rows`, `x` is whole
/// tokens and `out` holds their products.
#[inline(always)]
unsafe fn block_body<V: Lanes, E: Element>(
    rows: *const E,
    count: usize,
    x: &[f32],
    cols: usize,
    out: &mut [f32],
) {
    let tokens = x.len() / cols.max(1);
    let mut t = 0;
    while t < tokens {
        let width = (tokens - t).min(TOKENS);
        let mut r = 0;
        while r < count {
            let height = (count - r).min(ROWS);
            // SAFETY: rows `r..r + height` and tokens `t..t + width` exist.
            unsafe {
                let w = rows.add(r * cols);
                let x = x.as_ptr().add(t * cols);
                let out = out.as_mut_ptr().add(t * count + r);
                match (height, width) {
                    (ROWS, TOKENS) => tile::<V, E, ROWS, TOKENS>(w, x, cols, count, out),
                    (ROWS, _) => tile::<V, E, ROWS, 1>(w, x, cols, count, out),
                    _ => {
                        for i in 0..height {
                            for j in 0..width {
                                let (w, x) = (w.add(i * cols), x.add(j * cols));
                                tile::<V, E, 1, 1>(w, x, cols, count, out.add(j * count + i));
                            }
                        }
                    }
                }
            }
            r += height;
        }
        t += width;
    }
}

#[inline(always)]
unsafe fn tile<V: Lanes, E: Element, const R: usize, const T: usize>(
    w: *const E,
    x: *const f32,
    cols: usize,
    stride: usize,
    out: *mut f32,
) {
    // SAFETY: the caller's promises; every access is below `cols`.
    unsafe {
        let mut sums = [[V::splat(0.0); T]; R];
        let mut i = 0;
        while i + 16 <= cols {
            let mut v = [V::splat(0.0); T];
            for t in 0..T {
                v[t] = V::load(x.add(t * cols + i));
            }
            for r in 0..R {
                let row = E::load::<V>(w.add(r * cols + i));
                for t in 0..T {
                    sums[r][t] = row.fma(v[t], sums[r][t]);
                }
            }
            i += 16;
        }
        for r in 0..R {
            for t in 0..T {
                let mut total = sums[r][t].sum();
                for i in i..cols {
                    total += E::one(w.add(r * cols + i)) * *x.add(t * cols + i);
                }
                *out.add(t * stride + r) = total;
            }
        }
    }
}
