//! Merges as a file lists them, found by what they make.
//!
//! A merge is a token and the place where it falls into two. Kept by pairs, each of its three texts would have
//! to be looked up when a model is opened; kept so, none has to, because nearly every file lists merges in the
//! order of the tokens that they make, and whether the next token is the one takes a comparison.
//! Of the 42.8 ms from the start of a process to SmolLM2's first token 10 went into those look-ups.

use ahash::AHashMap;

use super::{pieces::Pieces, vocab::Vocabulary};
use crate::{Gguf, ModelError, Result, gguf::Kind};

/// No merge.
const NONE: u32 = u32::MAX;

/// The first merge that makes a token.
#[derive(Clone, Copy)]
struct Merge {
    rank: u32,
    /// Bytes of its left part.
    left: u32,
}

/// Every merge of a file that makes a token.
pub(super) struct Listing {
    /// By the token that is made.
    first: Vec<Merge>,
    /// The ranks of others, by the token and the bytes of the left part.
    others: AHashMap<(u32, u32), u32>,
}

impl Listing {
    /// From `tokenizer.ggml.merges`.
    pub(super) fn read(gguf: &Gguf, vocabulary: &Vocabulary, pieces: &Pieces) -> Result<Self> {
        const MERGES: &str = "tokenizer.ggml.merges";
        let malformed = |found: String| {
            ModelError::malformed(gguf.path(), MERGES, "an array of strings, two parts each", found)
        };
        let merges = gguf.array(MERGES)?.ok_or_else(|| malformed("no such key".to_owned()))?;
        if merges.kind() != Kind::Text {
            return Err(malformed(format!("an array of {}", merges.kind().name())));
        }
        let first = vec![Merge { rank: NONE, left: 0 }; vocabulary.len() as usize];
        let mut listing = Self { first, others: AHashMap::new() };
        let mut next = 0;
        // As bytes: they are UTF-8, as opening the file made sure, and it takes time to see it of each again.
        for (merge, rank) in merges.spellings().zip(0..) {
            // The first part may itself be a space.
            let split = merge.iter().skip(1).position(|byte| *byte == b' ').map(|at| at + 1);
            let parts = split.and_then(|at| Some((merge.get(..at)?, merge.get(at + 1..)?)));
            let Some((left, right)) = parts else {
                return Err(malformed(format!("`{}` at {rank}", String::from_utf8_lossy(merge))));
            };
            let following = vocabulary.text(next).filter(|_| !pieces.ambiguous());
            let made = match following.and_then(|text| text.as_bytes().strip_prefix(left)) {
                Some(rest) if rest == right => next,
                _ => {
                    let joined = [left, right].concat();
                    let token = std::str::from_utf8(&joined).ok();
                    let token = token.and_then(|text| pieces.get(vocabulary, text));
                    let Some(made) = token else { continue };
                    made
                }
            };
            next = made + 1;
            listing.add(made, left.len() as u32, rank);
        }
        Ok(listing)
    }

    /// The first mention of a merge is its rank.
    fn add(&mut self, made: u32, left: u32, rank: u32) {
        match self.first.get_mut(made as usize) {
            Some(first) if first.rank == NONE => *first = Merge { rank, left },
            Some(first) if first.left != left => {
                self.others.entry((made, left)).or_insert(rank);
            }
            _ => {}
        }
    }

    /// The rank of the merge that makes this token of a left part of so many bytes.
    pub(super) fn rank(&self, made: u32, left: usize) -> Option<u32> {
        let first = self.first.get(made as usize).filter(|first| first.rank != NONE)?;
        let left = left as u32;
        match first.left == left {
            true => Some(first.rank),
            false => self.others.get(&(made, left)).copied(),
        }
    }
}
