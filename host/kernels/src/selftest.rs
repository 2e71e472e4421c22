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
use crate::quant::{Paths, Quant};

/// Tokens of the large batch.
const MOST: usize = 14;
/// One token, a small batch, a large one.
const BATCHES: [usize; 3] = [1, 3, MOST];

/// Tokens in bulk: a pair of tiles and one more.
const BULK: usize = 33;
/// How far sums of 256 rounded products may be off: a weight computed to another last bit may round
/// to the other side.
const TIES: f32 = 1e-3;
/// How far sums of values and weights may be off that are each two numbers of bf16.
const ROUNDED: f32 = 1e-4;

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
    for &quant in Quant::ALL.iter().filter(|quant| quant.paths() != Paths::Decoded) {
        let name = quant.name();
        let raw = sample(quant, rows, cols).ok_or(name)?;
        let packed = raw.pack_for(isa).map_err(|_| name)?;
        let x = noise(MOST * cols, 2);
        // Plain code takes most of the time, and what it says of a token is the same in any batch.
        let all = product(&plain, &raw, &x, MOST, false).ok_or(name)?;
        for n in BATCHES {
            let (x, want) = (x.get(..n * cols).ok_or(name)?, all.get(..n * rows).ok_or(name)?);
            for matrix in [&raw, &packed] {
                let got = product(&fast, matrix, x, n, false).ok_or(name)?;
                close(&got, want).then_some(()).ok_or(name)?;
            }
        }
        if isa >= Isa::Amx && quant.int_kind().is_some() {
            let x = noise(BULK * cols, 2);
            let want = rounded_product(&raw, &x).ok_or(name)?;
            for matrix in [&raw, &packed] {
                let got = product(&fast, matrix, &x, BULK, true).ok_or(name)?;
                near(&got, &want, TIES).then_some(()).ok_or(name)?;
            }
        }
    }
    operations(isa).then_some(()).ok_or("a vector operation")?;
    for (kv, name) in [
        (Quant::F16, "attention over F16"),
        (Quant::BF16, "attention over BF16"),
        (Quant::Q8_0, "attention over Q8_0"),
        (Quant::Q4_0, "attention over Q4_0"),
        (Quant::F32, "attention over F32"),
    ] {
        let want = attend(&plain, kv, false).ok_or(name)?;
        let got = attend(&fast, kv, false).ok_or(name)?;
        close(&got, &want).then_some(()).ok_or(name)?;
        if isa >= Isa::Amx {
            let got = attend(&fast, kv, true).ok_or(name)?;
            near(&got, &want, ROUNDED).then_some(()).ok_or(name)?;
        }
    }
    Ok(())
}

/// A matrix of random codes with scales of one to two.
fn sample(quant: Quant, rows: usize, cols: usize) -> Option<Matrix> {
    let mut bytes = vec![0u8; quant.row_bytes(cols).ok()? * rows];
    let mut random = noise(bytes.len(), 1).into_iter();
    if quant.block_len() == 1 {
        crate::encode_row(quant, &noise(rows * cols, 1), &mut bytes).ok()?;
        return Matrix::new(quant, rows, cols, Bytes::from_vec(bytes)).ok();
    }
    for block in bytes.chunks_exact_mut(quant.block_bytes()) {
        for (byte, x) in block.iter_mut().zip(random.by_ref()) {
            *byte = (x * 127.0) as i8 as u8;
        }
        for at in quant.half_fields() {
            // The exponent of one.
            *block.get_mut(at + 1)? = 0x3c | *block.get(at + 1)? & 3;
        }
        match quant {
            Quant::MXFP4 => *block.first_mut()? = 120 | *block.first()? & 7,
            // The top nibbles of four words are the scale.
            Quant::IQ1_M => {
                *block.get_mut(55)? = 0x30 | *block.get(55)? & 15;
                *block.get_mut(53)? = 0xc0 | *block.get(53)? & 15;
            }
            _ => {}
        }
    }
    Matrix::new(quant, rows, cols, Bytes::from_vec(bytes)).ok()
}

fn product(pool: &Pool, matrix: &Matrix, x: &[f32], n: usize, bulk: bool) -> Option<Vec<f32>> {
    let mut act = Act::default();
    act.prepare_bulk(pool, x, n, &vec![bulk; n], matrix.cols(), &[matrix]).ok()?;
    let mut out = vec![f32::NAN; n * matrix.rows()];
    let job = Job { matrix, bias: None, scale: 1.0, out: &mut out, accumulate: false };
    linear(pool, &act, &mut [job]).ok()?;
    Some(out)
}

/// The product of weights and activations that are each rounded to bf16.
fn rounded_product(matrix: &Matrix, x: &[f32]) -> Option<Vec<f32>> {
    let round = |x: &mut f32| *x = half::bf16::from_f32(*x).to_f32();
    let mut x = x.to_vec();
    x.iter_mut().for_each(round);
    let tokens = x.len() / matrix.cols();
    let (mut row, mut out) = (vec![0.0; matrix.cols()], vec![0.0; tokens * matrix.rows()]);
    for r in 0..matrix.rows() {
        matrix.row_f32(r, &mut row).ok()?;
        row.iter_mut().for_each(round);
        let products = out.iter_mut().skip(r).step_by(matrix.rows());
        for (out, x) in products.zip(x.chunks_exact(matrix.cols())) {
            *out = row.iter().zip(x).map(|(w, x)| w * x).sum();
        }
    }
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

fn attend(pool: &Pool, kv: Quant, bulk: bool) -> Option<Vec<f32>> {
    let (heads, kv_heads, head_dim, len) = (3, 1, 80, 70);
    let mut layer = KvLayer::new(kv_heads, head_dim, len, kv, kv).ok()?;
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
    // Five queries with three heads are widened, the others are not.
    let rows = [(0, 60), (0, 61), (0, 62), (0, 63), (0, 64), (0, 69), (0, 5)];
    let q = noise(rows.len() * heads * head_dim, 6);
    let mut out = vec![f32::NAN; q.len()];
    let marks = vec![bulk; rows.len()];
    attention(pool, &spec, &q, &rows, &marks, &[&layer], &mut out).ok()?;
    Some(out)
}

/// Equal up to the rounding of sums in another order.
fn close(got: &[f32], want: &[f32]) -> bool {
    near(got, want, 2e-5)
}

/// Equal up to a share of the largest.
fn near(got: &[f32], want: &[f32], share: f32) -> bool {
    let size = want.iter().fold(1e-6f32, |m, x| m.max(x.abs()));
    got.len() == want.len() && got.iter().zip(want).all(|(a, b)| (a - b).abs() <= share * size)
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
