//! One running answer: what is still to be read, what was said, and how it ends.

use std::{
    ops::Range,
    sync::Arc,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use gristmill_core::{
    Error, Result,
    event::{Alternative, Event, Finish, Timings, TokenInfo, Usage},
};

use super::{Sink, Ticket};
use crate::{
    cache::Cache,
    constraint::{Allowed, Guard},
    core::Core,
    execute::Arena,
    logits::Logits,
    memory::Reservation,
    sampler::{Sampler, log_probabilities},
    speculation::{Costs, Lookup, Pace},
    text::{Assembler, Reading},
};

/// The logit of a token that may not come: finite, and without any weight beside others.
const REJECTED: f32 = -1e30;

/// Where an answer's context comes from.
pub(crate) enum Origin {
    /// A prompt of its own.
    Prompt(Vec<u32>),
    /// A session's.
    Session(u64),
}

/// An answer that waits to begin. Everything that can be refused has been.
pub(crate) struct Start {
    pub(crate) core: Arc<Core>,
    pub(crate) ticket: Ticket,
    pub(crate) sink: Sink,
    pub(crate) origin: Origin,
    pub(crate) sampler: Sampler,
    pub(crate) assembler: Assembler,
    /// What binds the answer.
    pub(crate) guard: Option<Guard>,
    /// Alternatives per token.
    pub(crate) logprobs: Option<usize>,
    pub(crate) max_tokens: Option<usize>,
    /// Tokens the context may have.
    pub(crate) limit: usize,
}

/// A cache and what it costs.
pub(crate) struct Held {
    pub(crate) cache: Cache,
    pub(crate) memory: Reservation,
}

/// An answer that runs.
pub(super) struct Sequence {
    core: Arc<Core>,
    /// Given back with the last event, so that who has read it finds the place free.
    ticket: Option<Ticket>,
    pub(super) sink: Sink,
    pub(super) held: Held,
    pub(super) session: Option<u64>,
    /// The whole prompt; its first tokens are in the cache.
    prompt: Vec<u32>,
    cached: usize,
    /// The token generated last, which is not yet in the cache, and guesses at what follows it: what
    /// is computed at once.
    ahead: Vec<u32>,
    /// Filled at the first guess.
    lookup: Option<Lookup>,
    pace: Pace,
    /// Tokens in the cache when the one that is being chosen was computed.
    resident: usize,
    sampler: Sampler,
    assembler: Assembler,
    guard: Option<Guard>,
    logprobs: Option<usize>,
    max_tokens: Option<usize>,
    pub(super) limit: usize,
    completion: usize,
    reasoning: usize,
    queued: Duration,
    begun: Instant,
    first: Option<Instant>,
    events: Vec<Event>,
}

impl Sequence {
    /// Begins with a cache that holds the first tokens of `prompt`.
    pub(super) fn new(start: Start, held: Held, prompt: Vec<u32>) -> Self {
        let mut sampler = start.sampler;
        for &token in &prompt {
            sampler.accept(token);
        }
        let session = match start.origin {
            Origin::Session(id) => Some(id),
            Origin::Prompt(_) => None,
        };
        Self {
            core: start.core,
            queued: start.ticket.issued.elapsed(),
            ticket: Some(start.ticket),
            sink: start.sink,
            cached: held.cache.len(),
            held,
            session,
            prompt,
            ahead: Vec::new(),
            lookup: None,
            pace: Pace::default(),
            resident: 0,
            sampler,
            assembler: start.assembler,
            guard: start.guard,
            logprobs: start.logprobs,
            max_tokens: start.max_tokens,
            limit: start.limit,
            completion: 0,
            reasoning: 0,
            begun: Instant::now(),
            first: None,
            events: Vec::new(),
        }
    }

    /// Tokens to be read next: one and the guesses at what follows when decoding, otherwise what is
    /// left of the prompt.
    pub(super) fn waiting(&self) -> &[u32] {
        if self.decoding() {
            return &self.ahead;
        }
        self.prompt.get(self.held.cache.len()..).unwrap_or_default()
    }

    /// Whether it writes rather than reads.
    pub(super) fn decoding(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// Whether anybody listens.
    pub(super) fn cancelled(&self) -> bool {
        self.sink.closed()
    }

    /// The token generated that the cache does not hold.
    pub(super) fn trailing(&self) -> Option<u32> {
        self.ahead.first().copied()
    }

    /// The whole answer's time so far, in milliseconds.
    pub(super) fn age(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Guesses at most `most` tokens, if that pays.
    pub(super) fn guess(&mut self, costs: &Costs, most: usize) {
        self.ahead.truncate(1);
        if !self.decoding() {
            return;
        }
        // The one after the last guess must still fit.
        let room = self.limit.saturating_sub(self.held.cache.len() + 2);
        let due = self.max_tokens.map_or(most, |all| all.saturating_sub(self.completion + 1));
        let context = self.held.cache.tokens().iter().chain(&self.ahead);
        let lookup = self.lookup.get_or_insert_with(|| Lookup::of(context));
        lookup.guess(most.min(room).min(due), &mut self.ahead);
        match self.ahead.len() - 1 {
            0 => {}
            most => self.ahead.truncate(1 + self.pace.depth(costs, most)),
        }
    }

    /// Chooses tokens from the logits of a pass, in order, as long as each is the one that was
    /// guessed; what was computed for other guesses is forgotten. Whether the answer is over.
    pub(super) fn settle(&mut self, arena: &mut Arena, logits: Range<usize>) -> Result<bool> {
        let computed = std::mem::take(&mut self.ahead);
        let guesses = computed.get(1..).unwrap_or_default();
        let guessed = logits.len() - 1;
        let base = self.held.cache.len() - guessed;
        let mut right = 0;
        let over = loop {
            self.resident = base + right;
            if self.advance(&mut arena.logits(logits.start + right))? {
                break true;
            }
            match guesses.get(right) {
                Some(guess) if right < guessed && self.trailing() == Some(*guess) => right += 1,
                _ => break false,
            }
        };
        if self.held.cache.truncate(base + right) != base + right {
            return Err(Error::internal("the context cannot go back past a wrong guess"));
        }
        self.pace.record(guessed, right);
        // All of a pass at once: the channel has room for one message more, not for one a token.
        if !over && !self.events.is_empty() {
            let events = std::mem::take(&mut self.events);
            self.sink.send(Ok(events));
        }
        Ok(over)
    }

    /// Every token whose logits were or are to be computed.
    pub(super) fn context(&self) -> Vec<u32> {
        let mut tokens = self.held.cache.tokens().to_vec();
        tokens.extend_from_slice(self.waiting());
        tokens
    }

    /// Chooses the next token from logits and notes what it means. Whether the answer is over.
    pub(super) fn advance(&mut self, logits: &mut Logits<'_>) -> Result<bool> {
        let begins = self.first.is_none();
        if begins {
            self.first = Some(Instant::now());
        }
        if self.max_tokens == Some(0) {
            self.end("length");
            return Ok(true);
        }
        let raw = self.logprobs.map(|count| (count, logits.values().to_vec()));
        let token = self.choose(logits)?;
        self.sampler.accept(token);
        if let Some(lookup) = &mut self.lookup {
            lookup.push(token);
        }
        self.ahead.clear();
        self.ahead.push(token);
        self.completion += 1;
        if self.assembler.reasoning() {
            self.reasoning += 1;
        }
        if self.core.ends_with(token) {
            let called = self.assembler.calls() > 0;
            self.end(if called { "tool-calls" } else { "stop" });
            return Ok(true);
        }
        let bytes = self.bytes(token);
        let mut bound = false;
        if let Some(guard) = &mut self.guard {
            bound = guard.binds();
            guard.accept(token, &bytes)?;
            bound |= guard.binds();
        }
        self.assembler.push(&bytes, bound, &mut self.events);
        if let Some((count, raw)) = raw {
            self.events.push(Event::Tokens(vec![self.info(token, &raw, count)]));
        }
        if self.assembler.ended() {
            let called = self.assembler.stopped().is_none();
            self.end(if called { "tool-calls" } else { "stop" });
            return Ok(true);
        }
        if self.guard.as_ref().is_some_and(Guard::over) {
            self.end("stop");
            return Ok(true);
        }
        let full = self.resident + 1 >= self.limit;
        if full || self.max_tokens.is_some_and(|most| self.completion >= most) {
            self.end("length");
            return Ok(true);
        }
        Ok(false)
    }

    /// Chooses a token among those that may come.
    fn choose(&mut self, logits: &mut Logits<'_>) -> Result<u32> {
        let Some(mut guard) = self.guard.take() else { return self.sampler.choose(logits) };
        let chosen = self.choose_bound(&mut guard, logits);
        self.guard = Some(guard);
        chosen
    }

    fn choose_bound(&mut self, guard: &mut Guard, logits: &mut Logits<'_>) -> Result<u32> {
        self.sampler.adjust(logits);
        let allowed = guard.allowed()?;
        // Each turn rejects one more token.
        for _ in 0..logits.values().len() {
            let token = match &allowed {
                Allowed::Only(mask) => self.sampler.choose_among(logits.values(), mask.iter())?,
                Allowed::All | Allowed::AllButEnds => self.sampler.pick(logits)?,
            };
            let right = match (self.core.ends_with(token), &allowed) {
                (true, Allowed::AllButEnds) => false,
                (true, _) => true,
                (false, _) => guard.admits(token, &self.bytes(token)),
            };
            if right {
                return Ok(token);
            }
            logits.change(token, |_| REJECTED);
        }
        Err(Error::internal("no token may come next"))
    }

    /// What a token adds to the text: marks are not shown unless the dialect reads them.
    fn bytes(&self, token: u32) -> Vec<u8> {
        let tokenizer = &self.core.tokenizer;
        let bytes = tokenizer.token_bytes(token).unwrap_or_default();
        if tokenizer.is_special(token)
            && !std::str::from_utf8(&bytes)
                .is_ok_and(|text| Reading::wants(&self.core.dialect, text))
        {
            return Vec::new();
        }
        bytes
    }

    fn info(&self, token: u32, raw: &[f32], count: usize) -> TokenInfo {
        let bytes = |id: u32| self.core.tokenizer.token_bytes(id).unwrap_or_default();
        let (logprob, likeliest) = log_probabilities(raw, token, count);
        let alternatives = likeliest
            .into_iter()
            .map(|(id, logprob)| Alternative { id, bytes: bytes(id), logprob })
            .collect();
        TokenInfo { id: token, bytes: bytes(token), logprob, alternatives }
    }

    fn end(&mut self, reason: &str) {
        let mut events = std::mem::take(&mut self.events);
        if reason == "length" {
            self.assembler.cut();
        }
        self.assembler.finish(&mut events);
        // Held-back text may only now have completed a call.
        let reason = match reason {
            "stop" if self.assembler.stopped().is_none() && self.assembler.calls() > 0 => {
                "tool-calls"
            }
            reason => reason,
        };
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        events.push(Event::Usage(Usage {
            prompt: count(self.prompt.len()),
            cached: count(self.cached),
            completion: count(self.completion),
            reasoning: count(self.reasoning),
            extras: match self.pace.drafted {
                0 => Vec::new(),
                drafted => vec![
                    ("drafted".to_owned(), drafted.to_string()),
                    ("accepted".to_owned(), self.pace.accepted.to_string()),
                ],
            },
        }));
        let us = |from: Instant, to: Instant| {
            u64::try_from(to.saturating_duration_since(from).as_micros()).unwrap_or(u64::MAX)
        };
        let now = Instant::now();
        let first = self.first.unwrap_or(now);
        events.push(Event::Timings(Timings {
            queue: u64::try_from(self.queued.as_micros()).unwrap_or(u64::MAX),
            load: self.core.load.swap(0, Ordering::Relaxed),
            prefill: us(self.begun, first),
            decode: us(first, now),
            extras: Vec::new(),
        }));
        let stop = self.assembler.stopped().map(str::to_owned);
        let stop = stop.filter(|stop| !self.core.end_texts.contains(stop));
        events.push(Event::Finish(Finish { reason: reason.to_owned(), stop }));
        self.ticket = None;
        self.sink.send(Ok(events));
    }
}
