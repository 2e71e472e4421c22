//! The vocabulary as the model file has it: texts, kinds, scores, and the tokens with a role.

use crate::{Gguf, ModelError, Result, gguf::Kind};

/// What a token is, from `tokenizer.ggml.token_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

impl Class {
    fn from_id(id: i64) -> Self {
        match id {
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => Self::Normal,
        }
    }
}

/// Ids with a role; none where the file names none.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Roles {
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub eot: Option<u32>,
    pub eom: Option<u32>,
    pub unknown: Option<u32>,
    pub separator: Option<u32>,
    pub class: Option<u32>,
    pub mask: Option<u32>,
}

/// All tokens. Texts lie in one buffer, because a quarter of a million small ones cost time.
pub(super) struct Vocabulary {
    texts: String,
    ends: Vec<u32>,
    classes: Vec<Class>,
    pub(super) scores: Vec<f32>,
    pub(super) roles: Roles,
}

/// Texts by which files mark the end of a turn even where no key says so (collected from the
/// vocabularies of the respective model families).
const ENDS: [&str; 15] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<end_of_turn>",
    "<turn|>",
    "<|endoftext|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>",
    "<|tool_response>",
];

/// The same, but ordinary words in other vocabularies: only a control token counts.
const ENDS_IF_CONTROL: [&str; 7] = ["</s>", "<eos>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "[e~["];

/// Whether a text is worth looking for among the above: nearly none of a quarter of a million is.
fn may_end(text: &str) -> bool {
    text.starts_with(['<', '_', '['])
}

impl Vocabulary {
    pub(super) fn read(gguf: &Gguf) -> Result<Self> {
        const TOKENS: &str = "tokenizer.ggml.tokens";
        const TYPES: &str = "tokenizer.ggml.token_type";
        const SCORES: &str = "tokenizer.ggml.scores";
        let missing = |key: &str, found: &str| {
            ModelError::malformed(gguf.path(), key, "an array of strings, the vocabulary", found)
        };
        let tokens = gguf.array(TOKENS)?.ok_or_else(|| missing(TOKENS, "no such key"))?;
        if tokens.kind() != Kind::Text || tokens.is_empty() {
            return Err(gguf.wrong(TOKENS, "an array of strings", crate::gguf::Raw::Array(tokens)));
        }
        let mut texts = Vec::new();
        let mut ends = Vec::new();
        for text in tokens.spellings() {
            texts.extend_from_slice(text);
            ends.push(u32::try_from(texts.len()).map_err(|_| {
                ModelError::malformed(gguf.path(), TOKENS, "less than 4 GiB of text", texts.len())
            })?);
        }
        // Each text is UTF-8, as opening the file made sure; all at once is quickly seen again.
        let texts = match simdutf8::basic::from_utf8(&texts) {
            Ok(texts) => texts.to_owned(),
            Err(error) => return Err(ModelError::malformed(gguf.path(), TOKENS, "UTF-8", error)),
        };
        let count = ends.len();
        let same_length = |key: &str, found: usize| {
            if found == count {
                Ok(())
            } else {
                let expected = format!("{count} elements, one per token");
                Err(ModelError::malformed(gguf.path(), key, expected, found))
            }
        };
        let mut classes = vec![Class::Normal; count];
        if let Some(types) = gguf.array(TYPES)? {
            // As every file has them; a quarter of a million one by one take milliseconds.
            classes = match types.fours(Kind::I32) {
                Some(ids) => {
                    ids.iter().map(|id| Class::from_id(i32::from_le_bytes(*id).into())).collect()
                }
                None => types.ints().map(Class::from_id).collect(),
            };
            same_length(TYPES, classes.len())?;
        }
        let mut scores = Vec::new();
        if let Some(values) = gguf.array(SCORES)? {
            scores = match values.fours(Kind::F32) {
                Some(scores) => scores.iter().map(|score| f32::from_le_bytes(*score)).collect(),
                None => values.floats().map(|score| score as f32).collect(),
            };
            same_length(SCORES, scores.len())?;
        }
        // A role that points outside the vocabulary is a broken file, not a missing role.
        let role = |name: &str| -> Result<Option<u32>> {
            let key = format!("tokenizer.ggml.{name}_token_id");
            match gguf.u32(&key)? {
                Some(id) if id as usize >= count => {
                    let expected = format!("an id below {count}");
                    Err(ModelError::malformed(gguf.path(), key, expected, id))
                }
                id => Ok(id),
            }
        };
        let roles = Roles {
            bos: role("bos")?,
            eos: role("eos")?,
            eot: role("eot")?,
            eom: role("eom")?,
            unknown: role("unknown")?,
            // The format's own spelling came first.
            separator: role("seperator")?.or(role("separator")?),
            class: role("cls")?,
            mask: role("mask")?,
        };
        let mut vocabulary = Self { texts, ends, classes, scores, roles };
        vocabulary.mark_ends();
        Ok(vocabulary)
    }

    /// Some files forget to say that what ends a text or turn is a control token.
    fn mark_ends(&mut self) {
        let roles = [self.roles.bos, self.roles.eos, self.roles.eot, self.roles.eom];
        let forgotten: Vec<u32> = self
            .tokens()
            .filter(|(id, text, class)| {
                *class == Class::Normal
                    && (may_end(text) && ENDS.contains(text) || roles.contains(&Some(*id)))
            })
            .map(|(id, ..)| id)
            .collect();
        for id in forgotten {
            if let Some(class) = self.classes.get_mut(id as usize) {
                *class = Class::Control;
            }
        }
    }

    pub(super) fn len(&self) -> u32 {
        self.ends.len() as u32
    }

    /// A token's text as the file has it.
    pub(super) fn text(&self, id: u32) -> Option<&str> {
        let id = id as usize;
        let end = *self.ends.get(id)? as usize;
        let start = match id {
            0 => 0,
            id => *self.ends.get(id - 1)? as usize,
        };
        self.texts.get(start..end)
    }

    pub(super) fn class(&self, id: u32) -> Class {
        self.classes.get(id as usize).copied().unwrap_or(Class::Normal)
    }

    /// All tokens with their kinds.
    pub(super) fn tokens(&self) -> impl Iterator<Item = (u32, &str, Class)> {
        (0..self.len()).filter_map(|id| Some((id, self.text(id)?, self.class(id))))
    }

    /// Tokens that end a turn.
    pub(super) fn ends(&self) -> Vec<u32> {
        let mut ends: Vec<(u32, &str)> = self
            .tokens()
            .filter(|(_, text, class)| {
                may_end(text)
                    && (ENDS.contains(text)
                        || (*class == Class::Control && ENDS_IF_CONTROL.contains(text)))
            })
            .map(|(id, text, _)| (id, text))
            .collect();
        // Where `<|call|>` and `<|return|>` end a turn, `<|end|>` only ends one message of it.
        let has = |word: &str| ends.iter().any(|(_, text)| *text == word);
        if has("<|call|>") && has("<|return|>") || has("<|calls|>") && has("<|flush|>") {
            ends.retain(|(_, text)| *text != "<|end|>");
        }
        let mut ends: Vec<u32> = ends.into_iter().map(|(id, _)| id).collect();
        ends.extend([self.roles.eos, self.roles.eot, self.roles.eom].into_iter().flatten());
        ends.sort_unstable();
        ends.dedup();
        ends
    }
}
