//! What bounds one store: memory, tables and instances ([`Limiter`]), CPU time ([`Meter`]), and log
//! volume ([`LogBudget`]). Handles and host-call bytes are bounded by wasmtime itself.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use gristmill_policies::Limits;
use rustix::time::{ClockId, clock_gettime};
use wasmtime::ResourceLimiter;

use crate::fault::Fault;

/// Bounds what a store allocates. A guest that wants more traps; it does not see a failed growth,
/// because what it would do then is anybody's guess.
#[derive(Debug)]
pub(crate) struct Limiter {
    memory: usize,
    used: usize,
    elements: usize,
    instances: usize,
}

impl Limiter {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            memory: limits.memory_bytes(),
            used: 0,
            elements: limits.table_elements as usize,
            instances: limits.instances as usize,
        }
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let wanted = self.used.saturating_add(desired.saturating_sub(current));
        if wanted > self.memory {
            return Err(Fault::MemoryLimit { wanted, granted: self.memory }.into());
        }
        self.used = wanted;
        Ok(true)
    }

    fn table_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        if desired > self.elements {
            return Err(Fault::TableLimit { wanted: desired, granted: self.elements }.into());
        }
        Ok(true)
    }

    fn instances(&self) -> usize {
        self.instances
    }

    fn memories(&self) -> usize {
        self.instances
    }

    fn tables(&self) -> usize {
        self.instances.saturating_mul(4)
    }
}

/// Measures the CPU time of the call that is running: the thread's CPU clock, read whenever the
/// call's future is entered and left. Waiting costs nothing, and a busy machine does not count.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    /// Nanoseconds of the polls that are over.
    used: AtomicU64,
    /// The thread's CPU clock when the running poll began.
    entered: AtomicU64,
}

impl Meter {
    /// A new call begins.
    fn reset(&self) {
        self.used.store(0, Ordering::Relaxed);
    }

    /// CPU time of the running call so far. Called from within its poll, on its thread.
    pub(crate) fn elapsed(&self) -> Duration {
        let running = thread_cpu().saturating_sub(self.entered.load(Ordering::Relaxed));
        Duration::from_nanos(self.used.load(Ordering::Relaxed).saturating_add(running))
    }

    /// Runs a call's future under this meter.
    pub(crate) async fn run<F: Future>(self: &Arc<Self>, future: F) -> F::Output {
        self.reset();
        Metered { future: std::pin::pin!(future), meter: Arc::clone(self) }.await
    }
}

fn thread_cpu() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::try_from(now.tv_nsec).unwrap_or_default())
}

struct Metered<'a, F> {
    future: Pin<&'a mut F>,
    meter: Arc<Meter>,
}

impl<F: Future> Future for Metered<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let entered = thread_cpu();
        self.meter.entered.store(entered, Ordering::Relaxed);
        let result = self.future.as_mut().poll(cx);
        self.meter.used.fetch_add(thread_cpu().saturating_sub(entered), Ordering::Relaxed);
        result
    }
}

/// Counts what a store logs.
#[derive(Debug)]
pub(crate) struct LogBudget {
    records: u32,
    bytes: usize,
}

impl LogBudget {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { records: limits.log_records, bytes: limits.log_bytes as usize }
    }

    /// Takes one record of this many bytes.
    ///
    /// # Errors
    /// [`Fault::LogLimit`] when the grant is used up.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<(), Fault> {
        self.records = self.records.checked_sub(1).ok_or(Fault::LogLimit)?;
        self.bytes = self.bytes.checked_sub(bytes).ok_or(Fault::LogLimit)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits {
            memory_mib: 1,
            table_elements: 10,
            log_records: 2,
            log_bytes: 10,
            ..Limits::default()
        }
    }

    #[test]
    fn all_memories_of_a_store_share_one_limit() {
        let mut limiter = Limiter::new(&limits());
        let half = 512 << 10;
        assert!(limiter.memory_growing(0, half, None).unwrap());
        assert!(limiter.memory_growing(0, half, None).unwrap());
        let error = limiter.memory_growing(half, half + 65_536, None).unwrap_err();
        assert_eq!(error.downcast_ref::<Fault>().unwrap().word(), "memory-limit");
        assert!(limiter.memory_growing(0, usize::MAX, None).is_err());
    }

    #[test]
    fn a_table_has_its_limit() {
        let mut limiter = Limiter::new(&limits());
        assert!(limiter.table_growing(0, 10, None).unwrap());
        let error = limiter.table_growing(10, 11, None).unwrap_err();
        assert_eq!(error.downcast_ref::<Fault>().unwrap().word(), "table-limit");
    }

    #[test]
    fn log_records_and_bytes_run_out_separately() {
        let mut budget = LogBudget::new(&limits());
        assert_eq!((budget.take(5), budget.take(0)), (Ok(()), Ok(())));
        assert_eq!(budget.take(0), Err(Fault::LogLimit));
        let mut budget = LogBudget::new(&limits());
        assert_eq!(budget.take(11), Err(Fault::LogLimit));
    }

    #[test]
    fn waiting_is_not_cpu_time() {
        let meter = Arc::new(Meter::default());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (waited, worked) = runtime.block_on(async {
            meter.run(tokio::time::sleep(Duration::from_millis(50))).await;
            let waited = Duration::from_nanos(meter.used.load(Ordering::Relaxed));
            let start = thread_cpu();
            meter
                .run(async {
                    // A millisecond more than is asked below: the kernel's thread clock is not exact
                    // when a thread is moved, and 20 ms of work have been read as 19.999875 ms.
                    while thread_cpu() - start < 21_000_000 {
                        std::hint::black_box(0);
                    }
                })
                .await;
            (waited, Duration::from_nanos(meter.used.load(Ordering::Relaxed)))
        });
        assert!(waited < Duration::from_millis(20), "{waited:?}");
        assert!(worked >= Duration::from_millis(20), "{worked:?}");
    }
}
