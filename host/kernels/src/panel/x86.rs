//! Products with packed panels on AVX-512 VNNI and on AVX2.
//!
//! Every path computes the same thing in the same order, so one token's result does not depend on
//! how many others are computed with it, nor on the instruction set: per 32 (or 16) columns the
//! exact integer product, scaled by the activations' scale with one rounding, then one fused
//! multiply-add with the weights' scale, and one with the minimum where there is one.
#![allow(unsafe_code, reason = "intrinsics on pointers whose ranges are checked on entry")]
#![allow(
    clippy::indexing_slicing,
    clippy::needless_range_loop,
    reason = "register blocks: constant bounds, unrolled, several arrays by one index"
)]

mod batch;
mod format;
mod one;
mod tiles;
mod vector;

use std::ops::Range;

use crate::act::Quantised;
use crate::bulk::{Bulk, SIDE, STEP, TILE};
use crate::codec::codes::IntKind;
use crate::isa::Isa;
use crate::linear::{Epilogue, Target};
use crate::matrix::Matrix;
use crate::quant::Quant;

use super::layout::{Layout, ROWS};
use batch::{Packed, Rows, Scratch};
use format::{Format, Minimum, Shape, Simple, Sixteens, SixteensMinimum, SixteensWide, Wide};
use vector::{Avx2, Avx512, Output, Vector};

/// `$body` with `$format` as the format of a packed type.
macro_rules! formats {
    ($quant:expr, $format:ident => $body:expr) => {
        formats!(@ $quant, $format, $body,
            Q4_0 Q4_0, Q4_1 Q4_1, Q5_0 Q5_0, Q5_1 Q5_1, Q8_0 Q8_0, IQ4_NL Iq4Nl, MXFP4 Mxfp4,
            NVFP4 Nvfp4, Q1_0 Q1_0, Q2_0 Q2_0, Q2_K Q2K, Q3_K Q3K, Q4_K Q4K, Q5_K Q5K, Q6_K Q6K,
            IQ4_XS Iq4Xs, TQ1_0 Tq1_0, TQ2_0 Tq2_0)
    };
    (@ $quant:expr, $format:ident, $body:expr, $($name:ident $type:ident),*) => {
        match $quant {
            $(Quant::$name => {
                type $format = format::$type;
                $body
            })*
            _ => {}
        }
    };
}

/// A product of some panels with all tokens, lengths checked.
struct Product<'a, X = Quantised> {
    matrix: &'a Matrix,
    /// First byte of the first panel; nothing for a matrix that is not packed.
    weights: &'a [u8],
    panel_bytes: usize,
    header_bytes: usize,
    /// Bytes in front of the panel per super-block.
    header: usize,
    /// Super-blocks per panel.
    supers: usize,
    /// First row, and the first row that is not there any more.
    first_row: usize,
    end_row: usize,
    x: &'a X,
    tokens: usize,
    kind: IntKind,
    epilogue: &'a Epilogue<'a>,
    to: Target<'a>,
}

impl<'a, X> Product<'a, X> {
    /// The product of the panels of `rows`, which begin with a whole one. None if there is nothing
    /// to compute.
    fn new(
        matrix: &'a Matrix,
        kind: IntKind,
        rows: Range<usize>,
        (x, tokens): (&'a X, usize),
        epilogue: &'a Epilogue<'a>,
        to: Target<'a>,
    ) -> Option<Self> {
        if tokens == 0 || rows.is_empty() {
            return None;
        }
        let cols = matrix.cols();
        let layout = matrix.panels().map(|panels| panels.layout);
        let panel_bytes = layout.map_or(0, |layout| layout.panel_bytes(cols));
        let panels = rows.start / ROWS..rows.end.div_ceil(ROWS);
        let bytes = panels.start * panel_bytes..panels.end * panel_bytes;
        let weights = match matrix.panels() {
            Some(panels) => panels.as_slice().get(bytes).unwrap_or(&[]),
            None => &[],
        };
        assert!(weights.len() == panels.len() * panel_bytes, "panels outside the matrix");
        to.check(rows.end, tokens);
        Some(Product {
            matrix,
            weights,
            panel_bytes,
            header_bytes: layout.map_or(0, |layout| layout.header_bytes(cols)),
            header: layout.map_or(0, |layout| layout.header),
            supers: layout.map_or(0, |layout| layout.supers(cols)),
            first_row: rows.start,
            end_row: rows.end,
            x,
            tokens,
            kind,
            epilogue,
            to,
        })
    }
}

/// Computes the rows of some panels for `tokens` tokens. The matrix is packed, or not and met by
/// tiles; the instruction set is AVX2 or better, and offered.
#[allow(clippy::too_many_arguments, reason = "one product, described in full")]
pub(crate) fn compute(
    isa: Isa,
    matrix: &Matrix,
    kind: IntKind,
    rows: Range<usize>,
    x: &Quantised,
    tokens: usize,
    epilogue: &Epilogue<'_>,
    to: Target<'_>,
) {
    let Some(product) = Product::new(matrix, kind, rows, (x, tokens), epilogue, to) else { return };
    let layout = matrix.panels().map(|panels| panels.layout);
    let blocks = layout.map_or(x.blocks, |layout| product.supers * layout.blocks);
    // The kernels read activations by pointer: all of these must hold the tiles they walk.
    let cells = tokens.div_ceil(x.width.max(1)) * x.blocks * x.width;
    let twice = if kind.sixteens { 2 } else { 1 };
    let fits = x.width > 0
        && blocks == x.blocks
        && x.blocks * 32 >= matrix.cols()
        && x.codes.as_slice().len() >= cells * 32
        && x.scale.as_slice().len() >= cells
        && x.magic.as_slice().len() >= cells
        && x.sums(kind).len() >= if kind.has_min { cells * twice } else { 0 }
        && x.start.get(kind.class).is_some_and(|start| start.as_slice().len() >= cells * twice);
    assert!(fits, "activations of another shape than the weights");
    // SAFETY: the caller vouches for the instruction set; all ranges were checked above.
    unsafe {
        match isa {
            Isa::Avx512 | Isa::Amx => avx512(&product, layout),
            _ => avx2(&product, layout),
        }
    }
}

/// Computes the rows of some panels for the tokens that came in bulk. AMX is offered, and the type
/// has integer kernels.
pub(crate) fn compute_bulk(
    matrix: &Matrix,
    rows: Range<usize>,
    x: &Bulk,
    epilogue: &Epilogue<'_>,
    to: Target<'_>,
) {
    let Some(kind) = matrix.quant().int_kind() else { return };
    let product = Product::new(matrix, kind, rows, (x, x.tokens()), epilogue, to);
    let Some(product) = product else { return };
    let tiles = 2 * x.steps() * x.tokens().div_ceil(SIDE) * TILE;
    let fits = x.steps() * STEP == matrix.cols() && x.tiles().len() >= tiles;
    assert!(fits, "activations of another shape than the weights");
    tiles::SCRATCH.with_borrow_mut(|scratch| {
        // SAFETY: activations come in bulk only where AMX is offered; ranges were checked above.
        unsafe {
            match matrix.panels() {
                Some(panels) => {
                    formats!(panels.layout.quant, Format => bulk::<Packed<Format>>(&product, scratch));
                }
                None => bulk::<tiles::Unpacked>(&product, scratch),
            }
        }
    });
}

/// # Safety
/// AMX is offered, and the product's ranges hold.
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni,avx512bf16,avx2,fma,f16c"
)]
unsafe fn bulk<W: tiles::Weights>(p: &Product<'_, Bulk>, scratch: &mut tiles::Scratch) {
    // SAFETY: the caller's promises, passed on.
    unsafe { tiles::run::<W>(p, scratch) }
}

macro_rules! run {
    ($name:ident, $one:ident, $several:ident, $rows:ident, $lanes:ty, $features:literal) => {
        /// # Safety
        /// The processor has the features, and the product's ranges hold.
        unsafe fn $name(p: &Product<'_>, layout: Option<Layout>) {
            // SAFETY: the caller's promises, passed on.
            unsafe {
                let Some(layout) = layout else {
                    // The work is in functions that are compiled for the instruction set.
                    return batch::SCRATCH.with_borrow_mut(|scratch| {
                        match (p.kind.sixteens, p.kind.has_min, p.kind.offset == 128) {
                            (false, false, false) => $rows::<Simple>(p, scratch),
                            (false, true, _) => $rows::<Minimum>(p, scratch),
                            (false, false, true) => $rows::<Wide>(p, scratch),
                            (true, false, false) => $rows::<Sixteens>(p, scratch),
                            (true, true, _) => $rows::<SixteensMinimum>(p, scratch),
                            (true, false, true) => $rows::<SixteensWide>(p, scratch),
                        }
                    });
                };
                formats!(layout.quant, F => either::<F>(p));
            }

            unsafe fn either<F: Format>(p: &Product<'_>) {
                // SAFETY: the caller's promises, passed on.
                unsafe {
                    if p.x.width == 1 && p.tokens == 1 {
                        $one::<F>(p);
                    } else {
                        batch::SCRATCH.with_borrow_mut(|scratch| $several::<F>(p, scratch));
                    }
                }
            }
        }

        #[target_feature(enable = $features)]
        unsafe fn $one<F: Format>(p: &Product<'_>) {
            // SAFETY: the caller's promises, passed on.
            unsafe { one::run::<$lanes, F>(p) }
        }

        #[target_feature(enable = $features)]
        unsafe fn $several<F: Format>(p: &Product<'_>, scratch: &mut Scratch) {
            // SAFETY: the caller's promises, passed on.
            unsafe { batch::run::<$lanes, Packed<F>>(p, scratch) }
        }

        #[target_feature(enable = $features)]
        unsafe fn $rows<S: Shape>(p: &Product<'_>, scratch: &mut Scratch) {
            // SAFETY: the caller's promises, passed on.
            unsafe { batch::run::<$lanes, Rows<S>>(p, scratch) }
        }
    };
}

run!(
    avx512,
    one_avx512,
    several_avx512,
    rows_avx512,
    Avx512,
    "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni,avx2,fma,f16c"
);
run!(avx2, one_avx2, several_avx2, rows_avx2, Avx2, "avx2,fma,f16c");

/// Stores the rows of a vector, from `row` on, for consecutive tokens from `token` on.
///
/// # Safety
/// The rows below `end_row` and the tokens are inside the product's output.
#[inline(always)]
unsafe fn store<V: Vector>(p: &Product<'_>, row: usize, sums: &[V::F], token: usize) {
    let lanes = p.end_row.saturating_sub(row).min(V::LANES);
    if lanes == 0 {
        return;
    }
    for (t, &sum) in sums.iter().enumerate() {
        let out = Output {
            to: p.to.out.pointer(p.to.at(row, token + t)),
            scale: p.epilogue.scale,
            bias: p.epilogue.bias.map_or(std::ptr::null(), |bias| bias.as_ptr().wrapping_add(row)),
            accumulate: p.epilogue.accumulate,
        };
        // SAFETY: lanes below `end_row` only; the bias has a value per row.
        unsafe { V::put(sum, lanes, out) };
    }
}
