//! Norms, activations, softmax and arithmetic on whole slices.

use super::math::{erf, exp, fma, sigmoid as sigmoid1, tanh};
use super::{Activation, multiversion};

/// Independent partial results, so that reductions run as vectors in a fixed order.
const LANES: usize = 16;

/// Folds a slice in [`LANES`] partial results and joins them pairwise.
#[inline(always)]
fn reduce(
    x: &[f32],
    zero: f32,
    step: impl Fn(f32, f32) -> f32,
    join: impl Fn(f32, f32) -> f32,
) -> f32 {
    let (wide, rest) = x.as_chunks::<{ LANES * 2 }>();
    let mut lanes = [zero; LANES * 2];
    for chunk in wide {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane = step(*lane, value);
        }
    }
    for (lane, &value) in lanes.iter_mut().zip(rest) {
        *lane = step(*lane, value);
    }
    let mut width = LANES;
    while width > 0 {
        let (low, high) = lanes.split_at_mut(width);
        for (a, b) in low.iter_mut().zip(high) {
            *a = join(*a, *b);
        }
        width /= 2;
    }
    lanes.first().copied().unwrap_or(zero)
}

#[inline(always)]
fn sum_squares<const FMA: bool>(x: &[f32]) -> f32 {
    reduce(x, 0.0, |s, v| fma::<FMA>(v, v, s), |a, b| a + b)
}

#[inline(always)]
fn sum(x: &[f32]) -> f32 {
    reduce(x, 0.0, |s, v| s + v, |a, b| a + b)
}

/// The largest value; NaN is passed over, and an empty slice has minus infinity.
#[inline(always)]
fn maximum(x: &[f32]) -> f32 {
    reduce(x, f32::NEG_INFINITY, |m, v| if v > m { v } else { m }, |a, b| if b > a { b } else { a })
}

multiversion! {
    /// The dot product of two slices, up to the shorter.
    pub fn dot / dot_on = dot_body(a: &[f32], b: &[f32]) -> f32
}

#[inline(always)]
fn dot_body<const FMA: bool>(a: &[f32], b: &[f32]) -> f32 {
    let n = a.len().min(b.len());
    let (a, b) = (a.get(..n).unwrap_or(&[]), b.get(..n).unwrap_or(&[]));
    let ((wide_a, rest_a), (wide_b, rest_b)) = (a.as_chunks::<64>(), b.as_chunks::<64>());
    let mut lanes = [0.0f32; 64];
    for (a, b) in wide_a.iter().zip(wide_b) {
        for i in 0..64 {
            // Constant bounds: no check remains.
            #[allow(clippy::indexing_slicing, reason = "arrays of 64")]
            {
                lanes[i] = fma::<FMA>(a[i], b[i], lanes[i]);
            }
        }
    }
    for ((lane, a), b) in lanes.iter_mut().zip(rest_a).zip(rest_b) {
        *lane = fma::<FMA>(*a, *b, *lane);
    }
    sum(&lanes)
}

multiversion! {
    /// RMS norm of each `width` values of `x` into `out`: x / sqrt(mean(x^2) + eps), times
    /// `weight` (`width` values) if given. For per-head norms, `width` is the head's.
    pub fn rms_norm / rms_norm_on = rms_norm_body(x: &[f32], width: usize, weight: Option<&[f32]>, eps: f32, out: &mut [f32])
}

#[inline(always)]
fn rms_norm_body<const FMA: bool>(
    x: &[f32],
    width: usize,
    weight: Option<&[f32]>,
    eps: f32,
    out: &mut [f32],
) {
    let width = width.max(1);
    for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
        let inverse = 1.0 / (sum_squares::<FMA>(x) / width as f32 + eps).sqrt();
        match weight {
            Some(weight) => {
                for ((out, &x), &w) in out.iter_mut().zip(x).zip(weight) {
                    *out = x * inverse * w;
                }
            }
            None => {
                for (out, &x) in out.iter_mut().zip(x) {
                    *out = x * inverse;
                }
            }
        }
    }
}

multiversion! {
    /// [`rms_norm`] in place.
    pub fn rms_norm_in_place / rms_norm_in_place_on = rms_in_place_body(x: &mut [f32], width: usize, weight: Option<&[f32]>, eps: f32)
}

#[inline(always)]
fn rms_in_place_body<const FMA: bool>(
    x: &mut [f32],
    width: usize,
    weight: Option<&[f32]>,
    eps: f32,
) {
    let width = width.max(1);
    for x in x.chunks_exact_mut(width) {
        let inverse = 1.0 / (sum_squares::<FMA>(x) / width as f32 + eps).sqrt();
        match weight {
            Some(weight) => x.iter_mut().zip(weight).for_each(|(x, &w)| *x = *x * inverse * w),
            None => x.iter_mut().for_each(|x| *x *= inverse),
        }
    }
}

multiversion! {
    /// L2 norm of each `width` values in place: x / max(|x|, eps).
    pub fn l2_norm / l2_norm_on = l2_norm_body(x: &mut [f32], width: usize, eps: f32)
}

#[inline(always)]
fn l2_norm_body<const FMA: bool>(x: &mut [f32], width: usize, eps: f32) {
    for x in x.chunks_exact_mut(width.max(1)) {
        let inverse = 1.0 / sum_squares::<FMA>(x).sqrt().max(eps);
        x.iter_mut().for_each(|x| *x *= inverse);
    }
}

multiversion! {
    /// Layer norm of each `width` values of `x` into `out`, with optional weight and bias.
    pub fn layer_norm / layer_norm_on = layer_norm_body(x: &[f32], width: usize, weight: Option<&[f32]>, bias: Option<&[f32]>, eps: f32, out: &mut [f32])
}

#[inline(always)]
fn layer_norm_body<const FMA: bool>(
    x: &[f32],
    width: usize,
    weight: Option<&[f32]>,
    bias: Option<&[f32]>,
    eps: f32,
    out: &mut [f32],
) {
    let width = width.max(1);
    for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
        let mean = sum(x) / width as f32;
        out.iter_mut().zip(x).for_each(|(out, &x)| *out = x - mean);
        let inverse = 1.0 / (sum_squares::<FMA>(out) / width as f32 + eps).sqrt();
        out.iter_mut().for_each(|out| *out *= inverse);
        if let Some(weight) = weight {
            out.iter_mut().zip(weight).for_each(|(out, &w)| *out *= w);
        }
        if let Some(bias) = bias {
            out.iter_mut().zip(bias).for_each(|(out, &b)| *out += b);
        }
    }
}

multiversion! {
    /// `x += y`.
    pub fn add / add_on = add_body(x: &mut [f32], y: &[f32])
}

#[inline(always)]
fn add_body<const FMA: bool>(x: &mut [f32], y: &[f32]) {
    x.iter_mut().zip(y).for_each(|(x, &y)| *x += y);
}

multiversion! {
    /// `x *= y`, element by element.
    pub fn multiply / multiply_on = multiply_body(x: &mut [f32], y: &[f32])
}

#[inline(always)]
fn multiply_body<const FMA: bool>(x: &mut [f32], y: &[f32]) {
    x.iter_mut().zip(y).for_each(|(x, &y)| *x *= y);
}

multiversion! {
    /// `x += factor * y`.
    pub fn multiply_add / multiply_add_on = multiply_add_body(x: &mut [f32], factor: f32, y: &[f32])
}

#[inline(always)]
fn multiply_add_body<const FMA: bool>(x: &mut [f32], factor: f32, y: &[f32]) {
    x.iter_mut().zip(y).for_each(|(x, &y)| *x = fma::<FMA>(factor, y, *x));
}

multiversion! {
    /// `x *= factor`.
    pub fn scale / scale_on = scale_body(x: &mut [f32], factor: f32)
}

#[inline(always)]
fn scale_body<const FMA: bool>(x: &mut [f32], factor: f32) {
    x.iter_mut().for_each(|x| *x *= factor);
}

multiversion! {
    /// `x = cap * tanh(x / cap)`.
    pub fn softcap / softcap_on = softcap_body(x: &mut [f32], cap: f32)
}

#[inline(always)]
fn softcap_body<const FMA: bool>(x: &mut [f32], cap: f32) {
    let inverse = 1.0 / cap;
    x.iter_mut().for_each(|x| *x = cap * tanh::<FMA>(*x * inverse));
}

multiversion! {
    /// `x = 1 / (1 + e^-x)`.
    pub fn sigmoid / sigmoid_on = sigmoid_body(x: &mut [f32])
}

#[inline(always)]
fn sigmoid_body<const FMA: bool>(x: &mut [f32]) {
    x.iter_mut().for_each(|x| *x = sigmoid1::<FMA>(*x));
}

multiversion! {
    /// Softmax of `factor * x` in place. If every value is minus infinity the result is zero.
    pub fn softmax / softmax_on = softmax_body(x: &mut [f32], factor: f32)
}

#[inline(always)]
fn softmax_body<const FMA: bool>(x: &mut [f32], factor: f32) {
    scale_body::<FMA>(x, factor);
    let most = maximum(x);
    if most == f32::NEG_INFINITY {
        let nan = x.iter().any(|x| x.is_nan());
        x.fill(if nan { f32::NAN } else { 0.0 });
        return;
    }
    x.iter_mut().for_each(|x| *x = exp::<FMA>(*x - most));
    let total = sum(x);
    x.iter_mut().for_each(|x| *x /= total);
}

multiversion! {
    /// log(sum(e^x)); minus infinity for an empty slice.
    pub fn log_sum_exp / log_sum_exp_on = log_sum_exp_body(x: &[f32]) -> f32
}

#[inline(always)]
fn log_sum_exp_body<const FMA: bool>(x: &[f32]) -> f32 {
    let most = maximum(x);
    if most.is_infinite() {
        return most;
    }
    let total = reduce(x, 0.0, |s, v| s + exp::<FMA>(v - most), |a, b| a + b);
    most + total.ln()
}

multiversion! {
    /// `x = activation(x)`. [`Activation::SwigluOai`] has no meaning without a second input and
    /// gives its gate's part.
    pub fn activate / activate_on = activate_body(activation: Activation, x: &mut [f32])
}

#[inline(always)]
fn activate_body<const FMA: bool>(activation: Activation, x: &mut [f32]) {
    match activation {
        Activation::Identity => {}
        Activation::Silu => x.iter_mut().for_each(|x| *x *= sigmoid1::<FMA>(*x)),
        Activation::GeluTanh => x.iter_mut().for_each(|x| *x = gelu_tanh::<FMA>(*x)),
        Activation::GeluErf => x.iter_mut().for_each(|x| *x = gelu_erf::<FMA>(*x)),
        Activation::GeluQuick => {
            x.iter_mut().for_each(|x| *x *= sigmoid1::<FMA>(1.702 * *x));
        }
        Activation::Relu => x.iter_mut().for_each(|x| *x = relu(*x)),
        Activation::Sigmoid => x.iter_mut().for_each(|x| *x = sigmoid1::<FMA>(*x)),
        Activation::ReluSquared => x.iter_mut().for_each(|x| *x = relu(*x) * relu(*x)),
        Activation::SwigluOai { alpha, limit } => x.iter_mut().for_each(|x| {
            let gate = at_most(*x, limit);
            *x = gate * sigmoid1::<FMA>(alpha * gate);
        }),
    }
}

multiversion! {
    /// `gate = activation(gate) * up`, up to the shorter.
    pub fn glu_in_place / glu_in_place_on = glu_body(activation: Activation, gate: &mut [f32], up: &[f32])
}

#[inline(always)]
fn glu_body<const FMA: bool>(activation: Activation, gate: &mut [f32], up: &[f32]) {
    let pairs = gate.iter_mut().zip(up);
    match activation {
        Activation::Silu => pairs.for_each(|(g, &u)| *g = *g * sigmoid1::<FMA>(*g) * u),
        Activation::GeluTanh => pairs.for_each(|(g, &u)| *g = gelu_tanh::<FMA>(*g) * u),
        Activation::SwigluOai { alpha, limit } => pairs.for_each(|(g, &u)| {
            let gate = at_most(*g, limit);
            let up = at_most(u, limit);
            let up = if up < -limit { -limit } else { up };
            *g = gate * sigmoid1::<FMA>(alpha * gate) * (up + 1.0);
        }),
        other => {
            activate_body::<FMA>(other, gate);
            multiply_body::<FMA>(gate, up);
        }
    }
}

#[inline(always)]
fn relu(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

#[inline(always)]
fn at_most(x: f32, limit: f32) -> f32 {
    if x > limit { limit } else { x }
}

#[inline(always)]
fn gelu_tanh<const FMA: bool>(x: f32) -> f32 {
    const ROOT: f32 = 0.797_884_6;
    let inner = ROOT * x * fma::<FMA>(0.044_715, x * x, 1.0);
    // 0.5 (1 + tanh y) = sigmoid(2 y), which does not cancel.
    x * sigmoid1::<FMA>(2.0 * inner)
}

#[inline(always)]
fn gelu_erf<const FMA: bool>(x: f32) -> f32 {
    0.5 * x * (1.0 + erf::<FMA>(x * std::f32::consts::FRAC_1_SQRT_2))
}
