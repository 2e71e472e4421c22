//! The packed layouts, and packing and unpacking in plain code.
//!
//! | type | columns | bytes per super-block, in order |
//! |---|---|---|
//! | Q4_0 | 64 | 2 x 16 half scales; 2 x 4 vectors |
//! | Q4_1 | 64 | 2 x 16 half scales; 2 x 16 half minima; 2 x 4 vectors |
//! | Q5_0 | 64 | as Q4_0; 2 vectors of high bits |
//! | Q5_1 | 64 | as Q4_1; 2 vectors of high bits |
//! | Q8_0 | 64 | 2 x 16 half scales; 2 x 8 vectors |
//! | Q4_K | 256 | 16 half d; 16 half dmin; 3 vectors of 6-bit scales and minima; 8 x 4 vectors |
//! | Q5_K | 256 | as Q4_K; 8 vectors of high bits |
//! | Q6_K | 256 | 16 x 16 scales; 8 x (4 vectors, 2 vectors of the top 2 bits) |
//!
//! Q6_K keeps its half-float d in front of the panel, 32 bytes per super-block. High bits: byte
//! `4r + b` of the vector has bit 4 of row `r`, column `4u + b` in its bit `u`. The three scale
//! vectors of Q4_K are, for `j` in 0-3 at byte `16j + r`: sc[j] with the low two bits of sc[j+4]
//! on top; the same for the minima; the high four bits of sc[j+4] and of mn[j+4].
#![allow(clippy::indexing_slicing, reason = "offsets are inside the super-block they are made for")]

use crate::bytes::Bytes;
use crate::codec::codes::Codes;
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

/// Where a block's parts lie inside a super-block.
struct Parts {
    /// First code vector of 32-block `j`.
    codes: usize,
    /// Vectors of codes from one 32-block to the next, in bytes.
    step: usize,
    /// First vector of high bits, and the distance between 32-blocks.
    high: usize,
    high_step: usize,
}

impl Layout {
    /// The packed layout of a type, if it has one.
    pub(crate) const fn of(quant: Quant) -> Option<Layout> {
        let (blocks, bytes, header) = match quant {
            Quant::Q4_0 => (2, 576, 0),
            Quant::Q4_1 => (2, 640, 0),
            Quant::Q5_0 => (2, 704, 0),
            Quant::Q5_1 => (2, 768, 0),
            Quant::Q8_0 => (2, 1088, 0),
            Quant::Q4_K => (8, 2304, 0),
            Quant::Q5_K => (8, 2816, 0),
            Quant::Q6_K => (8, 3328, 32),
            _ => return None,
        };
        Some(Layout { quant, blocks, bytes, header })
    }

    const fn parts(&self) -> Parts {
        match self.quant {
            Quant::Q4_0 => Parts { codes: 64, step: 256, high: 0, high_step: 0 },
            Quant::Q4_1 => Parts { codes: 128, step: 256, high: 0, high_step: 0 },
            Quant::Q5_0 => Parts { codes: 64, step: 256, high: 576, high_step: 64 },
            Quant::Q5_1 => Parts { codes: 128, step: 256, high: 640, high_step: 64 },
            Quant::Q8_0 => Parts { codes: 64, step: 512, high: 0, high_step: 0 },
            Quant::Q4_K => Parts { codes: 256, step: 256, high: 0, high_step: 0 },
            Quant::Q5_K => Parts { codes: 256, step: 256, high: 2304, high_step: 64 },
            _ => Parts { codes: 256, step: 384, high: 512, high_step: 384 },
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
        let parts = self.parts();
        let half = |at: usize, x: u16, data: &mut [u8]| {
            data[at..at + 2].copy_from_slice(&x.to_le_bytes());
        };
        match self.quant {
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
            quant => {
                half(32 * b + 2 * r, codes.d, data);
                if matches!(quant, Quant::Q4_1 | Quant::Q5_1) {
                    half(64 + 32 * b + 2 * r, codes.m, data);
                }
            }
        }
        for (i, &q) in codes.q.iter().take(self.quant.block_len()).enumerate() {
            let (j, i) = (b * self.quant.block_len() / 32 + i / 32, i % 32);
            let (unit, lane) = (i / 4, 4 * r + i % 4);
            let at = parts.codes + j * parts.step;
            if self.quant == Quant::Q8_0 {
                data[at + 64 * unit + lane] = q;
                continue;
            }
            data[at + 64 * (unit % 4) + lane] |= (q & 15) << (4 * (unit / 4));
            let high = parts.high + j * parts.high_step;
            match self.quant {
                Quant::Q5_0 | Quant::Q5_1 | Quant::Q5_K => {
                    data[high + lane] |= (q >> 4) << unit;
                }
                Quant::Q6_K => {
                    data[high + 64 * (unit / 4) + lane] |= (q >> 4) << (2 * (unit % 4));
                }
                _ => {}
            }
        }
    }

    /// Reads source block `b` of row `r`; the inverse of [`Layout::put`].
    fn get(&self, r: usize, b: usize, data: &[u8], head: &[u8]) -> Codes {
        let parts = self.parts();
        let mut codes = Codes::ZERO;
        let half = |at: usize, data: &[u8]| u16::from_le_bytes([data[at], data[at + 1]]);
        match self.quant {
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
            quant => {
                codes.d = half(32 * b + 2 * r, data);
                if matches!(quant, Quant::Q4_1 | Quant::Q5_1) {
                    codes.m = half(64 + 32 * b + 2 * r, data);
                }
            }
        }
        for (i, q) in codes.q.iter_mut().take(self.quant.block_len()).enumerate() {
            let (j, i) = (b * self.quant.block_len() / 32 + i / 32, i % 32);
            let (unit, lane) = (i / 4, 4 * r + i % 4);
            let at = parts.codes + j * parts.step;
            if self.quant == Quant::Q8_0 {
                *q = data[at + 64 * unit + lane];
                continue;
            }
            *q = (data[at + 64 * (unit % 4) + lane] >> (4 * (unit / 4))) & 15;
            let high = parts.high + j * parts.high_step;
            *q |= match self.quant {
                Quant::Q5_0 | Quant::Q5_1 | Quant::Q5_K => ((data[high + lane] >> unit) & 1) << 4,
                Quant::Q6_K => ((data[high + 64 * (unit / 4) + lane] >> (2 * (unit % 4))) & 3) << 4,
                _ => 0,
            };
        }
        codes
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
