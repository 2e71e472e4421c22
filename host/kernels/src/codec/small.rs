//! Plain numbers, and the types of one, two or ternary bits and 4-bit floats.
#![allow(
    clippy::indexing_slicing,
    reason = "callers pass exactly one block of the type: block_bytes bytes and block_len values"
)]

use super::{f32_to_half, half_at, half_to_f32};

/// Decodes a run of fixed-size numbers.
fn numbers<const N: usize>(src: &[u8], dst: &mut [f32], value: impl Fn([u8; N]) -> f32) {
    for (bytes, x) in src.as_chunks::<N>().0.iter().zip(dst) {
        *x = value(*bytes);
    }
}

pub(super) fn decode_f32(src: &[u8], dst: &mut [f32]) {
    numbers(src, dst, f32::from_le_bytes);
}

pub(super) fn decode_f16(src: &[u8], dst: &mut [f32]) {
    numbers(src, dst, |b| half_to_f32(u16::from_le_bytes(b)));
}

pub(super) fn decode_bf16(src: &[u8], dst: &mut [f32]) {
    numbers(src, dst, |b| f32::from_bits(u32::from(u16::from_le_bytes(b)) << 16));
}

pub(super) fn decode_f64(src: &[u8], dst: &mut [f32]) {
    numbers(src, dst, |b| f64::from_le_bytes(b) as f32);
}

pub(super) fn decode_i8(src: &[u8], dst: &mut [f32]) {
    numbers(src, dst, |b: [u8; 1]| f32::from(i8::from_le_bytes(b)));
}

pub(super) fn decode_i16(src: &[u8], dst: &mut [f32]) {
    numbers(src, dst, |b| f32::from(i16::from_le_bytes(b)));
}

pub(super) fn decode_i32(src: &[u8], dst: &mut [f32]) {
    numbers(src, dst, |b| i32::from_le_bytes(b) as f32);
}

pub(super) fn decode_i64(src: &[u8], dst: &mut [f32]) {
    numbers(src, dst, |b| i64::from_le_bytes(b) as f32);
}

pub(super) fn encode_f32(src: &[f32], dst: &mut [u8]) {
    for (x, bytes) in src.iter().zip(dst.as_chunks_mut::<4>().0) {
        *bytes = x.to_le_bytes();
    }
}

pub(super) fn encode_f16(src: &[f32], dst: &mut [u8]) {
    for (x, bytes) in src.iter().zip(dst.as_chunks_mut::<2>().0) {
        *bytes = f32_to_half(*x).to_le_bytes();
    }
}

pub(super) fn encode_bf16(src: &[f32], dst: &mut [u8]) {
    for (x, bytes) in src.iter().zip(dst.as_chunks_mut::<2>().0) {
        *bytes = half::bf16::from_f32(*x).to_bits().to_le_bytes();
    }
}

/// Digit `n` of five base-3 digits in a byte that holds their number times 256/243.
pub(crate) fn trit_code(byte: u8, n: usize) -> u8 {
    const POWERS: [u8; 5] = [1, 3, 9, 27, 81];
    let shifted = byte.wrapping_mul(POWERS[n]);
    ((u16::from(shifted) * 3) >> 8) as u8
}

fn trit(byte: u8, n: usize) -> f32 {
    f32::from(trit_code(byte, n)) - 1.0
}

pub(super) fn decode_tq1_0(block: &[u8], dst: &mut [f32]) {
    let d = half_at(block, 52);
    // 32 bytes of five digits, 16 bytes of five digits, 4 bytes of four digits.
    let mut at = 0;
    for (bytes, digits) in [(&block[0..32], 5), (&block[32..48], 5), (&block[48..52], 4)] {
        for n in 0..digits {
            for &byte in bytes {
                dst[at] = d * trit(byte, n);
                at += 1;
            }
        }
    }
}

pub(super) fn decode_tq2_0(block: &[u8], dst: &mut [f32]) {
    let d = half_at(block, 64);
    for (i, value) in dst.iter_mut().enumerate() {
        let (half, position, l) = (i / 128, (i / 32) % 4, i % 32);
        *value = d * (f32::from((block[half * 32 + l] >> (2 * position)) & 3) - 1.0);
    }
}

/// E2M1 levels, doubled so that they are integers.
pub(super) const E2M1: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Half of 2^(e - 127): the doubled levels take the other factor.
pub(super) fn e8m0_half(e: u8) -> f32 {
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { (u32::from(e) - 1) << 23 })
}

/// Half the value of an unsigned 8-bit float of 4 exponent and 3 mantissa bits.
pub(super) fn ue4m3_half(x: u8) -> f32 {
    if x == 0 || x == 0x7f {
        return 0.0;
    }
    let (exponent, mantissa) = (i32::from((x >> 3) & 15), f32::from(x & 7));
    let value = if exponent == 0 {
        mantissa * 2f32.powi(-9)
    } else {
        (1.0 + mantissa / 8.0) * 2f32.powi(exponent - 7)
    };
    value * 0.5
}

pub(super) fn decode_mxfp4(block: &[u8], dst: &mut [f32]) {
    let d = e8m0_half(block[0]);
    for (i, &byte) in block[1..17].iter().enumerate() {
        dst[i] = d * f32::from(E2M1[usize::from(byte & 15)]);
        dst[i + 16] = d * f32::from(E2M1[usize::from(byte >> 4)]);
    }
}

pub(super) fn decode_nvfp4(block: &[u8], dst: &mut [f32]) {
    for (s, values) in dst.chunks_exact_mut(16).enumerate() {
        let d = ue4m3_half(block[s]);
        for (i, &byte) in block[4 + s * 8..][..8].iter().enumerate() {
            values[i] = d * f32::from(E2M1[usize::from(byte & 15)]);
            values[i + 8] = d * f32::from(E2M1[usize::from(byte >> 4)]);
        }
    }
}

pub(super) fn decode_q1_0(block: &[u8], dst: &mut [f32]) {
    let d = half_at(block, 0);
    for (i, value) in dst.iter_mut().enumerate() {
        *value = if (block[2 + i / 8] >> (i % 8)) & 1 == 1 { d } else { -d };
    }
}

pub(super) fn decode_q2_0(block: &[u8], dst: &mut [f32]) {
    let d = half_at(block, 0);
    for (i, value) in dst.iter_mut().enumerate() {
        *value = d * (f32::from((block[2 + i / 4] >> (2 * (i % 4))) & 3) - 1.0);
    }
}
