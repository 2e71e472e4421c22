//! Connections that wait for the next request to the same server.
//!
//! A server may close a connection that waits at any moment, and some do right behind an answer whose
//! head said otherwise (llama-server behind every streamed one). When that meets a request, nobody
//! can tell from here whether the request was read. So what waits here serves only requests that may
//! be made twice: those of an idempotent method, and all where the grant says `repeatable`.
//!
//! One waits for [`IDLE`] at most: less than the five seconds after which uvicorn and cpp-httplib,
//! the servers most often behind a bridge, hang up. The newest is used first; the oldest are closed by
//! a task that lives only while there are any.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex, PoisonError},
    task::Poll,
    time::Duration,
};

use tokio::{runtime::Handle, time::Instant};

use crate::connection::Connection;

/// How long a connection may wait.
pub(crate) const IDLE: Duration = Duration::from_secs(3);
/// How many may wait.
const MOST: usize = 64;

/// The waiting connections of one server.
#[derive(Default)]
pub(crate) struct Pool(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    connections: Vec<(Instant, Connection)>,
    swept: bool,
}

impl Pool {
    /// A connection on which the server has not hung up, as far as anybody can tell.
    pub(crate) async fn take(&self) -> Option<Connection> {
        loop {
            let (since, mut connection) = self.lock().connections.pop()?;
            if since.elapsed() < IDLE
                && poll_fn(|cx| Poll::Ready(connection.poll_reusable(cx))).await
            {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection whose last answer has ended, if there is room and somebody to close it.
    pub(crate) fn put(self: &Arc<Self>, connection: Connection) {
        let Ok(runtime) = Handle::try_current() else { return };
        let mut waiting = self.lock();
        if waiting.connections.len() >= MOST {
            return;
        }
        waiting.connections.push((Instant::now(), connection));
        if !std::mem::replace(&mut waiting.swept, true) {
            let pool = Arc::downgrade(self);
            runtime.spawn(async move {
                loop {
                    tokio::time::sleep(IDLE).await;
                    let Some(pool) = pool.upgrade() else { return };
                    let mut waiting = pool.lock();
                    waiting.connections.retain(|(since, _)| since.elapsed() < IDLE);
                    if waiting.connections.is_empty() {
                        waiting.swept = false;
                        return;
                    }
                }
            });
        }
    }

    /// How many wait now.
    pub(crate) fn len(&self) -> usize {
        self.lock().connections.len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
