//! How numbers of keys and values are stored: plain numbers, or blocks of 32 with a scale.
//!
//! Blocks are those of Q8_0 and Q4_0, taken apart so that the loops need no shuffles. Keys of a
//! tile: per block 16 half-float scales, then per dimension 16 codes (Q4_0: dimensions `d` and
//! `d + 16` in the low and the high nibbles). Values of a position: all scales, then all codes.
#![allow(clippy::indexing_slicing, reason = "callers pass one tile and one head's values")]

use crate::codec;
use crate::error::KernelError;
use crate::isa::Isa;
use crate::quant::Quant;

/// Positions per tile.
pub(crate) const TILE: usize = 16;

/// The largest head that can be stored.
const MOST_DIM: usize = 1024;

/// How one side of a cache, its keys or its values, is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Side {
    pub(super) quant: Quant,
    /// Dimensions with padding.
    pub(super) padded: usize,
}

impl Side {
    /// # Errors
    /// The type cannot hold keys and values, or the head is too large.
    pub(super) fn new(quant: Quant, head_dim: usize) -> Result<Side, KernelError> {
        let multiple = match quant {
            Quant::F32 | Quant::F16 | Quant::BF16 => 16,
            Quant::Q8_0 | Quant::Q4_0 => 32,
            other => {
                return Err(KernelError::Unsupported {
                    quant: other.name(),
                    operation: "hold keys and values; use F16, BF16, Q8_0, Q4_0 or F32",
                });
            }
        };
        if head_dim > MOST_DIM {
            return Err(KernelError::TooLarge("a head of keys and values"));
        }
        Ok(Side { quant, padded: head_dim.next_multiple_of(multiple) })
    }

    /// Bytes of one position.
    pub(super) const fn row_bytes(self) -> usize {
        self.padded / self.quant.block_len() * self.quant.block_bytes()
    }

    /// Bytes of a tile.
    pub(super) const fn tile_bytes(self) -> usize {
        self.row_bytes() * TILE
    }

    /// Writes the key of place `t` of a tile.
    pub(super) fn write_key(self, isa: Isa, x: &[f32], t: usize, tile: &mut [u8]) {
        match self.quant {
            Quant::F32 => {
                let (places, _) = tile.as_chunks_mut::<{ 4 * TILE }>();
                for (place, x) in places.iter_mut().zip(x) {
                    place[4 * t..4 * t + 4].copy_from_slice(&x.to_le_bytes());
                }
            }
            Quant::F16 | Quant::BF16 => {
                let mut row = [0u8; 2 * MOST_DIM];
                self.narrow(isa, x, &mut row);
                let (places, _) = tile.as_chunks_mut::<{ 2 * TILE }>();
                for (place, bytes) in places.iter_mut().zip(&row.as_chunks::<2>().0[..x.len()]) {
                    place[2 * t..2 * t + 2].copy_from_slice(bytes);
                }
            }
            quant => {
                let codes = quant.block_bytes() - 2;
                let blocks = tile.chunks_exact_mut(quant.block_bytes() * TILE);
                for (place, x) in blocks.zip(x.chunks(32)) {
                    let block = encode(quant, x);
                    place[2 * t..2 * t + 2].copy_from_slice(&block[..2]);
                    for (d, code) in block[2..2 + codes].iter().enumerate() {
                        place[2 * TILE + d * TILE + t] = *code;
                    }
                }
            }
        }
    }

    /// Writes the value of place `t` of a tile.
    pub(super) fn write_value(self, isa: Isa, x: &[f32], t: usize, tile: &mut [u8]) {
        let bytes = self.row_bytes();
        let row = &mut tile[t * bytes..(t + 1) * bytes];
        match self.quant {
            Quant::F32 => {
                for (place, x) in row.as_chunks_mut::<4>().0.iter_mut().zip(x) {
                    *place = x.to_le_bytes();
                }
            }
            Quant::F16 | Quant::BF16 => self.narrow(isa, x, row),
            quant => {
                let codes = quant.block_bytes() - 2;
                let (scales, places) = row.split_at_mut(self.padded / 32 * 2);
                let places = places.chunks_exact_mut(codes).zip(scales.as_chunks_mut::<2>().0);
                for ((place, scale), x) in places.zip(x.chunks(32)) {
                    let block = encode(quant, x);
                    scale.copy_from_slice(&block[..2]);
                    place.copy_from_slice(&block[2..2 + codes]);
                }
            }
        }
    }

    /// Numbers as half floats or bfloat16.
    fn narrow(self, isa: Isa, x: &[f32], row: &mut [u8]) {
        if self.quant == Quant::F16 {
            to_half(isa, x, row);
            return;
        }
        for (place, x) in row.as_chunks_mut::<2>().0.iter_mut().zip(x) {
            *place = half::bf16::from_f32(*x).to_bits().to_le_bytes();
        }
    }
}

/// Up to 32 values as a block of Q8_0 or Q4_0. What is not finite makes the scale not finite, so
/// that it is not lost.
fn encode(quant: Quant, x: &[f32]) -> [u8; 34] {
    let (mut values, mut block) = ([0.0f32; 32], [0u8; 34]);
    values[..x.len()].copy_from_slice(x);
    if values.iter().all(|x| x.is_finite()) {
        codec::encode_block(quant, &values, &mut block[..quant.block_bytes()]);
    } else {
        block[..2].copy_from_slice(&codec::f32_to_half(f32::NAN).to_le_bytes());
        block[2] = 1;
    }
    block
}

/// Floats as half floats, rounded to nearest even; up to the shorter of the two.
#[allow(unsafe_code, reason = "a conversion compiled for more features")]
fn to_half(isa: Isa, x: &[f32], out: &mut [u8]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if isa >= Isa::Avx2 {
        // SAFETY: the instruction set is offered.
        unsafe { to_half_x86(x, out) };
        return;
    }
    let _ = isa;
    for (place, x) in out.as_chunks_mut::<2>().0.iter_mut().zip(x) {
        *place = codec::f32_to_half(*x).to_le_bytes();
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx2,fma,f16c")]
#[allow(unsafe_code, reason = "a conversion compiled for more features")]
unsafe fn to_half_x86(x: &[f32], out: &mut [u8]) {
    use std::arch::x86_64::{
        _MM_FROUND_TO_NEAREST_INT, _mm_storeu_si128, _mm256_cvtps_ph, _mm256_loadu_ps,
    };
    let (eights, _) = x.as_chunks::<8>();
    let (places, _) = out.as_chunks_mut::<16>();
    let done = eights.len().min(places.len());
    for (place, x) in places.iter_mut().zip(eights) {
        // SAFETY: 8 floats are read, 16 bytes written.
        unsafe {
            let half = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(x.as_ptr()));
            _mm_storeu_si128(place.as_mut_ptr().cast(), half);
        }
    }
    let places = out.as_chunks_mut::<2>().0.iter_mut().skip(done * 8);
    for (place, x) in places.zip(x.iter().skip(done * 8)) {
        *place = codec::f32_to_half(*x).to_le_bytes();
    }
}
