//! The forward pass: a plan over a batch of rows, each a token of some sequence.
//!
//! Rows of several sequences share one pass, so weights are read once for all of them. Results do
//! not depend on the number of threads, and a row's result does not depend on which other rows
//! share its pass beyond the kernels' choice of an algorithm for the batch's size.

mod batch;
mod elementwise;
mod mixture;
mod recurrent;

use arrayvec::ArrayVec;
use gristmill_core::{Code, Error, Result};
use gristmill_kernels::{
    AttentionSpec, Job, KernelError, KvLayer, Matrix, Pool, attention, glu_linear, linear,
    ops::{self, RopeStyle, Rotations},
};

use batch::Apart;
pub use batch::{Arena, Row, Want};

use crate::{
    cache::Cache,
    logits::{self, BLOCK},
    nonfinite,
    plan::{MOST_PRODUCTS, Phase, Plan, Product, Slot, Work},
    program::{self, Activation, Attention, Head, Layout, Pooling},
    reference::{pool as pool_rows, position_scale},
    weights::Weights,
};
use elementwise::{by_blocks, by_rows, by_rows_from};

/// Sequences in one pass.
pub const MOST_SEQUENCES: usize = 64;

/// Everything one pass reads.
#[derive(Debug, Clone, Copy)]
pub struct Model<'a> {
    /// What is done.
    pub plan: &'a Plan,
    /// With which numbers.
    pub weights: &'a Weights,
    /// By whom.
    pub pool: &'a Pool,
}

impl Model<'_> {
    /// Computes `rows`. Each sequence's rows must be in order of position and continue its cache.
    /// Afterwards the arena holds logits of the rows that wanted them, or with [`Want::Hidden`] the
    /// hidden state of all rows, and the caches hold the new tokens.
    ///
    /// # Errors
    /// `internal` naming the step; the caches that took part must then be dropped.
    pub fn run(
        &self,
        arena: &mut Arena,
        rows: &[Row],
        caches: &mut [&mut Cache],
        want: Want,
    ) -> Result<()> {
        self.run_unless(arena, rows, caches, want, &|| false)
    }

    /// The same, unless `abandoned` says between two phases that nobody wants it any more; then the
    /// caches are as they were.
    ///
    /// # Errors
    /// As [`Model::run`], and `cancelled`.
    pub fn run_unless(
        &self,
        arena: &mut Arena,
        rows: &[Row],
        caches: &mut [&mut Cache],
        want: Want,
        abandoned: &dyn Fn() -> bool,
    ) -> Result<()> {
        self.phases(arena, rows, caches, want, abandoned, &|_, _| Ok(()))
    }

    /// All phases; after each, `look` may object.
    fn phases(
        &self,
        arena: &mut Arena,
        rows: &[Row],
        caches: &mut [&mut Cache],
        want: Want,
        abandoned: &dyn Fn() -> bool,
        look: &dyn Fn(&Phase, &Arena) -> Result<()>,
    ) -> Result<()> {
        arena.begin(self.plan, rows, caches.len(), want)?;
        for (index, cache) in caches.iter_mut().enumerate() {
            cache.begin(rows.iter().filter(|row| row.cache == index).count());
        }
        let tables = self.plan.ropes.len();
        for table in 0..tables {
            let rotations = arena
                .rotations
                .get_mut(table)
                .ok_or_else(|| Error::internal("no such rotations"))?;
            self.weights.table(table)?.rotations(&arena.positions, rotations);
        }
        for phase in &self.plan.phases {
            if want == Want::Hidden && matches!(phase.work, Work::Head { .. }) {
                continue;
            }
            if abandoned() {
                caches.iter_mut().for_each(|cache| cache.roll_back());
                return Err(Error::new(Code::Cancelled, "nobody waits for this pass any more"));
            }
            self.phase(phase, arena, rows, caches)
                .map_err(|error| place(self.plan, phase, error))?;
            look(phase, arena)?;
        }
        for row in rows {
            if let Some(cache) = caches.get_mut(row.cache) {
                cache.accept(row.token);
            }
        }
        Ok(())
    }

    /// Computes `rows` and looks at every buffer after every phase.
    ///
    /// # Errors
    /// `non-finite` for the first phase whose result is no finite number; as [`Model::run`].
    pub(crate) fn search(
        &self,
        arena: &mut Arena,
        rows: &[Row],
        caches: &mut [&mut Cache],
    ) -> Result<()> {
        arena.clear();
        let position = rows.first().map_or(0, |row| row.position);
        let look = |phase: &Phase, arena: &Arena| {
            if arena.finite(self.plan) {
                return Ok(());
            }
            Err(nonfinite::blame(self.plan, self.weights, phase, position))
        };
        self.phases(arena, rows, caches, Want::Result, &|| false, &look)
    }

    fn phase(
        &self,
        phase: &Phase,
        arena: &mut Arena,
        rows: &[Row],
        caches: &mut [&mut Cache],
    ) -> Result<()> {
        let n = arena.current;
        match &phase.work {
            &Work::Embed { weight, scale, out } => {
                let matrix = self.weights.matrix(weight)?;
                let width = matrix.cols();
                let out = arena.slot_mut(out, n * width)?;
                for (row, out) in rows.iter().zip(out.chunks_exact_mut(width)) {
                    matrix.row_f32(row.token as usize, out).map_err(kernel)?;
                    if scale != 1.0 {
                        ops::scale(out, scale);
                    }
                }
            }
            &Work::PositionEmbed { weight, x, out } => {
                let matrix = self.weights.matrix(weight)?;
                let width = matrix.cols();
                arena.copy(x, out, n * width)?;
                let mut row = std::mem::take(&mut arena.row);
                row.resize(width, 0.0);
                let data = arena.slots.get_mut(out).ok_or_else(missing)?;
                let done = arena.positions.iter().zip(data.chunks_exact_mut(width)).try_for_each(
                    |(position, out)| {
                        matrix.row_f32(*position, &mut row)?;
                        ops::add(out, &row);
                        Ok(())
                    },
                );
                arena.row = row;
                done.map_err(kernel)?;
            }
            &Work::SegmentEmbed { weight, x, out } => {
                let matrix = self.weights.matrix(weight)?;
                let width = matrix.cols();
                arena.copy(x, out, n * width)?;
                let mut row = std::mem::take(&mut arena.row);
                row.resize(width, 0.0);
                let done = matrix.row_f32(0, &mut row).map_err(kernel);
                for out in arena.slot_mut(out, n * width)?.chunks_exact_mut(width) {
                    ops::add(out, &row);
                }
                arena.row = row;
                done?;
            }
            &Work::RmsNorm { x, weight, eps, heads, width, out } => {
                let weight = self.weights.vector_or(weight)?;
                let part = width / heads;
                if x == out {
                    let data = arena.slot_mut(out, n * width)?;
                    by_rows(self.pool, data, width, |data, _| {
                        ops::rms_norm_in_place(data, part, weight, eps);
                    });
                } else {
                    let (x, out) = arena.pair(x, n * width, out, n * width)?;
                    by_rows_from(self.pool, x, width, out, width, |x, out| {
                        ops::rms_norm(x, part, weight, eps, out);
                    });
                }
            }
            &Work::LayerNorm { x, weight, bias, eps, width, out } => {
                let weight = Some(self.weights.vector(weight)?);
                let bias = self.weights.vector_or(bias)?;
                if x == out {
                    let mut copy = std::mem::take(&mut arena.row);
                    copy.clear();
                    copy.extend_from_slice(arena.slot(x, n * width)?);
                    let data = arena.slot_mut(out, n * width)?;
                    ops::layer_norm(&copy, width, weight, bias, eps, data);
                    arena.row = copy;
                } else {
                    let (x, out) = arena.pair(x, n * width, out, n * width)?;
                    by_rows_from(self.pool, x, width, out, width, |x, out| {
                        ops::layer_norm(x, width, weight, bias, eps, out);
                    });
                }
            }
            Work::Linear { x, width, products } => self.linear(arena, *x, *width, products)?,
            &Work::GluLinear { x, width, gate, up, activation, out } => {
                let (gate, up) = (self.weights.matrix(gate)?, self.weights.matrix(up)?);
                let mut act = std::mem::take(&mut arena.act);
                let input = arena.slot(x, n * width)?;
                act.prepare_bulk(self.pool, input, n, &arena.bulk, width, &[gate, up])
                    .map_err(kernel)?;
                let out = arena.slot_mut(out, n * gate.rows())?;
                let done = glu_linear(self.pool, &act, gate, up, function(activation), out);
                arena.act = act;
                done.map_err(kernel)?;
            }
            Work::Rope { x, rope, table, out } => {
                let width = rope.heads * rope.head_dim;
                arena.copy(*x, *out, n * width)?;
                let rotations = arena.rotations.get(*table).ok_or_else(missing)?;
                let data = arena.slots.get_mut(*out).ok_or_else(missing)?;
                let data = data.get_mut(..n * width).ok_or_else(missing)?;
                turn(data, rope, rotations);
            }
            Work::Attention { q, k, v, attention, out } => {
                self.attend(arena, rows, caches, [*q, *k, *v], attention, *out)?;
            }
            &Work::Glu { gate, up, activation, width, out } => {
                arena.copy(gate, out, n * width)?;
                let (up, out) = arena.pair(up, n * width, out, n * width)?;
                ops::glu_in_place(function(activation), out, up);
            }
            &Work::GluParts { gate, gate_width, up, activation, width, out } => {
                let mut gates = std::mem::take(&mut arena.row);
                gates.clear();
                gates.extend_from_slice(arena.slot(gate, n * gate_width)?);
                ops::activate(function(activation), &mut gates);
                arena.copy(up, out, n * width)?;
                let data = arena.slot_mut(out, n * width)?;
                for (part, gate) in data.chunks_exact_mut(width / gate_width).zip(&gates) {
                    ops::scale(part, *gate);
                }
                arena.row = gates;
            }
            &Work::Activation { x, kind, width, out } => {
                arena.copy(x, out, n * width)?;
                ops::activate(function(kind), arena.slot_mut(out, n * width)?);
            }
            &Work::Add { a, b, width, out } => {
                if b == out && a != out {
                    let (a, out) = arena.pair(a, n * width, out, n * width)?;
                    ops::add(out, a);
                } else if a == b {
                    arena.copy(a, out, n * width)?;
                    ops::scale(arena.slot_mut(out, n * width)?, 2.0);
                } else {
                    arena.copy(a, out, n * width)?;
                    let (b, out) = arena.pair(b, n * width, out, n * width)?;
                    ops::add(out, b);
                }
            }
            &Work::Scale { x, factor, width, out } => {
                arena.copy(x, out, n * width)?;
                ops::scale(arena.slot_mut(out, n * width)?, factor);
            }
            &Work::PositionScale { x, factor, length, width, out } => {
                arena.copy(x, out, n * width)?;
                let data = arena.slots.get_mut(out).ok_or_else(missing)?;
                for (row, position) in data.chunks_exact_mut(width).zip(&arena.positions) {
                    ops::scale(row, position_scale(factor, length, *position));
                }
            }
            &Work::Slice { x, width, start, length, heads, out } => {
                let (x, out) = arena.pair(x, n * width, out, n * length * heads)?;
                for (x, out) in x.chunks_exact(width / heads).zip(out.chunks_exact_mut(length)) {
                    out.copy_from_slice(x.get(start..start + length).ok_or_else(missing)?);
                }
            }
            &Work::Concat { a, a_width, b, b_width, heads, out } => {
                let (a_part, b_part) = (a_width / heads, b_width / heads);
                for (from, width, part, at) in
                    [(a, a_width, a_part, 0), (b, b_width, b_part, a_part)]
                {
                    let (x, out) = arena.pair(from, n * width, out, n * (a_width + b_width))?;
                    let parts = out.chunks_exact_mut(a_part + b_part);
                    for (x, out) in x.chunks_exact(part).zip(parts) {
                        out.get_mut(at..at + part).ok_or_else(missing)?.copy_from_slice(x);
                    }
                }
            }
            &Work::HeadLinear { x, width, weight, out_width, out } => {
                self.head_linear(arena, (x, width), weight, (out, out_width))?;
            }
            Work::Conv { x, width, conv, out } => {
                self.conv(arena, rows, caches, (*x, *width), conv, *out)?;
            }
            Work::DeltaRule { inputs, rule, out } => {
                self.delta_rule(arena, rows, caches, *inputs, rule, *out)?;
            }
            Work::Moe { x, width, moe, out } => self.moe(arena, *x, *width, moe, *out)?,
            Work::Narrow { live } => arena.narrow(live)?,
            Work::Head { x, width, head } => self.head(arena, *x, *width, head)?,
            &Work::Pool { x, width, kind, normalize } => {
                self.pool_rows(arena, rows, x, width, kind, normalize)?;
            }
        }
        Ok(())
    }

    fn linear(&self, arena: &mut Arena, x: Slot, width: usize, products: &[Product]) -> Result<()> {
        let n = arena.current;
        let mut matrices = ArrayVec::<&Matrix, MOST_PRODUCTS>::new();
        for product in products {
            matrices.push(self.weights.matrix(product.weight)?);
        }
        let mut act = std::mem::take(&mut arena.act);
        let input = arena.slot(x, n * width)?;
        act.prepare_bulk(self.pool, input, n, &arena.bulk, width, &matrices).map_err(kernel)?;
        // The outputs leave the arena while they are written.
        let mut outs = ArrayVec::<Vec<f32>, MOST_PRODUCTS>::new();
        for product in products {
            outs.push(arena.slots.get_mut(product.out).map(std::mem::take).unwrap_or_default());
        }
        let mut jobs = ArrayVec::<Job<'_>, MOST_PRODUCTS>::new();
        for ((product, matrix), out) in products.iter().zip(&matrices).zip(&mut outs) {
            jobs.push(Job {
                matrix,
                bias: self.weights.vector_or(product.bias)?,
                scale: product.scale,
                out: out.get_mut(..n * matrix.rows()).ok_or_else(missing)?,
                accumulate: product.accumulate,
            });
        }
        let done = linear(self.pool, &act, &mut jobs);
        drop(jobs);
        for (product, out) in products.iter().zip(outs) {
            if let Some(slot) = arena.slots.get_mut(product.out) {
                *slot = out;
            }
        }
        arena.act = act;
        done.map_err(kernel)
    }

    fn attend(
        &self,
        arena: &mut Arena,
        rows: &[Row],
        caches: &mut [&mut Cache],
        [q, k, v]: [Slot; 3],
        a: &Attention,
        out: Slot,
    ) -> Result<()> {
        let n = arena.current;
        let kv_width = a.kv_heads * a.head_dim;
        // Runs of one sequence are appended at once.
        let (keys, values) = (arena.slot(k, n * kv_width)?, arena.slot(v, n * kv_width)?);
        let mut first = 0;
        while let Some(row) = rows.get(first) {
            let run = rows.iter().skip(first).take_while(|other| other.cache == row.cache).count();
            let range = first * kv_width..(first + run) * kv_width;
            let cache = caches.get_mut(row.cache).ok_or_else(missing)?;
            cache
                .layer_mut(a.state)?
                .append(
                    row.position,
                    keys.get(range.clone()).ok_or_else(missing)?,
                    values.get(range).ok_or_else(missing)?,
                )
                .map_err(kernel)?;
            first += run;
        }
        let mut layers = ArrayVec::<&KvLayer, MOST_SEQUENCES>::new();
        for cache in caches.iter() {
            layers.push(cache.layer(a.state)?);
        }
        let spec = AttentionSpec {
            heads: a.heads,
            kv_heads: a.kv_heads,
            head_dim: a.head_dim,
            scale: a.scale,
            causal: a.causal,
            window: a.window,
            softcap: a.softcap,
            sinks: self.weights.vector_or(a.sinks)?.map(<[f32]>::to_vec),
        };
        let width = a.heads * a.head_dim;
        let mut output = arena.slots.get_mut(out).map(std::mem::take).unwrap_or_default();
        let target = output.get_mut(..n * width).ok_or_else(missing)?;
        let done = if arena.alone {
            let mut apart = std::mem::take(&mut arena.apart);
            let done = self.attend_apart(arena, &mut apart, &spec, q, &layers, target);
            arena.apart = apart;
            done
        } else {
            let queries = arena.slot(q, n * width)?;
            let (places, bulk) = (&arena.places, &arena.bulk);
            attention(self.pool, &spec, queries, places, bulk, &layers, target)
        };
        if let Some(slot) = arena.slots.get_mut(out) {
            *slot = output;
        }
        done.map_err(kernel)
    }

    /// Attention of every row as if it were alone.
    fn attend_apart(
        &self,
        arena: &Arena,
        apart: &mut Apart,
        spec: &AttentionSpec,
        q: Slot,
        layers: &[&KvLayer],
        out: &mut [f32],
    ) -> std::result::Result<(), KernelError> {
        let Apart { order, places, bulk, queries, results } = apart;
        let width = spec.heads * spec.head_dim;
        let q = arena.slot(q, out.len()).unwrap_or_default();
        queries.clear();
        for row in order.iter() {
            queries.extend_from_slice(q.get(row * width..(row + 1) * width).unwrap_or_default());
        }
        results.resize(out.len(), 0.0);
        attention(self.pool, spec, queries, places, bulk, layers, results)?;
        for (row, result) in order.iter().zip(results.chunks_exact(width)) {
            if let Some(out) = out.get_mut(row * width..(row + 1) * width) {
                out.copy_from_slice(result);
            }
        }
        Ok(())
    }

    fn head(&self, arena: &mut Arena, x: Slot, width: usize, head: &Head) -> Result<()> {
        let n = arena.current;
        if n == 0 {
            return Ok(());
        }
        let matrix = self.weights.matrix(head.weight)?;
        let mut act = std::mem::take(&mut arena.act);
        act.prepare(self.pool, arena.slot(x, n * width)?, n, width, &[matrix]).map_err(kernel)?;
        let bias = self.weights.vector_or(head.bias)?;
        let out = arena.result.get_mut(..n * matrix.rows()).ok_or_else(missing)?;
        let mut job = [Job { matrix, bias, scale: head.scale, out, accumulate: false }];
        let done = linear(self.pool, &act, &mut job);
        arena.act = act;
        done.map_err(kernel)?;
        let vocabulary = matrix.rows();
        let out = arena.result.get_mut(..n * vocabulary).ok_or_else(missing)?;
        let peaks = arena.peaks.get_mut(..n * logits::peaks(vocabulary)).ok_or_else(missing)?;
        by_blocks(self.pool, out, vocabulary, BLOCK, peaks, |out, peaks| {
            if let Some(cap) = head.softcap {
                ops::softcap(out, cap);
            }
            ops::peaks(out, BLOCK, peaks);
        });
        Ok(())
    }

    fn pool_rows(
        &self,
        arena: &mut Arena,
        rows: &[Row],
        x: Slot,
        width: usize,
        kind: Pooling,
        normalize: bool,
    ) -> Result<()> {
        let data = arena.slot(x, rows.len() * width)?;
        let mut result = Vec::new();
        let mut first = 0;
        while let Some(row) = rows.get(first) {
            let run = rows.iter().skip(first).take_while(|other| other.cache == row.cache).count();
            let part = data.get(first * width..(first + run) * width).ok_or_else(missing)?;
            result.extend(pool_rows(kind, normalize, part, width));
            first += run;
        }
        arena.result = result;
        Ok(())
    }
}

fn turn(data: &mut [f32], rope: &program::Rope, rotations: &Rotations) {
    let style = match rope.layout {
        Layout::Interleaved => RopeStyle::Interleaved,
        Layout::Half => RopeStyle::Halves,
    };
    ops::rope(data, rope.heads, rope.head_dim, rope.offset, style, rotations);
}

fn function(activation: Activation) -> ops::Activation {
    match activation {
        Activation::Silu => ops::Activation::Silu,
        Activation::GeluTanh => ops::Activation::GeluTanh,
        Activation::Gelu => ops::Activation::GeluErf,
        Activation::Relu => ops::Activation::Relu,
        Activation::ReluSquared => ops::Activation::ReluSquared,
        Activation::Sigmoid => ops::Activation::Sigmoid,
        Activation::Identity => ops::Activation::Identity,
        Activation::SwigluOai => ops::Activation::SwigluOai { alpha: 1.702, limit: 7.0 },
    }
}

fn missing() -> Error {
    Error::internal("a buffer is smaller than the plan says")
}

fn kernel(error: KernelError) -> Error {
    Error::internal(error.to_string())
}

/// Says where in the program it happened.
fn place(plan: &Plan, phase: &Phase, mut error: Error) -> Error {
    if let Some(&step) = phase.steps.last()
        && let Some(op) = plan.program.steps.get(step).map(|step| step.op.name())
    {
        error.message = format!("program step {step} ({op}): {}", error.message);
        error = error.with("step", step).with("op", op);
    }
    error
}
