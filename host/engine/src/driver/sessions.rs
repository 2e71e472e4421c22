//! Sessions: contexts that stay between answers, driven step by step.
//!
//! A session's cache is its own. While an answer runs it is lent to it; a failure during that time
//! is final. What a session's answers generate stays in it; tokens that are not yet in the cache
//! (the last of an answer) are read with whatever comes next.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use gristmill_core::{Code, Error, Result};
use gristmill_kernels::Pool;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{Driver, models::Slot, sequence::Held};
use crate::{
    core::{Core, PREFILL_ROWS},
    execute::{Model, Row, Want},
    memory::Memory,
    random::Random,
    runtime::PrefixStatus,
};

type Reply<T> = oneshot::Sender<Result<T>>;

/// What a session is told.
pub(crate) enum SessionCommand {
    Open {
        limit: usize,
        reply: Reply<()>,
    },
    /// Makes the context these tokens, or with `append` adds them.
    Read {
        tokens: Vec<u32>,
        append: bool,
        reply: Reply<PrefixStatus>,
    },
    Snapshot(Reply<String>),
    Restore(String, Reply<PrefixStatus>),
    Fork(u64, Reply<()>),
    Explain(Reply<Value>),
    Close,
}

/// One session.
pub(super) struct State {
    /// None while an answer uses it.
    held: Option<Held>,
    /// Generated and not in the cache.
    trailing: Vec<u32>,
    fatal: Option<String>,
    limit: usize,
    reused: u64,
    prefilled: u64,
    answers: u64,
}

struct Snapshot {
    owner: u64,
    held: Held,
    trailing: Vec<u32>,
}

/// Tokens a session is reading.
struct Reading {
    session: u64,
    target: Vec<u32>,
    status: PrefixStatus,
    reply: Reply<PrefixStatus>,
}

/// All sessions of a model.
#[derive(Default)]
pub(super) struct Sessions {
    states: HashMap<u64, State>,
    snapshots: HashMap<String, Snapshot>,
    reading: VecDeque<Reading>,
}

impl State {
    fn usable(&mut self) -> Result<&mut Held> {
        if let Some(reason) = &self.fatal {
            return Err(Error::new(
                Code::SessionFatal,
                format!("the session met a failure and is gone: {reason}"),
            ));
        }
        self.held.as_mut().ok_or_else(|| {
            Error::new(Code::Busy, "the session is answering: wait until the answer is over")
                .retry_after(100)
        })
    }

    fn resident(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.cache.len()) + self.trailing.len()
    }

    fn status(&self, manifest: &str) -> PrefixStatus {
        let resident = self.resident();
        PrefixStatus {
            resident: count(resident),
            available: count(self.limit.saturating_sub(resident)),
            manifest_digest: manifest.to_owned(),
            ..PrefixStatus::default()
        }
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// `context-overflow` with its numbers.
pub(crate) fn overflow(stage: &str, resident: usize, additional: usize, limit: usize) -> Error {
    Error::new(
        Code::ContextOverflow,
        format!(
            "{stage}: {resident} tokens are there and {additional} more were to be read, but the context has room for {limit}, one of them for the answer"
        ),
    )
    .with("stage", stage)
    .with("resident", resident)
    .with("additional", additional)
    .with("limit", limit)
}

impl Sessions {
    fn state(&mut self, id: u64) -> Result<&mut State> {
        self.states
            .get_mut(&id)
            .ok_or_else(|| Error::new(Code::SessionClosed, "the session is closed"))
    }

    /// Bytes of all contexts and snapshots that are not lent to an answer.
    pub(super) fn bytes(&self) -> u64 {
        let states = self.states.values().filter_map(|state| state.held.as_ref());
        let snapshots = self.snapshots.values().map(|snapshot| &snapshot.held);
        states.chain(snapshots).map(|held| held.memory.bytes()).sum()
    }

    /// Lends a session's cache to an answer.
    pub(super) fn take(&mut self, id: u64) -> Result<Held> {
        let state = self.state(id)?;
        state.usable()?;
        let resident = state.resident();
        if resident == 0 {
            return Err(Error::invalid("the session is empty: read a prefix before decoding"));
        }
        if resident + 1 > state.limit {
            return Err(overflow("decode", resident, 1, state.limit));
        }
        state.answers += 1;
        state.held.take().ok_or_else(|| Error::internal("a session without a cache"))
    }

    /// Its generated tokens that the cache does not hold.
    pub(super) fn take_trailing(&mut self, id: u64) -> Vec<u32> {
        self.states
            .get_mut(&id)
            .map(|state| std::mem::take(&mut state.trailing))
            .unwrap_or_default()
    }

    /// An answer is over.
    pub(super) fn put(&mut self, id: u64, held: Held, trailing: Option<u32>) {
        if let Some(state) = self.states.get_mut(&id) {
            state.held = Some(held);
            state.trailing = trailing.into_iter().collect();
        }
    }

    /// An answer failed, and the session with it.
    pub(super) fn fail(&mut self, id: u64, error: &Error) {
        if let Some(state) = self.states.get_mut(&id) {
            state.fatal = Some(error.message.clone());
        }
    }

    fn close(&mut self, id: u64) {
        self.states.remove(&id);
        self.snapshots.retain(|_, snapshot| snapshot.owner != id);
    }

    fn explain(&mut self, id: u64, core: &Core) -> Result<Value> {
        let state = self.state(id)?;
        let resident = state.resident();
        let bytes = state.held.as_ref().map_or(0, |held| held.memory.bytes());
        let capacity = state.held.as_ref().map_or(0, |held| held.cache.capacity());
        let condition = match (&state.fatal, &state.held) {
            (Some(_), _) => "fatal",
            (None, None) => "answering",
            (None, Some(_)) => "idle",
        };
        Ok(json!({
            "state": condition,
            "failure": state.fatal,
            "context": {
                "native": core.plan.program.context_native,
                "limit": state.limit,
                "resident": resident,
                "cached": resident - state.trailing.len(),
                "available": state.limit.saturating_sub(resident),
                "capacity": capacity,
            },
            "bytes": {"cache": bytes, "per_token": core.capacity.kv_token},
            "cache_types": {"k": core.types.k.name(), "v": core.types.v.name()},
            "manifest": core.manifest,
            "model": core.located.digest,
            "program": core.plan.program.digest,
            "counters": {
                "reused": state.reused,
                "prefilled": state.prefilled,
                "answers": state.answers,
            },
            "snapshots": self.snapshots.values().filter(|s| s.owner == id).count(),
        }))
    }
}

impl Slot {
    fn open_session(&mut self, id: u64, limit: usize, memory: &Arc<Memory>) -> Result<()> {
        let held = self.fresh(1, memory)?;
        let state = State {
            held: Some(held),
            trailing: Vec::new(),
            fatal: None,
            limit,
            reused: 0,
            prefilled: 0,
            answers: 0,
        };
        self.sessions.states.insert(id, state);
        Ok(())
    }

    /// Prepares to read: what is there already stays, what differs goes. The tokens the context
    /// will have, and the status when they are read.
    fn plan_read(
        &mut self,
        id: u64,
        tokens: &[u32],
        append: bool,
        memory: &Arc<Memory>,
    ) -> Result<(Vec<u32>, PrefixStatus)> {
        let capacity = self.core.capacity;
        let vocabulary = self.core.plan.program.vocabulary;
        if let Some(token) = tokens.iter().find(|token| **token as usize >= vocabulary) {
            return Err(Error::invalid(format!("token {token}: expected one below {vocabulary}")));
        }
        let state = self.sessions.state(id)?;
        state.usable()?;
        let (limit, before) = (state.limit, state.resident());
        let trailing = state.trailing.clone();
        let held = state.usable()?;
        let target = if append {
            [held.cache.tokens(), &trailing, tokens].concat()
        } else {
            tokens.to_vec()
        };
        let common = held.cache.common(&target);
        let context = [held.cache.tokens(), &trailing].concat();
        let kept = context.iter().zip(&target).take_while(|(a, b)| a == b).count();
        if target.len() >= limit {
            let stage = if append { "prefill" } else { "ensure-prefix" };
            return Err(overflow(stage, common, target.len() - common, limit));
        }
        let grown = held.cache.grown(target.len(), limit);
        if grown > held.cache.capacity() {
            let reserved = memory.reserve(capacity.cache(grown), "a session's context")?;
            held.cache.truncate(common);
            held.cache.grow(grown)?;
            held.memory = reserved;
        }
        held.cache.truncate(common);
        state.trailing.clear();
        state.reused += common as u64;
        state.prefilled += (target.len() - common) as u64;
        let status = PrefixStatus {
            reused: count(common),
            prefilled: count(target.len() - common),
            dropped: count(before - kept),
            resident: count(target.len()),
            available: count(limit - target.len()),
            manifest_digest: self.core.manifest.clone(),
        };
        Ok((target, status))
    }

    fn snapshot(&mut self, id: u64, memory: &Arc<Memory>) -> Result<String> {
        let capacity = self.core.capacity;
        let state = self.sessions.state(id)?;
        let trailing = state.trailing.clone();
        let held = state.usable()?;
        let len = held.cache.len();
        let reserved = memory.reserve(capacity.cache(room(len)), "a snapshot")?;
        let cache = held.cache.copy(len, room(len))?;
        let name = format!("snapshot-{:016x}", Random::fresh_seed());
        let held = Held { cache, memory: reserved };
        self.sessions.snapshots.insert(name.clone(), Snapshot { owner: id, held, trailing });
        Ok(name)
    }

    fn restore(&mut self, id: u64, name: &str, memory: &Arc<Memory>) -> Result<PrefixStatus> {
        let capacity = self.core.capacity;
        let manifest = self.core.manifest.clone();
        let snapshot = self.sessions.snapshots.get(name).ok_or_else(|| {
            Error::not_found(format!("no snapshot `{name}` of this model: it may have been closed"))
        })?;
        let len = snapshot.held.cache.len();
        let trailing = snapshot.trailing.clone();
        let reserved = memory.reserve(capacity.cache(room(len)), "a restored session")?;
        let cache = snapshot.held.cache.copy(len, room(len))?;
        let state = self.sessions.state(id)?;
        let dropped = state.resident();
        *state.usable()? = Held { cache, memory: reserved };
        state.trailing = trailing;
        let status = state.status(&manifest);
        Ok(PrefixStatus { reused: status.resident, dropped: count(dropped), ..status })
    }

    fn fork(&mut self, id: u64, other: u64, memory: &Arc<Memory>) -> Result<()> {
        let capacity = self.core.capacity;
        let state = self.sessions.state(id)?;
        let (limit, trailing) = (state.limit, state.trailing.clone());
        let held = state.usable()?;
        let len = held.cache.len();
        let reserved = memory.reserve(capacity.cache(room(len)), "a forked session")?;
        let cache = held.cache.copy(len, room(len))?;
        let state = State {
            held: Some(Held { cache, memory: reserved }),
            trailing,
            fatal: None,
            limit,
            reused: len as u64,
            prefilled: 0,
            answers: 0,
        };
        self.sessions.states.insert(other, state);
        Ok(())
    }

    /// Reads one stretch for the session that waits longest; whether there was one.
    pub(super) fn read_some(&mut self, pool: &Pool) -> bool {
        let Some(reading) = self.sessions.reading.pop_front() else { return false };
        if reading.reply.is_closed() {
            return true;
        }
        let rows = if self.active() > 0 { self.core.mixed_rows } else { PREFILL_ROWS };
        match self.read(pool, &reading, rows) {
            Ok(true) => {
                // Whoever asked may be gone.
                let _ = reading.reply.send(Ok(reading.status));
            }
            Ok(false) => self.sessions.reading.push_front(reading),
            Err(error) => {
                self.sessions.fail(reading.session, &error);
                let _ = reading.reply.send(Err(error));
            }
        }
        true
    }

    /// One pass; whether everything is read.
    fn read(&mut self, pool: &Pool, reading: &Reading, most: usize) -> Result<bool> {
        let core = Arc::clone(&self.core);
        let held = self.sessions.state(reading.session)?.usable()?;
        let first = held.cache.len();
        let rest = reading.target.get(first..).unwrap_or_default();
        let bulk = self.bulk;
        let rows: Vec<Row> = rest
            .iter()
            .take(most)
            .enumerate()
            .map(|(n, &token)| Row { cache: 0, position: first + n, token, wanted: false, bulk })
            .collect();
        if !rows.is_empty() {
            let weights = core.weights()?;
            let model = Model { plan: &core.plan, weights: &weights, pool };
            model.run(&mut self.arena, &rows, &mut [&mut held.cache], Want::Result)?;
        }
        Ok(rows.len() == rest.len())
    }
}

/// Room a copy is given: what is there and some more.
fn room(len: usize) -> usize {
    (len + 1).next_multiple_of(crate::cache::STEP)
}

impl Driver {
    pub(super) fn session(&mut self, core: &Arc<Core>, id: u64, command: SessionCommand) {
        // What was cancelled before the question was asked must not stand in its way.
        self.drop_cancelled();
        let place = self.slot(core);
        // Whoever asked may be gone; then the answer goes nowhere.
        match command {
            SessionCommand::Open { limit, reply } => {
                let done =
                    self.with_room(place, |slot, memory| slot.open_session(id, limit, memory));
                let _ = reply.send(done);
            }
            SessionCommand::Read { tokens, append, reply } => {
                let planned = self
                    .with_room(place, |slot, memory| slot.plan_read(id, &tokens, append, memory));
                match (planned, self.slots.get_mut(place)) {
                    (Ok((target, status)), Some(slot)) => {
                        let reading = Reading { session: id, target, status, reply };
                        slot.sessions.reading.push_back(reading);
                    }
                    (Err(error), _) => {
                        let _ = reply.send(Err(error));
                    }
                    (Ok(_), None) => {}
                }
            }
            SessionCommand::Snapshot(reply) => {
                let _ = reply.send(self.with_room(place, |slot, memory| slot.snapshot(id, memory)));
            }
            SessionCommand::Restore(name, reply) => {
                let elsewhere = self.slots.iter().any(|slot| {
                    slot.core.key != core.key && slot.sessions.snapshots.contains_key(&name)
                });
                let done = if elsewhere {
                    Err(Error::new(
                        Code::ManifestMismatch,
                        format!("the snapshot `{name}` belongs to another model"),
                    ))
                } else {
                    self.with_room(place, |slot, memory| slot.restore(id, &name, memory))
                };
                let _ = reply.send(done);
            }
            SessionCommand::Fork(other, reply) => {
                let done = self.with_room(place, |slot, memory| slot.fork(id, other, memory));
                let _ = reply.send(done);
            }
            SessionCommand::Explain(reply) => {
                if let Some(slot) = self.slots.get_mut(place) {
                    let _ = reply.send(slot.sessions.explain(id, core));
                }
            }
            SessionCommand::Close => {
                if let Some(slot) = self.slots.get_mut(place) {
                    slot.sessions.close(id);
                }
            }
        }
    }

    /// Tries again without an idle cache as long as memory is what is missing.
    pub(super) fn with_room<T>(
        &mut self,
        place: usize,
        mut work: impl FnMut(&mut Slot, &Arc<Memory>) -> Result<T>,
    ) -> Result<T> {
        loop {
            let memory = Arc::clone(&self.memory);
            let slot = self.slots.get_mut(place).ok_or_else(|| Error::internal("no such model"))?;
            match work(slot, &memory) {
                Err(error) if error.code == Code::InsufficientMemory && self.evict() => {}
                done => return done,
            }
        }
    }
}
