//! Attention of rows that come in bulk, with tiles of bf16.
//!
//! A task's queries stand in pairs of tiles. Keys come in blocks whose bounds depend on positions
//! only, so that no row notices which others share its task. Per block: scores, softmax against the
//! running maximum, weights times values. Everything is split in two bf16 numbers, itself rounded
//! and the rest, and multiplied as `a b + rest(a) b + a rest(b)`: models of 16-bit floats are closer
//! to exact than bf16 is (rounded once, a small model's divergence from it was five times
//! llama.cpp's).
#![allow(unsafe_code, reason = "tiles and vectors over pointers whose ranges are set up here")]
#![allow(clippy::indexing_slicing, reason = "tasks are built from ranges checked by the caller")]

use std::arch::x86_64::*;
use std::cell::RefCell;
use std::ops::Range;

use super::kernel::{Kernels, Running};
use super::run::{Task, Work, normalise, sink};
use super::store::Side;
use super::stored::{Blocks, Numbers, Stored};
use crate::bulk::{SIDE, STEP, TILE};
use crate::memory::{Buf, Parts};
use crate::quant::Quant;
use crate::simd::{Avx512, Brain, Lanes};
use crate::tile::{Tiles, split_pair, split_row};

/// Keys per block.
const KEYS: usize = 256;
/// Keys per tile of the cache.
const HALF: usize = super::store::TILE;
/// Three products make one. Those of a score are one long product, of queries and keys laid out for
/// it; those of values are three, because how many keys they go over differs from task to task.
const TERMS: usize = 3;

/// A worker's tiles.
#[derive(Default)]
struct Scratch {
    queries: Buf<u16>,
    keys: Buf<u16>,
    values: Buf<u16>,
    /// Whole numbers, then rests; values likewise.
    weights: Buf<u16>,
    scores: Buf<f32>,
    sums: Buf<f32>,
    running: Vec<Running>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// A task whose rows came in bulk. Its keys are not split.
pub(super) fn run(work: &Work<'_>, task: &Task, out: &Parts<'_, f32>) {
    SCRATCH.with_borrow_mut(|scratch| {
        // SAFETY: tasks are in bulk only where AMX is offered, AVX-512 and BF16 with it.
        unsafe { attend(work, task, scratch, out) }
    });
}

/// # Safety
/// AMX is offered.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c")]
unsafe fn attend(work: &Work<'_>, task: &Task, scratch: &mut Scratch, out: &Parts<'_, f32>) {
    let (spec, group, dim) = (work.spec, work.group, work.spec.head_dim);
    let cache = work.caches[task.cache];
    let (key_side, value_side) = cache.sides();
    let count = task.rows.len() * group;
    let sides = count.div_ceil(SIDE);
    // Steps of a dot product, panels of a value, tiles of each.
    let (steps, panels) = (key_side.padded.div_ceil(STEP), value_side.padded.div_ceil(SIDE));
    let (dot, stride) = (TERMS * steps * 2 * TILE, panels * SIDE);
    let column = KEYS / STEP * 2 * TILE;

    let queries = scratch.queries.resize(sides * dot);
    // SAFETY: AVX-512 and BF16 are there.
    unsafe { split_queries(work, task, steps, queries) };
    let keys = scratch.keys.resize(KEYS / SIDE * dot);
    let values = scratch.values.resize(2 * panels * column);
    let weights = scratch.weights.resize(2 * column);
    let scores = scratch.scores.resize(SIDE * KEYS);
    let sums = scratch.sums.resize(sides * SIDE * stride);
    sums.fill(0.0);
    scratch.running.clear();
    scratch.running.resize(count, Running::START);
    let softmax = Kernels::of(work.isa).softmax;
    // SAFETY: AMX is offered.
    let tiles = unsafe { Tiles::configure() };

    let mut start = task.keys.start / KEYS * KEYS;
    while start < task.keys.end {
        // Up to the next bound, or where a ring begins again.
        let bound = (start / KEYS + 1) * KEYS;
        let end = bound.min(start + cache.tiles_from(start) * HALF).min(task.keys.end);
        let seen = task.keys.start.saturating_sub(start)..end - start;
        let halves = (end - start).div_ceil(HALF);
        let (stored_keys, stored_values) = cache.stored(task.head, start, halves);
        // SAFETY: `stored` gave whole tiles up to `end`; keys and values have room for a block.
        unsafe {
            unpack_keys(key_side, stored_keys, seen.clone(), steps, keys);
            unpack_values(value_side, stored_values, seen, column, panels * column, values);
        }
        for side in 0..sides {
            let members = side * SIDE..count.min((side + 1) * SIDE);
            let visible = |m: usize| {
                let seen = spec.visible(work.rows[task.rows.start + m / group].1, cache.len());
                seen.start.max(start).min(end) - start..seen.end.min(end).max(start) - start
            };
            let ends = [members.start, members.end - 1].map(visible);
            let low = ends.iter().map(|seen| seen.start).min().unwrap_or(0) / STEP;
            let high = ends.iter().map(|seen| seen.end).max().unwrap_or(0).div_ceil(STEP);
            if low >= high {
                continue;
            }
            for pair in low..high {
                let a = queries[side * dot..].as_ptr();
                let b = keys[pair * dot..].as_ptr();
                let c = scores[pair * STEP..].as_mut_ptr();
                // SAFETY: so many steps of both are there, and 32 columns of every row of scores.
                unsafe { tiles.multiply((a, b, TERMS * steps), (c, KEYS), false) };
            }
            for i in 0..SIDE {
                let m = side * SIDE + i;
                let scores = &mut scores[i * KEYS + low * STEP..i * KEYS + high * STEP];
                if m < count {
                    let seen = visible(m);
                    let (from, to) =
                        (seen.start - low * STEP, seen.end.max(seen.start) - low * STEP);
                    scores[to..].fill(f32::NEG_INFINITY);
                    scores[..from].fill(f32::NEG_INFINITY);
                    let running = &mut scratch.running[m];
                    // SAFETY: the instruction set is offered.
                    unsafe { softmax(scores, running, spec.softcap.unwrap_or(0.0)) };
                    if running.rescale != 1.0 {
                        let rescale = running.rescale;
                        sums[m * stride..(m + 1) * stride].iter_mut().for_each(|x| *x *= rescale);
                    }
                } else {
                    scores.fill(0.0);
                }
                for (step, x) in (low..high).zip(scores.as_chunks::<STEP>().0) {
                    let at = step * 2 * TILE + i * STEP;
                    // SAFETY: AVX-512 and BF16 are there.
                    let [whole, rest] = unsafe { split_row(x) };
                    put(whole, &mut weights[at..]);
                    put(rest, &mut weights[column + at..]);
                }
            }
            for panel in 0..panels {
                let c = sums[side * SIDE * stride + panel * SIDE..].as_mut_ptr();
                for (rest_a, rest_b) in [(0, 0), (1, 0), (0, 1)] {
                    let a = weights[rest_a * column + low * 2 * TILE..].as_ptr();
                    let b = values[(rest_b * panels + panel) * column + low * 2 * TILE..].as_ptr();
                    // SAFETY: as above; 32 columns of the sums of this side's rows are there.
                    unsafe { tiles.multiply((a, b, high - low), (c, stride), true) };
                }
            }
        }
        start = end;
    }
    drop(tiles);
    for (m, running) in scratch.running.iter().enumerate() {
        let head = task.head * group + m % group;
        let at = ((task.rows.start + m / group) * spec.heads + head) * dim;
        // SAFETY: this row and head belong to this task alone.
        let out = unsafe { out.part(at..at + dim) };
        let factor = normalise(running.most, running.total(), sink(spec, head));
        out.iter_mut().zip(&sums[m * stride..]).for_each(|(out, sum)| *out = sum * factor);
    }
}

/// The queries of a task, row after row, each with its group's heads: `steps` steps of each term.
/// Places without a query are zero.
///
/// # Safety
/// AVX-512 and BF16 are there.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn split_queries(work: &Work<'_>, task: &Task, steps: usize, out: &mut [u16]) {
    let (dim, group) = (work.spec.head_dim, work.group);
    let queries = task.rows.clone().flat_map(|row| {
        let from = (row * work.spec.heads + task.head * group) * dim;
        work.q[from..from + group * dim].chunks_exact(dim)
    });
    out.fill(0);
    for (m, query) in queries.enumerate() {
        let side = m / SIDE * TERMS * steps * 2 * TILE;
        for (step, x) in query.chunks(STEP).enumerate() {
            let mut wide = [0.0; STEP];
            wide.iter_mut().zip(x).for_each(|(wide, x)| *wide = x * work.spec.scale);
            // SAFETY: the caller's promise.
            let [whole, rest] = unsafe { split_row(&wide) };
            for (term, row) in [whole, rest, whole].into_iter().enumerate() {
                let at = side + (term * steps + step) * 2 * TILE + m % SIDE * STEP;
                put(row, &mut out[at..]);
            }
        }
    }
}

/// Writes a row of a tile.
#[inline]
#[target_feature(enable = "avx512f")]
fn put(row: __m512i, out: &mut [u16]) {
    // SAFETY: 32 numbers are written.
    unsafe { _mm512_storeu_si512(out[..STEP].as_mut_ptr().cast(), row) };
}

/// # Safety
/// AVX-512 with BF16 is there; `stored` has whole tiles up to the end of `seen`, and `out` room for
/// the tiles of three terms of a block of keys. Keys come with those they share a step with.
unsafe fn unpack_keys(
    side: Side,
    stored: &[u8],
    seen: Range<usize>,
    steps: usize,
    out: &mut [u16],
) {
    let (from, out) = (stored.as_ptr(), out.as_mut_ptr());
    let tiles = seen.start / STEP * (STEP / HALF)..seen.end.div_ceil(HALF);
    // SAFETY: the caller's promises, passed on.
    unsafe {
        match side.quant {
            Quant::F16 => keys::<Numbers<u16>>(side.padded, from, tiles, steps, out),
            Quant::BF16 => keys::<Numbers<Brain>>(side.padded, from, tiles, steps, out),
            Quant::Q8_0 => keys::<Blocks<false>>(side.padded, from, tiles, steps, out),
            Quant::Q4_0 => keys::<Blocks<true>>(side.padded, from, tiles, steps, out),
            _ => keys::<Numbers<f32>>(side.padded, from, tiles, steps, out),
        }
    }
}

/// # Safety
/// As for [`unpack_keys`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c")]
unsafe fn keys<S: Stored>(
    padded: usize,
    from: *const u8,
    tiles: Range<usize>,
    steps: usize,
    out: *mut u16,
) {
    let term = steps * 2 * TILE;
    // SAFETY: dimensions and blocks are below those of a tile; each term has `steps` steps of two
    // tiles for each two tiles of keys.
    unsafe {
        for t in tiles {
            let tile = from.add(t * S::bytes(padded) * HALF);
            let out = out.add(t / 2 * TERMS * term + t % 2 * TILE);
            let mut scales = Avx512::splat(1.0);
            for d in (0..steps * STEP).step_by(2) {
                let at = out.add(d / STEP * 2 * TILE + d % STEP / 2 * STEP);
                let mut two = [Avx512::splat(0.0); 2];
                if d < padded {
                    if S::BLOCK > 0 && d.is_multiple_of(S::BLOCK.max(1)) {
                        scales = S::scales::<Avx512>(tile, d / S::BLOCK.max(1));
                    }
                    for (i, key) in two.iter_mut().enumerate() {
                        *key = S::key::<Avx512>(tile, d + i);
                        if S::BLOCK > 0 {
                            *key = key.mul(scales);
                        }
                    }
                }
                let [a, b] = two;
                let [whole, rest] = split_pair(a.0, b.0);
                _mm512_storeu_si512(at.cast(), whole);
                _mm512_storeu_si512(at.add(term).cast(), whole);
                _mm512_storeu_si512(at.add(2 * term).cast(), rest);
            }
        }
    }
}

/// # Safety
/// AVX-512 with BF16 is there; `stored` has whole tiles up to the end of `seen`, and `out` room for
/// two columns of tiles of a block for each 32 dimensions, all rests `rests` after all whole ones.
unsafe fn unpack_values(
    side: Side,
    stored: &[u8],
    seen: Range<usize>,
    column: usize,
    rests: usize,
    out: &mut [u16],
) {
    let (from, out) = (stored.as_ptr(), out.as_mut_ptr());
    // SAFETY: the caller's promises, passed on.
    unsafe {
        match side.quant {
            Quant::F16 => values::<Numbers<u16>>(side.padded, from, seen, column, rests, out),
            Quant::BF16 => values::<Numbers<Brain>>(side.padded, from, seen, column, rests, out),
            Quant::Q8_0 => values::<Blocks<false>>(side.padded, from, seen, column, rests, out),
            Quant::Q4_0 => values::<Blocks<true>>(side.padded, from, seen, column, rests, out),
            _ => values::<Numbers<f32>>(side.padded, from, seen, column, rests, out),
        }
    }
}

/// Values outside `seen` count as zero: they may be anything.
///
/// # Safety
/// As for [`unpack_values`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c")]
unsafe fn values<S: Stored>(
    padded: usize,
    from: *const u8,
    seen: Range<usize>,
    column: usize,
    rests: usize,
    out: *mut u16,
) {
    let bytes = S::bytes(padded);
    // SAFETY: positions and dimensions are below those of the tiles; the rows of each step of each
    // column are there.
    unsafe {
        for t in (seen.start / STEP * STEP..seen.end.next_multiple_of(STEP)).step_by(2) {
            for d in (0..padded.next_multiple_of(SIDE)).step_by(16) {
                let [a, b] = [t, t + 1].map(|t| {
                    if d < padded && seen.contains(&t) {
                        S::value::<Avx512>(from.add(t * bytes), padded, d)
                    } else {
                        Avx512::splat(0.0)
                    }
                });
                let at = d / SIDE * column + t / STEP * 2 * TILE + d % SIDE / 16 * TILE;
                let out = out.add(at + t % STEP / 2 * STEP);
                let [whole, rest] = split_pair(a.0, b.0);
                _mm512_storeu_si512(out.cast(), whole);
                _mm512_storeu_si512(out.add(rests).cast(), rest);
            }
        }
    }
}
