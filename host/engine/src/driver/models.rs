//! A model's changing state: running answers, idle caches, sessions, buffers; and its passes.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use arrayvec::ArrayVec;
use gristmill_core::{Code, Error, Result};
use gristmill_kernels::Pool;

use super::{
    Manner,
    sequence::{Held, Origin, Sequence, Start},
    sessions::Sessions,
};
use crate::{
    cache::Cache,
    core::{Core, PREFILL_ROWS},
    execute::{Arena, MOST_SEQUENCES, Model, Row, Want},
    memory::Memory,
    speculation::{Costs, MOST},
};

/// Idle caches kept per model.
const MOST_IDLE: usize = 16;
/// Tokens of answer a context has room for before it grows.
const AHEAD: usize = 256;

/// The context of an answer that is over.
struct Idle {
    held: Held,
    used: Instant,
}

/// One model's state.
pub(super) struct Slot {
    pub(super) core: Arc<Core>,
    pub(super) arena: Arena,
    running: Vec<Sequence>,
    idle: Vec<Idle>,
    pub(super) sessions: Sessions,
    finished: Vec<u64>,
    rows: Vec<Row>,
    /// Times of passes of a lone answer; none: nothing is guessed.
    costs: Option<Costs>,
    /// Whether prompts come in bulk.
    pub(super) bulk: bool,
}

impl Slot {
    pub(super) fn new(core: Arc<Core>, manner: Manner) -> Self {
        let arena = Arena::new(&core.plan, core.rows, core.wanted(manner.most));
        let rows = Vec::with_capacity(core.rows);
        // What a recurrent state has taken in cannot be taken out again.
        let guess = manner.guess && core.plan.program.recurrent.is_empty();
        Self {
            core,
            arena,
            running: Vec::new(),
            idle: Vec::new(),
            sessions: Sessions::default(),
            finished: Vec::new(),
            rows,
            costs: guess.then(Costs::default),
            bulk: manner.bulk,
        }
    }

    /// Answers that run.
    pub(super) fn active(&self) -> usize {
        self.running.len()
    }

    /// When the idle cache that was used longest ago was used.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.idle.iter().map(|idle| idle.used).min()
    }

    /// Drops it; whether there was one.
    pub(super) fn evict(&mut self) -> bool {
        let oldest = self.oldest();
        match self.idle.iter().position(|idle| Some(idle.used) == oldest) {
            Some(place) => {
                self.idle.swap_remove(place);
                true
            }
            None => false,
        }
    }

    /// Says how much memory its contexts have.
    pub(super) fn count(&self) {
        let running = self.running.iter().map(|sequence| sequence.held.memory.bytes());
        let idle = self.idle.iter().map(|idle| idle.held.memory.bytes());
        let bytes = running.chain(idle).sum::<u64>() + self.sessions.bytes();
        self.core.contexts.store(bytes, Ordering::Relaxed);
    }

    /// Milliseconds of the answers that ended since the last time.
    pub(super) fn take_finished(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.finished)
    }

    /// A cache for an answer: a session's own, or for a prompt the one that shares most of its
    /// beginning, or a new one. A cache most of which would be lost is copied from instead.
    pub(super) fn plan_cache(&mut self, start: &Start, memory: &Arc<Memory>) -> Result<Held> {
        let prompt = match &start.origin {
            Origin::Prompt(prompt) => prompt,
            Origin::Session(id) => return self.sessions.take(*id),
        };
        let tokens = prompt.len() + start.max_tokens.map_or(AHEAD, |most| most.min(AHEAD));
        let capacity =
            tokens.min(start.limit).max(prompt.len()).next_multiple_of(crate::cache::STEP);
        // At least one token must be read to have logits.
        let usable = prompt.len().saturating_sub(1);
        let best = self
            .idle
            .iter()
            .enumerate()
            .map(|(place, idle)| {
                let cache = &idle.held.cache;
                (place, cache.usable(cache.common(prompt).min(usable)))
            })
            .max_by_key(|(_, common)| *common)
            .filter(|(_, common)| *common > 0);
        if let Some((place, common)) = best
            && let Some(idle) = self.idle.get_mut(place)
        {
            if common * 2 >= idle.held.cache.len() {
                let mut idle = self.idle.swap_remove(place);
                idle.held.cache.truncate(common);
                return Ok(idle.held);
            }
            idle.used = Instant::now();
            let bytes = self.core.capacity.cache(capacity);
            let memory = memory.reserve(bytes, "a context")?;
            // The loop that makes room may have dropped it meanwhile.
            if let Some(idle) = self.idle.get(place) {
                let cache = idle.held.cache.copy(common, capacity)?;
                return Ok(Held { cache, memory });
            }
        }
        self.fresh(capacity, memory)
    }

    /// An empty cache.
    pub(super) fn fresh(&self, tokens: usize, memory: &Arc<Memory>) -> Result<Held> {
        let capacity = tokens.max(1).next_multiple_of(crate::cache::STEP);
        let memory = memory.reserve(self.core.capacity.cache(capacity), "a context")?;
        let cache = Cache::new(&self.core.plan, self.core.types, capacity)?;
        Ok(Held { cache, memory })
    }

    /// Begins an answer.
    pub(super) fn begin(&mut self, mut start: Box<Start>, mut held: Held) {
        let prompt = match &mut start.origin {
            Origin::Prompt(prompt) => std::mem::take(prompt),
            Origin::Session(id) => {
                // The last token is read again, for its logits.
                let mut tokens = held.cache.tokens().to_vec();
                tokens.extend(self.sessions.take_trailing(*id));
                held.cache.truncate(tokens.len().saturating_sub(1));
                tokens
            }
        };
        self.running.push(Sequence::new(*start, held, prompt));
    }

    /// Ends the answers nobody listens to. Their caches are freed, a session's goes back to it.
    pub(super) fn drop_cancelled(&mut self) {
        let mut index = 0;
        while let Some(sequence) = self.running.get(index) {
            if sequence.cancelled() {
                let sequence = self.running.swap_remove(index);
                self.give_back(sequence, false);
            } else {
                index += 1;
            }
        }
    }

    fn give_back(&mut self, sequence: Sequence, keep: bool) {
        let trailing = sequence.trailing();
        match sequence.session {
            Some(id) => self.sessions.put(id, sequence.held, trailing),
            None if keep => {
                self.idle.push(Idle { held: sequence.held, used: Instant::now() });
                if self.idle.len() > MOST_IDLE {
                    self.evict();
                }
            }
            None => {}
        }
    }

    /// Ends one answer with an error; its context is gone.
    pub(super) fn fail(&mut self, index: usize, error: Error) {
        if index < self.running.len() {
            let sequence = self.running.swap_remove(index);
            self.end_with(sequence, error);
        }
    }

    /// Ends an answer that runs no more with an error.
    pub(super) fn end_with(&mut self, sequence: Sequence, error: Error) {
        if let Some(id) = sequence.session {
            self.sessions.fail(id, &error);
        }
        sequence.sink.send(Err(error));
    }

    /// Ends all answers with an error.
    pub(super) fn fail_all(&mut self, error: &Error) {
        while !self.running.is_empty() {
            self.fail(0, error.clone());
        }
    }

    /// Guesses what comes next, if a lone answer is being written. With several, their rows already
    /// share the reading of the weights.
    pub(super) fn guess(&mut self) {
        if let (Some(costs), [sequence]) = (&self.costs, self.running.as_mut_slice())
            && sequence.sink.ready()
        {
            sequence.guess(costs, MOST.min(self.core.rows.saturating_sub(1)));
        }
    }

    /// Makes room in the caches that need it for their next tokens. The first that cannot, and why.
    pub(super) fn grow(&mut self, memory: &Arc<Memory>) -> Option<(usize, Error)> {
        let capacity = self.core.capacity;
        for (index, sequence) in self.running.iter_mut().enumerate() {
            let wanted = sequence.held.cache.len() + sequence.waiting().len();
            let grown = sequence.held.cache.grown(wanted, sequence.limit);
            if grown == sequence.held.cache.capacity() {
                continue;
            }
            let reserved = memory.reserve(capacity.cache(grown), "a growing context");
            let done = reserved.and_then(|memory| {
                sequence.held.cache.grow(grown)?;
                sequence.held.memory = memory;
                Ok(())
            });
            if let Err(error) = done {
                return Some((index, error));
            }
        }
        None
    }

    /// Whether every answer waits for its reader, who has been asked to say when it reads.
    pub(super) fn may_sleep(&self) -> bool {
        self.running.iter().all(|sequence| sequence.sink.starve())
    }

    /// Chooses the rows of the next pass: for each answer, how many of its waiting tokens.
    fn choose(&self) -> ArrayVec<(usize, usize), MOST_SEQUENCES> {
        let mut chosen = ArrayVec::new();
        let ready = |sequence: &&Sequence| sequence.sink.ready();
        let decoding =
            self.running.iter().filter(ready).filter(|sequence| sequence.decoding()).count();
        let mut budget = if decoding > 0 { self.core.mixed_rows } else { PREFILL_ROWS };
        for (index, sequence) in self.running.iter().enumerate() {
            if !sequence.sink.ready() || chosen.is_full() {
                continue;
            }
            if sequence.decoding() {
                chosen.push((index, sequence.waiting().len()));
            } else if budget > 0 {
                let count = sequence.waiting().len().min(budget);
                budget -= count;
                chosen.push((index, count));
            }
        }
        chosen
    }

    /// One pass over everything that can go on; whether there was anything.
    pub(super) fn pass(&mut self, pool: &Pool) -> bool {
        let chosen = self.choose();
        if chosen.is_empty() {
            return false;
        }
        let begun = Instant::now();
        let (mut guessed, lone) = (false, chosen.len() == 1);
        self.rows.clear();
        for (place, &(index, count)) in chosen.iter().enumerate() {
            let Some(sequence) = self.running.get(index) else { continue };
            let (waiting, decoding) = (sequence.waiting(), sequence.decoding());
            guessed |= decoding && count > 1;
            let first = sequence.held.cache.len();
            for (n, &token) in waiting.iter().take(count).enumerate() {
                let wanted = decoding || n + 1 == waiting.len();
                let bulk = self.bulk && !wanted;
                self.rows.push(Row { cache: place, position: first + n, token, wanted, bulk });
            }
        }
        let core = Arc::clone(&self.core);
        let done = core.weights().and_then(|weights| {
            let model = Model { plan: &core.plan, weights: &weights, pool };
            let mut sinks = ArrayVec::<_, MOST_SEQUENCES>::new();
            let mut caches = ArrayVec::<&mut Cache, MOST_SEQUENCES>::new();
            for (index, sequence) in self.running.iter_mut().enumerate() {
                if chosen.iter().any(|(other, _)| *other == index) {
                    caches.push(&mut sequence.held.cache);
                    sinks.push(&sequence.sink);
                }
            }
            let abandoned = || sinks.iter().all(|sink| sink.closed());
            let want = if guessed { Want::Steps } else { Want::Result };
            model.run_unless(&mut self.arena, &self.rows, &mut caches, want, &abandoned)
        });
        match done {
            Ok(()) => {}
            // Nobody listens any more: the next round drops them all.
            Err(error) if error.code == Code::Cancelled => return true,
            Err(error) => {
                for &(index, _) in chosen.iter().rev() {
                    self.fail(index, error.clone());
                }
                return true;
            }
        }
        let mut over: ArrayVec<(usize, Option<Error>), MOST_SEQUENCES> = ArrayVec::new();
        let mut nth = 0;
        let mut plain = lone;
        for (place, &(index, _)) in chosen.iter().enumerate() {
            let wanted = self.rows.iter().filter(|row| row.cache == place && row.wanted).count();
            let Some(sequence) = self.running.get_mut(index) else { continue };
            plain &= sequence.decoding();
            let first = nth;
            nth += wanted;
            if wanted == 0 {
                continue;
            }
            match sequence.settle(&mut self.arena, first..nth) {
                Ok(false) => {}
                Ok(true) => over.push((index, None)),
                Err(error) => over.push((index, Some(error))),
            }
        }
        if plain && let Some(costs) = &mut self.costs {
            costs.record(self.rows.len(), begun.elapsed().as_secs_f64());
        }
        // From the back, so that the places of the others stay.
        for (index, error) in over.into_iter().rev() {
            match error {
                Some(error) => {
                    let sequence = self.running.swap_remove(index);
                    self.damaged(pool, sequence, error);
                }
                None => {
                    let sequence = self.running.swap_remove(index);
                    self.finished.push(sequence.age());
                    self.give_back(sequence, true);
                }
            }
        }
        true
    }
}
