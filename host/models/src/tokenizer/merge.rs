//! Byte-pair encoding in its two spellings: over the alphabet of bytes, cut into words first
//! ([`ByteLevel`]), and SentencePiece's, over characters with `▁` for a space and bytes for what has
//! no token ([`Sentence`]).

use super::{
    bpe::{Bpe, Room},
    bytes,
    pre::PreTokenizer,
    vocab::{Class, Vocabulary},
};
use crate::{Gguf, ModelError, Result};

/// What stands for a space in SentencePiece's vocabularies.
pub(super) const SPACE: char = '▁';

/// The first byte of [`SPACE`].
const SPACE_STARTS: u8 = 0xe2;

/// Byte-level BPE.
pub(super) struct ByteLevel {
    pre: PreTokenizer,
    alphabet: [char; 256],
    /// Bytes of UTF-8 that the vocabulary cannot spell; empty in any sound one.
    unspelled: Vec<u8>,
    bpe: Bpe,
}

impl ByteLevel {
    pub(super) fn new(gguf: &Gguf, vocabulary: &Vocabulary, pre: PreTokenizer) -> Result<Self> {
        // Control and user-defined tokens are found before words are cut, and never by merging.
        let wanted = |class| matches!(class, Class::Normal | Class::Unused | Class::Byte);
        let bpe = Bpe::listed(gguf, vocabulary, wanted, pre.whole_words)?;
        let alphabet = bytes::alphabet();
        let unspelled = (0..=u8::MAX)
            // These never occur in UTF-8.
            .filter(|byte| !matches!(byte, 0xc0 | 0xc1 | 0xf5..=0xff))
            .filter(|byte| {
                let character = alphabet.get(usize::from(*byte)).copied().unwrap_or_default();
                bpe.token(vocabulary, character.encode_utf8(&mut [0; 4])).is_none()
            })
            .collect();
        Ok(Self { pre, alphabet, unspelled, bpe })
    }

    pub(super) fn encode(
        &self,
        vocabulary: &Vocabulary,
        text: &str,
        out: &mut Vec<u32>,
    ) -> Result<()> {
        if let Some(byte) = text.bytes().find(|byte| self.unspelled.contains(byte)) {
            return Err(ModelError::Tokenize(format!(
                "the vocabulary has no token for byte 0x{byte:02x} of the text"
            )));
        }
        let (mut spelled, mut room) = (String::new(), Room::default());
        for word in self.pre.words(text) {
            spelled.clear();
            let word = text.as_bytes().get(word).unwrap_or_default();
            spelled.extend(word.iter().filter_map(|byte| self.alphabet.get(usize::from(*byte))));
            self.bpe.append(vocabulary, &spelled, &mut room, out)?;
        }
        Ok(())
    }
}

/// SentencePiece's BPE.
pub(super) struct Sentence {
    bpe: Bpe,
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
        Ok(Self::new(Bpe::scored(vocabulary), vocabulary, space_prefix, false))
    }

    /// With the merges in the file.
    pub(super) fn from_merges(gguf: &Gguf, vocabulary: &Vocabulary) -> Result<Self> {
        // All but the ones with a role of their own.
        let wanted = |class| !matches!(class, Class::Control | Class::Unknown);
        let bpe = Bpe::listed(gguf, vocabulary, wanted, false)?;
        Ok(Self::new(bpe, vocabulary, false, true))
    }

    fn new(bpe: Bpe, vocabulary: &Vocabulary, space_prefix: bool, by_line: bool) -> Self {
        let by_word = !vocabulary.tokens().any(|(_, text, class)| {
            let rest = text.trim_start_matches(SPACE);
            // Hardly any text has that byte, and looking for one is quick.
            rest.as_bytes().contains(&SPACE_STARTS)
                && class != Class::Control
                && rest.contains(SPACE)
        });
        Self { bpe: bpe.with_bytes(vocabulary), space_prefix, by_line, by_word }
    }

    /// Whether decoded text starts with a space that encoding has put there.
    pub(super) fn space_prefix(&self) -> bool {
        self.space_prefix
    }

    /// `first`: nothing but a control token, or nothing at all, comes before.
    pub(super) fn encode(
        &self,
        vocabulary: &Vocabulary,
        text: &str,
        first: bool,
        out: &mut Vec<u32>,
    ) -> Result<()> {
        let mut room = Room::default();
        let mut spelled = String::with_capacity(text.len() + 16);
        if first && self.space_prefix {
            spelled.push(SPACE);
        }
        spelled.extend(text.chars().map(|c| if c == ' ' { SPACE } else { c }));
        if !self.by_line {
            return self.line(vocabulary, &spelled, &mut room, out);
        }
        let mut rest = spelled.as_str();
        while let Some(start) = rest.chars().next() {
            let newlines = start == '\n';
            let end = rest.find(|c| (c == '\n') != newlines).unwrap_or(rest.len());
            let (piece, after) = rest.split_at(end);
            rest = after;
            match self.bpe.token(vocabulary, piece) {
                Some(id) if newlines => out.push(id),
                _ => self.line(vocabulary, piece, &mut room, out)?,
            }
        }
        Ok(())
    }

    fn line(
        &self,
        vocabulary: &Vocabulary,
        text: &str,
        room: &mut Room,
        out: &mut Vec<u32>,
    ) -> Result<()> {
        let mut append = |word: &str| self.bpe.append(vocabulary, word, room, out);
        if !self.by_word {
            return append(text);
        }
        let mut start = 0;
        let mut after_word = false;
        for (at, character) in text.char_indices() {
            if character == SPACE && after_word {
                append(text.get(start..at).unwrap_or_default())?;
                start = at;
            }
            after_word = character != SPACE;
        }
        append(text.get(start..).unwrap_or_default())
    }
}
