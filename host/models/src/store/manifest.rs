//! What the store writes down about a model, and what it reads from the model file to do so.

use std::{
    collections::HashMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use gristmill_core::program::{Metadata, Value};
use serde::{Deserialize, Serialize};

use super::{
    digest::Digest,
    error::{Result, StoreError},
};

/// The only layout of a manifest there has been.
const SCHEMA: u32 = 1;
/// No manifest comes near; a bigger file is not one.
pub(crate) const MAX_BYTES: u64 = 1 << 20;

/// One name's record, `manifests/NAMESPACE/MODEL/TAG.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    schema: u32,
    /// The name as it was given, with its case.
    pub(crate) name: String,
    /// Of the model: its one file's digest, or that of the list of its files' digests.
    pub(crate) digest: Digest,
    pub(crate) files: Vec<FileRecord>,
    /// Where it came from.
    pub(crate) source: String,
    /// The hub's commit, a package's version.
    pub(crate) revision: Option<String>,
    pub(crate) license: Option<String>,
    /// Milliseconds since 1970: when this name first got a model.
    pub(crate) created: u64,
    /// Milliseconds since 1970: when its model last changed.
    pub(crate) modified: u64,
    pub(crate) facts: Facts,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileRecord {
    pub(crate) digest: Digest,
    pub(crate) size: u64,
}

/// What is told of a model without opening its weights.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// `general.architecture`.
    pub architecture: String,
    /// The number of weights.
    pub parameters: u64,
    /// The label of the file's quantization: `Q4_K_M`, `F16`; `unknown` for what has no label.
    pub quantization: String,
    /// The context it was trained for, in tokens.
    pub context_length: Option<u64>,
    /// The width of its embeddings.
    pub embedding_length: Option<u64>,
    /// What it can do, in the words of `/api/show`: `completion`, `embedding`, `tools`, `thinking`,
    /// `insert`, as far as the file tells.
    pub capabilities: Vec<String>,
}

impl Manifest {
    pub(crate) fn new(name: String, files: Vec<FileRecord>, source: String, facts: Facts) -> Self {
        let digests: Vec<Digest> = files.iter().map(|file| file.digest).collect();
        let now = now();
        Self {
            schema: SCHEMA,
            name,
            digest: Digest::of_parts(&digests),
            files,
            source,
            revision: None,
            license: None,
            created: now,
            modified: now,
            facts,
        }
    }

    pub(crate) fn parse(path: &str, bytes: &[u8]) -> Result<Self> {
        let damaged = |reason: String| StoreError::Manifest { path: path.to_owned(), reason };
        // The number first: another layout would only fail with a misleading sentence.
        #[derive(Deserialize)]
        struct Head {
            schema: u32,
        }
        let head: Head = serde_json::from_slice(bytes).map_err(|e| damaged(e.to_string()))?;
        if head.schema != SCHEMA {
            return Err(damaged(format!(
                "it has schema {}, this version reads {SCHEMA}",
                head.schema
            )));
        }
        let out: Self = serde_json::from_slice(bytes).map_err(|e| damaged(e.to_string()))?;
        let digests: Vec<Digest> = out.files.iter().map(|file| file.digest).collect();
        if digests.is_empty() || out.digest != Digest::of_parts(&digests) {
            return Err(damaged("its digest is not that of its files".to_owned()));
        }
        Ok(out)
    }

    pub(crate) fn bytes(&self) -> Result<Vec<u8>> {
        let mut out = serde_json::to_vec_pretty(self).map_err(|error| StoreError::Manifest {
            path: self.name.clone(),
            reason: error.to_string(),
        })?;
        out.push(b'\n');
        Ok(out)
    }

    /// Bytes of all its files.
    pub(crate) fn size(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.size))
    }
}

pub(crate) fn now() -> u64 {
    UNIX_EPOCH.elapsed().map_or(0, |elapsed| elapsed.as_millis().try_into().unwrap_or(u64::MAX))
}

pub(crate) fn time(millis: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_millis(millis)).unwrap_or(UNIX_EPOCH)
}

impl Facts {
    /// Reads them from a model file's metadata.
    pub(crate) fn of(metadata: &Metadata) -> Self {
        let own = |key: &str| metadata.get(&format!("{}.{key}", metadata.architecture));
        let elements = |shape: &[u64]| shape.iter().fold(1_u64, |n, d| n.saturating_mul(*d));
        let parameters = metadata
            .tensors
            .iter()
            .fold(0_u64, |sum, tensor| sum.saturating_add(elements(&tensor.shape)));
        let label = metadata.get("general.file_type").and_then(count).and_then(file_type);
        let quantization = label.map_or_else(
            || {
                let mut by_type: HashMap<&str, u64> = HashMap::new();
                for tensor in &metadata.tensors {
                    let sum = by_type.entry(&tensor.element).or_default();
                    *sum = sum.saturating_add(elements(&tensor.shape));
                }
                by_type
                    .into_iter()
                    .max_by_key(|(name, sum)| (*sum, *name))
                    .map_or("unknown", |(name, _)| name)
                    .to_owned()
            },
            str::to_owned,
        );
        Self {
            architecture: metadata.architecture.clone(),
            parameters,
            quantization,
            context_length: own("context_length").and_then(count),
            embedding_length: own("embedding_length").and_then(count),
            capabilities: capabilities(metadata, own("pooling_type").is_some()),
        }
    }

    /// The licence a model file states.
    pub(crate) fn license(metadata: &Metadata) -> Option<String> {
        match metadata.get("general.license") {
            Some(Value::Text(text)) if !text.is_empty() => Some(text.chars().take(200).collect()),
            _ => None,
        }
    }

    /// The number of weights as people say it: `134.5M`, `7.2B`.
    #[must_use]
    pub fn parameter_size(&self) -> String {
        let n = self.parameters as f64;
        match self.parameters {
            0..1_000 => self.parameters.to_string(),
            1_000..1_000_000 => format!("{:.2}K", n / 1e3),
            1_000_000..1_000_000_000 => format!("{:.2}M", n / 1e6),
            _ => format!("{:.1}B", n / 1e9),
        }
    }
}

/// Only what the file itself shows; what the family and the backend add is theirs to say.
fn capabilities(metadata: &Metadata, pooled: bool) -> Vec<String> {
    let mut out = Vec::new();
    let mut can = |word: &str, yes: bool| {
        if yes {
            out.push(word.to_owned());
        }
    };
    let encoder = metadata.architecture.contains("bert") || pooled;
    can("embedding", encoder);
    can("completion", !encoder);
    let template = match metadata.get("tokenizer.chat_template") {
        Some(Value::Text(text)) if !encoder => text.as_str(),
        _ => "",
    };
    can("tools", template.contains("tools"));
    can(
        "thinking",
        ["<think>", "enable_thinking", "reasoning_content"].iter().any(|w| template.contains(w)),
    );
    let has = |key: &str| metadata.get(key).is_some();
    can(
        "insert",
        has("tokenizer.ggml.fim_suf_token_id")
            || has("tokenizer.ggml.suffix_token_id")
            || template.contains("fim_suffix"),
    );
    out
}

fn count(value: &Value) -> Option<u64> {
    match value {
        Value::Int(n) => u64::try_from(*n).ok(),
        _ => None,
    }
}

/// The labels of `general.file_type` (enumeration `llama_ftype` of llama.cpp, MIT).
fn file_type(id: u64) -> Option<&'static str> {
    const LABELS: [(u64, &str); 35] = [
        (0, "F32"),
        (1, "F16"),
        (2, "Q4_0"),
        (3, "Q4_1"),
        (7, "Q8_0"),
        (8, "Q5_0"),
        (9, "Q5_1"),
        (10, "Q2_K"),
        (11, "Q3_K_S"),
        (12, "Q3_K_M"),
        (13, "Q3_K_L"),
        (14, "Q4_K_S"),
        (15, "Q4_K_M"),
        (16, "Q5_K_S"),
        (17, "Q5_K_M"),
        (18, "Q6_K"),
        (19, "IQ2_XXS"),
        (20, "IQ2_XS"),
        (21, "Q2_K_S"),
        (22, "IQ3_XS"),
        (23, "IQ3_XXS"),
        (24, "IQ1_S"),
        (25, "IQ4_NL"),
        (26, "IQ3_S"),
        (27, "IQ3_M"),
        (28, "IQ2_S"),
        (29, "IQ2_M"),
        (30, "IQ4_XS"),
        (31, "IQ1_M"),
        (32, "BF16"),
        (36, "TQ1_0"),
        (37, "TQ2_0"),
        (38, "MXFP4"),
        (39, "NVFP4"),
        (40, "Q1_0"),
    ];
    LABELS.iter().find(|(known, _)| *known == id).map(|(_, label)| *label)
}

#[cfg(test)]
mod tests {
    use gristmill_core::program::TensorInfo;

    use super::*;

    fn metadata(keys: &[(&str, Value)], tensors: &[(&str, &[u64])]) -> Metadata {
        Metadata {
            architecture: "llama".to_owned(),
            keys: keys.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect(),
            tensors: tensors
                .iter()
                .map(|(element, shape)| TensorInfo {
                    name: "t".to_owned(),
                    shape: shape.to_vec(),
                    element: (*element).to_owned(),
                })
                .collect(),
        }
    }

    #[test]
    fn facts_come_from_the_file() {
        let facts = Facts::of(&metadata(
            &[
                ("general.file_type", Value::Int(15)),
                ("llama.context_length", Value::Int(2048)),
                ("llama.embedding_length", Value::Int(576)),
                ("tokenizer.chat_template", Value::Text("{% if tools %}<think>".to_owned())),
            ],
            &[("Q4_K", &[256, 1000]), ("F32", &[256])],
        ));
        assert_eq!(facts.parameters, 256_256);
        assert_eq!(facts.parameter_size(), "256.26K");
        assert_eq!(facts.quantization, "Q4_K_M");
        assert_eq!((facts.context_length, facts.embedding_length), (Some(2048), Some(576)));
        assert_eq!(facts.capabilities, ["completion", "tools", "thinking"]);
    }

    #[test]
    fn without_a_label_the_most_common_type_is_told() {
        let facts = Facts::of(&metadata(
            &[("general.file_type", Value::Int(9999)), ("llama.pooling_type", Value::Int(1))],
            &[("F32", &[2000]), ("Q8_0", &[64, 64])],
        ));
        assert_eq!(facts.quantization, "Q8_0");
        assert_eq!(facts.capabilities, ["embedding"]);
        assert_eq!(Facts::of(&metadata(&[], &[])).quantization, "unknown");
    }
}
