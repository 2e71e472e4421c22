//! The integer dot in plain code, compiled for every instruction set: the meaning of every faster
//! one.
#![allow(clippy::indexing_slicing, reason = "a row has at most as many values as its activations")]

use super::{RowLevels, Token};
use crate::codec::codes::IntKind;
use crate::ops::multiversion;

multiversion! {
    /// Multiplies levels with codes, exactly, and scales block by block in order.
    pub(super) fn levels_row / levels_row_on =
        body(kind: IntKind, row: &RowLevels, token: Token<'_>) -> f32
}

#[inline(always)]
fn body<const FMA: bool>(kind: IntKind, row: &RowLevels, token: Token<'_>) -> f32 {
    let mut total = 0.0f32;
    let blocks = row.q.as_chunks::<32>().0.iter().zip(token.codes.as_chunks::<32>().0);
    for (at, (w, x)) in blocks.enumerate() {
        let scale = token.scale[at];
        let (first, second) = (2 * at, 2 * at + 1);
        // Offsets are paid by the sums: a shorter loop.
        let low = product(&w[..16], &x[..16]) - kind.offset * token.sums[first];
        let high = product(&w[16..], &x[16..]) - kind.offset * token.sums[second];
        if kind.sixteens {
            total = (low as f32 * scale).mul_add(row.d[first], total);
            total = (high as f32 * scale).mul_add(row.d[second], total);
            if kind.has_min {
                let half = |g: usize| scale * token.sums[g] as f32;
                total = row.m[first].mul_add(half(first), total);
                total = row.m[second].mul_add(half(second), total);
            }
        } else {
            total = ((low + high) as f32 * scale).mul_add(row.d[first], total);
            if kind.has_min {
                total = row.m[first].mul_add(token.scaled_sum[at], total);
            }
        }
    }
    total
}

#[inline(always)]
fn product(w: &[u8], x: &[i8]) -> i32 {
    w.iter().zip(x).map(|(&w, &x)| i32::from(w) * i32::from(x)).sum()
}
