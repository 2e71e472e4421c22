//! Byte-pair encoding, in its two spellings: over the alphabet of bytes, cut into words first
//! ([`ByteLevel`]), and SentencePiece's, over characters with `▁` for a space and bytes for what has
//! no token ([`Sentence`]). The merging itself is the `tokenizers` crate's.

use ahash::{AHashMap, AHashSet};
use tokenizers::{Model, models::bpe::BPE};

use super::{
    bytes,
    pre::PreTokenizer,
    vocab::{Class, Vocabulary},
};
use crate::{Gguf, ModelError, Result, gguf::Kind};

/// What stands for a space in SentencePiece's vocabularies.
pub(super) const SPACE: char = '▁';

/// Byte-level BPE.
pub(super) struct ByteLevel {
    pre: PreTokenizer,
    alphabet: [char; 256],
    /// Bytes of UTF-8 that the vocabulary cannot spell; empty in any sound one.
    unspelled: Vec<u8>,
    bpe: BPE,
}

impl ByteLevel {
    pub(super) fn new(gguf: &Gguf, vocabulary: &Vocabulary, pre: PreTokenizer) -> Result<Self> {
        // Control and user-defined tokens are found before words are cut, and never by merging.
        let vocab: AHashMap<String, u32> = vocabulary
            .tokens()
            .filter(|(_, _, class)| matches!(class, Class::Normal | Class::Unused | Class::Byte))
            .map(|(id, text, _)| (text.to_owned(), id))
            .collect();
        let alphabet = bytes::alphabet();
        let unspelled = (0..=u8::MAX)
            // These never occur in UTF-8.
            .filter(|byte| !matches!(byte, 0xc0 | 0xc1 | 0xf5..=0xff))
            .filter(|byte| {
                let character = alphabet.get(usize::from(*byte)).copied().unwrap_or_default();
                !vocab.contains_key(character.encode_utf8(&mut [0; 4]) as &str)
            })
            .collect();
        let merges = merges_in_file(gguf, &vocab)?;
        let bpe = build(vocab, merges, pre.whole_words, false)?;
        Ok(Self { pre, alphabet, unspelled, bpe })
    }

    pub(super) fn encode(&self, text: &str, out: &mut Vec<u32>) -> Result<()> {
        if let Some(byte) = text.bytes().find(|byte| self.unspelled.contains(byte)) {
            return Err(ModelError::Tokenize(format!(
                "the vocabulary has no token for byte 0x{byte:02x} of the text"
            )));
        }
        let mut spelled = String::new();
        for word in self.pre.words(text) {
            spelled.clear();
            let word = text.as_bytes().get(word).unwrap_or_default();
            spelled.extend(word.iter().filter_map(|byte| self.alphabet.get(usize::from(*byte))));
            append(&self.bpe, &spelled, out)?;
        }
        Ok(())
    }
}

/// SentencePiece's BPE.
pub(super) struct Sentence {
    bpe: BPE,
    /// A space goes before the text, and before text that follows a control token.
    space_prefix: bool,
    /// Lines are merged one by one, and runs of line ends are taken whole (Gemma 4).
    by_line: bool,
    /// No token has a space after another character, so that no merge crosses the start of a word.
    by_word: bool,
}

impl Sentence {
    /// With the merges that the scores imply.
    pub(super) fn from_scores(
        gguf: &Gguf,
        vocabulary: &Vocabulary,
        space_prefix: bool,
    ) -> Result<Self> {
        if vocabulary.scores.is_empty() {
            return Err(ModelError::malformed(
                gguf.path(),
                "tokenizer.ggml.scores",
                "a score per token, because merges follow from them",
                "no such key",
            ));
        }
        let vocab = mergeable(vocabulary);
        let merges = merges_by_score(vocabulary);
        Self::build(vocabulary, vocab, merges, space_prefix, false)
    }

    /// With the merges in the file.
    pub(super) fn from_merges(gguf: &Gguf, vocabulary: &Vocabulary) -> Result<Self> {
        let vocab = mergeable(vocabulary);
        let merges = merges_in_file(gguf, &vocab)?;
        Self::build(vocabulary, vocab, merges, false, true)
    }

    fn build(
        vocabulary: &Vocabulary,
        vocab: AHashMap<String, u32>,
        merges: Vec<(String, String)>,
        space_prefix: bool,
        by_line: bool,
    ) -> Result<Self> {
        let by_word = !vocabulary.tokens().any(|(_, text, class)| {
            class != Class::Control && text.trim_start_matches(SPACE).contains(SPACE)
        });
        let bpe = build(vocab, merges, false, true)?;
        Ok(Self { bpe, space_prefix, by_line, by_word })
    }

    /// Whether decoded text starts with a space that encoding has put there.
    pub(super) fn space_prefix(&self) -> bool {
        self.space_prefix
    }

    /// `first`: nothing but a control token, or nothing at all, comes before.
    pub(super) fn encode(&self, text: &str, first: bool, out: &mut Vec<u32>) -> Result<()> {
        let mut spelled = String::with_capacity(text.len() + 16);
        if first && self.space_prefix {
            spelled.push(SPACE);
        }
        spelled.extend(text.chars().map(|c| if c == ' ' { SPACE } else { c }));
        if !self.by_line {
            return self.line(&spelled, out);
        }
        let mut rest = spelled.as_str();
        while let Some(start) = rest.chars().next() {
            let newlines = start == '\n';
            let end = rest.find(|c| (c == '\n') != newlines).unwrap_or(rest.len());
            let (piece, after) = rest.split_at(end);
            rest = after;
            match self.bpe.token_to_id(piece) {
                Some(id) if newlines => out.push(id),
                _ => self.line(piece, out)?,
            }
        }
        Ok(())
    }

    fn line(&self, text: &str, out: &mut Vec<u32>) -> Result<()> {
        if !self.by_word {
            return append(&self.bpe, text, out);
        }
        let mut start = 0;
        let mut after_word = false;
        for (at, character) in text.char_indices() {
            if character == SPACE && after_word {
                append(&self.bpe, text.get(start..at).unwrap_or_default(), out)?;
                start = at;
            }
            after_word = character != SPACE;
        }
        append(&self.bpe, text.get(start..).unwrap_or_default(), out)
    }
}

/// The tokens SentencePiece merges into: all but the ones with a role of their own.
fn mergeable(vocabulary: &Vocabulary) -> AHashMap<String, u32> {
    vocabulary
        .tokens()
        .filter(|(_, _, class)| !matches!(class, Class::Control | Class::Unknown))
        .map(|(id, text, _)| (text.to_owned(), id))
        .collect()
}

/// The crate's model. Its cache stays off: it lives in thread-local memory for as long as the
/// thread, which outlives the model.
fn build(
    vocab: AHashMap<String, u32>,
    merges: Vec<(String, String)>,
    whole_words: bool,
    byte_fallback: bool,
) -> Result<BPE> {
    BPE::builder()
        .vocab_and_merges(vocab, merges)
        .ignore_merges(whole_words)
        .byte_fallback(byte_fallback)
        .cache_capacity(0)
        .build()
        .map_err(|error| ModelError::Tokenize(error.to_string()))
}

fn append(bpe: &BPE, word: &str, out: &mut Vec<u32>) -> Result<()> {
    let tokens = bpe.tokenize(word).map_err(|error| ModelError::Tokenize(error.to_string()))?;
    out.extend(tokens.iter().map(|token| token.id));
    Ok(())
}

/// `tokenizer.ggml.merges`, without those that join or make what is not a token.
fn merges_in_file(gguf: &Gguf, vocab: &AHashMap<String, u32>) -> Result<Vec<(String, String)>> {
    const MERGES: &str = "tokenizer.ggml.merges";
    let malformed = |found: String| {
        ModelError::malformed(gguf.path(), MERGES, "an array of strings, two parts each", found)
    };
    let merges = gguf.array(MERGES)?.ok_or_else(|| malformed("no such key".to_owned()))?;
    if merges.kind() != Kind::Text {
        return Err(malformed(format!("an array of {}", merges.kind().name())));
    }
    let mut kept = Vec::with_capacity(usize::try_from(merges.len()).unwrap_or(0));
    let mut seen = AHashSet::with_capacity(kept.capacity());
    let mut joined = String::new();
    for (index, merge) in merges.texts().enumerate() {
        // The first part may itself be a space.
        let split = merge
            .char_indices()
            .skip(1)
            .find(|(_, character)| *character == ' ')
            .and_then(|(at, _)| Some((merge.get(..at)?, merge.get(at + 1..)?)));
        let Some((left, right)) = split else {
            return Err(malformed(format!("`{merge}` at {index}")));
        };
        joined.clear();
        joined.push_str(left);
        joined.push_str(right);
        if vocab.contains_key(left)
            && vocab.contains_key(right)
            && vocab.contains_key(&joined)
            // The first mention of a pair is its rank.
            && seen.insert((left, right))
        {
            kept.push((left.to_owned(), right.to_owned()));
        }
    }
    Ok(kept)
}

/// The merges that a SentencePiece vocabulary implies: every way to make a token of two others,
/// the better score first, then the longer left part (as `transformers` converts them).
fn merges_by_score(vocabulary: &Vocabulary) -> Vec<(String, String)> {
    let ids: AHashMap<&str, u32> = vocabulary
        .tokens()
        .filter(|(_, _, class)| matches!(class, Class::Normal | Class::UserDefined | Class::Unused))
        .map(|(id, text, _)| (text, id))
        .collect();
    let mut found: Vec<(f32, u32, u32, &str, &str)> = Vec::with_capacity(ids.len() * 2);
    for (id, text, _) in vocabulary.tokens() {
        if ids.get(text) != Some(&id) {
            continue;
        }
        let score = vocabulary.scores.get(id as usize).copied().unwrap_or(0.0);
        for (characters, (at, _)) in text.char_indices().enumerate().skip(1) {
            let (left, right) = text.split_at(at);
            if ids.contains_key(left) && ids.contains_key(right) {
                found.push((score, characters as u32, right.chars().count() as u32, left, right));
            }
        }
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)).then(b.2.cmp(&a.2)));
    found.into_iter().map(|(.., left, right)| (left.to_owned(), right.to_owned())).collect()
}
