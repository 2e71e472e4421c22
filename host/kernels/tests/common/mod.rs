//! Random matrices and the plain meaning of the activation quantiser, for the kernels' tests.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "small test helpers")]

use gristmill_kernels::{Bytes, Matrix, Quant, decode_row};

/// Types with a packed layout.
pub const PACKED: [Quant; 18] = [
    Quant::Q4_0,
    Quant::Q4_1,
    Quant::Q5_0,
    Quant::Q5_1,
    Quant::Q8_0,
    Quant::Q2_K,
    Quant::Q3_K,
    Quant::Q4_K,
    Quant::Q5_K,
    Quant::Q6_K,
    Quant::IQ4_NL,
    Quant::IQ4_XS,
    Quant::TQ1_0,
    Quant::TQ2_0,
    Quant::MXFP4,
    Quant::NVFP4,
    Quant::Q1_0,
    Quant::Q2_0,
];

/// Row lengths worth trying: odd numbers of blocks, and those of real models.
pub fn columns(quant: Quant) -> Vec<usize> {
    match quant.block_len() {
        32 => vec![32, 96, 576, 640, 896],
        64 => vec![64, 192, 896],
        128 => vec![128, 384, 896],
        _ => vec![256, 768, 2048],
    }
}

/// A small deterministic generator (xorshift).
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn uniform(&mut self) -> f32 {
        (self.draw() >> 40) as f32 / (1u64 << 24) as f32
    }

    pub fn normal(&mut self) -> f32 {
        (0..6).map(|_| self.uniform()).sum::<f32>() * 1.414 - 4.242
    }

    pub fn normals(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.normal()).collect()
    }
}

/// A matrix of random bytes, drawn again block by block until its values are tame.
pub fn random_matrix(quant: Quant, rows: usize, cols: usize, rng: &mut Rng) -> Matrix {
    let (len, bytes) = (quant.block_len(), quant.block_bytes());
    let mut data = Vec::new();
    let mut values = vec![0.0f32; len];
    while data.len() < quant.row_bytes(cols).unwrap() * rows {
        let block: Vec<u8> = (0..bytes).map(|_| rng.draw() as u8).collect();
        decode_row(quant, &block, &mut values).unwrap();
        if values.iter().all(|v| v.is_finite() && v.abs() < 1e4)
            && values.iter().any(|v| v.abs() > 1e-4)
        {
            data.extend(block);
        }
    }
    Matrix::new(quant, rows, cols, Bytes::from_vec(data)).unwrap()
}

/// 32 activations as the integer kernels see them: codes of max/127, the scale in 22 bits.
pub fn quantised(x: &[f32]) -> Vec<f64> {
    let most = x.iter().fold(0.0f32, |m, x| m.max(x.abs()));
    if most < 1e-30 {
        return vec![0.0; x.len()];
    }
    let scale = f32::from_bits(((most / 127.0).to_bits() + 2) & !3);
    let inverse = 127.0 / most;
    x.iter().map(|x| f64::from((x * inverse).round_ties_even()) * f64::from(scale)).collect()
}

/// Distance of two vectors over the length of the second.
pub fn relative_error(got: &[f32], want: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len());
    let (mut error, mut size) = (0.0, 1e-300);
    for (got, want) in got.iter().zip(want) {
        error += (f64::from(*got) - want).powi(2);
        size += want.powi(2);
    }
    (error / size).sqrt()
}
