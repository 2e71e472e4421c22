//! Unigram (T5, XLM-R): text normalised by the file's own table, then cut into the likeliest
//! sequence of tokens. Both are the `tokenizers` crate's.

use tokenizers::{
    Model, NormalizedString, Normalizer, models::unigram::Unigram, normalizers::Precompiled,
};

use super::{
    merge::SPACE,
    vocab::{Class, Vocabulary},
};
use crate::{Gguf, ModelError, Result};

pub(super) struct Likeliest {
    normalizer: Option<Precompiled>,
    space_prefix: bool,
    /// Runs of white space count as one space, and none at the ends.
    merge_spaces: bool,
    model: Unigram,
}

impl Likeliest {
    pub(super) fn new(gguf: &Gguf, vocabulary: &Vocabulary, space_prefix: bool) -> Result<Self> {
        const TABLE: &str = "tokenizer.ggml.precompiled_charsmap";
        let malformed = |key: &str, expected: &str, found: String| {
            ModelError::malformed(gguf.path(), key, expected, found)
        };
        let normalizer = match gguf.array(TABLE)? {
            None => None,
            Some(array) => Some(Precompiled::from(array.bytes()).map_err(|error| {
                malformed(TABLE, "SentencePiece's precompiled table", error.to_string())
            })?),
        };
        if vocabulary.scores.is_empty() {
            return Err(malformed(
                "tokenizer.ggml.scores",
                "a score per token",
                "no such key".to_owned(),
            ));
        }
        let unknown = vocabulary.roles.unknown.map(|id| id as usize);
        // A token that must not be found in text keeps its place, under a text that cannot occur.
        let pieces = vocabulary
            .tokens()
            .zip(&vocabulary.scores)
            .map(|((id, text, class), score)| match class {
                Class::Control | Class::Unused => (format!("\0{id}"), f64::from(*score)),
                _ => (text.to_owned(), f64::from(*score)),
            })
            .collect();
        let model = Unigram::from(pieces, unknown, false).map_err(|error| {
            malformed("tokenizer.ggml.tokens", "a vocabulary", error.to_string())
        })?;
        Ok(Self {
            normalizer,
            space_prefix,
            merge_spaces: gguf.flag("tokenizer.ggml.remove_extra_whitespaces")?.unwrap_or(false),
            model,
        })
    }

    pub(super) fn encode(&self, text: &str, first: bool, out: &mut Vec<u32>) -> Result<()> {
        let failed = |error: tokenizers::Error| ModelError::Tokenize(error.to_string());
        let mut normalized = NormalizedString::from(text);
        if let Some(normalizer) = &self.normalizer {
            normalizer.normalize(&mut normalized).map_err(failed)?;
        }
        let mut spelled = String::with_capacity(text.len() + 16);
        if self.merge_spaces {
            for word in normalized.get().split_whitespace() {
                spelled.push(SPACE);
                spelled.push_str(word);
            }
        } else {
            if first && self.space_prefix && !normalized.get().is_empty() {
                spelled.push(SPACE);
            }
            spelled.extend(normalized.get().chars().map(|c| if c == ' ' { SPACE } else { c }));
        }
        // A word at a time: no token of these vocabularies has a space inside, and the search for
        // the likeliest sequence then stays short.
        let mut start = 0;
        let mut after_word = false;
        for (at, character) in spelled.char_indices() {
            if character == SPACE && after_word {
                self.word(spelled.get(start..at).unwrap_or_default(), out).map_err(failed)?;
                start = at;
            }
            after_word = character != SPACE;
        }
        self.word(spelled.get(start..).unwrap_or_default(), out).map_err(failed)
    }

    fn word(&self, word: &str, out: &mut Vec<u32>) -> tokenizers::Result<()> {
        if !word.is_empty() {
            out.extend(self.model.tokenize(word)?.iter().map(|token| token.id));
        }
        Ok(())
    }
}
