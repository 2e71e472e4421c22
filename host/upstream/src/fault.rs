//! What a server did wrong, in words that name the back-end and what was seen, and never an address or
//! a key: these errors reach guests and clients.

use std::time::Duration;

use gristmill_core::{Code, Error};

use crate::{config::Config, hide::Hider};

/// Longest excerpt of what a server sent, in characters.
const MAX_SEEN: usize = 160;

/// Makes the errors of one server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault<'a>(pub(crate) &'a Config);

impl Fault<'_> {
    fn error(self, code: Code, what: &str) -> Error {
        Error::new(code, format!("back-end {}: {what}", self.0.backend))
            .with("backend", &self.0.backend)
            .with("upstream", &self.0.upstream)
    }

    /// It cannot be reached.
    pub(crate) fn unavailable(self, what: &str) -> Error {
        self.error(Code::UpstreamUnavailable, what)
    }

    /// The grant or the host forbids it.
    pub(crate) fn blocked(self, what: &str) -> Error {
        self.error(Code::Blocked, what)
    }

    /// The guest asked for what cannot be sent.
    pub(crate) fn invalid(self, what: &str) -> Error {
        self.error(Code::InvalidRequest, what)
    }

    /// Too many exchanges at once.
    pub(crate) fn busy(self, most: u32) -> Error {
        let what = format!("{most} exchanges are under way, more are not granted");
        self.error(Code::Busy, &what).retry_after(1_000)
    }

    /// It was silent for too long in this phase.
    pub(crate) fn timeout(self, phase: &str, after: Duration) -> Error {
        let what = format!("no progress within {} while {phase}", shown_time(after));
        self.error(Code::UpstreamTimeout, &what)
            .with("phase", phase)
            .with("after_ms", after.as_millis())
    }

    /// It answered with a failure or with nonsense.
    pub(crate) fn failed(self, what: &str) -> Error {
        self.error(Code::UpstreamError, what)
    }

    /// The first bytes it sent, for an error's detail `seen`. They were cut somewhere, perhaps within
    /// the key: an end that may be its beginning is not shown.
    pub(crate) fn seen(self, bytes: &[u8]) -> String {
        let bytes = Hider::new(self.0.credential.as_ref()).push(bytes);
        let text = String::from_utf8_lossy(&bytes);
        let mut shown: String = text.chars().take(MAX_SEEN).flat_map(char::escape_debug).collect();
        if text.chars().nth(MAX_SEEN).is_some() {
            shown.push('…');
        }
        shown
    }
}

fn shown_time(time: Duration) -> String {
    if time.as_millis().is_multiple_of(1_000) {
        format!("{} s", time.as_secs())
    } else {
        format!("{} ms", time.as_millis())
    }
}
