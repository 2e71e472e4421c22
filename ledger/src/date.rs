//! Moments in the one spelling that ledger files use: RFC 3339, UTC, whole seconds.

use std::{borrow::Cow, fmt, str::FromStr};

use jiff::{Timestamp, Unit};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A moment, for instance `2026-11-30T12:00:00Z`. Written and read in exactly this form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Date(Timestamp);

impl Date {
    /// The machine's clock now. Functions of this crate are given the time and never ask for it.
    #[must_use]
    pub fn now() -> Self {
        Self(Timestamp::now().round(Unit::Second).unwrap_or(Timestamp::UNIX_EPOCH))
    }

    /// Whole days from `earlier` to this moment; negative when it is the other way round.
    #[must_use]
    pub fn days_since(self, earlier: Self) -> i64 {
        (self.0.as_second() - earlier.0.as_second()).div_euclid(86_400)
    }
}

impl JsonSchema for Date {
    fn schema_name() -> Cow<'static, str> {
        "Date".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A moment, for instance 2026-11-30T12:00:00Z.",
            "type": "string",
            "format": "date-time",
            "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$",
        })
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Date {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const LENGTH: usize = "2026-11-30T12:00:00Z".len();
        text.parse::<Timestamp>()
            .ok()
            .filter(|moment| text.len() == LENGTH && moment.to_string() == text)
            .map(Self)
            .ok_or_else(|| {
                let found: String = text.chars().take(40).collect();
                format!(
                    "expected a date like 2026-11-30T12:00:00Z (RFC 3339, UTC), found {found:?}"
                )
            })
    }
}

impl TryFrom<String> for Date {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Date> for String {
    fn from(date: Date) -> Self {
        date.to_string()
    }
}
