//! What is stored and what is loaded, in Ollama's words. Pure.

use std::time::{Duration, SystemTime};

use gristmill_core::{
    capability::{ModelInfo, Support},
    program::Value as Datum,
};
use gristmill_router::{Card, Record, Resident, Step, keep::Expiry, name};
use serde_json::{Map, Value, json};

use super::encode::timestamp;

/// Capabilities and Ollama's names for them.
const WORDS: [(&str, &str); 7] = [
    ("inference.text", "completion"),
    ("tools.calling", "tools"),
    ("inference.infill", "insert"),
    ("multimodal.vision", "vision"),
    ("multimodal.audio", "audio"),
    ("embeddings", "embedding"),
    ("reasoning.control", "thinking"),
];

/// Further than any client looks: how "for ever" is written.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The listing's entries of one model: one for each of its names.
#[must_use]
pub fn tags(record: &Record) -> Vec<Value> {
    names(&record.info)
        .into_iter()
        .map(|model| {
            let model = name::with_tag(model);
            json!({
                "name": model,
                "model": model,
                "modified_at": timestamp(record.modified.unwrap_or(SystemTime::UNIX_EPOCH)),
                "size": record.info.size_bytes.unwrap_or(0),
                "digest": digest(&record.info),
                "details": details(record),
                "capabilities": capabilities(&record.info),
            })
        })
        .collect()
}

/// The names a model is listed under.
#[must_use]
pub fn names(info: &ModelInfo) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for name in std::iter::once(&info.id).chain(&info.names) {
        if !names.iter().any(|known| name::fold(known) == name::fold(name)) {
            names.push(name);
        }
    }
    names
}

/// Bare hexadecimal, as Ollama has it.
fn digest(info: &ModelInfo) -> &str {
    let digest = info.digest.as_deref().unwrap_or("");
    digest.strip_prefix("sha256:").unwrap_or(digest)
}

fn details(record: &Record) -> Value {
    let info = &record.info;
    let family = info.family.as_deref().unwrap_or("");
    let mut details = json!({
        "parent_model": "",
        "format": record.format.as_deref().unwrap_or(""),
        "family": family,
        "families": if family.is_empty() { json!(null) } else { json!([family]) },
        "parameter_size": info.parameters.map(size_word).unwrap_or_default(),
        "quantization_level": info.quantization.as_deref().unwrap_or(""),
    });
    if let Some(details) = details.as_object_mut() {
        if let Some(context) = info.context_native {
            details.insert("context_length".into(), json!(context));
        }
        if let Some(length) = record.embedding_length {
            details.insert("embedding_length".into(), json!(length));
        }
    }
    details
}

/// `134.52M`, `1.2B`.
fn size_word(count: u64) -> String {
    let count = count as f64;
    if count >= 1e9 {
        format!("{:.1}B", count / 1e9)
    } else if count >= 1e6 {
        format!("{:.2}M", count / 1e6)
    } else {
        format!("{:.2}K", count / 1e3)
    }
}

fn capabilities(info: &ModelInfo) -> Vec<&'static str> {
    let has = |capability: &str| {
        info.claims.iter().any(|claim| {
            claim.name == capability
                && matches!(claim.support, Support::Supported | Support::Conditional(_))
        })
    };
    WORDS.iter().filter(|(capability, _)| has(capability)).map(|(_, word)| *word).collect()
}

/// `POST /api/show`.
#[must_use]
pub fn show(card: &Card, verbose: bool) -> Value {
    let record = &card.record;
    let mut parameters = String::new();
    let mut modelfile = format!("FROM {}\n", record.info.id);
    for (name, value) in &card.parameters {
        parameters.push_str(&format!("{name:<30} {value}\n"));
        modelfile.push_str(&format!("PARAMETER {name} {value}\n"));
    }
    let texts =
        [("TEMPLATE", &card.template), ("SYSTEM", &card.system), ("LICENSE", &card.license)];
    for (word, text) in texts {
        if let Some(text) = text {
            modelfile.push_str(&format!("{word} \"\"\"{text}\"\"\"\n"));
        }
    }
    let mut shown = json!({
        "license": card.license.as_deref().unwrap_or(""),
        "modelfile": modelfile,
        "parameters": parameters.trim_end(),
        "template": card.template.as_deref().unwrap_or(""),
        "system": card.system.as_deref().unwrap_or(""),
        "details": details(record),
        "model_info": model_info(card, verbose),
        "capabilities": capabilities(&record.info),
        "modified_at": timestamp(record.modified.unwrap_or(SystemTime::UNIX_EPOCH)),
    });
    if let (true, Some(metadata), Some(shown)) = (verbose, &card.metadata, shown.as_object_mut()) {
        let tensors = metadata.tensors.iter().map(
            |tensor| json!({ "name": tensor.name, "type": tensor.element, "shape": tensor.shape }),
        );
        shown.insert("tensors".into(), tensors.collect());
    }
    shown
}

/// The file's metadata; arrays only when `verbose`, otherwise null in their place.
fn model_info(card: &Card, verbose: bool) -> Value {
    let mut info = Map::new();
    if let Some(metadata) = &card.metadata {
        for (key, value) in &metadata.keys {
            let value = match value {
                Datum::Int(value) => json!(value),
                Datum::Float(value) => json!(value),
                Datum::Flag(value) => json!(value),
                Datum::Text(value) => json!(value),
                Datum::Ints(values) if verbose => json!(values),
                Datum::Floats(values) if verbose => json!(values),
                Datum::Texts(values) if verbose => json!(values),
                Datum::Ints(_) | Datum::Floats(_) | Datum::Texts(_) | Datum::Long(_) => Value::Null,
            };
            info.insert(key.clone(), value);
        }
    }
    let known = &card.record.info;
    if let Some(family) = &known.family {
        info.entry("general.architecture").or_insert_with(|| json!(family));
    }
    if let Some(count) = known.parameters {
        info.entry("general.parameter_count").or_insert_with(|| json!(count));
    }
    Value::Object(info)
}

/// One entry of `GET /api/ps`.
#[must_use]
pub fn resident(resident: &Resident, now: SystemTime) -> Value {
    let fallback = Record {
        info: ModelInfo { id: resident.loaded.id.clone(), ..ModelInfo::default() },
        ..Record::default()
    };
    let record = resident.record.as_ref().unwrap_or(&fallback);
    let names = names(&record.info);
    let model = name::with_tag(names.first().copied().unwrap_or(&resident.loaded.id));
    let expires = match resident.expiry {
        Expiry::Never => now.checked_add(FOREVER).unwrap_or(now),
        Expiry::At(time) => time,
    };
    let bare = resident.loaded.digest.strip_prefix("sha256:").unwrap_or(&resident.loaded.digest);
    json!({
        "name": model,
        "model": model,
        "size": resident.loaded.memory,
        "digest": bare,
        "details": details(record),
        "expires_at": timestamp(expires),
        "size_vram": 0,
        "context_length": resident.loaded.context,
    })
}

/// A line of a pull.
#[must_use]
pub fn step(step: &Step) -> Value {
    let mut line = Map::new();
    line.insert("status".into(), json!(step.status));
    if let Some(digest) = &step.digest {
        line.insert("digest".into(), json!(digest));
    }
    if let Some(total) = step.total {
        line.insert("total".into(), json!(total));
    }
    if let Some(completed) = step.completed {
        line.insert("completed".into(), json!(completed));
    }
    Value::Object(line)
}
