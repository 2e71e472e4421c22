//! Names for requests, answers and tool calls, which are unique and not secret; and times in words.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

use jiff::Timestamp;

static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
static COUNT: AtomicU64 = AtomicU64::new(0);

/// `prefix` and `length` lower-case letters and digits.
#[must_use]
pub fn fresh(prefix: &str, length: usize) -> String {
    const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut id = String::with_capacity(prefix.len() + length);
    id.push_str(prefix);
    let mut bits = 0_u64;
    for place in 0..length {
        if place % 12 == 0 {
            let mut hasher = KEYS.build_hasher();
            hasher.write_u64(COUNT.fetch_add(1, Ordering::Relaxed));
            bits = hasher.finish();
        }
        let letter = usize::try_from(bits % 36).unwrap_or(0);
        id.push(char::from(ALPHABET.get(letter).copied().unwrap_or(b'0')));
        bits /= 36;
    }
    id
}

/// A request id from outside, if it is one: up to 128 letters, digits, `.`, `_`, `-`.
#[must_use]
pub fn sane(id: &str) -> Option<String> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (!id.is_empty() && id.len() <= 128 && id.chars().all(good)).then(|| id.to_owned())
}

/// A time without its fraction of a second, as in 2026-11-30T12:00:00Z.
#[must_use]
pub fn seconds(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_and_have_their_shape() {
        let ids: std::collections::HashSet<_> = (0..10_000).map(|_| fresh("call_", 8)).collect();
        assert!(ids.len() > 9_990);
        assert!(ids.iter().all(|id| id.len() == 13 && sane(id).is_some()));
        for bad in ["", "a b", "a\r\nb", "ü", &"x".repeat(129)] {
            assert_eq!(sane(bad), None);
        }
    }

    #[test]
    fn a_time_has_whole_seconds() {
        for (at, written) in
            [(1_700_000_000_999, "2023-11-14T22:13:20Z"), (0, "1970-01-01T00:00:00Z")]
        {
            assert_eq!(seconds(Timestamp::from_millisecond(at).unwrap()), written);
        }
    }
}
