//! The one thread that computes. It owns the pool and everything that changes: caches, queues,
//! running answers. Others speak to it through [`Shared`] and hear from it through channels.
//!
//! Each round it admits what fits, builds one pass per model out of the next token of every running
//! answer and a stretch of the prompts that are still to be read, computes it, and hands out
//! events. A reader that does not read pauses its own answer only; one that is gone ends it.
//!
//! Bounds: answers running (`max_active`) and waiting (`max_queued`); events waiting in a channel;
//! bytes, through [`Memory`]; idle caches, which give way to anything else.

mod damage;
mod embedding;
mod models;
mod sequence;
mod sessions;

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Instant,
};

use gristmill_core::{Code, Error, Result, event::Event};
use gristmill_kernels::Pool;
use tokio::sync::{mpsc as events, oneshot};

pub(crate) use embedding::{Embedding, Work};
pub(crate) use sequence::{Origin, Start};
pub(crate) use sessions::{SessionCommand, overflow};

use crate::{core::Core, engine::EngineConfig, memory::Memory};
use models::Slot;

/// Batches of events that may wait for a reader.
const WAITING_EVENTS: usize = 32;

/// What the driver is told.
pub(crate) enum Command {
    Generate(Box<Start>),
    Embed(Box<Embedding>),
    Session(Arc<Core>, u64, SessionCommand),
    /// Look again: a reader has read, or is gone.
    Wake,
    /// Lets go of all idle contexts; whether there were any.
    Trim(oneshot::Sender<bool>),
    /// Lets go of a model's idle state; answered when no answer uses it any more.
    Forget(u64, oneshot::Sender<()>),
}

/// The driver's public side.
#[derive(Debug)]
pub(crate) struct Shared {
    commands: mpsc::Sender<Command>,
    pub(crate) memory: Arc<Memory>,
    in_flight: AtomicUsize,
    most: usize,
    active: usize,
    /// Milliseconds of a usual answer, for `retry-after`.
    usual: AtomicU64,
    threads: usize,
}

/// A place among the running and waiting.
#[derive(Debug)]
pub(crate) struct Ticket {
    shared: Arc<Shared>,
    core: Arc<Core>,
    issued: Instant,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.shared.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.core.active.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shared {
    /// Starts the driver.
    pub(crate) fn start(config: &EngineConfig, memory: Arc<Memory>) -> Result<Arc<Self>> {
        let (commands, inbox) = mpsc::channel();
        let threads = config.threads.unwrap_or_else(Pool::available).max(1);
        let shared = Arc::new(Self {
            commands,
            memory: Arc::clone(&memory),
            in_flight: AtomicUsize::new(0),
            most: config.max_active + config.max_queued,
            active: config.max_active,
            usual: AtomicU64::new(1000),
            threads,
        });
        let pin = config.pin;
        let manner =
            Manner { most: config.max_active, guess: config.speculation, bulk: config.bulk };
        let weak = Arc::downgrade(&shared);
        thread::Builder::new()
            .name("engine".to_owned())
            .spawn(move || {
                let pool = Pool::new(threads, pin);
                pool.pin_caller();
                let usual = move |ms: u64| {
                    if let Some(shared) = weak.upgrade() {
                        let old = shared.usual.load(Ordering::Relaxed);
                        shared.usual.store((old * 7 + ms) / 8, Ordering::Relaxed);
                    }
                };
                Driver::new(pool, inbox, memory, manner, Box::new(usual)).run();
            })
            .map_err(|error| {
                Error::internal(format!("cannot start the engine's thread: {error}"))
            })?;
        Ok(shared)
    }

    /// Threads that compute.
    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// A place for one more answer.
    ///
    /// # Errors
    /// `busy` with a time after which to try again.
    pub(crate) fn ticket(self: &Arc<Self>, core: &Arc<Core>) -> Result<Ticket> {
        let most = self.most;
        let taken = self
            .in_flight
            .try_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < most).then_some(n + 1));
        match taken {
            Ok(_) => {
                core.active.fetch_add(1, Ordering::Relaxed);
                Ok(Ticket {
                    shared: Arc::clone(self),
                    core: Arc::clone(core),
                    issued: Instant::now(),
                })
            }
            Err(waiting) => {
                let ms = self.usual.load(Ordering::Relaxed).clamp(100, 60_000);
                Err(Error::new(
                    Code::Busy,
                    format!(
                        "{} answers are running and {} are waiting: try again later",
                        self.active,
                        waiting.saturating_sub(self.active)
                    ),
                )
                .retry_after(u32::try_from(ms).unwrap_or(u32::MAX)))
            }
        }
    }

    pub(crate) fn send(&self, command: Command) -> Result<()> {
        self.commands.send(command).map_err(|_| Error::internal("the engine's thread has ended"))
    }

    /// Makes the driver look again.
    pub(crate) fn wake(&self) {
        // If the thread has ended there is nobody to wake.
        let _ = self.commands.send(Command::Wake);
    }
}

/// The driver's end of an answer's channel.
#[derive(Debug)]
pub(crate) struct Sink {
    events: events::Sender<Result<Vec<Event>>>,
    starved: Arc<AtomicBool>,
}

/// The reader's end.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) events: events::Receiver<Result<Vec<Event>>>,
    pub(crate) starved: Arc<AtomicBool>,
}

/// A channel for an answer's events.
pub(crate) fn channel() -> (Sink, Source) {
    let (sender, receiver) = events::channel(WAITING_EVENTS);
    let starved = Arc::new(AtomicBool::new(false));
    let sink = Sink { events: sender, starved: Arc::clone(&starved) };
    (sink, Source { events: receiver, starved })
}

impl Sink {
    /// Whether a step's events and an ending still fit.
    fn ready(&self) -> bool {
        self.events.capacity() >= 2
    }

    fn closed(&self) -> bool {
        self.events.is_closed()
    }

    fn send(&self, events: Result<Vec<Event>>) {
        // The reader may be gone; the next round notices.
        let _ = self.events.try_send(events);
    }

    /// Asks the reader to wake the driver; whether the driver may sleep.
    fn starve(&self) -> bool {
        self.starved.store(true, Ordering::SeqCst);
        !self.ready() && !self.closed()
    }
}

/// How answers are computed.
#[derive(Clone, Copy)]
struct Manner {
    /// How many at once.
    most: usize,
    /// Whether tokens are guessed.
    guess: bool,
    /// Whether prompts come in bulk.
    bulk: bool,
}

struct Driver {
    pool: Pool,
    inbox: mpsc::Receiver<Command>,
    memory: Arc<Memory>,
    manner: Manner,
    usual: Box<dyn Fn(u64) + Send>,
    slots: Vec<Slot>,
    queue: VecDeque<Box<Start>>,
    embeddings: VecDeque<Box<Embedding>>,
    forgotten: Vec<(u64, oneshot::Sender<()>)>,
}

impl Driver {
    fn new(
        pool: Pool,
        inbox: mpsc::Receiver<Command>,
        memory: Arc<Memory>,
        manner: Manner,
        usual: Box<dyn Fn(u64) + Send>,
    ) -> Self {
        Self {
            pool,
            inbox,
            memory,
            manner,
            usual,
            slots: Vec::new(),
            queue: VecDeque::new(),
            embeddings: VecDeque::new(),
            forgotten: Vec::new(),
        }
    }

    fn run(mut self) {
        loop {
            while let Ok(command) = self.inbox.try_recv() {
                self.obey(command);
            }
            self.drop_cancelled();
            self.admit();
            let worked = self.round();
            self.forget();
            if worked || !self.may_sleep() {
                continue;
            }
            match self.inbox.recv() {
                Ok(command) => self.obey(command),
                Err(mpsc::RecvError) => return,
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Generate(start) => self.queue.push_back(start),
            Command::Embed(embedding) => self.embeddings.push_back(embedding),
            Command::Session(core, session, command) => self.session(&core, session, command),
            Command::Wake => {}
            Command::Trim(done) => {
                let mut any = false;
                while self.evict() {
                    any = true;
                }
                // Whoever asked may be gone.
                let _ = done.send(any);
            }
            Command::Forget(key, done) => self.forgotten.push((key, done)),
        }
    }

    /// Ends what nobody waits for any more.
    fn drop_cancelled(&mut self) {
        self.queue.retain(|start| !start.sink.closed());
        self.embeddings.retain(|embedding| !embedding.cancelled());
        for slot in &mut self.slots {
            slot.drop_cancelled();
        }
    }

    /// Starts waiting answers, oldest first, while there is a place and memory.
    fn admit(&mut self) {
        while let Some(start) = self.queue.front() {
            let active: usize = self.slots.iter().map(Slot::active).sum();
            if active >= self.manner.most {
                return;
            }
            let core = Arc::clone(&start.core);
            let place = self.slot(&core);
            let Some(start) = self.queue.pop_front() else { return };
            match self.begin(place, start) {
                Ok(()) => {}
                // It waits for the memory of those that run.
                Err((start, error)) if error.code == Code::InsufficientMemory && active > 0 => {
                    self.queue.push_front(start);
                    return;
                }
                Err((start, error)) => start.sink.send(Err(error)),
            }
        }
    }

    fn begin(
        &mut self,
        place: usize,
        start: Box<Start>,
    ) -> std::result::Result<(), (Box<Start>, Error)> {
        match self.with_room(place, |slot, memory| slot.plan_cache(&start, memory)) {
            Ok(cache) => {
                if let Some(slot) = self.slots.get_mut(place) {
                    slot.begin(start, cache);
                }
                Ok(())
            }
            Err(error) => Err((start, error)),
        }
    }

    /// Drops the idle cache that was used longest ago, of any model; whether there was one.
    fn evict(&mut self) -> bool {
        let oldest = self.slots.iter_mut().filter(|slot| slot.oldest().is_some());
        match oldest.min_by_key(|slot| slot.oldest()) {
            Some(slot) => slot.evict(),
            None => false,
        }
    }

    /// The place of a model's changing state.
    fn slot(&mut self, core: &Arc<Core>) -> usize {
        if let Some(place) = self.slots.iter().position(|slot| slot.core.key == core.key) {
            return place;
        }
        self.slots.push(Slot::new(Arc::clone(core), self.manner));
        self.slots.len() - 1
    }

    /// One pass for every model with work; whether there was any.
    fn round(&mut self) -> bool {
        let mut worked = false;
        for place in 0..self.slots.len() {
            if let Some(slot) = self.slots.get_mut(place) {
                slot.guess();
            }
            self.make_room(place);
            let Some(slot) = self.slots.get_mut(place) else { continue };
            let pool = &self.pool;
            match catch_unwind(AssertUnwindSafe(|| slot.pass(pool))) {
                Ok(done) => worked |= done,
                Err(_) => {
                    tracing::error!(model = slot.core.located.id, "a pass panicked");
                    slot.fail_all(&Error::internal("the engine met a defect in a pass"));
                    worked = true;
                }
            }
            worked |= slot.read_some(pool);
            slot.count();
            for ms in slot.take_finished() {
                (self.usual)(ms);
            }
        }
        worked | self.embed_some()
    }

    /// Grows the caches of the next pass, at the cost of idle ones.
    fn make_room(&mut self, place: usize) {
        loop {
            let Some(slot) = self.slots.get_mut(place) else { return };
            let Some((index, error)) = slot.grow(&self.memory) else { return };
            if self.evict() {
                continue;
            }
            if let Some(slot) = self.slots.get_mut(place) {
                slot.fail(index, error);
            }
        }
    }

    /// Whether nothing can be done until somebody says so. Readers that are behind are asked to.
    fn may_sleep(&mut self) -> bool {
        self.slots.iter().all(Slot::may_sleep)
    }

    /// Lets go of models that are unloaded and that no answer uses, or that nobody holds any more.
    fn forget(&mut self) {
        self.slots.retain(|slot| Arc::strong_count(&slot.core) > 1);
        for (key, done) in std::mem::take(&mut self.forgotten) {
            let busy = self.slots.iter().any(|slot| slot.core.key == key && slot.active() > 0)
                || self.queue.iter().any(|start| start.core.key == key)
                || self.embeddings.iter().any(|embedding| embedding.core.key == key);
            if busy {
                self.forgotten.push((key, done));
            } else {
                self.slots.retain(|slot| slot.core.key != key);
                // Whoever asked may be gone.
                let _ = done.send(());
            }
        }
    }
}
