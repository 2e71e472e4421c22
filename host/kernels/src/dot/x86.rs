//! The integer dot with AVX2, and with the 8-bit multiply-add of AVX-512 VNNI: eight rows at a time,
//! straight from their bytes.
//!
//! Per 32 values, every row's 8 partial integer sums are added across the rows, so that a vector has
//! one exact product of each row; what follows is the order of the plain code and of the packed
//! kernels. A row's product is the same to the last bit whoever computes it: a model's answer does not
//! change when its weights move from the file to a package.
#![allow(unsafe_code, reason = "intrinsics on blocks whose length is checked")]
#![allow(
    clippy::indexing_slicing,
    clippy::needless_range_loop,
    reason = "a row has at most as many values as its activations; several arrays by one index"
)]

use std::arch::x86_64::*;

use super::Token;
use crate::act::FEW;
use crate::codec::scale_min;
use crate::quant::Quant;

/// Rows at a time.
pub(super) const ROWS: usize = 8;

/// The types whose rows are read as they are.
pub(super) const DIRECT: [Quant; 8] = [
    Quant::Q4_0,
    Quant::Q4_1,
    Quant::Q5_0,
    Quant::Q5_1,
    Quant::Q8_0,
    Quant::Q4_K,
    Quant::Q5_K,
    Quant::Q6_K,
];

macro_rules! rows {
    ($name:ident, $vnni:literal, $features:literal) => {
        /// The dots of rows of a [`DIRECT`] type with tokens: a lane for each row, token by token.
        ///
        /// # Safety
        /// The processor has the features. The rows are whole blocks of `quant`, equally long and no
        /// longer than the tokens, of which there are at most [`FEW`].
        #[target_feature(enable = $features)]
        pub(super) unsafe fn $name(
            quant: Quant,
            rows: &[&[u8]; ROWS],
            tokens: &[Token<'_>],
            out: &mut [[f32; ROWS]; FEW],
        ) {
            // SAFETY: the caller's promises, passed on.
            unsafe {
                match quant {
                    Quant::Q4_0 => dots::<$vnni, 0>(rows, tokens, out),
                    Quant::Q4_1 => dots::<$vnni, 1>(rows, tokens, out),
                    Quant::Q5_0 => dots::<$vnni, 2>(rows, tokens, out),
                    Quant::Q5_1 => dots::<$vnni, 3>(rows, tokens, out),
                    Quant::Q8_0 => dots::<$vnni, 4>(rows, tokens, out),
                    Quant::Q4_K => dots::<$vnni, 5>(rows, tokens, out),
                    Quant::Q5_K => dots::<$vnni, 6>(rows, tokens, out),
                    Quant::Q6_K => dots::<$vnni, 7>(rows, tokens, out),
                    _ => {}
                }
            }
        }
    };
}

rows!(avx2, false, "avx2,fma,f16c");
rows!(avx512, true, "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni");

/// What a block of 256 values says of its eight or sixteen parts, for all rows.
struct Parts {
    scales: [[i8; ROWS]; 16],
    minima: [[i8; ROWS]; 8],
}

impl Parts {
    #[inline(always)]
    fn of(quant: Quant, blocks: &[&[u8]; ROWS]) -> Parts {
        let mut parts = Parts { scales: [[0; ROWS]; 16], minima: [[0; ROWS]; 8] };
        for (r, block) in blocks.iter().enumerate() {
            match quant {
                Quant::Q4_K | Quant::Q5_K => {
                    for j in 0..8 {
                        let (scale, minimum) = scale_min(&block[4..16], j);
                        // Six bits each.
                        (parts.scales[j][r], parts.minima[j][r]) = (scale as i8, minimum as i8);
                    }
                }
                Quant::Q6_K => {
                    for (g, scales) in parts.scales.iter_mut().enumerate() {
                        scales[r] = block[192 + g] as i8;
                    }
                }
                _ => {}
            }
        }
        parts
    }
}

#[inline(always)]
unsafe fn dots<const VNNI: bool, const TYPE: usize>(
    rows: &[&[u8]; ROWS],
    tokens: &[Token<'_>],
    out: &mut [[f32; ROWS]; FEW],
) {
    let quant = const { DIRECT[TYPE] };
    let Some(kind) = DIRECT[TYPE].int_kind() else { return };
    let (size, per_block) = (quant.block_bytes(), quant.block_len() / 32);
    let count = rows[0].len() / size;
    let blocks = count * per_block;
    let fits = |token: &Token<'_>| {
        token.codes.len() >= blocks * 32
            && token.scale.len() >= blocks
            && token.scaled_sum.len() >= blocks
            && token.sums.len() >= blocks * 2
    };
    assert!(tokens.len() <= FEW && tokens.iter().all(fits), "activations shorter than the rows");
    assert!(rows.iter().all(|row| row.len() >= count * size), "rows of several lengths");
    // SAFETY: the instruction set is the caller's promise; every row has `count` blocks, and the
    // activations hold `blocks` blocks. Loops, not closures: those are compiled for no instruction set.
    unsafe {
        let mut totals = [_mm256_setzero_ps(); FEW];
        for b in 0..count {
            // Of a known length, so that nothing in them is checked again.
            let mut block: [&[u8]; ROWS] = [&[]; ROWS];
            for r in 0..ROWS {
                let at = rows[r].as_ptr().add(b * size);
                block[r] = std::slice::from_raw_parts(at, size);
                // Eight streams are more than a Zen 5 follows by itself: asking for the same place of
                // the next eight rows took Q5_0 from 5.4 to 16 GB/s, Q8_0 from 9 to 28. A prefetch
                // never faults.
                let next = at.wrapping_add(ROWS * rows[r].len());
                for line in 0..size.div_ceil(64) {
                    _mm_prefetch::<_MM_HINT_T0>(next.wrapping_add(line * 64).cast());
                }
            }
            let d = halves(&block, if quant == Quant::Q6_K { 208 } else { 0 });
            let m = if kind.has_min { halves(&block, 2) } else { _mm256_setzero_ps() };
            let parts = Parts::of(quant, &block);
            for j in 0..per_block {
                let mut w = [_mm256_setzero_si256(); ROWS];
                for r in 0..ROWS {
                    w[r] = unpack::<VNNI>(quant, block[r], j);
                }
                let (mut first, mut second, mut minimum) = (d, d, m);
                match quant {
                    Quant::Q4_K | Quant::Q5_K => {
                        first = _mm256_mul_ps(d, eight(&parts.scales[j]));
                        let negative = _mm256_xor_ps(m, _mm256_set1_ps(-0.0));
                        minimum = _mm256_mul_ps(negative, eight(&parts.minima[j]));
                    }
                    Quant::Q6_K => {
                        first = _mm256_mul_ps(d, eight(&parts.scales[2 * j]));
                        second = _mm256_mul_ps(d, eight(&parts.scales[2 * j + 1]));
                    }
                    _ => {}
                }
                let at = b * per_block + j;
                for t in 0..tokens.len() {
                    let token = &tokens[t];
                    let x = _mm256_loadu_si256(token.codes.as_ptr().add(at * 32).cast());
                    let mut dots = [_mm256_setzero_si256(); ROWS];
                    for r in 0..ROWS {
                        dots[r] = match quant {
                            // Without VNNI the products of full bytes would not fit: the sign moves
                            // to the activations, which never are -128.
                            Quant::Q8_0 if !VNNI => {
                                multiply::<VNNI>(_mm256_abs_epi8(w[r]), _mm256_sign_epi8(x, w[r]))
                            }
                            _ => multiply::<VNNI>(w[r], x),
                        };
                    }
                    let (low, high) = across(&dots);
                    // Offsets are paid by the sums.
                    let offset = if quant == Quant::Q8_0 && !VNNI { 0 } else { kind.offset };
                    let paid = [offset * token.sums[2 * at], offset * token.sums[2 * at + 1]];
                    let scale = _mm256_set1_ps(token.scale[at]);
                    let mut total = totals[t];
                    if kind.sixteens {
                        let low = _mm256_sub_epi32(low, _mm256_set1_epi32(paid[0]));
                        let high = _mm256_sub_epi32(high, _mm256_set1_epi32(paid[1]));
                        let low = _mm256_mul_ps(_mm256_cvtepi32_ps(low), scale);
                        let high = _mm256_mul_ps(_mm256_cvtepi32_ps(high), scale);
                        total = _mm256_fmadd_ps(low, first, total);
                        total = _mm256_fmadd_ps(high, second, total);
                    } else {
                        let both = _mm256_add_epi32(low, high);
                        let both = _mm256_sub_epi32(both, _mm256_set1_epi32(paid[0] + paid[1]));
                        let both = _mm256_mul_ps(_mm256_cvtepi32_ps(both), scale);
                        total = _mm256_fmadd_ps(both, first, total);
                        if kind.has_min {
                            let sum = _mm256_set1_ps(token.scaled_sum[at]);
                            total = _mm256_fmadd_ps(minimum, sum, total);
                        }
                    }
                    totals[t] = total;
                }
            }
        }
        for t in 0..tokens.len() {
            _mm256_storeu_ps(out[t].as_mut_ptr(), totals[t]);
        }
    }
}

/// Block `j` of 32 codes.
#[inline(always)]
unsafe fn unpack<const VNNI: bool>(quant: Quant, block: &[u8], j: usize) -> __m256i {
    // SAFETY: the caller's promises; offsets are those of the block, and slices check them.
    unsafe {
        match quant {
            Quant::Q4_0 => nibbles(block, 2),
            Quant::Q4_1 => nibbles(block, 4),
            Quant::Q5_0 => fifth(nibbles(block, 6), block, 2),
            Quant::Q5_1 => fifth(nibbles(block, 8), block, 4),
            Quant::Q8_0 if VNNI => _mm256_xor_si256(load(block, 2), _mm256_set1_epi8(-128)),
            Quant::Q8_0 => load(block, 2),
            Quant::Q4_K => k_nibbles(block, 16, j),
            Quant::Q5_K => {
                // Bit j of every byte to bit 4.
                let bits = _mm256_srl_epi16(load(block, 16), _mm_cvtsi32_si128(j as i32));
                let bit = _mm256_and_si256(bits, _mm256_set1_epi8(1));
                _mm256_or_si256(k_nibbles(block, 48, j), _mm256_slli_epi16::<4>(bit))
            }
            Quant::Q6_K => {
                let (part, quarter) = (j / 4, j % 4);
                let low = load(block, part * 64 + quarter % 2 * 32);
                let low = if quarter < 2 { low } else { _mm256_srli_epi16::<4>(low) };
                let count = _mm_cvtsi32_si128(2 * quarter as i32);
                let high = _mm256_srl_epi16(load(block, 128 + part * 32), count);
                let high = _mm256_and_si256(high, _mm256_set1_epi8(3));
                let low = _mm256_and_si256(low, _mm256_set1_epi8(15));
                _mm256_or_si256(low, _mm256_slli_epi16::<4>(high))
            }
            _ => _mm256_setzero_si256(),
        }
    }
}

/// Codes of part `j` of a block of 256 nibbles that begin at `base`.
#[inline(always)]
unsafe fn k_nibbles(block: &[u8], base: usize, j: usize) -> __m256i {
    // SAFETY: the slice checks that the bytes are there.
    unsafe {
        let bytes = load(block, base + j / 2 * 32);
        let bytes = if j.is_multiple_of(2) { bytes } else { _mm256_srli_epi16::<4>(bytes) };
        _mm256_and_si256(bytes, _mm256_set1_epi8(15))
    }
}

/// The sums of the eight rows' first and second halves, a row in each lane.
#[inline(always)]
unsafe fn across(d: &[__m256i; ROWS]) -> (__m256i, __m256i) {
    // SAFETY: no memory; the instruction set is the caller's promise.
    unsafe {
        let mut twos = [_mm256_setzero_si256(); 4];
        for i in 0..4 {
            let (a, b) = (d[2 * i], d[2 * i + 1]);
            twos[i] = _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
        }
        let mut fours = [_mm256_setzero_si256(); 2];
        for i in 0..2 {
            let (a, b) = (twos[2 * i], twos[2 * i + 1]);
            fours[i] = _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
        }
        (
            _mm256_permute2x128_si256::<0x20>(fours[0], fours[1]),
            _mm256_permute2x128_si256::<0x31>(fours[0], fours[1]),
        )
    }
}

/// A number of each row.
#[inline(always)]
unsafe fn eight(numbers: &[i8; ROWS]) -> __m256 {
    // SAFETY: eight bytes are read of eight.
    unsafe { _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(numbers.as_ptr().cast()))) }
}

/// The half float at `at` of each row's block.
#[inline(always)]
unsafe fn halves(blocks: &[&[u8]; ROWS], at: usize) -> __m256 {
    let mut bits = [0; ROWS];
    for r in 0..ROWS {
        bits[r] = crate::codec::u16_at(blocks[r], at);
    }
    // SAFETY: sixteen bytes are read of sixteen.
    unsafe { _mm256_cvtph_ps(_mm_loadu_si128(bits.as_ptr().cast())) }
}

/// 32 unsigned codes times 32 signed ones, as 8 sums of 4.
#[inline(always)]
unsafe fn multiply<const VNNI: bool>(w: __m256i, x: __m256i) -> __m256i {
    // SAFETY: no memory; the instruction set is the caller's promise.
    unsafe {
        if VNNI {
            _mm256_dpbusd_epi32(_mm256_setzero_si256(), w, x)
        } else {
            // Codes are at most 128, so pairs stay below 2^15.
            _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), _mm256_set1_epi16(1))
        }
    }
}

#[inline(always)]
unsafe fn load(block: &[u8], at: usize) -> __m256i {
    // SAFETY: the slice checks that 32 bytes are there.
    unsafe { _mm256_loadu_si256(block[at..at + 32].as_ptr().cast()) }
}

/// 16 bytes of nibbles as 32 codes.
#[inline(always)]
unsafe fn nibbles(block: &[u8], at: usize) -> __m256i {
    // SAFETY: the slice checks that 16 bytes are there.
    unsafe {
        let bytes = _mm_loadu_si128(block[at..at + 16].as_ptr().cast());
        let both = _mm256_set_m128i(_mm_srli_epi16::<4>(bytes), bytes);
        _mm256_and_si256(both, _mm256_set1_epi8(15))
    }
}

/// Adds the fifth bits, 32 of them at `at`.
#[inline(always)]
unsafe fn fifth(w: __m256i, block: &[u8], at: usize) -> __m256i {
    let bits = crate::codec::u32_at(block, at) as i32;
    // SAFETY: no memory; the instruction set is the caller's promise.
    unsafe {
        // Byte i of the vector gets byte i / 8 of the bits, and keeps bit i % 8.
        let spread = _mm256_setr_epi64x(
            0,
            0x0101_0101_0101_0101,
            0x0202_0202_0202_0202,
            0x0303_0303_0303_0303,
        );
        let bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(bits), spread);
        let masks = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
        let set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, masks), masks);
        _mm256_or_si256(w, _mm256_and_si256(set, _mm256_set1_epi8(16)))
    }
}
