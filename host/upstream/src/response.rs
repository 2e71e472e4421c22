//! An answer whose head has arrived: its body in frames, until its end, its failure or its drop.

use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use async_trait::async_trait;
use bytes::Bytes;
use gristmill_core::{Error, Result};
use gristmill_sandbox::{Frame, Framing, Response};
use hyper::{
    StatusCode,
    body::{Body as _, Incoming},
    header::{CONTENT_TYPE, HeaderMap},
};
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, timeout_at},
};

use crate::{client::Shared, connection::Connection, fault::Fault, framing::Framer, hide::Hider};

/// How many frames are taken from what has arrived before the first is handed over.
const AHEAD: usize = 64;
/// And of how many bytes, so that large ones do not pile up.
const AHEAD_BYTES: usize = 256 << 10;

/// Headers of an answer that a guest may see. Others are nothing to it: `location`, `set-cookie` and
/// what gateways add tell of the operator's network.
const TOLD: &[&str] = &["content-type", "date", "retry-after", "server", "x-request-id"];

/// One answer.
pub(crate) struct Answer {
    shared: Arc<Shared>,
    status: StatusCode,
    headers: HeaderMap,
    /// None: the body has ended, or failed.
    open: Option<Open>,
    hider: Hider,
    framer: Framer,
    frames: VecDeque<Frame>,
    received: u64,
    deadline: Instant,
    failure: Option<Error>,
}

/// What is there as long as the body lasts. The body goes first: it belongs to the connection.
struct Open {
    body: Incoming,
    connection: Connection,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Answer {
    pub(crate) fn new(
        shared: Arc<Shared>,
        head: hyper::Response<Incoming>,
        connection: Connection,
        framing: Framing,
        deadline: Instant,
    ) -> Self {
        let (head, body) = head.into_parts();
        let kind = head.headers.get(CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
        let framer = Framer::new(
            framing_of(framing, head.status, kind),
            usize::try_from(shared.granted.frame_bytes).unwrap_or(usize::MAX),
        );
        let page = framing != Framing::Raw && head.status.is_success() && is_kind(kind, b"html");
        let hider = Hider::new(shared.config.credential.as_ref());
        let mut answer = Self {
            shared,
            status: head.status,
            headers: head.headers,
            open: Some(Open { body, connection, _permit: None }),
            hider,
            framer,
            frames: VecDeque::new(),
            received: 0,
            deadline,
            failure: None,
        };
        if page {
            answer.fail("it answered with a web page; is that the server's address?");
        }
        answer
    }

    /// Holds the place among the granted exchanges until the body ends; there may be none.
    pub(crate) async fn holding(mut self, permit: OwnedSemaphorePermit) -> Self {
        if let Some(open) = &mut self.open {
            open._permit = Some(permit);
            if open.body.is_end_stream() {
                self.finish().await;
            }
        }
        self
    }

    /// The frames that are there, within these bounds.
    fn take(&mut self, most: u32, bytes: u32) -> Vec<Frame> {
        let (mut taken, mut room) = (Vec::new(), bytes as usize);
        while taken.len() < most as usize
            && let Some(frame) =
                self.frames.pop_front_if(|frame| taken.is_empty() || size(frame) <= room)
        {
            room = room.saturating_sub(size(&frame));
            taken.push(frame);
        }
        taken
    }

    /// Takes what has arrived without waiting, up to a batch.
    async fn look_ahead(&mut self) {
        let ended = poll_fn(|cx| Poll::Ready(self.poll_ahead(cx))).await;
        if ended {
            self.finish().await;
        }
    }

    /// Whether the body has ended.
    fn poll_ahead(&mut self, cx: &mut Context<'_>) -> bool {
        while self.frames.len() < AHEAD
            && self.frames.iter().map(size).sum::<usize>() < AHEAD_BYTES
            && let Some(open) = &mut self.open
        {
            match open.connection.poll_body(&mut open.body, cx) {
                Poll::Pending => return false,
                Poll::Ready(None) => return true,
                Poll::Ready(Some(piece)) => self.piece(piece),
            }
        }
        false
    }

    fn piece(&mut self, piece: hyper::Result<Bytes>) {
        let bytes = match piece {
            Ok(bytes) => bytes,
            Err(error) => {
                tracing::debug!(backend = self.shared.config.backend, %error, "body");
                return self.fail("the connection ended in the middle of its answer");
            }
        };
        self.received += bytes.len() as u64;
        if self.received > self.shared.granted.response_bytes {
            let most = self.shared.granted.response_bytes;
            return self
                .fail(&format!("its answer is longer than the {most} bytes that are granted"));
        }
        let shown = self.hider.push(&bytes);
        if let Err(error) = self.framer.push(&shown, &mut self.frames) {
            self.fail(&error.to_string());
        }
    }

    /// The body has ended well; its connection may serve again.
    async fn finish(&mut self) {
        let rest = self.hider.end();
        let ended = self.framer.push(&rest, &mut self.frames);
        if let Err(error) = ended.and_then(|()| self.framer.end(&mut self.frames)) {
            return self.fail(&error.to_string());
        }
        let Some(Open { body, mut connection, _permit }) = self.open.take() else { return };
        drop(body);
        if poll_fn(|cx| Poll::Ready(connection.poll_reusable(cx))).await {
            self.shared.pool.put(connection);
        }
    }

    fn fail(&mut self, what: &str) {
        self.fail_with(Fault(&self.shared.config).failed(what));
    }

    /// The answer ends with this error, behind the frames that are whole; the socket is closed now.
    fn fail_with(&mut self, error: Error) {
        let seen = self.open.take().map(|open| open.connection.seen()).unwrap_or_default();
        let mut error = error.with("status", self.status.as_u16());
        if !seen.is_empty() {
            error = error.with("seen", Fault(&self.shared.config).seen(&seen));
        }
        self.failure = Some(error);
    }
}

#[async_trait]
impl Response for Answer {
    fn status(&self) -> u16 {
        self.status.as_u16()
    }

    fn header(&self, name: &str) -> Option<String> {
        if !TOLD.iter().any(|told| name.eq_ignore_ascii_case(told)) {
            return None;
        }
        let value = String::from_utf8_lossy(self.headers.get(name)?.as_bytes());
        Some(match &self.shared.config.credential {
            Some(credential) => credential.hide(&value),
            None => value.into_owned(),
        })
    }

    async fn next(&mut self, max_frames: u32, max_bytes: u32) -> Result<Option<Vec<Frame>>> {
        loop {
            if !self.frames.is_empty() {
                self.look_ahead().await;
                return Ok(Some(self.take(max_frames, max_bytes)));
            }
            if let Some(error) = &self.failure {
                return Err(error.clone());
            }
            let Some(open) = &mut self.open else { return Ok(None) };
            let times = self.shared.config.times;
            let idle = Instant::now() + times.idle;
            let piece = poll_fn(|cx| open.connection.poll_body(&mut open.body, cx));
            match timeout_at(idle.min(self.deadline), piece).await {
                Ok(Some(piece)) => self.piece(piece),
                Ok(None) => self.finish().await,
                Err(_) => {
                    let fault = Fault(&self.shared.config);
                    let error = if idle < self.deadline {
                        fault.timeout("waiting for more of its answer", times.idle)
                    } else {
                        fault.timeout("answering", times.total)
                    };
                    self.fail_with(error);
                }
            }
        }
    }
}

impl Drop for Answer {
    /// Closes the socket, unless the end of the body is already there: then the connection can
    /// serve again. Readers stop at the last event, which is before the end.
    fn drop(&mut self) {
        self.frames.clear();
        let mut cx = Context::from_waker(Waker::noop());
        let Some(Open { mut body, mut connection, _permit }) = self.open.take() else { return };
        if let Poll::Ready(None) = connection.poll_body(&mut body, &mut cx)
            && connection.poll_reusable(&mut cx)
        {
            self.shared.pool.put(connection);
        }
    }
}

fn size(frame: &Frame) -> usize {
    frame.data.len() + frame.event.as_ref().map_or(0, String::len)
}

/// How a body is really cut. An error or a JSON document in place of an event stream is handed over
/// as it is: cut into events, nothing would be left of it.
fn framing_of(asked: Framing, status: StatusCode, kind: &[u8]) -> Framing {
    match asked {
        Framing::Sse if !status.is_success() || is_kind(kind, b"json") => Framing::Raw,
        other => other,
    }
}

/// Whether a content type names this format, parameters aside.
fn is_kind(kind: &[u8], format: &[u8]) -> bool {
    let essence = kind.split(|&b| b == b';').next().unwrap_or_default();
    essence
        .to_ascii_lowercase()
        .split(|&b| b == b'/' || b == b'+' || b == b' ')
        .any(|part| part == format)
}
