//! Texts to vectors, a stretch of one text a round.

use std::sync::Arc;

use gristmill_core::{Error, Result};
use gristmill_kernels::Pool;
use tokio::sync::oneshot;

use super::{Driver, Ticket, models::Slot, sequence::Held};
use crate::{
    core::{Core, PREFILL_ROWS},
    execute::{Model, Row, Want},
    program::Pooling,
};

/// Texts that wait to be read.
pub(crate) struct Embedding {
    pub(crate) core: Arc<Core>,
    /// Tokens of each text, none empty, none longer than the model reads.
    pub(crate) texts: Vec<Vec<u32>>,
    pub(crate) reply: Option<oneshot::Sender<Result<Vec<Vec<f32>>>>>,
    /// Its place among the running and waiting, held until it is over.
    pub(crate) ticket: Option<Ticket>,
    pub(crate) work: Work,
}

/// How far it has come.
#[derive(Default)]
pub(crate) struct Work {
    done: Vec<Vec<f32>>,
    held: Option<Held>,
    sum: Vec<f64>,
}

impl Embedding {
    pub(super) fn cancelled(&self) -> bool {
        self.reply.as_ref().is_none_or(oneshot::Sender::is_closed)
    }
}

impl Driver {
    /// One pass for the texts that wait longest; whether there were any.
    pub(super) fn embed_some(&mut self) -> bool {
        let Some(mut embedding) = self.embeddings.pop_front() else { return false };
        let core = Arc::clone(&embedding.core);
        let place = self.slot(&core);
        match self.embed_step(place, &mut embedding) {
            Ok(false) => self.embeddings.push_front(embedding),
            Ok(true) => {
                let vectors = std::mem::take(&mut embedding.work.done);
                embedding.ticket = None;
                if let Some(reply) = embedding.reply.take() {
                    // Whoever asked may be gone.
                    let _ = reply.send(Ok(vectors));
                }
            }
            Err(error) => {
                if let Some(reply) = embedding.reply.take() {
                    let _ = reply.send(Err(error));
                }
            }
        }
        true
    }

    /// Whether all texts are done.
    fn embed_step(&mut self, place: usize, embedding: &mut Embedding) -> Result<bool> {
        let Some(text) = embedding.texts.get(embedding.work.done.len()) else { return Ok(true) };
        let mut held = match embedding.work.held.take() {
            Some(held) => held,
            None => self.with_room(place, |slot, memory| slot.fresh(text.len(), memory))?,
        };
        let pool = &self.pool;
        let slot = self.slots.get_mut(place).ok_or_else(|| Error::internal("no such model"))?;
        let most = match (embedding.core.encodes(), slot.active() > 0) {
            (true, _) => text.len(),
            (false, true) => embedding.core.mixed_rows,
            (false, false) => PREFILL_ROWS,
        };
        let vector = slot.embed_part(pool, text, most, &mut held, &mut embedding.work.sum)?;
        if let Some(vector) = vector {
            embedding.work.done.push(vector);
            embedding.work.sum.clear();
        } else {
            embedding.work.held = Some(held);
        }
        Ok(embedding.work.done.len() == embedding.texts.len())
    }
}

impl Slot {
    /// One stretch of a text; the vector, once all of it is read.
    fn embed_part(
        &mut self,
        pool: &Pool,
        text: &[u32],
        most: usize,
        held: &mut Held,
        sum: &mut Vec<f64>,
    ) -> Result<Option<Vec<f32>>> {
        let core = Arc::clone(&self.core);
        let first = held.cache.len();
        let bulk = self.bulk;
        let rows: Vec<Row> = text
            .iter()
            .enumerate()
            .skip(first)
            .take(most)
            .map(|(position, &token)| Row { cache: 0, position, token, wanted: false, bulk })
            .collect();
        let weights = core.weights()?;
        let model = Model { plan: &core.plan, weights: &weights, pool };
        let want = if core.encodes() { Want::Result } else { Want::Hidden };
        model.run(&mut self.arena, &rows, &mut [&mut held.cache], want)?;
        if core.encodes() {
            if self.arena.result().iter().any(|x| !x.is_finite()) {
                return Err(self.diagnose(pool, text, &mut held.cache));
            }
            return Ok(Some(self.arena.result().to_vec()));
        }
        let width = core.plan.hidden().1;
        sum.resize(width, 0.0);
        let hidden = self.arena.hidden(&core.plan)?;
        for (row, hidden) in rows.iter().zip(hidden.chunks_exact(width)) {
            let share = match core.plan.program.pooling {
                Pooling::Mean => 1.0 / text.len() as f64,
                Pooling::Cls => f64::from(u8::from(row.position == 0)),
                Pooling::Last => f64::from(u8::from(row.position + 1 == text.len())),
            };
            for (sum, x) in sum.iter_mut().zip(hidden) {
                *sum += f64::from(*x) * share;
            }
        }
        let over = first + rows.len() == text.len();
        if sum.iter().any(|x| !x.is_finite()) {
            return Err(self.diagnose(pool, text, &mut held.cache));
        }
        Ok(over.then(|| sum.iter().map(|x| *x as f32).collect()))
    }
}
