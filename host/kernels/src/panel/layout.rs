//! The packed layouts, and packing and unpacking in plain code.
//!
//! | type | columns | bytes per super-block, in order |
//! |---|---|---|
//! | Q4_0, IQ4_NL | 64 | 2 x 16 half scales; 2 x 4 vectors |
//! | Q4_1 | 64 | 2 x 16 half scales; 2 x 16 half minima; 2 x 4 vectors |
//! | Q5_0 | 64 | as Q4_0; 2 vectors of high bits |
//! | Q5_1 | 64 | as Q4_1; 2 vectors of high bits |
//! | Q8_0 | 64 | 2 x 16 half scales; 2 x 8 vectors |
//! | MXFP4 | 64 | (front: 2 x 16 exponents); 2 x 4 vectors |
//! | NVFP4 | 64 | 4 x 16 scales; 2 x 4 vectors |
//! | Q1_0 | 128 | (front: 16 half d); 4 vectors |
//! | Q2_0 | 64 | (front: 16 half d); 2 x 2 vectors |
//! | Q2_K | 256 | 16 half d; 16 half dmin; 16 x 16 bytes of scale and minimum; 8 x 2 vectors |
//! | Q3_K | 256 | (front: 16 half d); 3 vectors of 6-bit scales; 8 x 2 vectors; 8 of high bits |
//! | Q4_K | 256 | 16 half d; 16 half dmin; 3 vectors of 6-bit scales and minima; 8 x 4 vectors |
//! | Q5_K | 256 | as Q4_K; 8 vectors of high bits |
//! | Q6_K | 256 | (front: 16 half d); 16 x 16 scales; 8 x (4 vectors, 2 of the top 2 bits) |
//! | IQ4_XS | 256 | 16 half d; 2 x 16 and 4 x 16 bytes of 6-bit scales; 8 x 4 vectors |
//! | TQ2_0 | 256 | (front: 16 half d); 8 x 2 vectors |
//! | TQ1_0 | 256 | (front: 16 half d); 13 vectors of five base-3 digits |
//!
//! "Front" is in front of the panel, 32 bytes per super-block. A plane of `n` bits is `n` vectors
//! per 32 columns. Unit `u` is, of 4 bits, nibble `u / 4` of vector `u % 4`; of 2 bits, bits
//! `2 (u % 4)` of vector `u / 4`; of 1 bit, bit `u`. The three scale vectors of Q4_K are, for `j`
//! in 0-3 at byte `16j + r`: sc[j] with the low two bits of sc[j+4] on top; the same for the
//! minima; the high four bits of sc[j+4] and of mn[j+4]. Those of Q3_K: nibbles of groups `g` and
//! `g + 8`, then pairs of high bits of groups `g`, `g + 4`, `g + 8`, `g + 12`; IQ4_XS likewise with
//! pairs first, of blocks `4i..4i + 4`, then nibbles of blocks `j` and `j + 4`. TQ1_0 has digit `n`
//! of vector `u` for unit `u` of block `n` in 8 vectors; then 4 whose digits 0 and 1 are block 5,
//! 2 and 3 block 6 and 4 the first half of block 7; then one with the other half in its digits.
#![allow(clippy::indexing_slicing, reason = "offsets are inside the super-block they are made for")]

use crate::bytes::Bytes;
use crate::codec::codes::{Codes, trits};
use crate::codec::trit_code;
use crate::error::{KernelError, expect_len};
use crate::matrix::Matrix;
use crate::memory::Region;
use crate::quant::Quant;

/// Rows per panel.
pub(crate) const ROWS: usize = 16;

/// The shape of a packed type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) quant: Quant,
    /// 32-value blocks per super-block.
    pub(crate) blocks: usize,
    /// Bytes per super-block of a panel.
    pub(crate) bytes: usize,
    /// Bytes in front of the panel per super-block.
    pub(crate) header: usize,
}

/// Where a block's codes lie inside a super-block: one plane of low bits, perhaps one of high.
struct Planes {
    low: Plane,
    high: Option<Plane>,
}

/// A plane of some bits of every code.
struct Plane {
    bits: usize,
    /// Where it begins, and the bytes from one 32-block to the next.
    at: usize,
    step: usize,
}

impl Plane {
    /// Byte and bit of column `i` of 32-block `j`, row `r`.
    fn place(&self, j: usize, i: usize, r: usize) -> (usize, usize) {
        let (unit, lane) = (i / 4, 4 * r + i % 4);
        let (vector, shift) = match self.bits {
            8 => (unit, 0),
            4 => (unit % 4, 4 * (unit / 4)),
            2 => (unit / 4, 2 * (unit % 4)),
            _ => (0, unit),
        };
        (self.at + j * self.step + 64 * vector + lane, shift)
    }

    fn mask(&self) -> u8 {
        ((1u16 << self.bits) - 1) as u8
    }
}

impl Layout {
    /// The packed layout of a type, if it has one.
    pub(crate) const fn of(quant: Quant) -> Option<Layout> {
        let (blocks, bytes, header) = match quant {
            Quant::Q4_0 | Quant::IQ4_NL | Quant::NVFP4 => (2, 576, 0),
            Quant::Q4_1 => (2, 640, 0),
            Quant::Q5_0 => (2, 704, 0),
            Quant::Q5_1 => (2, 768, 0),
            Quant::Q8_0 => (2, 1088, 0),
            Quant::MXFP4 => (2, 512, 32),
            Quant::Q1_0 => (4, 256, 32),
            Quant::Q2_0 => (2, 256, 32),
            Quant::Q2_K => (8, 1344, 0),
            Quant::Q3_K => (8, 1728, 32),
            Quant::Q4_K => (8, 2304, 0),
            Quant::Q5_K => (8, 2816, 0),
            Quant::Q6_K => (8, 3328, 32),
            Quant::IQ4_XS => (8, 2176, 0),
            Quant::TQ2_0 => (8, 1024, 32),
            Quant::TQ1_0 => (8, 832, 32),
            _ => return None,
        };
        Some(Layout { quant, blocks, bytes, header })
    }

    const fn planes(&self) -> Planes {
        const fn low(bits: usize, at: usize) -> Planes {
            Planes { low: Plane { bits, at, step: 64 * bits }, high: None }
        }
        const fn both(bits: usize, at: usize, high: usize, from: usize) -> Planes {
            let low = Plane { bits, at, step: 64 * bits };
            Planes { low, high: Some(Plane { bits: high, at: from, step: 64 * high }) }
        }
        match self.quant {
            Quant::Q4_0 | Quant::IQ4_NL | Quant::NVFP4 => low(4, 64),
            Quant::Q4_1 | Quant::IQ4_XS => low(4, 128),
            Quant::MXFP4 => low(4, 0),
            Quant::Q8_0 => low(8, 64),
            Quant::Q5_0 => both(4, 64, 1, 576),
            Quant::Q5_1 => both(4, 128, 1, 640),
            Quant::Q1_0 => low(1, 0),
            Quant::Q2_0 | Quant::TQ2_0 => low(2, 0),
            Quant::Q2_K => low(2, 320),
            Quant::Q3_K => both(2, 192, 1, 1216),
            Quant::Q4_K => low(4, 256),
            Quant::Q5_K => both(4, 256, 1, 2304),
            // Low and high planes of a block follow each other.
            _ => Planes {
                low: Plane { bits: 4, at: 256, step: 384 },
                high: Some(Plane { bits: 2, at: 512, step: 384 }),
            },
        }
    }

    /// Super-blocks of a row of `cols` columns; the last may be padded.
    pub(crate) const fn supers(&self, cols: usize) -> usize {
        cols.div_ceil(self.blocks * 32)
    }

    /// Bytes in front of a panel, a multiple of 64.
    pub(crate) const fn header_bytes(&self, cols: usize) -> usize {
        (self.header * self.supers(cols)).next_multiple_of(64)
    }

    /// Bytes of a panel.
    pub(crate) const fn panel_bytes(&self, cols: usize) -> usize {
        self.header_bytes(cols) + self.bytes * self.supers(cols)
    }

    /// Bytes of all panels, if that many can be.
    pub(crate) fn total_bytes(&self, rows: usize, cols: usize) -> Option<usize> {
        // No product below exceeds this one, with room for a header and padding.
        cols.checked_mul(16)?;
        rows.div_ceil(ROWS).checked_mul(self.panel_bytes(cols))
    }

    /// Source blocks per super-block.
    const fn sources(&self) -> usize {
        self.blocks * 32 / self.quant.block_len()
    }

    /// Writes source block `b` of row `r` of a super-block; `head` is its part of the header.
    fn put(&self, codes: &Codes, r: usize, b: usize, data: &mut [u8], head: &mut [u8]) {
        let half = |at: usize, x: u16, data: &mut [u8]| {
            data[at..at + 2].copy_from_slice(&x.to_le_bytes());
        };
        match self.quant {
            Quant::Q2_K => {
                half(2 * r, codes.d, data);
                half(32 + 2 * r, codes.m, data);
                for g in 0..16 {
                    data[64 + 16 * g + r] = codes.sc[g] | codes.mn[g] << 4;
                }
            }
            Quant::Q3_K => {
                half(2 * r, codes.d, head);
                for (g, sc) in codes.sc.iter().enumerate() {
                    data[16 * (g % 8) + r] |= (sc & 15) << (4 * (g / 8));
                    data[128 + 16 * (g % 4) + r] |= (sc >> 4) << (2 * (g / 4));
                }
            }
            Quant::Q4_K | Quant::Q5_K => {
                half(2 * r, codes.d, data);
                half(32 + 2 * r, codes.m, data);
                for j in 0..4 {
                    let (sc, mn) = (&codes.sc, &codes.mn);
                    data[64 + 16 * j + r] = sc[j] | sc[j + 4] << 6;
                    data[128 + 16 * j + r] = mn[j] | mn[j + 4] << 6;
                    data[192 + 16 * j + r] = sc[j + 4] >> 2 | (mn[j + 4] >> 2) << 4;
                }
            }
            Quant::Q6_K => {
                half(2 * r, codes.d, head);
                for (j, &sc) in codes.sc.iter().enumerate() {
                    data[16 * j + r] = sc;
                }
            }
            Quant::IQ4_XS => {
                half(2 * r, codes.d, data);
                for (j, sc) in codes.sc[..8].iter().enumerate() {
                    data[32 + 16 * (j / 4) + r] |= (sc >> 4) << (2 * (j % 4));
                    data[64 + 16 * (j % 4) + r] |= (sc & 15) << (4 * (j / 4));
                }
            }
            Quant::MXFP4 => head[16 * b + r] = codes.d as u8,
            Quant::NVFP4 => {
                for (g, &sc) in codes.sc[..4].iter().enumerate() {
                    data[16 * g + r] = sc;
                }
            }
            quant if self.header > 0 => {
                half(2 * r, codes.d, head);
                if quant == Quant::TQ1_0 {
                    return put_trits(codes, r, data);
                }
            }
            quant => {
                half(32 * b + 2 * r, codes.d, data);
                if matches!(quant, Quant::Q4_1 | Quant::Q5_1) {
                    half(64 + 32 * b + 2 * r, codes.m, data);
                }
            }
        }
        let planes = self.planes();
        for (i, &q) in codes.q.iter().take(self.quant.block_len()).enumerate() {
            let (j, i) = (b * self.quant.block_len() / 32 + i / 32, i % 32);
            let (at, shift) = planes.low.place(j, i, r);
            let q = if self.quant == Quant::Q1_0 { q >> 1 } else { q };
            data[at] |= (q & planes.low.mask()) << shift;
            if let Some(high) = &planes.high {
                let (at, shift) = high.place(j, i, r);
                data[at] |= (q >> planes.low.bits) << shift;
            }
        }
    }

    /// Reads source block `b` of row `r`; the inverse of [`Layout::put`].
    fn get(&self, r: usize, b: usize, data: &[u8], head: &[u8]) -> Codes {
        let mut codes = Codes::ZERO;
        let half = |at: usize, data: &[u8]| u16::from_le_bytes([data[at], data[at + 1]]);
        match self.quant {
            Quant::Q2_K => {
                codes.d = half(2 * r, data);
                codes.m = half(32 + 2 * r, data);
                for g in 0..16 {
                    let byte = data[64 + 16 * g + r];
                    (codes.sc[g], codes.mn[g]) = (byte & 15, byte >> 4);
                }
            }
            Quant::Q3_K => {
                codes.d = half(2 * r, head);
                for (g, sc) in codes.sc.iter_mut().enumerate() {
                    let low = (data[16 * (g % 8) + r] >> (4 * (g / 8))) & 15;
                    *sc = low | ((data[128 + 16 * (g % 4) + r] >> (2 * (g / 4))) & 3) << 4;
                }
            }
            Quant::Q4_K | Quant::Q5_K => {
                codes.d = half(2 * r, data);
                codes.m = half(32 + 2 * r, data);
                for j in 0..4 {
                    let (a, b) = (data[64 + 16 * j + r], data[128 + 16 * j + r]);
                    let c = data[192 + 16 * j + r];
                    (codes.sc[j], codes.mn[j]) = (a & 63, b & 63);
                    codes.sc[j + 4] = a >> 6 | (c & 15) << 2;
                    codes.mn[j + 4] = b >> 6 | (c >> 4) << 2;
                }
            }
            Quant::Q6_K => {
                codes.d = half(2 * r, head);
                for (j, sc) in codes.sc.iter_mut().enumerate() {
                    *sc = data[16 * j + r];
                }
            }
            Quant::IQ4_XS => {
                codes.d = half(2 * r, data);
                for (j, sc) in codes.sc[..8].iter_mut().enumerate() {
                    let high = (data[32 + 16 * (j / 4) + r] >> (2 * (j % 4))) & 3;
                    *sc = ((data[64 + 16 * (j % 4) + r] >> (4 * (j / 4))) & 15) | high << 4;
                }
            }
            Quant::MXFP4 => codes.d = u16::from(head[16 * b + r]),
            Quant::NVFP4 => {
                for (g, sc) in codes.sc[..4].iter_mut().enumerate() {
                    *sc = data[16 * g + r];
                }
            }
            quant if self.header > 0 => {
                codes.d = half(2 * r, head);
                if quant == Quant::TQ1_0 {
                    get_trits(&mut codes, r, data);
                    return codes;
                }
            }
            quant => {
                codes.d = half(32 * b + 2 * r, data);
                if matches!(quant, Quant::Q4_1 | Quant::Q5_1) {
                    codes.m = half(64 + 32 * b + 2 * r, data);
                }
            }
        }
        let planes = self.planes();
        for (i, q) in codes.q.iter_mut().take(self.quant.block_len()).enumerate() {
            let (j, i) = (b * self.quant.block_len() / 32 + i / 32, i % 32);
            let (at, shift) = planes.low.place(j, i, r);
            *q = (data[at] >> shift) & planes.low.mask();
            if let Some(high) = &planes.high {
                let (at, shift) = high.place(j, i, r);
                *q |= ((data[at] >> shift) & high.mask()) << planes.low.bits;
            }
            if self.quant == Quant::Q1_0 {
                *q <<= 1;
            }
        }
        codes
    }
}

/// The columns whose digits a byte of TQ1_0 holds: those of vector `v`, byte `b` of a row.
fn trit_columns(v: usize, b: usize) -> [usize; 5] {
    std::array::from_fn(|n| match v {
        // Unit `v` of block `n`.
        0..8 => 32 * n + 4 * v + b,
        8..12 => 160 + 16 * n + 4 * (v - 8) + b,
        // The last five digits' fifth is nobody's.
        _ if n < 4 => 240 + 4 * n + b,
        _ => 256,
    })
}

fn put_trits(codes: &Codes, r: usize, data: &mut [u8]) {
    for v in 0..13 {
        for b in 0..4 {
            let digits = trit_columns(v, b).map(|i| if i < 256 { codes.q[i] } else { 0 });
            data[64 * v + 4 * r + b] = trits(digits);
        }
    }
}

fn get_trits(codes: &mut Codes, r: usize, data: &[u8]) {
    for v in 0..13 {
        for b in 0..4 {
            for (n, i) in trit_columns(v, b).into_iter().enumerate() {
                if i < 256 {
                    codes.q[i] = trit_code(data[64 * v + 4 * r + b], n);
                }
            }
        }
    }
}

/// The packed weights of a matrix.
pub(crate) struct Panels {
    pub(crate) layout: Layout,
    rows: usize,
    cols: usize,
    store: Store,
}

/// Where panels live.
enum Store {
    /// Packed by this process.
    Own(Region),
    /// Read from a package.
    Shared(Bytes),
}

impl Panels {
    /// Packs a matrix that is in the file's layout; `None` if its type has no packed layout.
    ///
    /// # Errors
    /// There is not enough memory.
    pub(crate) fn pack(matrix: &Matrix) -> Result<Option<Panels>, KernelError> {
        let Some(layout) = Layout::of(matrix.quant()) else { return Ok(None) };
        let (rows, cols) = (matrix.rows(), matrix.cols());
        let count = rows.div_ceil(ROWS);
        let panel = layout.panel_bytes(cols);
        let mut region = layout
            .total_bytes(rows, cols)
            .and_then(Region::zeroed)
            .ok_or(KernelError::TooLarge("a packed matrix"))?;
        if panel > 0 {
            let panels = region.as_mut_slice().chunks_exact_mut(panel);
            // Packing is load-time work of independent panels.
            let shares = std::thread::available_parallelism().map_or(1, usize::from);
            let share = count.div_ceil(shares).max(64);
            let mut work: Vec<(usize, &mut [u8])> = panels.enumerate().collect();
            std::thread::scope(|scope| {
                for part in work.chunks_mut(share) {
                    scope.spawn(move || {
                        for (p, bytes) in part {
                            pack_panel(layout, matrix, *p, bytes);
                        }
                    });
                }
            });
        }
        Ok(Some(Panels { layout, rows, cols, store: Store::Own(region) }))
    }

    /// Panels that were packed before.
    ///
    /// # Errors
    /// The bytes are not exactly the panels of this shape, or do not start at a multiple of 64.
    pub(crate) fn shared(
        layout: Layout,
        rows: usize,
        cols: usize,
        bytes: Bytes,
    ) -> Result<Panels, KernelError> {
        layout.quant.row_bytes(cols)?;
        let total = layout.total_bytes(rows, cols).ok_or(KernelError::TooLarge("a matrix"))?;
        expect_len("bytes of the packed matrix", total, bytes.len())?;
        if !bytes.as_slice().as_ptr().addr().is_multiple_of(64) {
            return Err(KernelError::Invalid(
                "packed weights must start at an address that 64 divides; align them in the file",
            ));
        }
        Ok(Panels { layout, rows, cols, store: Store::Shared(bytes) })
    }

    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        self.as_slice().len()
    }

    /// The packed bytes, panel after panel.
    pub(crate) fn as_slice(&self) -> &[u8] {
        match &self.store {
            Store::Own(region) => region.as_slice(),
            Store::Shared(bytes) => bytes.as_slice(),
        }
    }

    /// Row `row` in the file's layout.
    pub(crate) fn unpack_row(&self, row: usize, out: &mut [u8]) {
        if row >= self.rows {
            return;
        }
        let layout = self.layout;
        let panel = layout.panel_bytes(self.cols);
        let start = layout.header_bytes(self.cols);
        let bytes = &self.as_slice()[row / ROWS * panel..][..panel];
        for (b, block) in out.chunks_exact_mut(layout.quant.block_bytes()).enumerate() {
            let (s, b) = (b / layout.sources(), b % layout.sources());
            let data = &bytes[start + s * layout.bytes..][..layout.bytes];
            let head = &bytes[s * layout.header..][..layout.header];
            layout.get(row % ROWS, b, data, head).join(layout.quant, block);
        }
    }
}

fn pack_panel(layout: Layout, matrix: &Matrix, panel: usize, bytes: &mut [u8]) {
    let (header, data) = bytes.split_at_mut(layout.header_bytes(matrix.cols()));
    for r in 0..ROWS {
        let Some(row) = matrix.row(panel * ROWS + r) else { return };
        for (b, block) in row.chunks_exact(layout.quant.block_bytes()).enumerate() {
            let (s, b) = (b / layout.sources(), b % layout.sources());
            let codes = Codes::split(layout.quant, block);
            layout.put(
                &codes,
                r,
                b,
                &mut data[s * layout.bytes..][..layout.bytes],
                &mut header[s * layout.header..][..layout.header],
            );
        }
    }
}
