//! Keys: who may come in, to what, and how often.
//!
//! A key is 256 random bits in text. The host keeps its SHA-256 and nothing else of it: what is that
//! random needs no slow hash, and a hash tells nobody the key. Operator keys reach everything;
//! inference keys reach models, all or those they name, within their limits.
//!
//! Owns: the file of the keys ([`KeyFile`]), the keys as they are live ([`KeyRing`]), who a request
//! comes from ([`Caller`]), how often one may come ([`limit`]).
//!
//! Refuses: a file that others may write to, an unknown field, a name or a hash twice, limits that
//! limit nothing. A file that cannot be read leaves the keys as they were, and `/readyz` says so.
//!
//! Bounds: the file has at most [`file::MOST_BYTES`].

pub mod file;
pub mod limit;
mod ring;

use std::sync::Arc;

use gristmill_core::{Error, capability::ModelInfo};
use gristmill_router::{Plan, name};

pub use file::{Entry, KeyFile, KeysError, Wanted};
pub use ring::{KeyRing, Who};

use limit::Limits;

/// A live key.
#[derive(Debug)]
pub struct Key {
    /// What it is called in logs and in the file.
    pub name: String,
    /// Whether it reaches everything.
    pub operator: bool,
    /// The models it reaches, as its entry spells them; none: all.
    pub models: Option<Vec<String>>,
    hash: [u8; 32],
    limits: Arc<Limits>,
}

impl Key {
    /// How often it may come.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }
}

/// Who a request comes from: a key, or anybody where the host has no keys.
#[derive(Debug, Clone, Default)]
pub struct Caller(Option<Arc<Key>>);

impl Caller {
    /// Somebody with this key.
    #[must_use]
    pub fn new(key: Arc<Key>) -> Self {
        Self(Some(key))
    }

    /// The key's name.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.as_ref().map(|key| key.name.as_str())
    }

    /// Whether there are models it does not reach.
    #[must_use]
    pub fn restricted(&self) -> bool {
        self.models().is_some()
    }

    fn models(&self) -> Option<&[String]> {
        self.0.as_ref()?.models.as_deref()
    }

    /// Whether it reaches what a name became. An entry of its list is a model's name, for that model
    /// on every back-end, or `NAME/model`, for the model on that one.
    #[must_use]
    pub fn may(&self, plan: &Plan) -> bool {
        let Some(models) = self.models() else { return true };
        let backend = plan.provenance().backend;
        models.iter().any(|entry| reaches(entry, &backend, plan.info()))
    }

    /// Whether there is a list and no entry of it names the model without a back-end, so that no other
    /// back-end may answer in the plan's place.
    #[must_use]
    pub fn tied(&self, plan: &Plan) -> bool {
        self.models().is_some_and(|models| !models.iter().any(|entry| is(entry, plan.info())))
    }

    /// Whether a spelling stands in its list.
    #[must_use]
    pub fn names(&self, asked: &str) -> bool {
        let Some(models) = self.models() else { return true };
        models.iter().any(|entry| name::fold(entry) == name::fold(asked.trim()))
    }
}

/// Whether an entry is the model's name.
fn is(entry: &str, info: &ModelInfo) -> bool {
    name::answers_to(info, &name::fold(entry))
}

fn reaches(entry: &str, backend: &str, info: &ModelInfo) -> bool {
    let there = entry
        .split_once('/')
        .filter(|(name, _)| name.eq_ignore_ascii_case(backend))
        .is_some_and(|(_, model)| is(model, info));
    there || is(entry, info)
}

/// `not-found`, in the words in which the router says it of a model that is not there.
#[must_use]
pub fn missing(asked: &str) -> Error {
    Error::not_found(format!("model '{asked}' not found")).with("model", asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_model_anywhere_or_on_one_back_end() {
        let info = ModelInfo {
            id: "Org/Tiny:1b".into(),
            names: vec!["tiny".into()],
            ..ModelInfo::default()
        };
        for (entry, reached) in [
            ("tiny", true),
            ("TINY:latest", true),
            ("org/tiny:1b", true),
            ("fast/tiny", true),
            ("Fast/org/tiny:1b", true),
            ("slow/tiny", false),
            ("tin", false),
            ("org/tiny", false),
            ("tiny:1b", false),
        ] {
            assert_eq!(reaches(entry, "fast", &info), reached, "{entry}");
        }
    }
}
