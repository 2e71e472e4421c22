//! The integer dot in plain code: the meaning of every faster one.
#![allow(clippy::indexing_slicing, reason = "a row has at most as many values as its activations")]

use super::Token;
use crate::codec::codes::Codes;
use crate::quant::Quant;

/// Multiplies codes with codes, exactly, and scales block by block in order.
pub(crate) fn int_row(quant: Quant, row: &[u8], token: Token<'_>) -> f32 {
    let Some(kind) = quant.int_kind() else { return f32::NAN };
    let per_block = quant.block_len() / 32;
    let mut total = 0.0f32;
    for (b, block) in row.chunks_exact(quant.block_bytes()).enumerate() {
        let codes = Codes::split(quant, block);
        for j in 0..per_block {
            let at = b * per_block + j;
            let w = &codes.q[j * 32..j * 32 + 32];
            let x = &token.codes[at * 32..at * 32 + 32];
            let scale = token.scale[at];
            if kind.sixteens {
                for g in 0..2 {
                    let sum =
                        product(&w[g * 16..g * 16 + 16], &x[g * 16..g * 16 + 16], kind.offset);
                    let scaled = sum as f32 * scale;
                    total = scaled.mul_add(codes.scale(quant, 2 * j + g), total);
                }
            } else {
                let scaled = product(w, x, kind.offset) as f32 * scale;
                total = scaled.mul_add(codes.scale(quant, 2 * j), total);
                if kind.has_min {
                    total = codes.min(quant, j).mul_add(token.scaled_sum[at], total);
                }
            }
        }
    }
    total
}

fn product(w: &[u8], x: &[i8], offset: i32) -> i32 {
    w.iter().zip(x).map(|(&w, &x)| (i32::from(w) - offset) * i32::from(x)).sum()
}
