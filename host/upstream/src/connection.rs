//! One HTTP/1.1 connection, driven by whoever waits for its answer.
//!
//! No task runs behind it: reading and writing happen inside [`Connection::exchange`] and
//! [`Connection::poll_body`]. What nobody waits for is not read, so a slow reader slows the server and
//! costs one buffer; and dropping it closes the socket there and then, in whatever state it is.

use std::{
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Request, Response,
    body::{Body as _, Incoming},
    client::conn::http1,
};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::dial::Stream;

/// Most bytes of an answer's head, and of what is read ahead of a body.
pub const MAX_HEAD_BYTES: usize = 64 << 10;
/// Most headers of an answer.
pub const MAX_HEADERS: usize = 128;
/// First bytes of an answer that are kept to say what was seen.
const KEPT: usize = 256;

type Body = Full<Bytes>;
type Driver = http1::Connection<TokioIo<Tap>, Body>;

/// A connection, and what passed over it since the current exchange began.
pub(crate) struct Connection {
    sender: http1::SendRequest<Body>,
    /// None once it has ended; polling it again would be an error.
    driver: Option<Pin<Box<Driver>>>,
    passed: Arc<Passed>,
}

/// An exchange that failed before the answer's head.
pub(crate) struct Broken {
    pub(crate) error: hyper::Error,
    /// No byte of an answer was read.
    pub(crate) silent: bool,
    /// The first bytes that came.
    pub(crate) seen: Vec<u8>,
}

impl Connection {
    /// Over an open stream.
    pub(crate) async fn new(stream: Box<dyn Stream>) -> hyper::Result<Self> {
        let passed = Arc::<Passed>::default();
        let tap = Tap { stream, passed: Arc::clone(&passed) };
        let (sender, driver) = http1::Builder::new()
            .max_headers(MAX_HEADERS)
            .max_buf_size(MAX_HEAD_BYTES)
            .handshake(TokioIo::new(tap))
            .await?;
        Ok(Self { sender, driver: Some(Box::pin(driver)), passed })
    }

    /// Sends and waits for the answer's head.
    pub(crate) async fn exchange(
        &mut self,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, Broken> {
        self.passed.reset();
        let sending = self.sender.try_send_request(request);
        let mut sending = pin!(sending);
        let driver = &mut self.driver;
        let answer = poll_fn(|cx| {
            drive(driver, cx);
            sending.as_mut().poll(cx)
        })
        .await;
        answer.map_err(|failed| Broken {
            silent: self.passed.read.load(Ordering::Relaxed) == 0,
            seen: self.passed.seen(),
            error: failed.into_error(),
        })
    }

    /// The next piece of a body. `None`: it has ended.
    pub(crate) fn poll_body(
        &mut self,
        body: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Bytes>>> {
        // First the body, so that the driver knows that somebody waits; then the driver, which reads;
        // then the body again.
        if let Poll::Ready(piece) = poll_data(body, cx) {
            return Poll::Ready(piece);
        }
        drive(&mut self.driver, cx);
        poll_data(body, cx)
    }

    /// Whether another request can go over it. Looks whether the server has closed it or said
    /// something unasked.
    pub(crate) fn poll_reusable(&mut self, cx: &mut Context<'_>) -> bool {
        drive(&mut self.driver, cx);
        self.driver.is_some() && self.sender.is_ready()
    }

    /// The first bytes of the current answer.
    pub(crate) fn seen(&self) -> Vec<u8> {
        self.passed.seen()
    }
}

fn poll_data(body: &mut Incoming, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Bytes>>> {
    loop {
        return match ready!(Pin::new(&mut *body).poll_frame(cx)) {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) if data.is_empty() => continue,
                Ok(data) => Poll::Ready(Some(Ok(data))),
                // Trailers say nothing that anybody asks for.
                Err(_) => continue,
            },
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
            None => Poll::Ready(None),
        };
    }
}

/// Reads and writes what it can. What goes wrong is told to whoever waits for the answer or its body.
fn drive(driver: &mut Option<Pin<Box<Driver>>>, cx: &mut Context<'_>) {
    let Some(running) = driver else { return };
    if let Poll::Ready(result) = running.as_mut().poll(cx) {
        if let Err(error) = result {
            tracing::trace!(%error, "connection ended");
        }
        *driver = None;
    }
}

/// What passed over a stream.
#[derive(Debug, Default)]
struct Passed {
    read: AtomicU64,
    first: Mutex<Vec<u8>>,
}

impl Passed {
    fn reset(&self) {
        self.read.store(0, Ordering::Relaxed);
        self.first.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn seen(&self) -> Vec<u8> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn arrived(&self, bytes: &[u8]) {
        let before = self.read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if before < KEPT as u64 {
            let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
            let room = KEPT.saturating_sub(first.len());
            first.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        }
    }
}

/// A stream that counts what is read.
struct Tap {
    stream: Box<dyn Stream>,
    passed: Arc<Passed>,
}

impl AsyncRead for Tap {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        self.passed.arrived(buffer.filled().get(before..).unwrap_or_default());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tap {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
