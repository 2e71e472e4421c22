//! Made-up vocabularies that a real tokenizer accepts: byte-level BPE and SentencePiece-style.
//!
//! Beside the bytes they hold runs of the most frequent English letters, shortest first, so that
//! every piece is the merge of a shorter piece and one letter. Any size from about 300 tokens up.

use anyhow::{Result, ensure};

use crate::gguf::{File, Value};

/// Which kind of vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vocabulary {
    /// GPT-2's byte-level BPE with a pre-tokenizer by llama.cpp's name, for instance `qwen2`.
    ByteLevel(&'static str),
    /// SentencePiece-style BPE with byte fallback, as Llama 2 and Gemma have it.
    SentencePiece,
}

const LETTERS: &str = "etaoinshrdlcumwfgypbvkjxqz";
const CHAT_TEMPLATE: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n\
    {{ message.content }}<|im_end|>\n{% endfor %}\
    {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// Token types of GGUF.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const BYTE: i32 = 6;

impl Vocabulary {
    /// Writes the tokenizer's keys for a vocabulary of `size` tokens.
    ///
    /// # Errors
    /// When the alphabet alone does not fit into `size`.
    pub fn describe(self, file: &mut File<'_>, size: usize) -> Result<()> {
        match self {
            Self::ByteLevel(pre) => byte_level(file, size, pre),
            Self::SentencePiece => sentence_piece(file, size),
        }
    }
}

fn byte_level(file: &mut File<'_>, size: usize, pre: &str) -> Result<()> {
    let specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];
    let mut tokens: Vec<String> = specials.map(str::to_owned).to_vec();
    tokens.extend((0..=255).map(|byte| byte_letter(byte).to_string()));
    ensure!(size >= tokens.len(), "a byte-level vocabulary needs {} tokens", tokens.len());
    let mut merges = Vec::new();
    for (left, right) in runs(byte_letter(b' ')).take(size - tokens.len()) {
        tokens.push(format!("{left}{right}"));
        merges.push(format!("{left} {right}"));
    }
    ensure!(tokens.len() == size, "{size} tokens are more than this vocabulary can make");
    let types = (0..size).map(|id| if id < specials.len() { CONTROL } else { NORMAL });
    file.set("tokenizer.ggml.model", Value::text("gpt2"));
    file.set("tokenizer.ggml.pre", Value::text(pre));
    file.set("tokenizer.ggml.token_type", Value::ints(types));
    file.set("tokenizer.ggml.tokens", Value::texts(tokens));
    file.set("tokenizer.ggml.merges", Value::texts(merges));
    file.set("tokenizer.ggml.bos_token_id", Value::U32(0));
    file.set("tokenizer.ggml.eos_token_id", Value::U32(2));
    file.set("tokenizer.ggml.padding_token_id", Value::U32(0));
    file.set("tokenizer.ggml.add_bos_token", Value::Bool(false));
    file.set("tokenizer.chat_template", Value::text(CHAT_TEMPLATE));
    Ok(())
}

/// Adds control tokens behind those of a byte-level vocabulary.
pub(crate) fn add_marks(file: &mut File<'_>, marks: &[&str]) {
    let more = marks.len() as u32;
    for (key, value) in &mut file.metadata {
        match (key.as_str(), value) {
            ("tokenizer.ggml.tokens", Value::Array(_, tokens)) => {
                tokens.extend(marks.iter().map(|mark| Value::text(*mark)));
            }
            ("tokenizer.ggml.token_type", Value::Array(_, types)) => {
                types.extend(marks.iter().map(|_| Value::I32(CONTROL)));
            }
            (key, Value::U32(size)) if key.ends_with(".vocab_size") => *size += more,
            _ => {}
        }
    }
}

fn sentence_piece(file: &mut File<'_>, size: usize) -> Result<()> {
    let mut tokens: Vec<String> = ["<pad>", "<eos>", "<bos>", "<unk>"].map(str::to_owned).to_vec();
    let mut types = vec![CONTROL, CONTROL, CONTROL, UNKNOWN];
    tokens.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
    types.resize(tokens.len(), BYTE);
    tokens.push('▁'.to_string());
    tokens.extend(LETTERS.chars().map(String::from));
    ensure!(size >= tokens.len(), "a SentencePiece vocabulary needs {} tokens", tokens.len());
    let missing = size - tokens.len();
    tokens.extend(runs('▁').take(missing).map(|(left, right)| format!("{left}{right}")));
    ensure!(tokens.len() == size, "{size} tokens are more than this vocabulary can make");
    types.resize(size, NORMAL);
    // A merge is preferred by its score: the earlier a piece is listed, the higher.
    let scores = (0..size).map(|id| -(id as f32));
    file.set("tokenizer.ggml.model", Value::text("llama"));
    file.set("tokenizer.ggml.pre", Value::text("default"));
    file.set("tokenizer.ggml.scores", Value::floats(scores));
    file.set("tokenizer.ggml.token_type", Value::ints(types));
    file.set("tokenizer.ggml.tokens", Value::texts(tokens));
    file.set("tokenizer.ggml.bos_token_id", Value::U32(2));
    file.set("tokenizer.ggml.eos_token_id", Value::U32(1));
    file.set("tokenizer.ggml.unknown_token_id", Value::U32(3));
    file.set("tokenizer.ggml.padding_token_id", Value::U32(0));
    file.set("tokenizer.ggml.add_bos_token", Value::Bool(true));
    file.set("tokenizer.ggml.add_eos_token", Value::Bool(false));
    file.set("tokenizer.ggml.add_space_prefix", Value::Bool(false));
    Ok(())
}

/// All runs of two, three and four letters, each as the shorter run it extends and the letter; the
/// first letter may be the blank's spelling.
fn runs(blank: char) -> impl Iterator<Item = (String, char)> {
    let first: Vec<String> =
        std::iter::once(blank).chain(LETTERS.chars()).map(String::from).collect();
    let extend = |short: &[String]| -> Vec<String> {
        short
            .iter()
            .flat_map(|run| LETTERS.chars().map(move |next| format!("{run}{next}")))
            .collect()
    };
    let second = extend(&first);
    let third = extend(&second);
    [first, second, third]
        .into_iter()
        .flatten()
        .flat_map(|run| LETTERS.chars().map(move |next| (run.clone(), next)))
}

/// How GPT-2's byte-level alphabet spells a byte: printable Latin-1 as itself, the rest from U+0100 on.
fn byte_letter(byte: u8) -> char {
    let printable = |byte: u8| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    if printable(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|other| !printable(*other)).count() as u32;
    char::from_u32(256 + before).unwrap_or(char::REPLACEMENT_CHARACTER)
}

#[cfg(test)]
mod tests {
    use super::{byte_letter, runs};

    #[test]
    fn the_alphabet_is_gpt2s() {
        assert_eq!((byte_letter(b' '), byte_letter(b'\n'), byte_letter(0xad)), ('Ġ', 'Ċ', 'Ń'));
        let all: std::collections::HashSet<_> = (0..=255).map(byte_letter).collect();
        assert_eq!(all.len(), 256);
    }

    #[test]
    fn every_run_extends_one_that_came_before() {
        let mut known: std::collections::HashSet<String> =
            "Ġetaoinshrdlcumwfgypbvkjxqz".chars().map(String::from).collect();
        let mut count = 0;
        for (left, right) in runs('Ġ').take(20_000) {
            assert!(known.contains(&left), "{left}");
            assert!(known.insert(format!("{left}{right}")), "{left}{right} twice");
            count += 1;
        }
        assert_eq!(count, 20_000);
    }
}
