//! `tokenizer.json` as GGUF's vocabulary keys: byte-level BPE and WordPiece.
//!
//! Which pre-tokenizer a BPE vocabulary uses is not in GGUF's terms there; it is found by what it
//! does to a text on which all of them differ. Refused by name: other kinds of vocabulary, and a
//! pre-tokenizer that cuts like none that is known.

use std::{collections::HashMap, fs, path::Path};

use serde::Deserialize;
use serde_json::Value as Json;
use tokenizers::{
    OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer as _, PreTokenizerWrapper,
};

use super::config::{Family, Fields};
use crate::{ModelError, Result, gguf::write::Value, tokenizer::PreTokenizer};

/// Marks the start of a word in GGUF's WordPiece vocabularies.
const WORD: char = '\u{2581}';

/// GGUF's numbers for kinds of tokens.
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;

#[derive(Deserialize)]
struct File {
    model: Json,
    #[serde(default)]
    added_tokens: Vec<Added>,
    #[serde(default)]
    normalizer: Json,
    #[serde(default)]
    pre_tokenizer: Json,
    #[serde(default)]
    post_processor: Json,
}

#[derive(Deserialize)]
struct Added {
    id: usize,
    content: String,
    #[serde(default)]
    special: bool,
}

/// The keys of the vocabulary in this folder, with as many tokens as the embedding has rows.
pub(super) fn keys(folder: &Path, family: &Family, rows: usize) -> Result<Vec<(String, Value)>> {
    let path = folder.join("tokenizer.json");
    let text = fs::read_to_string(&path)
        .map_err(|source| ModelError::Io { file: path.clone(), source })?;
    let file: File = serde_json::from_str(&text)
        .map_err(|error| ModelError::malformed(&path, "file", "a tokenizer", error))?;
    let settings = match folder.join("tokenizer_config.json") {
        path if path.is_file() => Some(Fields::read(&path)?),
        _ => None,
    };
    let config = Fields::read(&folder.join("config.json"))?;
    let vocabulary = Vocabulary::read(&path, &file, rows)?;
    let mut keys = Vec::new();
    let mut set = |name: &str, value| keys.push((format!("tokenizer.{name}"), value));

    let kind = file.model.get("type").and_then(Json::as_str).unwrap_or("BPE");
    let unsupported = |what: String| ModelError::Unsupported { file: path.clone(), what };
    match (kind, family.is_encoder()) {
        ("WordPiece", true) => {
            set("ggml.model", Value::Text("bert".to_owned()));
            let flag = |name: &str| file.normalizer.get(name).and_then(Json::as_bool);
            let lower = flag("lowercase").unwrap_or(true);
            set("ggml.normalizer.lowercase", Value::Bool(lower));
            let strip = flag("strip_accents").unwrap_or(lower);
            set("ggml.normalizer.strip_accents", Value::Bool(strip));
        }
        ("BPE", false) => {
            let fallback = file.model.get("byte_fallback").and_then(Json::as_bool);
            if fallback == Some(true) {
                let what =
                    "a SentencePiece vocabulary (BPE with byte_fallback); import a GGUF of it";
                return Err(unsupported(what.to_owned()));
            }
            set("ggml.model", Value::Text("gpt2".to_owned()));
            let pre = pre_tokenizer(&file.pre_tokenizer).map_err(unsupported)?;
            set("ggml.pre", Value::Text(pre.to_owned()));
            set("ggml.merges", Value::Texts(merges(&path, &file.model)?));
        }
        (other, _) => {
            let what = format!("a {other} vocabulary for {}", family.architecture);
            return Err(unsupported(what));
        }
    }
    let of = |token: &str| vocabulary.ids.get(token).and_then(|id| u32::try_from(*id).ok());
    let role = |name: &str| {
        let named = settings.as_ref().and_then(|settings| token_text(settings.get(name)?));
        named.and_then(of)
    };
    let roles = match family.is_encoder() {
        true => vec![
            ("bos", role("cls_token")),
            ("eos", role("sep_token")),
            ("cls", role("cls_token")),
            ("seperator", role("sep_token")),
            ("mask", role("mask_token")),
        ],
        false => vec![
            ("bos", role("bos_token").or_else(|| id_in(&config, "bos_token_id"))),
            ("eos", role("eos_token").or_else(|| id_in(&config, "eos_token_id"))),
        ],
    };
    let more = [("unknown", role("unk_token")), ("padding", role("pad_token"))];
    for (name, id) in roles.into_iter().chain(more) {
        if let Some(id) = id {
            set(&format!("ggml.{name}_token_id"), Value::U32(id));
        }
    }
    if !family.is_encoder() {
        let bos = role("bos_token").or_else(|| id_in(&config, "bos_token_id"));
        let says = settings.as_ref().and_then(|settings| settings.get("add_bos_token")?.as_bool());
        let adds = says.unwrap_or_else(|| begins_with(&file.post_processor, &vocabulary, bos));
        set("ggml.add_bos_token", Value::Bool(adds));
        if let Some(template) = template(folder, settings.as_ref())? {
            set("chat_template", Value::Text(template));
        }
    }
    let spelled = vocabulary.spelled(family.is_encoder());
    set("ggml.tokens", Value::Texts(spelled));
    set("ggml.token_type", Value::Ints(vocabulary.kinds));
    Ok(keys)
}

struct Vocabulary {
    texts: Vec<String>,
    kinds: Vec<i32>,
    ids: HashMap<String, usize>,
}

impl Vocabulary {
    fn read(path: &Path, file: &File, rows: usize) -> Result<Self> {
        let wrong = |found: String| {
            let expected = format!("tokens with ids below {rows}, the embedding's rows");
            ModelError::malformed(path, "vocab", expected, found)
        };
        let own = file.model.get("vocab").and_then(Json::as_object);
        let own = own.ok_or_else(|| wrong("no object of tokens".to_owned()))?;
        let mut vocabulary = Self {
            texts: (0..rows).map(|id| format!("[PAD{id}]")).collect(),
            kinds: vec![UNUSED; rows],
            ids: HashMap::with_capacity(own.len() + file.added_tokens.len()),
        };
        for (text, id) in own {
            let id = id.as_u64().and_then(|id| usize::try_from(id).ok());
            let id = id.ok_or_else(|| wrong(format!("{text:?} without an id")))?;
            vocabulary.put(id, text, NORMAL).ok_or_else(|| wrong(format!("{id} for {text:?}")))?;
        }
        for added in &file.added_tokens {
            let kind = if added.special { CONTROL } else { USER_DEFINED };
            vocabulary
                .put(added.id, &added.content, kind)
                .ok_or_else(|| wrong(format!("{} for {:?}", added.id, added.content)))?;
        }
        Ok(vocabulary)
    }

    fn put(&mut self, id: usize, text: &str, kind: i32) -> Option<()> {
        *self.texts.get_mut(id)? = text.to_owned();
        *self.kinds.get_mut(id)? = kind;
        self.ids.insert(text.to_owned(), id);
        Some(())
    }

    /// Texts as GGUF spells them: WordPiece marks the start of a word, not its continuation.
    fn spelled(&self, words: bool) -> Vec<String> {
        let spell = |(text, kind): (&String, &i32)| match text.strip_prefix("##") {
            _ if !words || *kind != NORMAL => text.clone(),
            Some(rest) => rest.to_owned(),
            None if text.starts_with('[') && text.ends_with(']') && text.len() > 2 => text.clone(),
            None => format!("{WORD}{text}"),
        };
        self.texts.iter().zip(&self.kinds).map(spell).collect()
    }
}

/// A token in a configuration: its text, or an object with it.
fn token_text(value: &Json) -> Option<&str> {
    value.as_str().or_else(|| value.get("content")?.as_str())
}

/// An id in a configuration: a number, or the first of several.
fn id_in(config: &Fields, name: &str) -> Option<u32> {
    let value = config.get(name)?;
    let id = value.as_u64().or_else(|| value.get(0)?.as_u64());
    id.and_then(|id| u32::try_from(id).ok())
}

/// Whether the tokenizer itself puts this token first.
fn begins_with(processor: &Json, vocabulary: &Vocabulary, token: Option<u32>) -> bool {
    let Some(token) = token else { return false };
    let mut parts = vec![processor];
    if let Some(inner) = processor.get("processors").and_then(Json::as_array) {
        parts.extend(inner);
    }
    parts.into_iter().any(|part| {
        let first = part.get("single").and_then(|single| single.get(0));
        let text = first.and_then(|first| first.get("SpecialToken")?.get("id")?.as_str());
        text.and_then(|text| vocabulary.ids.get(text)) == Some(&(token as usize))
    })
}

fn merges(path: &Path, model: &Json) -> Result<Vec<String>> {
    let wrong = |found: &str| ModelError::malformed(path, "merges", "pairs of tokens", found);
    let merges = model.get("merges").and_then(Json::as_array).ok_or_else(|| wrong("no list"))?;
    merges
        .iter()
        .map(|merge| match merge {
            Json::String(pair) => Ok(pair.clone()),
            Json::Array(pair) => match pair.as_slice() {
                [Json::String(left), Json::String(right)] => Ok(format!("{left} {right}")),
                _ => Err(wrong("another list")),
            },
            _ => Err(wrong("another value")),
        })
        .collect()
}

fn template(folder: &Path, settings: Option<&Fields>) -> Result<Option<String>> {
    let file = folder.join("chat_template.jinja");
    if file.is_file() {
        return fs::read_to_string(&file)
            .map(Some)
            .map_err(|source| ModelError::Io { file, source });
    }
    let value = settings.and_then(|settings| settings.get("chat_template"));
    let named = value.and_then(Json::as_array).and_then(|templates| {
        let default =
            templates.iter().find(|one| one.get("name").and_then(Json::as_str) == Some("default"));
        default?.get("template")?.as_str()
    });
    Ok(value.and_then(Json::as_str).or(named).map(str::to_owned))
}

/// Runs of everything that pre-tokenizers treat differently.
const PROBE: &str = "I'll they'LL don't 1 12 123 1234567 x99y  two   three\n\nfour \n five\t\tsix\r\n seven ,.!? \
     $x=1; foo_bar(baz) --> ... ¡Ünïcödé! naïve 你好世界 こんにちは カタカナ 한국어 𝟘𝟙 e\u{301}a\u{308}  \
     HTTPServer camelCase iPhone's O'Neil a/b/c path/to\n/x  #hash @at %5 100€ «x» …   \n";

/// The GGUF name of a pre-tokenizer that cuts as this one does.
fn pre_tokenizer(json: &Json) -> std::result::Result<&'static str, String> {
    let refused = |error: String| format!("the pre-tokenizer {json}: {error}");
    let theirs: PreTokenizerWrapper =
        serde_json::from_value(json.clone()).map_err(|error| refused(error.to_string()))?;
    let mut cut = PreTokenizedString::from(PROBE);
    theirs.pre_tokenize(&mut cut).map_err(|error| refused(error.to_string()))?;
    let wanted: Vec<(usize, usize)> = cut
        .get_splits(OffsetReferential::Original, OffsetType::Byte)
        .into_iter()
        .map(|(_, range, _)| range)
        .collect();
    PreTokenizer::like(|known| {
        let found = known.words(PROBE).into_iter().map(|range| (range.start, range.end));
        found.eq(wanted.iter().copied())
    })
    .ok_or_else(|| refused("it cuts like none that is known".to_owned()))
}
