//! Cuts a server's key out of what that server sends, before anybody sees it.
//!
//! A gateway may say which key it refused. What is replaced is the key as it was sent, wherever the
//! network cut the bytes: the end of a piece that may be the beginning of the key is held back, at
//! most the key's length less one, and nothing else is. A key in another spelling is not recognised.

use std::borrow::Cow;

use memchr::memmem::Finder;

use crate::config::Credential;

/// What stands in the key's place.
pub(crate) const SHOWN: &str = "(key)";

/// Follows one body.
#[derive(Debug)]
pub(crate) struct Hider {
    /// None: there is no key.
    key: Option<Finder<'static>>,
    held: Vec<u8>,
}

impl Hider {
    pub(crate) fn new(credential: Option<&Credential>) -> Self {
        let key = credential.map(|credential| Finder::new(credential.secret()).into_owned());
        Self { key, held: Vec::new() }
    }

    /// The next bytes, as they may be shown.
    pub(crate) fn push<'a>(&mut self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let Some(key) = &self.key else { return Cow::Borrowed(bytes) };
        let needle = key.needle();
        let arrived = if self.held.is_empty() {
            Cow::Borrowed(bytes)
        } else {
            self.held.extend_from_slice(bytes);
            Cow::Owned(std::mem::take(&mut self.held))
        };
        let mut shown = Vec::new();
        let mut rest = &*arrived;
        while let Some((before, after)) = key.find(rest).and_then(|at| rest.split_at_checked(at)) {
            shown.extend_from_slice(before);
            shown.extend_from_slice(SHOWN.as_bytes());
            rest = after.get(needle.len()..).unwrap_or_default();
        }
        let begins =
            |length: &usize| needle.get(..*length).is_some_and(|part| rest.ends_with(part));
        let held = (1..needle.len()).rev().find(begins).unwrap_or(0);
        let (rest, held) = rest.split_at(rest.len() - held);
        self.held = held.to_vec();
        if shown.is_empty() && rest.len() == arrived.len() {
            return arrived;
        }
        shown.extend_from_slice(rest);
        Cow::Owned(shown)
    }

    /// What was held back, when the bytes have ended and it did not become the key.
    pub(crate) fn end(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden<'a>(key: &str, pieces: impl IntoIterator<Item = &'a [u8]>) -> String {
        let mut hider = Hider::new(Some(&Credential::new(key, None).unwrap()));
        let mut shown = Vec::new();
        for piece in pieces {
            shown.extend_from_slice(&hider.push(piece));
        }
        shown.extend(hider.end());
        String::from_utf8(shown).unwrap()
    }

    #[test]
    fn the_key_is_hidden_wherever_it_is_cut() {
        for (key, text) in [
            ("sk-secret", "sk-secret"),
            ("sk-secret", "no such key: sk-secret, sk-secret\nsk-secresk-secretsk-"),
            ("sk-secret", "nothing of it"),
            ("sk-secret", "sk-sk-sk-secre"),
            ("aab", "aaaabaab aab ab aa"),
            ("abab", "abababab ababab aba"),
            ("x", "xx a x"),
        ] {
            let expected = text.replace(key, SHOWN);
            let bytes = text.as_bytes();
            assert_eq!(hidden(key, bytes.chunks(1)), expected, "{text:?} byte by byte");
            for first in 0..=bytes.len() {
                for second in first..=bytes.len() {
                    let pieces = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                    assert_eq!(hidden(key, pieces), expected, "{text:?} {first} {second}");
                }
            }
        }
    }

    #[test]
    fn only_what_may_become_the_key_waits() {
        let mut hider = Hider::new(Some(&Credential::new("sk-secret", None).unwrap()));
        assert!(matches!(hider.push(b"data: a\n\n"), Cow::Borrowed(b"data: a\n\n")));
        assert_eq!(&*hider.push(b"data: sk-se"), b"data: ");
        assert_eq!(&*hider.push(b"lf\n\n"), b"sk-self\n\n");
        assert!(matches!(Hider::new(None).push(b"sk-"), Cow::Borrowed(b"sk-")));
    }
}
