//! Byte-pair encoding itself: a word starts as its characters, and of all neighbours that may merge
//! the pair of the lowest rank does, the leftmost first, until none is left.
//!
//! Not the `tokenizers` crate's, whose model takes every token and merge as a string of its own:
//! building that was most of the time between the start of a process and its first token. Tests hold
//! this one to the crate's ids.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{
    listing::Listing,
    pieces::Pieces,
    spelled_byte,
    vocab::{Class, Vocabulary},
};
use crate::{Gguf, ModelError, Result};

/// Which pairs merge, into what, and which first.
enum Merges {
    /// As the file lists them.
    Listed(Listing),
    /// As the scores imply them: every way to make a token of two others, the better score first,
    /// then the longer left part (as `transformers` converts such vocabularies).
    Scored,
}

/// What comes first has the lower rank: in a list the index; by scores, the score turned round, the
/// lengths of both parts in characters, and the outcome.
type Rank = (u32, Reverse<u32>, Reverse<u32>, u32);

/// Tokens and merges.
pub(super) struct Bpe {
    pieces: Pieces,
    merges: Merges,
    /// A word that is a token is taken whole.
    whole_words: bool,
    /// The tokens that spell the bytes of what has no token; empty where that is an error.
    bytes: Vec<Option<u32>>,
}

/// A part of a word that is one token so far.
#[derive(Clone, Copy)]
struct Symbol {
    id: u32,
    start: usize,
    end: usize,
    characters: u32,
    /// Whether it is the token of its text, and not one of the bytes of a character.
    text: bool,
    previous: Option<usize>,
    next: Option<usize>,
    /// Part of the one before by now.
    gone: bool,
}

/// A merge that was possible when it was found.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    rank: Rank,
    at: usize,
    left: u32,
    right: u32,
    made: u32,
}

/// Room for words that are merged one after the other.
#[derive(Default)]
pub(super) struct Room {
    symbols: Vec<Symbol>,
    candidates: BinaryHeap<Reverse<Candidate>>,
}

impl Bpe {
    /// With the merges in the file, over the tokens of some classes.
    pub(super) fn listed(
        gguf: &Gguf,
        vocabulary: &Vocabulary,
        wanted: impl Fn(Class) -> bool,
        whole_words: bool,
    ) -> Result<Self> {
        let pieces = Pieces::new(vocabulary, wanted);
        let merges = Merges::Listed(Listing::read(gguf, vocabulary, &pieces)?);
        Ok(Self { pieces, merges, whole_words, bytes: Vec::new() })
    }

    /// With the merges that the scores imply.
    pub(super) fn scored(vocabulary: &Vocabulary) -> Self {
        let wanted = |class| matches!(class, Class::Normal | Class::UserDefined | Class::Unused);
        let pieces = Pieces::new(vocabulary, wanted);
        Self { pieces, merges: Merges::Scored, whole_words: false, bytes: Vec::new() }
    }

    /// Characters without a token are spelled by the tokens of their bytes, `<0x00>` to `<0xFF>`.
    pub(super) fn with_bytes(mut self, vocabulary: &Vocabulary) -> Self {
        self.bytes = vec![None; 256];
        for (id, text, class) in vocabulary.tokens() {
            if !matches!(class, Class::Control | Class::Unknown)
                && let Some(byte) = spelled_byte(text)
                && let Some(slot) = self.bytes.get_mut(usize::from(byte))
            {
                *slot = Some(id);
            }
        }
        self
    }

    /// The token with this text.
    pub(super) fn token(&self, vocabulary: &Vocabulary, text: &str) -> Option<u32> {
        self.pieces.get(vocabulary, text)
    }

    /// Appends the tokens of a word.
    ///
    /// # Errors
    /// When a character has neither a token nor tokens for its bytes.
    pub(super) fn append(
        &self,
        vocabulary: &Vocabulary,
        word: &str,
        room: &mut Room,
        out: &mut Vec<u32>,
    ) -> Result<()> {
        if self.whole_words
            && let Some(id) = self.token(vocabulary, word)
        {
            out.push(id);
            return Ok(());
        }
        self.spell(vocabulary, word, room)?;
        let Room { symbols, candidates } = room;
        candidates.clear();
        for at in 1..symbols.len() {
            candidates.extend(self.candidate(vocabulary, word, symbols, at - 1, at));
        }
        while let Some(Reverse(found)) = candidates.pop() {
            let Some(left) = symbols.get(found.at).copied() else { continue };
            let Some(at) = left.next else { continue };
            let Some(right) = symbols.get(at).copied() else { continue };
            if left.gone || (left.id, right.id) != (found.left, found.right) {
                continue;
            }
            let merged = Symbol {
                id: found.made,
                end: right.end,
                characters: left.characters + right.characters,
                next: right.next,
                ..left
            };
            if let Some(symbol) = symbols.get_mut(found.at) {
                *symbol = merged;
            }
            if let Some(symbol) = symbols.get_mut(at) {
                symbol.gone = true;
            }
            if let Some(next) = merged.next {
                if let Some(symbol) = symbols.get_mut(next) {
                    symbol.previous = Some(found.at);
                }
                candidates.extend(self.candidate(vocabulary, word, symbols, found.at, next));
            }
            if let Some(previous) = merged.previous {
                candidates.extend(self.candidate(vocabulary, word, symbols, previous, found.at));
            }
        }
        out.extend(symbols.iter().filter(|symbol| !symbol.gone).map(|symbol| symbol.id));
        Ok(())
    }

    /// A word as its characters.
    fn spell(&self, vocabulary: &Vocabulary, word: &str, room: &mut Room) -> Result<()> {
        let symbols = &mut room.symbols;
        symbols.clear();
        let mut push = |id, start, end, text| {
            let at = symbols.len();
            symbols.push(Symbol {
                id,
                start,
                end,
                characters: 1,
                text,
                previous: at.checked_sub(1),
                next: Some(at + 1),
                gone: false,
            });
        };
        for (start, character) in word.char_indices() {
            let end = start + character.len_utf8();
            if let Some(id) = self.token(vocabulary, word.get(start..end).unwrap_or_default()) {
                push(id, start, end, true);
                continue;
            }
            for at in start..end {
                let byte = word.as_bytes().get(at).copied().unwrap_or_default();
                let id = self.bytes.get(usize::from(byte)).copied().flatten();
                let id = id.ok_or_else(|| {
                    ModelError::Tokenize(format!(
                        "the vocabulary has no token for {character:?} of the text"
                    ))
                })?;
                push(id, at, at + 1, false);
            }
        }
        if let Some(last) = symbols.last_mut() {
            last.next = None;
        }
        Ok(())
    }

    fn candidate(
        &self,
        vocabulary: &Vocabulary,
        word: &str,
        symbols: &[Symbol],
        at: usize,
        next: usize,
    ) -> Option<Reverse<Candidate>> {
        let (left, right) = (symbols.get(at)?, symbols.get(next)?);
        if !left.text || !right.text {
            return None;
        }
        let made = self.token(vocabulary, word.get(left.start..right.end)?)?;
        let rank = match &self.merges {
            Merges::Listed(listing) => {
                (listing.rank(made, left.end - left.start)?, Reverse(0), Reverse(0), 0)
            }
            Merges::Scored => {
                let score = vocabulary.scores.get(made as usize).copied().unwrap_or(0.0);
                (descending(score), Reverse(left.characters), Reverse(right.characters), made)
            }
        };
        Some(Reverse(Candidate { rank, at, left: left.id, right: right.id, made }))
    }
}

/// A number whose order is the reverse of the scores' total order.
fn descending(score: f32) -> u32 {
    let bits = score.to_bits();
    // The bits of positive floats are in order, those of negative ones in reverse order below them.
    if bits >> 31 == 0 { !(bits | 1 << 31) } else { bits }
}

#[cfg(test)]
mod tests {
    use super::descending;

    #[test]
    fn the_better_score_has_the_lower_rank() {
        let scores = [f32::INFINITY, 1e9, 1.5, 1.0, 0.0, -0.0, -1.0, -1.5, -1e9, f32::NEG_INFINITY];
        for pair in scores.windows(2) {
            assert!(descending(pair[0]) < descending(pair[1]), "{pair:?}");
        }
    }
}
