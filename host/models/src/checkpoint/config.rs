//! `config.json` as GGUF metadata. Refused by name: an architecture not listed here, and a setting
//! whose meaning the architecture's program does not have.

use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use crate::{ModelError, Result, gguf::write::Value};

/// Architectures that are read: `transformers`' class, GGUF's name.
const KNOWN: &[(&str, &str)] = &[
    ("LlamaForCausalLM", "llama"),
    ("MistralForCausalLM", "llama"),
    ("Qwen2ForCausalLM", "qwen2"),
    ("Qwen3ForCausalLM", "qwen3"),
    ("BertModel", "bert"),
];

/// What the names and layout of tensors depend on.
#[derive(Debug, Clone)]
pub(super) struct Family {
    /// GGUF's name.
    pub(super) architecture: &'static str,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    /// The head is the embedding.
    pub(super) tied: bool,
}

impl Family {
    pub(super) fn is_encoder(&self) -> bool {
        self.architecture == "bert"
    }

    /// Whether GGUF keeps query and key in the interleaved order, other than Hugging Face.
    pub(super) fn interleaves(&self) -> bool {
        self.architecture == "llama"
    }
}

/// A configuration that has been read.
pub(super) struct Config {
    pub(super) family: Family,
    pub(super) keys: Vec<(String, Value)>,
    /// Divisors of the rotary frequencies, where they are not all one.
    pub(super) rope_factors: Option<Vec<f32>>,
    /// Rows of the embedding.
    pub(super) vocabulary: usize,
}

/// Fields of one JSON file.
pub(super) struct Fields {
    path: PathBuf,
    json: Json,
}

impl Fields {
    /// Reads a JSON object.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ModelError::Io { file: path.to_owned(), source })?;
        match serde_json::from_str(&text) {
            Ok(json @ Json::Object(_)) => Ok(Self { path: path.to_owned(), json }),
            Ok(_) => Err(ModelError::malformed(path, "file", "a JSON object", "another value")),
            Err(error) => Err(ModelError::malformed(path, "file", "JSON", error)),
        }
    }

    /// A field that is not null.
    pub(super) fn get(&self, name: &str) -> Option<&Json> {
        self.json.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        self.get(name).and_then(Json::as_bool).unwrap_or(false)
    }

    fn wrong(&self, name: &str, expected: &str) -> ModelError {
        let found = self.get(name).map_or("no such field".to_owned(), ToString::to_string);
        ModelError::malformed(&self.path, name, expected, found)
    }

    fn unsupported(&self, what: String) -> ModelError {
        ModelError::Unsupported { file: self.path.clone(), what }
    }

    fn count(&self, name: &str) -> Result<u32> {
        let count = self.get(name).and_then(Json::as_u64).filter(|count| *count > 0);
        count
            .and_then(|count| u32::try_from(count).ok())
            .ok_or_else(|| self.wrong(name, "a positive whole number"))
    }

    fn count_or(&self, name: &str, default: u32) -> Result<u32> {
        if self.get(name).is_some() { self.count(name) } else { Ok(default) }
    }

    fn number_or(&self, name: &str, default: f32) -> Result<f32> {
        match self.get(name) {
            None => Ok(default),
            Some(value) => value
                .as_f64()
                .map(|number| number as f32)
                .filter(|number| number.is_finite())
                .ok_or_else(|| self.wrong(name, "a number")),
        }
    }

    /// Refuses a field that has any other value than these.
    fn only(&self, name: &str, allowed: &[&str]) -> Result<()> {
        match self.get(name) {
            Some(value) if !value.as_str().is_some_and(|text| allowed.contains(&text)) => {
                Err(self.unsupported(format!("{name} {value}; {} is known", allowed.join(" or "))))
            }
            _ => Ok(()),
        }
    }
}

impl Config {
    /// Reads `config.json` of this folder.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let fields = Fields::read(&folder.join("config.json"))?;
        let class = fields
            .get("architectures")
            .and_then(|classes| classes.get(0)?.as_str())
            .ok_or_else(|| fields.wrong("architectures", "a list with one name"))?;
        let Some((_, architecture)) = KNOWN.iter().find(|(known, _)| *known == class) else {
            let known: Vec<&str> = KNOWN.iter().map(|(known, _)| *known).collect();
            let what = format!("architecture {class}; {} are read", known.join(", "));
            return Err(fields.unsupported(what));
        };
        if *architecture == "bert" {
            encoder(&fields, folder)
        } else {
            decoder(&fields, architecture)
        }
    }
}

fn decoder(fields: &Fields, architecture: &'static str) -> Result<Config> {
    fields.only("hidden_act", &["silu"])?;
    if fields.flag("use_sliding_window") {
        return Err(fields.unsupported("use_sliding_window true".to_owned()));
    }
    if architecture == "llama" && fields.get("sliding_window").is_some() {
        return Err(fields.unsupported("a sliding_window in every layer".to_owned()));
    }
    let heads = fields.count("num_attention_heads")?;
    let width = fields.count("hidden_size")?;
    let head_dim = fields.count_or("head_dim", width / heads)?;
    let kv_heads = fields.count_or("num_key_value_heads", heads)?;
    let vocabulary = fields.count("vocab_size")?;
    let (base, scaling) = rope(fields)?;
    let mut keys = Vec::new();
    let mut set = |name: &str, value| keys.push((format!("{architecture}.{name}"), value));
    set("block_count", Value::U32(fields.count("num_hidden_layers")?));
    set("context_length", Value::U32(fields.count("max_position_embeddings")?));
    set("embedding_length", Value::U32(width));
    set("feed_forward_length", Value::U32(fields.count("intermediate_size")?));
    set("attention.head_count", Value::U32(heads));
    set("attention.head_count_kv", Value::U32(kv_heads));
    set("attention.key_length", Value::U32(head_dim));
    set("attention.value_length", Value::U32(head_dim));
    set("attention.layer_norm_rms_epsilon", Value::F32(fields.number_or("rms_norm_eps", 1e-6)?));
    set("rope.freq_base", Value::F32(base));
    set("rope.dimension_count", Value::U32(head_dim));
    set("vocab_size", Value::U32(vocabulary));
    let mut rope_factors = None;
    match scaling {
        Scaling::None => {}
        Scaling::Linear(factor) => {
            set("rope.scaling.type", Value::Text("linear".to_owned()));
            set("rope.scaling.factor", Value::F32(factor));
        }
        Scaling::Yarn { factor, original } => {
            set("rope.scaling.type", Value::Text("yarn".to_owned()));
            set("rope.scaling.factor", Value::F32(factor));
            set("rope.scaling.original_context_length", Value::U32(original));
        }
        Scaling::Llama3(of) => rope_factors = Some(of.factors(base, head_dim)),
    }
    Ok(Config {
        family: Family {
            architecture,
            heads: heads as usize,
            kv_heads: kv_heads as usize,
            tied: fields.flag("tie_word_embeddings"),
        },
        keys,
        rope_factors,
        vocabulary: vocabulary as usize,
    })
}

fn encoder(fields: &Fields, folder: &Path) -> Result<Config> {
    fields.only("hidden_act", &["gelu"])?;
    fields.only("position_embedding_type", &["absolute"])?;
    let heads = fields.count("num_attention_heads")?;
    let vocabulary = fields.count("vocab_size")?;
    let mut keys = Vec::new();
    let mut set = |name: &str, value| keys.push((format!("bert.{name}"), value));
    set("block_count", Value::U32(fields.count("num_hidden_layers")?));
    set("context_length", Value::U32(fields.count("max_position_embeddings")?));
    set("embedding_length", Value::U32(fields.count("hidden_size")?));
    set("feed_forward_length", Value::U32(fields.count("intermediate_size")?));
    set("attention.head_count", Value::U32(heads));
    set("attention.layer_norm_epsilon", Value::F32(fields.number_or("layer_norm_eps", 1e-12)?));
    set("attention.causal", Value::Bool(false));
    set("pooling_type", Value::U32(pooling(folder)?));
    keys.push((
        "tokenizer.ggml.token_type_count".to_owned(),
        Value::U32(fields.count("type_vocab_size")?),
    ));
    let heads = heads as usize;
    Ok(Config {
        family: Family { architecture: "bert", heads, kv_heads: heads, tied: true },
        keys,
        rope_factors: None,
        vocabulary: vocabulary as usize,
    })
}

/// GGUF's number for how the sentence vector is made; without a description, the mean.
fn pooling(folder: &Path) -> Result<u32> {
    let path = folder.join("1_Pooling/config.json");
    if !path.is_file() {
        return Ok(1);
    }
    let fields = Fields::read(&path)?;
    let on = |name: &str| fields.flag(name);
    match (on("pooling_mode_mean_tokens"), on("pooling_mode_cls_token")) {
        (true, false) => Ok(1),
        (false, true) => Ok(2),
        _ => Err(fields.unsupported("a pooling that is neither mean nor cls".to_owned())),
    }
}

enum Scaling {
    None,
    Linear(f32),
    Yarn { factor: f32, original: u32 },
    Llama3(Llama3),
}

/// Llama 3.1's stretched frequencies.
struct Llama3 {
    factor: f32,
    low: f32,
    high: f32,
    original: f32,
}

impl Llama3 {
    /// What each frequency is divided by: nothing for short waves, `factor` for those longer than
    /// the original context allows, and between them a mixture (Llama 3.1's model card).
    fn factors(&self, base: f32, head_dim: u32) -> Vec<f32> {
        (0..head_dim / 2)
            .map(|pair| {
                let exponent = 2.0 * f64::from(pair) / f64::from(head_dim);
                let wave = std::f64::consts::TAU * f64::from(base).powf(exponent);
                let turns = f64::from(self.original) / wave;
                let (low, high) = (f64::from(self.low), f64::from(self.high));
                let smooth = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                let divided = (1.0 - smooth) / f64::from(self.factor) + smooth;
                (1.0 / divided) as f32
            })
            .collect()
    }
}

fn rope(fields: &Fields) -> Result<(f32, Scaling)> {
    // Newer files put base and scaling into one object.
    let newer = fields.get("rope_parameters");
    let scaling = newer.or_else(|| fields.get("rope_scaling"));
    let inner = |name: &str| scaling.and_then(|scaling| scaling.get(name));
    let number = |name: &str| -> Result<f32> {
        inner(name)
            .and_then(Json::as_f64)
            .map(|number| number as f32)
            .filter(|number| number.is_finite() && *number > 0.0)
            .ok_or_else(|| fields.wrong("rope_scaling", &format!("{name}, a positive number")))
    };
    let base = match newer.and_then(|newer| newer.get("rope_theta")) {
        Some(_) => number("rope_theta")?,
        None => fields.number_or("rope_theta", 10_000.0)?,
    };
    let kind = inner("rope_type").or_else(|| inner("type")).and_then(Json::as_str);
    let scaling = match kind {
        None | Some("default") => Scaling::None,
        Some("linear") => Scaling::Linear(number("factor")?),
        Some("yarn") => Scaling::Yarn {
            factor: number("factor")?,
            original: number("original_max_position_embeddings")? as u32,
        },
        Some("llama3") => Scaling::Llama3(Llama3 {
            factor: number("factor")?,
            low: number("low_freq_factor")?,
            high: number("high_freq_factor")?,
            original: number("original_max_position_embeddings")?,
        }),
        Some(other) => {
            return Err(fields.unsupported(format!("rope scaling {other}")));
        }
    };
    Ok((base, scaling))
}
