//! How often one key may come: a token bucket for the rate, places for what runs at once.

use std::sync::{Arc, Mutex, PoisonError};

use gristmill_core::{Code, Error, Result};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

/// When to come back after too many requests at once: nobody knows when one of them ends.
const SOON_MS: u32 = 1000;

/// A key's limits and how far they are used up.
#[derive(Debug)]
pub struct Limits {
    rate: Option<f64>,
    concurrent: Option<u32>,
    bucket: Mutex<Bucket>,
    places: Option<Arc<Semaphore>>,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    filled: Instant,
}

/// A request within the limits; its place is free again when this is dropped.
#[derive(Debug, Default)]
pub struct Place {
    _held: Option<OwnedSemaphorePermit>,
}

impl Limits {
    /// `rate` in requests per second, `concurrent` in requests; none: no limit. The bucket is full at
    /// first and holds what comes in a second, and one at least.
    #[must_use]
    pub fn new(rate: Option<f64>, concurrent: Option<u32>) -> Self {
        Self {
            rate,
            concurrent,
            bucket: Mutex::new(Bucket { tokens: burst(rate), filled: Instant::now() }),
            places: concurrent.map(|count| Arc::new(Semaphore::new(count as usize))),
        }
    }

    /// Whether they are these.
    pub(super) fn are(&self, rate: Option<f64>, concurrent: Option<u32>) -> bool {
        self.rate == rate && self.concurrent == concurrent
    }

    /// Lets a request in.
    ///
    /// # Errors
    /// `rate-limited`, with `retry_after_ms` and the detail `limit`: `concurrent` or `rate`. A request
    /// that is refused uses nothing up.
    pub fn admit(&self) -> Result<Place> {
        let place = match &self.places {
            None => None,
            Some(places) => match Arc::clone(places).try_acquire_owned() {
                Ok(place) => Some(place),
                Err(_) => {
                    let most = self.concurrent.unwrap_or(0);
                    let message = format!("this key may have {most} requests at the same time");
                    return Err(refused(message, "concurrent", SOON_MS));
                }
            },
        };
        let Some(rate) = self.rate else { return Ok(Place { _held: place }) };
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let since = now.saturating_duration_since(bucket.filled).as_secs_f64();
        bucket.tokens = (bucket.tokens + since * rate).min(burst(self.rate));
        bucket.filled = now;
        if bucket.tokens < 1.0 {
            // As a number of milliseconds, rounded up; the cast saturates.
            let wait = ((1.0 - bucket.tokens) / rate * 1000.0).ceil() as u32;
            let message = format!("this key may have {rate} requests per second");
            return Err(refused(message, "rate", wait.max(1)));
        }
        bucket.tokens -= 1.0;
        Ok(Place { _held: place })
    }
}

fn burst(rate: Option<f64>) -> f64 {
    rate.unwrap_or(1.0).max(1.0)
}

fn refused(message: String, limit: &str, wait_ms: u32) -> Error {
    Error::new(Code::Other("rate-limited".to_owned()), message)
        .retry_after(wait_ms)
        .with("limit", limit)
}
