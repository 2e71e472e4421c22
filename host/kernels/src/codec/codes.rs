//! A block taken apart into integer codes and raw scale bits, and put together again.
//!
//! This is the form between the file's layout and the kernels' own: packing, unpacking and the
//! scalar integer dot all go through it, for the types the integer kernels know.
#![allow(
    clippy::indexing_slicing,
    reason = "callers pass exactly one block of the type: block_bytes bytes"
)]

use super::k::{q6_code, scale_min};
use super::small::{E2M1, e8m0_half, trit_code, ue4m3_half};
use super::{half_to_f32, iq, points, u16_at, u32_at};
use crate::quant::Quant;

/// A type the integer kernels know: unsigned codes, an offset, scales and perhaps minima.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IntKind {
    /// What a level must be reduced by: value = scale * (level - offset) + minimum.
    pub(crate) offset: i32,
    /// Whether there is a minimum.
    pub(crate) has_min: bool,
    /// Whether a scale (and a minimum) covers 16 values (otherwise 32).
    pub(crate) sixteens: bool,
    /// Which of the activations' prepared starting values this offset uses.
    pub(crate) class: usize,
}

/// What the kernels of some types need of the activations beside codes and scales.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Class {
    pub(crate) offset: i32,
    pub(crate) sixteens: bool,
    pub(crate) has_min: bool,
}

const fn class(offset: i32, sixteens: bool, has_min: bool) -> Class {
    Class { offset, sixteens, has_min }
}

/// Number of [`IntKind::class`] values.
pub(crate) const CLASSES: usize = 11;
/// The classes.
pub(crate) const CLASS: [Class; CLASSES] = [
    class(0, false, true),
    class(8, false, false),
    class(16, false, false),
    class(128, false, false),
    class(32, true, false),
    class(1, false, false),
    class(12, false, false),
    class(4, true, false),
    class(0, true, true),
    class(12, true, false),
    class(128, true, false),
];

impl Quant {
    /// How the integer kernels see the type, if they do.
    pub(crate) const fn int_kind(self) -> Option<IntKind> {
        let index = match self {
            Quant::Q4_1 | Quant::Q5_1 | Quant::Q4_K | Quant::Q5_K => 0,
            Quant::Q4_0 => 1,
            Quant::Q5_0 => 2,
            Quant::Q8_0
            | Quant::IQ4_NL
            | Quant::IQ4_XS
            | Quant::IQ2_XXS
            | Quant::IQ3_XXS
            | Quant::IQ3_S
            | Quant::IQ1_S => 3,
            Quant::Q6_K => 4,
            Quant::TQ1_0 | Quant::TQ2_0 | Quant::Q1_0 | Quant::Q2_0 => 5,
            Quant::MXFP4 => 6,
            Quant::Q3_K => 7,
            Quant::Q2_K => 8,
            Quant::NVFP4 => 9,
            Quant::IQ2_XS | Quant::IQ2_S | Quant::IQ1_M => 10,
            _ => return None,
        };
        let class = CLASS[index];
        Some(IntKind {
            offset: class.offset,
            has_min: class.has_min,
            sixteens: class.sixteens,
            class: index,
        })
    }

    /// Whether the type's codes are points of a grid, which have no code per value.
    pub(crate) const fn on_grid(self) -> bool {
        matches!(
            self,
            Quant::IQ1_S
                | Quant::IQ1_M
                | Quant::IQ2_XXS
                | Quant::IQ2_XS
                | Quant::IQ2_S
                | Quant::IQ3_XXS
                | Quant::IQ3_S
        )
    }
}

/// Levels of IQ4_NL and IQ4_XS plus 128.
pub(crate) const LEVELS4: [u8; 16] = {
    let mut levels = [0; 16];
    let mut i = 0;
    while i < 16 {
        levels[i] = (iq::LEVELS4[i] as u8) ^ 0x80;
        i += 1;
    }
    levels
};

/// Doubled levels of E2M1 plus 12.
pub(crate) const LEVELS_FP4: [u8; 16] = {
    let mut levels = [0; 16];
    let mut i = 0;
    while i < 16 {
        levels[i] = (E2M1[i] + 12) as u8;
        i += 1;
    }
    levels
};

/// A block as the integer kernels see it: levels, and what they are multiplied with.
#[derive(Clone)]
pub(crate) struct Levels {
    /// Levels with the type's offset; the first `block_len` count.
    pub(crate) q: [u8; 256],
    /// Scale of each 16 values.
    pub(crate) d: [f32; 16],
    /// Minimum (added) of each 16 values.
    pub(crate) m: [f32; 16],
}

impl Levels {
    /// Takes a block of an integer type apart.
    pub(crate) fn of(quant: Quant, block: &[u8]) -> Levels {
        let mut levels = Levels { q: [0; 256], d: [0.0; 16], m: [0.0; 16] };
        if quant.on_grid() {
            points::levels(quant, block, &mut levels.q, &mut levels.d);
            return levels;
        }
        let codes = Codes::split(quant, block);
        let table = match quant {
            Quant::IQ4_NL | Quant::IQ4_XS => Some(&LEVELS4),
            Quant::MXFP4 | Quant::NVFP4 => Some(&LEVELS_FP4),
            _ => None,
        };
        levels.q = match table {
            Some(table) => codes.q.map(|q| table[usize::from(q & 15)]),
            None => codes.q,
        };
        for g in 0..quant.block_len() / 16 {
            levels.d[g] = codes.scale(quant, g);
            levels.m[g] = codes.min(quant, g);
        }
        levels
    }
}

/// One block, taken apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Codes {
    /// Unsigned codes in order of the values; the first `block_len` count.
    pub(crate) q: [u8; 256],
    /// The block's scale: a half float, or MXFP4's exponent.
    pub(crate) d: u16,
    /// The block's minimum (or scale of minima), a half float.
    pub(crate) m: u16,
    /// Scales of sub-blocks: 6-bit for Q3_K, Q4_K, Q5_K and IQ4_XS, 4-bit for Q2_K, signed 8-bit
    /// for Q6_K, 8-bit floats for NVFP4.
    pub(crate) sc: [u8; 16],
    /// 6-bit (Q2_K: 4-bit) minima of sub-blocks.
    pub(crate) mn: [u8; 16],
}

impl Codes {
    /// A block of zeros.
    pub(crate) const ZERO: Codes = Codes { q: [0; 256], d: 0, m: 0, sc: [0; 16], mn: [0; 16] };

    /// The effective scale of 16-value group `g` of the block.
    pub(crate) fn scale(&self, quant: Quant, g: usize) -> f32 {
        let d = half_to_f32(self.d);
        match quant {
            Quant::Q4_K | Quant::Q5_K => d * f32::from(self.sc[g / 2]),
            Quant::IQ4_XS => d * f32::from(self.sc[g / 2] as i8 - 32),
            Quant::Q2_K => d * f32::from(self.sc[g]),
            Quant::Q3_K => d * f32::from(self.sc[g] as i8 - 32),
            Quant::Q6_K => d * f32::from(self.sc[g] as i8),
            // Below 2^-126 the kernels see zero, as a processor without denormals does.
            Quant::MXFP4 if self.d < 2 => 0.0,
            Quant::MXFP4 => e8m0_half(self.d as u8),
            Quant::NVFP4 => ue4m3_half(self.sc[g]),
            _ => d,
        }
    }

    /// The effective minimum (added to the value) of 16-value group `g` of the block.
    pub(crate) fn min(&self, quant: Quant, g: usize) -> f32 {
        match quant {
            Quant::Q4_1 | Quant::Q5_1 => half_to_f32(self.m),
            Quant::Q4_K | Quant::Q5_K => -half_to_f32(self.m) * f32::from(self.mn[g / 2]),
            Quant::Q2_K => -half_to_f32(self.m) * f32::from(self.mn[g]),
            _ => 0.0,
        }
    }

    /// Takes a block apart.
    pub(crate) fn split(quant: Quant, block: &[u8]) -> Codes {
        let mut c = Codes::ZERO;
        c.d = u16_at(block, 0);
        match quant {
            Quant::Q4_0 | Quant::IQ4_NL => nibbles(&mut c, &block[2..18], 0),
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
            Quant::MXFP4 => {
                c.d = u16::from(block[0]);
                nibbles(&mut c, &block[1..17], 0);
            }
            Quant::NVFP4 => {
                c.d = 0;
                c.sc[..4].copy_from_slice(&block[..4]);
                for (i, q) in c.q[..64].iter_mut().enumerate() {
                    let byte = block[4 + i / 16 * 8 + i % 8];
                    *q = if i % 16 < 8 { byte & 15 } else { byte >> 4 };
                }
            }
            Quant::Q1_0 => {
                for (i, q) in c.q[..128].iter_mut().enumerate() {
                    *q = ((block[2 + i / 8] >> (i % 8)) & 1) << 1;
                }
            }
            Quant::Q2_0 => {
                for (i, q) in c.q[..64].iter_mut().enumerate() {
                    *q = (block[2 + i / 4] >> (2 * (i % 4))) & 3;
                }
            }
            _ => c.split_k(quant, block),
        }
        c
    }

    /// [`Codes::split`] of the types of 256 values.
    fn split_k(&mut self, quant: Quant, block: &[u8]) {
        match quant {
            Quant::Q2_K => {
                (self.d, self.m) = (u16_at(block, 80), u16_at(block, 82));
                for (g, &byte) in block[..16].iter().enumerate() {
                    (self.sc[g], self.mn[g]) = (byte & 15, byte >> 4);
                }
                for (i, q) in self.q.iter_mut().enumerate() {
                    *q = two_bits(&block[16..80], i);
                }
            }
            Quant::Q3_K => {
                self.d = u16_at(block, 108);
                let packed = &block[96..108];
                for (g, sc) in self.sc.iter_mut().enumerate() {
                    let low = (packed[g % 8] >> (4 * (g / 8))) & 15;
                    *sc = low | ((packed[8 + g % 4] >> (2 * (g / 4))) & 3) << 4;
                }
                for (i, q) in self.q.iter_mut().enumerate() {
                    let high = (block[i % 32] >> (i / 32)) & 1;
                    *q = two_bits(&block[32..96], i) | high << 2;
                }
            }
            Quant::Q4_K | Quant::Q5_K => {
                self.m = u16_at(block, 2);
                let five = quant == Quant::Q5_K;
                let qs = &block[if five { 48 } else { 16 }..];
                for j in 0..8 {
                    (self.sc[j], self.mn[j]) = scale_min(&block[4..16], j);
                    for l in 0..32 {
                        let nibble = (qs[(j / 2) * 32 + l] >> (4 * (j % 2))) & 15;
                        let high = if five { (block[16 + l] >> j) & 1 } else { 0 };
                        self.q[j * 32 + l] = nibble | high << 4;
                    }
                }
            }
            Quant::Q6_K => {
                self.d = u16_at(block, 208);
                self.sc.copy_from_slice(&block[192..208]);
                for i in 0..256 {
                    self.q[i] = q6_code(&block[..128], &block[128..192], i);
                }
            }
            Quant::IQ4_XS => {
                let high = u16_at(block, 2);
                for j in 0..8 {
                    let low = (block[4 + j / 2] >> (4 * (j % 2))) & 15;
                    self.sc[j] = low | (((high >> (2 * j)) & 3) as u8) << 4;
                    for l in 0..32 {
                        let byte = block[8 + 16 * j + l % 16];
                        self.q[32 * j + l] = if l < 16 { byte & 15 } else { byte >> 4 };
                    }
                }
            }
            Quant::TQ1_0 => {
                self.d = u16_at(block, 52);
                for (i, q) in self.q.iter_mut().enumerate() {
                    *q = match i {
                        0..160 => trit_code(block[i % 32], i / 32),
                        160..240 => trit_code(block[32 + i % 16], (i - 160) / 16),
                        _ => trit_code(block[48 + i % 4], (i - 240) / 4),
                    };
                }
            }
            Quant::TQ2_0 => {
                self.d = u16_at(block, 64);
                for (i, q) in self.q.iter_mut().enumerate() {
                    *q = two_bits(&block[..64], i);
                }
            }
            _ => {}
        }
    }

    /// Puts a block together; the inverse of [`Codes::split`] (of TQ1_0's many spellings of the
    /// same digits, the usual one).
    pub(crate) fn join(&self, quant: Quant, block: &mut [u8]) {
        block.fill(0);
        let half = |block: &mut [u8], at: usize, x: u16| {
            block[at..at + 2].copy_from_slice(&x.to_le_bytes());
        };
        match quant {
            Quant::MXFP4 | Quant::NVFP4 => {}
            Quant::Q2_K => half(block, 80, self.d),
            Quant::Q3_K => half(block, 108, self.d),
            Quant::Q6_K => half(block, 208, self.d),
            Quant::TQ1_0 => half(block, 52, self.d),
            Quant::TQ2_0 => half(block, 64, self.d),
            _ => half(block, 0, self.d),
        }
        match quant {
            Quant::Q4_0 | Quant::IQ4_NL => {
                self.store_nibbles(&mut block[2..18]);
            }
            Quant::Q4_1 => {
                half(block, 2, self.m);
                self.store_nibbles(&mut block[4..20]);
            }
            Quant::Q5_0 => {
                let high = self.store_nibbles(&mut block[6..22]);
                block[2..6].copy_from_slice(&high.to_le_bytes());
            }
            Quant::Q5_1 => {
                half(block, 2, self.m);
                let high = self.store_nibbles(&mut block[8..24]);
                block[4..8].copy_from_slice(&high.to_le_bytes());
            }
            Quant::Q8_0 => {
                for (byte, &q) in block[2..34].iter_mut().zip(&self.q) {
                    *byte = q ^ 0x80;
                }
            }
            Quant::MXFP4 => {
                block[0] = self.d as u8;
                self.store_nibbles(&mut block[1..17]);
            }
            Quant::NVFP4 => {
                block[..4].copy_from_slice(&self.sc[..4]);
                for (i, &q) in self.q[..64].iter().enumerate() {
                    block[4 + i / 16 * 8 + i % 8] |= q << (4 * (i % 16 / 8));
                }
            }
            Quant::Q1_0 => {
                for (i, &q) in self.q[..128].iter().enumerate() {
                    block[2 + i / 8] |= (q >> 1) << (i % 8);
                }
            }
            Quant::Q2_0 => {
                for (i, &q) in self.q[..64].iter().enumerate() {
                    block[2 + i / 4] |= q << (2 * (i % 4));
                }
            }
            Quant::Q4_K | Quant::Q5_K => self.join_k(quant == Quant::Q5_K, block),
            _ => self.join_more(quant, block),
        }
    }

    fn join_more(&self, quant: Quant, block: &mut [u8]) {
        match quant {
            Quant::Q2_K => {
                block[82..84].copy_from_slice(&self.m.to_le_bytes());
                for (byte, (sc, mn)) in block.iter_mut().zip(self.sc.iter().zip(&self.mn)) {
                    *byte = sc | mn << 4;
                }
                self.store_two_bits(&mut block[16..80]);
            }
            Quant::Q3_K => {
                for (g, &sc) in self.sc.iter().enumerate() {
                    block[96 + g % 8] |= (sc & 15) << (4 * (g / 8));
                    block[104 + g % 4] |= (sc >> 4) << (2 * (g / 4));
                }
                for (i, &q) in self.q.iter().enumerate() {
                    block[i % 32] |= (q >> 2) << (i / 32);
                }
                self.store_two_bits(&mut block[32..96]);
            }
            Quant::Q6_K => {
                for (i, &q) in self.q.iter().enumerate() {
                    let (half, quarter, l) = (i / 128, (i / 32) % 4, i % 32);
                    block[half * 64 + (quarter % 2) * 32 + l] |= (q & 15) << (4 * (quarter / 2));
                    block[128 + half * 32 + l] |= (q >> 4) << (2 * quarter);
                }
                block[192..208].copy_from_slice(&self.sc);
            }
            Quant::IQ4_XS => {
                let mut high = 0;
                for j in 0..8 {
                    block[4 + j / 2] |= (self.sc[j] & 15) << (4 * (j % 2));
                    high |= u16::from(self.sc[j] >> 4) << (2 * j);
                    for l in 0..32 {
                        block[8 + 16 * j + l % 16] |= self.q[32 * j + l] << (4 * (l / 16));
                    }
                }
                block[2..4].copy_from_slice(&high.to_le_bytes());
            }
            Quant::TQ1_0 => {
                let digits =
                    |places: [usize; 5]| trits(places.map(|i| if i < 256 { self.q[i] } else { 0 }));
                for (l, byte) in block[..52].iter_mut().enumerate() {
                    *byte = digits(std::array::from_fn(|n| match l {
                        0..32 => 32 * n + l,
                        32..48 => 160 + 16 * n + l - 32,
                        _ => 240 + 4 * n + l - 48,
                    }));
                }
            }
            Quant::TQ2_0 => self.store_two_bits(&mut block[..64]),
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

    /// The inverse of [`two_bits`].
    fn store_two_bits(&self, qs: &mut [u8]) {
        for (i, &q) in self.q.iter().enumerate() {
            qs[i / 128 * 32 + i % 32] |= (q & 3) << (2 * ((i / 32) % 4));
        }
    }
}

/// Five base-3 digits as a byte: their number times 256/243, rounded up.
pub(crate) fn trits(digits: [u8; 5]) -> u8 {
    let number = digits.iter().fold(0u16, |number, &digit| number * 3 + u16::from(digit));
    (number * 256).div_ceil(243) as u8
}

/// Code `i` of 256 in 64 bytes: 32 bytes per 128 codes, two bits per 32.
fn two_bits(qs: &[u8], i: usize) -> u8 {
    (qs[i / 128 * 32 + i % 32] >> (2 * ((i / 32) % 4))) & 3
}

fn nibbles(c: &mut Codes, qs: &[u8], high: u32) {
    for (i, &byte) in qs.iter().enumerate() {
        c.q[i] = (byte & 15) | (((high >> i) & 1) as u8) << 4;
        c.q[i + 16] = (byte >> 4) | (((high >> (i + 16)) & 1) as u8) << 4;
    }
}
