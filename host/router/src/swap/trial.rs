//! A candidate on trial: which requests are for it, and how far it has come.
//!
//! Which ones is decided by a hash of the request's id and the candidate's digest, so that the same
//! request goes the same way when it is tried again, and another candidate meets other requests.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use super::{
    Breach, Trial, TrialReport,
    guard::{Rule, share},
};
use crate::generation::Generation;

/// A generation on trial.
pub(crate) struct Candidate {
    pub(crate) generation: Arc<Generation>,
    pub(crate) trial: Trial,
    seen: AtomicUsize,
    differing: AtomicUsize,
    skipped: AtomicUsize,
    copies: AtomicUsize,
}

impl Candidate {
    pub(crate) fn new(generation: Arc<Generation>, trial: Trial) -> Self {
        Self {
            generation,
            trial,
            seen: AtomicUsize::new(0),
            differing: AtomicUsize::new(0),
            skipped: AtomicUsize::new(0),
            copies: AtomicUsize::new(0),
        }
    }

    /// Whether the request with this key is for the candidate.
    pub(crate) fn takes(&self, key: &str) -> bool {
        let part = match self.trial {
            Trial::None => return false,
            Trial::Canary { share, .. } | Trial::Shadow { share, .. } => share,
        };
        place(&self.generation.digest, key) < part
    }

    /// One more canary request was answered. Whether that was the last of the trial.
    pub(crate) fn answered(&self) -> bool {
        match self.trial {
            Trial::Canary { window, .. } => self.seen.fetch_add(1, SeqCst) + 1 >= window,
            _ => false,
        }
    }

    /// One more copy was compared. Whether that was the last of the trial.
    ///
    /// # Errors
    /// Too many differ.
    pub(crate) fn compared(&self, differs: bool) -> Result<bool, Breach> {
        let Trial::Shadow { window, differing: allowed, .. } = self.trial else { return Ok(false) };
        let requests = self.seen.fetch_add(1, SeqCst) + 1;
        let differing =
            self.differing.fetch_add(usize::from(differs), SeqCst) + usize::from(differs);
        let least = self.generation.window.guard().least.min(window);
        let found = share(differing, requests, least);
        if found > allowed {
            return Err(Breach { rule: Rule::Differing, found, allowed, requests });
        }
        Ok(requests >= window)
    }

    /// A place for a copy, if there is one.
    pub(crate) fn copy(self: &Arc<Self>) -> Option<Copying> {
        let Trial::Shadow { active, .. } = self.trial else { return None };
        let room = |copies| (copies < active).then_some(copies + 1);
        if self.copies.fetch_update(SeqCst, SeqCst, room).is_err() {
            self.skipped.fetch_add(1, SeqCst);
            return None;
        }
        Some(Copying(Arc::clone(self)))
    }

    pub(crate) fn report(&self) -> TrialReport {
        TrialReport {
            trial: self.trial,
            seen: self.seen.load(SeqCst),
            differing: self.differing.load(SeqCst),
            skipped: self.skipped.load(SeqCst),
        }
    }
}

/// A copy under way; dropping it makes room for another.
pub(crate) struct Copying(pub(crate) Arc<Candidate>);

impl Drop for Copying {
    fn drop(&mut self) {
        self.0.copies.fetch_sub(1, SeqCst);
    }
}

/// Where a key falls between 0 and 1: FNV-1a, then the finisher of splitmix64, because the upper
/// bits of FNV hardly depend on the last letters.
fn place(salt: &str, key: &str) -> f64 {
    let bytes = salt.bytes().chain([0]).chain(key.bytes());
    let mut hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^= hash >> 31;
    // 53 bits: what a double has, so the result is below 1.
    (hash >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_hardly_differ_are_spread_evenly_and_always_alike() {
        for share in [0.01, 0.1, 0.5] {
            let taken = (0..10_000).filter(|n| place("sha256:a", &format!("req_{n:06}")) < share);
            let count = taken.count() as f64 / 10_000.0;
            assert!((count - share).abs() < 0.02, "{share}: {count}");
        }
        assert_eq!(place("a", "1").to_bits(), place("a", "1").to_bits());
        assert_ne!(place("a", "1").to_bits(), place("b", "1").to_bits());
    }
}
