//! Dot products of a weight row, straight from its bytes, with one token's activations.

pub(crate) mod float;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod grid;
mod scalar;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86;

use crate::act::Quantised;
use crate::codec::codes::Levels;
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

/// A row of an integer type, taken apart once for all tokens.
#[derive(Default)]
pub(crate) struct RowLevels {
    /// Levels with the type's offset.
    pub(crate) q: Vec<u8>,
    /// Scale of each 16 values.
    pub(crate) d: Vec<f32>,
    /// Minimum of each 16 values.
    pub(crate) m: Vec<f32>,
}

impl RowLevels {
    fn fill(&mut self, quant: Quant, row: &[u8]) {
        self.q.clear();
        self.d.clear();
        self.m.clear();
        let len = quant.block_len();
        for block in row.chunks_exact(quant.block_bytes()) {
            let levels = Levels::of(quant, block);
            self.q.extend(levels.q.iter().take(len));
            self.d.extend(levels.d.iter().take(len / 16));
            self.m.extend(levels.m.iter().take(len / 16));
        }
    }
}

/// The dot products of a row of an integer type with quantised activations, of which it has at
/// most as many values.
pub(crate) struct RowDot<'a> {
    isa: Isa,
    quant: Quant,
    row: &'a [u8],
    /// None where a kernel reads the row as it is.
    levels: Option<&'a RowLevels>,
}

impl<'a> RowDot<'a> {
    /// Prepares a row; `levels` is memory for it.
    pub(crate) fn new(
        isa: Isa,
        quant: Quant,
        row: &'a [u8],
        levels: &'a mut RowLevels,
    ) -> RowDot<'a> {
        let direct = match isa {
            Isa::Scalar => false,
            Isa::Avx2 | Isa::Avx512 => Self::direct(quant) || quant.on_grid(),
        };
        let levels = (!direct || cfg!(miri)).then(|| {
            levels.fill(quant, row);
            &*levels
        });
        RowDot { isa, quant, row, levels }
    }

    /// Whether the vector kernels read this type's rows as they are.
    const fn direct(quant: Quant) -> bool {
        matches!(
            quant,
            Quant::Q4_0
                | Quant::Q4_1
                | Quant::Q5_0
                | Quant::Q5_1
                | Quant::Q8_0
                | Quant::Q4_K
                | Quant::Q5_K
                | Quant::Q6_K
        )
    }

    /// The product with one token.
    #[inline]
    #[allow(unsafe_code, reason = "calls of functions compiled for more features")]
    pub(crate) fn with(&mut self, token: Token<'_>) -> f32 {
        if let (Some(levels), Some(kind)) = (self.levels, self.quant.int_kind()) {
            return scalar::levels_row_on(self.isa, kind, levels, token);
        }
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: an `Isa` above scalar is offered; the kernels check lengths.
        unsafe {
            match (self.isa, self.quant.on_grid()) {
                (Isa::Avx512, true) => return grid::avx512(self.quant, self.row, token),
                (Isa::Avx512, false) => return x86::avx512(self.quant, self.row, token),
                (Isa::Avx2, true) => return grid::avx2(self.quant, self.row, token),
                (Isa::Avx2, false) => return x86::avx2(self.quant, self.row, token),
                (Isa::Scalar, _) => {}
            }
        }
        f32::NAN
    }
}
