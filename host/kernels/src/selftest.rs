//! Known-answer tests that every kernel path passes in this process before it is used.
//!
//! Small random data through each kernel of an instruction set, against the plain code.

use crate::act::Act;
use crate::attention::{AttentionSpec, KvLayer, attention};
use crate::bytes::Bytes;
use crate::isa::Isa;
use crate::linear::{Job, linear};
use crate::matrix::Matrix;
use crate::ops::{self, Activation};
use crate::pool::Pool;
use crate::quant::Quant;

/// Types that have kernels of their own.
const TYPES: [Quant; 11] = [
    Quant::F32,
    Quant::F16,
    Quant::BF16,
    Quant::Q4_0,
    Quant::Q4_1,
    Quant::Q5_0,
    Quant::Q5_1,
    Quant::Q8_0,
    Quant::Q4_K,
    Quant::Q5_K,
    Quant::Q6_K,
];

/// One token, a small batch, a large one.
const BATCHES: [usize; 3] = [1, 3, 14];

/// Runs every kernel of `isa` on small data against the scalar code.
///
/// # Errors
/// The name of the first kernel whose answer differs.
pub(crate) fn run(isa: Isa) -> Result<(), &'static str> {
    if isa == Isa::Scalar {
        return Ok(());
    }
    let (plain, fast) = (Pool::with_isa(1, false, Isa::Scalar), Pool::with_isa(1, false, isa));
    let (rows, cols) = (19, 256);
    for quant in TYPES {
        let name = quant.name();
        let mut bytes = vec![0; quant.row_bytes(cols).map_err(|_| name)? * rows];
        crate::encode_row(quant, &noise(rows * cols, 1), &mut bytes).map_err(|_| name)?;
        let raw = Matrix::new(quant, rows, cols, Bytes::from_vec(bytes)).map_err(|_| name)?;
        let packed = raw.pack_for(isa).map_err(|_| name)?;
        for n in BATCHES {
            let x = noise(n * cols, 2);
            let want = product(&plain, &raw, &x, n).ok_or(name)?;
            for matrix in [&raw, &packed] {
                let got = product(&fast, matrix, &x, n).ok_or(name)?;
                close(&got, &want).then_some(()).ok_or(name)?;
            }
        }
    }
    operations(isa).then_some(()).ok_or("a vector operation")?;
    let want = attend(&plain).ok_or("attention")?;
    let got = attend(&fast).ok_or("attention")?;
    close(&got, &want).then_some(()).ok_or("attention")
}

fn product(pool: &Pool, matrix: &Matrix, x: &[f32], n: usize) -> Option<Vec<f32>> {
    let mut act = Act::default();
    act.prepare(pool, x, n, matrix.cols(), &[matrix]).ok()?;
    let mut out = vec![f32::NAN; n * matrix.rows()];
    let job = Job { matrix, bias: None, scale: 1.0, out: &mut out, accumulate: false };
    linear(pool, &act, &mut [job]).ok()?;
    Some(out)
}

fn operations(isa: Isa) -> bool {
    let x = noise(100, 3);
    let all = |isa: Isa| {
        let mut out = vec![0.0; 100];
        ops::vector::rms_norm_on(isa, &x, 50, None, 1e-5, &mut out);
        ops::vector::glu_in_place_on(isa, Activation::Silu, &mut out, &x);
        ops::vector::softmax_on(isa, &mut out, 1.5);
        out.push(ops::vector::dot_on(isa, &x, &x));
        out
    };
    close(&all(isa), &all(Isa::Scalar))
}

fn attend(pool: &Pool) -> Option<Vec<f32>> {
    let (heads, kv_heads, head_dim, len) = (3, 1, 80, 70);
    let mut layer = KvLayer::new(kv_heads, head_dim, len, Quant::F16, Quant::F16).ok()?;
    let width = kv_heads * head_dim;
    layer.append_on(pool.isa(), 0, &noise(len * width, 4), &noise(len * width, 5)).ok()?;
    let spec = AttentionSpec {
        heads,
        kv_heads,
        head_dim,
        scale: 0.3,
        causal: true,
        window: Some(66),
        softcap: Some(30.0),
        sinks: None,
    };
    let rows = [(0, 68), (0, 69), (0, 5)];
    let q = noise(rows.len() * heads * head_dim, 6);
    let mut out = vec![f32::NAN; q.len()];
    attention(pool, &spec, &q, &rows, &[&layer], &mut out).ok()?;
    Some(out)
}

/// Equal up to the rounding of sums in another order.
fn close(got: &[f32], want: &[f32]) -> bool {
    let size = want.iter().fold(1e-6f32, |m, x| m.max(x.abs()));
    got.len() == want.len() && got.iter().zip(want).all(|(a, b)| (a - b).abs() <= 2e-5 * size)
}

fn noise(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_offered_instruction_set_passes() {
        for isa in crate::isa::offered().up_to() {
            assert_eq!(run(isa), Ok(()), "{isa}");
        }
    }

    #[test]
    fn a_wrong_answer_is_noticed() {
        assert!(!close(&[1.0, 2.0, f32::NAN], &[1.0, 2.0, 3.0]));
        assert!(!close(&[1.0, 2.001], &[1.0, 2.0]));
    }
}
