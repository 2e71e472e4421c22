//! The logits of one row, and beside them the largest of every [`BLOCK`].
//!
//! The threads that computed the logits look at them once more while they are in their caches. What
//! chooses a token then reads a few hundred peaks and the few blocks that matter, and not a quarter
//! of a million numbers; it finds exactly what it would have found among all.

use gristmill_core::Result;
use gristmill_kernels::ops;

use crate::nonfinite;

/// Logits that share a peak. 256: a vocabulary of 262,144 has 1024 peaks, 4 KiB, and a block is a
/// few vector instructions.
pub const BLOCK: usize = 256;

/// A row of logits.
#[derive(Debug)]
pub struct Logits<'a> {
    values: &'a mut [f32],
    peaks: &'a mut [f32],
}

impl<'a> Logits<'a> {
    /// Of these values; the peaks are found here, and kept in `room`.
    pub fn new(values: &'a mut [f32], room: &'a mut Vec<f32>) -> Self {
        room.clear();
        room.resize(peaks(values.len()), 0.0);
        ops::peaks(values, BLOCK, room);
        Self { values, peaks: room }
    }

    /// With peaks that have been found.
    pub(crate) fn with(values: &'a mut [f32], peaks: &'a mut [f32]) -> Self {
        Self { values, peaks }
    }

    /// All of them, by token.
    #[must_use]
    pub fn values(&self) -> &[f32] {
        self.values
    }

    /// Changes one; a token beyond the vocabulary is nothing.
    pub fn change(&mut self, token: u32, to: impl FnOnce(f32) -> f32) {
        let token = token as usize;
        let Some(value) = self.values.get_mut(token) else { return };
        *value = to(*value);
        let first = token - token % BLOCK;
        let block = self.values.get(first..self.values.len().min(first + BLOCK));
        if let (Some(block), Some(peak)) = (block, self.peaks.get_mut(token / BLOCK)) {
            ops::peaks(block, BLOCK, std::slice::from_mut(peak));
        }
    }

    /// The largest, and the lowest token that has it.
    ///
    /// # Errors
    /// `non-finite` when one is no finite number, or when there are none.
    pub fn largest(&self) -> Result<(u32, f32)> {
        let sound = self.peaks.iter().all(|peak| peak.is_finite());
        let best = ops::argmax(self.peaks).filter(|_| sound).and_then(|block| {
            let peak = *self.peaks.get(block)?;
            let (first, values) = self.block(block)?;
            let place = values.iter().position(|value| *value == peak)?;
            Some((first + u32::try_from(place).ok()?, peak))
        });
        best.ok_or_else(|| {
            let bad = self.values.iter().position(|value| !value.is_finite());
            let found = bad.and_then(|bad| self.values.get(bad)).copied().unwrap_or(f32::NAN);
            nonfinite::logits(bad.unwrap_or_default(), found)
        })
    }

    /// The `k` largest with their tokens, largest first, equals by token. `found` is cleared first.
    pub fn top_k(&self, k: usize, found: &mut Vec<(u32, f32)>) {
        found.clear();
        if k == 0 {
            return;
        }
        if k >= self.peaks.len() {
            return ops::top_k(self.values, k, found);
        }
        // As many blocks as tokens are wanted reach the peak of the k-th: so do the wanted tokens.
        found.extend((0..).zip(self.peaks.iter().copied()));
        let (_, &mut (_, least), _) =
            found.select_nth_unstable_by(k - 1, |a, b| b.1.total_cmp(&a.1));
        found.clear();
        found.extend(self.at_least(least));
        ops::keep_best(found, k);
    }

    /// Those that are no less, in order of tokens.
    pub fn at_least(&self, least: f32) -> impl Iterator<Item = (u32, f32)> {
        let blocks = self.peaks.iter().enumerate().filter(move |(_, peak)| **peak >= least);
        blocks.filter_map(|(block, _)| self.block(block)).flat_map(move |(first, values)| {
            (first..).zip(values.iter().copied()).filter(move |(_, value)| *value >= least)
        })
    }

    /// A block and its first token.
    fn block(&self, block: usize) -> Option<(u32, &[f32])> {
        let first = block * BLOCK;
        let values = self.values.get(first..self.values.len().min(first + BLOCK))?;
        Some((u32::try_from(first).ok()?, values))
    }
}

/// How many peaks so many logits have.
pub(crate) fn peaks(logits: usize) -> usize {
    logits.div_ceil(BLOCK)
}
