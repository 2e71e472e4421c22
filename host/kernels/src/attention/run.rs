//! How an attention is cut into tasks, and how their results come together.
//!
//! A task is some consecutive queries of one cache, one key head with all its query heads, and a
//! range of keys. Single queries (decoding) are cut every [`SPLIT`] keys, so that a long context
//! spreads over the workers; the cuts depend on positions only, and the parts are merged in order.
#![allow(unsafe_code, reason = "workers write disjoint parts of one output")]
#![allow(clippy::indexing_slicing, reason = "tasks are built from ranges checked by the caller")]

use std::cell::RefCell;
use std::ops::Range;

use super::AttentionSpec;
use super::cache::KvLayer;
use super::kernel::{BLOCK, Kernels, Queries, Running};
use super::store::TILE;
use crate::isa::Isa;
use crate::memory::{Buf, Parts};
use crate::pool::Pool;
use crate::quant::Quant;

/// Keys per task of a single query. A multiple of [`BLOCK`].
const SPLIT: usize = 512;

/// Query rows from which on a block of keys and values is widened to floats once for all of them.
const WIDEN: usize = 12;

/// Query rows of a task that came in bulk: enough that making tiles of keys and values for all of
/// them is little beside the products.
const BULK: usize = 192;

/// Some queries, a key head and a range of keys.
pub(super) struct Task {
    pub(super) rows: Range<usize>,
    pub(super) cache: usize,
    pub(super) head: usize,
    pub(super) keys: Range<usize>,
    /// Where the partial result goes, in units of (value row + 2), if the keys were split.
    partial: Option<usize>,
    /// Whether they came in bulk, and there are tiles.
    bulk: bool,
}

/// A query head whose parts must be merged: row, head, first part, number of parts.
type Merge = (usize, usize, usize, usize);

#[derive(Default)]
struct Plan {
    tasks: Vec<Task>,
    merges: Vec<Merge>,
    partials: Buf<f32>,
}

/// A worker's buffers.
#[derive(Default)]
struct Scratch {
    queries: Buf<f32>,
    scores: Buf<f32>,
    sums: Buf<f32>,
    keys: Buf<f32>,
    values: Buf<f32>,
    running: Vec<Running>,
}

thread_local! {
    static PLAN: RefCell<Plan> = RefCell::default();
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// [`super::attention`] with everything checked.
pub(super) fn attend(
    pool: &Pool,
    spec: &AttentionSpec,
    q: &[f32],
    rows: &[(usize, usize)],
    bulk: &[bool],
    caches: &[&KvLayer],
    out: &mut [f32],
) {
    PLAN.with_borrow_mut(|plan| {
        plan.cut(spec, rows, if pool.isa() >= Isa::Amx { bulk } else { &[] }, caches);
        let group = spec.heads / spec.kv_heads;
        let width = spec.head_dim + 2;
        let parts: usize = plan.merges.iter().map(|m| m.3).sum();
        let out = Parts::new(out);
        let Plan { tasks, merges, partials } = plan;
        let partials = Parts::new(partials.resize(parts * width));
        pool.chunks(tasks.len(), 1, &|_, range| {
            for task in &tasks[range] {
                let work = Work { isa: pool.isa(), spec, group, q, rows, caches };
                #[cfg(all(target_arch = "x86_64", not(miri)))]
                if task.bulk {
                    super::tiles::run(&work, task, &out);
                    continue;
                }
                SCRATCH.with_borrow_mut(|scratch| work.run(task, scratch, &partials, &out));
            }
        });
        if merges.is_empty() {
            return;
        }
        let heads = 1 + 4096 / (spec.head_dim * 4);
        pool.chunks(merges.len(), heads, &|_, range| {
            for &(row, head, first, count) in &merges[range] {
                let at = (row * spec.heads + head) * spec.head_dim;
                // SAFETY: the first phase is over, so partials are only read; every query head has
                // one merge, so outputs do not overlap.
                let (parts, out) = unsafe {
                    (
                        partials.part(first * width..(first + count) * width),
                        out.part(at..at + spec.head_dim),
                    )
                };
                merge(pool.isa(), parts, width, sink(spec, head), out);
            }
        });
    });
}

impl Plan {
    fn cut(
        &mut self,
        spec: &AttentionSpec,
        rows: &[(usize, usize)],
        bulk: &[bool],
        caches: &[&KvLayer],
    ) {
        self.tasks.clear();
        self.merges.clear();
        let group = spec.heads / spec.kv_heads;
        // About 48 query rows a task keep keys and values in the first-level cache.
        let single = (if spec.head_dim > 128 { 24 } else { 48 } / group).max(1);
        let marked = |row: usize| bulk.get(row).copied().unwrap_or(false);
        let mut first = 0;
        let mut partial = 0;
        while first < rows.len() {
            let (cache, position) = rows[first];
            let bulk = marked(first);
            let together = if bulk { (BULK / group).max(1) } else { single };
            let mut end = first + 1;
            while end < rows.len()
                && end - first < together
                && marked(end) == bulk
                && rows[end] == (cache, position + end - first)
            {
                end += 1;
            }
            let len = caches[cache].len();
            let low = spec.visible(position, len);
            let high = spec.visible(position + end - first - 1, len);
            let keys = low.start.min(high.start)..low.end.max(high.end);
            let single = end - first == 1 && !bulk;
            // Cuts lie at multiples of the split, whatever the range starts with.
            let cuts = (keys.start / SPLIT)..keys.end.div_ceil(SPLIT).max(keys.start / SPLIT + 1);
            for head in 0..spec.kv_heads {
                if !single || cuts.len() == 1 {
                    let (rows, keys) = (first..end, keys.clone());
                    self.tasks.push(Task { rows, cache, head, keys, partial: None, bulk });
                    continue;
                }
                for cut in cuts.clone() {
                    let keys = keys.start.max(cut * SPLIT)..keys.end.min((cut + 1) * SPLIT);
                    let at = partial + cut - cuts.start;
                    let rows = first..end;
                    // The group's heads follow each other, each with all its parts.
                    self.tasks.push(Task { rows, cache, head, keys, partial: Some(at), bulk });
                }
                for g in 0..group {
                    let at = partial + g * cuts.len();
                    self.merges.push((first, head * group + g, at, cuts.len()));
                }
                partial += group * cuts.len();
            }
            first = end;
        }
        // Longest first, so that the last tasks are small. A stable order of equals.
        self.tasks.sort_by_key(|task| std::cmp::Reverse(task.keys.len() * task.rows.len()));
    }
}

/// What all tasks share.
pub(super) struct Work<'a> {
    pub(super) isa: Isa,
    pub(super) spec: &'a AttentionSpec,
    pub(super) group: usize,
    pub(super) q: &'a [f32],
    pub(super) rows: &'a [(usize, usize)],
    pub(super) caches: &'a [&'a KvLayer],
}

impl Work<'_> {
    fn run(
        &self,
        task: &Task,
        scratch: &mut Scratch,
        partials: &Parts<'_, f32>,
        out: &Parts<'_, f32>,
    ) {
        let spec = self.spec;
        let (dim, group) = (spec.head_dim, self.group);
        let cache = self.caches[task.cache];
        let (key_side, value_side) = cache.sides();
        let (key, stride) = (key_side.padded, value_side.padded);
        let count = task.rows.len() * group;
        let queries = scratch.queries.resize(count * dim);
        for (i, row) in task.rows.clone().enumerate() {
            let from = (row * spec.heads + task.head * group) * dim;
            let to = &mut queries[i * group * dim..(i + 1) * group * dim];
            for (to, from) in to.iter_mut().zip(&self.q[from..from + group * dim]) {
                *to = from * spec.scale;
            }
        }
        let sums = scratch.sums.resize(count * stride);
        sums.fill(0.0);
        scratch.running.clear();
        scratch.running.resize(count, Running::START);
        let scores = scratch.scores.resize(count * BLOCK);
        let view = Queries { start: queries.as_ptr(), count, dim, key, value: stride, stride };
        let kernels = Kernels::of(self.isa);
        let widen = count >= WIDEN;
        let wide = |quant| if widen { Quant::F32 } else { quant };
        let (key_loops, value_loops) =
            (kernels.loops(key_side.quant), kernels.loops(value_side.quant));
        let key_kernel = kernels.loops(wide(key_side.quant)).scores;
        let value_kernel = kernels.loops(wide(value_side.quant)).values;
        let value_bytes = if widen { 4 * stride } else { value_side.row_bytes() };
        let mut start = task.keys.start / TILE * TILE;
        while start < task.keys.end {
            // A block does not go round the end of a ring.
            let end = (start + BLOCK.min(cache.tiles_from(start) * TILE)).min(task.keys.end);
            let tiles = (end - start).div_ceil(TILE);
            let (keys, values) = cache.stored(task.head, start, tiles);
            let (mut keys, mut values) = (keys.as_ptr(), values.as_ptr());
            // SAFETY: the instruction set is offered (a pool's never exceeds that). `stored` gave
            // whole tiles up to `end`; queries, scores and sums have `count` rows, and the wide
            // buffers as many floats as the tiles have numbers.
            unsafe {
                if widen && key_side.quant != Quant::F32 {
                    let wide = scratch.keys.resize(BLOCK * key).as_mut_ptr();
                    (key_loops.widen_keys)(key, keys, tiles, wide);
                    keys = wide.cast();
                }
                if widen && value_side.quant != Quant::F32 {
                    let wide = scratch.values.resize(BLOCK * stride).as_mut_ptr();
                    (value_loops.widen_values)(stride, values, tiles, wide);
                    values = wide.cast();
                }
                (key_kernel)(view, keys, tiles, scores.as_mut_ptr());
            }
            for (m, scores) in scores.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
                let position = self.rows[task.rows.start + m / group].1;
                let visible = spec.visible(position, cache.len());
                let from = visible.start.max(task.keys.start).max(start) - start;
                let to = visible.end.min(end).saturating_sub(start);
                scores[to.min(BLOCK)..].fill(f32::NEG_INFINITY);
                scores[..from.min(BLOCK)].fill(f32::NEG_INFINITY);
                let running = &mut scratch.running[m];
                // SAFETY: the instruction set is offered.
                unsafe { (kernels.softmax)(scores, running, spec.softcap.unwrap_or(0.0)) };
            }
            // Values that no query of the task sees are left alone: they may be anything.
            let skip = task.keys.start.saturating_sub(start);
            // SAFETY: as above; `skip` is below the tile's end.
            unsafe {
                let weights = scores.as_ptr().add(skip);
                let (values, running) = (values.add(skip * value_bytes), scratch.running.as_ptr());
                (value_kernel)(
                    view,
                    weights,
                    running,
                    values,
                    end - start - skip,
                    sums.as_mut_ptr(),
                );
            }
            start = end;
        }
        for (m, running) in scratch.running.iter().enumerate() {
            let sums = &sums[m * stride..m * stride + dim];
            let head = task.head * group + m % group;
            let row = task.rows.start + m / group;
            match task.partial {
                None => {
                    let at = (row * spec.heads + head) * dim;
                    // SAFETY: this row and head belong to this task alone.
                    let out = unsafe { out.part(at..at + dim) };
                    let factor = normalise(running.most, running.total(), sink(spec, head));
                    out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum * factor);
                }
                Some(part) => {
                    let width = dim + 2;
                    let parts = self.parts_of(task);
                    let at = (part + m * parts) * width;
                    // SAFETY: this part of this head belongs to this task alone.
                    let part = unsafe { partials.part(at..at + width) };
                    part[0] = running.most;
                    part[1] = running.total();
                    part[2..].copy_from_slice(sums);
                }
            }
        }
    }

    /// Number of parts the keys of the task's query were cut into.
    fn parts_of(&self, task: &Task) -> usize {
        let (cache, position) = self.rows[task.rows.start];
        let keys = self.spec.visible(position, self.caches[cache].len());
        keys.end.div_ceil(SPLIT) - keys.start / SPLIT
    }
}

pub(super) fn sink(spec: &AttentionSpec, head: usize) -> f32 {
    spec.sinks.as_ref().map_or(f32::NEG_INFINITY, |sinks| sinks[head])
}

/// What a row's sums are multiplied with.
pub(super) fn normalise(row_most: f32, row_total: f32, sink: f32) -> f32 {
    let most = row_most.max(sink);
    if most == f32::NEG_INFINITY && !row_total.is_nan() {
        return 0.0;
    }
    let share = if row_most == most { 1.0 } else { (row_most - most).exp() };
    let total = row_total * share + (sink - most).exp();
    share / total
}

/// Joins the parts of one query head, in order.
fn merge(isa: Isa, parts: &[f32], width: usize, sink: f32, out: &mut [f32]) {
    let most = parts.chunks_exact(width).fold(f32::NEG_INFINITY, |m, part| m.max(part[0]));
    let mut total = 0.0;
    out.fill(0.0);
    for part in parts.chunks_exact(width) {
        let share = if part[0] == most { 1.0 } else { (part[0] - most).exp() };
        total += part[1] * share;
        crate::ops::vector::multiply_add_on(isa, out, share, &part[2..]);
    }
    let factor = normalise(most, total, sink);
    out.iter_mut().for_each(|x| *x *= factor);
}
