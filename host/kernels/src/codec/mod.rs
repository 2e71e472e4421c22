//! Codecs: what the bytes of each tensor type mean, one block at a time, in plain scalar code.
//!
//! Everything faster in this crate is tested against these. Layouts are ggml's (MIT), restated.

pub(crate) mod codes;
pub(crate) mod grids;
mod iq;
mod k;
mod legacy;
pub(crate) mod points;
mod small;

use crate::error::{KernelError, expect_len};
use crate::quant::Quant;

pub(crate) use iq::iq1_m_scale;
pub(crate) use k::scale_min;
pub(crate) use small::trit_code;

/// Half float to float, independent of the processor's denormal mode.
#[inline(always)]
pub(crate) fn half_to_f32(h: u16) -> f32 {
    let sign = (u32::from(h) & 0x8000) << 16;
    let magnitude = u32::from(h) & 0x7fff;
    let bits = if magnitude >= 0x7c00 {
        0x7f80_0000 | (magnitude << 13)
    } else if magnitude >= 0x0400 {
        (magnitude << 13) + (112 << 23)
    } else {
        // A subnormal: put it on 2^-14 and subtract that again, so that no f32 denormal appears.
        let shifted = f32::from_bits(0x3880_0000 | (magnitude << 13));
        (shifted - f32::from_bits(0x3880_0000)).to_bits()
    };
    f32::from_bits(sign | bits)
}

/// Float to half float, rounding to nearest even.
#[inline(always)]
pub(crate) fn f32_to_half(x: f32) -> u16 {
    half::f16::from_f32_const(x).to_bits()
}

/// Little-endian u16 at a byte offset of a block.
#[inline(always)]
pub(crate) fn u16_at(block: &[u8], at: usize) -> u16 {
    match block.get(at..at + 2) {
        Some(&[a, b]) => u16::from_le_bytes([a, b]),
        _ => 0,
    }
}

/// Half float at a byte offset of a block.
#[inline(always)]
pub(crate) fn half_at(block: &[u8], at: usize) -> f32 {
    half_to_f32(u16_at(block, at))
}

/// Little-endian u32 at a byte offset of a block.
#[inline(always)]
pub(crate) fn u32_at(block: &[u8], at: usize) -> u32 {
    match block.get(at..at + 4) {
        Some(&[a, b, c, d]) => u32::from_le_bytes([a, b, c, d]),
        _ => 0,
    }
}

/// A codec of one block: bytes to values.
type DecodeBlock = fn(&[u8], &mut [f32]);
/// A codec of one block: values to bytes.
type EncodeBlock = fn(&[f32], &mut [u8]);

const fn decoder(quant: Quant) -> DecodeBlock {
    match quant {
        Quant::F32 => small::decode_f32,
        Quant::F16 => small::decode_f16,
        Quant::BF16 => small::decode_bf16,
        Quant::F64 => small::decode_f64,
        Quant::I8 => small::decode_i8,
        Quant::I16 => small::decode_i16,
        Quant::I32 => small::decode_i32,
        Quant::I64 => small::decode_i64,
        Quant::Q4_0 => legacy::decode_q4_0,
        Quant::Q4_1 => legacy::decode_q4_1,
        Quant::Q5_0 => legacy::decode_q5_0,
        Quant::Q5_1 => legacy::decode_q5_1,
        Quant::Q8_0 => legacy::decode_q8_0,
        Quant::Q8_1 => legacy::decode_q8_1,
        Quant::Q2_K => k::decode_q2_k,
        Quant::Q3_K => k::decode_q3_k,
        Quant::Q4_K => k::decode_q4_k,
        Quant::Q5_K => k::decode_q5_k,
        Quant::Q6_K => k::decode_q6_k,
        Quant::Q8_K => k::decode_q8_k,
        Quant::IQ2_XXS => iq::decode_iq2_xxs,
        Quant::IQ2_XS => iq::decode_iq2_xs,
        Quant::IQ2_S => iq::decode_iq2_s,
        Quant::IQ3_XXS => iq::decode_iq3_xxs,
        Quant::IQ3_S => iq::decode_iq3_s,
        Quant::IQ1_S => iq::decode_iq1_s,
        Quant::IQ1_M => iq::decode_iq1_m,
        Quant::IQ4_NL => iq::decode_iq4_nl,
        Quant::IQ4_XS => iq::decode_iq4_xs,
        Quant::TQ1_0 => small::decode_tq1_0,
        Quant::TQ2_0 => small::decode_tq2_0,
        Quant::MXFP4 => small::decode_mxfp4,
        Quant::NVFP4 => small::decode_nvfp4,
        Quant::Q1_0 => small::decode_q1_0,
        Quant::Q2_0 => small::decode_q2_0,
    }
}

const fn encoder(quant: Quant) -> Option<EncodeBlock> {
    Some(match quant {
        Quant::F32 => small::encode_f32,
        Quant::F16 => small::encode_f16,
        Quant::BF16 => small::encode_bf16,
        Quant::Q4_0 => legacy::encode_q4_0,
        Quant::Q4_1 => legacy::encode_q4_1,
        Quant::Q5_0 => legacy::encode_q5_0,
        Quant::Q5_1 => legacy::encode_q5_1,
        Quant::Q8_0 => legacy::encode_q8_0,
        Quant::Q4_K => k::encode_q4_k,
        Quant::Q5_K => k::encode_q5_k,
        Quant::Q6_K => k::encode_q6_k,
        _ => return None,
    })
}

/// Decodes one row (or any run of whole blocks) of `dst.len()` values.
///
/// NVFP4's per-tensor scale is not in the row; the caller multiplies it in.
///
/// # Errors
/// `dst` is not a multiple of the block, or `src` is not exactly its bytes.
pub fn decode_row(quant: Quant, src: &[u8], dst: &mut [f32]) -> Result<(), KernelError> {
    expect_len("bytes of the row", quant.row_bytes(dst.len())?, src.len())?;
    decode_blocks(quant, src, dst);
    Ok(())
}

/// [`decode_row`] for lengths already checked.
#[inline]
pub(crate) fn decode_blocks(quant: Quant, src: &[u8], dst: &mut [f32]) {
    let decode = decoder(quant);
    let (len, bytes) = (quant.block_len(), quant.block_bytes());
    if len == 1 {
        // Types without blocks decode a whole run in one call.
        decode(src, dst);
        return;
    }
    for (block, values) in src.chunks_exact(bytes).zip(dst.chunks_exact_mut(len)) {
        decode(block, values);
    }
}

/// The first value of a row that is no finite number, or of the first block whose scale is none.
pub(crate) fn first_nonfinite(quant: Quant, row: &[u8]) -> Option<usize> {
    let infinite = |h: u16| h & 0x7c00 == 0x7c00;
    let bad = |block: &&[u8]| match quant {
        Quant::F16 => infinite(u16_at(block, 0)),
        Quant::BF16 => u16_at(block, 0) & 0x7f80 == 0x7f80,
        Quant::F32 => !f32::from_bits(u32_at(block, 0)).is_finite(),
        Quant::F64 => {
            block.as_array().is_some_and(|b| !(f64::from_le_bytes(*b) as f32).is_finite())
        }
        // A scale that is finite and of which its codes' multiples are not counts as none.
        Quant::Q8_K => !(f32::from_bits(u32_at(block, 0)) * 128.0).is_finite(),
        Quant::MXFP4 => block.first().is_some_and(|&exponent| exponent >= 253),
        // The byte that is no number is read as zero.
        Quant::NVFP4 => false,
        Quant::IQ1_M => !iq1_m_scale(block).is_finite(),
        quant => quant.half_fields().iter().any(|at| infinite(u16_at(block, *at))),
    };
    let at = row.chunks_exact(quant.block_bytes()).position(|block| bad(&block))?;
    Some(at * quant.block_len())
}

/// Encodes one block of a type that has an encoder; others are left alone.
pub(crate) fn encode_block(quant: Quant, src: &[f32], dst: &mut [u8]) {
    if let Some(encode) = encoder(quant) {
        encode(src, dst);
    }
}

/// Encodes one row by plain rounding to nearest. Not every type has an encoder.
///
/// # Errors
/// The type has no encoder, `src` is not a multiple of the block, or `dst` is not its bytes.
pub fn encode_row(quant: Quant, src: &[f32], dst: &mut [u8]) -> Result<(), KernelError> {
    let Some(encode) = encoder(quant) else {
        return Err(KernelError::Unsupported { quant: quant.name(), operation: "encode" });
    };
    expect_len("bytes of the row", quant.row_bytes(src.len())?, dst.len())?;
    let (len, bytes) = (quant.block_len(), quant.block_bytes());
    if len == 1 {
        encode(src, dst);
        return Ok(());
    }
    for (values, block) in src.chunks_exact(len).zip(dst.chunks_exact_mut(bytes)) {
        encode(values, block);
    }
    Ok(())
}
