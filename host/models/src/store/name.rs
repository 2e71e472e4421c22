//! Model names: `[namespace/]model[:tag]`.
//!
//! Each part is 1 to 96 ASCII letters, digits, `-`, `_` and `.`, starting with a letter or a digit
//! and not ending with a dot. That grammar is the whole defence against path traversal, reserved
//! characters and look-alike letters: what it refuses never becomes a path. Case is kept for
//! display and ignored for matching.

use std::{fmt, path::PathBuf, str::FromStr};

use super::error::{StoreError, shorten};

const MAX_PART: usize = 96;
/// The namespace of names that give none; never shown.
const NAMESPACE: &str = "library";
const TAG: &str = "latest";

/// A checked model name with its defaults filled in.
#[derive(Debug, Clone)]
pub struct Name {
    namespace: String,
    model: String,
    tag: String,
}

impl Name {
    /// Reads a name; the tag defaults to `latest`.
    ///
    /// # Errors
    /// When it is outside the grammar: says which part breaks which rule.
    pub fn parse(text: &str) -> Result<Self, StoreError> {
        let refuse = |reason: String| StoreError::Name { name: shorten(text), reason };
        let (path, tag) = text.split_once(':').unwrap_or((text, TAG));
        let (namespace, model) = path.split_once('/').unwrap_or((NAMESPACE, path));
        for (what, part) in [("namespace", namespace), ("model", model), ("tag", tag)] {
            check(part).map_err(|reason| refuse(format!("the {what} {reason}")))?;
        }
        Ok(Self { namespace: namespace.to_owned(), model: model.to_owned(), tag: tag.to_owned() })
    }

    /// The name closest to some text, for models that come without one: every character outside
    /// the grammar becomes `-`.
    pub(crate) fn from_text(model: &str) -> Option<Self> {
        let cleaned: String = model
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' })
            .take(MAX_PART)
            .collect();
        let model = cleaned.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        Self::parse(model).ok()
    }

    /// `namespace/model:tag` in lower case: equal for names that mean the same model.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}/{}:{}", self.namespace, self.model, self.tag).to_ascii_lowercase()
    }

    /// Where its manifest lies, relative to the store.
    pub(crate) fn manifest_path(&self) -> PathBuf {
        let lower = |part: &str| part.to_ascii_lowercase();
        PathBuf::from("manifests")
            .join(lower(&self.namespace))
            .join(lower(&self.model))
            .join(format!("{}.json", lower(&self.tag)))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.eq_ignore_ascii_case(NAMESPACE) {
            write!(f, "{}/", self.namespace)?;
        }
        write!(f, "{}:{}", self.model, self.tag)
    }
}

impl FromStr for Name {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        Self::parse(text)
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Name {}

fn check(part: &str) -> Result<(), String> {
    if part.is_empty() {
        return Err("is empty".to_owned());
    }
    if part.len() > MAX_PART {
        return Err(format!("is {} bytes long, at most {MAX_PART} are allowed", part.len()));
    }
    if let Some(bad) = part.chars().find(|c| !(c.is_ascii_alphanumeric() || "-_.".contains(*c))) {
        return Err(format!(
            "contains `{}`, allowed are ASCII letters, digits, `-`, `_` and `.`",
            bad.escape_debug()
        ));
    }
    if !part.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return Err("does not start with a letter or a digit".to_owned());
    }
    if part.ends_with('.') {
        return Err("ends with a dot".to_owned());
    }
    Ok(())
}

/// At most three of `names` that look like `wanted`, nearest first: equal but for a few letters,
/// or one containing the other.
pub(crate) fn near<'a>(wanted: &Name, names: impl Iterator<Item = &'a Name>) -> Vec<String> {
    let family = wanted.model.to_ascii_lowercase();
    let mut found: Vec<(usize, String)> = names
        .filter_map(|name| {
            let other = name.model.to_ascii_lowercase();
            let distance = strsim::levenshtein(&family, &other);
            let close = distance <= 1 + family.len() / 4
                || (family.len() >= 3 && other.contains(&family))
                || (other.len() >= 3 && family.contains(&other));
            close.then(|| (distance, name.to_string()))
        })
        .collect();
    found.sort();
    found.dedup();
    found.into_iter().take(3).map(|(_, name)| name).collect()
}
