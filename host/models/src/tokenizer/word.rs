//! WordPiece (BERT): text normalised and cut at spaces and punctuation, each word from the longest
//! tokens that spell it. All of it is the `tokenizers` crate's; the file spells tokens differently
//! (`▁` before the start of a word instead of `##` before its rest).

use ahash::AHashMap;
use tokenizers::{
    Model, NormalizedString, Normalizer, OffsetReferential, OffsetType, PreTokenizedString,
    PreTokenizer, models::wordpiece::WordPiece, normalizers::BertNormalizer,
    pre_tokenizers::bert::BertPreTokenizer,
};

use super::{
    merge::SPACE,
    vocab::{Class, Vocabulary},
};
use crate::{Gguf, ModelError, Result};

pub(super) struct Words {
    normalizer: BertNormalizer,
    model: WordPiece,
}

impl Words {
    pub(super) fn new(gguf: &Gguf, vocabulary: &Vocabulary) -> Result<Self> {
        let lowercase = gguf.flag("tokenizer.ggml.normalizer.lowercase")?.unwrap_or(true);
        let strip_accents =
            gguf.flag("tokenizer.ggml.normalizer.strip_accents")?.unwrap_or(lowercase);
        let unknown = vocabulary
            .roles
            .unknown
            .or_else(|| {
                vocabulary.tokens().find(|(_, text, _)| *text == "[UNK]").map(|(id, ..)| id)
            })
            .and_then(|id| vocabulary.text(id))
            .ok_or_else(|| {
                ModelError::malformed(
                    gguf.path(),
                    "tokenizer.ggml.unknown_token_id",
                    "the token for words that cannot be spelled",
                    "no such key",
                )
            })?;
        let vocab: AHashMap<String, u32> = vocabulary
            .tokens()
            .map(|(id, text, class)| {
                let bracketed = text.starts_with('[') && text.ends_with(']') && text.len() > 2;
                let spelled = match text.strip_prefix(SPACE) {
                    Some(start) => start.to_owned(),
                    None if class != Class::Normal || bracketed => text.to_owned(),
                    None => format!("##{text}"),
                };
                (spelled, id)
            })
            .collect();
        let model = WordPiece::builder()
            .vocab(vocab)
            .unk_token(unknown.to_owned())
            .build()
            .map_err(failed)?;
        Ok(Self {
            normalizer: BertNormalizer::new(true, true, Some(strip_accents), lowercase),
            model,
        })
    }

    pub(super) fn encode(&self, text: &str, out: &mut Vec<u32>) -> Result<()> {
        let mut normalized = NormalizedString::from(text);
        self.normalizer.normalize(&mut normalized).map_err(failed)?;
        let mut words = PreTokenizedString::from(normalized.get());
        BertPreTokenizer.pre_tokenize(&mut words).map_err(failed)?;
        for (word, ..) in words.get_splits(OffsetReferential::Normalized, OffsetType::Byte) {
            let tokens = self.model.tokenize(word).map_err(failed)?;
            out.extend(tokens.iter().map(|token| token.id));
        }
        Ok(())
    }
}

fn failed(error: tokenizers::Error) -> ModelError {
    ModelError::Tokenize(error.to_string())
}
