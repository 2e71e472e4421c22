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

type Row = unsafe fn(*const u8, &[f32]) -> f32;
type Block = unsafe fn(&[f32], &[f32], usize, &mut [f32]);

struct Kernels {
    float: Row,
    half: Row,
    brain: Row,
    block: Block,
}

macro_rules! kernels {
    ($module:ident, $lanes:ty $(, $features:literal)?) => {
        mod $module {
            use super::*;

            $(#[target_feature(enable = $features)])?
            unsafe fn row<E: Element>(bytes: *const u8, x: &[f32]) -> f32 {
                // SAFETY: the caller's promises, passed on.
                unsafe { row_body::<$lanes, E>(bytes.cast(), x) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn block(rows: &[f32], x: &[f32], cols: usize, out: &mut [f32]) {
                // SAFETY: the caller's promises, passed on.
                unsafe { block_body::<$lanes>(rows, x, cols, out) }
            }

            pub(super) static KERNELS: Kernels =
                Kernels { float: row::<f32>, half: row::<u16>, brain: row::<Brain>, block };
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

/// The dot of a row of F32, F16 or BF16 with `x`; `None` for other types or another length.
pub(crate) fn row(isa: Isa, quant: Quant, bytes: &[u8], x: &[f32]) -> Option<f32> {
    let kernels = of(isa);
    let kernel = match quant {
        Quant::F32 => kernels.float,
        Quant::F16 => kernels.half,
        Quant::BF16 => kernels.brain,
        _ => return None,
    };
    // SAFETY: the bytes are exactly `x.len()` numbers; an `Isa` above scalar is offered.
    (bytes.len() == x.len() * quant.block_bytes()).then(|| unsafe { kernel(bytes.as_ptr(), x) })
}

/// Dots of up to `rows.len() / cols` rows with `x.len() / cols` tokens into
/// `out[token * rows + row]`.
pub(crate) fn block(isa: Isa, rows: &[f32], x: &[f32], cols: usize, out: &mut [f32]) {
    let (r, t) = (rows.len() / cols.max(1), x.len() / cols.max(1));
    assert!(out.len() >= r * t, "output shorter than the block");
    // SAFETY: an `Isa` above scalar is offered; lengths are whole rows of `cols`.
    unsafe { (of(isa).block)(rows, x, cols, out) };
}

/// # Safety
/// The instruction set is there; `x.len()` numbers are readable at `w`.
#[inline(always)]
unsafe fn row_body<V: Lanes, E: Element>(w: *const E, x: &[f32]) -> f32 {
    let n = x.len();
    let p = x.as_ptr();
    // SAFETY: every access is below `n`.
    unsafe {
        let mut sums = [V::splat(0.0); 4];
        let mut i = 0;
        while i + 64 <= n {
            for (j, sum) in sums.iter_mut().enumerate() {
                let at = i + 16 * j;
                *sum = E::load::<V>(w.add(at)).fma(V::load(p.add(at)), *sum);
            }
            i += 64;
        }
        while i + 16 <= n {
            sums[0] = E::load::<V>(w.add(i)).fma(V::load(p.add(i)), sums[0]);
            i += 16;
        }
        let mut total = sums.iter().map(|sum| sum.sum()).sum::<f32>();
        while i < n {
            total += E::one(w.add(i)) * *p.add(i);
            i += 1;
        }
        total
    }
}

/// # Safety
/// The instruction set is there; slices are whole rows of `cols` and `out` holds their products.
#[inline(always)]
unsafe fn block_body<V: Lanes>(rows: &[f32], x: &[f32], cols: usize, out: &mut [f32]) {
    let (count, tokens) = (rows.len() / cols.max(1), x.len() / cols.max(1));
    let mut t = 0;
    while t < tokens {
        let width = (tokens - t).min(TOKENS);
        let mut r = 0;
        while r < count {
            let height = (count - r).min(ROWS);
            // SAFETY: rows `r..r + height` and tokens `t..t + width` exist.
            unsafe {
                let w = rows.as_ptr().add(r * cols);
                let x = x.as_ptr().add(t * cols);
                let out = out.as_mut_ptr().add(t * count + r);
                match (height, width) {
                    (ROWS, TOKENS) => tile::<V, ROWS, TOKENS>(w, x, cols, count, out),
                    (ROWS, _) => tile::<V, ROWS, 1>(w, x, cols, count, out),
                    _ => {
                        for i in 0..height {
                            for j in 0..width {
                                let (w, x) = (w.add(i * cols), x.add(j * cols));
                                tile::<V, 1, 1>(w, x, cols, count, out.add(j * count + i));
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
unsafe fn tile<V: Lanes, const R: usize, const T: usize>(
    w: *const f32,
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
                let row = V::load(w.add(r * cols + i));
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
                    total += *w.add(r * cols + i) * *x.add(t * cols + i);
                }
                *out.add(t * stride + r) = total;
            }
        }
    }
}
