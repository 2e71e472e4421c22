//! Cuts a body into frames as it arrives, wherever the network cut it.
//!
//! Lines end with LF or CRLF. Events are server-sent events as the HTML standard has them: lines end
//! with CR, LF or CRLF, a byte order mark in front is dropped, comments and unknown fields are
//! skipped, the lines of one event's data are joined by LF. Two things differ on purpose: data stays
//! bytes (a server that sends invalid UTF-8 is its reader's to refuse), and an event that is whole but
//! for its blank line when the body ends is given out, because servers leave that line away.
//!
//! Bounds: what is kept between two pieces is one line, and of an event its name and its data;
//! together at most the limit, else [`TooLong`].

use std::collections::VecDeque;

use gristmill_sandbox::{Frame, Framing};
use memchr::{memchr, memchr2};

/// A line or event is longer than the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a line or event of its answer is longer than {limit} bytes")]
pub struct TooLong {
    /// The limit.
    pub limit: usize,
}

/// Cuts one body.
#[derive(Debug)]
pub struct Framer {
    framing: Framing,
    limit: usize,
    /// The start of a line whose end has not come.
    line: Vec<u8>,
    /// The last byte was a CR that ended a line: an LF right behind it belongs to it.
    after_cr: bool,
    /// Nothing has been read: a byte order mark may come.
    start: bool,
    event: Option<String>,
    data: Option<Vec<u8>>,
}

const BOM: &[u8] = b"\xef\xbb\xbf";

impl Framer {
    /// For a body cut like this, with frames of at most `limit` bytes.
    #[must_use]
    pub fn new(framing: Framing, limit: usize) -> Self {
        Self {
            framing,
            limit,
            line: Vec::new(),
            after_cr: false,
            start: true,
            event: None,
            data: None,
        }
    }

    /// Takes the next bytes and appends the frames they complete.
    ///
    /// # Errors
    /// [`TooLong`]; nothing more is to be pushed then.
    pub fn push(&mut self, bytes: &[u8], frames: &mut VecDeque<Frame>) -> Result<(), TooLong> {
        match self.framing {
            Framing::Raw => {
                if !bytes.is_empty() {
                    frames.push_back(Frame { event: None, data: bytes.to_vec() });
                }
                Ok(())
            }
            Framing::Lines => self.push_lines(bytes, frames),
            Framing::Sse => self.push_events(bytes, frames),
        }
    }

    /// The body has ended: appends what is whole without its last line end.
    ///
    /// # Errors
    /// [`TooLong`].
    pub fn end(&mut self, frames: &mut VecDeque<Frame>) -> Result<(), TooLong> {
        let line = std::mem::take(&mut self.line);
        match self.framing {
            Framing::Raw => {}
            Framing::Lines => {
                if !line.is_empty() {
                    frames.push_back(Frame { event: None, data: line });
                }
            }
            Framing::Sse => {
                if !line.is_empty() {
                    self.field(&line)?;
                }
                self.dispatch(frames);
            }
        }
        Ok(())
    }

    fn push_lines(
        &mut self,
        mut bytes: &[u8],
        frames: &mut VecDeque<Frame>,
    ) -> Result<(), TooLong> {
        while let Some(end) = memchr(b'\n', bytes) {
            let (head, rest) = bytes.split_at(end);
            self.keep(head)?;
            let mut data = std::mem::take(&mut self.line);
            if data.last() == Some(&b'\r') {
                data.pop();
            }
            frames.push_back(Frame { event: None, data });
            bytes = rest.get(1..).unwrap_or_default();
        }
        self.keep(bytes)
    }

    fn push_events(
        &mut self,
        mut bytes: &[u8],
        frames: &mut VecDeque<Frame>,
    ) -> Result<(), TooLong> {
        if std::mem::take(&mut self.after_cr) {
            match bytes.split_first() {
                Some((b'\n', rest)) => bytes = rest,
                None => self.after_cr = true,
                Some(_) => {}
            }
        }
        while let Some(end) = memchr2(b'\r', b'\n', bytes) {
            let (head, rest) = bytes.split_at(end);
            if self.line.is_empty() {
                self.bound(head.len())?;
                self.whole(head, frames)?;
            } else {
                self.keep(head)?;
                let line = std::mem::take(&mut self.line);
                self.whole(&line, frames)?;
                self.line = line;
                self.line.clear();
            }
            bytes = match rest {
                [b'\r', b'\n', rest @ ..] => rest,
                [b'\r'] => {
                    self.after_cr = true;
                    &[]
                }
                [_, rest @ ..] => rest,
                [] => &[],
            };
        }
        self.keep(bytes)
    }

    /// A whole line of an event stream.
    fn whole(&mut self, line: &[u8], frames: &mut VecDeque<Frame>) -> Result<(), TooLong> {
        if line.is_empty() || (self.start && line == BOM) {
            self.start = false;
            self.dispatch(frames);
            return Ok(());
        }
        self.field(line)
    }

    fn field(&mut self, mut line: &[u8]) -> Result<(), TooLong> {
        if std::mem::take(&mut self.start) {
            line = line.strip_prefix(BOM).unwrap_or(line);
        }
        let (name, value) = match memchr(b':', line) {
            Some(colon) => {
                let (name, value) = line.split_at(colon);
                let value = value.get(1..).unwrap_or_default();
                (name, value.strip_prefix(b" ").unwrap_or(value))
            }
            None => (line, &[][..]),
        };
        match name {
            b"data" => {
                if self.event_bytes() + value.len() > self.limit {
                    return Err(TooLong { limit: self.limit });
                }
                match &mut self.data {
                    Some(data) => {
                        data.push(b'\n');
                        data.extend_from_slice(value);
                    }
                    none => *none = Some(value.to_vec()),
                }
            }
            b"event" => {
                self.event = None;
                if self.event_bytes() + value.len() > self.limit {
                    return Err(TooLong { limit: self.limit });
                }
                self.event = Some(String::from_utf8_lossy(value).into_owned());
            }
            // Comments have an empty name; id and retry are for browsers that connect again.
            _ => {}
        }
        Ok(())
    }

    fn dispatch(&mut self, frames: &mut VecDeque<Frame>) {
        let event = self.event.take().filter(|name| !name.is_empty());
        if let Some(data) = self.data.take() {
            frames.push_back(Frame { event, data });
        }
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        self.bound(bytes.len())?;
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn bound(&self, more: usize) -> Result<(), TooLong> {
        let held = self.line.len() + self.event_bytes();
        if held + more > self.limit { Err(TooLong { limit: self.limit }) } else { Ok(()) }
    }

    /// What is kept of an event whose blank line has not come.
    fn event_bytes(&self) -> usize {
        self.data.as_ref().map_or(0, Vec::len) + self.event.as_ref().map_or(0, String::len)
    }
}
