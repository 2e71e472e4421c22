//! How each packed type's bytes become code vectors and scales in registers.

use std::arch::x86_64::*;

/// The scales of a 32-value block for 16 rows: what the first product is multiplied with, and
/// either the minimum or what the second product (of the last 16 values) is multiplied with.
pub(super) type Scales = (__m512, __m512);

/// A packed type.
///
/// All functions are to be inlined into code compiled for AVX-512 (F, BW, DQ, VL, VBMI, VNNI).
pub(super) trait Format {
    /// 32-value blocks per super-block.
    const BLOCKS: usize;
    /// Bytes per super-block.
    const BYTES: usize;
    /// Whether there is a minimum.
    const MIN: bool = false;
    /// Whether a scale covers 16 values.
    const SIXTEENS: bool = false;
    /// What a super-block's blocks share.
    type Head: Copy;

    /// # Safety
    /// `data` is a super-block; `head` its 32 bytes in front of the panel, if the type has them.
    unsafe fn head(data: *const u8, head: *const u8) -> Self::Head;

    /// The 8 unit vectors of block `j`.
    ///
    /// # Safety
    /// `data` is a super-block, `j` is below `BLOCKS`.
    unsafe fn codes(data: *const u8, j: usize) -> [__m512i; 8];

    /// The scales of block `j`.
    ///
    /// # Safety
    /// As for `codes`.
    unsafe fn scales(head: Self::Head, data: *const u8, j: usize) -> Scales;
}

/// # Safety
/// `p` is readable for 64 bytes after `64 * i` and aligned to 64.
#[inline(always)]
unsafe fn vector(p: *const u8, i: usize) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_load_si512(p.add(i * 64).cast()) }
}

/// # Safety
/// `p` is readable for 32 bytes.
#[inline(always)]
unsafe fn halves(p: *const u8) -> __m512 {
    // SAFETY: the caller's promise.
    unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) }
}

/// Units from 4 vectors of nibbles.
///
/// # Safety
/// `p` is readable for 256 bytes and aligned to 64.
#[inline(always)]
unsafe fn nibbles(p: *const u8) -> [__m512i; 8] {
    // SAFETY: the caller's promise.
    unsafe {
        let mask = _mm512_set1_epi8(15);
        let (a, b, c, d) = (vector(p, 0), vector(p, 1), vector(p, 2), vector(p, 3));
        [
            _mm512_and_si512(a, mask),
            _mm512_and_si512(b, mask),
            _mm512_and_si512(c, mask),
            _mm512_and_si512(d, mask),
            _mm512_and_si512(_mm512_srli_epi16::<4>(a), mask),
            _mm512_and_si512(_mm512_srli_epi16::<4>(b), mask),
            _mm512_and_si512(_mm512_srli_epi16::<4>(c), mask),
            _mm512_and_si512(_mm512_srli_epi16::<4>(d), mask),
        ]
    }
}

/// `a | (b & mask)`.
#[inline(always)]
unsafe fn merge(a: __m512i, b: __m512i, mask: __m512i) -> __m512i {
    // SAFETY: no memory; the instruction set is the caller's promise.
    unsafe { _mm512_ternarylogic_epi32::<0xF8>(a, b, mask) }
}

/// Adds the fifth bits: bit `u` of each byte of `high` belongs to unit `u`.
#[inline(always)]
unsafe fn fifth(w: [__m512i; 8], high: __m512i) -> [__m512i; 8] {
    // SAFETY: no memory; the instruction set is the caller's promise.
    unsafe {
        let m = _mm512_set1_epi8(16);
        [
            merge(w[0], _mm512_slli_epi16::<4>(high), m),
            merge(w[1], _mm512_slli_epi16::<3>(high), m),
            merge(w[2], _mm512_slli_epi16::<2>(high), m),
            merge(w[3], _mm512_slli_epi16::<1>(high), m),
            merge(w[4], high, m),
            merge(w[5], _mm512_srli_epi16::<1>(high), m),
            merge(w[6], _mm512_srli_epi16::<2>(high), m),
            merge(w[7], _mm512_srli_epi16::<3>(high), m),
        ]
    }
}

macro_rules! legacy {
    ($(#[$doc:meta])* $name:ident, bytes $bytes:literal, min $min:literal, codes $codes:literal, high $high:literal) => {
        $(#[$doc])*
        pub(super) struct $name;

        impl Format for $name {
            const BLOCKS: usize = 2;
            const BYTES: usize = $bytes;
            const MIN: bool = $min;
            type Head = ();

            #[inline(always)]
            unsafe fn head(_: *const u8, _: *const u8) {}

            #[inline(always)]
            unsafe fn codes(data: *const u8, j: usize) -> [__m512i; 8] {
                // SAFETY: offsets of the layout, inside the super-block.
                unsafe {
                    let w = nibbles(data.add($codes + j * 256));
                    if $high == 0 { w } else { fifth(w, vector(data.add($high), j)) }
                }
            }

            #[inline(always)]
            unsafe fn scales((): (), data: *const u8, j: usize) -> Scales {
                // SAFETY: as above.
                unsafe {
                    let d = halves(data.add(j * 32));
                    (d, if $min { halves(data.add(64 + j * 32)) } else { d })
                }
            }
        }
    };
}

legacy!(
    /// 4 bits.
    Q4_0, bytes 576, min false, codes 64, high 0
);
legacy!(
    /// 4 bits and a minimum.
    Q4_1, bytes 640, min true, codes 128, high 0
);
legacy!(
    /// 5 bits.
    Q5_0, bytes 704, min false, codes 64, high 576
);
legacy!(
    /// 5 bits and a minimum.
    Q5_1, bytes 768, min true, codes 128, high 640
);

/// 8 bits.
pub(super) struct Q8_0;

impl Format for Q8_0 {
    const BLOCKS: usize = 2;
    const BYTES: usize = 1088;
    type Head = ();

    #[inline(always)]
    unsafe fn head(_: *const u8, _: *const u8) {}

    #[inline(always)]
    unsafe fn codes(data: *const u8, j: usize) -> [__m512i; 8] {
        // SAFETY: offsets of the layout, inside the super-block.
        unsafe {
            let p = data.add(64 + j * 512);
            [
                vector(p, 0),
                vector(p, 1),
                vector(p, 2),
                vector(p, 3),
                vector(p, 4),
                vector(p, 5),
                vector(p, 6),
                vector(p, 7),
            ]
        }
    }

    #[inline(always)]
    unsafe fn scales((): (), data: *const u8, j: usize) -> Scales {
        // SAFETY: as above.
        unsafe {
            let d = halves(data.add(j * 32));
            (d, d)
        }
    }
}

/// Scales of a Q4_K or Q5_K super-block: d, -dmin, and 8-bit scales and minima of blocks 0-3 and
/// 4-7, 16 rows each.
#[derive(Clone, Copy)]
pub(super) struct HeadK {
    d: __m512,
    m: __m512,
    sc: [__m512i; 2],
    mn: [__m512i; 2],
}

#[inline(always)]
unsafe fn head_k(data: *const u8) -> HeadK {
    // SAFETY: the first 256 bytes of a super-block.
    unsafe {
        let (a, b, c) = (vector(data, 1), vector(data, 2), vector(data, 3));
        let six = _mm512_set1_epi8(63);
        let top = _mm512_set1_epi8(0x3c);
        let two = _mm512_set1_epi8(3);
        // The low two bits of blocks 4-7 come from above bit 6, the rest from `c`.
        let (a_low, b_low) = (
            _mm512_and_si512(_mm512_srli_epi16::<6>(a), two),
            _mm512_and_si512(_mm512_srli_epi16::<6>(b), two),
        );
        let minus = _mm512_set1_ps(-0.0);
        HeadK {
            d: halves(data),
            m: _mm512_xor_ps(halves(data.add(32)), minus),
            sc: [_mm512_and_si512(a, six), merge(a_low, _mm512_slli_epi16::<2>(c), top)],
            mn: [_mm512_and_si512(b, six), merge(b_low, _mm512_srli_epi16::<2>(c), top)],
        }
    }
}

/// The 16 bytes of block `j` as floats.
#[inline(always)]
unsafe fn pick(v: [__m512i; 2], j: usize) -> __m512 {
    // SAFETY: no memory; the instruction set is the caller's promise.
    unsafe {
        let v = v[j / 4];
        let part = match j % 4 {
            0 => _mm512_castsi512_si128(v),
            1 => _mm512_extracti32x4_epi32::<1>(v),
            2 => _mm512_extracti32x4_epi32::<2>(v),
            _ => _mm512_extracti32x4_epi32::<3>(v),
        };
        _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(part))
    }
}

macro_rules! k_quant {
    ($(#[$doc:meta])* $name:ident, bytes $bytes:literal, high $high:literal) => {
        $(#[$doc])*
        pub(super) struct $name;

        impl Format for $name {
            const BLOCKS: usize = 8;
            const BYTES: usize = $bytes;
            const MIN: bool = true;
            type Head = HeadK;

            #[inline(always)]
            unsafe fn head(data: *const u8, _: *const u8) -> HeadK {
                // SAFETY: the caller's promise.
                unsafe { head_k(data) }
            }

            #[inline(always)]
            unsafe fn codes(data: *const u8, j: usize) -> [__m512i; 8] {
                // SAFETY: offsets of the layout, inside the super-block.
                unsafe {
                    let w = nibbles(data.add(256 + j * 256));
                    if $high == 0 { w } else { fifth(w, vector(data.add($high), j)) }
                }
            }

            #[inline(always)]
            unsafe fn scales(head: HeadK, _: *const u8, j: usize) -> Scales {
                // SAFETY: no memory.
                unsafe {
                    (
                        _mm512_mul_ps(head.d, pick(head.sc, j)),
                        _mm512_mul_ps(head.m, pick(head.mn, j)),
                    )
                }
            }
        }
    };
}

k_quant!(
    /// 4 bits, 6-bit scales and minima.
    Q4K, bytes 2304, high 0
);
k_quant!(
    /// 5 bits, 6-bit scales and minima.
    Q5K, bytes 2816, high 2304
);

/// 6 bits, 8-bit scales per 16.
pub(super) struct Q6K;

impl Format for Q6K {
    const BLOCKS: usize = 8;
    const BYTES: usize = 3328;
    const SIXTEENS: bool = true;
    type Head = __m512;

    #[inline(always)]
    unsafe fn head(_: *const u8, head: *const u8) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { halves(head) }
    }

    #[inline(always)]
    unsafe fn codes(data: *const u8, j: usize) -> [__m512i; 8] {
        // SAFETY: offsets of the layout, inside the super-block.
        unsafe {
            let p = data.add(256 + j * 384);
            let w = nibbles(p);
            let m = _mm512_set1_epi8(0x30);
            let (a, b) = (vector(p, 4), vector(p, 5));
            [
                merge(w[0], _mm512_slli_epi16::<4>(a), m),
                merge(w[1], _mm512_slli_epi16::<2>(a), m),
                merge(w[2], a, m),
                merge(w[3], _mm512_srli_epi16::<2>(a), m),
                merge(w[4], _mm512_slli_epi16::<4>(b), m),
                merge(w[5], _mm512_slli_epi16::<2>(b), m),
                merge(w[6], b, m),
                merge(w[7], _mm512_srli_epi16::<2>(b), m),
            ]
        }
    }

    #[inline(always)]
    unsafe fn scales(d: __m512, data: *const u8, j: usize) -> Scales {
        // SAFETY: offsets of the layout, inside the super-block.
        unsafe { (eight(d, data.add(32 * j)), eight(d, data.add(32 * j + 16))) }
    }
}

/// 16 signed 8-bit scales times `d`.
#[inline(always)]
unsafe fn eight(d: __m512, p: *const u8) -> __m512 {
    // SAFETY: the caller passes 16 readable bytes.
    unsafe {
        let scales = _mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast()));
        _mm512_mul_ps(d, _mm512_cvtepi32_ps(scales))
    }
}
