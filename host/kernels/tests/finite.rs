//! Weights and activations that are no finite numbers are found, and where.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use common::{Rng, random_matrix};
use gristmill_kernels::{Act, Bytes, Matrix, Pool, Quant, decode_row, isa};

/// Where a bad scale can be put into a block, and what is bad there.
fn spoilt(quant: Quant, block: &mut [u8]) -> bool {
    let (at, bits): (usize, &[u8]) = match quant {
        Quant::F32 => (0, &[0, 0, 0x80, 0x7f]),
        Quant::F16 => (0, &[1, 0x7e]),
        Quant::BF16 => (0, &[0x80, 0xff]),
        Quant::Q2_K => (82, &[0, 0x7c]),
        Quant::Q3_K => (108, &[0, 0xfc]),
        Quant::Q4_1 | Quant::Q5_1 | Quant::Q4_K | Quant::Q5_K => (2, &[0, 0x7c]),
        Quant::Q6_K => (208, &[1, 0x7e]),
        Quant::TQ1_0 => (52, &[0, 0x7c]),
        Quant::TQ2_0 => (64, &[0, 0x7c]),
        Quant::F64 => (0, &[0, 0, 0, 0, 0, 0, 0xf0, 0x7f]),
        Quant::Q8_K => (0, &[0, 0, 0x80, 0x7f]),
        Quant::MXFP4 => (0, &[253]),
        // No scale of its is infinite.
        Quant::NVFP4 => return false,
        // The top nibbles of four words make the scale.
        Quant::IQ1_M => {
            block[53] |= 0xf0;
            block[55] |= 0x70;
            return true;
        }
        _ => (0, &[0, 0x7c]),
    };
    block[at..at + bits.len()].copy_from_slice(bits);
    true
}

#[test]
fn a_bad_weight_is_found_in_every_type() {
    let mut rng = Rng::new(1);
    for &quant in Quant::ALL {
        // No integer is infinite.
        if matches!(quant, Quant::I8 | Quant::I16 | Quant::I32 | Quant::I64) {
            continue;
        }
        let (rows, cols) = (19, 768);
        let good = random_matrix(quant, rows, cols, &mut rng);
        assert_eq!(good.first_nonfinite(), None, "{quant}");
        let (row_bytes, len) = (quant.row_bytes(cols).unwrap(), quant.block_len());
        let mut bytes = vec![0u8; rows * row_bytes];
        let block = 1;
        let at = 17 * row_bytes + block * quant.block_bytes();
        if !spoilt(quant, &mut bytes[at..at + quant.block_bytes()]) {
            continue;
        }
        let bad = Matrix::new(quant, rows, cols, Bytes::from_vec(bytes)).unwrap();
        assert_eq!(bad.first_nonfinite(), Some((17, block * len)), "{quant}");
        let packed = bad.pack_for(isa::offered()).unwrap();
        assert_eq!(packed.first_nonfinite(), Some((17, block * len)), "{quant} packed");
    }
}

#[test]
fn whatever_decodes_to_no_number_is_found() {
    let mut rng = Rng::new(3);
    let mut met = 0;
    for &quant in Quant::ALL {
        let (len, size) = (quant.block_len(), quant.block_bytes());
        let mut values = vec![0.0; len];
        for round in 0..4096 {
            // Bytes of all ones make the exponents that are rare otherwise.
            let mut block: Vec<u8> = (0..size).map(|_| rng.draw() as u8).collect();
            for byte in &mut block {
                if round % 2 == 1 && rng.draw().is_multiple_of(4) {
                    *byte |= 0x7f << (rng.draw() % 2);
                }
            }
            decode_row(quant, &block, &mut values).unwrap();
            let bad = values.iter().position(|x| !x.is_finite());
            let matrix = Matrix::new(quant, 1, len, Bytes::from_vec(block)).unwrap();
            let found = matrix.first_nonfinite();
            assert!(bad.is_none() || found == Some((0, 0)), "{quant}: {bad:?} {found:?}");
            met += usize::from(bad.is_some());
        }
    }
    assert!(met > 10_000, "{met} bad blocks");
}

#[test]
fn a_bad_activation_is_found_however_it_was_prepared() {
    let mut rng = Rng::new(2);
    let cols = 256;
    for isa in isa::offered().up_to() {
        let pool = Pool::with_isa(2, false, isa);
        for quant in [Quant::Q4_K, Quant::F16, Quant::IQ2_S, Quant::Q2_K] {
            let raw = random_matrix(quant, 4, cols, &mut rng);
            for matrix in [raw.pack_for(isa).unwrap(), raw] {
                for n in [1, 5, 23] {
                    let mut x = rng.normals(n * cols);
                    let mut act = Act::default();
                    act.prepare(&pool, &x, n, cols, &[&matrix]).unwrap();
                    assert_eq!(act.first_nonfinite(), None, "{quant} {isa} {n}");
                    x[(n - 1) * cols + 200] = f32::NAN;
                    act.prepare(&pool, &x, n, cols, &[&matrix]).unwrap();
                    assert_eq!(act.first_nonfinite(), Some(n - 1), "{quant} {isa} {n}");
                    x[(n / 2) * cols + 3] = f32::NEG_INFINITY;
                    act.prepare(&pool, &x, n, cols, &[&matrix]).unwrap();
                    assert_eq!(act.first_nonfinite(), Some(n / 2), "{quant} {isa} {n}");
                }
            }
        }
    }
}
