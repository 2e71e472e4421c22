//! How long a generation may go on: answers that run on it, and the deadline once it was replaced.
//!
//! A generation that serves has no deadline. When it is replaced it gets one: answers go on until
//! then and end with `drained` afterwards. Going back to it takes the deadline away again.
//!
//! No timer runs for this: an answer looks at the deadline while it waits for its next events. An
//! answer that nobody reads ends when it is read or dropped.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::future::{Either, select};
use gristmill_core::{Code, Error, Result};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

/// The life of one generation.
#[derive(Debug)]
pub(crate) struct Life {
    running: AtomicUsize,
    /// Answers that the deadline has ended.
    ended: AtomicU64,
    deadline: watch::Sender<Option<Instant>>,
    /// Whether it was told that the last answer has ended.
    told: AtomicBool,
}

impl Life {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            running: AtomicUsize::new(0),
            ended: AtomicU64::new(0),
            deadline: watch::Sender::new(None),
            told: AtomicBool::new(false),
        })
    }

    pub(crate) fn running(&self) -> usize {
        self.running.load(SeqCst)
    }

    /// What is left until the deadline, where there is one.
    pub(crate) fn left(&self) -> Option<Duration> {
        let deadline = *self.deadline.borrow();
        deadline.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// Whether its answers may not go on.
    pub(crate) fn is_over(&self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }

    /// It serves again.
    pub(crate) fn serve(&self) {
        self.told.store(false, SeqCst);
        self.ended.store(0, SeqCst);
        self.deadline.send_replace(None);
    }

    /// It was replaced; its answers may go on for this long. A deadline it has stays.
    pub(crate) fn drain(&self, time: Duration) {
        let now = Instant::now();
        // A time beyond the clock's range is a month.
        let at = now.checked_add(time).unwrap_or(now + Duration::from_secs(30 * 86_400));
        self.deadline.send_if_modified(|deadline| {
            let first = deadline.is_none();
            *deadline = deadline.or(Some(at));
            first
        });
    }

    /// An answer begins.
    pub(crate) fn begin(&self) {
        self.running.fetch_add(1, SeqCst);
        self.told.store(false, SeqCst);
    }

    /// An answer has ended.
    pub(crate) fn end(&self) {
        self.running.fetch_sub(1, SeqCst);
    }

    /// If it was replaced and its last answer has ended: how many the deadline ended. Once, unless
    /// another answer has begun since.
    pub(crate) fn drained(&self) -> Option<u64> {
        let idle = self.deadline.borrow().is_some() && self.running() == 0;
        (idle && !self.told.swap(true, SeqCst)).then(|| self.ended.load(SeqCst))
    }

    /// The future's outcome, or the end at the deadline. A future that is ready is never looked
    /// past.
    ///
    /// # Errors
    /// `drained`; the future's own error.
    pub(crate) async fn until<T>(&self, future: impl Future<Output = Result<T>>) -> Result<T> {
        match select(pin!(future), pin!(self.over())).await {
            Either::Left((outcome, _)) => outcome,
            Either::Right(((), _)) => {
                self.ended.fetch_add(1, SeqCst);
                Err(drained())
            }
        }
    }

    /// Waits for the deadline, which may come and go.
    async fn over(&self) {
        let mut deadlines = self.deadline.subscribe();
        loop {
            let deadline = *deadlines.borrow_and_update();
            // The sender lives as long as `self`: a change is all that can be waited for.
            let changed = deadlines.changed();
            let Some(at) = deadline else {
                let _ = changed.await;
                continue;
            };
            if let Either::Left(_) = select(pin!(sleep_until(at)), pin!(changed)).await {
                return;
            }
        }
    }
}

/// The error of an answer that was not done when its generation's time was.
pub(crate) fn drained() -> Error {
    Error::new(
        Code::Drained,
        "the component that answered was replaced and its time to finish is over; ask again",
    )
    .retry_after(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn pass(ms: u64) {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_may_go_on_until_the_deadline_and_a_way_back_takes_it_away() {
        let life = Life::new();
        let slow = || async {
            pass(1000).await;
            Ok(7)
        };
        assert_eq!(life.until(slow()).await, Ok(7));

        life.drain(Duration::from_millis(500));
        life.drain(Duration::from_secs(500));
        assert!(!life.is_over());
        assert_eq!(life.until(slow()).await.unwrap_err().code, Code::Drained);
        assert!(life.is_over());
        assert_eq!(life.until(async { Ok(8) }).await, Ok(8), "what is ready is not lost");

        life.serve();
        assert_eq!(life.until(slow()).await, Ok(7));
        let back = Arc::clone(&life);
        life.drain(Duration::from_millis(500));
        let rescue = async {
            pass(400).await;
            back.serve();
        };
        assert_eq!(futures_util::future::join(life.until(slow()), rescue).await.0, Ok(7));
    }

    #[tokio::test(start_paused = true)]
    async fn that_it_has_drained_is_said_once_for_each_time_it_was_replaced() {
        let life = Life::new();
        life.begin();
        assert_eq!(life.drained(), None, "it serves");
        life.drain(Duration::from_millis(1));
        assert_eq!(life.drained(), None, "an answer runs");
        let never = std::future::pending::<Result<()>>();
        assert!(life.until(never).await.is_err());
        life.end();
        assert_eq!((life.drained(), life.drained()), (Some(1), None));
        life.serve();
        life.drain(Duration::ZERO);
        assert_eq!((life.drained(), life.drained()), (Some(0), None));
    }
}
