//! Matrix products: every type, instruction set, batch class and shape against the plain meaning.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use common::{Rng, random_matrix, relative_error};
use gristmill_kernels::{Act, Activation, Job, Matrix, Pool, Quant, glu_linear, isa, linear};
use proptest::prelude::*;

fn product(pool: &Pool, matrix: &Matrix, x: &[f32], n: usize) -> Vec<f32> {
    let mut act = Act::default();
    act.prepare(pool, x, n, matrix.cols(), &[matrix]).unwrap();
    let mut out = vec![f32::NAN; n * matrix.rows()];
    let mut jobs = [Job { matrix, bias: None, scale: 1.0, out: &mut out, accumulate: false }];
    linear(pool, &act, &mut jobs).unwrap();
    out
}

/// The product in doubles with the decoded weights and the activations as the kernels see them.
fn reference(matrix: &Matrix, x: &[f32], n: usize) -> Vec<f64> {
    let (rows, cols) = (matrix.rows(), matrix.cols());
    // Types met with floats: the plain numbers, and the two that only activations have.
    let integer =
        matrix.quant().block_len() > 1 && !matches!(matrix.quant(), Quant::Q8_1 | Quant::Q8_K);
    let x: Vec<f64> = if integer {
        x.chunks(32).flat_map(common::quantised).collect()
    } else {
        x.iter().map(|x| f64::from(*x)).collect()
    };
    let mut weights = vec![0.0; cols];
    let mut out = vec![0.0; n * rows];
    for r in 0..rows {
        matrix.row_f32(r, &mut weights).unwrap();
        for t in 0..n {
            let x = &x[t * cols..(t + 1) * cols];
            out[t * rows + r] = weights.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum();
        }
    }
    out
}

/// Every type with every instruction set, raw and packed, one, few and many tokens.
#[test]
fn every_type_agrees_with_doubles_on_every_instruction_set() {
    let mut rng = Rng::new(1);
    for &quant in Quant::ALL {
        if matches!(quant, Quant::I64 | Quant::F64 | Quant::I32 | Quant::I16 | Quant::I8) {
            continue;
        }
        // 37 rows: two whole panels and a part of a third.
        let (rows, cols) = (37, 512);
        let raw = random_matrix(quant, rows, cols, &mut rng);
        for n in [1, 2, 5, 8, 9, 25] {
            let x = rng.normals(n * cols);
            let want = reference(&raw, &x, n);
            for isa in isa::offered().up_to() {
                for threads in [1, 3] {
                    let pool = Pool::with_isa(threads, false, isa);
                    for matrix in [raw.clone(), raw.pack_for(isa).unwrap()] {
                        let got = product(&pool, &matrix, &x, n);
                        let error = relative_error(&got, &want);
                        assert!(
                            error < 1e-5,
                            "{quant} {isa} n={n} packed={}: {error:e}",
                            matrix.is_packed()
                        );
                    }
                }
            }
        }
    }
}

/// The kernels of every instruction set, over packed weights and over the file's rows, and the plain
/// code agree to the last bit, whatever the batch: an answer does not change when its weights move.
#[test]
fn products_depend_neither_on_the_batch_nor_on_where_the_weights_are() {
    let mut rng = Rng::new(2);
    for quant in common::PACKED {
        for cols in common::columns(quant) {
            let matrix = random_matrix(quant, 50, cols, &mut rng);
            let x = rng.normals(20 * cols);
            let plain = Pool::with_isa(1, false, isa::Isa::Scalar);
            let want = product(&plain, &matrix, &x, 20);
            for isa in isa::offered().up_to().skip(1) {
                let packed = matrix.pack_for(isa).unwrap();
                assert!(packed.is_packed());
                let pool = Pool::with_isa(2, false, isa);
                for n in [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 20] {
                    let got = product(&pool, &packed, &x[..n * cols], n);
                    assert_eq!(got, want[..n * 50], "{quant} {isa} cols={cols} n={n}");
                    let got = product(&pool, &matrix, &x[..n * cols], n);
                    assert_eq!(got, want[..n * 50], "{quant} {isa} cols={cols} n={n}, rows");
                }
            }
        }
    }
}

/// Floats too: a few tokens read the rows as they are, many decode them first.
#[test]
fn products_with_floats_do_not_depend_on_the_batch() {
    let mut rng = Rng::new(9);
    for quant in [Quant::F32, Quant::F16, Quant::BF16] {
        for cols in [7, 64, 100, 576] {
            let matrix = random_matrix(quant, 37, cols, &mut rng);
            let x = rng.normals(70 * cols);
            for isa in isa::offered().up_to() {
                let pool = Pool::with_isa(2, false, isa);
                let want = product(&pool, &matrix, &x, 70);
                for n in [1, 2, 3, 8, 9, 33] {
                    let got = product(&pool, &matrix, &x[..n * cols], n);
                    assert_eq!(got, want[..n * 37], "{quant} {isa} cols={cols} n={n}");
                }
            }
        }
    }
}

#[test]
fn unpacking_gives_back_every_bit() {
    let mut rng = Rng::new(3);
    for quant in common::PACKED {
        for cols in common::columns(quant) {
            let matrix = random_matrix(quant, 21, cols, &mut rng);
            let packed = matrix.pack_for(isa::Isa::Avx512).unwrap();
            assert!(packed.is_packed());
            let (mut a, mut b) = (vec![0.0; cols], vec![0.0; cols]);
            for r in 0..21 {
                matrix.row_f32(r, &mut a).unwrap();
                packed.row_f32(r, &mut b).unwrap();
                assert_eq!(a, b, "{quant} row {r}");
            }
        }
    }
}

/// Whole panels of even blocks take no more memory than the file's bytes.
#[test]
fn packing_does_not_grow() {
    let mut rng = Rng::new(4);
    for quant in common::PACKED {
        let matrix = random_matrix(quant, 64, 1024, &mut rng);
        assert_eq!(matrix.pack_for(isa::Isa::Avx512).unwrap().memory(), matrix.memory(), "{quant}");
    }
}

#[test]
fn bias_scale_and_accumulation() {
    let mut rng = Rng::new(5);
    for quant in [Quant::Q4_1, Quant::F16, Quant::Q6_K, Quant::IQ4_XS] {
        let (rows, cols) = (35, 256);
        let matrix = random_matrix(quant, rows, cols, &mut rng);
        let bias = rng.normals(rows);
        for isa in isa::offered().up_to() {
            let pool = Pool::with_isa(2, false, isa);
            let matrix = matrix.pack_for(isa).unwrap();
            for n in [1, 3, 11] {
                let x = rng.normals(n * cols);
                let plain = product(&pool, &matrix, &x, n);
                let mut act = Act::default();
                act.prepare(&pool, &x, n, cols, &[&matrix]).unwrap();
                let before = rng.normals(n * rows);
                let mut out = before.clone();
                let mut jobs = [Job {
                    matrix: &matrix,
                    bias: Some(&bias),
                    scale: 0.5,
                    out: &mut out,
                    accumulate: true,
                }];
                linear(&pool, &act, &mut jobs).unwrap();
                for (i, got) in out.iter().enumerate() {
                    let want = before[i] + (plain[i] * 0.5 + bias[i % rows]);
                    assert!((got - want).abs() <= 1e-5 * want.abs().max(1.0), "{quant} {isa}");
                }
            }
        }
    }
}

/// Several matrices of different types and sizes in one phase, for any number of threads.
#[test]
fn jobs_of_one_phase_do_not_disturb_each_other() {
    let mut rng = Rng::new(6);
    let cols = 256;
    let matrices: Vec<Matrix> = [
        (Quant::Q4_K, 100),
        (Quant::Q8_0, 17),
        (Quant::F16, 5),
        (Quant::Q6_K, 64),
        (Quant::Q2_K, 9),
    ]
    .map(|(quant, rows)| random_matrix(quant, rows, cols, &mut rng).pack().unwrap())
    .into();
    let n = 7;
    let x = rng.normals(n * cols);
    let one = Pool::new(1, false);
    let alone: Vec<Vec<f32>> = matrices.iter().map(|m| product(&one, m, &x, n)).collect();
    for threads in [1, 2, 4] {
        let pool = Pool::new(threads, false);
        let mut act = Act::default();
        act.prepare(&pool, &x, n, cols, &matrices.iter().collect::<Vec<_>>()).unwrap();
        let mut outs: Vec<Vec<f32>> = matrices.iter().map(|m| vec![0.0; n * m.rows()]).collect();
        let mut jobs: Vec<Job<'_>> = matrices
            .iter()
            .zip(&mut outs)
            .map(|(matrix, out)| Job { matrix, bias: None, scale: 1.0, out, accumulate: false })
            .collect();
        linear(&pool, &act, &mut jobs).unwrap();
        assert_eq!(outs, alone, "{threads} threads");
    }
}

#[test]
fn fused_gate_and_up_equal_separate_ones() {
    let mut rng = Rng::new(7);
    for quant in [Quant::Q4_1, Quant::Q5_0, Quant::Q4_K, Quant::BF16] {
        let (rows, cols) = (90, 256);
        let gate = random_matrix(quant, rows, cols, &mut rng).pack().unwrap();
        let up = random_matrix(quant, rows, cols, &mut rng).pack().unwrap();
        for (n, threads) in [(1, 1), (1, 2), (4, 2), (30, 3)] {
            let pool = Pool::new(threads, false);
            let x = rng.normals(n * cols);
            let mut want = product(&pool, &gate, &x, n);
            let ups = product(&pool, &up, &x, n);
            gristmill_kernels::ops::glu_in_place(Activation::Silu, &mut want, &ups);
            let mut act = Act::default();
            act.prepare(&pool, &x, n, cols, &[&gate, &up]).unwrap();
            let mut got = vec![0.0; n * rows];
            glu_linear(&pool, &act, &gate, &up, Activation::Silu, &mut got).unwrap();
            for (a, b) in got.iter().zip(&want) {
                assert!((a - b).abs() <= 1e-5 * b.abs().max(1e-3), "{quant} n={n}: {a} {b}");
            }
        }
    }
}

#[test]
fn what_is_not_finite_spreads_and_does_not_panic() {
    let mut rng = Rng::new(8);
    for quant in [Quant::Q4_0, Quant::Q4_K, Quant::Q6_K, Quant::F32, Quant::IQ2_S] {
        let cols = 256;
        let matrix = random_matrix(quant, 20, cols, &mut rng).pack().unwrap();
        let pool = Pool::new(2, false);
        for bad in [f32::NAN, f32::INFINITY] {
            for n in [1, 3, 10] {
                let mut x = rng.normals(n * cols);
                x[cols * (n - 1) + 77] = bad;
                let out = product(&pool, &matrix, &x, n);
                let (good, hit) = out.split_at((n - 1) * 20);
                assert!(good.iter().all(|y| y.is_finite()), "{quant}");
                assert!(hit.iter().any(|y| !y.is_finite()), "{quant}");
            }
        }
    }
}

#[test]
fn requests_that_do_not_fit_are_refused() {
    let mut rng = Rng::new(9);
    let matrix = random_matrix(Quant::Q8_0, 8, 64, &mut rng);
    let pool = Pool::new(1, false);
    let mut act = Act::default();
    assert!(act.prepare(&pool, &[0.0; 63], 1, 64, &[&matrix]).is_err());
    assert!(act.prepare(&pool, &[0.0; 32], 1, 32, &[&matrix]).is_err());
    act.prepare(&pool, &[0.0; 64], 1, 64, &[]).unwrap();
    let mut out = [0.0; 8];
    let run = |act: &Act, out: &mut [f32]| {
        linear(
            &pool,
            act,
            &mut [Job { matrix: &matrix, bias: None, scale: 1.0, out, accumulate: false }],
        )
    };
    assert!(run(&act, &mut out).unwrap_err().to_string().contains("prepare"));
    act.prepare(&pool, &[0.0; 64], 1, 64, &[&matrix]).unwrap();
    assert!(run(&act, &mut out[..7]).is_err());
    run(&act, &mut out).unwrap();
    act.prepare(&pool, &[], 0, 64, &[&matrix]).unwrap();
    run(&act, &mut []).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 60 }))]

    #[test]
    fn random_shapes_agree_with_doubles(
        pick in 0usize..common::PACKED.len(),
        rows in 1usize..70,
        blocks in 1usize..9,
        n in 1usize..30,
        seed in any::<u64>(),
    ) {
        let mut rng = Rng::new(seed);
        let quant = common::PACKED[pick];
        let cols = blocks * quant.block_len();
        let matrix = random_matrix(quant, rows, cols, &mut rng).pack().unwrap();
        let x = rng.normals(n * cols);
        let got = product(&Pool::new(2, false), &matrix, &x, n);
        let error = relative_error(&got, &reference(&matrix, &x, n));
        prop_assert!(error < 1e-5, "{quant} {rows}x{cols} n={n}: {error:e}");
    }
}
