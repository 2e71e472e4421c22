//! What there is: `/api/tags` for the list, `/api/show` for what the list leaves out.
//!
//! Bounds: at most [`MOST_SHOWN`] models are asked about one by one; nothing is claimed for further ones.

use gristmill_bridge::{
    Fields, Server,
    http::{ask, get, post},
};
use gristmill_plugin::prelude::*;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::MANNERS;

const MOST_SHOWN: usize = 64;

#[derive(Debug, Deserialize)]
struct Tags {
    models: Option<Vec<Tag>>,
}

#[derive(Debug, Deserialize)]
struct Tag {
    name: String,
    model: Option<String>,
    size: Option<u64>,
    digest: Option<String>,
    details: Option<Details>,
}

#[derive(Debug, Deserialize)]
struct Details {
    family: Option<String>,
    quantization_level: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Show {
    capabilities: Option<Vec<String>>,
    model_info: Option<Map<String, Value>>,
}

/// The models it serves.
///
/// # Errors
/// The import's and the server's.
pub fn models(server: &dyn Server) -> Result<Vec<ModelInfo>> {
    let tags: Tags = ask(server, &MANNERS, &get("/api/tags"))?;
    let mut models: Vec<ModelInfo> = tags.models.into_iter().flatten().map(listed).collect();
    for model in models.iter_mut().take(MOST_SHOWN) {
        let mut body = Fields::new();
        body.set("model", &model.id);
        // A model that was deleted meanwhile is still listed; asking for it will say so.
        if let Ok(show) = ask::<Show>(server, &MANNERS, &post("/api/show", body)) {
            describe(model, &show);
        }
    }
    Ok(models)
}

fn listed(tag: Tag) -> ModelInfo {
    let mut model = ModelInfo::new(&*tag.name);
    model.names.extend(tag.model.filter(|name| *name != tag.name));
    if let Some(short) = tag.name.strip_suffix(":latest") {
        model.names.push(short.to_owned());
    }
    model.size_bytes = tag.size;
    if let Some(details) = tag.details {
        model.family = details.family.filter(|word| !word.is_empty());
        model.quantization = details.quantization_level.filter(|word| !word.is_empty());
    }
    // Of its manifest, not of the weights.
    if let Some(digest) = tag.digest {
        model.extras.push(("manifest-digest".to_owned(), digest));
    }
    model
}

fn describe(model: &mut ModelInfo, show: &Show) {
    if let Some(info) = &show.model_info {
        let architecture = info.get("general.architecture").and_then(Value::as_str);
        let context = format!("{}.context_length", architecture.unwrap_or_default());
        let number = |key: &str| info.get(key).and_then(Value::as_u64);
        model.context_native = number(&context).and_then(|length| u32::try_from(length).ok());
        model.parameters = number("general.parameter_count");
    }
    let Some(capabilities) = &show.capabilities else { return };
    for (word, name) in [
        ("completion", "inference.text"),
        ("embedding", "embeddings"),
        ("tools", "tools.calling"),
        ("thinking", "reasoning.control"),
        ("vision", "multimodal.vision"),
    ] {
        model.claims.push(if capabilities.iter().any(|capability| capability == word) {
            Claim::supported(name)
        } else {
            Claim::unsupported(name, "not-in-model", format!("ollama does not list {word}"))
        });
    }
}
