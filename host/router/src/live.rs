//! Which back-ends are live, and which generation of each answers.
//!
//! A slot keeps its name, its queues and its limits while what answers under it changes. Its line-up
//! (what answers, what answered before, what is on trial) is swapped whole, so readers never wait;
//! how it changes is in `live/swaps.rs`. A request gets its generation when its place in the queue
//! comes, and keeps it to its end.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::{ArcSwap, Guard};

use crate::{
    generation::Generation,
    queue::Queue,
    swap::{
        Happened, SwapEvent, SwapWatch, Trial,
        strikes::{Record, Strikes},
        trial::Candidate,
    },
    turn::Turn,
};

mod swaps;

/// Where the models of a back-end come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The local store: every stored model can be asked of it.
    Store,
    /// Its own `models()`.
    Listed,
}

/// Bounds of the queue in front of each model of a back-end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Answers that run at the same time; at least 1.
    pub active: usize,
    /// Requests that wait for one.
    pub queued: usize,
    /// How long each waits at most.
    pub wait: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { active: 4, queued: 512, wait: Duration::from_mins(10) }
    }
}

/// Who answers under a name, who did, and who may.
#[derive(Clone)]
pub(crate) struct Lineup {
    pub(crate) current: Arc<Generation>,
    /// Kept warm, to go back to.
    pub(crate) previous: Option<Arc<Generation>>,
    pub(crate) candidate: Option<Arc<Candidate>>,
}

impl Lineup {
    /// The candidate, if this generation is it.
    pub(crate) fn candidate(&self, generation: &Arc<Generation>) -> Option<&Arc<Candidate>> {
        let same = |known: &&Arc<Candidate>| Arc::ptr_eq(&known.generation, generation);
        self.candidate.as_ref().filter(same)
    }
}

/// A name under which a back-end is live.
pub struct Slot {
    /// The name, from its pin.
    pub name: String,
    /// Where its models come from.
    pub source: Source,
    limits: Limits,
    lineup: ArcSwap<Lineup>,
    /// Generations that will not answer again and may have answers running.
    leaving: Mutex<Vec<Weak<Generation>>>,
    /// Counts requests without an id.
    nameless: AtomicU64,
    queues: Mutex<HashMap<String, Arc<Queue>>>,
}

impl Slot {
    fn new(name: &str, source: Source, limits: Limits, current: Arc<Generation>) -> Arc<Self> {
        Arc::new(Self {
            name: name.to_owned(),
            source,
            limits,
            lineup: ArcSwap::from_pointee(Lineup { current, previous: None, candidate: None }),
            leaving: Mutex::default(),
            nameless: AtomicU64::new(0),
            queues: Mutex::default(),
        })
    }

    /// The generation that answers now.
    #[must_use]
    pub fn current(&self) -> Arc<Generation> {
        Arc::clone(&self.lineup.load().current)
    }

    pub(crate) fn lineup(&self) -> Guard<Arc<Lineup>> {
        self.lineup.load()
    }

    /// Generations that were replaced for good and are still held by somebody.
    pub(crate) fn leaving(&self) -> Vec<Arc<Generation>> {
        let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        leaving.retain(|generation| generation.strong_count() > 0);
        leaving.iter().filter_map(Weak::upgrade).collect()
    }

    /// The generation for a request: the candidate, where a canary takes the key, else the current
    /// one. The same key gets the same one for as long as nothing is swapped.
    pub(crate) fn choose(&self, key: &str) -> Arc<Generation> {
        let lineup = self.lineup.load();
        match &lineup.candidate {
            Some(candidate)
                if matches!(candidate.trial, Trial::Canary { .. }) && candidate.takes(key) =>
            {
                Arc::clone(&candidate.generation)
            }
            _ => Arc::clone(&lineup.current),
        }
    }

    /// Begins a request's turn on the generation that is for it. Without a key it has the next
    /// number for one.
    pub(crate) fn enter(self: &Arc<Self>, backends: &Arc<Backends>, key: Option<&str>) -> Turn {
        let key = key.map_or_else(
            || format!("#{}", self.nameless.fetch_add(1, Ordering::Relaxed)),
            str::to_owned,
        );
        loop {
            let chosen = self.choose(&key);
            let turn = Turn::begin(backends, self, chosen);
            // Counted only now: a swap in between may have found nobody on it.
            if Arc::ptr_eq(&self.choose(&key), turn.generation()) {
                return turn;
            }
        }
    }

    /// The queue in front of one of its models. Only resolved models get one, so the map is as
    /// bounded as the catalogue.
    #[must_use]
    pub fn queue(&self, model: &str) -> Arc<Queue> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(queues.entry(model.to_owned()).or_insert_with(|| Queue::new(self.limits)))
    }

    /// Answers running and requests waiting, over all its models.
    #[must_use]
    pub fn load(&self) -> (usize, usize) {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.values().fold((0, 0), |(active, waiting), queue| {
            (active + queue.active(), waiting + queue.waiting())
        })
    }
}

/// All live back-ends, in the order in which they were installed.
#[derive(Default)]
pub struct Backends {
    slots: ArcSwap<Vec<Arc<Slot>>>,
    /// The newest number of each name that was ever live. Held by whoever changes a list or a
    /// line-up, never across an await.
    numbers: Mutex<HashMap<String, u64>>,
    pub(crate) record: Record,
    pub(crate) watch: OnceLock<Arc<dyn SwapWatch>>,
}

impl Backends {
    /// None live, so many faults for quarantine.
    #[must_use]
    pub fn new(strikes: Strikes) -> Self {
        Self { record: Record::new(strikes), ..Self::default() }
    }

    /// The slots now.
    #[must_use]
    pub fn slots(&self) -> Arc<Vec<Arc<Slot>>> {
        self.slots.load_full()
    }

    /// The slot of this name.
    #[must_use]
    pub fn slot(&self, name: &str) -> Option<Arc<Slot>> {
        self.slots.load().iter().find(|slot| slot.name == name).cloned()
    }

    fn writer(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn tell(&self, backend: &str, generation: &Generation, what: Happened) {
        let (number, digest) = (generation.number, generation.digest.as_str());
        match &what {
            Happened::RolledBack { why, to } => {
                tracing::warn!(backend, generation = number, digest, %why, %to, "rolled back");
            }
            Happened::Withdrawn(why) => {
                tracing::warn!(backend, generation = number, digest, %why, "trial withdrawn");
            }
            what => tracing::info!(backend, generation = number, digest, "{}", what.word()),
        }
        self.say(SwapEvent { backend: backend.to_owned(), generation: generation.named(), what });
    }

    fn say(&self, event: SwapEvent) {
        if let Some(watch) = self.watch.get() {
            watch.told(event);
        }
    }
}
