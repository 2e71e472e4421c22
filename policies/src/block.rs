//! Known regressions as data: which capability of which back-end, version, model family and hardware
//! is known to be broken, with reason, evidence and an end.
//!
//! A block is one file, `policies/blocks/<id>.toml`; its name is its id. What it does not name it
//! does not limit: without `family` it is about every family. A block always ends (`expires`), so that
//! nobody is kept from a repaired server for ever; an expired one is reported and not applied.
//!
//! Refused by name: unknown keys, a version range that is none, a date that is none, and a block
//! without reason, evidence or end.

use std::{cmp::Ordering, fmt, path::Path};

use jiff::civil::Date;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{PolicyError, files, keys};

/// One known regression.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(title = "block", deny_unknown_fields)]
pub struct Block {
    /// The file's name without `.toml`; refusals carry it.
    #[schemars(skip)]
    pub id: String,
    /// Kind of the back-end, as its descriptor says it.
    pub backend: String,
    /// Versions it is about: those of the server behind a bridge, otherwise the back-end's own.
    #[schemars(with = "String", extend("pattern" = Versions::PATTERN))]
    pub versions: Versions,
    /// Model family; none: every one.
    pub family: Option<String>,
    /// A word of the host's hardware (`x86_64`, `avx512`, …); none: any.
    pub hardware: Option<String>,
    /// What is broken. `inference.text` blocks every generation.
    pub capability: String,
    /// What happens, in a sentence.
    pub reason: String,
    /// What shows it: a report's digest, or a public thread.
    pub evidence: String,
    /// The last day on which it applies.
    #[schemars(with = "String", extend("pattern" = "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"))]
    pub expires: Date,
    /// Name of a live back-end that was tested to do it right and may answer instead, with the same
    /// model; none: the request is refused.
    pub alternative: Option<String>,
}

const KEYS: [&str; 9] = [
    "backend",
    "versions",
    "family",
    "hardware",
    "capability",
    "reason",
    "evidence",
    "expires",
    "alternative",
];

impl Block {
    /// Reads a block from TOML.
    ///
    /// # Errors
    /// What was expected and found.
    pub fn parse(id: &str, text: &str) -> Result<Self, String> {
        let table: toml::Table = toml::from_str(text).map_err(|error| error.to_string())?;
        keys::check("in a block", &table, &KEYS)?;
        let optional = |key: &str| match table.get(key) {
            None => Ok(None),
            Some(toml::Value::String(text)) if !text.trim().is_empty() => Ok(Some(text.clone())),
            Some(other) => Err(format!("{key}: expected a text, found {other}")),
        };
        let text = |key: &str| {
            optional(key)?.ok_or_else(|| format!("a block must say its {key}; it is missing"))
        };
        let expires = text("expires")?;
        Ok(Self {
            id: id.to_owned(),
            backend: text("backend")?,
            versions: Versions::parse(&text("versions")?)?,
            family: optional("family")?,
            hardware: optional("hardware")?,
            capability: text("capability")?,
            reason: text("reason")?,
            evidence: text("evidence")?,
            expires: expires
                .parse()
                .map_err(|_| format!("expires {expires:?}: expected a day, as in 2027-03-31"))?,
            alternative: optional("alternative")?,
        })
    }

    /// Whether it no longer applies on this day.
    #[must_use]
    pub fn expired(&self, today: Date) -> bool {
        self.expires < today
    }
}

/// Reads every block in `dir/blocks`, by name. A folder that is missing blocks nothing.
///
/// # Errors
/// The first file that cannot be read, is not a block, or would not be read because of its name.
pub fn open(dir: &Path) -> Result<Vec<Block>, PolicyError> {
    files::each(dir, "blocks", Block::parse).collect()
}

/// A range of versions: comparisons that must all hold, as in `>=0.6.0, <0.6.4`; `*` is every one.
///
/// Servers do not agree on what a version is: `0.6.3.post1`, `b4567`, `v0.5.1-rc2`. What is compared
/// is the numbers between dots, a missing one being 0; a suffix that announces (`rc`, `alpha`, `beta`,
/// `dev`, or after `-`) sorts before the bare version, any other after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Versions {
    text: String,
    bounds: Vec<(Comparison, Version)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Less,
    AtMost,
    Equal,
    AtLeast,
    More,
}

impl Versions {
    /// What a range looks like, for schemas.
    pub(crate) const PATTERN: &str =
        "^ *(\\*|(<=|>=|<|>|=) *[A-Za-z]*[0-9][^,]*(, *(<=|>=|<|>|=) *[A-Za-z]*[0-9][^,]*)*) *$";

    /// Reads a range.
    ///
    /// # Errors
    /// What was expected and found.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bounds = match text.trim() {
            "*" => Vec::new(),
            text => text.split(',').map(str::trim).map(comparison).collect::<Result<_, _>>()?,
        };
        Ok(Self { text: text.trim().to_owned(), bounds })
    }

    /// How narrow it is: 0 every version, 1 a range, 2 one version.
    pub(crate) fn narrowness(&self) -> u8 {
        match self.bounds.as_slice() {
            [] => 0,
            bounds if bounds.iter().any(|(sign, _)| *sign == Comparison::Equal) => 2,
            _ => 1,
        }
    }

    /// Whether a version may be in both. Between two different bounds there is always one.
    pub(crate) fn overlap(&self, other: &Self) -> bool {
        use Comparison::{AtLeast, AtMost, Equal, Less, More};
        let bounds = || self.bounds.iter().chain(&other.bounds);
        let lower = bounds().filter(|(sign, _)| matches!(sign, AtLeast | More | Equal));
        lower.into_iter().all(|(low, from)| {
            let upper = bounds().filter(|(sign, _)| matches!(sign, AtMost | Less | Equal));
            upper.into_iter().all(|(high, to)| match from.order(to) {
                Ordering::Less => true,
                Ordering::Equal => *low != More && *high != Less,
                Ordering::Greater => false,
            })
        })
    }

    /// Whether this version is in the range. One that cannot be read is: nothing shows that it is
    /// outside.
    #[must_use]
    pub fn hold(&self, version: &str) -> bool {
        let Some(version) = Version::read(version) else { return true };
        self.bounds.iter().all(|(comparison, bound)| {
            let order = version.order(bound);
            match comparison {
                Comparison::Less => order == Ordering::Less,
                Comparison::AtMost => order != Ordering::Greater,
                Comparison::Equal => order == Ordering::Equal,
                Comparison::AtLeast => order != Ordering::Less,
                Comparison::More => order == Ordering::Greater,
            }
        })
    }
}

impl Default for Versions {
    /// Every version.
    fn default() -> Self {
        Self { text: "*".to_owned(), bounds: Vec::new() }
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TryFrom<String> for Versions {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

impl From<Versions> for String {
    fn from(versions: Versions) -> Self {
        versions.text
    }
}

fn comparison(text: &str) -> Result<(Comparison, Version), String> {
    const SIGNS: [(&str, Comparison); 5] = [
        ("<=", Comparison::AtMost),
        (">=", Comparison::AtLeast),
        ("<", Comparison::Less),
        (">", Comparison::More),
        ("=", Comparison::Equal),
    ];
    SIGNS
        .iter()
        .find_map(|(sign, comparison)| {
            Some((*comparison, Version::read(text.strip_prefix(sign)?.trim())?))
        })
        .ok_or_else(|| {
            format!("versions {text:?}: expected comparisons as in \">=0.6.0, <0.6.4\", or \"*\"")
        })
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Version {
    numbers: Vec<u64>,
    suffix: String,
}

impl Version {
    /// `None` where there is no number.
    fn read(text: &str) -> Option<Self> {
        let text = text.trim().trim_start_matches(|letter: char| letter.is_ascii_alphabetic());
        let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
        let (numbers, suffix) = text.split_at(end.unwrap_or(text.len()));
        let numbers: Option<Vec<u64>> =
            numbers.trim_end_matches('.').split('.').map(|number| number.parse().ok()).collect();
        Some(Self { numbers: numbers?, suffix: suffix.to_ascii_lowercase() })
    }

    fn order(&self, other: &Self) -> Ordering {
        let count = self.numbers.len().max(other.numbers.len());
        let at = |version: &Self, place| version.numbers.get(place).copied().unwrap_or(0);
        let numbers = (0..count).map(|place| at(self, place).cmp(&at(other, place)));
        numbers
            .fold(Ordering::Equal, Ordering::then)
            .then_with(|| self.stage().cmp(&other.stage()))
            .then_with(|| self.suffix.cmp(&other.suffix))
    }

    /// Before, at or after the bare version.
    fn stage(&self) -> i8 {
        let early = ["-", "rc", "alpha", "beta", "dev"];
        match self.suffix.as_str() {
            "" => 0,
            suffix if early.iter().any(|word| suffix.starts_with(word)) => -1,
            _ => 1,
        }
    }
}
