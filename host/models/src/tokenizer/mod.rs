//! Tokenizers from a model file's own vocabulary: byte-level BPE, SentencePiece's BPE, WordPiece,
//! Unigram.
//!
//! Owns the road from text to ids and back, the tokens with a role, and the rule that a prompt gets
//! one beginning-of-text token and never two. Refuses vocabularies and pre-tokenizers it does not
//! know by name. Work is linear in the text, but for the logarithm of a word's length.

mod bpe;
mod bytes;
mod listing;
mod merge;
mod pieces;
mod pre;
mod unigram;
mod vocab;
mod word;

use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, MatchKind};

pub(crate) use self::pre::PreTokenizer;
use self::{
    merge::{ByteLevel, SPACE, Sentence},
    unigram::Likeliest,
    vocab::{Class, Vocabulary},
    word::Words,
};
use crate::{Gguf, ModelError, Result};

/// How text without special tokens becomes ids.
enum Algorithm {
    ByteLevel(Box<ByteLevel>),
    Sentence(Box<Sentence>),
    Words(Box<Words>),
    Likeliest(Box<Likeliest>),
}

/// Special tokens, found in text before anything else looks at it.
struct Finder {
    automaton: AhoCorasick,
    ids: Vec<u32>,
}

impl Finder {
    fn new(vocabulary: &Vocabulary, wanted: impl Fn(Class) -> bool) -> Result<Option<Self>> {
        let (ids, texts): (Vec<u32>, Vec<&str>) = vocabulary
            .tokens()
            .filter(|(_, text, class)| wanted(*class) && !text.is_empty())
            .map(|(id, text, _)| (id, text))
            .unzip();
        if ids.is_empty() {
            return Ok(None);
        }
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(texts)
            .map_err(|error| ModelError::Tokenize(error.to_string()))?;
        Ok(Some(Self { automaton, ids }))
    }
}

/// Which white space around a special token belongs to it; files do not say, families do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strip {
    Nothing,
    /// Phi-3: white space after a control token, but for three of them.
    AfterControl,
    /// RoBERTa's heirs: white space before the mask.
    BeforeMask,
}

/// A tokenizer.
pub struct Tokenizer {
    vocabulary: Vocabulary,
    algorithm: Algorithm,
    all: Option<Finder>,
    /// Of the user-defined ones; made for the first text that is not a template's.
    user_defined: OnceLock<Option<Finder>>,
    strip: Strip,
    ends: Vec<u32>,
    bos: Option<u32>,
    eos: Option<u32>,
    add_bos: bool,
    add_eos: bool,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("vocabulary", &self.vocabulary.len())
            .field("bos", &self.bos)
            .field("eos", &self.eos)
            .finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// Builds the tokenizer that a model file describes.
    ///
    /// # Errors
    /// When the file has no vocabulary, one of a kind this build does not know, or a broken one.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self> {
        const MODEL: &str = "tokenizer.ggml.model";
        let unsupported =
            |what: String| ModelError::Unsupported { file: gguf.path().to_owned(), what };
        let model = gguf.text(MODEL)?.ok_or_else(|| {
            ModelError::malformed(gguf.path(), MODEL, "the vocabulary's kind", "no such key")
        })?;
        let vocabulary = Vocabulary::read(gguf)?;
        let mut roles = vocabulary.roles;
        let space_prefix = gguf.flag("tokenizer.ggml.add_space_prefix")?;
        let (algorithm, add_bos, add_eos) = match model {
            "gpt2" => {
                let name = gguf.text("tokenizer.ggml.pre")?.unwrap_or("default");
                if matches!(name, "gemma4" | "granite-embed-multi-311m" | "sarvam-moe") {
                    let sentence = Sentence::from_merges(gguf, &vocabulary)?;
                    (Algorithm::Sentence(Box::new(sentence)), name == "gemma4", false)
                } else {
                    let pre = PreTokenizer::named(name).map_err(unsupported)?;
                    let add_bos = pre.add_bos;
                    let bytes = ByteLevel::new(gguf, &vocabulary, pre)?;
                    (Algorithm::ByteLevel(Box::new(bytes)), add_bos, false)
                }
            }
            "gemma4" => {
                let sentence = Sentence::from_merges(gguf, &vocabulary)?;
                (Algorithm::Sentence(Box::new(sentence)), true, false)
            }
            "llama" => {
                roles.bos = roles.bos.or_else(|| (vocabulary.text(1) == Some("<s>")).then_some(1));
                roles.eos = roles.eos.or_else(|| (vocabulary.text(2) == Some("</s>")).then_some(2));
                let sentence =
                    Sentence::from_scores(gguf, &vocabulary, space_prefix.unwrap_or(true))?;
                (Algorithm::Sentence(Box::new(sentence)), true, false)
            }
            "bert" => {
                let named = |name: &str| {
                    vocabulary.tokens().find(|(_, text, _)| *text == name).map(|(id, ..)| id)
                };
                roles.bos = roles.class.or(roles.bos).or_else(|| named("[CLS]"));
                roles.eos = roles.separator.or(roles.eos).or_else(|| named("[SEP]"));
                (Algorithm::Words(Box::new(Words::new(gguf, &vocabulary)?)), true, true)
            }
            "t5" => {
                let likeliest = Likeliest::new(gguf, &vocabulary, space_prefix.unwrap_or(true))?;
                (Algorithm::Likeliest(Box::new(likeliest)), false, true)
            }
            other => {
                return Err(unsupported(format!(
                    "vocabulary kind `{other}`; this build knows gpt2, llama, gemma4, bert, t5"
                )));
            }
        };
        // WordPiece always has both ends; the flags in such files speak of other things.
        let (add_bos, add_eos) = match algorithm {
            Algorithm::Words(_) => (true, true),
            _ => (
                gguf.flag("tokenizer.ggml.add_bos_token")?.unwrap_or(add_bos),
                gguf.flag("tokenizer.ggml.add_eos_token")?.unwrap_or(add_eos),
            ),
        };
        let name = gguf.text("general.name")?.unwrap_or_default().to_lowercase();
        let strip = if name.contains("phi-3") || name.contains("phi3") {
            Strip::AfterControl
        } else if matches!(
            gguf.text("general.architecture")?,
            Some("nomic-bert-moe" | "jina-bert-v3")
        ) || gguf
            .text("tokenizer.ggml.pre")?
            .is_some_and(|pre| pre.starts_with("jina-v2"))
        {
            Strip::BeforeMask
        } else {
            Strip::Nothing
        };
        let special = |class| matches!(class, Class::Control | Class::UserDefined | Class::Unknown);
        let mut ends = vocabulary.ends();
        ends.extend(roles.eos.filter(|eos| !ends.contains(eos)));
        Ok(Self {
            all: Finder::new(&vocabulary, special)?,
            user_defined: OnceLock::new(),
            strip,
            ends,
            bos: roles.bos,
            eos: roles.eos,
            add_bos: add_bos && roles.bos.is_some(),
            add_eos: add_eos && roles.eos.is_some(),
            vocabulary,
            algorithm,
        })
    }

    /// The tokens of a text; no beginning-of-text or end-of-text token is added.
    ///
    /// `special`: whether control tokens spelled out in the text are those tokens (a rendered chat
    /// template) or ordinary text (what a user typed). User-defined tokens always are.
    ///
    /// # Errors
    /// When the vocabulary cannot spell the text, which a sound one always can.
    pub fn encode(&self, text: &str, special: bool) -> Result<Vec<u32>> {
        let mut out = Vec::with_capacity(text.len() / 3 + 8);
        let finder = if special { self.all.as_ref() } else { self.user_defined()? };
        let Some(finder) = finder else {
            self.plain(text, true, &mut out)?;
            return Ok(out);
        };
        let mut done = 0;
        let mut first = true;
        for found in finder.automaton.find_iter(text) {
            let Some(id) = finder.ids.get(found.pattern().as_usize()).copied() else { continue };
            let mut before = text.get(done..found.start()).unwrap_or_default();
            if self.strip == Strip::BeforeMask && Some(id) == self.vocabulary.roles.mask {
                before = before.trim_end();
            }
            if !before.is_empty() {
                self.plain(before, first, &mut out)?;
            }
            out.push(id);
            first = true;
            done = found.end();
            if self.strip == Strip::AfterControl && self.strips_after(id) {
                let rest = text.get(done..).unwrap_or_default();
                done += rest.len() - rest.trim_start().len();
            }
        }
        let rest = text.get(done..).unwrap_or_default();
        if !rest.is_empty() {
            self.plain(rest, first, &mut out)?;
        }
        Ok(out)
    }

    /// The tokens of a whole prompt: special tokens count, and the beginning and end that the file
    /// asks for are there once each, whether or not the text spells them.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_prompt(&self, text: &str) -> Result<Vec<u32>> {
        let mut ids = self.encode(text, true)?;
        if let Some(bos) = self.bos
            && self.add_bos
            && ids.first() != Some(&bos)
        {
            ids.insert(0, bos);
        }
        if let Some(eos) = self.eos
            && self.add_eos
            && ids.last() != Some(&eos)
        {
            ids.push(eos);
        }
        Ok(ids)
    }

    /// The text of tokens; bytes that are not UTF-8 become U+FFFD. With `special`, control tokens
    /// appear by their texts, otherwise not at all.
    #[must_use]
    pub fn decode(&self, ids: &[u32], special: bool) -> String {
        let mut bytes = Vec::new();
        for id in ids {
            if special || !self.is_special(*id) {
                bytes.extend(self.token_bytes(*id).unwrap_or_default());
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        let added = match &self.algorithm {
            Algorithm::Sentence(sentence) => sentence.space_prefix(),
            Algorithm::Words(_) | Algorithm::Likeliest(_) => true,
            Algorithm::ByteLevel(_) => false,
        };
        match text.strip_prefix(' ') {
            Some(rest) if added => rest.to_owned(),
            _ => text.into_owned(),
        }
    }

    /// The exact bytes a token stands for; control tokens by their texts. None beyond the
    /// vocabulary.
    #[must_use]
    pub fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        let text = self.vocabulary.text(id)?;
        match self.vocabulary.class(id) {
            Class::Control | Class::Unknown => return Some(text.as_bytes().to_vec()),
            Class::Byte => {
                if let Some(byte) = spelled_byte(text) {
                    return Some(vec![byte]);
                }
            }
            // Byte-level vocabularies spell user-defined tokens as they are.
            Class::UserDefined if matches!(self.algorithm, Algorithm::ByteLevel(_)) => {
                return Some(text.as_bytes().to_vec());
            }
            Class::UserDefined | Class::Normal | Class::Unused => {}
        }
        let mut bytes = Vec::with_capacity(text.len());
        for character in text.chars() {
            match (&self.algorithm, character) {
                (Algorithm::ByteLevel(_), character) => match bytes::byte_of(character) {
                    Some(byte) => bytes.push(byte),
                    None => extend(&mut bytes, character),
                },
                (_, SPACE) => bytes.push(b' '),
                (_, character) => extend(&mut bytes, character),
            }
        }
        Some(bytes)
    }

    /// A token's text as the file spells it.
    #[must_use]
    pub fn token_text(&self, id: u32) -> Option<&str> {
        self.vocabulary.text(id)
    }

    /// The token with exactly this spelling. Looks through the vocabulary: for setting up, not for
    /// every token.
    #[must_use]
    pub fn id_of(&self, text: &str) -> Option<u32> {
        self.vocabulary.tokens().find(|(_, found, _)| *found == text).map(|(id, ..)| id)
    }

    /// Beginning of text.
    #[must_use]
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// End of text.
    #[must_use]
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// Whether a prompt starts with [`Tokenizer::bos`].
    #[must_use]
    pub fn add_bos(&self) -> bool {
        self.add_bos
    }

    /// Whether a prompt ends with [`Tokenizer::eos`].
    #[must_use]
    pub fn add_eos(&self) -> bool {
        self.add_eos
    }

    /// Whether generation ends with this token: end of text, of turn, of message.
    #[must_use]
    pub fn is_end(&self, id: u32) -> bool {
        self.ends.contains(&id)
    }

    /// All tokens that end generation.
    #[must_use]
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// Whether a token is a mark and not text: it must not be shown.
    #[must_use]
    pub fn is_special(&self, id: u32) -> bool {
        matches!(self.vocabulary.class(id), Class::Control | Class::Unknown) || self.is_end(id)
    }

    /// How many tokens there are.
    #[must_use]
    pub fn vocab_len(&self) -> u32 {
        self.vocabulary.len()
    }

    fn user_defined(&self) -> Result<Option<&Finder>> {
        if let Some(finder) = self.user_defined.get() {
            return Ok(finder.as_ref());
        }
        let finder = Finder::new(&self.vocabulary, |class| class == Class::UserDefined)?;
        Ok(self.user_defined.get_or_init(|| finder).as_ref())
    }

    fn plain(&self, text: &str, first: bool, out: &mut Vec<u32>) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        match &self.algorithm {
            Algorithm::ByteLevel(bytes) => bytes.encode(&self.vocabulary, text, out),
            Algorithm::Sentence(sentence) => sentence.encode(&self.vocabulary, text, first, out),
            Algorithm::Words(words) => words.encode(text, out),
            Algorithm::Likeliest(likeliest) => likeliest.encode(text, first, out),
        }
    }

    fn strips_after(&self, id: u32) -> bool {
        !matches!(self.vocabulary.text(id), Some("<unk>" | "<s>" | "<|endoftext|>"))
    }
}

fn extend(bytes: &mut Vec<u8>, character: char) {
    bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
}

/// The byte that `<0x0A>` spells.
fn spelled_byte(text: &str) -> Option<u8> {
    let hex = text.strip_prefix("<0x")?.strip_suffix('>')?;
    u8::from_str_radix(hex, 16).ok()
}
