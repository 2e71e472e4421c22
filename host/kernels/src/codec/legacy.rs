//! The 32-value types: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 and Q8_1.
#![allow(
    clippy::indexing_slicing,
    clippy::needless_range_loop,
    reason = "callers pass exactly one block of the type: block_bytes bytes and block_len values"
)]

use super::{f32_to_half, half_at, half_to_f32, u32_at};

/// Splits 16 bytes of nibbles into codes: low nibbles are values 0-15, high ones 16-31.
fn nibbles(qs: &[u8], dst: &mut [f32], value: impl Fn(usize, u8) -> f32) {
    for (i, &byte) in qs.iter().enumerate() {
        dst[i] = value(i, byte & 15);
        dst[i + 16] = value(i + 16, byte >> 4);
    }
}

/// A 4-bit code and its fifth bit.
fn fifth(high: u32, i: usize, low: u8) -> f32 {
    f32::from(low | (((high >> i) & 1) as u8) << 4)
}

pub(super) fn decode_q4_0(block: &[u8], dst: &mut [f32]) {
    let d = half_at(block, 0);
    nibbles(&block[2..18], dst, |_, q| d * (f32::from(q) - 8.0));
}

pub(super) fn decode_q4_1(block: &[u8], dst: &mut [f32]) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    nibbles(&block[4..20], dst, |_, q| d * f32::from(q) + m);
}

pub(super) fn decode_q5_0(block: &[u8], dst: &mut [f32]) {
    let (d, high) = (half_at(block, 0), u32_at(block, 2));
    nibbles(&block[6..22], dst, |i, q| d * (fifth(high, i, q) - 16.0));
}

pub(super) fn decode_q5_1(block: &[u8], dst: &mut [f32]) {
    let (d, m, high) = (half_at(block, 0), half_at(block, 2), u32_at(block, 4));
    nibbles(&block[8..24], dst, |i, q| d * fifth(high, i, q) + m);
}

pub(super) fn decode_q8_0(block: &[u8], dst: &mut [f32]) {
    let d = half_at(block, 0);
    for (value, &q) in dst.iter_mut().zip(&block[2..34]) {
        *value = d * f32::from(q as i8);
    }
}

pub(super) fn decode_q8_1(block: &[u8], dst: &mut [f32]) {
    let d = half_at(block, 0);
    for (value, &q) in dst.iter_mut().zip(&block[4..36]) {
        *value = d * f32::from(q as i8);
    }
}

/// The value of largest magnitude, with its sign.
fn extreme(src: &[f32]) -> f32 {
    src.iter().fold(0.0, |best: f32, &x| if x.abs() > best.abs() { x } else { best })
}

fn range(src: &[f32]) -> (f32, f32) {
    src.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(lo, hi), &x| (lo.min(x), hi.max(x)))
}

fn inverse(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { 1.0 / d }
}

fn store_half(block: &mut [u8], at: usize, x: f32) -> f32 {
    let h = f32_to_half(x);
    block[at..at + 2].copy_from_slice(&h.to_le_bytes());
    half_to_f32(h)
}

/// Rounds to a code of `0..=max`; NaN becomes 0.
fn code(x: f32, max: f32) -> u8 {
    x.round_ties_even().clamp(0.0, max) as u8
}

/// Codes as nibbles into `qs`; returns the fifth bits.
fn store_codes(src: &[f32], qs: &mut [u8], quantize: impl Fn(f32) -> u8) -> u32 {
    let mut high = 0;
    for i in 0..16 {
        let (a, b) = (quantize(src[i]), quantize(src[i + 16]));
        qs[i] = (a & 15) | (b & 15) << 4;
        high |= u32::from(a >> 4) << i | u32::from(b >> 4) << (i + 16);
    }
    high
}

pub(super) fn encode_q4_0(src: &[f32], block: &mut [u8]) {
    let d = store_half(block, 0, extreme(src) / -8.0);
    let inv = inverse(d);
    store_codes(src, &mut block[2..18], |x| code(x * inv + 8.0, 15.0));
}

pub(super) fn encode_q4_1(src: &[f32], block: &mut [u8]) {
    let (lo, hi) = range(src);
    let d = store_half(block, 0, (hi - lo) / 15.0);
    let m = store_half(block, 2, lo);
    let inv = inverse(d);
    store_codes(src, &mut block[4..20], |x| code((x - m) * inv, 15.0));
}

pub(super) fn encode_q5_0(src: &[f32], block: &mut [u8]) {
    let d = store_half(block, 0, extreme(src) / -16.0);
    let inv = inverse(d);
    let high = store_codes(src, &mut block[6..22], |x| code(x * inv + 16.0, 31.0));
    block[2..6].copy_from_slice(&high.to_le_bytes());
}

pub(super) fn encode_q5_1(src: &[f32], block: &mut [u8]) {
    let (lo, hi) = range(src);
    let d = store_half(block, 0, (hi - lo) / 31.0);
    let m = store_half(block, 2, lo);
    let inv = inverse(d);
    let high = store_codes(src, &mut block[8..24], |x| code((x - m) * inv, 31.0));
    block[4..8].copy_from_slice(&high.to_le_bytes());
}

pub(super) fn encode_q8_0(src: &[f32], block: &mut [u8]) {
    let d = store_half(block, 0, extreme(src).abs() / 127.0);
    let inv = inverse(d);
    for (q, &x) in block[2..34].iter_mut().zip(src) {
        *q = (x * inv).round_ties_even().clamp(-127.0, 127.0) as i8 as u8;
    }
}
