//! Tokens that come in bulk: where there are tiles of bf16, what they compute; where there are none,
//! nothing changes.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests may fail loudly")]

mod common;

use common::{Rng, random_matrix, relative_error};
use gristmill_kernels::{Act, Activation, Isa, Job, Matrix, Pool, Quant, glu_linear, isa, linear};

/// Types whose codes are points of a grid.
const GRID: [Quant; 7] = [
    Quant::IQ1_S,
    Quant::IQ1_M,
    Quant::IQ2_XXS,
    Quant::IQ2_XS,
    Quant::IQ2_S,
    Quant::IQ3_XXS,
    Quant::IQ3_S,
];

/// Types that are multiplied as integers.
fn integer() -> impl Iterator<Item = Quant> {
    common::PACKED.into_iter().chain(GRID)
}

/// The first `bulk` tokens in bulk.
fn product(pool: &Pool, matrix: &Matrix, x: &[f32], n: usize, bulk: usize) -> Vec<f32> {
    let marks: Vec<bool> = (0..n).map(|token| token < bulk).collect();
    marked(pool, matrix, x, &marks)
}

fn marked(pool: &Pool, matrix: &Matrix, x: &[f32], bulk: &[bool]) -> Vec<f32> {
    let (mut act, n) = (Act::default(), bulk.len());
    act.prepare_bulk(pool, x, n, bulk, matrix.cols(), &[matrix]).unwrap();
    let mut out = vec![f32::NAN; n * matrix.rows()];
    let job = Job { matrix, bias: None, scale: 1.0, out: &mut out, accumulate: false };
    linear(pool, &act, &mut [job]).unwrap();
    out
}

fn tiles() -> Option<Pool> {
    (isa::offered() >= Isa::Amx).then(|| Pool::with_isa(2, false, Isa::Amx))
}

fn brain(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
}

/// Sums in doubles of weights and activations, each first rounded by `round`.
fn reference(matrix: &Matrix, x: &[f32], n: usize, round: fn(f32) -> f32) -> Vec<f64> {
    let (rows, cols) = (matrix.rows(), matrix.cols());
    let rounded = |x: &[f32]| -> Vec<f64> { x.iter().map(|x| f64::from(round(*x))).collect() };
    let x = rounded(x);
    let mut weights = vec![0.0; cols];
    let mut out = vec![0.0; n * rows];
    for r in 0..rows {
        matrix.row_f32(r, &mut weights).unwrap();
        let weights = rounded(&weights);
        for t in 0..n {
            let x = &x[t * cols..(t + 1) * cols];
            out[t * rows + r] = weights.iter().zip(x).map(|(w, x)| w * x).sum();
        }
    }
    out
}

#[test]
fn tiles_are_closer_to_the_exact_product_than_8_bit_activations() {
    let Some(pool) = tiles() else { return };
    let mut rng = Rng::new(7);
    for quant in integer() {
        let matrix = random_matrix(quant, 64, 1024, &mut rng).pack().unwrap();
        let x = rng.normals(40 * 1024);
        let want = reference(&matrix, &x, 40, |x| x);
        let error = |bulk| relative_error(&product(&pool, &matrix, &x, 40, bulk), &want);
        let (bulk, single) = (error(40), error(0));
        assert!(bulk < 0.75 * single, "{quant}: {bulk:e}, with 8 bits {single:e}");
    }
}

/// Shapes with parts of a pair of panels, of a chunk of columns, and of a pair of tokens.
#[test]
fn tiles_are_the_product_of_rounded_numbers() {
    let Some(pool) = tiles() else { return };
    let mut rng = Rng::new(1);
    for quant in integer() {
        let mut columns = common::columns(quant);
        columns.push(1280);
        for cols in columns {
            let raw = random_matrix(quant, 85, cols, &mut rng);
            let x = rng.normals(70 * cols);
            let want = reference(&raw, &x, 70, brain);
            for matrix in [raw.clone(), raw.pack().unwrap()] {
                for n in [1, 16, 33, 70] {
                    let got = product(&pool, &matrix, &x[..n * cols], n, n);
                    let error = relative_error(&got, &want[..n * 85]);
                    assert!(error < 1e-4, "{quant} cols={cols} n={n}: {error:e}");
                }
            }
        }
    }
}

/// A token's numbers depend on whether it came in bulk and on nothing else: not on its neighbours,
/// their number, the threads, or where the weights are.
#[test]
fn a_token_does_not_notice_its_neighbours() {
    let Some(pool) = tiles() else { return };
    let mut rng = Rng::new(2);
    for quant in integer() {
        let raw = random_matrix(quant, 300, 768, &mut rng);
        let packed = raw.pack().unwrap();
        let x = rng.normals(50 * 768);
        let one = Pool::with_isa(1, false, Isa::Amx);
        let marks: [fn(usize) -> bool; 4] =
            [|t| t < 1, |t| t < 49, |t| t % 3 != 1, |t| !(17..20).contains(&t)];
        for mark in marks {
            let marks: Vec<bool> = (0..50).map(mark).collect();
            let together = marked(&pool, &packed, &x, &marks);
            assert_eq!(together, marked(&one, &packed, &x, &marks), "{quant}: threads");
            for t in [0, 19, 20, 48, 49] {
                if !marks[t] && GRID.contains(&quant) {
                    // A few of them are summed in another order than many.
                    continue;
                }
                let want = marked(&pool, &packed, &x[t * 768..][..768], &marks[t..=t]);
                assert_eq!(together[t * 300..][..300], want, "{quant} token {t} of {marks:?}");
            }
        }
    }
}

/// Scale, bias and sum onto what is there; several matrices of several types in one phase.
#[test]
fn products_leave_as_others_do() {
    let Some(pool) = tiles() else { return };
    let mut rng = Rng::new(3);
    let (n, bulk, cols) = (45, 40, 256);
    let x = rng.normals(n * cols);
    let matrices = [Quant::Q4_K, Quant::F32, Quant::Q8_0]
        .map(|quant| random_matrix(quant, 50, cols, &mut rng).pack().unwrap());
    let mut act = Act::default();
    let marks: Vec<bool> = (0..n).map(|token| token < bulk).collect();
    act.prepare_bulk(&pool, &x, n, &marks, cols, &matrices.each_ref()).unwrap();
    let bias = rng.normals(50);
    let mut outs = [(); 3].map(|()| vec![3.0; n * 50]);
    let mut jobs: Vec<Job<'_>> = matrices
        .iter()
        .zip(&mut outs)
        .map(|(matrix, out)| Job { matrix, bias: Some(&bias), scale: 0.5, out, accumulate: true })
        .collect();
    linear(&pool, &act, &mut jobs).unwrap();
    for (matrix, out) in matrices.iter().zip(&outs) {
        let plain = product(&pool, matrix, &x, n, bulk);
        for (i, (got, plain)) in out.iter().zip(plain).enumerate() {
            let want = 3.0 + (plain * 0.5 + bias[i % 50]);
            assert!((got - want).abs() <= 1e-5 * want.abs().max(1.0), "{matrix:?} {i}");
        }
    }
}

#[test]
fn gate_and_up_meet_in_bulk() {
    let Some(pool) = tiles() else { return };
    let mut rng = Rng::new(4);
    let (n, cols) = (40, 256);
    let x = rng.normals(n * cols);
    let [gate, up] =
        [Quant::Q4_K, Quant::Q6_K].map(|quant| random_matrix(quant, 70, cols, &mut rng));
    let mut act = Act::default();
    act.prepare_bulk(&pool, &x, n, &[true; 40], cols, &[&gate, &up]).unwrap();
    let mut out = vec![f32::NAN; n * 70];
    glu_linear(&pool, &act, &gate, &up, Activation::Silu, &mut out).unwrap();
    let ups = product(&pool, &up, &x, n, n);
    let gates = product(&pool, &gate, &x, n, n);
    for ((got, gate), up) in out.iter().zip(gates).zip(ups) {
        let want = gate / (1.0 + (-gate).exp()) * up;
        assert!((got - want).abs() <= 1e-5 * want.abs().max(1.0), "{got} {want}");
    }
}

/// Below AMX a token in bulk is as any other.
#[test]
fn without_tiles_nothing_changes() {
    let mut rng = Rng::new(5);
    let matrix = random_matrix(Quant::Q5_K, 40, 512, &mut rng).pack().unwrap();
    let x = rng.normals(20 * 512);
    for isa in isa::offered().up_to().filter(|isa| *isa < Isa::Amx) {
        let pool = Pool::with_isa(1, false, isa);
        let (bulk, single) =
            (product(&pool, &matrix, &x, 20, 20), product(&pool, &matrix, &x, 20, 0));
        assert_eq!(bulk, single, "{isa}");
    }
}

#[test]
fn marks_for_other_tokens_are_an_error() {
    let pool = Pool::new(1, false);
    let error = Act::default().prepare_bulk(&pool, &[0.0; 64], 1, &[true; 2], 64, &[]);
    assert!(error.unwrap_err().to_string().starts_with("marks of tokens in bulk"), "said so");
}

/// A value that is no number is found under its token's own place, whatever path it takes.
#[test]
fn the_token_that_is_no_number_is_named() {
    let Some(pool) = tiles() else { return };
    let matrix = random_matrix(Quant::Q4_0, 16, 64, &mut Rng::new(6));
    let marks: Vec<bool> = (0..40).map(|t| t % 2 == 0).collect();
    for token in [0, 1, 30, 39] {
        let mut x = vec![1.0; 40 * 64];
        x[token * 64 + 5] = f32::INFINITY;
        let mut act = Act::default();
        act.prepare_bulk(&pool, &x, 40, &marks, 64, &[&matrix]).unwrap();
        assert_eq!(act.first_nonfinite(), Some(token));
    }
}
