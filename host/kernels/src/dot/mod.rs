//! Dot products of a weight row, straight from its bytes, with one token's activations.

pub(crate) mod scalar;

use crate::act::Quantised;
use crate::isa::Isa;
use crate::quant::Quant;

/// One token of row-wise quantised activations.
#[derive(Clone, Copy)]
pub(crate) struct Token<'a> {
    /// Codes, 32 per block.
    pub(crate) codes: &'a [i8],
    /// Scale of each block.
    pub(crate) scale: &'a [f32],
    /// Scale times code sum of each block.
    pub(crate) scaled_sum: &'a [f32],
    /// Sums of 16 codes, two per block.
    pub(crate) sums: &'a [i32],
}

impl<'a> Token<'a> {
    /// Token `t` of activations in tiles of one.
    pub(crate) fn of(q: &'a Quantised, t: usize) -> Option<Token<'a>> {
        let (at, blocks) = (t * q.blocks, q.blocks);
        Some(Token {
            codes: q.codes.as_slice().get(at * 32..(at + blocks) * 32)?,
            scale: q.scale.as_slice().get(at..at + blocks)?,
            scaled_sum: q.scaled_sum.as_slice().get(at..at + blocks)?,
            sums: q.sums.as_slice().get(at * 2..(at + blocks) * 2)?,
        })
    }
}

/// The dot product of a row of an integer type with quantised activations. The row has at most as
/// many values as the token.
#[inline]
pub(crate) fn int_row(_isa: Isa, quant: Quant, row: &[u8], token: Token<'_>) -> f32 {
    scalar::int_row(quant, row, token)
}

/// The dot product of two float rows of one length.
#[inline]
pub(crate) fn float_row(isa: Isa, a: &[f32], b: &[f32]) -> f32 {
    crate::ops::vector::dot_on(isa, a, b)
}
