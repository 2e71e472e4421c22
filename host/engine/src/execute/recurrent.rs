//! Steps with a state that is carried from token to token. Each sequence's rows are worked through
//! in order; sequences, channels and heads are shared out to the pool.

use std::sync::{Mutex, PoisonError};

use gristmill_core::Result;
use gristmill_kernels::ops;

use super::{Arena, Model, Row, function, missing};
use crate::{
    cache::Cache,
    plan::Slot,
    program::{Conv, DeltaRule},
};

/// Rows of each sequence in turn: its cache, the first row and how many.
fn runs(rows: &[Row]) -> impl Iterator<Item = (usize, usize, usize)> {
    let mut first = 0;
    rows.chunk_by(|a, b| a.cache == b.cache).filter_map(move |run| {
        let start = first;
        first += run.len();
        run.first().map(|row| (row.cache, start, run.len()))
    })
}

impl Model<'_> {
    pub(super) fn conv(
        &self,
        arena: &mut Arena,
        rows: &[Row],
        caches: &mut [&mut Cache],
        (x, width): (Slot, usize),
        conv: &Conv,
        out: Slot,
    ) -> Result<()> {
        let before = (conv.kernel - 1) * width;
        let bias = self.weights.vector_or(conv.bias)?;
        let weights = self.weights.vector(conv.weight)?;
        let mut window = std::mem::take(&mut arena.row);
        for (cache, first, count) in runs(rows) {
            let state = caches.get_mut(cache).ok_or_else(missing)?.state_mut(conv.state)?;
            let (input, output) = arena.pair(x, rows.len() * width, out, rows.len() * width)?;
            let range = first * width..(first + count) * width;
            window.clear();
            window.extend_from_slice(state);
            window.extend_from_slice(input.get(range.clone()).ok_or_else(missing)?);
            let output = output.get_mut(range).ok_or_else(missing)?;
            let window_rows = &window;
            super::by_rows(self.pool, output, width, |out, first| {
                for (row, out) in out.chunks_exact_mut(width).enumerate() {
                    let start = (first + row) * width;
                    if let Some(rows) = window_rows.get(start..start + before + width) {
                        ops::convolve(rows, weights, out);
                    }
                    if let Some(bias) = bias {
                        ops::add(out, bias);
                    }
                    ops::activate(function(conv.activation), out);
                }
            });
            state.copy_from_slice(window.get(count * width..).ok_or_else(missing)?);
        }
        arena.row = window;
        Ok(())
    }

    pub(super) fn delta_rule(
        &self,
        arena: &mut Arena,
        rows: &[Row],
        caches: &mut [&mut Cache],
        inputs: [Slot; 5],
        rule: &DeltaRule,
        out: Slot,
    ) -> Result<()> {
        let n = rows.len();
        let (rate, bias) = (self.weights.vector(rule.rate)?, self.weights.vector_or(rule.bias)?);
        let (keys, values) = (rule.key_heads * rule.key_dim, rule.heads * rule.value_dim);
        let mut output = arena.slots.get_mut(out).map(std::mem::take).unwrap_or_default();
        let [q, k, v, decay, strength] = inputs;
        let (q, k, v) =
            (arena.slot(q, n * keys)?, arena.slot(k, n * keys)?, arena.slot(v, n * values)?);
        let (decay, strength) =
            (arena.slot(decay, n * rule.heads)?, arena.slot(strength, n * rule.heads)?);

        // A task is one head of one sequence: its state, and its columns of that sequence's rows.
        let size = rule.key_dim * rule.value_dim;
        let mut tasks = Vec::new();
        let mut states: Vec<Option<&mut [f32]>> = Vec::with_capacity(caches.len());
        for cache in caches.iter_mut() {
            states.push(Some(cache.state_mut(rule.state)?));
        }
        for (cache, first, count) in runs(rows) {
            let state = states.get_mut(cache).and_then(Option::take).ok_or_else(missing)?;
            for (head, state) in state.chunks_exact_mut(size).enumerate() {
                let found = vec![0.0; count * rule.value_dim];
                tasks.push((head, first, count, Mutex::new((state, found))));
            }
        }
        self.pool.chunks(tasks.len(), 1, &|_, range| {
            for (head, first, count, work) in tasks.get(range).unwrap_or_default() {
                let shared = rule.heads / rule.key_heads;
                let key = if rule.tiled { head % rule.key_heads } else { head / shared };
                let rate = rate.get(*head).copied().unwrap_or(0.0);
                let bias = bias.and_then(|bias| bias.get(*head)).copied().unwrap_or(0.0);
                let mut work = work.lock().unwrap_or_else(PoisonError::into_inner);
                let (state, found) = &mut *work;
                for (row, out) in
                    (*first..first + count).zip(found.chunks_exact_mut(rule.value_dim))
                {
                    let key = row * keys + key * rule.key_dim;
                    let value = row * values + head * rule.value_dim;
                    let number = |x: &[f32]| x.get(row * rule.heads + head).copied().unwrap_or(0.0);
                    if let (Some(q), Some(k), Some(v)) = (
                        q.get(key..key + rule.key_dim),
                        k.get(key..key + rule.key_dim),
                        v.get(value..value + rule.value_dim),
                    ) {
                        let decay = (rate * softplus(number(decay) + bias)).exp();
                        let strength = 1.0 / (1.0 + (-number(strength)).exp());
                        let gates = ops::Gates { decay, strength, scale: rule.scale };
                        ops::delta_rule(state, q, k, v, gates, out);
                    }
                }
            }
        });
        for (head, first, _, work) in tasks {
            let (_, found) = work.into_inner().unwrap_or_else(PoisonError::into_inner);
            for (row, found) in found.chunks_exact(rule.value_dim).enumerate() {
                let start = (first + row) * values + head * rule.value_dim;
                let place = output.get_mut(start..start + rule.value_dim).ok_or_else(missing)?;
                place.copy_from_slice(found);
            }
        }
        if let Some(slot) = arena.slots.get_mut(out) {
            *slot = output;
        }
        Ok(())
    }
}

/// `ln(1 + e^x)`.
fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}
