//! Reading a JSON object field by field, with errors that name the field.
//!
//! Fields are taken out as they are understood; what is left at the end was not. `null` is the same
//! as absent. Values never appear in messages, only their kinds: a prompt must not reach a log.

use std::ops::RangeInclusive;

use gristmill_core::{Error, Result};
use serde_json::{Map, Value};

/// An object being read.
#[derive(Debug, Clone, Default)]
pub struct Fields {
    path: String,
    map: Map<String, Value>,
}

/// What kind of JSON value it is, with its article.
#[must_use]
pub fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// `invalid-request` about a field.
#[must_use]
pub fn wrong(field: &str, what: impl AsRef<str>) -> Error {
    Error::invalid(format!("{field} {}", what.as_ref())).with("field", field)
}

/// `unsupported` about a field.
#[must_use]
pub fn refused(field: &str, what: impl AsRef<str>) -> Error {
    Error::unsupported(format!("{field} {}", what.as_ref())).with("field", field)
}

/// Refuses what nobody took.
///
/// # Errors
/// `unsupported` with the full names.
pub fn nothing_left(fields: &Fields) -> Result<()> {
    let left = fields.left();
    match left.first() {
        None => Ok(()),
        Some(first) => Err(Error::unsupported(format!("not supported here: {}", left.join(", ")))
            .with("field", first)),
    }
}

/// What clients put on parts of a request that changes no answer: marks for a prompt cache, and what
/// they keep of an earlier answer.
const MARKS: [&str; 3] = ["cache_control", "annotations", "provider_specific_fields"];

/// Refuses what nobody took of a part of a request, but for marks and what else is named; the full names
/// of those that were there go to `unused`.
///
/// # Errors
/// `unsupported` with the full names.
pub fn closed(mut fields: Fields, more: &[&str], unused: &mut Vec<String>) -> Result<()> {
    unused.extend(fields.without_effect(&MARKS));
    unused.extend(fields.without_effect(more));
    nothing_left(&fields)
}

impl Fields {
    /// The body of a request.
    ///
    /// # Errors
    /// `invalid-request` when it is not an object.
    pub fn body(value: Value) -> Result<Self> {
        match value {
            Value::Object(map) => Ok(Self { path: String::new(), map }),
            other => Err(Error::invalid(format!(
                "request body must be a JSON object, got {}",
                kind(&other)
            ))),
        }
    }

    /// An object found at `path`.
    ///
    /// # Errors
    /// `invalid-request` when it is not an object.
    pub fn at(path: &str, value: Value) -> Result<Self> {
        match value {
            Value::Object(map) => Ok(Self { path: path.to_owned(), map }),
            other => Err(wrong(path, format!("must be an object, got {}", kind(&other)))),
        }
    }

    /// Whether a field is there.
    #[must_use]
    pub fn has(&self, field: &str) -> bool {
        self.map.get(field).is_some_and(|value| !value.is_null())
    }

    /// What is left, as it was.
    #[must_use]
    pub fn into_value(self) -> Value {
        Value::Object(self.map)
    }

    /// The full name of a field of this object.
    #[must_use]
    pub fn name(&self, field: &str) -> String {
        if self.path.is_empty() { field.to_owned() } else { format!("{}.{field}", self.path) }
    }

    /// Takes a field as it is.
    pub fn take(&mut self, field: &str) -> Option<Value> {
        self.map.shift_remove(field).filter(|value| !value.is_null())
    }

    /// Takes a string.
    ///
    /// # Errors
    /// `invalid-request` for another type.
    pub fn string(&mut self, field: &str) -> Result<Option<String>> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.must(field, "be a string", &other)),
        }
    }

    /// Takes a string that must be there and not be empty.
    ///
    /// # Errors
    /// `invalid-request` when it is missing, empty or of another type.
    pub fn required(&mut self, field: &str) -> Result<String> {
        match self.string(field)? {
            Some(text) if !text.is_empty() => Ok(text),
            _ => Err(wrong(&self.name(field), "is required")),
        }
    }

    /// Takes a truth value.
    ///
    /// # Errors
    /// `invalid-request` for another type.
    pub fn flag(&mut self, field: &str) -> Result<Option<bool>> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(other) => Err(self.must(field, "be a boolean", &other)),
        }
    }

    /// Takes a whole number within a range; `5.0` is whole.
    ///
    /// # Errors
    /// `invalid-request` for another type or outside the range.
    pub fn integer(&mut self, field: &str, range: RangeInclusive<i64>) -> Result<Option<i64>> {
        let Some(value) = self.take(field) else { return Ok(None) };
        let Value::Number(number) = &value else {
            return Err(self.must(field, "be an integer", &value));
        };
        // Exactly representable floats below 2^53 only; anything else is not a whole number here.
        let whole = number.as_i64().or_else(|| {
            number
                .as_f64()
                .filter(|float| float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0)
                .map(|float| float as i64)
        });
        match whole {
            Some(whole) if range.contains(&whole) => Ok(Some(whole)),
            None if number.as_f64().is_some_and(|float| float.fract() != 0.0) => {
                Err(wrong(&self.name(field), format!("must be an integer, got {number}")))
            }
            _ => Err(wrong(
                &self.name(field),
                format!("must be between {} and {}, got {number}", range.start(), range.end()),
            )),
        }
    }

    /// [`Fields::integer`] for counts.
    ///
    /// # Errors
    /// As [`Fields::integer`].
    pub fn count(&mut self, field: &str, range: RangeInclusive<u32>) -> Result<Option<u32>> {
        let range = i64::from(*range.start())..=i64::from(*range.end());
        Ok(self.integer(field, range)?.and_then(|whole| u32::try_from(whole).ok()))
    }

    /// Takes a number within a range.
    ///
    /// # Errors
    /// `invalid-request` for another type or outside the range.
    pub fn number(&mut self, field: &str, range: RangeInclusive<f32>) -> Result<Option<f32>> {
        let Some(value) = self.take(field) else { return Ok(None) };
        let Value::Number(number) = &value else {
            return Err(self.must(field, "be a number", &value));
        };
        match number.as_f64().map(|float| float as f32) {
            Some(float) if range.contains(&float) => Ok(Some(float)),
            _ => Err(wrong(
                &self.name(field),
                format!("must be between {} and {}, got {number}", range.start(), range.end()),
            )),
        }
    }

    /// Takes an array.
    ///
    /// # Errors
    /// `invalid-request` for another type.
    pub fn array(&mut self, field: &str) -> Result<Option<Vec<Value>>> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(other) => Err(self.must(field, "be an array", &other)),
        }
    }

    /// Takes an object.
    ///
    /// # Errors
    /// `invalid-request` for another type.
    pub fn object(&mut self, field: &str) -> Result<Option<Self>> {
        let path = self.name(field);
        self.take(field).map(|value| Self::at(&path, value)).transpose()
    }

    /// Takes one string or an array of strings.
    ///
    /// # Errors
    /// `invalid-request` for another type.
    pub fn strings(&mut self, field: &str) -> Result<Option<Vec<String>>> {
        let items = match self.take(field) {
            None => return Ok(None),
            Some(Value::String(text)) => return Ok(Some(vec![text])),
            Some(Value::Array(items)) => items,
            Some(other) => return Err(self.must(field, "be a string or an array", &other)),
        };
        let text = |(place, item)| match item {
            Value::String(text) => Ok(text),
            other => Err(wrong(
                &format!("{}[{place}]", self.name(field)),
                format!("must be a string, got {}", kind(&other)),
            )),
        };
        items.into_iter().enumerate().map(text).collect::<Result<_>>().map(Some)
    }

    /// Takes stop strings: one or up to `most`, none of them empty.
    ///
    /// # Errors
    /// `invalid-request` for anything else.
    pub fn stops(&mut self, field: &str, most: usize) -> Result<Vec<String>> {
        let stops = self.strings(field)?.unwrap_or_default();
        if stops.len() > most {
            return Err(wrong(
                &self.name(field),
                format!("has {} strings, at most {most} are allowed", stops.len()),
            ));
        }
        if stops.iter().any(String::is_empty) {
            return Err(wrong(
                &self.name(field),
                "holds an empty string, which would stop at once",
            ));
        }
        Ok(stops)
    }

    /// Takes a JSON Schema: an object, as text with its keys in the caller's order.
    ///
    /// # Errors
    /// `invalid-request` for another type.
    pub fn schema(&mut self, field: &str) -> Result<Option<String>> {
        match self.take(field) {
            None => Ok(None),
            Some(schema @ Value::Object(_)) => Ok(Some(schema.to_string())),
            Some(other) => Err(self.must(field, "be a JSON schema object", &other)),
        }
    }

    /// Takes an array whose items must be objects.
    ///
    /// # Errors
    /// `invalid-request` for another type.
    pub fn objects(&mut self, field: &str) -> Result<Option<Vec<Self>>> {
        let path = self.name(field);
        let Some(items) = self.array(field)? else { return Ok(None) };
        let object = |(place, item)| Self::at(&format!("{path}[{place}]"), item);
        items.into_iter().enumerate().map(object).collect::<Result<_>>().map(Some)
    }

    /// Takes fields that are allowed and change nothing; the full names of those that were there.
    pub fn without_effect(&mut self, fields: &[&str]) -> Vec<String> {
        fields.iter().filter_map(|field| self.take(field).map(|_| self.name(field))).collect()
    }

    /// The full names of the fields nobody took.
    #[must_use]
    pub fn left(&self) -> Vec<String> {
        self.map
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(field, _)| self.name(field))
            .collect()
    }

    fn must(&self, field: &str, what: &str, got: &Value) -> Error {
        wrong(&self.name(field), format!("must {what}, got {}", kind(got)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_are_checked_and_named() {
        let fields = |value| Fields::body(json!({ "n": value })).unwrap();
        assert_eq!(fields(json!(5)).integer("n", 0..=9).unwrap(), Some(5));
        assert_eq!(fields(json!(5.0)).integer("n", 0..=9).unwrap(), Some(5));
        assert_eq!(fields(json!(null)).integer("n", 0..=9).unwrap(), None);
        for bad in [
            json!(5.5),
            json!("5"),
            json!(10),
            json!(-1),
            json!(1e300),
            json!(u64::MAX),
            json!(true),
        ] {
            let error = fields(bad.clone()).integer("n", 0..=9).unwrap_err();
            assert_eq!(error.detail("field"), Some("n"), "{bad}");
        }
        assert!(fields(json!(1e300)).number("n", 0.0..=f32::MAX).is_err());
        assert!(fields(json!(-0.1)).number("n", 0.0..=1.0).is_err());
    }

    #[test]
    fn what_nobody_took_is_left() {
        let mut fields = Fields::body(json!({ "a": 1, "b": null, "c": "x" })).unwrap();
        assert_eq!(fields.string("c").unwrap().as_deref(), Some("x"));
        assert_eq!(fields.left(), ["a"]);
    }
}
