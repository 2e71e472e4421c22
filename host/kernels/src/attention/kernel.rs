//! The inner loops of attention: scores of a block of keys, their softmax, the weighted values.
#![allow(unsafe_code, reason = "vector loops over pointers whose ranges the caller has checked")]
#![allow(
    clippy::indexing_slicing,
    clippy::needless_range_loop,
    reason = "register blocks: constant bounds, unrolled, several arrays by one index"
)]

use crate::isa::Isa;
use crate::ops::math::{exp, tanh};
use crate::simd::{Element, Lanes, Plain};

/// Keys per block.
pub(super) const BLOCK: usize = 64;
/// Positions per tile of keys.
const TILE: usize = super::cache::TILE;

/// Queries of one block: `count` rows of `dim` values each.
#[derive(Clone, Copy)]
pub(super) struct Queries {
    pub(super) start: *const f32,
    pub(super) count: usize,
    pub(super) dim: usize,
    /// Values from one row of the accumulators to the next, and per stored position.
    pub(super) padded: usize,
}

/// Scores of `tiles` tiles of keys: row `m`, key `t` goes to `out[m * BLOCK + t]`.
pub(super) type Scores<E> = unsafe fn(q: Queries, keys: *const E, tiles: usize, out: *mut f32);
/// Adds `weights[m * BLOCK + t]` times value `t`, for `count` values, to accumulator row `m`.
pub(super) type Values<E> =
    unsafe fn(q: Queries, weights: *const f32, values: *const E, count: usize, out: *mut f32);
/// Softmax of one row of scores against a running maximum.
pub(super) type Softmax = unsafe fn(scores: &mut [f32; BLOCK], running: &mut Running, cap: f32);

/// The loops for one instruction set.
pub(super) struct Kernels {
    pub(super) scores_half: Scores<u16>,
    pub(super) scores_float: Scores<f32>,
    pub(super) values_half: Values<u16>,
    pub(super) values_float: Values<f32>,
    pub(super) softmax: Softmax,
}

/// What is known of a row's softmax so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    /// The largest score.
    pub(super) most: f32,
    /// Sum of e^(score - most).
    pub(super) total: f32,
    /// What the accumulator must be multiplied with before the block's values are added.
    pub(super) rescale: f32,
}

impl Running {
    pub(super) const START: Running = Running { most: f32::NEG_INFINITY, total: 0.0, rescale: 1.0 };
}

macro_rules! kernels {
    ($module:ident, $lanes:ty, $fma:literal $(, $features:literal)?) => {
        mod $module {
            use super::*;

            $(#[target_feature(enable = $features)])?
            unsafe fn scores<E: Element>(q: Queries, keys: *const E, tiles: usize, out: *mut f32) {
                // SAFETY: the caller's promises, passed on.
                unsafe { scores_body::<$lanes, E>(q, keys, tiles, out) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn values<E: Element>(
                q: Queries,
                weights: *const f32,
                values: *const E,
                count: usize,
                out: *mut f32,
            ) {
                // SAFETY: the caller's promises, passed on.
                unsafe { values_body::<$lanes, E>(q, weights, values, count, out) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn softmax(scores: &mut [f32; BLOCK], running: &mut Running, cap: f32) {
                softmax_body::<$fma>(scores, running, cap);
            }

            pub(super) static KERNELS: Kernels = Kernels {
                scores_half: scores::<u16>,
                scores_float: scores::<f32>,
                values_half: values::<u16>,
                values_float: values::<f32>,
                softmax,
            };
        }
    };
}

kernels!(plain, Plain, false);
#[cfg(all(target_arch = "x86_64", not(miri)))]
kernels!(avx2, crate::simd::Avx2, true, "avx2,fma,f16c");
#[cfg(all(target_arch = "x86_64", not(miri)))]
kernels!(avx512, crate::simd::Avx512, true, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c");

impl Kernels {
    /// The loops of an instruction set. They may be called only where it is offered.
    pub(super) fn of(isa: Isa) -> &'static Kernels {
        match isa {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Isa::Avx512 => &avx512::KERNELS,
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Isa::Avx2 => &avx2::KERNELS,
            _ => &plain::KERNELS,
        }
    }
}

/// # Safety
/// Queries, `tiles` tiles of `padded * TILE` keys and `count` rows of scores are accessible.
#[inline(always)]
unsafe fn scores_body<V: Lanes, E: Element>(
    q: Queries,
    keys: *const E,
    tiles: usize,
    out: *mut f32,
) {
    let mut m = 0;
    while m < q.count {
        let rows = (q.count - m).min(6);
        // SAFETY: rows `m..m + rows` exist; tiles are counted below.
        unsafe {
            let start = q.start.add(m * q.dim);
            let out = out.add(m * BLOCK);
            let mut tile = 0;
            while tile < tiles {
                let key = keys.add(tile * q.padded * TILE);
                let out = out.add(tile * TILE);
                if tile + 1 < tiles {
                    match rows {
                        1 => score::<V, E, 1, 2>(q, start, key, out),
                        2 => score::<V, E, 2, 2>(q, start, key, out),
                        3 => score::<V, E, 3, 2>(q, start, key, out),
                        4 => score::<V, E, 4, 2>(q, start, key, out),
                        5 => score::<V, E, 5, 2>(q, start, key, out),
                        _ => score::<V, E, 6, 2>(q, start, key, out),
                    }
                } else {
                    match rows {
                        1 => score::<V, E, 1, 1>(q, start, key, out),
                        2 => score::<V, E, 2, 1>(q, start, key, out),
                        3 => score::<V, E, 3, 1>(q, start, key, out),
                        4 => score::<V, E, 4, 1>(q, start, key, out),
                        5 => score::<V, E, 5, 1>(q, start, key, out),
                        _ => score::<V, E, 6, 1>(q, start, key, out),
                    }
                }
                tile += 2;
            }
        }
        m += rows;
    }
}

/// `M` queries times `T` tiles of keys, in registers.
#[inline(always)]
unsafe fn score<V: Lanes, E: Element, const M: usize, const T: usize>(
    q: Queries,
    start: *const f32,
    keys: *const E,
    out: *mut f32,
) {
    // SAFETY: the caller's promises.
    unsafe {
        let mut sums = [[V::splat(0.0); T]; M];
        for d in 0..q.dim {
            let mut k = [V::splat(0.0); T];
            for t in 0..T {
                k[t] = E::load::<V>(keys.add((t * q.padded + d) * TILE));
            }
            for m in 0..M {
                let x = V::splat(*start.add(m * q.dim + d));
                for t in 0..T {
                    sums[m][t] = k[t].fma(x, sums[m][t]);
                }
            }
        }
        for m in 0..M {
            for t in 0..T {
                sums[m][t].store(out.add(m * BLOCK + t * TILE));
            }
        }
    }
}

/// # Safety
/// `count` values of `padded` numbers, rows of weights and of accumulators are accessible.
#[inline(always)]
unsafe fn values_body<V: Lanes, E: Element>(
    q: Queries,
    weights: *const f32,
    values: *const E,
    count: usize,
    out: *mut f32,
) {
    let mut m = 0;
    while m < q.count {
        let rows = (q.count - m).min(6);
        let mut d = 0;
        while d < q.padded {
            // SAFETY: rows `m..m + rows` and dimensions `d..d + 64` (or 16) exist.
            unsafe {
                let w = weights.add(m * BLOCK);
                let v = values.add(d);
                let o = out.add(m * q.padded + d);
                if d + 64 <= q.padded {
                    match rows {
                        1 => weigh::<V, E, 1, 4>(q, w, v, count, o),
                        2 => weigh::<V, E, 2, 4>(q, w, v, count, o),
                        3 => weigh::<V, E, 3, 4>(q, w, v, count, o),
                        4 => weigh::<V, E, 4, 4>(q, w, v, count, o),
                        5 => weigh::<V, E, 5, 4>(q, w, v, count, o),
                        _ => weigh::<V, E, 6, 4>(q, w, v, count, o),
                    }
                    d += 64;
                } else {
                    match rows {
                        1 => weigh::<V, E, 1, 1>(q, w, v, count, o),
                        2 => weigh::<V, E, 2, 1>(q, w, v, count, o),
                        3 => weigh::<V, E, 3, 1>(q, w, v, count, o),
                        4 => weigh::<V, E, 4, 1>(q, w, v, count, o),
                        5 => weigh::<V, E, 5, 1>(q, w, v, count, o),
                        _ => weigh::<V, E, 6, 1>(q, w, v, count, o),
                    }
                    d += 16;
                }
            }
        }
        m += rows;
    }
}

/// `M` accumulators of `D` vectors plus weighted values, in registers.
#[inline(always)]
unsafe fn weigh<V: Lanes, E: Element, const M: usize, const D: usize>(
    q: Queries,
    weights: *const f32,
    values: *const E,
    count: usize,
    out: *mut f32,
) {
    // SAFETY: the caller's promises.
    unsafe {
        let mut sums = [[V::splat(0.0); D]; M];
        for m in 0..M {
            for d in 0..D {
                sums[m][d] = V::load(out.add(m * q.padded + d * 16));
            }
        }
        for t in 0..count {
            let mut v = [V::splat(0.0); D];
            for d in 0..D {
                v[d] = E::load::<V>(values.add(t * q.padded + d * 16));
            }
            for m in 0..M {
                let w = V::splat(*weights.add(m * BLOCK + t));
                for d in 0..D {
                    sums[m][d] = v[d].fma(w, sums[m][d]);
                }
            }
        }
        for m in 0..M {
            for d in 0..D {
                sums[m][d].store(out.add(m * q.padded + d * 16));
            }
        }
    }
}

/// Turns scores into weights relative to the running maximum. Masked keys have minus infinity.
#[inline(always)]
fn softmax_body<const FMA: bool>(scores: &mut [f32; BLOCK], running: &mut Running, cap: f32) {
    if cap > 0.0 {
        let inverse = 1.0 / cap;
        for s in scores.iter_mut() {
            // The mask survives the cap.
            *s = if *s == f32::NEG_INFINITY { *s } else { cap * tanh::<FMA>(*s * inverse) };
        }
    }
    let mut lanes = [f32::NEG_INFINITY; TILE];
    for tile in scores.as_chunks::<TILE>().0 {
        for (lane, &s) in lanes.iter_mut().zip(tile) {
            *lane = if s > *lane { s } else { *lane };
        }
    }
    let most = lanes.iter().fold(running.most, |m, &s| if s > m { s } else { m });
    if most == f32::NEG_INFINITY {
        // Nothing is visible, or everything is NaN: then let it be seen.
        let nan = scores.iter().any(|s| s.is_nan());
        scores.fill(if nan { f32::NAN } else { 0.0 });
        running.rescale = 1.0;
        running.total = if nan { f32::NAN } else { running.total };
        return;
    }
    running.rescale = if running.most == most { 1.0 } else { exp::<FMA>(running.most - most) };
    running.most = most;
    let mut sums = [0.0f32; TILE];
    for tile in scores.as_chunks_mut::<TILE>().0 {
        for (s, sum) in tile.iter_mut().zip(&mut sums) {
            *s = exp::<FMA>(*s - most);
            *sum += *s;
        }
    }
    running.total = running.total * running.rescale + sums.iter().sum::<f32>();
}
