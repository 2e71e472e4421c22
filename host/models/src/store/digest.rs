//! SHA-256 digests: the names of blobs.

use std::{fmt, io::Read};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{
    error::{Result, StoreError},
    progress::{Reporter, Stage},
};

/// The SHA-256 of some bytes; written `sha256:` and 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

impl Digest {
    /// Reads 64 hex digits, with or without `sha256:` before them.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let hex = text.strip_prefix("sha256:").unwrap_or(text).as_bytes();
        if hex.len() != 64 {
            return None;
        }
        let mut out = [0; 32];
        for (byte, pair) in out.iter_mut().zip(hex.chunks_exact(2)) {
            // `from_str_radix` alone would take a sign.
            if !pair.iter().all(u8::is_ascii_hexdigit) {
                return None;
            }
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self(out))
    }

    /// 64 lower-case hex digits.
    #[must_use]
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The digest of bytes at hand.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest of a model in several files: of their digests, one a line, in order. One file's
    /// is its own.
    pub(crate) fn of_parts(parts: &[Self]) -> Self {
        match parts {
            [one] => *one,
            many => {
                let list: String = many.iter().map(|part| format!("{part}\n")).collect();
                Self::of(list.as_bytes())
            }
        }
    }

    /// The digest and length of everything `reader` gives, reported as `stage`.
    pub(crate) fn read(
        mut reader: impl Read,
        reporter: &mut Reporter<'_>,
        stage: Stage,
    ) -> Result<(Self, u64)> {
        let mut hasher = Sha256::new();
        let mut buffer = vec![0; 1 << 20];
        let mut done = 0;
        loop {
            reporter.at(stage, done)?;
            let read = match reader.read(&mut buffer) {
                Ok(0) => return Ok((Self(hasher.finalize().into()), done)),
                Ok(read) => read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(StoreError::io("read", reporter.what, error)),
            };
            hasher.update(buffer.get(..read).unwrap_or_default());
            done += read as u64;
        }
    }

    /// Fails unless this is `expected`.
    pub(crate) fn must_be(&self, expected: Option<Self>, what: &str) -> Result<()> {
        match expected {
            Some(expected) if expected != *self => Err(StoreError::Digest {
                what: what.to_owned(),
                expected: expected.hex(),
                found: self.hex(),
            }),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl TryFrom<String> for Digest {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("`{text}` is not a sha256 digest"))
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_exactly_64_hex_digits() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").hex(), empty);
        assert_eq!(
            Digest::parse(&format!("sha256:{}", empty.to_uppercase())),
            Some(Digest::of(b""))
        );
        for bad in
            ["", "sha256:", &empty[1..], &format!("{empty}0"), &format!("+{}", &empty[1..]), "../x"]
        {
            assert_eq!(Digest::parse(bad), None, "{bad}");
        }
    }
}
