//! One account for everything the engine allocates: weights, caches, buffers. What does not fit is
//! refused with its numbers before it is allocated.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use gristmill_core::{Code, Error, Result};

/// The account.
#[derive(Debug)]
pub struct Memory {
    limit: u64,
    used: AtomicU64,
}

/// Bytes taken from the account; given back when dropped.
#[derive(Debug)]
pub struct Reservation {
    memory: Arc<Memory>,
    bytes: u64,
}

impl Memory {
    /// An account of this many bytes; without a number, of what the machine has free now.
    #[must_use]
    pub fn new(limit: Option<u64>) -> Arc<Self> {
        let limit = limit.or_else(available).unwrap_or(u64::MAX);
        Arc::new(Self { limit, used: AtomicU64::new(0) })
    }

    /// Bytes reserved now.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes that may be reserved altogether.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Takes bytes.
    ///
    /// # Errors
    /// `insufficient-memory` with `required`, `used` and `limit`.
    pub fn reserve(self: &Arc<Self>, bytes: u64, what: &str) -> Result<Reservation> {
        let taken = self.used.try_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|sum| *sum <= self.limit)
        });
        match taken {
            Ok(_) => Ok(Reservation { memory: Arc::clone(self), bytes }),
            Err(used) => Err(Error::new(
                Code::InsufficientMemory,
                format!(
                    "{what} needs {bytes} bytes; {used} of {} are in use: unload a model, shorten the context or raise the memory limit",
                    self.limit
                ),
            )
            .with("required", bytes)
            .with("used", used)
            .with("limit", self.limit)),
        }
    }
}

impl Reservation {
    /// How many bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.memory.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What the machine has free, or what its control group allows if that is less.
pub(crate) fn available() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let machine = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10;
    let group = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let group = group.and_then(|text| text.trim().parse::<u64>().ok());
    Some(group.map_or(machine, |group| group.min(machine)))
}

/// Bytes of this process that are in memory, for reports.
#[must_use]
pub fn resident() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_with_numbers_and_what_is_dropped_comes_back() {
        let memory = Memory::new(Some(100));
        let first = memory.reserve(70, "a").unwrap();
        let refused = memory.reserve(31, "a context").unwrap_err();
        assert_eq!(refused.code, Code::InsufficientMemory);
        assert_eq!(
            [refused.detail("required"), refused.detail("used"), refused.detail("limit")],
            [Some("31"), Some("70"), Some("100")]
        );
        drop(first);
        assert_eq!(memory.used(), 0);
        assert!(memory.reserve(100, "b").is_ok());
    }
}
