//! What a generation is held to: its last requests, and the shares of them that may fail or be slow.
//!
//! A request *fails* when its error is the generation's doing ([`blames`]); what a caller did wrong,
//! a full queue, a server that cannot be reached and a cancelled answer say nothing of it. Time is what the component was waited for,
//! so a reader that stalls does not make a generation slow. A share is never of fewer than
//! [`Guardrail::least`] requests, so one early failure is no verdict, and a run of them is one at
//! once.
//!
//! Bounds: [`MOST`] requests a window.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use gristmill_core::{Code, Error};

use super::SwapError;

/// Most requests that a window keeps.
pub const MOST: usize = 10_000;

/// What a generation is held to.
#[derive(Debug, Clone, PartialEq)]
pub struct Guardrail {
    /// Requests looked at: the last so many, 1 to [`MOST`].
    pub window: usize,
    /// A share is of at least so many requests, 1 to `window`.
    pub least: usize,
    /// Highest share that may fail, beyond the share that fails on the generation it is compared
    /// with: the current one for a candidate, the replaced one, as it was, for a new one.
    pub failed: f64,
    /// Longest good wait for the first event of an answer; none: not looked at.
    pub first_event: Option<Duration>,
    /// Longest good wait for each later event, as the mean of an answer; none: not looked at.
    pub per_event: Option<Duration>,
    /// As a further limit on both, so many times the medians of the generation that is replaced;
    /// none, or too few requests to have medians: no further limit.
    pub slower: Option<f64>,
    /// Highest share that may exceed a wait. With 0.5 the waits are limits on the median.
    pub slow: f64,
    /// How long after its promotion a generation is watched; zero: not at all.
    pub watch: Duration,
}

impl Default for Guardrail {
    /// One in twenty of the last hundred requests may fail, time is not looked at, and after ten
    /// minutes a generation has proven itself.
    fn default() -> Self {
        Self {
            window: 100,
            least: 20,
            failed: 0.05,
            first_event: None,
            per_event: None,
            slower: None,
            slow: 0.5,
            watch: Duration::from_secs(600),
        }
    }
}

impl Guardrail {
    pub(super) fn check(&self) -> Result<(), SwapError> {
        let wrong = |field, expected| Err(SwapError::Rollout { field, expected });
        if !(1..=MOST).contains(&self.window) {
            return wrong("guard.window", "1 to 10000 requests");
        }
        if !(1..=self.window).contains(&self.least) {
            return wrong("guard.least", "1 request to the whole window");
        }
        if !(0.0..=1.0).contains(&self.failed) {
            return wrong("guard.failed", "a number from 0 to 1");
        }
        if !(0.0..=1.0).contains(&self.slow) {
            return wrong("guard.slow", "a number from 0 to 1");
        }
        if self.slower.is_some_and(|times| !(times.is_finite() && times >= 1.0)) {
            return wrong("guard.slower", "a number from 1");
        }
        Ok(())
    }

    /// The same, with the limits that `slower` makes of these medians.
    pub(crate) fn against(mut self, replaced: &WindowReport) -> Self {
        let Some(times) = self.slower else { return self };
        if replaced.requests < self.least {
            return self;
        }
        let sooner = |limit: Option<Duration>, median: Option<Duration>| match (limit, median) {
            (Some(limit), Some(median)) => Some(limit.min(median.mul_f64(times))),
            (limit, median) => limit.or(median.map(|median| median.mul_f64(times))),
        };
        self.first_event = sooner(self.first_event, replaced.first_event);
        self.per_event = sooner(self.per_event, replaced.per_event);
        self
    }
}

/// Which rule was broken, and by how much.
#[derive(Debug, Clone, PartialEq)]
pub struct Breach {
    /// The rule.
    pub rule: Rule,
    /// The share found.
    pub found: f64,
    /// The share allowed.
    pub allowed: f64,
    /// Requests seen.
    pub requests: usize,
}

/// A rule of the guardrail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Requests that fail.
    Failed,
    /// Answers whose first event comes late.
    FirstEvent,
    /// Answers whose later events come slowly.
    PerEvent,
    /// Copies that are answered differently.
    Differing,
}

impl Rule {
    /// The documented word: `failed`, `first-event`, `per-event` or `differing`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::FirstEvent => "first-event",
            Self::PerEvent => "per-event",
            Self::Differing => "differing",
        }
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, found, allowed, requests } = self;
        let rule = rule.as_str();
        write!(
            f,
            "guardrail {rule}: a share of {found:.3} of the last {requests} requests, allowed is {allowed:.3}"
        )
    }
}

/// The last requests of a generation, summed up.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WindowReport {
    /// How many.
    pub requests: usize,
    /// How many of them failed.
    pub failed: usize,
    /// Median wait for the first event.
    pub first_event: Option<Duration>,
    /// Median wait for a later event.
    pub per_event: Option<Duration>,
}

/// One request.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sample {
    pub(crate) failed: bool,
    /// Wait for the first event, where there was one or the caller gave up waiting for it.
    pub(crate) first: Option<Duration>,
    /// Mean wait for the later ones, where there were any.
    pub(crate) each: Option<Duration>,
}

/// Whether an error is the doing of the component or its server.
pub(crate) fn blames(error: &Error) -> bool {
    match error.code {
        Code::PluginFault
        | Code::UpstreamError
        | Code::UpstreamTimeout
        | Code::ManifestMismatch
        | Code::SessionFatal
        | Code::SessionClosed
        | Code::DigestMismatch
        | Code::Internal
        | Code::Other(_) => true,
        Code::NotFound
        | Code::Unsupported
        | Code::InvalidRequest
        | Code::ContextOverflow
        | Code::Busy
        | Code::Cancelled
        | Code::Drained
        | Code::UpstreamUnavailable
        | Code::InsufficientMemory
        | Code::Blocked => false,
    }
}

/// The sliding window of one generation.
#[derive(Debug)]
pub(crate) struct Window {
    guard: Guardrail,
    samples: Mutex<Samples>,
}

#[derive(Debug, Default)]
struct Samples {
    last: VecDeque<Sample>,
    failed: usize,
    late: usize,
    slow: usize,
}

impl Window {
    pub(crate) fn new(guard: Guardrail) -> Self {
        Self { guard, samples: Mutex::default() }
    }

    pub(crate) fn guard(&self) -> &Guardrail {
        &self.guard
    }

    fn samples(&self) -> MutexGuard<'_, Samples> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn late(&self, sample: &Sample) -> bool {
        exceeds(sample.first, self.guard.first_event)
    }

    fn slow(&self, sample: &Sample) -> bool {
        exceeds(sample.each, self.guard.per_event)
    }

    /// Whether a wait without an end is long enough to count.
    pub(crate) fn is_late(&self, waited: Duration) -> bool {
        exceeds(Some(waited), self.guard.first_event)
    }

    pub(crate) fn take(&self, sample: Sample) {
        let mut samples = self.samples();
        samples.failed += usize::from(sample.failed);
        samples.late += usize::from(self.late(&sample));
        samples.slow += usize::from(self.slow(&sample));
        samples.last.push_back(sample);
        while samples.last.len() > self.guard.window.min(MOST) {
            let Some(gone) = samples.last.pop_front() else { return };
            samples.failed -= usize::from(gone.failed);
            samples.late -= usize::from(self.late(&gone));
            samples.slow -= usize::from(self.slow(&gone));
        }
    }

    /// The share of requests that failed.
    pub(crate) fn failing(&self) -> f64 {
        let samples = self.samples();
        share(samples.failed, samples.last.len(), self.guard.least)
    }

    /// The rule that is broken, given the share that fails on the generation it is compared with.
    pub(crate) fn broken(&self, elsewhere: f64) -> Option<Breach> {
        let samples = self.samples();
        let requests = samples.last.len();
        let rules = [
            (Rule::Failed, samples.failed, self.guard.failed + elsewhere),
            (Rule::FirstEvent, samples.late, self.guard.slow),
            (Rule::PerEvent, samples.slow, self.guard.slow),
        ];
        rules.into_iter().find_map(|(rule, count, allowed)| {
            let found = share(count, requests, self.guard.least);
            (found > allowed).then_some(Breach { rule, found, allowed, requests })
        })
    }

    pub(crate) fn report(&self) -> WindowReport {
        let samples = self.samples();
        let median = |of: fn(&Sample) -> Option<Duration>| {
            let mut times: Vec<_> = samples.last.iter().filter_map(of).collect();
            times.sort_unstable();
            times.get(times.len() / 2).copied()
        };
        WindowReport {
            requests: samples.last.len(),
            failed: samples.failed,
            first_event: median(|sample| sample.first),
            per_event: median(|sample| sample.each),
        }
    }
}

fn exceeds(time: Option<Duration>, limit: Option<Duration>) -> bool {
    time.zip(limit).is_some_and(|(time, limit)| time > limit)
}

/// Of at least `least`.
pub(crate) fn share(count: usize, of: usize, least: usize) -> f64 {
    count as f64 / of.max(least).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn window(guard: Guardrail, samples: &[(usize, Sample)]) -> Window {
        let window = Window::new(guard);
        for &(times, sample) in samples {
            (0..times).for_each(|_| window.take(sample));
        }
        window
    }

    fn good(first: u32, each: u32) -> Sample {
        Sample { failed: false, first: Some(MS * first), each: Some(MS * each) }
    }

    fn bad() -> Sample {
        Sample { failed: true, ..Sample::default() }
    }

    #[test]
    fn the_rule_that_is_broken_is_named_and_no_other() {
        let guard = || Guardrail {
            window: 40,
            least: 20,
            first_event: Some(MS * 100),
            per_event: Some(MS * 10),
            ..Guardrail::default()
        };
        for (what, samples, elsewhere, expected) in [
            ("nothing", vec![], 0.0, None),
            ("one early failure", vec![(1, bad())], 0.0, None),
            ("a run of them at once", vec![(2, bad())], 0.0, Some(Rule::Failed)),
            ("one in twenty", vec![(1, bad()), (19, good(1, 1))], 0.0, None),
            ("more", vec![(2, bad()), (18, good(1, 1))], 0.0, Some(Rule::Failed)),
            ("as elsewhere", vec![(10, bad()), (10, good(1, 1))], 0.5, None),
            ("late", vec![(11, good(101, 1))], 0.0, Some(Rule::FirstEvent)),
            ("half of them late", vec![(10, good(101, 1)), (10, good(1, 1))], 0.0, None),
            ("slow", vec![(11, good(1, 11))], 0.0, Some(Rule::PerEvent)),
            ("as slow as may be", vec![(40, good(100, 10))], 0.0, None),
            ("long ago", vec![(10, bad()), (40, good(1, 1))], 0.0, None),
        ] {
            let broken = window(guard(), &samples).broken(elsewhere);
            assert_eq!(broken.map(|breach| breach.rule), expected, "{what}");
        }
    }

    #[test]
    fn a_limit_may_be_so_many_times_what_was_before() {
        let before = window(Guardrail::default(), &[(20, good(10, 2)), (5, bad())]).report();
        assert_eq!((before.requests, before.failed), (25, 5));
        assert_eq!((before.first_event, before.per_event), (Some(MS * 10), Some(MS * 2)));
        let asked =
            Guardrail { slower: Some(1.5), first_event: Some(MS * 12), ..Guardrail::default() };
        let limits = asked.clone().against(&before);
        assert_eq!(limits.first_event, Some(MS * 12), "the lower of the two");
        assert_eq!(limits.per_event, Some(MS * 3));
        let few = WindowReport { requests: 3, ..before };
        assert_eq!(asked.clone().against(&few), asked);
    }
}
