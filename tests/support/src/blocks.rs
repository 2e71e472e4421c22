//! Random rows in quantizations that only a search can write well (small grids, ternary, shared
//! exponents): random codes, and a scale that gives the values the spread that was asked for.
//!
//! Refused: a quantization whose scale is not listed here; those have an encoder.

use anyhow::{Context, Result};
use gristmill_kernels::{Quant, decode_row};

use crate::models::Random;

/// Where a block keeps what all its values are multiplied by. The layouts are ggml's (MIT).
#[derive(Debug, Clone, Copy)]
enum Scale {
    /// A 16-bit float at this byte.
    Half(usize),
    /// One at the first byte for codes 0..3, and one at the second that is subtracted: together a
    /// mean of zero.
    HalfAndMinimum(usize, usize),
    /// A 16-bit float in the upper four bits of four 16-bit words from this byte.
    Nibbles(usize),
    /// A power of two at this byte, 127 being one.
    Exponent(usize),
}

const fn scale(quant: Quant) -> Option<Scale> {
    Some(match quant {
        Quant::Q2_K => Scale::HalfAndMinimum(80, 82),
        Quant::Q3_K => Scale::Half(108),
        Quant::IQ2_XXS
        | Quant::IQ2_XS
        | Quant::IQ2_S
        | Quant::IQ3_XXS
        | Quant::IQ3_S
        | Quant::IQ1_S
        | Quant::IQ4_NL
        | Quant::IQ4_XS
        | Quant::Q1_0 => Scale::Half(0),
        Quant::IQ1_M => Scale::Nibbles(48),
        Quant::TQ1_0 => Scale::Half(52),
        Quant::TQ2_0 => Scale::Half(64),
        Quant::MXFP4 => Scale::Exponent(0),
        _ => return None,
    })
}

/// Whether rows of this quantization are made here.
#[must_use]
pub const fn knows(quant: Quant) -> bool {
    scale(quant).is_some()
}

/// A row of values around zero with this standard deviation (a power of two near it, where the
/// scale is one).
///
/// # Errors
/// When the quantization is not made here or its block does not divide the row.
pub fn random_row(quant: Quant, cols: usize, spread: f32, random: &mut Random) -> Result<Vec<u8>> {
    let scale = scale(quant).with_context(|| format!("{quant} has an encoder"))?;
    let mut row = vec![0; quant.row_bytes(cols)?];
    let mut values = vec![0.0; quant.block_len()];
    for block in row.chunks_exact_mut(quant.block_bytes()) {
        for bytes in block.chunks_mut(8) {
            let drawn = random.next().to_le_bytes();
            bytes.copy_from_slice(drawn.get(..bytes.len()).unwrap_or_default());
        }
        if matches!(quant, Quant::TQ2_0) {
            // Its codes are -1, 0 and 1; the fourth would be 2.
            block.iter_mut().for_each(|byte| *byte ^= (*byte & (*byte >> 1) & 0x55) << 1);
        }
        // Once with a scale of one to see what the codes give, then with the one that is wanted.
        put(block, scale, 1.0)?;
        decode_row(quant, block, &mut values)?;
        let power = values.iter().map(|x| x * x).sum::<f32>() / values.len() as f32;
        put(block, scale, spread / power.sqrt().max(1e-6))?;
    }
    Ok(row)
}

fn put(block: &mut [u8], scale: Scale, value: f32) -> Result<()> {
    let mut half = |at: usize, value: f32| -> Result<()> {
        let place = block.get_mut(at..at + 2).context("a block shorter than its scale")?;
        place.copy_from_slice(&half::f16::from_f32(value).to_le_bytes());
        Ok(())
    };
    match scale {
        Scale::Half(at) => half(at, value)?,
        Scale::HalfAndMinimum(at, minimum) => {
            half(at, value)?;
            half(minimum, value * 1.5)?;
        }
        Scale::Nibbles(at) => {
            let bits = half::f16::from_f32(value).to_bits();
            for part in 0..4 {
                let byte = block.get_mut(at + 2 * part + 1).context("a block without scales")?;
                *byte = (*byte & 0x0f) | ((((bits >> (4 * part)) & 0xf) as u8) << 4);
            }
        }
        Scale::Exponent(at) => {
            let exponent = (127.0 + value.log2().round()).clamp(1.0, 253.0);
            *block.get_mut(at).context("a block without exponent")? = exponent as u8;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Quant, Random, decode_row, knows, random_row};

    #[test]
    fn rows_have_the_spread_that_was_asked_for() {
        let mut random = Random::new(3);
        let mut made = 0;
        for quant in Quant::ALL.iter().copied().filter(|quant| knows(*quant)) {
            made += 1;
            let spread = 0.03;
            let row = random_row(quant, 4096, spread, &mut random).unwrap();
            let mut values = vec![0.0; 4096];
            decode_row(quant, &row, &mut values).unwrap();
            let mean = values.iter().sum::<f32>() / 4096.0;
            let power = (values.iter().map(|x| x * x).sum::<f32>() / 4096.0).sqrt();
            assert!(mean.abs() < 0.3 * spread, "{quant}: mean {mean}");
            assert!((0.6..1.5).contains(&(power / spread)), "{quant}: spread {power}");
        }
        assert_eq!(made, 15);
    }
}
