//! A bounded queue in front of one model on one back-end.
//!
//! So many answers run, so many wait in order and so long, the rest is told when to come back. Whoever drops
//! the future that waits has left the queue.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use gristmill_core::{Code, Error, Result};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout},
};

use crate::live::Limits;

/// Shortest and longest advice of when to come back.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The queue.
#[derive(Debug)]
pub struct Queue {
    places: Arc<Semaphore>,
    limits: Limits,
    waiting: AtomicUsize,
    active: AtomicUsize,
    /// Mean time of an answer, seconds, exponentially smoothed; for the advice only.
    mean: Mutex<f64>,
}

impl Queue {
    /// An empty queue.
    #[must_use]
    pub fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            places: Arc::new(Semaphore::new(limits.active.clamp(1, Semaphore::MAX_PERMITS))),
            limits,
            waiting: AtomicUsize::new(0),
            active: AtomicUsize::new(0),
            mean: Mutex::new(1.0),
        })
    }

    /// Waits for a place.
    ///
    /// # Errors
    /// `busy` with `retry_after_ms` when as many wait already as may, and when it waited as long as it may.
    pub async fn admit(self: &Arc<Self>) -> Result<Permit> {
        let since = Instant::now();
        let place = match Arc::clone(&self.places).try_acquire_owned() {
            Ok(place) => place,
            Err(_) => {
                let waiting = Waiting::enter(self)?;
                let place = timeout(self.limits.wait, Arc::clone(&self.places).acquire_owned())
                    .await
                    .map_err(|_| self.waited())?
                    .map_err(|_| Error::internal("the queue was closed"))?;
                drop(waiting);
                place
            }
        };
        self.active.fetch_add(1, Ordering::Relaxed);
        Ok(Permit {
            queue: Arc::clone(self),
            waited: since.elapsed(),
            since: Instant::now(),
            _place: place,
        })
    }

    /// Answers running now.
    #[must_use]
    pub fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    /// Requests waiting now.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether one more request would be taken in.
    ///
    /// # Errors
    /// `busy`, as [`Queue::admit`] would say.
    pub fn room(&self) -> Result<()> {
        let full = self.active() >= self.limits.active.max(1);
        if full && self.waiting() >= self.limits.queued { Err(self.busy()) } else { Ok(()) }
    }

    fn busy(&self) -> Error {
        self.later("server busy, please try again. maximum pending requests exceeded")
            .with("limit", self.limits.queued)
    }

    fn waited(&self) -> Error {
        let wait = self.limits.wait;
        self.later(&format!("server busy, please try again. no place became free within {wait:?}"))
            .with("waited_ms", wait.as_millis())
    }

    /// `busy`, with advice of when to come back.
    fn later(&self, why: &str) -> Error {
        let mean = self.mean.lock().map_or(1.0, |mean| *mean);
        let ahead = (self.waiting() + self.active()) as f64;
        let seconds = mean * ahead / self.limits.active.max(1) as f64;
        let wait = Duration::try_from_secs_f64(seconds).unwrap_or(RETRY.1).clamp(RETRY.0, RETRY.1);
        Error::new(Code::Busy, why).retry_after(u32::try_from(wait.as_millis()).unwrap_or(u32::MAX))
    }
}

/// One request in the queue; dropping it leaves.
struct Waiting<'a>(&'a Queue);

impl<'a> Waiting<'a> {
    fn enter(queue: &'a Queue) -> Result<Self> {
        let limit = queue.limits.queued;
        let entered = queue.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |waiting| {
            (waiting < limit).then_some(waiting + 1)
        });
        entered.map(|_| Self(queue)).map_err(|_| queue.busy())
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A place; dropping it lets the next one in.
#[derive(Debug)]
pub struct Permit {
    queue: Arc<Queue>,
    waited: Duration,
    since: Instant,
    _place: OwnedSemaphorePermit,
}

impl Permit {
    /// How long the request waited for its place.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.waited
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.queue.active.fetch_sub(1, Ordering::Relaxed);
        if let Ok(mut mean) = self.queue.mean.lock() {
            *mean += 0.2 * (self.since.elapsed().as_secs_f64() - *mean);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_queue_is_bounded_and_whoever_leaves_makes_room() {
        let queue = Queue::new(Limits { active: 1, queued: 1, ..Limits::default() });
        let running = queue.admit().await.unwrap();
        let mut waiting = Box::pin(queue.admit());
        assert!(
            std::future::poll_fn(|cx| std::task::Poll::Ready(
                waiting.as_mut().poll(cx).is_pending()
            ))
            .await
        );
        assert_eq!((queue.active(), queue.waiting()), (1, 1));

        let refused = queue.admit().await.unwrap_err();
        assert_eq!(refused.code, Code::Busy);
        assert!(refused.retry_after_ms.unwrap() >= 1000);

        drop(waiting);
        assert_eq!(queue.waiting(), 0);
        let next = queue.admit();
        drop(running);
        let next = next.await.unwrap();
        assert_eq!((queue.active(), queue.waiting()), (1, 0));
        drop(next);
        assert_eq!(queue.active(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waited_as_long_as_it_may_is_told_to_come_back_and_has_left() {
        let wait = Duration::from_secs(30);
        let queue = Queue::new(Limits { active: 1, queued: 1, wait });
        let running = queue.admit().await.unwrap();
        let since = Instant::now();
        let refused = queue.admit().await.unwrap_err();
        assert_eq!((refused.code, since.elapsed()), (Code::Busy, wait));
        assert!(refused.message.contains("no place became free within 30s"));
        assert!(refused.retry_after_ms.unwrap() >= 1000);
        assert_eq!((queue.active(), queue.waiting()), (1, 0));
        drop(running);
        queue.admit().await.unwrap();
    }
}
