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
mod vector;

use crate::act::Quantised;
use crate::codec::codes::IntKind;
use crate::isa::Isa;
use crate::linear::Epilogue;
use crate::matrix::Matrix;
use crate::memory::Parts;
use crate::quant::Quant;

use super::layout::{Layout, ROWS};
use batch::{Packed, Rows, Scratch};
use format::{
    Format, Iq4Nl, Iq4Xs, Minimum, Mxfp4, Nvfp4, Q1_0, Q2_0, Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0, Q5_1,
    Q5K, Q6K, Q8_0, Shape, Simple, Sixteens, SixteensMinimum, SixteensWide, Tq1_0, Tq2_0, Wide,
};
use vector::{Avx2, Avx512, Output, Vector};

/// A product of some panels with all tokens, lengths checked.
struct Product<'a> {
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
    x: &'a Quantised,
    class: usize,
    tokens: usize,
    epilogue: &'a Epilogue<'a>,
    out: &'a Parts<'a, f32>,
    stride: usize,
    origin: usize,
}

/// Computes the rows of `range` (panels) for `tokens` tokens: row `r` of token `t` goes to
/// `out[t * stride + r - origin]`. The matrix is packed, or not and met by tiles; the instruction set
/// is AVX2 or better, and offered.
#[allow(clippy::too_many_arguments, reason = "one strided store, described in full")]
pub(crate) fn compute(
    isa: Isa,
    matrix: &Matrix,
    kind: IntKind,
    range: std::ops::Range<usize>,
    x: &Quantised,
    tokens: usize,
    epilogue: &Epilogue<'_>,
    out: &Parts<'_, f32>,
    stride: usize,
    origin: usize,
) {
    let (rows, cols) = (matrix.rows(), matrix.cols());
    let (first_row, end_row) = (range.start * ROWS, (range.end * ROWS).min(rows));
    if tokens == 0 || first_row >= end_row {
        return;
    }
    let layout = matrix.panels().map(|panels| panels.layout);
    let blocks = layout.map_or(x.blocks, |layout| layout.supers(cols) * layout.blocks);
    let panel_bytes = layout.map_or(0, |layout| layout.panel_bytes(cols));
    let bytes = range.start * panel_bytes..range.end * panel_bytes;
    let weights = match matrix.panels() {
        Some(panels) => panels.as_slice().get(bytes).unwrap_or(&[]),
        None => &[],
    };
    // The kernels read activations by pointer: all of these must hold the tiles they walk.
    let cells = tokens.div_ceil(x.width.max(1)) * x.blocks * x.width;
    let twice = if kind.sixteens { 2 } else { 1 };
    let fits = x.width > 0
        && blocks == x.blocks
        && x.blocks * 32 >= cols
        && weights.len() == range.len() * panel_bytes
        && x.codes.as_slice().len() >= cells * 32
        && x.scale.as_slice().len() >= cells
        && x.magic.as_slice().len() >= cells
        && x.sums(kind).len() >= if kind.has_min { cells * twice } else { 0 }
        && x.start.get(kind.class).is_some_and(|start| start.as_slice().len() >= cells * twice);
    assert!(fits, "activations of another shape than the weights");
    // The last row of the last token is the furthest store.
    let _ = out.pointer((tokens - 1) * stride + end_row - origin);
    let product = Product {
        matrix,
        weights,
        panel_bytes,
        header_bytes: layout.map_or(0, |layout| layout.header_bytes(cols)),
        header: layout.map_or(0, |layout| layout.header),
        supers: layout.map_or(0, |layout| layout.supers(cols)),
        first_row,
        end_row,
        x,
        class: kind.class,
        tokens,
        epilogue,
        out,
        stride,
        origin,
    };
    // SAFETY: the caller vouches for the instruction set; all ranges were checked above.
    unsafe {
        match isa {
            Isa::Avx512 => avx512(&product, layout),
            _ => avx2(&product, layout),
        }
    }
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
                        let Some(kind) = p.matrix.quant().int_kind() else { return };
                        match (kind.sixteens, kind.has_min, kind.offset == 128) {
                            (false, false, false) => $rows::<Simple>(p, scratch),
                            (false, true, _) => $rows::<Minimum>(p, scratch),
                            (false, false, true) => $rows::<Wide>(p, scratch),
                            (true, false, false) => $rows::<Sixteens>(p, scratch),
                            (true, true, _) => $rows::<SixteensMinimum>(p, scratch),
                            (true, false, true) => $rows::<SixteensWide>(p, scratch),
                        }
                    });
                };
                match layout.quant {
                    Quant::Q4_0 => either::<Q4_0>(p),
                    Quant::Q4_1 => either::<Q4_1>(p),
                    Quant::Q5_0 => either::<Q5_0>(p),
                    Quant::Q5_1 => either::<Q5_1>(p),
                    Quant::Q8_0 => either::<Q8_0>(p),
                    Quant::IQ4_NL => either::<Iq4Nl>(p),
                    Quant::MXFP4 => either::<Mxfp4>(p),
                    Quant::NVFP4 => either::<Nvfp4>(p),
                    Quant::Q1_0 => either::<Q1_0>(p),
                    Quant::Q2_0 => either::<Q2_0>(p),
                    Quant::Q2_K => either::<Q2K>(p),
                    Quant::Q3_K => either::<Q3K>(p),
                    Quant::Q4_K => either::<Q4K>(p),
                    Quant::Q5_K => either::<Q5K>(p),
                    Quant::Q6_K => either::<Q6K>(p),
                    Quant::IQ4_XS => either::<Iq4Xs>(p),
                    Quant::TQ1_0 => either::<Tq1_0>(p),
                    Quant::TQ2_0 => either::<Tq2_0>(p),
                    _ => {}
                }
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
            to: p.out.pointer((token + t) * p.stride + row - p.origin),
            scale: p.epilogue.scale,
            bias: p.epilogue.bias.map_or(std::ptr::null(), |bias| bias.as_ptr().wrapping_add(row)),
            accumulate: p.epilogue.accumulate,
        };
        // SAFETY: lanes below `end_row` only; the bias has a value per row.
        unsafe { V::put(sum, lanes, out) };
    }
}
