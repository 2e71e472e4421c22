//! Dot products of a weight row, straight from its bytes, with one token's activations.

pub(crate) mod float;
pub(crate) mod scalar;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86;

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
#[allow(unsafe_code, reason = "calls of functions compiled for more features")]
pub(crate) fn int_row(isa: Isa, quant: Quant, row: &[u8], token: Token<'_>) -> f32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    match isa {
        // SAFETY: an `Isa` above scalar is offered; the kernels check lengths.
        Isa::Avx512 => return unsafe { x86::avx512(quant, row, token) },
        // SAFETY: as above.
        Isa::Avx2 => return unsafe { x86::avx2(quant, row, token) },
        Isa::Scalar => {}
    }
    let _ = isa;
    scalar::int_row(quant, row, token)
}
