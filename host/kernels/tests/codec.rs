//! Codecs: known blocks of every type, what encoding loses, ids and names, bad lengths.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use std::collections::BTreeMap;

use common::Rng;
use gristmill_kernels::{KernelError, Quant, decode_row, encode_row};

/// The vectors the expected dots were made with.
fn weights(n: usize, k: u64) -> Vec<f64> {
    let mut state = (k + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f64 / f64::from(1 << 23) - 1.0
    };
    (0..n).map(|_| next()).collect()
}

/// Blocks decoded by ggml itself: any value at a wrong place or of a wrong size changes a dot.
#[test]
fn blocks_decode_as_in_ggml() {
    let mut seen = BTreeMap::new();
    for line in include_str!("data/blocks.txt").lines().filter(|l| !l.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        let quant = Quant::from_name(words[0]).unwrap();
        let bytes: Vec<u8> = (0..words[1].len() / 2)
            .map(|i| u8::from_str_radix(&words[1][2 * i..2 * i + 2], 16).unwrap())
            .collect();
        let size: f64 = words[2].parse().unwrap();
        let mut values = vec![0.0f32; quant.block_len()];
        decode_row(quant, &bytes, &mut values).unwrap();
        for (k, want) in words[3..].iter().enumerate() {
            let want: f64 = want.parse().unwrap();
            let weights = weights(values.len(), k as u64);
            let got: f64 = values.iter().zip(weights).map(|(v, w)| f64::from(*v) * w).sum();
            assert!((got - want).abs() < 1e-6 * size, "{quant}: {got} instead of {want}");
        }
        *seen.entry(quant).or_insert(0) += 1;
    }
    // Every block type has its vectors; the activation formats have no decoder in ggml's files.
    for &quant in Quant::ALL {
        if quant.block_len() > 1 && !matches!(quant, Quant::Q8_1 | Quant::Q8_K) {
            assert_eq!(seen.get(&quant), Some(&3), "{quant}");
        }
    }
}

#[test]
fn plain_numbers_decode_as_what_they_are() {
    let mut out = [0.0f32; 4];
    let bytes: Vec<u8> = [1.0f32, -2.5, 0.0, 1e30].iter().flat_map(|x| x.to_le_bytes()).collect();
    decode_row(Quant::F32, &bytes, &mut out).unwrap();
    assert_eq!(out, [1.0, -2.5, 0.0, 1e30]);
    // 1, the smallest subnormal, minus infinity, 65504.
    let halves: Vec<u8> =
        [0x3c00u16, 0x0001, 0xfc00, 0x7bff].iter().flat_map(|x| x.to_le_bytes()).collect();
    decode_row(Quant::F16, &halves, &mut out).unwrap();
    assert_eq!(out, [1.0, 2f32.powi(-24), f32::NEG_INFINITY, 65504.0]);
    let brains: Vec<u8> =
        [0x3f80u16, 0xc020, 0x0000, 0x7f80].iter().flat_map(|x| x.to_le_bytes()).collect();
    decode_row(Quant::BF16, &brains, &mut out).unwrap();
    assert_eq!(out, [1.0, -2.5, 0.0, f32::INFINITY]);
    decode_row(Quant::I8, &[1, 255, 128, 127], &mut out).unwrap();
    assert_eq!(out, [1.0, -1.0, -128.0, 127.0]);
    let doubles: Vec<u8> = [0.5f64, -3.0, 0.0, 9.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    decode_row(Quant::F64, &doubles, &mut out).unwrap();
    assert_eq!(out, [0.5, -3.0, 0.0, 9.0]);
    // Q8_K: a float scale, then the codes.
    let mut block = vec![0u8; 292];
    block[..4].copy_from_slice(&0.5f32.to_le_bytes());
    (block[4], block[259]) = (3, 254);
    let mut values = [0.0f32; 256];
    decode_row(Quant::Q8_K, &block, &mut values).unwrap();
    assert_eq!((values[0], values[1], values[255]), (1.5, 0.0, -1.0));
    let mut block = vec![0u8; 36];
    (block[0], block[1], block[4], block[35]) = (0x00, 0x38, 4, 255);
    let mut values = [0.0f32; 32];
    decode_row(Quant::Q8_1, &block, &mut values).unwrap();
    assert_eq!((values[0], values[31]), (2.0, -0.5));
}

/// Encoding loses no more than the type's step (relative root mean square on normal values).
#[test]
fn encoding_is_as_good_as_the_type() {
    let mut rng = Rng::new(5);
    let x = rng.normals(4096);
    for (quant, most) in [
        (Quant::F32, 0.0),
        (Quant::F16, 3e-4),
        (Quant::BF16, 3e-3),
        (Quant::Q4_0, 0.1),
        (Quant::Q4_1, 0.09),
        (Quant::Q5_0, 0.05),
        (Quant::Q5_1, 0.045),
        (Quant::Q8_0, 0.006),
        (Quant::Q4_K, 0.1),
        (Quant::Q5_K, 0.06),
        (Quant::Q6_K, 0.03),
    ] {
        let mut bytes = vec![0; quant.row_bytes(x.len()).unwrap()];
        encode_row(quant, &x, &mut bytes).unwrap();
        let mut back = vec![0.0; x.len()];
        decode_row(quant, &bytes, &mut back).unwrap();
        let want: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
        let error = common::relative_error(&back, &want);
        assert!(error <= most, "{quant}: {error}");
        // Zeros come back as zeros.
        encode_row(quant, &[0.0; 256], &mut bytes[..quant.row_bytes(256).unwrap()]).unwrap();
        decode_row(quant, &bytes[..quant.row_bytes(256).unwrap()], &mut back[..256]).unwrap();
        assert!(back[..256].iter().all(|x| *x == 0.0), "{quant}");
    }
    let mut none = [0u8; 66];
    assert!(encode_row(Quant::IQ2_XXS, &[0.0; 256], &mut none).is_err());
}

#[test]
fn ids_and_names_lead_back_and_removed_ones_are_named() {
    for &quant in Quant::ALL {
        assert_eq!(Quant::from_id(quant.id()), Ok(quant));
        assert_eq!(Quant::from_name(&quant.name().to_lowercase()), Some(quant));
    }
    for (id, name) in [
        (4, "Q4_2"),
        (5, "Q4_3"),
        (31, "Q4_0_4_4"),
        (32, "Q4_0_4_8"),
        (33, "Q4_0_8_8"),
        (36, "IQ4_NL_4_4"),
        (37, "IQ4_NL_4_8"),
        (38, "IQ4_NL_8_8"),
    ] {
        assert_eq!(Quant::from_id(id), Err(KernelError::RemovedType { id, name }));
    }
    for id in [43, 1000, u32::MAX] {
        assert_eq!(Quant::from_id(id), Err(KernelError::UnknownType(id)));
    }
    assert_eq!(Quant::ALL.len(), 35);
}

#[test]
fn lengths_that_do_not_fit_are_refused() {
    let mut out = [0.0f32; 64];
    assert!(decode_row(Quant::Q4_0, &[0; 35], &mut out).is_err());
    assert!(decode_row(Quant::Q4_0, &[0; 18], &mut out[..31]).is_err());
    assert!(decode_row(Quant::Q4_K, &[0; 144], &mut out).is_err());
    assert!(Quant::Q4_K.row_bytes(640).unwrap_err().to_string().contains("256"));
    assert!(Quant::F32.row_bytes(usize::MAX).is_err());
}
