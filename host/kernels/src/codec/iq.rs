//! The grid types (IQ1, IQ2, IQ3) and the table types (IQ4).
#![allow(
    clippy::indexing_slicing,
    reason = "callers pass exactly one block of the type, and grid indices are masked to the grid"
)]

use super::grids::{GRIDS, signs7};
use super::{half_at, half_to_f32, u16_at, u32_at};

/// Levels of IQ4_NL and IQ4_XS (ggml, MIT).
pub(super) const LEVELS4: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Shift of an IQ1 grid point.
const DELTA: f32 = 0.125;

/// A grid point times a scale, each value negated where its sign bit is set.
fn signed(dst: &mut [f32], point: &[i8], scale: f32, signs: u8) {
    for (j, (value, &level)) in dst.iter_mut().zip(point).enumerate() {
        let x = scale * f32::from(level);
        *value = if (signs >> j) & 1 == 1 { -x } else { x };
    }
}

pub(super) fn decode_iq2_xxs(block: &[u8], dst: &mut [f32]) {
    let d = half_at(block, 0);
    for (ib, values) in dst.chunks_exact_mut(32).enumerate() {
        let (indices, meta) = (u32_at(block, 2 + 8 * ib), u32_at(block, 6 + 8 * ib));
        let scale = d * (0.5 + (meta >> 28) as f32) * 0.25;
        for (l, eight) in values.chunks_exact_mut(8).enumerate() {
            let point = &GRIDS.iq2xxs[(indices >> (8 * l)) as usize & 255];
            signed(eight, point, scale, signs7(meta >> (7 * l)));
        }
    }
}

pub(super) fn decode_iq2_xs(block: &[u8], dst: &mut [f32]) {
    let d = half_at(block, 0);
    for (i, eight) in dst.chunks_exact_mut(8).enumerate() {
        let q = u16_at(block, 2 + 2 * i);
        let nibble = (block[66 + i / 4] >> (4 * (i / 2 % 2))) & 15;
        let scale = d * (0.5 + f32::from(nibble)) * 0.25;
        signed(eight, &GRIDS.iq2xs[usize::from(q & 511)], scale, signs7(u32::from(q >> 9)));
    }
}

pub(super) fn decode_iq2_s(block: &[u8], dst: &mut [f32]) {
    let d = half_at(block, 0);
    for (i, eight) in dst.chunks_exact_mut(8).enumerate() {
        let (ib, l) = (i / 4, i % 4);
        let high = usize::from(block[66 + ib] >> (2 * l)) & 3;
        let nibble = (block[74 + ib] >> (4 * (l / 2))) & 15;
        let scale = d * (0.5 + f32::from(nibble)) * 0.25;
        let index = usize::from(block[2 + i]) | high << 8;
        signed(eight, &GRIDS.iq2s[index], scale, block[34 + i]);
    }
}

pub(super) fn decode_iq3_xxs(block: &[u8], dst: &mut [f32]) {
    let d = half_at(block, 0);
    for (ib, values) in dst.chunks_exact_mut(32).enumerate() {
        let meta = u32_at(block, 66 + 4 * ib);
        let scale = d * (0.5 + (meta >> 28) as f32) * 0.5;
        for (l, eight) in values.chunks_exact_mut(8).enumerate() {
            let signs = signs7(meta >> (7 * l));
            let at = 2 + 8 * ib + 2 * l;
            signed(&mut eight[..4], &GRIDS.iq3xxs[usize::from(block[at])], scale, signs);
            signed(&mut eight[4..], &GRIDS.iq3xxs[usize::from(block[at + 1])], scale, signs >> 4);
        }
    }
}

pub(super) fn decode_iq3_s(block: &[u8], dst: &mut [f32]) {
    let d = half_at(block, 0);
    for (ib, values) in dst.chunks_exact_mut(32).enumerate() {
        let nibble = (block[106 + ib / 2] >> (4 * (ib % 2))) & 15;
        let scale = d * (1.0 + 2.0 * f32::from(nibble));
        let high = usize::from(block[66 + ib]);
        for (l, eight) in values.chunks_exact_mut(8).enumerate() {
            let signs = block[74 + 4 * ib + l];
            let at = 2 + 8 * ib + 2 * l;
            let first = usize::from(block[at]) | (high >> (2 * l) & 1) << 8;
            let second = usize::from(block[at + 1]) | (high >> (2 * l + 1) & 1) << 8;
            signed(&mut eight[..4], &GRIDS.iq3s[first], scale, signs);
            signed(&mut eight[4..], &GRIDS.iq3s[second], scale, signs >> 4);
        }
    }
}

/// An IQ1 grid point, shifted and scaled.
fn shifted(dst: &mut [f32], index: usize, scale: f32, negative: bool) {
    let delta = if negative { -DELTA } else { DELTA };
    for (value, &level) in dst.iter_mut().zip(&GRIDS.iq1[index]) {
        *value = scale * (f32::from(level) + delta);
    }
}

pub(super) fn decode_iq1_s(block: &[u8], dst: &mut [f32]) {
    let d = half_at(block, 0);
    for (ib, values) in dst.chunks_exact_mut(32).enumerate() {
        let high = u16_at(block, 34 + 2 * ib);
        let scale = d * f32::from(2 * ((high >> 12) & 7) + 1);
        for (l, eight) in values.chunks_exact_mut(8).enumerate() {
            let index =
                usize::from(block[2 + 4 * ib + l]) | usize::from((high >> (3 * l)) & 7) << 8;
            shifted(eight, index, scale, high & 0x8000 != 0);
        }
    }
}

pub(super) fn decode_iq1_m(block: &[u8], dst: &mut [f32]) {
    let scales: [u16; 4] = std::array::from_fn(|i| u16_at(block, 48 + 2 * i));
    let d = iq1_m_scale(block);
    for (i, eight) in dst.chunks_exact_mut(8).enumerate() {
        let (ib, l) = (i / 4, i % 4);
        let three = (scales[ib / 2] >> (6 * (ib % 2) + 3 * (l / 2))) & 7;
        let scale = d * f32::from(2 * three + 1);
        let high = block[32 + i / 2] >> (4 * (i % 2));
        let index = usize::from(block[i]) | usize::from(high & 7) << 8;
        shifted(eight, index, scale, high & 8 != 0);
    }
}

pub(super) fn decode_iq4_nl(block: &[u8], dst: &mut [f32]) {
    let d = half_at(block, 0);
    table(&block[2..18], dst, d);
}

pub(super) fn decode_iq4_xs(block: &[u8], dst: &mut [f32]) {
    let (d, high) = (half_at(block, 0), u16_at(block, 2));
    for (ib, values) in dst.chunks_exact_mut(32).enumerate() {
        let low = (block[4 + ib / 2] >> (4 * (ib % 2))) & 15;
        let six = low | (((high >> (2 * ib)) & 3) as u8) << 4;
        table(&block[8 + 16 * ib..][..16], values, d * (f32::from(six) - 32.0));
    }
}

/// 32 values through the table: low nibbles first.
fn table(qs: &[u8], dst: &mut [f32], scale: f32) {
    for (i, &byte) in qs.iter().enumerate() {
        dst[i] = scale * f32::from(LEVELS4[usize::from(byte & 15)]);
        dst[i + 16] = scale * f32::from(LEVELS4[usize::from(byte >> 4)]);
    }
}

/// The block's own scale is spread over the top nibbles of the four words.
pub(crate) fn iq1_m_scale(block: &[u8]) -> f32 {
    let scales: [u16; 4] = std::array::from_fn(|i| u16_at(block, 48 + 2 * i));
    half_to_f32(
        scales[0] >> 12
            | (scales[1] >> 8 & 0x00f0)
            | (scales[2] >> 4 & 0x0f00)
            | (scales[3] & 0xf000),
    )
}
