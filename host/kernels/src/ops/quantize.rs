//! The activation quantiser: 32 floats to 8-bit codes and a scale.

use super::multiversion;

/// Quantised rows on their way into a tile, reused from row to row.
pub(crate) type Blocks = Vec<Block>;

multiversion! {
    /// Quantises the whole blocks of a row into `blocks`, the rest of which becomes zero.
    pub(super) fn quantize_row / quantize_row_on = row_body(x: &[f32], blocks: &mut [Block])
}

#[inline(always)]
fn row_body<const FMA: bool>(x: &[f32], blocks: &mut [Block]) {
    let (whole, _) = x.as_chunks::<32>();
    let used = whole.len().min(blocks.len());
    for (block, x) in blocks.iter_mut().zip(whole) {
        *block = quantize_body::<FMA>(x);
    }
    for block in blocks.iter_mut().skip(used) {
        *block = Block::ZERO;
    }
}

/// 32 quantised values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Block {
    /// Codes of -127..=127, as bytes.
    pub(crate) codes: [i8; 32],
    /// Value of one step, with 22 bits of mantissa.
    pub(crate) scale: f32,
    /// Sums of the first and the last 16 codes.
    pub(crate) sums: [i32; 2],
}

impl Block {
    pub(crate) const ZERO: Block = Block { codes: [0; 32], scale: 0.0, sums: [0, 0] };
}

/// Quantises 32 values (fewer give a zero block). A NaN or infinity anywhere makes the scale NaN or
/// infinite, so that it is not lost; blocks below 1e-30 are zero.
#[inline(always)]
fn quantize_body<const FMA: bool>(x: &[f32]) -> Block {
    let Some(x) = x.first_chunk::<32>() else { return Block::ZERO };
    // Magnitudes order like their bits, and NaN above all: the maximum loses nothing.
    let mut bits = [0u32; 32];
    for (b, x) in bits.iter_mut().zip(x) {
        *b = x.to_bits() & 0x7fff_ffff;
    }
    let most = f32::from_bits(bits.iter().fold(0, |m, &b| m.max(b)));
    if most < 1e-30 {
        return Block::ZERO;
    }
    if !most.is_finite() {
        return Block { scale: most, ..Block::ZERO };
    }
    // Rounded to 22 bits of mantissa.
    let scale = f32::from_bits(((most / 127.0).to_bits() + 2) & !3);
    let inverse = 127.0 / most;
    let mut wide = [0i32; 32];
    for (q, x) in wide.iter_mut().zip(x) {
        // |x| * inverse is at most 127.00001, so adding 1.5 * 2^23 leaves the rounded integer in
        // the low bits.
        *q = ((x * inverse + 12_582_912.0).to_bits() as i32).wrapping_sub(0x4B40_0000);
    }
    let mut codes = [0i8; 32];
    for (code, &q) in codes.iter_mut().zip(&wide) {
        *code = q as i8;
    }
    let (low, high) = wide.split_at(16);
    Block { codes, scale, sums: [low.iter().sum(), high.iter().sum()] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_within_half_a_step_on_every_instruction_set() {
        let x: [f32; 32] = std::array::from_fn(|i| ((i * 37 % 61) as f32 - 30.0) * 0.173);
        let quantize_on = |isa, x: &[f32]| {
            let mut blocks = [Block::ZERO];
            quantize_row_on(isa, x, &mut blocks);
            blocks[0]
        };
        let scalar = quantize_on(crate::Isa::Scalar, &x);
        for isa in crate::isa::offered().up_to() {
            assert_eq!(quantize_on(isa, &x), scalar, "{isa}");
        }
        for (x, code) in x.iter().zip(scalar.codes) {
            assert!((x - f32::from(code) * scalar.scale).abs() <= scalar.scale * 0.501);
        }
        assert_eq!(scalar.sums[0], scalar.codes[..16].iter().map(|c| i32::from(*c)).sum::<i32>());
        assert_eq!(scalar.scale.to_bits() & 3, 0);
    }

    #[test]
    fn what_is_not_a_number_is_not_lost() {
        let quantize = |x: &[f32]| {
            let mut blocks = [Block::ZERO];
            quantize_row(x, &mut blocks);
            blocks[0]
        };
        let mut x = [1.0f32; 32];
        x[7] = f32::NAN;
        assert!(quantize(&x).scale.is_nan());
        x[7] = f32::INFINITY;
        assert_eq!(quantize(&x).scale, f32::INFINITY);
        assert_eq!(quantize(&[0.0; 32]), Block::ZERO);
        assert_eq!(quantize(&[1e-38; 32]), Block::ZERO);
    }
}
