//! The process's worker threads: fork, join, spin a little, then sleep.
//!
//! A phase hands one closure to every worker and returns when all are done. The calling thread is
//! worker 0, so a pool of one has no threads at all. Idle workers spin for some tens of
//! microseconds, so that the phases of a token follow each other in a fraction of one, then sleep.
//! Work in chunks goes to whoever comes: a worker that the machine keeps from running in time
//! is not waited for. One phase runs at a time; a second caller waits. A phase started from inside a phase runs
//! serially on its thread.
#![allow(unsafe_code, reason = "a borrowed closure crosses to the workers; affinity and MXCSR")]

use std::cell::{Cell, UnsafeCell};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::isa::{self, Isa};

/// How long an idle worker spins before it sleeps.
const SPIN: Duration = Duration::from_micros(50);

/// Set in the gate when no more workers may join the phase.
const CLOSED: u64 = 1 << 15;
/// The gate's count of workers inside.
const INSIDE_MASK: u64 = CLOSED - 1;
/// Where the gate's phase number starts.
const NUMBER: u32 = 16;

type Job<'a> = &'a (dyn Fn(usize) + Sync);

/// Keeps its content on cache lines of its own.
#[repr(align(128))]
struct Padded<T>(T);

struct Shared {
    /// The phase's number, whether it is [`CLOSED`], and how many workers are [`INSIDE_MASK`].
    gate: Padded<AtomicU64>,
    /// Workers that have not finished the phase.
    pending: Padded<AtomicU32>,
    /// Workers asleep, and whether the caller is.
    asleep: AtomicU32,
    caller_asleep: AtomicBool,
    stop: AtomicBool,
    /// The phase's closure; written while the gate is closed and empty, read inside only.
    job: UnsafeCell<Option<Job<'static>>>,
    panic: Mutex<Option<Box<dyn std::any::Any + Send>>>,
    lock: Mutex<()>,
    wake_workers: Condvar,
    wake_caller: Condvar,
}

// SAFETY: `job` is written only by the caller that holds the pool's run lock, while the gate is
// closed and nobody is inside; it is read only by workers that the open gate let in (acquire).
unsafe impl Sync for Shared {}

/// A process-wide pool of workers.
pub struct Pool {
    shared: Arc<Shared>,
    running: Mutex<()>,
    handles: Vec<JoinHandle<()>>,
    cpus: Vec<usize>,
    threads: usize,
    isa: Isa,
}

thread_local! {
    /// Whether this thread is inside a phase.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No invariant of these locks can be broken by a panic while they are held.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// A pool of `threads` workers (0 asks for [`Pool::available`]), the caller included. With
    /// `pin`, each worker thread stays on a processor of its own as far as there are enough.
    pub fn new(threads: usize, pin: bool) -> Pool {
        Pool::with_isa(threads, pin, isa::current())
    }

    /// A pool whose kernels use no more than this instruction set.
    pub fn with_isa(threads: usize, pin: bool, isa: Isa) -> Pool {
        let threads = if threads == 0 { Pool::available() } else { threads };
        let cpus = if pin { allowed_cpus() } else { Vec::new() };
        let shared = Arc::new(Shared {
            gate: Padded(AtomicU64::new(CLOSED)),
            pending: Padded(AtomicU32::new(0)),
            asleep: AtomicU32::new(0),
            caller_asleep: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            job: UnsafeCell::new(None),
            panic: Mutex::new(None),
            lock: Mutex::new(()),
            wake_workers: Condvar::new(),
            wake_caller: Condvar::new(),
        });
        let mut handles = Vec::new();
        for worker in 1..threads {
            let shared = Arc::clone(&shared);
            let cpu = if threads <= cpus.len() { cpus.get(worker).copied() } else { None };
            let spawned = std::thread::Builder::new()
                .name(format!("kernel-{worker}"))
                .spawn(move || work(&shared, worker, cpu));
            match spawned {
                Ok(handle) => handles.push(handle),
                // Fewer workers give the same results, only later.
                Err(_) => break,
            }
        }
        let threads = handles.len() + 1;
        Pool {
            shared,
            running: Mutex::new(()),
            handles,
            cpus,
            threads,
            isa: isa.min(isa::offered()),
        }
    }

    /// How many threads this process may use at once: its affinity and its cgroup's quota.
    pub fn available() -> usize {
        let affine = allowed_cpus().len().max(1);
        cgroup_quota().map_or(affine, |quota| affine.min(quota)).max(1)
    }

    /// Number of workers, the caller included.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The instruction set its kernels use.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Pins the calling thread to worker 0's processor, if the pool pins. For a thread that lives
    /// to run phases.
    pub fn pin_caller(&self) {
        if self.threads <= self.cpus.len()
            && let Some(&cpu) = self.cpus.first()
        {
            pin_to(cpu);
        }
    }

    /// Runs `job(worker)` on every worker and returns when all have finished. A panic in any of
    /// them continues here, after all have finished.
    pub fn run(&self, job: &(dyn Fn(usize) + Sync)) {
        if self.threads == 1 || INSIDE.get() {
            let _mode = FlushDenormals::enter();
            (0..self.threads).for_each(job);
            return;
        }
        self.phase(job, true);
    }

    /// One phase, joined by every worker or by those that come in time.
    fn phase(&self, job: Job<'_>, everyone: bool) {
        let _running = held(&self.running);
        let shared = &*self.shared;
        // SAFETY: the lifetime is erased, but this function does not return before the gate is
        // closed and every worker has left, panics included. Nobody else touches `job`: the run
        // lock is held, and the gate is closed and empty.
        unsafe {
            *shared.job.get() = Some(std::mem::transmute::<Job<'_>, Job<'static>>(job));
        }
        shared.pending.0.store((self.threads - 1) as u32, Ordering::Relaxed);
        let number = (shared.gate.0.load(Ordering::Relaxed) >> NUMBER) + 1;
        shared.gate.0.store(number << NUMBER, Ordering::SeqCst);
        if shared.asleep.load(Ordering::SeqCst) > 0 {
            drop(held(&shared.lock));
            shared.wake_workers.notify_all();
        }
        INSIDE.set(true);
        let own = {
            let _mode = FlushDenormals::enter();
            catch_unwind(AssertUnwindSafe(|| job(0)))
        };
        INSIDE.set(false);
        if everyone {
            self.wait(|| shared.pending.0.load(Ordering::SeqCst) == 0);
        }
        shared.gate.0.fetch_or(CLOSED, Ordering::SeqCst);
        self.wait(|| shared.gate.0.load(Ordering::SeqCst) & INSIDE_MASK == 0);
        if let Err(panic) = own {
            resume_unwind(panic);
        }
        let theirs = held(&shared.panic).take();
        if let Some(panic) = theirs {
            resume_unwind(panic);
        }
    }

    /// Splits `0..total` into chunks and gives each to some worker: `job(worker, chunk)`. Chunks
    /// of one call never overlap; which worker gets which is not fixed.
    pub fn chunks(&self, total: usize, chunk: usize, job: &(dyn Fn(usize, Range<usize>) + Sync)) {
        let chunk = chunk.max(1);
        if total <= chunk {
            // One chunk (or none) needs no other thread.
            let _mode = FlushDenormals::enter();
            if total > 0 {
                job(0, 0..total);
            }
            return;
        }
        let next = Padded(AtomicUsize::new(0));
        let job = |worker: usize| {
            loop {
                let index = next.0.fetch_add(1, Ordering::Relaxed);
                let Some(start) = index.checked_mul(chunk).filter(|start| *start < total) else {
                    return;
                };
                job(worker, start..(start + chunk).min(total));
            }
        };
        if self.threads == 1 || INSIDE.get() {
            let _mode = FlushDenormals::enter();
            job(0);
            return;
        }
        self.phase(&job, false);
    }

    /// Waits until a condition holds that workers make true when they leave.
    fn wait(&self, done: impl Fn() -> bool) {
        let shared = &*self.shared;
        if spin_until(&done) {
            return;
        }
        let mut guard = held(&shared.lock);
        shared.caller_asleep.store(true, Ordering::SeqCst);
        while !done() {
            guard = shared.wake_caller.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        shared.caller_asleep.store(false, Ordering::SeqCst);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.gate.0.fetch_add(1 << NUMBER, Ordering::SeqCst);
        drop(held(&self.shared.lock));
        self.shared.wake_workers.notify_all();
        for handle in self.handles.drain(..) {
            // A worker catches its panics, so there is nothing to learn from the join.
            let _ = handle.join();
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({} threads, {})", self.threads, self.isa)
    }
}

/// Spins for [`SPIN`] at most; whether the condition came true.
fn spin_until(done: impl Fn() -> bool) -> bool {
    let mut start = None;
    loop {
        for _ in 0..128 {
            if done() {
                return true;
            }
            std::hint::spin_loop();
        }
        let start = *start.get_or_insert_with(Instant::now);
        if start.elapsed() > SPIN {
            return false;
        }
    }
}

/// Waits for a phase after the one of number `seen` and joins it; an error: it is closed already. None:
/// the pool ends.
///
/// Whether it ends is asked before waiting: the gate's last number is set after that, so that whoever
/// has seen it, late or not, finds it set.
fn join(shared: &Shared, seen: u64) -> Option<Result<u64, u64>> {
    if shared.stop.load(Ordering::SeqCst) {
        return None;
    }
    let moved = || shared.gate.0.load(Ordering::SeqCst) >> NUMBER != seen;
    if !spin_until(moved) {
        let mut guard = held(&shared.lock);
        shared.asleep.fetch_add(1, Ordering::SeqCst);
        while !moved() {
            guard = shared.wake_workers.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        shared.asleep.fetch_sub(1, Ordering::SeqCst);
    }
    Some(shared.gate.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |gate| {
        (gate & CLOSED == 0).then_some(gate + 1)
    }))
}

fn work(shared: &Shared, worker: usize, cpu: Option<usize>) {
    if let Some(cpu) = cpu {
        pin_to(cpu);
    }
    let _mode = FlushDenormals::enter();
    INSIDE.set(true);
    let mut seen = 0;
    while let Some(joined) = join(shared, seen) {
        let (Ok(gate) | Err(gate)) = joined;
        seen = gate >> NUMBER;
        if joined.is_err() {
            // Too late: the others did it all.
            continue;
        }
        // SAFETY: inside the gate the closure stays as it is, and alive.
        if let Some(job) = unsafe { *shared.job.get() }
            && let Err(panic) = catch_unwind(AssertUnwindSafe(|| job(worker)))
        {
            held(&shared.panic).get_or_insert(panic);
        }
        shared.pending.0.fetch_sub(1, Ordering::SeqCst);
        shared.gate.0.fetch_sub(1, Ordering::SeqCst);
        if shared.caller_asleep.load(Ordering::SeqCst) {
            drop(held(&shared.lock));
            shared.wake_caller.notify_one();
        }
    }
}

/// While it lives, denormal numbers count as zero on this thread: they are far below what the
/// results carry, and arithmetic with them is many times slower.
struct FlushDenormals {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    before: u32,
}

impl FlushDenormals {
    fn enter() -> FlushDenormals {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            let mut before = 0u32;
            // SAFETY: reads and sets the FTZ (15) and DAZ (6) bits of this thread's control word.
            // Rounding and exception masks stay as they are; `drop` restores the word.
            unsafe {
                std::arch::asm!("stmxcsr [{0}]", in(reg) &raw mut before);
                let flushed = before | 0x8040;
                std::arch::asm!("ldmxcsr [{0}]", in(reg) &raw const flushed);
            }
            FlushDenormals { before }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        FlushDenormals {}
    }
}

impl Drop for FlushDenormals {
    fn drop(&mut self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: restores the control word read in `enter` on this thread.
        unsafe {
            std::arch::asm!("ldmxcsr [{0}]", in(reg) &raw const self.before);
        }
    }
}

/// The processors this process may run on.
#[cfg(all(target_os = "linux", not(miri)))]
fn allowed_cpus() -> Vec<usize> {
    // SAFETY: a zeroed cpu_set_t is a valid empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is a live out-parameter of the size given.
    let result = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    if result != 0 {
        return Vec::new();
    }
    // SAFETY: CPU_ISSET reads inside the set for indices below its size.
    (0..libc::CPU_SETSIZE as usize).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).collect()
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn allowed_cpus() -> Vec<usize> {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    (0..count).collect()
}

#[cfg(all(target_os = "linux", not(miri)))]
fn pin_to(cpu: usize) {
    // SAFETY: a zeroed cpu_set_t is a valid empty set, and `cpu` came from such a set.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        // Pinning is an optimisation; a refusal changes nothing else.
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn pin_to(_cpu: usize) {}

/// Processors' worth of time the cgroup grants, rounded up.
fn cgroup_quota() -> Option<usize> {
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?.trim_start_matches('/');
    let mut least: Option<usize> = None;
    // A quota of any ancestor binds too.
    for dir in std::path::Path::new("/sys/fs/cgroup").join(path).ancestors() {
        if !dir.starts_with("/sys/fs/cgroup") {
            break;
        }
        let Ok(text) = std::fs::read_to_string(dir.join("cpu.max")) else { continue };
        if let Some(cpus) = parse_quota(&text) {
            least = Some(least.map_or(cpus, |l| l.min(cpus)));
        }
    }
    least
}

fn parse_quota(text: &str) -> Option<usize> {
    let mut words = text.split_whitespace();
    let quota: usize = words.next()?.parse().ok()?;
    let period: usize = words.next()?.parse().ok().filter(|p| *p > 0)?;
    Some(quota.div_ceil(period).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_is_visited_once_by_any_number_of_threads() {
        for threads in [1, 2, 5] {
            let pool = Pool::new(threads, false);
            for (total, chunk) in [(0, 3), (1, 3), (7, 3), (64, 1), (1000, 7)] {
                let seen: Vec<AtomicU32> = (0..total).map(|_| AtomicU32::new(0)).collect();
                pool.chunks(total, chunk, &|_, range| {
                    for i in range {
                        seen[i].fetch_add(1, Ordering::Relaxed);
                    }
                });
                assert!(seen.iter().all(|s| s.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn a_panic_in_a_worker_reaches_the_caller_and_the_pool_lives_on() {
        let pool = Pool::new(3, false);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            pool.run(&|worker| assert!(worker != 2, "worker two fails"));
        }));
        assert!(caught.is_err());
        let count = AtomicU32::new(0);
        pool.run(&|_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.load(Ordering::Relaxed), 3);
    }

    /// A worker that came too late for the last phase knows its number already when it is told to stop.
    #[test]
    fn a_late_worker_stops() {
        let pool = Pool::new(1, false);
        pool.shared.gate.0.store(7 << NUMBER | CLOSED, Ordering::SeqCst);
        pool.shared.stop.store(true, Ordering::SeqCst);
        assert_eq!(join(&pool.shared, 7), None);
    }

    #[test]
    fn a_phase_inside_a_phase_runs_serially() {
        let pool = Pool::new(2, false);
        let count = AtomicU32::new(0);
        pool.run(&|_| {
            pool.run(&|_| {
                count.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!(count.load(Ordering::Relaxed), 4);
    }

    #[test]
    fn callers_on_several_threads_take_turns() {
        let pool = Pool::new(2, false);
        let count = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        pool.run(&|_| {
                            count.fetch_add(1, Ordering::Relaxed);
                        });
                    }
                });
            }
        });
        assert_eq!(count.load(Ordering::Relaxed), 300);
    }

    #[test]
    fn quotas_round_up_and_max_means_none() {
        assert_eq!(parse_quota("max 100000"), None);
        assert_eq!(parse_quota("150000 100000"), Some(2));
        assert_eq!(parse_quota("50000 100000"), Some(1));
        assert_eq!(parse_quota("x"), None);
    }
}
