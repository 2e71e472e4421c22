//! A model's tokens as a trie, for the grammar engine. Built once per model, at the first request
//! that needs it, and shared by all its answers.
//!
//! Marks (control tokens) stand under names no text can spell, so a grammar produces one only where
//! it names it. Tokenisation is never forced: the model chooses how to cut what must be said.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use gristmill_core::{Error, Result};
use gristmill_models::Tokenizer;
use llguidance::{ParserFactory, api::ParserLimits};
use toktrie::{TokEnv, TokRxInfo, TokTrie, TokenizerEnv};

/// No such token.
const NONE: u32 = u32::MAX;
/// Bytes of the longest token the trie takes; longer ones (runs of white space) are never needed.
const LONGEST: usize = 255;

/// A model's tokens, ready for grammars.
pub(crate) struct Words {
    factory: ParserFactory,
}

impl std::fmt::Debug for Words {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Words").finish_non_exhaustive()
    }
}

struct Environment {
    trie: TokTrie,
}

impl TokenizerEnv for Environment {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, s: &[u8]) -> Vec<u32> {
        self.trie.greedy_tokenize(s)
    }

    fn tokenize_is_canonical(&self) -> bool {
        false
    }
}

/// What the compiled grammar and one step of it may cost.
///
/// By llguidance's own figures, not measured here: a lexer state takes 1 to 2 kB, so these allow
/// about 60 MB, and a step is stopped after some 15 ms of lexing and 3 ms of parsing.
fn limits() -> ParserLimits {
    ParserLimits { max_lexer_states: 40_000, verbose_errors: false, ..ParserLimits::default() }
}

impl Words {
    /// The trie of a tokenizer. `ends` end generation.
    ///
    /// # Errors
    /// `internal` when the vocabulary cannot be held.
    pub(crate) fn new(tokenizer: &Tokenizer, ends: &[u32]) -> Result<Self> {
        let count = tokenizer.vocab_len();
        let words: Vec<Vec<u8>> = (0..count)
            .map(|id| {
                if tokenizer.is_special(id) || ends.contains(&id) {
                    let name = format!("<[{id}]>");
                    return [&[TokTrie::SPECIAL_TOKEN_MARKER], name.as_bytes()].concat();
                }
                let bytes = tokenizer.token_bytes(id).unwrap_or_default();
                // Text that looks like a marked token could be taken for one.
                let odd = bytes.first() == Some(&TokTrie::SPECIAL_TOKEN_MARKER) && bytes.len() > 1;
                if odd || bytes.len() > LONGEST { Vec::new() } else { bytes }
            })
            .collect();
        let broken = |what: &str| Error::internal(format!("the vocabulary as a trie: {what}"));
        let ends: Vec<u32> = ends.iter().copied().filter(|id| *id < count).collect();
        catch_unwind(AssertUnwindSafe(|| {
            let info = TokRxInfo::new(count, ends.first().copied().unwrap_or(NONE));
            let mut trie = TokTrie::from(&info, &words);
            if !ends.is_empty() {
                trie = trie.with_eos_tokens(&ends);
            }
            let environment: TokEnv = Arc::new(Environment { trie });
            let mut factory = ParserFactory::new_simple(&environment)
                .map_err(|error| broken(&error.to_string()))?;
            factory.quiet();
            *factory.limits_mut() = limits();
            Ok(Self { factory })
        }))
        .unwrap_or_else(|_| Err(broken("the library met a defect")))
    }

    /// Makes parsers.
    pub(crate) fn factory(&self) -> &ParserFactory {
        &self.factory
    }

    /// The token with exactly this text, if it is no mark.
    pub(crate) fn token(&self, text: &[u8]) -> Option<u32> {
        self.factory.tok_env().tok_trie().token_id_at_bytes(text)
    }
}
