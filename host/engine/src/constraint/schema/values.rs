//! Numbers and constants, as far as the engine keeps them exactly.

use std::fmt::Write;

use serde_json::Value;

use super::{Rewritten, fault, join};

/// The largest whole number whose neighbours are told apart.
const WHOLE: f64 = 9_007_199_254_740_992.0;
/// Bounds the engine reads digit by digit.
const LARGE: f64 = 1e15;
/// Digits of a fraction.
const DIGITS: usize = 15;

/// A number the engine keeps: whole up to 2^53, or with at most 15 digits.
pub(super) fn number(value: &Value, path: &str) -> Rewritten<()> {
    let Some(found) = value.as_f64() else { return fault(path, "expected a number") };
    let exact = if found.fract() == 0.0 {
        found.abs() < if value.is_f64() { LARGE } else { WHOLE }
    } else {
        let text = found.abs().to_string();
        found.abs() < LARGE && text.bytes().filter(u8::is_ascii_digit).count() <= DIGITS
    };
    if exact { Ok(()) } else { fault(path, "a number with more than 15 digits cannot be enforced") }
}

/// A count: whole, not negative.
pub(super) fn count(value: &Value, path: &str) -> Rewritten<u64> {
    let whole = value.as_u64().or_else(|| {
        let number = value.as_f64().filter(|n| n.fract() == 0.0 && (0.0..1e9).contains(n))?;
        number.to_string().parse().ok()
    });
    match whole.filter(|n| *n < u64::from(u32::MAX)) {
        Some(count) => Ok(count),
        None => fault(path, "expected a whole number from 0 to 4294967294"),
    }
}

/// A value the answer may have to be.
pub(super) fn constant(value: &Value, path: &str) -> Rewritten<()> {
    match value {
        Value::Null | Value::Bool(_) => Ok(()),
        Value::Number(_) => number(value, path),
        Value::String(text) => spellable(text, path),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .try_for_each(|(n, item)| constant(item, &join(path, &n.to_string()))),
        Value::Object(map) => {
            map.iter().try_for_each(|(name, value)| constant(value, &join(path, name)))
        }
    }
}

/// Control characters with an escape of two letters are the only ones strings are made of.
fn spellable(text: &str, path: &str) -> Rewritten<()> {
    let odd =
        |c: char| (c.is_ascii_control()) && !matches!(c, '\n' | '\r' | '\t' | '\u{8}' | '\u{c}');
    match text.chars().find(|c| odd(*c)) {
        Some(c) => {
            fault(path, format!("the control character U+{:04X} cannot be enforced", c as u32))
        }
        None => Ok(()),
    }
}

/// A text as a regular expression of the engine.
pub(in crate::constraint) fn literal(text: &str) -> String {
    text.chars().fold(String::new(), |mut out, c| {
        // Writing to a string does not fail.
        let _ = write!(out, "\\x{{{:x}}}", c as u32);
        out
    })
}
