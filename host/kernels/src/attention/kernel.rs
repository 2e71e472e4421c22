//! The inner loops of attention: scores of a block of keys, their softmax, the weighted values.
//!
//! Each loop exists per stored type and instruction set. Many queries first have a block of keys
//! and values widened to floats, once for all of them; few read the stored numbers directly.
#![allow(unsafe_code, reason = "vector loops over pointers whose ranges the caller has checked")]
#![allow(
    clippy::indexing_slicing,
    clippy::needless_range_loop,
    reason = "register blocks: constant bounds, unrolled, several arrays by one index"
)]

use super::stored::{Blocks, Numbers, Stored};
use crate::isa::Isa;
use crate::ops::math::{exp_below_zero, tanh};
use crate::quant::Quant;
use crate::simd::{Brain, Lanes, Plain};

/// Keys per block.
pub(super) const BLOCK: usize = 64;
/// Positions per tile of keys.
const TILE: usize = super::store::TILE;

/// Queries of one block: `count` rows of `dim` values each.
#[derive(Clone, Copy)]
pub(super) struct Queries {
    pub(super) start: *const f32,
    pub(super) count: usize,
    pub(super) dim: usize,
    /// Stored dimensions of a key, and of a value.
    pub(super) key: usize,
    pub(super) value: usize,
    /// Values from one row of the accumulators to the next.
    pub(super) stride: usize,
}

/// Scores of `tiles` tiles of keys: row `m`, key `t` goes to `out[m * BLOCK + t]`.
pub(super) type Scores = unsafe fn(q: Queries, keys: *const u8, tiles: usize, out: *mut f32);
/// Multiplies accumulator row `m` with `running[m].rescale` and adds `weights[m * BLOCK + t]` times
/// value `t`, for `count` values.
pub(super) type Values = unsafe fn(
    q: Queries,
    weights: *const f32,
    running: *const Running,
    values: *const u8,
    count: usize,
    out: *mut f32,
);
/// Softmax of one row of scores, whole tiles, against a running maximum.
pub(super) type Softmax = unsafe fn(scores: &mut [f32], running: &mut Running, cap: f32);
/// `tiles` tiles of `padded` dimensions as floats in the same order.
pub(super) type Widen = unsafe fn(padded: usize, from: *const u8, tiles: usize, out: *mut f32);

/// The loops for one stored type.
pub(super) struct Loops {
    pub(super) scores: Scores,
    pub(super) values: Values,
    pub(super) widen_keys: Widen,
    pub(super) widen_values: Widen,
}

/// The loops for one instruction set.
pub(super) struct Kernels {
    float: Loops,
    half: Loops,
    brain: Loops,
    eight: Loops,
    four: Loops,
    pub(super) softmax: Softmax,
}

/// What is known of a row's softmax so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    /// The largest score.
    pub(super) most: f32,
    /// What the accumulator must be multiplied with before the block's values are added.
    pub(super) rescale: f32,
    /// Sum of e^(score - most), in lanes.
    totals: [f32; TILE],
}

impl Running {
    pub(super) const START: Running =
        Running { most: f32::NEG_INFINITY, rescale: 1.0, totals: [0.0; TILE] };

    /// Sum of e^(score - most).
    pub(super) fn total(&self) -> f32 {
        tree(self.totals, |a, b| a + b)
    }
}

/// All lanes joined in pairs.
#[inline(always)]
fn tree(mut lanes: [f32; TILE], join: impl Fn(f32, f32) -> f32) -> f32 {
    let mut width = TILE / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] = join(lanes[i], lanes[i + width]);
        }
        width /= 2;
    }
    lanes[0]
}

macro_rules! kernels {
    ($module:ident, $lanes:ty, $fma:literal $(, $features:literal)?) => {
        mod $module {
            use super::*;

            $(#[target_feature(enable = $features)])?
            unsafe fn scores<S: Stored>(q: Queries, keys: *const u8, tiles: usize, out: *mut f32) {
                // SAFETY: the caller's promises, passed on.
                unsafe { scores_body::<$lanes, S>(q, keys, tiles, out) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn values<S: Stored>(
                q: Queries,
                weights: *const f32,
                running: *const Running,
                values: *const u8,
                count: usize,
                out: *mut f32,
            ) {
                // SAFETY: the caller's promises, passed on.
                unsafe { values_body::<$lanes, S>(q, weights, running, values, count, out) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn widen_keys<S: Stored>(
                padded: usize,
                from: *const u8,
                tiles: usize,
                out: *mut f32,
            ) {
                // SAFETY: the caller's promises, passed on.
                unsafe { widen_keys_body::<$lanes, S>(padded, from, tiles, out) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn widen_values<S: Stored>(
                padded: usize,
                from: *const u8,
                tiles: usize,
                out: *mut f32,
            ) {
                // SAFETY: the caller's promises, passed on.
                unsafe { widen_values_body::<$lanes, S>(padded, from, tiles, out) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn softmax(scores: &mut [f32], running: &mut Running, cap: f32) {
                softmax_body::<$fma>(scores, running, cap);
            }

            const fn loops<S: Stored>() -> Loops {
                Loops {
                    scores: scores::<S>,
                    values: values::<S>,
                    widen_keys: widen_keys::<S>,
                    widen_values: widen_values::<S>,
                }
            }

            pub(super) static KERNELS: Kernels = Kernels {
                float: loops::<Numbers<f32>>(),
                half: loops::<Numbers<u16>>(),
                brain: loops::<Numbers<Brain>>(),
                eight: loops::<Blocks<false>>(),
                four: loops::<Blocks<true>>(),
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
            Isa::Avx512 | Isa::Amx => &avx512::KERNELS,
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Isa::Avx2 => &avx2::KERNELS,
            _ => &plain::KERNELS,
        }
    }

    /// The loops for a stored type.
    pub(super) const fn loops(&self, quant: Quant) -> &Loops {
        match quant {
            Quant::F16 => &self.half,
            Quant::BF16 => &self.brain,
            Quant::Q8_0 => &self.eight,
            Quant::Q4_0 => &self.four,
            _ => &self.float,
        }
    }
}

/// # Safety
/// Queries, `tiles` tiles of keys and `count` rows of scores are accessible.
#[inline(always)]
unsafe fn scores_body<V: Lanes, S: Stored>(
    q: Queries,
    keys: *const u8,
    tiles: usize,
    out: *mut f32,
) {
    let bytes = S::bytes(q.key) * TILE;
    let most = if V::ROWS > 1 { 4 } else { 1 };
    let mut m = 0;
    while m < q.count {
        let rows = rows_of::<V>(q.count - m);
        // SAFETY: rows `m..m + rows` exist; tiles are counted below.
        unsafe {
            let start = q.start.add(m * q.dim);
            let out = out.add(m * BLOCK);
            let mut tile = 0;
            while tile < tiles {
                let key = keys.add(tile * bytes);
                let out = out.add(tile * TILE);
                tile += match (rows, (tiles - tile).min(most)) {
                    (1, 4) => score::<V, S, 1, 4>(q, start, key, out),
                    (2, 4) => score::<V, S, 2, 4>(q, start, key, out),
                    (3, 4) => score::<V, S, 3, 4>(q, start, key, out),
                    (4, 4) => score::<V, S, 4, 4>(q, start, key, out),
                    (6, 4) => score::<V, S, 6, 4>(q, start, key, out),
                    (1, _) => score::<V, S, 1, 1>(q, start, key, out),
                    (2, _) => score::<V, S, 2, 1>(q, start, key, out),
                    (3, _) => score::<V, S, 3, 1>(q, start, key, out),
                    (4, _) => score::<V, S, 4, 1>(q, start, key, out),
                    _ => score::<V, S, 6, 1>(q, start, key, out),
                };
            }
        }
        m += rows;
    }
}

/// `M` queries times `T` tiles of keys, in registers.
#[inline(always)]
unsafe fn score<V: Lanes, S: Stored, const M: usize, const T: usize>(
    q: Queries,
    start: *const f32,
    keys: *const u8,
    out: *mut f32,
) -> usize {
    let bytes = S::bytes(q.key) * TILE;
    // SAFETY: the caller's promises.
    unsafe {
        let mut sums = [[V::splat(0.0); T]; M];
        let mut scales = [V::splat(1.0); T];
        for d in 0..q.dim {
            let mut k = [V::splat(0.0); T];
            for t in 0..T {
                let tile = keys.add(t * bytes);
                k[t] = S::key::<V>(tile, d);
                if S::BLOCK > 0 {
                    if d.is_multiple_of(S::BLOCK.max(1)) {
                        scales[t] = S::scales::<V>(tile, d / S::BLOCK.max(1));
                    }
                    k[t] = k[t].mul(scales[t]);
                }
                if M <= 3 {
                    // The same place of the next block of tiles.
                    V::prefetch(tile.wrapping_add(T * bytes + d * bytes / q.key.max(1)));
                }
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
    T
}

/// Rows taken together of so many that are left.
#[inline(always)]
fn rows_of<V: Lanes>(left: usize) -> usize {
    match left.min(V::ROWS) {
        5 => 4,
        rows => rows,
    }
}

/// # Safety
/// `count` values, rows of weights, of running maxima and of accumulators are accessible.
#[inline(always)]
unsafe fn values_body<V: Lanes, S: Stored>(
    q: Queries,
    weights: *const f32,
    running: *const Running,
    values: *const u8,
    count: usize,
    out: *mut f32,
) {
    let mut m = 0;
    while m < q.count {
        let rows = rows_of::<V>(q.count - m);
        let mut d = 0;
        while d < q.value {
            // SAFETY: rows `m..m + rows` and dimensions `d..d + 64` (or 16) exist.
            unsafe {
                let (w, r) = (weights.add(m * BLOCK), running.add(m));
                let o = out.add(m * q.stride + d);
                let whole = d + 64 <= q.value && V::ROWS > 1;
                match (rows, whole) {
                    (1, true) => weigh::<V, S, 1, 4>(q, w, r, values, d, count, o),
                    (2, true) => weigh::<V, S, 2, 4>(q, w, r, values, d, count, o),
                    (3, true) => weigh::<V, S, 3, 4>(q, w, r, values, d, count, o),
                    (4, true) => weigh::<V, S, 4, 4>(q, w, r, values, d, count, o),
                    (6, true) => weigh::<V, S, 6, 4>(q, w, r, values, d, count, o),
                    (1, _) => weigh::<V, S, 1, 1>(q, w, r, values, d, count, o),
                    (2, _) => weigh::<V, S, 2, 1>(q, w, r, values, d, count, o),
                    (3, _) => weigh::<V, S, 3, 1>(q, w, r, values, d, count, o),
                    (4, _) => weigh::<V, S, 4, 1>(q, w, r, values, d, count, o),
                    _ => weigh::<V, S, 6, 1>(q, w, r, values, d, count, o),
                }
                d += if whole { 64 } else { 16 };
            }
        }
        m += rows;
    }
}

/// `M` accumulators of `D` vectors, rescaled, plus weighted values, in registers.
#[inline(always)]
unsafe fn weigh<V: Lanes, S: Stored, const M: usize, const D: usize>(
    q: Queries,
    weights: *const f32,
    running: *const Running,
    values: *const u8,
    first: usize,
    count: usize,
    out: *mut f32,
) {
    let bytes = S::bytes(q.value);
    // SAFETY: the caller's promises.
    unsafe {
        let mut sums = [[V::splat(0.0); D]; M];
        for m in 0..M {
            let rescale = V::splat((*running.add(m)).rescale);
            for d in 0..D {
                sums[m][d] = V::load(out.add(m * q.stride + d * 16)).mul(rescale);
            }
        }
        for t in 0..count {
            let row = values.add(t * bytes);
            let mut v = [V::splat(0.0); D];
            for d in 0..D {
                v[d] = S::value::<V>(row, q.value, first + d * 16);
            }
            if M <= 3 {
                V::prefetch(row.wrapping_add(BLOCK * bytes));
                V::prefetch(row.wrapping_add(BLOCK * bytes + 64));
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
                sums[m][d].store(out.add(m * q.stride + d * 16));
            }
        }
    }
}

/// # Safety
/// `tiles` tiles are readable, as many floats writable.
#[inline(always)]
unsafe fn widen_keys_body<V: Lanes, S: Stored>(
    padded: usize,
    from: *const u8,
    tiles: usize,
    out: *mut f32,
) {
    // SAFETY: dimensions and blocks are below those of the tile.
    unsafe {
        for t in 0..tiles {
            let tile = from.add(t * S::bytes(padded) * TILE);
            let out = out.add(t * padded * TILE);
            let mut scales = V::splat(1.0);
            for d in 0..padded {
                if S::BLOCK > 0 && d.is_multiple_of(S::BLOCK.max(1)) {
                    scales = S::scales::<V>(tile, d / S::BLOCK.max(1));
                }
                let key = S::key::<V>(tile, d);
                let key = if S::BLOCK > 0 { key.mul(scales) } else { key };
                key.store(out.add(d * TILE));
            }
        }
    }
}

/// # Safety
/// As for [`widen_keys_body`].
#[inline(always)]
unsafe fn widen_values_body<V: Lanes, S: Stored>(
    padded: usize,
    from: *const u8,
    tiles: usize,
    out: *mut f32,
) {
    // SAFETY: positions and dimensions are below those of the tiles.
    unsafe {
        for t in 0..tiles * TILE {
            let row = from.add(t * S::bytes(padded));
            for d in (0..padded).step_by(16) {
                S::value::<V>(row, padded, d).store(out.add(t * padded + d));
            }
        }
    }
}

/// Turns scores into weights relative to the running maximum. Masked keys have minus infinity.
#[inline(always)]
fn softmax_body<const FMA: bool>(scores: &mut [f32], running: &mut Running, cap: f32) {
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
    let most = tree(lanes, |a, b| if b > a { b } else { a });
    let most = if running.most > most { running.most } else { most };
    if most == f32::NEG_INFINITY {
        // Nothing is visible, or everything is NaN: then let it be seen.
        let nan = scores.iter().any(|s| s.is_nan());
        scores.fill(if nan { f32::NAN } else { 0.0 });
        running.rescale = 1.0;
        if nan {
            running.totals = [f32::NAN; TILE];
        }
        return;
    }
    let rescale =
        if running.most == most { 1.0 } else { exp_below_zero::<FMA>(running.most - most) };
    running.rescale = rescale;
    running.most = most;
    let mut totals = running.totals;
    totals.iter_mut().for_each(|total| *total *= rescale);
    for tile in scores.as_chunks_mut::<TILE>().0 {
        for (s, total) in tile.iter_mut().zip(&mut totals) {
            *s = exp_below_zero::<FMA>(*s - most);
            *total += *s;
        }
    }
    running.totals = totals;
}
