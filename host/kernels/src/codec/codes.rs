//! A block taken apart into integer codes and raw scale bits, and put together again.
//!
//! This is the form between the file's layout and the kernels' own: packing, unpacking and the
//! scalar integer dot all go through it, for the types the integer kernels know.
#![allow(
    clippy::indexing_slicing,
    reason = "callers pass exactly one block of the type: block_bytes bytes"
)]

use super::k::{q6_code, scale_min};
use super::{half_to_f32, u16_at, u32_at};
use crate::quant::Quant;

/// A type the integer kernels know: unsigned codes, an offset, scales and perhaps minima.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IntKind {
    /// What a code must be reduced by: value = scale * (code - offset) + minimum.
    pub(crate) offset: i32,
    /// Whether there is a minimum.
    pub(crate) has_min: bool,
    /// Whether a scale covers 16 values (otherwise 32).
    pub(crate) sixteens: bool,
    /// Which of the activations' prepared starting values this offset uses.
    pub(crate) class: usize,
}

/// Number of [`IntKind::class`] values.
pub(crate) const CLASSES: usize = 5;
/// Offset of each class; the last is for scales of 16 values.
pub(crate) const CLASS_OFFSETS: [i32; CLASSES] = [0, 8, 16, 128, 32];

impl Quant {
    /// How the integer kernels see the type, if they do.
    pub(crate) const fn int_kind(self) -> Option<IntKind> {
        let (class, has_min) = match self {
            Quant::Q4_1 | Quant::Q5_1 | Quant::Q4_K | Quant::Q5_K => (0, true),
            Quant::Q4_0 => (1, false),
            Quant::Q5_0 => (2, false),
            Quant::Q8_0 => (3, false),
            Quant::Q6_K => (4, false),
            _ => return None,
        };
        let offset = match class {
            1 => 8,
            2 => 16,
            3 => 128,
            4 => 32,
            _ => 0,
        };
        Some(IntKind { offset, has_min, sixteens: class == 4, class })
    }
}

/// One block, taken apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Codes {
    /// Unsigned codes in order of the values; the first `block_len` count.
    pub(crate) q: [u8; 256],
    /// The block's scale, a half float.
    pub(crate) d: u16,
    /// The block's minimum (or scale of minima), a half float.
    pub(crate) m: u16,
    /// Scales of sub-blocks: 6-bit for Q4_K and Q5_K, signed 8-bit for Q6_K.
    pub(crate) sc: [u8; 16],
    /// 6-bit minima of sub-blocks.
    pub(crate) mn: [u8; 8],
}

impl Codes {
    /// A block of zeros.
    pub(crate) const ZERO: Codes = Codes { q: [0; 256], d: 0, m: 0, sc: [0; 16], mn: [0; 8] };

    /// The effective scale of 16-value group `g` of the block.
    pub(crate) fn scale(&self, quant: Quant, g: usize) -> f32 {
        let d = half_to_f32(self.d);
        match quant {
            Quant::Q4_K | Quant::Q5_K => d * f32::from(self.sc[g / 2]),
            Quant::Q6_K => d * f32::from(self.sc[g] as i8),
            _ => d,
        }
    }

    /// The effective minimum (added to the value) of 32-value sub-block `j`.
    pub(crate) fn min(&self, quant: Quant, j: usize) -> f32 {
        match quant {
            Quant::Q4_1 | Quant::Q5_1 => half_to_f32(self.m),
            Quant::Q4_K | Quant::Q5_K => -half_to_f32(self.m) * f32::from(self.mn[j]),
            _ => 0.0,
        }
    }

    /// Takes a block apart.
    pub(crate) fn split(quant: Quant, block: &[u8]) -> Codes {
        let mut c = Codes::ZERO;
        c.d = u16_at(block, 0);
        match quant {
            Quant::Q4_0 => nibbles(&mut c, &block[2..18], 0),
            Quant::Q4_1 => {
                c.m = u16_at(block, 2);
                nibbles(&mut c, &block[4..20], 0);
            }
            Quant::Q5_0 => nibbles(&mut c, &block[6..22], u32_at(block, 2)),
            Quant::Q5_1 => {
                c.m = u16_at(block, 2);
                nibbles(&mut c, &block[8..24], u32_at(block, 4));
            }
            Quant::Q8_0 => {
                for (q, &byte) in c.q.iter_mut().zip(&block[2..34]) {
                    *q = byte ^ 0x80;
                }
            }
            Quant::Q4_K | Quant::Q5_K => {
                c.m = u16_at(block, 2);
                let five = quant == Quant::Q5_K;
                let qs = &block[if five { 48 } else { 16 }..];
                for j in 0..8 {
                    (c.sc[j], c.mn[j]) = scale_min(&block[4..16], j);
                    for l in 0..32 {
                        let nibble = (qs[(j / 2) * 32 + l] >> (4 * (j % 2))) & 15;
                        let high = if five { (block[16 + l] >> j) & 1 } else { 0 };
                        c.q[j * 32 + l] = nibble | high << 4;
                    }
                }
            }
            Quant::Q6_K => {
                c.d = u16_at(block, 208);
                c.sc.copy_from_slice(&block[192..208]);
                for i in 0..256 {
                    c.q[i] = q6_code(&block[..128], &block[128..192], i);
                }
            }
            _ => {}
        }
        c
    }

    /// Puts a block together; the inverse of [`Codes::split`].
    pub(crate) fn join(&self, quant: Quant, block: &mut [u8]) {
        block.fill(0);
        block[0..2].copy_from_slice(&self.d.to_le_bytes());
        match quant {
            Quant::Q4_0 => {
                self.store_nibbles(&mut block[2..18]);
            }
            Quant::Q4_1 => {
                block[2..4].copy_from_slice(&self.m.to_le_bytes());
                self.store_nibbles(&mut block[4..20]);
            }
            Quant::Q5_0 => {
                let high = self.store_nibbles(&mut block[6..22]);
                block[2..6].copy_from_slice(&high.to_le_bytes());
            }
            Quant::Q5_1 => {
                block[2..4].copy_from_slice(&self.m.to_le_bytes());
                let high = self.store_nibbles(&mut block[8..24]);
                block[4..8].copy_from_slice(&high.to_le_bytes());
            }
            Quant::Q8_0 => {
                for (byte, &q) in block[2..34].iter_mut().zip(&self.q) {
                    *byte = q ^ 0x80;
                }
            }
            Quant::Q4_K | Quant::Q5_K => self.join_k(quant == Quant::Q5_K, block),
            Quant::Q6_K => {
                block[..2].fill(0);
                for (i, &q) in self.q.iter().enumerate() {
                    let (half, quarter, l) = (i / 128, (i / 32) % 4, i % 32);
                    block[half * 64 + (quarter % 2) * 32 + l] |= (q & 15) << (4 * (quarter / 2));
                    block[128 + half * 32 + l] |= (q >> 4) << (2 * quarter);
                }
                block[192..208].copy_from_slice(&self.sc);
                block[208..210].copy_from_slice(&self.d.to_le_bytes());
            }
            _ => {}
        }
    }

    fn join_k(&self, five: bool, block: &mut [u8]) {
        block[2..4].copy_from_slice(&self.m.to_le_bytes());
        for j in 0..4 {
            block[4 + j] = self.sc[j] | (self.sc[j + 4] >> 4) << 6;
            block[8 + j] = self.mn[j] | (self.mn[j + 4] >> 4) << 6;
            block[12 + j] = (self.sc[j + 4] & 15) | (self.mn[j + 4] & 15) << 4;
        }
        let at = if five { 48 } else { 16 };
        for (i, &q) in self.q.iter().enumerate() {
            let (j, l) = (i / 32, i % 32);
            block[at + (j / 2) * 32 + l] |= (q & 15) << (4 * (j % 2));
            if five {
                block[16 + l] |= (q >> 4) << j;
            }
        }
    }

    /// Low four bits as nibbles; returns the fifth bits.
    fn store_nibbles(&self, qs: &mut [u8]) -> u32 {
        let mut high = 0;
        for (i, byte) in qs.iter_mut().enumerate() {
            let (a, b) = (self.q[i], self.q[i + 16]);
            *byte = (a & 15) | (b & 15) << 4;
            high |= u32::from(a >> 4) << i | u32::from(b >> 4) << (i + 16);
        }
        high
    }
}

fn nibbles(c: &mut Codes, qs: &[u8], high: u32) {
    for (i, &byte) in qs.iter().enumerate() {
        c.q[i] = (byte & 15) | (((high >> i) & 1) as u8) << 4;
        c.q[i + 16] = (byte >> 4) | (((high >> (i + 16)) & 1) as u8) << 4;
    }
}
