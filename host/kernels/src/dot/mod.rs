//! Dot products of a weight row, straight from its bytes, with one token's activations.

pub(crate) mod float;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod grid;
mod scalar;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86;

use std::cell::RefCell;
use std::ops::Range;

#[cfg(all(target_arch = "x86_64", not(miri)))]
use crate::act::FEW;
use crate::act::Quantised;
use crate::codec::codes::Levels;
use crate::isa::Isa;
use crate::matrix::Matrix;
use crate::quant::Quant;

/// One token of row-wise quantised activations.
#[derive(Clone, Copy, Default)]
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

/// The dot products of some rows of an integer type, not packed, with `n` tokens; `store` takes row,
/// token and product.
#[allow(unsafe_code, reason = "calls of functions compiled for more features")]
pub(crate) fn rows(
    isa: Isa,
    matrix: &Matrix,
    rows: Range<usize>,
    x: &Quantised,
    n: usize,
    store: &impl Fn(usize, usize, f32),
) {
    let quant = matrix.quant();
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    let all: [Token<'_>; FEW] = std::array::from_fn(|t| Token::of(x, t).unwrap_or_default());
    // Above scalar, more tokens meet unpacked panels.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    let few = all.get(..n).unwrap_or_default();
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    debug_assert!(isa == Isa::Scalar || n <= FEW, "{n} tokens at once");
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if isa > Isa::Scalar && quant.on_grid() {
        for row in rows {
            let Some(bytes) = matrix.row(row) else { return };
            for (t, &token) in few.iter().enumerate() {
                // SAFETY: an `Isa` above scalar is offered; the kernels check lengths.
                let product = unsafe {
                    match isa {
                        Isa::Avx512 | Isa::Amx => grid::avx512(quant, bytes, token),
                        _ => grid::avx2(quant, bytes, token),
                    }
                };
                store(row, t, product);
            }
        }
        return;
    }
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if isa > Isa::Scalar && x86::DIRECT.contains(&quant) {
        let mut out = [[0.0; x86::ROWS]; FEW];
        for first in rows.clone().step_by(x86::ROWS) {
            // Rows past the end are not stored: any will do.
            let bytes: [Option<&[u8]>; x86::ROWS] =
                std::array::from_fn(|r| matrix.row((first + r).min(rows.end - 1)));
            if bytes.iter().any(Option::is_none) {
                return;
            }
            let bytes = bytes.map(Option::unwrap_or_default);
            // SAFETY: an `Isa` above scalar is offered; the kernels check lengths.
            unsafe {
                match isa {
                    Isa::Avx512 | Isa::Amx => x86::avx512(quant, &bytes, few, &mut out),
                    _ => x86::avx2(quant, &bytes, few, &mut out),
                }
            }
            for (t, products) in out.iter().enumerate().take(n) {
                for (row, product) in (first..rows.end).zip(products) {
                    store(row, t, *product);
                }
            }
        }
        return;
    }
    let Some(kind) = quant.int_kind() else { return };
    LEVELS.with_borrow_mut(|levels| {
        for row in rows {
            matrix.with_row(row, |bytes| {
                levels.fill(quant, bytes);
                for (t, token) in (0..n).map_while(|t| Some((t, Token::of(x, t)?))) {
                    store(row, t, scalar::levels_row_on(isa, kind, levels, token));
                }
            });
        }
    });
}

thread_local! {
    /// A row taken apart.
    static LEVELS: RefCell<RowLevels> = RefCell::default();
}
