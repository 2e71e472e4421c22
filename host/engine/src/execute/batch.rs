//! The rows of a pass and the buffers it works in.

use gristmill_core::{Error, Result};
use gristmill_kernels::{Act, ops::Rotations};

use super::{MOST_SEQUENCES, mixture::Mixture};
use crate::{
    logits::{self, Logits},
    plan::{Plan, Slot},
    program,
};

/// One token of one sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Which of the pass's caches it belongs to.
    pub cache: usize,
    /// Its position.
    pub position: usize,
    /// The token.
    pub token: u32,
    /// Whether its logits are wanted.
    pub wanted: bool,
    /// Whether it comes in bulk, with others of its prompt: where there are tiles it is computed by
    /// them. A matter of the row alone, so that no row notices its neighbours.
    pub bulk: bool,
}

/// What a pass is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// Logits of the rows that want them (or an encoder's vectors).
    Result,
    /// Logits of the rows that want them, each as if its row were computed in a pass of its own.
    Steps,
    /// The hidden state of every row, before the head.
    Hidden,
}

/// A pass's rows in the order in which attention takes each for itself, and room for them.
///
/// The kernel takes neighbouring rows of a sequence together, and sums in another order then; given
/// last first, none are neighbours. Rows in bulk are computed apart anyway, and fastest as neighbours.
#[derive(Default)]
pub(super) struct Apart {
    pub(super) order: Vec<usize>,
    pub(super) places: Vec<(usize, usize)>,
    pub(super) bulk: Vec<bool>,
    pub(super) queries: Vec<f32>,
    pub(super) results: Vec<f32>,
}

impl Apart {
    fn sort(&mut self, rows: &[Row]) {
        self.order.clear();
        self.places.clear();
        self.bulk.clear();
        let marked = |bulk: bool| rows.iter().enumerate().filter(move |(_, row)| row.bulk == bulk);
        for (index, row) in marked(true).chain(marked(false).rev()) {
            self.order.push(index);
            self.places.push((row.cache, row.position));
            self.bulk.push(row.bulk);
        }
    }
}

/// The buffers of a pass, as large as the largest pass so far needed them: a chunk of a prompt may have
/// hundreds of rows, and many models only ever see short prompts.
#[derive(Default)]
pub struct Arena {
    pub(super) slots: Vec<Vec<f32>>,
    pub(super) act: Act,
    pub(super) mixture: Mixture,
    pub(super) rotations: Vec<Rotations>,
    pub(super) positions: Vec<usize>,
    /// Cache and position of every row, as attention wants them.
    pub(super) places: Vec<(usize, usize)>,
    /// Rows whose logits are wanted.
    kept: Vec<usize>,
    /// Which of the current rows come in bulk.
    pub(super) bulk: Vec<bool>,
    pub(super) row: Vec<f32>,
    pub(super) result: Vec<f32>,
    /// The largest of every block of logits.
    pub(super) peaks: Vec<f32>,
    /// Rows the next phase works on.
    pub(super) current: usize,
    /// Whether each row is computed as if it were alone, and how then.
    pub(super) alone: bool,
    pub(super) apart: Apart,
    rows: usize,
    wanted: usize,
    vocabulary: usize,
    /// Bytes of all buffers for the largest batch.
    most: u64,
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Arena({} rows, {} wanted)", self.rows, self.wanted)
    }
}

impl Arena {
    /// Buffers for passes of at most `rows` rows of which `wanted` want logits.
    #[must_use]
    pub fn new(plan: &Plan, rows: usize, wanted: usize) -> Self {
        let vocabulary = match plan.program.result {
            program::Result::Logits => plan.program.vocabulary,
            program::Result::Pooled => 0,
        };
        let floats = plan.slots.iter().sum::<usize>() * rows
            + (vocabulary + logits::peaks(vocabulary)) * wanted;
        Self {
            slots: plan.slots.iter().map(|_| Vec::new()).collect(),
            rotations: plan.ropes.iter().map(|_| Rotations::default()).collect(),
            positions: Vec::with_capacity(rows),
            places: Vec::with_capacity(rows),
            kept: Vec::with_capacity(rows),
            bulk: Vec::with_capacity(rows),
            rows,
            wanted,
            vocabulary,
            most: floats as u64 * 4 + plan.mixture_row() * rows as u64,
            ..Self::default()
        }
    }

    /// Rows a pass may have.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of all buffers once the largest pass has run, without the quantised activations.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.most
    }

    /// Logits of the `n`-th row that wanted them, in order of rows.
    #[must_use]
    pub fn logits(&mut self, n: usize) -> Logits<'_> {
        let (width, peaks) = (self.vocabulary, logits::peaks(self.vocabulary));
        Logits::with(
            self.result.get_mut(n * width..(n + 1) * width).unwrap_or_default(),
            self.peaks.get_mut(n * peaks..(n + 1) * peaks).unwrap_or_default(),
        )
    }

    /// Everything the pass was for: logits of wanted rows, or pooled vectors.
    #[must_use]
    pub fn result(&self) -> &[f32] {
        if self.vocabulary == 0 {
            return &self.result;
        }
        self.result.get(..self.kept.len() * self.vocabulary).unwrap_or_default()
    }

    /// Hidden states of all rows after a pass with [`Want::Hidden`].
    ///
    /// # Errors
    /// `internal` when there are fewer.
    pub fn hidden(&self, plan: &Plan) -> Result<&[f32]> {
        let (slot, width) = plan.hidden();
        self.slot(slot, self.current * width)
    }

    pub(super) fn begin(
        &mut self,
        plan: &Plan,
        rows: &[Row],
        caches: usize,
        want: Want,
    ) -> Result<()> {
        let all = want == Want::Hidden || plan.program.result == program::Result::Pooled;
        self.positions.clear();
        self.places.clear();
        self.kept.clear();
        self.bulk.clear();
        self.bulk.extend(rows.iter().map(|row| row.bulk));
        for (index, row) in rows.iter().enumerate() {
            self.positions.push(row.position);
            self.places.push((row.cache, row.position));
            if row.wanted || all {
                self.kept.push(index);
            }
        }
        let wanted = if all { 0 } else { self.kept.len() };
        if rows.len() > self.rows || wanted > self.wanted || caches > MOST_SEQUENCES {
            return Err(Error::internal(format!(
                "a pass of {} rows, {wanted} wanted, {caches} sequences: expected at most {}, {}, {MOST_SEQUENCES}",
                rows.len(),
                self.rows,
                self.wanted
            )));
        }
        if let Some(row) = rows.iter().find(|row| row.token as usize >= plan.program.vocabulary) {
            return Err(Error::invalid(format!(
                "token {}: expected one below {}",
                row.token, plan.program.vocabulary
            )));
        }
        for (slot, width) in self.slots.iter_mut().zip(&plan.slots) {
            grow(slot, *width, rows.len(), self.rows);
        }
        if self.vocabulary > 0 {
            grow(&mut self.result, self.vocabulary, wanted, self.wanted);
            grow(&mut self.peaks, logits::peaks(self.vocabulary), wanted, self.wanted);
        }
        self.current = rows.len();
        self.alone = want == Want::Steps;
        if self.alone {
            self.apart.sort(rows);
        }
        Ok(())
    }

    /// Keeps the wanted rows of these slots, in order.
    pub(super) fn narrow(&mut self, live: &[(Slot, usize)]) -> Result<()> {
        if self.kept.len() == self.current {
            return Ok(());
        }
        for &(slot, width) in live {
            let data = self.slots.get_mut(slot).ok_or_else(too_small)?;
            for (to, &from) in self.kept.iter().enumerate() {
                data.copy_within(from * width..(from + 1) * width, to * width);
            }
        }
        for (to, &from) in self.kept.iter().enumerate() {
            if let Some(&position) = self.positions.get(from)
                && let Some(place) = self.positions.get_mut(to)
            {
                *place = position;
            }
        }
        self.positions.truncate(self.kept.len());
        self.bulk.truncate(self.kept.len());
        self.bulk.fill(false);
        self.current = self.kept.len();
        Ok(())
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.slots.iter_mut().for_each(|slot| slot.fill(0.0));
        self.result.fill(0.0);
    }

    /// Whether all numbers of the first `rows` rows are finite, with those of wanted logits.
    pub(super) fn finite(&self, plan: &Plan) -> bool {
        let logits = self.kept.len() * self.vocabulary;
        let slots = self.slots.iter().zip(&plan.slots);
        slots
            .filter_map(|(slot, width)| slot.get(..width * self.current))
            .chain(self.result.get(..logits))
            .all(|numbers| numbers.iter().all(|x| x.is_finite()))
    }

    pub(super) fn slot(&self, slot: Slot, len: usize) -> Result<&[f32]> {
        self.slots.get(slot).and_then(|data| data.get(..len)).ok_or_else(too_small)
    }

    pub(super) fn slot_mut(&mut self, slot: Slot, len: usize) -> Result<&mut [f32]> {
        self.slots.get_mut(slot).and_then(|data| data.get_mut(..len)).ok_or_else(too_small)
    }

    /// One slot to read and another to write.
    pub(super) fn pair(
        &mut self,
        read: Slot,
        read_len: usize,
        write: Slot,
        write_len: usize,
    ) -> Result<(&[f32], &mut [f32])> {
        let [read, write] = self.slots.get_disjoint_mut([read, write]).map_err(|_| too_small())?;
        match (read.get(..read_len), write.get_mut(..write_len)) {
            (Some(read), Some(write)) => Ok((read, write)),
            _ => Err(too_small()),
        }
    }

    /// Copies a slot into another, unless it is the same.
    pub(super) fn copy(&mut self, from: Slot, to: Slot, len: usize) -> Result<()> {
        if from != to {
            let (from, to) = self.pair(from, len, to, len)?;
            to.copy_from_slice(from);
        }
        Ok(())
    }
}

/// Room for `rows` rows, and for a few more at once, so that passes of ever other lengths do not each take new
/// memory. What was there is of a pass that is over.
fn grow(buffer: &mut Vec<f32>, width: usize, rows: usize, most: usize) {
    if buffer.len() < width * rows {
        *buffer = Vec::new();
        *buffer = vec![0.0; width * rows.next_power_of_two().min(most)];
    }
}

fn too_small() -> Error {
    Error::internal("a buffer is smaller than the plan says")
}
