//! Activations prepared for the kernels: as floats, and as 8-bit integers per 32 values.
//!
//! One quantiser serves every integer kernel: per block of 32 a scale `max|x| / 127`, codes, and
//! code sums that cancel the weights' offsets. The scale is rounded to 22 bits of mantissa, so
//! that 1.5 * 2^23 times it is exact: a kernel that starts its integer accumulator at the bit
//! pattern of 1.5 * 2^23 turns it into a scaled float with one exact-input FMA.

use std::cell::RefCell;

use crate::bulk::Bulk;
use crate::codec::codes::{CLASS, CLASSES, IntKind};
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
    /// The one for few tokens, the other for more than [`FEW`].
    Either(usize),
}

impl Need {
    /// Whether it depends on the number of tokens.
    pub(crate) fn is_either(self) -> bool {
        matches!(self, Need::Either(_))
    }
}

/// Tokens up to which rows that are not packed are met as they are, not unpacked first.
pub(crate) const FEW: usize = 8;

/// Activations of `n` tokens, quantised once for all the matrices they meet. Reusable: preparing
/// again reuses the memory.
#[derive(Default)]
pub struct Act {
    n: usize,
    cols: usize,
    floats: Buf<f32>,
    has_floats: bool,
    /// Tokens that came in bulk, if they are met by tiles, and then the others; empty if none did.
    order: Vec<u32>,
    /// The former.
    bulk: Bulk,
    /// The latter.
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
    /// The scale times the sums of 16 codes, two per block, if a class has minima of 16.
    pub(crate) scaled_halves: Buf<f32>,
    /// Sums of 16 codes, two per block.
    pub(crate) sums: Buf<i32>,
    /// Starting accumulators per offset class: magic bits minus offset times sum. Classes with
    /// scales of 16 have two per block.
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
        self.prepare_bulk(pool, x, n, &[], cols, for_)
    }

    /// [`Act::prepare`], where the tokens marked in `bulk` come in bulk, like those of a prompt:
    /// where there are tiles (AMX) they are rounded to bf16, weights too, and multiplied as such. It
    /// is closer to the exact product than 8-bit activations are, and not the same: which path a
    /// token takes is the caller's choice and never depends on its neighbours.
    ///
    /// # Errors
    /// As for [`Act::prepare`], or there are marks (if there are any) for another number of tokens.
    pub fn prepare_bulk(
        &mut self,
        pool: &Pool,
        x: &[f32],
        n: usize,
        bulk: &[bool],
        cols: usize,
        for_: &[&Matrix],
    ) -> Result<(), KernelError> {
        let total = n.checked_mul(cols).ok_or(KernelError::TooLarge("the activations"))?;
        expect_len("activations", total, x.len())?;
        if !bulk.is_empty() {
            expect_len("marks of tokens in bulk", n, bulk.len())?;
        }
        for matrix in for_ {
            expect_len("columns of the matrix", cols, matrix.cols())?;
        }
        self.n = n;
        self.cols = cols;
        self.has_floats = false;
        let whole = for_.iter().any(|matrix| matrix.quant().int_kind().is_some());
        let bulk = if pool.isa() >= Isa::Amx && whole { bulk } else { &[] };
        let count = bulk.iter().filter(|mark| **mark).count();
        self.order.clear();
        if count > 0 {
            let marked = |wanted| (0u32..).zip(bulk).filter(move |(_, mark)| **mark == wanted);
            self.order.extend(marked(true).chain(marked(false)).map(|(token, _)| token));
        }
        let (bulk, others) = self.order.split_at_checked(count).unwrap_or_default();
        let others = (count > 0).then_some(others);
        let single = n - count;
        let (mut rows, mut tiles) = ([false; CLASSES], [false; CLASSES]);
        for matrix in for_ {
            match matrix.need(pool.isa()) {
                Need::Floats => self.has_floats = true,
                Need::Rows(class) => mark(&mut rows, class),
                // One token is its own tile.
                Need::Tiles(class) if single <= 1 => mark(&mut rows, class),
                Need::Either(class) if single <= FEW => mark(&mut rows, class),
                Need::Tiles(class) | Need::Either(class) => mark(&mut tiles, class),
            }
        }
        if self.has_floats {
            self.floats.resize(total).copy_from_slice(x);
        }
        self.bulk.prepare(pool, x, bulk, cols);
        let source = Source { x, n: single, cols, order: others };
        self.rows.prepare(pool, source, 1, rows);
        self.tiles.prepare(pool, source, tile_width(pool.isa(), single), tiles);
        Ok(())
    }

    /// The first token that has a value that is no finite number, of those prepared.
    pub fn first_nonfinite(&self) -> Option<usize> {
        let floats = self.has_floats.then(|| {
            let finite = |x: &f32| x.is_finite();
            self.floats.as_slice().iter().position(|x| !finite(x)).map(|i| i / self.cols.max(1))
        });
        let scales = |q: &Quantised| {
            if q.width == 0 {
                return None;
            }
            let cells = q.scale.as_slice().iter().enumerate();
            let per_tile = (q.blocks * q.width).max(1);
            cells
                .filter(|(_, scale)| !scale.is_finite())
                .map(|(cell, _)| cell / per_tile * q.width + cell % q.width)
                .min()
        };
        let others = self.split().map(|(_, others)| others);
        let place = |token: usize| {
            others.and_then(|others| others.get(token)).map_or(token, |token| *token as usize)
        };
        let [rows, tiles] = [&self.rows, &self.tiles].map(|q| scales(q).map(place));
        [floats.flatten(), self.bulk.first_nonfinite(), rows, tiles].into_iter().flatten().min()
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

    /// The tokens that came in bulk, as a matrix that has integer kernels takes them.
    pub(crate) fn bulk(&self) -> &Bulk {
        &self.bulk
    }

    /// Which tokens those are, and which the others; nothing if none came in bulk.
    pub(crate) fn split(&self) -> Option<(&[u32], &[u32])> {
        match self.bulk.tokens() {
            0 => None,
            count => self.order.split_at_checked(count),
        }
    }

    /// The integers a matrix of this need takes, of the tokens after those that came in bulk.
    pub(crate) fn quantised(&self, need: Need) -> Option<&Quantised> {
        let single = self.n - self.bulk.tokens();
        let (from, class) = match need {
            Need::Floats => return None,
            Need::Rows(class) => (&self.rows, class),
            Need::Tiles(class) if single <= 1 => (&self.rows, class),
            Need::Either(class) if single <= FEW => (&self.rows, class),
            Need::Tiles(class) | Need::Either(class) => (&self.tiles, class),
        };
        (from.width > 0 && from.ready.get(class).copied().unwrap_or(false)).then_some(from)
    }
}

fn mark(set: &mut [bool; CLASSES], class: usize) {
    if let Some(slot) = set.get_mut(class) {
        *slot = true;
    }
}

/// Tokens per tile for a batch of `n`: what the registers of the instruction set hold.
pub(crate) fn tile_width(isa: Isa, n: usize) -> usize {
    match (isa, n) {
        (Isa::Avx512 | Isa::Amx, 0..=4) => n,
        (Isa::Avx512 | Isa::Amx, 7 | 8) => 8,
        (Isa::Avx512 | Isa::Amx, _) => 6,
        (_, 0..=2) => n,
        _ => 4,
    }
}

impl Quantised {
    /// The scaled sums that minima of this kind meet.
    pub(crate) fn sums(&self, kind: IntKind) -> &[f32] {
        if kind.sixteens { self.scaled_halves.as_slice() } else { self.scaled_sum.as_slice() }
    }

    fn prepare(&mut self, pool: &Pool, source: Source<'_>, width: usize, classes: [bool; CLASSES]) {
        let Source { n, cols, .. } = source;
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
        let halves = classes.iter().zip(CLASS).any(|(on, c)| *on && c.has_min && c.sixteens);
        let scaled_halves =
            Parts::new(self.scaled_halves.resize(if halves { total * 2 } else { 0 }));
        let mut start = Vec::with_capacity(CLASSES);
        for (class, buf) in self.start.iter_mut().enumerate() {
            let wanted = classes.get(class).copied().unwrap_or(false);
            let per_block = if CLASS.get(class).is_some_and(|c| c.sixteens) { 2 } else { 1 };
            start.push(Parts::new(buf.resize(if wanted { total * per_block } else { 0 })));
        }
        let view = TileView {
            source,
            width,
            whole,
            blocks: self.blocks,
            codes,
            scale,
            magic,
            scaled_sum,
            scaled_halves,
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

/// Rows to quantise.
#[derive(Clone, Copy)]
struct Source<'a> {
    x: &'a [f32],
    /// How many.
    n: usize,
    cols: usize,
    /// Which, if not the first ones.
    order: Option<&'a [u32]>,
}

impl Source<'_> {
    /// The first `len` values of row `row`; nothing past the last row.
    fn row(&self, row: usize, len: usize) -> &[f32] {
        if row >= self.n {
            return &[];
        }
        let row = self.order.and_then(|order| order.get(row)).map_or(row, |row| *row as usize);
        self.x.get(row * self.cols..row * self.cols + len).unwrap_or_default()
    }
}

/// The arrays of a [`Quantised`] while tiles are filled in parallel.
struct TileView<'a> {
    source: Source<'a>,
    width: usize,
    whole: usize,
    blocks: usize,
    codes: Parts<'a, i8>,
    scale: Parts<'a, f32>,
    magic: Parts<'a, f32>,
    scaled_sum: Parts<'a, f32>,
    scaled_halves: Parts<'a, f32>,
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
            let values = self.source.row(tile * width + token, self.whole * 32);
            quantize_row_on(self.isa, values, quantised);
            let places = codes.as_chunks_mut::<4>().0.chunks_exact_mut(8 * width);
            for ((block, q), places) in quantised.iter().enumerate().zip(places) {
                for (unit, four) in q.codes.as_chunks::<4>().0.iter().enumerate() {
                    places[unit * width + token] = *four;
                }
                let cell = block * width + token;
                scale[cell] = q.scale;
                magic[cell] = -MAGIC * q.scale;
                scaled_sum[cell] = q.scale * (q.sums[0] + q.sums[1]) as f32;
                sums[2 * block * width + token] = q.sums[0];
                sums[(2 * block + 1) * width + token] = q.sums[1];
            }
        }
        // SAFETY: as above; if no class wants them there are no elements.
        if let Some(halves) = unsafe { self.scaled_halves.try_part(at * 2..(at + cells) * 2) } {
            let of_blocks = halves.chunks_exact_mut(2 * width).zip(sums.chunks_exact(2 * width));
            for ((halves, sums), scale) in of_blocks.zip(scale.chunks_exact(width)) {
                let ((low, high), sums) = (halves.split_at_mut(width), sums.split_at(width));
                for (halves, sums) in [(low, sums.0), (high, sums.1)] {
                    for ((half, sum), scale) in halves.iter_mut().zip(sums).zip(scale) {
                        *half = scale * *sum as f32;
                    }
                }
            }
        }
        for (start, class) in self.start.iter().zip(CLASS) {
            let offset = class.offset;
            if class.sixteens {
                // SAFETY: as above; an unwanted class has no elements.
                if let Some(start) = unsafe { start.try_part(at * 2..(at + cells) * 2) } {
                    for (s, sum) in start.iter_mut().zip(&*sums) {
                        *s = MAGIC_BITS - offset * sum;
                    }
                }
            // SAFETY: as above.
            } else if let Some(start) = unsafe { start.try_part(at..at + cells) } {
                for (start, sums) in start.chunks_exact_mut(width).zip(sums.chunks_exact(2 * width))
                {
                    let (low, high) = sums.split_at(width);
                    for ((s, low), high) in start.iter_mut().zip(low).zip(high) {
                        *s = MAGIC_BITS - offset * (low + high);
                    }
                }
            }
        }
    }
}
