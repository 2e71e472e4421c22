//! Mixtures of experts: rows are sent to the experts their router chose, each expert's matrices are
//! read once for all its rows, and experts that nobody chose are not touched.
//!
//! Where every worker gets several experts, an expert is one worker's work from end to end and the
//! whole mixture is one phase. Where experts are fewer than that (few rows, many processors), the
//! workers share each product.

use std::{
    cell::RefCell,
    sync::{Mutex, PoisonError},
};

use gristmill_core::{Error, Result};
use gristmill_kernels::{Act, Job, Matrix, Pool, glu_linear, linear, ops};

use super::{Arena, Model, elementwise::by_rows, function, kernel, missing};
use crate::{
    plan::Slot,
    program::{Activation, Moe, TensorId},
    route::route,
};

/// Experts a worker must have before each takes whole ones: with fewer, whoever is done first
/// waits for the others longer than a barrier takes.
const EXPERTS_PER_WORKER: usize = 2;

/// What a mixture works in; kept from pass to pass.
#[derive(Default)]
pub(super) struct Mixture {
    scores: Vec<f32>,
    /// Expert, row, place among the row's experts, weight; sorted by expert.
    routes: Vec<Route>,
    /// Input rows, expert after expert.
    gathered: Vec<f32>,
    /// Which of those come in bulk.
    bulk: Vec<bool>,
    /// The experts' outputs, in the same order.
    products: Vec<f32>,
    /// For every row and place, where its output is.
    places: Vec<usize>,
}

impl Mixture {
    /// Forgets the last mixture's rows and keeps its memory.
    fn clear(&mut self) {
        self.routes.clear();
        self.places.clear();
    }
}

#[derive(Debug, Clone, Copy)]
struct Route {
    expert: usize,
    row: usize,
    place: usize,
    weight: f32,
}

/// One expert: its matrices, its biases.
#[derive(Clone, Copy)]
struct Expert<'a> {
    gate: &'a Matrix,
    up: &'a Matrix,
    down: &'a Matrix,
    gate_bias: Option<&'a [f32]>,
    up_bias: Option<&'a [f32]>,
    down_bias: Option<&'a [f32]>,
    activation: Activation,
}

/// The rows an expert gets, which of them come in bulk, and where its outputs go.
struct Rows<'a> {
    x: &'a [f32],
    bulk: &'a [bool],
    out: &'a mut [f32],
}

/// What one expert's products work in.
#[derive(Default)]
struct Scratch {
    act: Act,
    gate: Vec<f32>,
    up: Vec<f32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Expert<'_> {
    /// `out = down (activation(gate x) · up x)` for these rows.
    fn run(&self, pool: &Pool, scratch: &mut Scratch, rows: Rows<'_>) -> Result<()> {
        let (width, ff) = (self.gate.cols(), self.gate.rows());
        let Rows { x, bulk, out } = rows;
        let n = x.len() / width;
        let Scratch { act, gate, up } = scratch;
        gate.resize(n * ff, 0.0);
        act.prepare_bulk(pool, x, n, bulk, width, &[self.gate, self.up]).map_err(kernel)?;
        if self.gate_bias.is_none() && self.up_bias.is_none() {
            glu_linear(pool, act, self.gate, self.up, function(self.activation), gate)
                .map_err(kernel)?;
        } else {
            up.resize(n * ff, 0.0);
            let mut jobs = [job(self.gate, self.gate_bias, gate), job(self.up, self.up_bias, up)];
            linear(pool, act, &mut jobs).map_err(kernel)?;
            by_rows(pool, gate, ff, |gate, first| {
                if let Some(up) = up.get(first * ff..first * ff + gate.len()) {
                    ops::glu_in_place(function(self.activation), gate, up);
                }
            });
        }
        act.prepare_bulk(pool, gate, n, bulk, ff, &[self.down]).map_err(kernel)?;
        linear(pool, act, &mut [job(self.down, self.down_bias, out)]).map_err(kernel)
    }
}

fn job<'a>(matrix: &'a Matrix, bias: Option<&'a [f32]>, out: &'a mut [f32]) -> Job<'a> {
    Job { matrix, bias, scale: 1.0, out, accumulate: false }
}

impl Model<'_> {
    pub(super) fn moe(
        &self,
        arena: &mut Arena,
        x: Slot,
        width: usize,
        moe: &Moe,
        out: Slot,
    ) -> Result<()> {
        let mut mixture = std::mem::take(&mut arena.mixture);
        let done = self.mix(arena, &mut mixture, x, width, moe, out);
        arena.mixture = mixture;
        done
    }

    fn mix(
        &self,
        arena: &mut Arena,
        mixture: &mut Mixture,
        x: Slot,
        width: usize,
        moe: &Moe,
        out: Slot,
    ) -> Result<()> {
        let n = arena.current;
        if n == 0 {
            return Ok(());
        }
        self.choose(arena, mixture, x, width, moe)?;
        let Mixture { routes, gathered, bulk, products, places, .. } = mixture;
        let input = arena.slot(x, n * width)?;
        gathered.clear();
        bulk.clear();
        for route in routes.iter() {
            let row = input.get(route.row * width..(route.row + 1) * width).ok_or_else(missing)?;
            gathered.extend_from_slice(row);
            bulk.push(*arena.bulk.get(route.row).ok_or_else(missing)?);
        }
        products.resize(routes.len() * width, 0.0);

        let mut tasks = Vec::new();
        let (mut inputs, mut outputs) = (gathered.as_slice(), products.as_mut_slice());
        let mut marks = bulk.as_slice();
        for members in routes.chunk_by(|a, b| a.expert == b.expert) {
            let expert = members.first().map_or(0, |route| route.expert);
            let length = members.len() * width;
            let (x, more) = inputs.split_at_checked(length).ok_or_else(missing)?;
            let (out, rest) = outputs.split_at_mut_checked(length).ok_or_else(missing)?;
            let (bulk, unmarked) = marks.split_at_checked(members.len()).ok_or_else(missing)?;
            (inputs, outputs, marks) = (more, rest, unmarked);
            tasks.push((self.expert(moe, expert)?, Rows { x, bulk, out }));
        }
        if self.weights.scarce() {
            // Those at the end come in while those at the beginning are computed.
            for (expert, _) in &tasks {
                [expert.gate, expert.up, expert.down].into_iter().for_each(Matrix::will_need);
            }
        }
        self.run_experts(tasks)?;

        for (at, route) in routes.iter().enumerate() {
            if let Some(place) = places.get_mut(route.row * moe.active + route.place) {
                *place = at;
            }
        }
        let (routes, products, places) = (&*routes, &*products, &*places);
        by_rows(self.pool, arena.slot_mut(out, n * width)?, width, |out, first| {
            for (row, out) in out.chunks_exact_mut(width).enumerate() {
                let own = (first + row) * moe.active..(first + row + 1) * moe.active;
                out.fill(0.0);
                for &at in places.get(own).unwrap_or_default() {
                    let product = products.get(at * width..(at + 1) * width);
                    if let (Some(route), Some(product)) = (routes.get(at), product) {
                        ops::multiply_add(out, route.weight, product);
                    }
                }
            }
        });
        Ok(())
    }

    /// Asks the router, and sorts rows by expert.
    fn choose(
        &self,
        arena: &mut Arena,
        mixture: &mut Mixture,
        x: Slot,
        width: usize,
        moe: &Moe,
    ) -> Result<()> {
        let n = arena.current;
        let router = self.weights.matrix(moe.router)?;
        let mut act = std::mem::take(&mut arena.act);
        mixture.clear();
        mixture.scores.resize(n * moe.experts, 0.0);
        let input = arena.slot(x, n * width)?;
        let prepared = act.prepare_bulk(self.pool, input, n, &arena.bulk, width, &[router]);
        let bias = self.weights.vector_or(moe.router_bias)?;
        let done = prepared
            .and_then(|()| linear(self.pool, &act, &mut [job(router, bias, &mut mixture.scores)]));
        arena.act = act;
        done.map_err(kernel)?;
        let selection = self.weights.vector_or(moe.selection_bias)?;
        for (row, scores) in mixture.scores.chunks_exact(moe.experts).enumerate() {
            let chosen = route(moe, scores, selection).into_iter().enumerate();
            mixture.routes.extend(chosen.map(|(place, (expert, weight))| Route {
                expert,
                row,
                place,
                weight,
            }));
        }
        mixture.routes.sort_by_key(|route| (route.expert, route.row));
        mixture.places.resize(n * moe.active, 0);
        Ok(())
    }

    fn expert(&self, moe: &Moe, expert: usize) -> Result<Expert<'_>> {
        let matrix = |id: TensorId| {
            let all = self.weights.experts(id)?;
            all.get(expert).ok_or_else(|| Error::internal("no such expert"))
        };
        let bias = |id: Option<TensorId>, rows: usize| {
            let Some(all) = self.weights.vector_or(id)? else { return Ok(None) };
            all.get(expert * rows..(expert + 1) * rows).map(Some).ok_or_else(missing)
        };
        let (gate, up, down) = (matrix(moe.gate)?, matrix(moe.up)?, matrix(moe.down)?);
        Ok(Expert {
            gate_bias: bias(moe.gate_bias, gate.rows())?,
            up_bias: bias(moe.up_bias, up.rows())?,
            down_bias: bias(moe.down_bias, down.rows())?,
            gate,
            up,
            down,
            activation: moe.activation,
        })
    }

    fn run_experts(&self, tasks: Vec<(Expert<'_>, Rows<'_>)>) -> Result<()> {
        if tasks.len() < EXPERTS_PER_WORKER * self.pool.threads() {
            return SCRATCH.with_borrow_mut(|scratch| {
                tasks
                    .into_iter()
                    .try_for_each(|(expert, rows)| expert.run(self.pool, scratch, rows))
            });
        }
        // The longest first, so that what is left at the end is short.
        let mut tasks = tasks;
        tasks.sort_by_key(|(_, rows)| std::cmp::Reverse(rows.x.len()));
        let failure = Mutex::new(None);
        let tasks: Vec<_> = tasks.into_iter().map(|task| Mutex::new(Some(task))).collect();
        self.pool.chunks(tasks.len(), 1, &|_, range| {
            for task in tasks.get(range).unwrap_or_default() {
                let task = task.lock().unwrap_or_else(PoisonError::into_inner).take();
                let Some((expert, rows)) = task else { continue };
                // A phase inside a phase runs on its own thread.
                let done = SCRATCH.with_borrow_mut(|scratch| expert.run(self.pool, scratch, rows));
                if let Err(error) = done {
                    failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
            }
        });
        failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    /// Each part of a row times its own matrix; a worker takes whole parts.
    pub(super) fn head_linear(
        &self,
        arena: &mut Arena,
        (x, width): (Slot, usize),
        weight: TensorId,
        (out, out_width): (Slot, usize),
    ) -> Result<()> {
        let n = arena.current;
        let matrices = self.weights.experts(weight)?;
        let (inner, outer) = (width / matrices.len().max(1), out_width / matrices.len().max(1));
        let mut mixture = std::mem::take(&mut arena.mixture);
        let Mixture { gathered, products, .. } = &mut mixture;
        gathered.clear();
        let input = arena.slot(x, n * width)?;
        for head in 0..matrices.len() {
            for row in input.chunks_exact(width) {
                let part = row.get(head * inner..(head + 1) * inner).ok_or_else(missing)?;
                gathered.extend_from_slice(part);
            }
        }
        products.resize(n * out_width, 0.0);
        let bulk = arena.bulk.as_slice();
        let failure = Mutex::new(None);
        let tasks: Vec<_> = matrices
            .iter()
            .zip(gathered.chunks_exact((n * inner).max(1)))
            .zip(products.chunks_exact_mut((n * outer).max(1)))
            .map(Mutex::new)
            .collect();
        self.pool.chunks(tasks.len(), 1, &|_, range| {
            for task in tasks.get(range).unwrap_or_default() {
                let mut task = task.lock().unwrap_or_else(PoisonError::into_inner);
                let ((matrix, x), out) = &mut *task;
                let done = SCRATCH.with_borrow_mut(|Scratch { act, .. }| {
                    act.prepare_bulk(self.pool, x, n, bulk, inner, &[matrix])?;
                    linear(self.pool, act, &mut [job(matrix, None, out)])
                });
                if let Err(error) = done {
                    failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
            }
        });
        drop(tasks);
        let target = arena.slot_mut(out, n * out_width)?;
        for (head, product) in products.chunks_exact((n * outer).max(1)).enumerate() {
            for (row, product) in
                target.chunks_exact_mut(out_width).zip(product.chunks_exact(outer))
            {
                let part = row.get_mut(head * outer..(head + 1) * outer).ok_or_else(missing)?;
                part.copy_from_slice(product);
            }
        }
        arena.mixture = mixture;
        let failure = failure.into_inner().unwrap_or_else(PoisonError::into_inner);
        failure.map_or(Ok(()), |error| Err(kernel(error)))
    }
}
