//! The listener: HTTP/1.1 on TCP, with a bound on everything a client can take its time over.

use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{Router, body::Body, extract::Request};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use std::sync::Arc;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, Sleep, sleep, sleep_until, timeout},
};
use tower::Service;

/// What hyper may hold of one connection's output before it stops asking for more, and the longest
/// request head.
const BUFFER: usize = 64 << 10;

/// How long clients may take.
#[derive(Debug, Clone)]
pub struct ServeConfig {
    /// For a request's head, and between requests on one connection.
    pub header_timeout: Duration,
    /// Without taking a single byte of an answer; the connection is closed then.
    pub stall_timeout: Duration,
    /// For answers that run when the server stops.
    pub drain_timeout: Duration,
    /// Connections at the same time; more wait to be accepted.
    pub max_connections: usize,
}

impl Default for ServeConfig {
    fn default() -> Self {
        Self {
            header_timeout: Duration::from_secs(30),
            stall_timeout: Duration::from_secs(60),
            drain_timeout: Duration::from_secs(30),
            max_connections: 4096,
        }
    }
}

/// Serves until `shutdown` is done, then lets running answers end, within
/// [`ServeConfig::drain_timeout`].
///
/// # Errors
/// None at present: a failing `accept` is waited out.
pub async fn serve(
    listener: TcpListener,
    app: Router,
    config: ServeConfig,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let places = Arc::new(Semaphore::new(config.max_connections.clamp(1, Semaphore::MAX_PERMITS)));
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    let mut shutdown = std::pin::pin!(shutdown);
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(config.header_timeout)
        .max_buf_size(BUFFER);
    loop {
        let accepted = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, stream) = tokio::select! {
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => continue,
            (place, accepted) = accepted => match accepted {
                Ok((stream, _)) => (place, stream),
                Err(error) => {
                    // Out of descriptors, or the peer was gone already. The first passes when
                    // connections end.
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
        let app = app.clone();
        let service =
            service_fn(move |request: Request<Incoming>| app.clone().call(request.map(Body::new)));
        let io = TokioIo::new(Impatient::new(stream, config.stall_timeout));
        let connection = graceful.watch(builder.serve_connection(io, service));
        connections.spawn(async move {
            let _place = place;
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection ended");
            }
        });
    }
    drop(listener);
    if timeout(config.drain_timeout, graceful.shutdown()).await.is_err() {
        tracing::warn!("answers still running after the drain time are cut off");
    }
    connections.shutdown().await;
    Ok(())
}

/// A connection that gives up when its client takes nothing for too long.
struct Impatient {
    stream: TcpStream,
    patience: Duration,
    /// Runs while a write waits.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl Impatient {
    fn new(stream: TcpStream, patience: Duration) -> Self {
        Self { stream, patience, alarm: None }
    }

    /// Passes a write's outcome on, unless it has been pending for too long.
    fn watch<T>(
        &mut self,
        context: &mut Context<'_>,
        outcome: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.alarm = None;
            return outcome;
        }
        let patience = self.patience;
        let alarm =
            self.alarm.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + patience)));
        ready!(alarm.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes no more data")))
    }
}

impl AsyncRead for Impatient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Impatient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, data);
        self.watch(context, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(context, data);
        self.watch(context, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
