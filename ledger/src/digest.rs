//! SHA-256 in the spelling that pins use, and the canonical bytes that are hashed and signed.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::Value;
use sha2::{Digest, Sha256};

/// A SHA-256 as ledger files write it, for schemas.
pub(crate) const PATTERN: &str = "^[0-9a-f]{64}$";
/// A plain file name, for schemas.
pub(crate) const FILE_NAME: &str = "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$";

/// The SHA-256 of these bytes: 64 lower-case hexadecimal digits.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Whether this is a SHA-256 as ledger files write it.
pub(crate) fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// 32 bytes from 64 hexadecimal digits.
pub(crate) fn bytes32(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0_u8; 32];
    if text.len() != 64 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

/// A file name of the plain kind: no folders, nothing hidden, nothing to escape.
pub(crate) fn is_file_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 128
        && !text.starts_with('.')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// The same value with every object's keys sorted: JSON of it without blanks is canonical.
pub(crate) fn sorted(value: Value) -> Value {
    match value {
        Value::Object(object) => {
            let by_name: BTreeMap<_, _> =
                object.into_iter().map(|(name, value)| (name, sorted(value))).collect();
            Value::Object(by_name.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        other => other,
    }
}

/// DSSE's pre-authentication encoding: what is signed says of which type it is.
pub(crate) fn encoding(kind: &str, payload: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {kind} {} ", kind.len(), payload.len());
    [head.as_bytes(), payload].concat()
}
