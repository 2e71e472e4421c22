//! The 256-value types with sub-blocks: Q2_K, Q3_K, Q4_K, Q5_K, Q6_K and Q8_K.
#![allow(
    clippy::indexing_slicing,
    reason = "callers pass exactly one block of the type: block_bytes bytes and block_len values"
)]

use super::{f32_to_half, half_at, half_to_f32};

/// The 6-bit scale and minimum of sub-block `j` (0-7) in the 12 bytes Q4_K and Q5_K keep.
#[inline(always)]
pub(crate) fn scale_min(packed: &[u8], j: usize) -> (u8, u8) {
    if j < 4 {
        (packed[j] & 63, packed[j + 4] & 63)
    } else {
        (
            (packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4,
            (packed[j + 4] >> 4) | (packed[j] >> 6) << 4,
        )
    }
}

pub(super) fn decode_q2_k(block: &[u8], dst: &mut [f32]) {
    let (scales, qs) = (&block[0..16], &block[16..80]);
    let (d, dmin) = (half_at(block, 80), half_at(block, 82));
    for (j, values) in dst.chunks_exact_mut(16).enumerate() {
        // Eight sub-blocks per half; each pair shares 32 bytes at one bit position.
        let (half, pair, side) = (j / 8, (j / 2) % 4, j % 2);
        let scale = d * f32::from(scales[j] & 15);
        let min = dmin * f32::from(scales[j] >> 4);
        let bytes = &qs[half * 32 + side * 16..][..16];
        for (value, &byte) in values.iter_mut().zip(bytes) {
            *value = scale * f32::from((byte >> (2 * pair)) & 3) - min;
        }
    }
}

pub(super) fn decode_q3_k(block: &[u8], dst: &mut [f32]) {
    let (mask, qs, packed) = (&block[0..32], &block[32..96], &block[96..108]);
    let d = half_at(block, 108);
    for (j, values) in dst.chunks_exact_mut(16).enumerate() {
        let (half, pair, side) = (j / 8, (j / 2) % 4, j % 2);
        let low = if j < 8 { packed[j] & 15 } else { packed[j - 8] >> 4 };
        let high = (packed[8 + j % 4] >> (2 * (j / 4))) & 3;
        let scale = d * (f32::from(low | high << 4) - 32.0);
        let bytes = &qs[half * 32 + side * 16..][..16];
        let bits = &mask[side * 16..][..16];
        for ((value, &byte), &bit) in values.iter_mut().zip(bytes).zip(bits) {
            let low = f32::from((byte >> (2 * pair)) & 3);
            let set = (bit >> (half * 4 + pair)) & 1;
            *value = scale * (low - if set == 1 { 0.0 } else { 4.0 });
        }
    }
}

pub(super) fn decode_q4_k(block: &[u8], dst: &mut [f32]) {
    let (d, dmin) = (half_at(block, 0), half_at(block, 2));
    let (packed, qs) = (&block[4..16], &block[16..144]);
    for (j, values) in dst.chunks_exact_mut(32).enumerate() {
        let (sc, mn) = scale_min(packed, j);
        let (scale, min) = (d * f32::from(sc), dmin * f32::from(mn));
        let bytes = &qs[(j / 2) * 32..][..32];
        for (value, &byte) in values.iter_mut().zip(bytes) {
            *value = scale * f32::from((byte >> (4 * (j % 2))) & 15) - min;
        }
    }
}

pub(super) fn decode_q5_k(block: &[u8], dst: &mut [f32]) {
    let (d, dmin) = (half_at(block, 0), half_at(block, 2));
    let (packed, high, qs) = (&block[4..16], &block[16..48], &block[48..176]);
    for (j, values) in dst.chunks_exact_mut(32).enumerate() {
        let (sc, mn) = scale_min(packed, j);
        let (scale, min) = (d * f32::from(sc), dmin * f32::from(mn));
        let bytes = &qs[(j / 2) * 32..][..32];
        for ((value, &byte), &bit) in values.iter_mut().zip(bytes).zip(high) {
            let code = ((byte >> (4 * (j % 2))) & 15) | ((bit >> j) & 1) << 4;
            *value = scale * f32::from(code) - min;
        }
    }
}

pub(super) fn decode_q6_k(block: &[u8], dst: &mut [f32]) {
    let (low, high, scales) = (&block[0..128], &block[128..192], &block[192..208]);
    let d = half_at(block, 208);
    for (i, value) in dst.iter_mut().enumerate() {
        *value = d * f32::from(scales[i / 16] as i8) * f32::from(q6_code(low, high, i) as i8 - 32);
    }
}

/// The 6-bit code of value `i` of a Q6_K block.
#[inline(always)]
pub(super) fn q6_code(low: &[u8], high: &[u8], i: usize) -> u8 {
    let (half, quarter, l) = (i / 128, (i / 32) % 4, i % 32);
    let nibble = (low[half * 64 + (quarter % 2) * 32 + l] >> (4 * (quarter / 2))) & 15;
    nibble | ((high[half * 32 + l] >> (2 * quarter)) & 3) << 4
}

pub(super) fn decode_q8_k(block: &[u8], dst: &mut [f32]) {
    let d = f32::from_bits(super::u32_at(block, 0));
    for (value, &q) in dst.iter_mut().zip(&block[4..260]) {
        *value = d * f32::from(q as i8);
    }
}

fn inverse(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { 1.0 / d }
}

fn store_half(block: &mut [u8], at: usize, x: f32) -> f32 {
    let h = f32_to_half(x);
    block[at..at + 2].copy_from_slice(&h.to_le_bytes());
    half_to_f32(h)
}

/// Scales and minima of Q4_K and Q5_K: writes d, dmin and the 12 packed bytes; returns the
/// effective scale and minimum of each sub-block.
fn store_scales(src: &[f32], levels: f32, block: &mut [u8]) -> [(f32, f32); 8] {
    let mut wanted = [(0.0f32, 0.0f32); 8];
    for (want, values) in wanted.iter_mut().zip(src.chunks_exact(32)) {
        let (lo, hi) = values.iter().fold((0.0f32, 0.0f32), |(lo, hi), &x| (lo.min(x), hi.max(x)));
        *want = ((hi - lo) / levels, -lo);
    }
    let most = wanted.iter().fold((0.0f32, 0.0f32), |m, w| (m.0.max(w.0), m.1.max(w.1)));
    let d = store_half(block, 0, most.0 / 63.0);
    let dmin = store_half(block, 2, most.1 / 63.0);
    let mut used = [(0.0f32, 0.0f32); 8];
    let mut codes = [(0u8, 0u8); 8];
    for j in 0..8 {
        let sc = (wanted[j].0 * inverse(d)).round_ties_even().clamp(0.0, 63.0) as u8;
        let mn = (wanted[j].1 * inverse(dmin)).round_ties_even().clamp(0.0, 63.0) as u8;
        codes[j] = (sc, mn);
        used[j] = (d * f32::from(sc), dmin * f32::from(mn));
    }
    for j in 0..4 {
        block[4 + j] = codes[j].0 | (codes[j + 4].0 >> 4) << 6;
        block[8 + j] = codes[j].1 | (codes[j + 4].1 >> 4) << 6;
        block[12 + j] = (codes[j + 4].0 & 15) | (codes[j + 4].1 & 15) << 4;
    }
    used
}

fn sub_code(x: f32, (scale, min): (f32, f32), max: f32) -> u8 {
    ((x + min) * inverse(scale)).round_ties_even().clamp(0.0, max) as u8
}

pub(super) fn encode_q4_k(src: &[f32], block: &mut [u8]) {
    let used = store_scales(src, 15.0, block);
    for (i, byte) in block[16..144].iter_mut().enumerate() {
        let (j, l) = (i / 32 * 2, i % 32);
        let low = sub_code(src[j * 32 + l], used[j], 15.0);
        let high = sub_code(src[(j + 1) * 32 + l], used[j + 1], 15.0);
        *byte = low | high << 4;
    }
}

pub(super) fn encode_q5_k(src: &[f32], block: &mut [u8]) {
    let used = store_scales(src, 31.0, block);
    block[16..176].fill(0);
    for (i, &x) in src.iter().enumerate() {
        let (j, l) = (i / 32, i % 32);
        let code = sub_code(x, used[j], 31.0);
        block[48 + (j / 2) * 32 + l] |= (code & 15) << (4 * (j % 2));
        block[16 + l] |= (code >> 4) << j;
    }
}

pub(super) fn encode_q6_k(src: &[f32], block: &mut [u8]) {
    let mut wanted = [0.0f32; 16];
    for (want, values) in wanted.iter_mut().zip(src.chunks_exact(16)) {
        let far =
            values.iter().fold(0.0f32, |best, &x| if x.abs() > best.abs() { x } else { best });
        *want = far / -32.0;
    }
    let far = wanted.iter().fold(0.0f32, |best, &x| if x.abs() > best.abs() { x } else { best });
    let d = store_half(block, 208, far / -128.0);
    block[0..192].fill(0);
    for j in 0..16 {
        let sc = (wanted[j] * inverse(d)).round_ties_even().clamp(-128.0, 127.0) as i8;
        block[192 + j] = sc as u8;
        let inv = inverse(d * f32::from(sc));
        for (l, &x) in src[j * 16..][..16].iter().enumerate() {
            let code = (x * inv + 32.0).round_ties_even().clamp(0.0, 63.0) as u8;
            let i = j * 16 + l;
            let (half, quarter, l) = (i / 128, (i / 32) % 4, i % 32);
            block[half * 64 + (quarter % 2) * 32 + l] |= (code & 15) << (4 * (quarter / 2));
            block[128 + half * 32 + l] |= (code >> 4) << (2 * quarter);
        }
    }
}
