//! How long a model stays in memory after its last answer.
//!
//! Ollama's rule: 0 is "unload right after", negative is "for ever", anything else a time that
//! starts anew with every answer's end. What a request says stays said until another request says
//! something else, so a request of a dialect that cannot say it (`/v1`) changes nothing. Request
//! beats model beats configuration.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use gristmill_core::{Error, Result};
use tokio::{runtime::Handle, task::AbortHandle, time::Instant};

use crate::models::Residency;

/// How long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeepAlive {
    /// Until something else is said.
    Forever,
    /// So long after the last answer; zero: not at all.
    For(Duration),
}

impl KeepAlive {
    /// From a number of seconds, as a request has it.
    ///
    /// # Errors
    /// `invalid-request` when it is not a number.
    pub fn from_seconds(seconds: f64) -> Result<Self> {
        if seconds.is_nan() {
            return Err(Error::invalid("keep_alive is not a number"));
        }
        if seconds < 0.0 {
            return Ok(Self::Forever);
        }
        Ok(Duration::try_from_secs_f64(seconds).map_or(Self::Forever, Self::For))
    }

    /// From text: a duration such as `5m`, `1h30m`, `-1m`, `500ms`, or a bare number of seconds.
    ///
    /// # Errors
    /// `invalid-request` for anything else.
    pub fn parse(text: &str) -> Result<Self> {
        let text = text.trim();
        if let Ok(seconds) = text.parse::<f64>()
            && seconds.is_finite()
        {
            return Self::from_seconds(seconds);
        }
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let seconds = seconds_of(rest).ok_or_else(|| {
            Error::invalid(format!(
                "keep_alive {text:?} is not a duration; expected a number of seconds or something like \"5m\", \"1h30m\", \"-1\""
            ))
        })?;
        Self::from_seconds(if negative { -seconds } else { seconds })
    }
}

/// Sums `number unit` pairs; `None` when it is not that.
fn seconds_of(mut text: &str) -> Option<f64> {
    const UNITS: [(&str, f64); 8] = [
        ("ns", 1e-9),
        ("us", 1e-6),
        ("µs", 1e-6),
        ("μs", 1e-6),
        ("ms", 1e-3),
        ("s", 1.0),
        ("m", 60.0),
        ("h", 3600.0),
    ];
    let mut sum = 0.0;
    let mut any = false;
    while !text.is_empty() {
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, rest) = text.split_at_checked(digits)?;
        let number: f64 = number.parse().ok()?;
        let (unit, factor) = UNITS.iter().find(|(unit, _)| {
            rest.strip_prefix(unit)
                .is_some_and(|after| !after.starts_with(|c: char| c.is_alphabetic()))
        })?;
        sum += number * factor;
        any = true;
        text = rest.strip_prefix(unit)?;
    }
    any.then_some(sum)
}

impl fmt::Display for KeepAlive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forever => f.write_str("-1"),
            Self::For(time) => write!(f, "{}s", time.as_secs_f64()),
        }
    }
}

/// The configured times.
#[derive(Debug, Clone)]
pub struct KeepConfig {
    /// For every model that has none of its own.
    pub default: KeepAlive,
}

impl Default for KeepConfig {
    fn default() -> Self {
        Self { default: KeepAlive::For(Duration::from_secs(300)) }
    }
}

/// When a model will be let go of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// Never.
    Never,
    /// Then, by the wall clock.
    At(SystemTime),
}

#[derive(Debug, Default)]
struct Entry {
    active: usize,
    said: Option<KeepAlive>,
    model: Option<KeepAlive>,
    deadline: Option<Instant>,
    timer: Option<AbortHandle>,
    /// Counts idle periods, so that an old timer cannot end a new one.
    epoch: u64,
}

/// Watches over every loaded model's time.
#[derive(Clone)]
pub struct Keeper {
    inner: Arc<Inner>,
}

struct Inner {
    residency: Arc<dyn Residency>,
    config: KeepConfig,
    entries: Mutex<HashMap<String, Entry>>,
}

impl Inner {
    fn entries(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keeper {
    /// A keeper that lets go through this residency.
    #[must_use]
    pub fn new(residency: Arc<dyn Residency>, config: KeepConfig) -> Self {
        Self { inner: Arc::new(Inner { residency, config, entries: Mutex::default() }) }
    }

    /// An answer of this model begins. `said`: what the request says; `model`: what its
    /// configuration says.
    #[must_use]
    pub fn begin(&self, id: &str, said: Option<KeepAlive>, model: Option<KeepAlive>) -> Lease {
        let mut entries = self.inner.entries();
        let entry = entries.entry(id.to_owned()).or_default();
        entry.active += 1;
        entry.epoch += 1;
        entry.said = said.or(entry.said);
        entry.model = model;
        entry.deadline = None;
        if let Some(timer) = entry.timer.take() {
            timer.abort();
        }
        Lease { keeper: self.clone(), id: id.to_owned(), runtime: Handle::try_current().ok() }
    }

    /// Forgets a model's time and lets go of it now. Whether it was loaded.
    pub async fn unload(&self, id: &str) -> bool {
        let gone = self.inner.entries().remove(id);
        if let Some(timer) = gone.and_then(|entry| entry.timer) {
            timer.abort();
        }
        self.inner.residency.unload(id).await
    }

    /// When a model will be let go of; `None` when the keeper never saw it.
    #[must_use]
    pub fn expiry(&self, id: &str) -> Option<Expiry> {
        let entries = self.inner.entries();
        let entry = entries.get(id)?;
        let keep = self.effective(entry);
        let left = match (entry.deadline, keep) {
            (Some(deadline), _) => deadline.saturating_duration_since(Instant::now()),
            (None, KeepAlive::Forever) => return Some(Expiry::Never),
            (None, KeepAlive::For(time)) => time,
        };
        Some(SystemTime::now().checked_add(left).map_or(Expiry::Never, Expiry::At))
    }

    fn effective(&self, entry: &Entry) -> KeepAlive {
        entry.said.or(entry.model).unwrap_or(self.inner.config.default)
    }

    fn end(&self, id: &str, runtime: Option<&Handle>) {
        let mut entries = self.inner.entries();
        let Some(entry) = entries.get_mut(id) else { return };
        entry.active = entry.active.saturating_sub(1);
        if entry.active > 0 {
            return;
        }
        let KeepAlive::For(time) = self.effective(entry) else { return };
        let Some(deadline) = Instant::now().checked_add(time) else { return };
        entry.epoch += 1;
        entry.deadline = Some(deadline);
        let (keeper, id, epoch) = (self.clone(), id.to_owned(), entry.epoch);
        entry.timer = runtime.map(|runtime| {
            runtime
                .spawn(async move {
                    tokio::time::sleep_until(deadline).await;
                    keeper.expire(&id, epoch).await;
                })
                .abort_handle()
        });
    }

    async fn expire(&self, id: &str, epoch: u64) {
        {
            let mut entries = self.inner.entries();
            match entries.get(id) {
                Some(entry) if entry.epoch == epoch && entry.active == 0 => entries.remove(id),
                _ => return,
            };
        }
        if self.inner.residency.unload(id).await {
            tracing::info!(model = id, "unloaded: its keep-alive time is over");
        }
    }
}

/// An answer that runs; dropping it starts the model's time.
pub struct Lease {
    keeper: Keeper,
    id: String,
    runtime: Option<Handle>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.keeper.end(&self.id, self.runtime.as_ref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use async_trait::async_trait;
    use gristmill_engine::runtime::Loaded;

    #[derive(Default)]
    struct Watched(Mutex<Vec<String>>);

    #[async_trait]
    impl Residency for Watched {
        fn loaded(&self) -> Vec<Loaded> {
            Vec::new()
        }
        async fn load(&self, _: &str) -> Result<()> {
            Ok(())
        }
        async fn unload(&self, id: &str) -> bool {
            self.0.lock().unwrap().push(id.to_owned());
            true
        }
    }

    fn keeper() -> (Arc<Watched>, Keeper) {
        let watched = Arc::new(Watched::default());
        let keeper = Keeper::new(watched.clone(), KeepConfig::default());
        (watched, keeper)
    }

    /// Advances the paused clock and lets due timers run.
    async fn pass(time: Duration) {
        tokio::time::sleep(time).await;
        tokio::task::yield_now().await;
    }

    #[test]
    fn every_spelling_of_a_time_is_read() {
        let seconds = |s: f64| KeepAlive::For(Duration::from_secs_f64(s));
        for (text, expected) in [
            ("5m", seconds(300.0)),
            ("1h30m", seconds(5400.0)),
            ("1.5h", seconds(5400.0)),
            ("250ms", seconds(0.25)),
            ("0", seconds(0.0)),
            ("0s", seconds(0.0)),
            ("42", seconds(42.0)),
            ("-1", KeepAlive::Forever),
            ("-1m", KeepAlive::Forever),
            ("99999999999h", seconds(99_999_999_999.0 * 3600.0)),
        ] {
            assert_eq!(KeepAlive::parse(text).unwrap(), expected, "{text}");
        }
        for text in ["", "abc", "5x", "5", "m", "1h-3m", "1..5h", "nan", "inf", "--5m", "5mm"] {
            assert_eq!(KeepAlive::parse(text).is_ok(), text == "5", "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_model_goes_when_its_time_is_over_and_not_before() {
        let (watched, keeper) = keeper();
        drop(keeper.begin("m", None, None));
        pass(Duration::from_secs(299)).await;
        assert!(watched.0.lock().unwrap().is_empty());
        pass(Duration::from_secs(2)).await;
        assert_eq!(*watched.0.lock().unwrap(), ["m"]);
        assert_eq!(keeper.expiry("m"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_said_stays_said_and_beats_the_model_and_the_configuration() {
        let (watched, keeper) = keeper();
        let minute = KeepAlive::For(Duration::from_secs(60));
        drop(keeper.begin("m", Some(KeepAlive::Forever), Some(minute)));
        drop(keeper.begin("m", None, Some(minute)));
        assert_eq!(keeper.expiry("m"), Some(Expiry::Never));
        pass(Duration::from_secs(100_000)).await;
        assert!(watched.0.lock().unwrap().is_empty());

        drop(keeper.begin("n", None, Some(minute)));
        pass(Duration::from_secs(61)).await;
        assert_eq!(*watched.0.lock().unwrap(), ["n"]);
    }

    #[tokio::test(start_paused = true)]
    async fn zero_goes_at_once_and_a_running_answer_holds_the_model() {
        let (watched, keeper) = keeper();
        let long = keeper.begin("m", None, None);
        drop(keeper.begin("m", Some(KeepAlive::For(Duration::ZERO)), None));
        pass(Duration::from_secs(1000)).await;
        assert!(watched.0.lock().unwrap().is_empty());
        drop(long);
        pass(Duration::from_millis(1)).await;
        assert_eq!(*watched.0.lock().unwrap(), ["m"]);
    }
}
