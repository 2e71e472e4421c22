//! How each packed type's bytes become code vectors and scales in registers.

use super::vector::Vector;
use crate::codec::codes::{LEVELS_FP4, LEVELS4};

/// What the products of a type have to do beside multiplying codes.
pub(super) trait Shape {
    /// Whether there is a minimum.
    const MIN: bool;
    /// Whether a scale (and a minimum) covers 16 values.
    const SIXTEENS: bool;
    /// Whether codes fill a byte, with an offset of 128.
    const WIDE: bool;
    /// Scale vectors of a 32-block: one or two scales, then as many minima if there are any.
    const SCALES: usize = if Self::SIXTEENS { 2 } else { 1 } * if Self::MIN { 2 } else { 1 };
}

macro_rules! shape {
    ($($name:ident: $min:literal $sixteens:literal $wide:literal;)*) => {
        $(
            /// A shape.
            pub(super) struct $name;
            impl Shape for $name {
                const MIN: bool = $min;
                const SIXTEENS: bool = $sixteens;
                const WIDE: bool = $wide;
            }
        )*
    };
}

shape! {
    Simple: false false false;
    Minimum: true false false;
    Wide: false false true;
    Sixteens: false true false;
    SixteensMinimum: true true false;
    SixteensWide: false true true;
}

/// Scales of a 32-block for a vector of rows, as [`Shape::SCALES`] orders them; the rest repeats.
pub(super) type Scales<V> = [<V as Vector>::F; 4];

/// A packed type. All functions are to be inlined into code compiled for `V`.
pub(super) trait Format {
    /// 32-value blocks per super-block.
    const BLOCKS: usize;
    /// Bytes per super-block.
    const BYTES: usize;
    /// What its products look like.
    type Shape: Shape;

    /// The 8 unit vectors of block `j`.
    ///
    /// # Safety
    /// The instruction set is there; `data` is a super-block, `j` is below `BLOCKS`.
    unsafe fn codes<V: Vector>(data: *const u8, j: usize, part: usize) -> [V::I; 8];

    /// The scales of block `j`; `head` is the super-block's part in front of the panel.
    ///
    /// # Safety
    /// As for `codes`; `head` is there if the layout has one.
    unsafe fn scales<V: Vector>(
        data: *const u8,
        head: *const u8,
        j: usize,
        part: usize,
    ) -> Scales<V>;
}

/// Units from a plane of 4 bits.
#[inline(always)]
unsafe fn nibbles<V: Vector>(p: *const u8, part: usize) -> [V::I; 8] {
    // SAFETY: the caller passes 4 vectors.
    unsafe {
        let mask = V::splat8(15);
        let v: [V::I; 4] = [
            V::codes(p, 0, part),
            V::codes(p, 1, part),
            V::codes(p, 2, part),
            V::codes(p, 3, part),
        ];
        let mut w = [mask; 8];
        for u in 0..8 {
            w[u] = V::and(V::shift(v[u % 4], -4 * (u / 4) as i32), mask);
        }
        w
    }
}

/// Units from a plane of 2 bits.
#[inline(always)]
unsafe fn pairs<V: Vector>(p: *const u8, part: usize) -> [V::I; 8] {
    // SAFETY: the caller passes 2 vectors.
    unsafe {
        let mask = V::splat8(3);
        let v: [V::I; 2] = [V::codes(p, 0, part), V::codes(p, 1, part)];
        let mut w = [mask; 8];
        for u in 0..8 {
            w[u] = V::and(V::shift(v[u / 4], -2 * (u % 4) as i32), mask);
        }
        w
    }
}

/// Adds a plane of single bits, as bit `to`.
#[inline(always)]
unsafe fn with_bit<V: Vector>(mut w: [V::I; 8], p: *const u8, part: usize, to: i32) -> [V::I; 8] {
    // SAFETY: the caller passes a vector.
    unsafe {
        let (high, mask) = (V::codes(p, 0, part), V::splat8(1 << to));
        for u in 0..8 {
            w[u] = V::merge(w[u], V::shift(high, to - u as i32), mask);
        }
        w
    }
}

/// Codes through a table.
#[inline(always)]
unsafe fn through<V: Vector>(table: &[u8; 16], mut w: [V::I; 8]) -> [V::I; 8] {
    // SAFETY: no memory; the instruction set is the caller's promise.
    unsafe {
        for u in 0..8 {
            w[u] = V::lookup(table, w[u]);
        }
    }
    w
}

/// One scale for all.
#[inline(always)]
unsafe fn all<V: Vector>(d: V::F) -> Scales<V> {
    [d; 4]
}

macro_rules! legacy {
    ($name:ident, $shape:ty, bytes $bytes:literal, codes $codes:literal $(, high $high:literal)? $(, table $table:expr)?) => {
        /// A type of blocks of 32 with half-float scales, in pairs.
        pub(super) struct $name;

        impl Format for $name {
            const BLOCKS: usize = 2;
            const BYTES: usize = $bytes;
            type Shape = $shape;

            #[inline(always)]
            unsafe fn codes<V: Vector>(data: *const u8, j: usize, part: usize) -> [V::I; 8] {
                // SAFETY: offsets of the layout, inside the super-block.
                unsafe {
                    let w = nibbles::<V>(data.add($codes + j * 256), part);
                    $(let w = with_bit::<V>(w, data.add($high + j * 64), part, 4);)?
                    $(let w = through::<V>(&$table, w);)?
                    w
                }
            }

            #[inline(always)]
            unsafe fn scales<V: Vector>(
                data: *const u8,
                _: *const u8,
                j: usize,
                part: usize,
            ) -> Scales<V> {
                // SAFETY: as above.
                unsafe {
                    let d = V::halves(data.add(j * 32), part);
                    let m = if <$shape>::MIN { V::halves(data.add(64 + j * 32), part) } else { d };
                    [d, m, d, m]
                }
            }
        }
    };
}

legacy!(Q4_0, Simple, bytes 576, codes 64);
legacy!(Q4_1, Minimum, bytes 640, codes 128);
legacy!(Q5_0, Simple, bytes 704, codes 64, high 576);
legacy!(Q5_1, Minimum, bytes 768, codes 128, high 640);
legacy!(Iq4Nl, Wide, bytes 576, codes 64, table LEVELS4);

/// 8 bits.
pub(super) struct Q8_0;

impl Format for Q8_0 {
    const BLOCKS: usize = 2;
    const BYTES: usize = 1088;
    type Shape = Wide;

    #[inline(always)]
    unsafe fn codes<V: Vector>(data: *const u8, j: usize, part: usize) -> [V::I; 8] {
        // SAFETY: offsets of the layout, inside the super-block.
        unsafe {
            let mut w = [V::splat32(0); 8];
            for u in 0..8 {
                w[u] = V::codes(data.add(64 + j * 512), u, part);
            }
            w
        }
    }

    #[inline(always)]
    unsafe fn scales<V: Vector>(data: *const u8, _: *const u8, j: usize, part: usize) -> Scales<V> {
        // SAFETY: as above.
        unsafe { all::<V>(V::halves(data.add(j * 32), part)) }
    }
}

/// 4-bit floats with a power of two per 32.
pub(super) struct Mxfp4;

impl Format for Mxfp4 {
    const BLOCKS: usize = 2;
    const BYTES: usize = 512;
    type Shape = Simple;

    #[inline(always)]
    unsafe fn codes<V: Vector>(data: *const u8, j: usize, part: usize) -> [V::I; 8] {
        // SAFETY: offsets of the layout, inside the super-block.
        unsafe { through::<V>(&LEVELS_FP4, nibbles::<V>(data.add(j * 256), part)) }
    }

    #[inline(always)]
    unsafe fn scales<V: Vector>(_: *const u8, head: *const u8, j: usize, part: usize) -> Scales<V> {
        // SAFETY: the caller's promise. Half of 2^(e - 127); zero below the normal numbers.
        unsafe {
            let e = V::add32(V::bytes(head.add(16 * j), part), V::splat32(-1));
            all::<V>(V::as_float(V::shift32(V::max32(e, V::splat32(0)), 23)))
        }
    }
}

/// 4-bit floats with an 8-bit float per 16.
pub(super) struct Nvfp4;

impl Format for Nvfp4 {
    const BLOCKS: usize = 2;
    const BYTES: usize = 576;
    type Shape = Sixteens;

    #[inline(always)]
    unsafe fn codes<V: Vector>(data: *const u8, j: usize, part: usize) -> [V::I; 8] {
        // SAFETY: offsets of the layout, inside the super-block.
        unsafe { through::<V>(&LEVELS_FP4, nibbles::<V>(data.add(64 + j * 256), part)) }
    }

    #[inline(always)]
    unsafe fn scales<V: Vector>(data: *const u8, _: *const u8, j: usize, part: usize) -> Scales<V> {
        // SAFETY: as above. As half floats the bits are 2^8 too small; the halving leaves 2^7. The
        // byte 0x7f is not a number and counts as zero.
        unsafe {
            let mut d = [V::splat(0.0); 2];
            for h in 0..2 {
                let byte = V::bytes(data.add(16 * (2 * j + h)), part);
                let bits = V::shift32(V::and(byte, V::splat32(0x7f)), 7);
                d[h] = V::mul(V::wide_halves(V::unless_equal(bits, byte, 0x7f)), V::splat(128.0));
            }
            let [a, b] = d;
            [a, b, a, b]
        }
    }
}

/// Plus or minus the scale.
pub(super) struct Q1_0;

impl Format for Q1_0 {
    const BLOCKS: usize = 4;
    const BYTES: usize = 256;
    type Shape = Simple;

    #[inline(always)]
    unsafe fn codes<V: Vector>(data: *const u8, j: usize, part: usize) -> [V::I; 8] {
        // SAFETY: offsets of the layout, inside the super-block.
        unsafe {
            let (v, mask) = (V::codes(data, j, part), V::splat8(2));
            let mut w = [mask; 8];
            for u in 0..8 {
                w[u] = V::and(V::shift(v, 1 - u as i32), mask);
            }
            w
        }
    }

    #[inline(always)]
    unsafe fn scales<V: Vector>(_: *const u8, head: *const u8, _: usize, part: usize) -> Scales<V> {
        // SAFETY: the caller's promise.
        unsafe { all::<V>(V::halves(head, part)) }
    }
}

macro_rules! two_bits {
    ($name:ident, blocks $blocks:literal, bytes $bytes:literal) => {
        /// Two bits with one scale for the super-block.
        pub(super) struct $name;

        impl Format for $name {
            const BLOCKS: usize = $blocks;
            const BYTES: usize = $bytes;
            type Shape = Simple;

            #[inline(always)]
            unsafe fn codes<V: Vector>(data: *const u8, j: usize, part: usize) -> [V::I; 8] {
                // SAFETY: offsets of the layout, inside the super-block.
                unsafe { pairs::<V>(data.add(j * 128), part) }
            }

            #[inline(always)]
            unsafe fn scales<V: Vector>(
                _: *const u8,
                head: *const u8,
                _: usize,
                part: usize,
            ) -> Scales<V> {
                // SAFETY: the caller's promise.
                unsafe { all::<V>(V::halves(head, part)) }
            }
        }
    };
}

two_bits!(Q2_0, blocks 2, bytes 256);
two_bits!(Tq2_0, blocks 8, bytes 1024);

/// Ternary, five digits a byte.
pub(super) struct Tq1_0;

/// Digit `n` of each byte: the whole part of three times what `n` multiplications leave.
#[inline(always)]
unsafe fn digit<V: Vector>(mut v: V::I, n: usize) -> V::I {
    // SAFETY: no memory; the instruction set is the caller's promise.
    unsafe {
        for _ in 0..n {
            v = V::add8(v, V::add8(v, v));
        }
        // 3 x is at least 256 from 86 on, and 512 from 171 on.
        V::add8(V::at_least(v, 86), V::at_least(v, 171))
    }
}

impl Format for Tq1_0 {
    const BLOCKS: usize = 8;
    const BYTES: usize = 832;
    type Shape = Simple;

    #[inline(always)]
    unsafe fn codes<V: Vector>(data: *const u8, j: usize, part: usize) -> [V::I; 8] {
        // SAFETY: there are 13 vectors.
        unsafe {
            let mut w = [V::splat32(0); 8];
            for u in 0..8 {
                let (vector, n) = match j {
                    0..5 => (u, j),
                    5 => (8 + u % 4, u / 4),
                    6 => (8 + u % 4, 2 + u / 4),
                    _ if u < 4 => (8 + u, 4),
                    _ => (12, u - 4),
                };
                w[u] = digit::<V>(V::codes(data, vector, part), n);
            }
            w
        }
    }

    #[inline(always)]
    unsafe fn scales<V: Vector>(_: *const u8, head: *const u8, _: usize, part: usize) -> Scales<V> {
        // SAFETY: the caller's promise.
        unsafe { all::<V>(V::halves(head, part)) }
    }
}

/// 2 bits, scale and minimum of 4 bits per 16.
pub(super) struct Q2K;

impl Format for Q2K {
    const BLOCKS: usize = 8;
    const BYTES: usize = 1344;
    type Shape = SixteensMinimum;

    #[inline(always)]
    unsafe fn codes<V: Vector>(data: *const u8, j: usize, part: usize) -> [V::I; 8] {
        // SAFETY: offsets of the layout, inside the super-block.
        unsafe { pairs::<V>(data.add(320 + j * 128), part) }
    }

    #[inline(always)]
    unsafe fn scales<V: Vector>(data: *const u8, _: *const u8, j: usize, part: usize) -> Scales<V> {
        // SAFETY: as above.
        unsafe {
            let d = V::halves(data, part);
            let m = V::negate(V::halves(data.add(32), part));
            let a = V::bytes(data.add(64 + 32 * j), part);
            let b = V::bytes(data.add(80 + 32 * j), part);
            let low = V::splat32(15);
            [
                V::mul(d, V::float(V::and(a, low))),
                V::mul(d, V::float(V::and(b, low))),
                V::mul(m, V::float(V::shift32(a, -4))),
                V::mul(m, V::float(V::shift32(b, -4))),
            ]
        }
    }
}

/// 3 bits, 6-bit scales per 16.
pub(super) struct Q3K;

impl Format for Q3K {
    const BLOCKS: usize = 8;
    const BYTES: usize = 1728;
    type Shape = Sixteens;

    #[inline(always)]
    unsafe fn codes<V: Vector>(data: *const u8, j: usize, part: usize) -> [V::I; 8] {
        // SAFETY: offsets of the layout, inside the super-block.
        unsafe {
            let w = pairs::<V>(data.add(192 + j * 128), part);
            with_bit::<V>(w, data.add(1216 + j * 64), part, 2)
        }
    }

    #[inline(always)]
    unsafe fn scales<V: Vector>(
        data: *const u8,
        head: *const u8,
        j: usize,
        part: usize,
    ) -> Scales<V> {
        // SAFETY: as above.
        unsafe {
            let d = V::halves(head, part);
            let mut scales = [d; 2];
            for h in 0..2 {
                let g = 2 * j + h;
                let low = V::bytes(data.add(16 * (g % 8)), part);
                let high = V::bytes(data.add(128 + 16 * (g % 4)), part);
                let low = V::and(V::shift32(low, -4 * (g / 8) as i32), V::splat32(15));
                let high = V::shift32(high, 4 - 2 * (g / 4) as i32);
                let six = V::merge(low, high, V::splat32(0x30));
                scales[h] = V::mul(d, V::float(V::add32(six, V::splat32(-32))));
            }
            let [a, b] = scales;
            [a, b, a, b]
        }
    }
}

macro_rules! k_quant {
    ($name:ident, bytes $bytes:literal $(, high $high:literal)?) => {
        /// 6-bit scales and minima per 32.
        pub(super) struct $name;

        impl Format for $name {
            const BLOCKS: usize = 8;
            const BYTES: usize = $bytes;
            type Shape = Minimum;

            #[inline(always)]
            unsafe fn codes<V: Vector>(data: *const u8, j: usize, part: usize) -> [V::I; 8] {
                // SAFETY: offsets of the layout, inside the super-block.
                unsafe {
                    let w = nibbles::<V>(data.add(256 + j * 256), part);
                    $(let w = with_bit::<V>(w, data.add($high + j * 64), part, 4);)?
                    w
                }
            }

            #[inline(always)]
            unsafe fn scales<V: Vector>(
                data: *const u8,
                _: *const u8,
                j: usize,
                part: usize,
            ) -> Scales<V> {
                // SAFETY: as above.
                unsafe {
                    let d = V::halves(data, part);
                    let m = V::negate(V::halves(data.add(32), part));
                    let at = 16 * (j % 4);
                    let a = V::bytes(data.add(64 + at), part);
                    let b = V::bytes(data.add(128 + at), part);
                    let (sc, mn) = if j < 4 {
                        (V::and(a, V::splat32(63)), V::and(b, V::splat32(63)))
                    } else {
                        // The low two bits lie above the first blocks' six.
                        let c = V::bytes(data.add(192 + at), part);
                        let top = V::splat32(0x3c);
                        (
                            V::merge(V::shift32(a, -6), V::shift32(c, 2), top),
                            V::merge(V::shift32(b, -6), V::shift32(c, -2), top),
                        )
                    };
                    let (d, m) = (V::mul(d, V::float(sc)), V::mul(m, V::float(mn)));
                    [d, m, d, m]
                }
            }
        }
    };
}

k_quant!(Q4K, bytes 2304);
k_quant!(Q5K, bytes 2816, high 2304);

/// 6 bits, 8-bit scales per 16.
pub(super) struct Q6K;

impl Format for Q6K {
    const BLOCKS: usize = 8;
    const BYTES: usize = 3328;
    type Shape = Sixteens;

    #[inline(always)]
    unsafe fn codes<V: Vector>(data: *const u8, j: usize, part: usize) -> [V::I; 8] {
        // SAFETY: offsets of the layout, inside the super-block.
        unsafe {
            let p = data.add(256 + j * 384);
            let (mut w, mask) = (nibbles::<V>(p, part), V::splat8(0x30));
            let high: [V::I; 2] = [V::codes(p, 4, part), V::codes(p, 5, part)];
            for u in 0..8 {
                w[u] = V::merge(w[u], V::shift(high[u / 4], 4 - 2 * (u % 4) as i32), mask);
            }
            w
        }
    }

    #[inline(always)]
    unsafe fn scales<V: Vector>(
        data: *const u8,
        head: *const u8,
        j: usize,
        part: usize,
    ) -> Scales<V> {
        // SAFETY: as above.
        unsafe {
            let d = V::halves(head, part);
            let a = V::mul(d, V::float(V::signed_bytes(data.add(32 * j), part)));
            let b = V::mul(d, V::float(V::signed_bytes(data.add(32 * j + 16), part)));
            [a, b, a, b]
        }
    }
}

/// 4 bits through a table, 6-bit scales per 32.
pub(super) struct Iq4Xs;

impl Format for Iq4Xs {
    const BLOCKS: usize = 8;
    const BYTES: usize = 2176;
    type Shape = Wide;

    #[inline(always)]
    unsafe fn codes<V: Vector>(data: *const u8, j: usize, part: usize) -> [V::I; 8] {
        // SAFETY: offsets of the layout, inside the super-block.
        unsafe { through::<V>(&LEVELS4, nibbles::<V>(data.add(128 + j * 256), part)) }
    }

    #[inline(always)]
    unsafe fn scales<V: Vector>(data: *const u8, _: *const u8, j: usize, part: usize) -> Scales<V> {
        // SAFETY: as above.
        unsafe {
            let low = V::bytes(data.add(64 + 16 * (j % 4)), part);
            let high = V::bytes(data.add(32 + 16 * (j / 4)), part);
            let low = V::and(V::shift32(low, -4 * (j / 4) as i32), V::splat32(15));
            let six = V::merge(low, V::shift32(high, 4 - 2 * (j % 4) as i32), V::splat32(0x30));
            let sc = V::float(V::add32(six, V::splat32(-32)));
            all::<V>(V::mul(V::halves(data, part), sc))
        }
    }
}
