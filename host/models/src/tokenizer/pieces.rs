//! From a text to the token that is spelled so.

use ahash::RandomState;
use hashbrown::HashTable;

use super::vocab::{Class, Vocabulary};

/// The tokens of some classes by their texts; of two with one text, the later.
///
/// Holds ids alone: the texts stay where the vocabulary has them, because copying a quarter of a
/// million of them takes longer than reading the file.
pub(super) struct Pieces {
    table: HashTable<u32>,
    hasher: RandomState,
    ambiguous: bool,
}

impl Pieces {
    pub(super) fn new(vocabulary: &Vocabulary, wanted: impl Fn(Class) -> bool) -> Self {
        let hasher = RandomState::new();
        let mut table = HashTable::with_capacity(vocabulary.len() as usize);
        let mut ambiguous = false;
        for (id, text, _) in vocabulary.tokens().filter(|(.., class)| wanted(*class)) {
            table
                .entry(
                    hasher.hash_one(text),
                    |found| vocabulary.text(*found) == Some(text),
                    |found| hasher.hash_one(vocabulary.text(*found).unwrap_or_default()),
                )
                .and_modify(|found| {
                    ambiguous = true;
                    *found = id;
                })
                .or_insert(id);
        }
        let mut pieces = Self { table, hasher, ambiguous };
        let mut others = vocabulary.tokens().filter(|(.., class)| !wanted(*class));
        pieces.ambiguous |= others.any(|(_, text, _)| pieces.get(vocabulary, text).is_some());
        pieces
    }

    /// Whether the vocabulary has another token with the text of one that is here.
    pub(super) fn ambiguous(&self) -> bool {
        self.ambiguous
    }

    /// `vocabulary` is the one that this was made from.
    pub(super) fn get(&self, vocabulary: &Vocabulary, text: &str) -> Option<u32> {
        let found = self
            .table
            .find(self.hasher.hash_one(text), |found| vocabulary.text(*found) == Some(text));
        found.copied()
    }
}
