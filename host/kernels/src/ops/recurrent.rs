//! Steps that carry a state from token to token: short causal convolutions and the gated delta
//! rule. One token, or one token of one head, at a time; the caller shares heads out to workers.

use super::math::fma;
use super::multiversion;

multiversion! {
    /// One token of a causal convolution: `out[c] = Σ_j weights[j][c] · rows[j][c]`, with `rows` the
    /// token's inputs and those before it, oldest first, and `weights` laid out alike (both
    /// `kernel · width` values, `out` has `width`).
    pub fn convolve / convolve_on = convolve_body(rows: &[f32], weights: &[f32], out: &mut [f32])
}

#[inline(always)]
fn convolve_body<const FMA: bool>(rows: &[f32], weights: &[f32], out: &mut [f32]) {
    let width = out.len().max(1);
    out.fill(0.0);
    for (rows, weights) in rows.chunks_exact(width).zip(weights.chunks_exact(width)) {
        for ((out, &x), &w) in out.iter_mut().zip(rows).zip(weights) {
            *out = fma::<FMA>(x, w, *out);
        }
    }
}

/// What one token does to a head's state in the gated delta rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gates {
    /// What the state is multiplied by first.
    pub decay: f32,
    /// How far what it recalls is moved towards the value.
    pub strength: f32,
    /// What the output is multiplied by.
    pub scale: f32,
}

multiversion! {
    /// One token of one head of the gated delta rule, in one pass over the state.
    ///
    /// `state` has a row of `q.len()` numbers for each number of `v`. Each row is multiplied by
    /// `decay`; what it recalls for `k` is moved towards `v` by `strength`; `out` is what it then
    /// recalls for `q`, times `scale`.
    pub fn delta_rule / delta_rule_on = delta_rule_body(state: &mut [f32], q: &[f32], k: &[f32], v: &[f32], gates: Gates, out: &mut [f32])
}

#[inline(always)]
fn delta_rule_body<const FMA: bool>(
    state: &mut [f32],
    q: &[f32],
    k: &[f32],
    v: &[f32],
    Gates { decay, strength, scale }: Gates,
    out: &mut [f32],
) {
    let rows = state.chunks_exact_mut(k.len().max(1));
    for ((row, &v), out) in rows.zip(v).zip(out) {
        let mut lanes = [0.0f32; 32];
        let (wide, rest) = row.as_chunks_mut::<32>();
        let ((wide_k, rest_k), (wide_q, rest_q)) = (k.as_chunks::<32>(), q.as_chunks::<32>());
        for (row, k) in wide.iter_mut().zip(wide_k) {
            for ((x, &k), lane) in row.iter_mut().zip(k).zip(&mut lanes) {
                *x *= decay;
                *lane = fma::<FMA>(*x, k, *lane);
            }
        }
        for ((x, &k), lane) in rest.iter_mut().zip(rest_k).zip(&mut lanes) {
            *x *= decay;
            *lane = fma::<FMA>(*x, k, *lane);
        }
        let delta = (v - total(&lanes)) * strength;
        lanes = [0.0; 32];
        for ((row, k), q) in wide.iter_mut().zip(wide_k).zip(wide_q) {
            for (((x, &k), &q), lane) in row.iter_mut().zip(k).zip(q).zip(&mut lanes) {
                *x = fma::<FMA>(k, delta, *x);
                *lane = fma::<FMA>(*x, q, *lane);
            }
        }
        for (((x, &k), &q), lane) in rest.iter_mut().zip(rest_k).zip(rest_q).zip(&mut lanes) {
            *x = fma::<FMA>(k, delta, *x);
            *lane = fma::<FMA>(*x, q, *lane);
        }
        *out = total(&lanes) * scale;
    }
}

/// The sum in a fixed order, pairwise.
#[inline(always)]
fn total(lanes: &[f32; 32]) -> f32 {
    let mut lanes = *lanes;
    let mut width = 16;
    while width > 0 {
        let (low, high) = lanes.split_at_mut(width);
        for (a, b) in low.iter_mut().zip(high) {
            *a += *b;
        }
        width /= 2;
    }
    lanes.first().copied().unwrap_or(0.0)
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "tests may fail loudly")]
mod tests {
    use super::{Gates, convolve_on, delta_rule_on};
    use crate::isa::{self, Isa};

    fn numbers(count: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..count).map(|_| next()).collect()
    }

    fn offered() -> impl Iterator<Item = Isa> {
        isa::current().up_to()
    }

    #[test]
    fn a_convolution_is_its_sum() {
        for isa in offered() {
            let (rows, weights) = (numbers(4 * 37, 1), numbers(4 * 37, 2));
            let mut out = vec![9.0; 37];
            convolve_on(isa, &rows, &weights, &mut out);
            for (c, out) in out.iter().enumerate() {
                let wanted: f64 = (0..4)
                    .map(|j| f64::from(rows[j * 37 + c]) * f64::from(weights[j * 37 + c]))
                    .sum();
                assert!((f64::from(*out) - wanted).abs() < 1e-6, "{isa:?} {c}: {out} {wanted}");
            }
        }
    }

    #[test]
    fn the_delta_rule_is_its_formula() {
        for isa in offered() {
            for (keys, values) in [(128, 8), (41, 5)] {
                let (q, k) = (numbers(keys, 3), numbers(keys, 4));
                let k: Vec<f32> = k.iter().map(|k| k / (keys as f32).sqrt()).collect();
                let v = numbers(values, 5);
                let mut state = numbers(keys * values, 6);
                let mut plain: Vec<f64> = state.iter().copied().map(f64::from).collect();
                let mut out = vec![0.0; values];
                for _ in 0..3 {
                    let gates = Gates { decay: 0.9, strength: 0.6, scale: 0.5 };
                    delta_rule_on(isa, &mut state, &q, &k, &v, gates, &mut out);
                    for (i, row) in plain.chunks_exact_mut(keys).enumerate() {
                        row.iter_mut().for_each(|x| *x *= f64::from(0.9_f32));
                        let recalled: f64 =
                            row.iter().zip(&k).map(|(x, k)| x * f64::from(*k)).sum();
                        let delta = (f64::from(v[i]) - recalled) * f64::from(0.6_f32);
                        row.iter_mut().zip(&k).for_each(|(x, k)| *x += delta * f64::from(*k));
                        let wanted: f64 =
                            row.iter().zip(&q).map(|(x, q)| x * f64::from(*q)).sum::<f64>() * 0.5;
                        let found = f64::from(out[i]);
                        assert!(
                            (found - wanted).abs() < 1e-4,
                            "{isa:?} {keys} {i}: {found} {wanted}"
                        );
                    }
                }
            }
        }
    }
}
