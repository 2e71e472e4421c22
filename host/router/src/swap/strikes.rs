//! Faults by digest, and the digests that have had enough of them.
//!
//! A plugin fault (a trap, a limit, a broken contract) is a strike against the component's digest,
//! whichever names it serves under. So many within so long put the digest in quarantine: it is not
//! installed again until somebody releases it. This is the host's memory only; whoever wants it to
//! outlive the host writes the events down and says them again at the start.
//!
//! Bounds: for each digest the last [`Strikes::most`] faults, at most [`KEPT`] digests; the one
//! whose last fault is oldest is forgotten first. Quarantine has no bound and forgets nobody: a digest
//! gets into it by faults while it is installed, or because an operator names it.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Digests whose faults are kept.
pub const KEPT: usize = 1024;

/// How many faults are too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strikes {
    /// So many put a digest in quarantine, at least 1.
    pub most: usize,
    /// If they come within this time.
    pub within: Duration,
}

impl Default for Strikes {
    /// Five within ten minutes.
    fn default() -> Self {
        Self { most: 5, within: Duration::from_secs(600) }
    }
}

/// A digest that may not be installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// `sha256:…` of the component.
    pub digest: String,
    /// Why.
    pub reason: String,
}

/// The host's memory of faults.
#[derive(Debug, Default)]
pub(crate) struct Record {
    strikes: Strikes,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    faults: HashMap<String, VecDeque<Instant>>,
    quarantined: HashMap<String, String>,
}

impl Record {
    pub(crate) fn new(strikes: Strikes) -> Self {
        Self { strikes, known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more fault. How many it were, if this one is the one too many.
    pub(crate) fn strike(&self, digest: &str) -> Option<usize> {
        let now = Instant::now();
        let most = self.strikes.most.max(1);
        let mut known = self.known();
        let known = &mut *known;
        if known.faults.len() >= KEPT && !known.faults.contains_key(digest) {
            let oldest = known.faults.iter().min_by_key(|(_, times)| times.back().copied());
            let oldest = oldest.map(|(digest, _)| digest.clone());
            oldest.map(|digest| known.faults.remove(&digest));
        }
        let times = known.faults.entry(digest.to_owned()).or_default();
        times.push_back(now);
        while times.front().is_some_and(|first| now - *first > self.strikes.within)
            || times.len() > most
        {
            times.pop_front();
        }
        let count = times.len();
        if count < most || known.quarantined.contains_key(digest) {
            return None;
        }
        let seconds = self.strikes.within.as_secs();
        let reason = format!("{count} faults within {seconds} s");
        known.quarantined.insert(digest.to_owned(), reason);
        Some(count)
    }

    /// Faults that count now.
    pub(crate) fn faults(&self, digest: &str) -> usize {
        let known = self.known();
        let recent = |times: &VecDeque<Instant>| {
            times.iter().filter(|time| time.elapsed() <= self.strikes.within).count()
        };
        known.faults.get(digest).map_or(0, recent)
    }

    /// Puts a digest in quarantine. Whether it was not there.
    pub(crate) fn quarantine(&self, digest: &str, reason: &str) -> bool {
        self.known().quarantined.insert(digest.to_owned(), reason.to_owned()).is_none()
    }

    /// Forgets its faults and lets it be installed again. Whether it was in quarantine.
    pub(crate) fn release(&self, digest: &str) -> bool {
        let mut known = self.known();
        known.faults.remove(digest);
        known.quarantined.remove(digest).is_some()
    }

    /// Why it may not be installed.
    pub(crate) fn reason(&self, digest: &str) -> Option<String> {
        self.known().quarantined.get(digest).cloned()
    }

    pub(crate) fn list(&self) -> Vec<Quarantined> {
        let known = self.known();
        let mut list: Vec<_> = known
            .quarantined
            .iter()
            .map(|(digest, reason)| Quarantined { digest: digest.clone(), reason: reason.clone() })
            .collect();
        list.sort_by(|a, b| a.digest.cmp(&b.digest));
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn faults_count_for_so_long_and_quarantine_until_released() {
        let record = Record::new(Strikes { most: 3, within: Duration::from_secs(60) });
        for _ in 0..10 {
            assert_eq!(record.strike("slow"), None);
            tokio::time::advance(Duration::from_secs(31)).await;
        }
        assert_eq!(record.faults("slow"), 1);
        assert_eq!((record.strike("a"), record.strike("a")), (None, None));
        assert_eq!(record.strike("b"), None, "each digest for itself");
        assert_eq!(record.strike("a"), Some(3));
        assert_eq!(record.strike("a"), None, "told once");
        assert!(record.reason("a").unwrap().contains("3 faults"));
        assert!(record.release("a") && !record.release("a"));
        assert_eq!((record.faults("a"), record.reason("a")), (0, None));
        assert!(record.quarantine("c", "known bad") && !record.quarantine("c", "known bad"));
        assert_eq!(record.list().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_memory_of_faults_is_bounded() {
        let record = Record::new(Strikes::default());
        for n in 0..KEPT + 5 {
            record.strike(&format!("{n}"));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert_eq!(record.known().faults.len(), KEPT);
        assert_eq!((record.faults("0"), record.faults("5")), (0, 1));
    }
}
