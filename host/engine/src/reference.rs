//! The forward pass as it is written in a book: every weight decoded to f32, every step for all
//! tokens at once, sums in f64 wherever that is cheap. Slow, and what the fast path is held to.
//!
//! It reads the checked program directly and shares with the fast path only the decoding of
//! weights, the frequencies of rotary embeddings and the choice of experts from their scores.

use gristmill_core::{Error, Result};
use gristmill_kernels::decode_row;

use crate::{
    program::{
        Activation, Attention, Checked, Conv, DeltaRule, Layout, Moe, Op, Pooling, Rope, Step,
        Tensor, TensorId,
    },
    rope::Angles,
    route::route,
    weights::Source,
};

/// One row per token.
struct Rows {
    width: usize,
    data: Vec<f32>,
}

impl Rows {
    fn new(n: usize, width: usize) -> Self {
        Self { width, data: vec![0.0; n * width] }
    }

    fn iter(&self) -> impl Iterator<Item = &[f32]> {
        self.data.chunks_exact(self.width)
    }

    fn row(&self, n: usize) -> &[f32] {
        self.data.get(n * self.width..(n + 1) * self.width).unwrap_or_default()
    }

    fn map(&self, f: impl Fn(f32) -> f32) -> Self {
        Self { width: self.width, data: self.data.iter().map(|&x| f(x)).collect() }
    }

    fn zip(&self, other: &Self, f: impl Fn(f32, f32) -> f32) -> Self {
        let data = self.data.iter().zip(&other.data).map(|(&a, &b)| f(a, b)).collect();
        Self { width: self.width, data }
    }
}

/// Logits after every token of a text, `tokens × vocabulary`, or for an encoder its one vector.
///
/// # Errors
/// `invalid-request` for a token outside the vocabulary or a tensor that cannot be read.
pub fn reference_logits(
    program: &Checked,
    source: &dyn Source,
    tokens: &[u32],
) -> Result<Vec<f32>> {
    let mut values: Vec<Option<Rows>> = Vec::with_capacity(program.steps.len());
    for (index, step) in program.steps.iter().enumerate() {
        let value = Pass { program, source, tokens, values: &values }.step(step)?;
        values.push(Some(value));
        // Let go of what no later step reads.
        for &input in &step.inputs {
            let read_later =
                program.steps.iter().skip(index + 1).any(|step| step.inputs.contains(&input));
            if let (false, Some(value)) = (read_later, values.get_mut(input)) {
                *value = None;
            }
        }
    }
    Ok(values.pop().flatten().map(|rows| rows.data).unwrap_or_default())
}

struct Pass<'a> {
    program: &'a Checked,
    source: &'a dyn Source,
    tokens: &'a [u32],
    values: &'a [Option<Rows>],
}

impl Pass<'_> {
    fn input(&self, step: &Step, n: usize) -> Result<&Rows> {
        step.inputs
            .get(n)
            .and_then(|&value| self.values.get(value)?.as_ref())
            .ok_or_else(|| Error::internal("a value is read before it is written"))
    }

    fn tensor(&self, id: TensorId) -> Result<&Tensor> {
        self.program.tensors.get(id).ok_or_else(|| Error::internal("no such tensor"))
    }

    /// Rows `first .. first + count` of a tensor, decoded.
    fn decode(&self, id: TensorId, first: usize, count: usize) -> Result<Vec<f32>> {
        let tensor = self.tensor(id)?;
        let bytes = self.source.bytes(&tensor.name)?;
        let (cols, bad) =
            (tensor.cols(), |error| Error::invalid(format!("{}: {error}", tensor.name)));
        let size = tensor.quant.row_bytes(cols).map_err(bad)?;
        let mut out = vec![0.0; count * cols];
        for (n, row) in out.chunks_exact_mut(cols).enumerate() {
            let start = (first + n) * size;
            let bytes = bytes
                .as_slice()
                .get(start..start + size)
                .ok_or_else(|| Error::invalid(format!("{}: no row {}", tensor.name, first + n)))?;
            decode_row(tensor.quant, bytes, row).map_err(bad)?;
        }
        Ok(out)
    }

    fn vector(&self, id: Option<TensorId>) -> Result<Option<Vec<f32>>> {
        id.map(|id| self.decode(id, 0, 1)).transpose()
    }

    /// `W x` for matrix `slice` of a tensor of rank two or three.
    fn product(&self, id: TensorId, slice: usize, x: &Rows) -> Result<Rows> {
        let rows = self.tensor(id)?.shape.get(1).copied().unwrap_or(1);
        let n = x.data.len() / x.width;
        let weights = self.decode(id, slice * rows, rows)?;
        let mut out = Rows::new(n, rows);
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(n.max(1));
        let share = n.div_ceil(threads).max(1);
        std::thread::scope(|scope| {
            let parts = out.data.chunks_mut(share * rows).zip(x.data.chunks(share * x.width));
            for (out, x) in parts {
                let (weights, width) = (&weights, out.len() / rows);
                let cols = x.len() / width.max(1);
                scope.spawn(move || {
                    for (r, weight) in weights.chunks_exact(cols).enumerate() {
                        for (out, x) in out.chunks_exact_mut(rows).zip(x.chunks_exact(cols)) {
                            if let Some(out) = out.get_mut(r) {
                                *out = dot(weight, x);
                            }
                        }
                    }
                });
            }
        });
        Ok(out)
    }

    fn step(&self, step: &Step) -> Result<Rows> {
        let n = self.tokens.len();
        Ok(match &step.op {
            &Op::Embed { weight, scale } => {
                let mut out = Vec::with_capacity(n * step.width);
                for &token in self.tokens {
                    out.extend(self.decode(weight, token as usize, 1)?.iter().map(|x| x * scale));
                }
                Rows { width: step.width, data: out }
            }
            &Op::PositionEmbed { weight } => {
                let positions = self.decode(weight, 0, n)?;
                self.input(step, 0)?.zip(&Rows { width: step.width, data: positions }, |a, b| a + b)
            }
            &Op::SegmentEmbed { weight } => {
                let row = self.decode(weight, 0, 1)?;
                let rows = Rows { width: step.width, data: row.repeat(n) };
                self.input(step, 0)?.zip(&rows, |a, b| a + b)
            }
            &Op::RmsNorm { weight, eps, heads } => {
                let weight = self.vector(weight)?;
                let x = self.input(step, 0)?;
                let part = x.width / heads;
                let mut out = Rows::new(n, x.width);
                let parts = x.data.chunks_exact(part).zip(out.data.chunks_exact_mut(part));
                for (x, out) in parts {
                    let mean = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / part as f64;
                    let factor = 1.0 / (mean + f64::from(eps)).sqrt();
                    for (i, (x, out)) in x.iter().zip(out).enumerate() {
                        let weight = weight.as_ref().and_then(|w| w.get(i)).copied().unwrap_or(1.0);
                        *out = (f64::from(*x) * factor) as f32 * weight;
                    }
                }
                out
            }
            &Op::LayerNorm { weight, bias, eps } => {
                let weight = self.decode(weight, 0, 1)?;
                let bias = self.vector(bias)?.unwrap_or_else(|| vec![0.0; weight.len()]);
                let x = self.input(step, 0)?;
                let mut out = Rows::new(n, x.width);
                for (x, out) in x.iter().zip(out.data.chunks_exact_mut(x.width)) {
                    let count = x.len() as f64;
                    let mean = x.iter().map(|x| f64::from(*x)).sum::<f64>() / count;
                    let variance =
                        x.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / count;
                    let factor = 1.0 / (variance + f64::from(eps)).sqrt();
                    for (((x, out), weight), bias) in x.iter().zip(out).zip(&weight).zip(&bias) {
                        *out = ((f64::from(*x) - mean) * factor) as f32 * weight + bias;
                    }
                }
                out
            }
            &Op::Linear { weight, bias, scale } => {
                let mut out = self.product(weight, 0, self.input(step, 0)?)?;
                affine(&mut out, scale, self.vector(bias)?.as_deref());
                out
            }
            Op::Rope(rope) => self.rope(rope, self.input(step, 0)?)?,
            Op::Attention(attention) => {
                let (q, k) = (self.input(step, 0)?, self.input(step, 1)?);
                self.attention(attention, q, k, self.input(step, 2)?)?
            }
            &Op::Glu(kind) => {
                let (gate, up) = (self.input(step, 0)?, self.input(step, 1)?);
                let part = up.width / gate.width;
                let data = gate.data.iter().zip(up.data.chunks_exact(part));
                let data =
                    data.flat_map(|(&gate, up)| up.iter().map(move |&up| glu(kind, gate, up)));
                Rows { width: up.width, data: data.collect() }
            }
            &Op::Activation(kind) => self.input(step, 0)?.map(|x| activate(kind, x)),
            Op::Add => self.input(step, 0)?.zip(self.input(step, 1)?, |a, b| a + b),
            &Op::Scale(factor) => self.input(step, 0)?.map(|x| x * factor),
            &Op::PositionScale { factor, length } => {
                let x = self.input(step, 0)?;
                let rows = x.iter().enumerate();
                let data = rows.flat_map(|(position, row)| {
                    let by = position_scale(factor, length, position);
                    row.iter().map(move |x| x * by)
                });
                Rows { width: x.width, data: data.collect() }
            }
            &Op::Slice { start, length, heads } => {
                let x = self.input(step, 0)?;
                let parts = x.data.chunks_exact(x.width / heads);
                let data = parts.flat_map(|part| part.iter().skip(start).take(length)).copied();
                Rows { width: length * heads, data: data.collect() }
            }
            &Op::Concat { heads } => {
                let (a, b) = (self.input(step, 0)?, self.input(step, 1)?);
                let parts = a.data.chunks_exact(a.width / heads);
                let parts = parts.zip(b.data.chunks_exact(b.width / heads));
                let data = parts.flat_map(|(a, b)| a.iter().chain(b)).copied().collect();
                Rows { width: a.width + b.width, data }
            }
            &Op::HeadLinear { weight, heads } => {
                let x = self.input(step, 0)?;
                let (inner, outer) = (x.width / heads, step.width / heads);
                let mut out = Rows::new(n, step.width);
                for head in 0..heads {
                    let part = x.iter().flat_map(|row| row.iter().skip(head * inner).take(inner));
                    let part = Rows { width: inner, data: part.copied().collect() };
                    let product = self.product(weight, head, &part)?;
                    for (out, product) in
                        out.data.chunks_exact_mut(step.width).zip(product.data.chunks_exact(outer))
                    {
                        for (out, product) in out.iter_mut().skip(head * outer).zip(product) {
                            *out = *product;
                        }
                    }
                }
                out
            }
            Op::Conv(conv) => self.conv(conv, self.input(step, 0)?)?,
            Op::DeltaRule(rule) => self.delta_rule(rule, step)?,
            Op::Moe(moe) => self.moe(moe, self.input(step, 0)?)?,
            Op::Head(head) => {
                let mut out = self.product(head.weight, 0, self.input(step, 0)?)?;
                affine(&mut out, head.scale, self.vector(head.bias)?.as_deref());
                match head.softcap {
                    Some(cap) => out.map(|x| cap * (x / cap).tanh()),
                    None => out,
                }
            }
            &Op::Pool { kind, normalize } => {
                let x = self.input(step, 0)?;
                Rows { width: x.width, data: pool(kind, normalize, &x.data, x.width) }
            }
        })
    }

    fn rope(&self, rope: &Rope, x: &Rows) -> Result<Rows> {
        let factors = Angles::factors(rope, self.program.context_native);
        let angles = Angles::new(rope, self.vector(factors)?.as_deref());
        let mut out = Rows { width: x.width, data: x.data.clone() };
        let half = rope.dims / 2;
        let (mut cos, mut sin) = (vec![0.0; half], vec![0.0; half]);
        for (position, row) in out.data.chunks_exact_mut(x.width).enumerate() {
            angles.at(position, &mut cos, &mut sin);
            for head in row.chunks_exact_mut(rope.head_dim) {
                let head = head.get_mut(rope.offset..).unwrap_or_default();
                for (pair, (cos, sin)) in cos.iter().zip(&sin).enumerate() {
                    let (a, b) = match rope.layout {
                        Layout::Interleaved => (2 * pair, 2 * pair + 1),
                        Layout::Half => (pair, pair + half),
                    };
                    if let Ok([a, b]) = head.get_disjoint_mut([a, b]) {
                        (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
                    }
                }
            }
        }
        Ok(out)
    }

    fn attention(&self, a: &Attention, q: &Rows, k: &Rows, v: &Rows) -> Result<Rows> {
        let n = self.tokens.len();
        let sinks = self.vector(a.sinks)?;
        let group = a.heads / a.kv_heads;
        let mut out = Rows::new(n, a.heads * a.head_dim);
        fn part(row: &[f32], head: usize, dim: usize) -> &[f32] {
            row.get(head * dim..(head + 1) * dim).unwrap_or_default()
        }
        for (t, row) in out.data.chunks_exact_mut(a.heads * a.head_dim).enumerate() {
            let first = a.window.map_or(0, |window| (t + 1).saturating_sub(window));
            let end = if a.causal { t + 1 } else { n };
            for (head, out) in row.chunks_exact_mut(a.head_dim).enumerate() {
                let query = part(q.row(t), head, a.head_dim);
                let mut scores: Vec<f64> = (first..end)
                    .map(|s| {
                        let key = part(k.row(s), head / group, a.head_dim);
                        let score = f64::from(dot(query, key) * a.scale);
                        let cap = a.softcap.map(f64::from);
                        cap.map_or(score, |cap| cap * (score / cap).tanh())
                    })
                    .collect();
                let sink = sinks.as_ref().and_then(|sinks| sinks.get(head)).copied().map(f64::from);
                let max = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
                for score in &mut scores {
                    *score = (*score - max).exp();
                }
                let total =
                    scores.iter().sum::<f64>() + sink.map_or(0.0, |sink| (sink - max).exp());
                for (d, out) in out.iter_mut().enumerate() {
                    let sum: f64 = (first..end)
                        .zip(&scores)
                        .map(|(s, score)| {
                            let value = part(v.row(s), head / group, a.head_dim);
                            score * f64::from(value.get(d).copied().unwrap_or(0.0))
                        })
                        .sum();
                    *out = (sum / total) as f32;
                }
            }
        }
        Ok(out)
    }

    fn conv(&self, conv: &Conv, x: &Rows) -> Result<Rows> {
        let weights = self.decode(conv.weight, 0, x.width)?;
        let bias = self.vector(conv.bias)?;
        let mut out = Rows::new(self.tokens.len(), x.width);
        for (t, out) in out.data.chunks_exact_mut(x.width).enumerate() {
            for (c, (out, kernel)) in out.iter_mut().zip(weights.chunks(conv.kernel)).enumerate() {
                let taps = kernel.iter().rev().enumerate().take(t + 1);
                let sum: f64 = taps
                    .map(|(back, weight)| {
                        let x = x.row(t - back).get(c).copied().unwrap_or(0.0);
                        f64::from(*weight) * f64::from(x)
                    })
                    .sum();
                let bias = bias.as_ref().and_then(|bias| bias.get(c)).copied().unwrap_or(0.0);
                *out = activate(conv.activation, sum as f32 + bias);
            }
        }
        Ok(out)
    }

    fn delta_rule(&self, rule: &DeltaRule, step: &Step) -> Result<Rows> {
        let [q, k, v, decay, strength] = [0, 1, 2, 3, 4].map(|n| self.input(step, n));
        let (q, k, v, decay, strength) = (q?, k?, v?, decay?, strength?);
        let rates = self.decode(rule.rate, 0, 1)?;
        let bias = self.vector(rule.bias)?.unwrap_or_else(|| vec![0.0; rule.heads]);
        let mut out = Rows::new(self.tokens.len(), step.width);
        for (head, (rate, bias)) in rates.iter().zip(&bias).enumerate() {
            let shared = rule.heads / rule.key_heads;
            let key = if rule.tiled { head % rule.key_heads } else { head / shared };
            let mut state = vec![0.0_f64; rule.key_dim * rule.value_dim];
            for (t, out) in out.data.chunks_exact_mut(step.width).enumerate() {
                let part = |x: &Rows, n: usize, dim: usize| -> Vec<f64> {
                    let row = x.row(t).iter().skip(n * dim).take(dim);
                    row.copied().map(f64::from).collect()
                };
                let one = |x: &Rows| f64::from(x.row(t).get(head).copied().unwrap_or(0.0));
                let (q, k) = (part(q, key, rule.key_dim), part(k, key, rule.key_dim));
                let v = part(v, head, rule.value_dim);
                let softplus = (one(decay) + f64::from(*bias)).exp().ln_1p();
                let kept = (f64::from(*rate) * softplus).exp();
                let strength = 1.0 / (1.0 + (-one(strength)).exp());
                let outs = out.iter_mut().skip(head * rule.value_dim);
                for ((state, v), out) in state.chunks_exact_mut(rule.key_dim).zip(&v).zip(outs) {
                    state.iter_mut().for_each(|x| *x *= kept);
                    let recalled: f64 = state.iter().zip(&k).map(|(x, k)| x * k).sum();
                    let delta = (v - recalled) * strength;
                    state.iter_mut().zip(&k).for_each(|(x, k)| *x += delta * k);
                    let sum: f64 = state.iter().zip(&q).map(|(x, q)| x * q).sum();
                    *out = (sum * f64::from(rule.scale)) as f32;
                }
            }
        }
        Ok(out)
    }

    fn moe(&self, moe: &Moe, x: &Rows) -> Result<Rows> {
        let mut scores = self.product(moe.router, 0, x)?;
        affine(&mut scores, 1.0, self.vector(moe.router_bias)?.as_deref());
        let selection = self.vector(moe.selection_bias)?;
        let mut out = Rows::new(self.tokens.len(), x.width);
        let routes: Vec<Vec<(usize, f32)>> =
            scores.iter().map(|scores| route(moe, scores, selection.as_deref())).collect();
        let biased = |mut rows: Rows, bias: Option<TensorId>, expert: usize| -> Result<Rows> {
            let bias = bias.map(|id| self.decode(id, expert, 1)).transpose()?;
            affine(&mut rows, 1.0, bias.as_deref());
            Ok(rows)
        };
        for expert in 0..moe.experts {
            if !routes.iter().flatten().any(|(chosen, _)| *chosen == expert) {
                continue;
            }
            let gate = biased(self.product(moe.gate, expert, x)?, moe.gate_bias, expert)?;
            let up = biased(self.product(moe.up, expert, x)?, moe.up_bias, expert)?;
            let inner = gate.zip(&up, |gate, up| glu(moe.activation, gate, up));
            let down = biased(self.product(moe.down, expert, &inner)?, moe.down_bias, expert)?;
            for (t, (routes, out)) in
                routes.iter().zip(out.data.chunks_exact_mut(x.width)).enumerate()
            {
                for (_, weight) in routes.iter().filter(|(chosen, _)| *chosen == expert) {
                    for (out, down) in out.iter_mut().zip(down.row(t)) {
                        *out += weight * down;
                    }
                }
            }
        }
        Ok(out)
    }
}

/// `1 + factor · ln(1 + ⌊position / length⌋)`.
pub(crate) fn position_scale(factor: f32, length: usize, position: usize) -> f32 {
    1.0 + factor * ((position / length.max(1)) as f32).ln_1p()
}

/// One vector from rows.
pub(crate) fn pool(kind: Pooling, normalize: bool, rows: &[f32], width: usize) -> Vec<f32> {
    let mut sum: Vec<f64> = vec![0.0; width];
    let count = rows.len() / width;
    let chosen = match kind {
        Pooling::Mean => 0..count,
        Pooling::Cls => 0..count.min(1),
        Pooling::Last => count.saturating_sub(1)..count,
    };
    let divisor = chosen.len().max(1) as f64;
    for row in rows.chunks_exact(width).skip(chosen.start).take(chosen.len()) {
        for (sum, x) in sum.iter_mut().zip(row) {
            *sum += f64::from(*x) / divisor;
        }
    }
    let length = sum.iter().map(|x| x * x).sum::<f64>().sqrt();
    let divisor = if normalize && length > 0.0 { length } else { 1.0 };
    sum.into_iter().map(|x| (x / divisor) as f32).collect()
}

fn affine(rows: &mut Rows, scale: f32, bias: Option<&[f32]>) {
    for row in rows.data.chunks_exact_mut(rows.width) {
        for (i, x) in row.iter_mut().enumerate() {
            *x = *x * scale + bias.and_then(|bias| bias.get(i)).copied().unwrap_or(0.0);
        }
    }
}

fn glu(kind: Activation, gate: f32, up: f32) -> f32 {
    match kind {
        Activation::SwigluOai => activate(kind, gate) * (up.clamp(-7.0, 7.0) + 1.0),
        _ => activate(kind, gate) * up,
    }
}

fn activate(kind: Activation, x: f32) -> f32 {
    let x = f64::from(x);
    let y = match kind {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::Relu => x.max(0.0),
        Activation::ReluSquared => x.max(0.0).powi(2),
        Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Activation::Identity => x,
        Activation::SwigluOai => {
            let x = x.min(7.0);
            x / (1.0 + (-1.702 * x).exp())
        }
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
            0.5 * x * (1.0 + inner.tanh())
        }
        Activation::Gelu => 0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2)),
    };
    y as f32
}

/// The error function: its series near zero, its continued fraction beyond.
fn erf(x: f64) -> f64 {
    let a = x.abs();
    let value = if a < 2.5 {
        let (mut term, mut sum) = (a, a);
        for n in 1..60 {
            term *= -a * a / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * 2.0 / std::f64::consts::PI.sqrt()
    } else {
        let mut fraction = 0.0;
        for n in (1..60).rev() {
            fraction = f64::from(n) / 2.0 / (a + fraction);
        }
        1.0 - (-a * a).exp() / ((a + fraction) * std::f64::consts::PI.sqrt())
    };
    value.copysign(x)
}

/// Sixteen lanes of f32, gathered in f64 every 256 numbers.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut total = 0.0_f64;
    for (a, b) in a.chunks(256).zip(b.chunks(256)) {
        let mut lanes = [0.0_f32; 16];
        let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<16>(), b.as_chunks::<16>());
        for (a, b) in a.iter().zip(b) {
            for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
                *lane += a * b;
            }
        }
        total += lanes.iter().map(|lane| f64::from(*lane)).sum::<f64>();
        total += a_rest.iter().zip(b_rest).map(|(a, b)| f64::from(a * b)).sum::<f64>();
    }
    total as f32
}

#[cfg(test)]
mod tests {
    use super::erf;

    #[test]
    fn erf_agrees_with_published_values() {
        for (x, y) in [
            (0.0, 0.0),
            (0.5, 0.520_499_877_8),
            (1.0, 0.842_700_792_9),
            (-2.0, -0.995_322_265_0),
            (3.0, 0.999_977_909_5),
        ] {
            assert!((erf(x) - y).abs() < 1e-9, "erf({x}) = {}", erf(x));
        }
    }
}
