//! Activations prepared for the kernels: as floats, and as 8-bit integers per 32 values.
//!
//! One quantiser serves every integer kernel: per block of 32 a scale `max|x| / 127`, codes, and
//! code sums that cancel the weights' offsets. The scale is rounded to 22 bits of mantissa, so
//! that 1.5 * 2^23 times it is exact: a kernel that starts its integer accumulator at the bit
//! pattern of 1.5 * 2^23 turns it into a scaled float with one exact-input FMA.

use std::cell::RefCell;

use crate::codec::codes::{CLASS_OFFSETS, CLASSES};
use crate::error::{KernelError, expect_len};
use crate::isa::Isa;
use crate::matrix::Matrix;
use crate::memory::{Buf, Parts};
use crate::ops::quantize::{Block, Blocks, quantize_row_on};
use crate::pool::Pool;

/// The float 1.5 * 2^23: integers below 2^22 added to its bit pattern add to its value.
pub(crate) const MAGIC: f32 = 12_582_912.0;
/// Its bit pattern.
pub(crate) const MAGIC_BITS: i32 = 0x4B40_0000;

/// What a matrix product needs of the activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// The floats.
    Floats,
    /// Integers of this offset class, each token's in a row.
    Rows(usize),
    /// Integers of this offset class, several tokens interleaved.
    Tiles(usize),
}

/// Activations of `n` tokens, quantised once for all the matrices they meet. Reusable: preparing
/// again reuses the memory.
#[derive(Default)]
pub struct Act {
    n: usize,
    cols: usize,
    floats: Buf<f32>,
    has_floats: bool,
    rows: Quantised,
    tiles: Quantised,
}

/// Quantised activations in tiles of `width` tokens. Index order of every array: tile, block,
/// token of the tile.
#[derive(Default)]
pub(crate) struct Quantised {
    /// Tokens per tile; 0 means not prepared.
    pub(crate) width: usize,
    /// Blocks of 32 per token, padded to an even number with zero blocks.
    pub(crate) blocks: usize,
    /// Codes, four consecutive ones per token at a time.
    pub(crate) codes: Buf<i8>,
    /// Scales.
    pub(crate) scale: Buf<f32>,
    /// -1.5 * 2^23 times the scale.
    pub(crate) magic: Buf<f32>,
    /// The scale times the sum of the block's codes.
    pub(crate) scaled_sum: Buf<f32>,
    /// Sums of 16 codes, two per block.
    pub(crate) sums: Buf<i32>,
    /// Starting accumulators per offset class: magic bits minus offset times sum. The class with
    /// scales of 16 has two per block.
    pub(crate) start: [Buf<i32>; CLASSES],
    ready: [bool; CLASSES],
}

impl Act {
    /// Prepares `n` tokens of `cols` values for these matrices.
    ///
    /// # Errors
    /// `x` is not `n * cols` long, or a matrix has another number of columns.
    pub fn prepare(
        &mut self,
        pool: &Pool,
        x: &[f32],
        n: usize,
        cols: usize,
        for_: &[&Matrix],
    ) -> Result<(), KernelError> {
        let total = n.checked_mul(cols).ok_or(KernelError::TooLarge("the activations"))?;
        expect_len("activations", total, x.len())?;
        for matrix in for_ {
            expect_len("columns of the matrix", cols, matrix.cols())?;
        }
        self.n = n;
        self.cols = cols;
        self.has_floats = false;
        let (mut rows, mut tiles) = ([false; CLASSES], [false; CLASSES]);
        for matrix in for_ {
            match matrix.need(pool.isa()) {
                Need::Floats => self.has_floats = true,
                Need::Rows(class) => mark(&mut rows, class),
                // One token is its own tile.
                Need::Tiles(class) if n <= 1 => mark(&mut rows, class),
                Need::Tiles(class) => mark(&mut tiles, class),
            }
        }
        if self.has_floats {
            self.floats.resize(total).copy_from_slice(x);
        }
        self.rows.prepare(pool, x, n, cols, 1, rows);
        self.tiles.prepare(pool, x, n, cols, tile_width(n), tiles);
        Ok(())
    }

    /// Number of tokens.
    pub fn tokens(&self) -> usize {
        self.n
    }

    /// Values per token.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The floats of some tokens, if they were prepared.
    pub(crate) fn floats(&self, tokens: std::ops::Range<usize>) -> Option<&[f32]> {
        if !self.has_floats {
            return None;
        }
        self.floats.as_slice().get(tokens.start * self.cols..tokens.end * self.cols)
    }

    /// The integers a matrix of this need takes.
    pub(crate) fn quantised(&self, need: Need) -> Option<&Quantised> {
        let (from, class) = match need {
            Need::Floats => return None,
            Need::Rows(class) => (&self.rows, class),
            Need::Tiles(class) if self.n <= 1 => (&self.rows, class),
            Need::Tiles(class) => (&self.tiles, class),
        };
        (from.width > 0 && from.ready.get(class).copied().unwrap_or(false)).then_some(from)
    }
}

fn mark(set: &mut [bool; CLASSES], class: usize) {
    if let Some(slot) = set.get_mut(class) {
        *slot = true;
    }
}

/// Tokens per tile for a batch of `n`.
pub(crate) fn tile_width(n: usize) -> usize {
    if n <= 8 { n } else { 6 }
}

impl Quantised {
    fn prepare(
        &mut self,
        pool: &Pool,
        x: &[f32],
        n: usize,
        cols: usize,
        width: usize,
        classes: [bool; CLASSES],
    ) {
        self.ready = classes;
        self.width = 0;
        if width == 0 || !classes.contains(&true) {
            return;
        }
        self.width = width;
        // Only whole blocks are quantised; the types that use them have rows of whole blocks.
        let whole = cols / 32;
        self.blocks = whole.next_multiple_of(2);
        let tiles = n.div_ceil(width);
        let total = tiles * self.blocks * width;
        let codes = Parts::new(self.codes.resize(total * 32));
        let scale = Parts::new(self.scale.resize(total));
        let magic = Parts::new(self.magic.resize(total));
        let scaled_sum = Parts::new(self.scaled_sum.resize(total));
        let sums = Parts::new(self.sums.resize(total * 2));
        let mut start = Vec::with_capacity(CLASSES);
        for (class, buf) in self.start.iter_mut().enumerate() {
            let wanted = classes.get(class).copied().unwrap_or(false);
            let per_block = if class == CLASSES - 1 { 2 } else { 1 };
            start.push(Parts::new(buf.resize(if wanted { total * per_block } else { 0 })));
        }
        let view = TileView {
            x,
            n,
            cols,
            width,
            whole,
            blocks: self.blocks,
            codes,
            scale,
            magic,
            scaled_sum,
            sums,
            start,
            isa: pool.isa(),
        };
        // About 4096 values are worth a chunk of their own.
        let chunk = (4096 / (cols.max(1) * width)).max(1);
        pool.chunks(tiles, chunk, &|_, range| {
            BLOCKS.with_borrow_mut(|quantised| {
                quantised.resize(view.blocks, Block::ZERO);
                for tile in range {
                    view.fill(tile, quantised);
                }
            });
        });
    }
}

thread_local! {
    /// One quantised row.
    static BLOCKS: RefCell<Blocks> = const { RefCell::new(Vec::new()) };
}

/// The arrays of a [`Quantised`] while tiles are filled in parallel.
struct TileView<'a> {
    x: &'a [f32],
    n: usize,
    cols: usize,
    width: usize,
    whole: usize,
    blocks: usize,
    codes: Parts<'a, i8>,
    scale: Parts<'a, f32>,
    magic: Parts<'a, f32>,
    scaled_sum: Parts<'a, f32>,
    sums: Parts<'a, i32>,
    start: Vec<Parts<'a, i32>>,
    isa: Isa,
}

impl TileView<'_> {
    #[allow(unsafe_code, reason = "each tile is filled by one worker")]
    #[allow(clippy::indexing_slicing, reason = "indices stay inside the tile's slices")]
    fn fill(&self, tile: usize, quantised: &mut [Block]) {
        let (width, blocks) = (self.width, self.blocks);
        let cells = blocks * width;
        let at = tile * cells;
        // SAFETY: ranges of different tiles do not overlap, and each tile has one worker.
        let (codes, scale, magic, scaled_sum, sums) = unsafe {
            (
                self.codes.part(at * 32..(at + cells) * 32),
                self.scale.part(at..at + cells),
                self.magic.part(at..at + cells),
                self.scaled_sum.part(at..at + cells),
                self.sums.part(at * 2..(at + cells) * 2),
            )
        };
        for token in 0..width {
            let row = tile * width + token;
            let end = row * self.cols + self.whole * 32;
            let values = if row < self.n { &self.x[row * self.cols..end] } else { &[][..] };
            quantize_row_on(self.isa, values, quantised);
            for (block, q) in quantised.iter().enumerate() {
                for (unit, four) in q.codes.as_chunks::<4>().0.iter().enumerate() {
                    let to = ((block * 8 + unit) * width + token) * 4;
                    codes[to..to + 4].copy_from_slice(four);
                }
                let cell = block * width + token;
                scale[cell] = q.scale;
                magic[cell] = -MAGIC * q.scale;
                scaled_sum[cell] = q.scale * (q.sums[0] + q.sums[1]) as f32;
                sums[2 * block * width + token] = q.sums[0];
                sums[(2 * block + 1) * width + token] = q.sums[1];
            }
        }
        for (class, (start, offset)) in self.start.iter().zip(CLASS_OFFSETS).enumerate() {
            if class == CLASSES - 1 {
                // SAFETY: as above; an unwanted class has no elements.
                if let Some(start) = unsafe { start.try_part(at * 2..(at + cells) * 2) } {
                    for (s, sum) in start.iter_mut().zip(&*sums) {
                        *s = MAGIC_BITS - offset * sum;
                    }
                }
            // SAFETY: as above.
            } else if let Some(start) = unsafe { start.try_part(at..at + cells) } {
                for (cell, s) in start.iter_mut().enumerate() {
                    let (block, token) = (cell / width, cell % width);
                    let first = 2 * block * width + token;
                    *s = MAGIC_BITS - offset * (sums[first] + sums[first + width]);
                }
            }
        }
    }
}
