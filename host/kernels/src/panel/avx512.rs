//! AVX-512 VNNI products with packed panels.
//!
//! Every path computes the same thing in the same order, so one token's result does not depend on
//! how many others are computed with it: per 32 (or 16) columns the exact integer product, scaled
//! by the activations' scale with one rounding, then one fused multiply-add with the weights'
//! scale, and one with the minimum where there is one.
#![allow(unsafe_code, reason = "intrinsics on pointers whose ranges are checked on entry")]
#![allow(
    clippy::indexing_slicing,
    clippy::needless_range_loop,
    reason = "register blocks: constant bounds, unrolled, several arrays by one index"
)]

mod batch;
mod format;
mod small;

use crate::act::Quantised;
use crate::linear::Epilogue;
use crate::memory::Parts;
use crate::quant::Quant;

use super::layout::{Panels, ROWS};
use format::{Format, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};

/// A product of some panels with all tokens, lengths checked.
pub(crate) struct Product<'a> {
    /// First byte of the first panel.
    weights: &'a [u8],
    panel_bytes: usize,
    header_bytes: usize,
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
/// `out[t * stride + r - origin]`. The processor must have AVX-512 VNNI.
#[allow(clippy::too_many_arguments, reason = "one strided store, described in full")]
pub(crate) fn compute(
    panels: &Panels,
    rows: usize,
    cols: usize,
    range: std::ops::Range<usize>,
    x: &Quantised,
    tokens: usize,
    epilogue: &Epilogue<'_>,
    out: &Parts<'_, f32>,
    stride: usize,
    origin: usize,
) {
    let layout = panels.layout;
    let Some(kind) = layout.quant.int_kind() else { return };
    let panel_bytes = layout.panel_bytes(cols);
    let supers = layout.supers(cols);
    let bytes = range.start * panel_bytes..range.end * panel_bytes;
    let Some(weights) = panels.as_slice().get(bytes) else { return };
    let (first_row, end_row) = (range.start * ROWS, (range.end * ROWS).min(rows));
    if tokens == 0 || first_row >= end_row {
        return;
    }
    // The kernels read activations by pointer: all of these must hold the tiles they walk.
    let cells = tokens.div_ceil(x.width.max(1)) * x.blocks * x.width;
    let starts = cells * if kind.sixteens { 2 } else { 1 };
    let fits = x.width > 0
        && supers * layout.blocks <= x.blocks.next_multiple_of(layout.blocks)
        && x.blocks * 32 >= cols
        && x.codes.as_slice().len() >= cells * 32
        && x.scale.as_slice().len() >= cells
        && x.magic.as_slice().len() >= cells
        && x.scaled_sum.as_slice().len() >= cells
        && x.start.get(kind.class).is_some_and(|start| start.as_slice().len() >= starts)
        && supers * layout.blocks == x.blocks;
    assert!(fits, "activations of another shape than the weights");
    // The last row of the last token is the furthest store.
    let _ = out.pointer((tokens - 1) * stride + end_row - origin);
    let product = Product {
        weights,
        panel_bytes,
        header_bytes: layout.header_bytes(cols),
        supers,
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
        match layout.quant {
            Quant::Q4_0 => run::<Q4_0>(&product),
            Quant::Q4_1 => run::<Q4_1>(&product),
            Quant::Q5_0 => run::<Q5_0>(&product),
            Quant::Q5_1 => run::<Q5_1>(&product),
            Quant::Q8_0 => run::<Q8_0>(&product),
            Quant::Q4_K => run::<Q4K>(&product),
            Quant::Q5_K => run::<Q5K>(&product),
            Quant::Q6_K => run::<Q6K>(&product),
            _ => {}
        }
    }
}

/// # Safety
/// The processor has AVX-512 VNNI, and the product's ranges hold.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]
unsafe fn run<F: Format>(p: &Product<'_>) {
    // SAFETY: the caller's promises, passed on.
    unsafe {
        match p.x.width {
            1 if p.tokens == 1 => small::one::<F>(p),
            // Several tokens in tiles of one do not occur; they would be computed one by one.
            2 => small::several::<F, 2>(p),
            3 => small::several::<F, 3>(p),
            4 => small::several::<F, 4>(p),
            5 => small::several::<F, 5>(p),
            6 if p.tokens <= 6 => small::several::<F, 6>(p),
            6 => batch::run::<F>(p),
            7 => small::several::<F, 7>(p),
            8 => small::several::<F, 8>(p),
            _ => {}
        }
    }
}
