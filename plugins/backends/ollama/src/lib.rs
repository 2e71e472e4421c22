//! The bridge to Ollama, over its own API: `/api/chat` for conversations, `/api/generate` for raw
//! prompts and gaps, `/api/tags` and `/api/show` for what there is, `/api/embed` for vectors.
//!
//! Its OpenAI surface is not used: that one ignores tool choice, options and context, and hides
//! failures in a stream. Answers are lines of JSON; calls come whole, with arguments as an object
//! whose bytes are taken as they stand, sometimes only in the last line.
#![cfg_attr(target_arch = "wasm32", no_std)]

mod catalogue;
mod encode;
mod lines;

use gristmill_bridge::{
    Primary, Server,
    answer::Rules,
    failure::Manners,
    http::{ask, get, post},
    stream::Stream,
};
use gristmill_plugin::{prelude::*, upstream::Framing};
use serde::Deserialize;

pub use catalogue::models;

/// Its id and kind.
const KIND: &str = "ollama";
/// How it fails.
const MANNERS: Manners = Manners { backend: KIND, missing_is_404: true };

/// The back-end.
#[derive(Debug)]
pub struct Ollama;

gristmill_plugin::export_backend!(Ollama);

impl Backend for Ollama {
    fn describe() -> Descriptor {
        let mut descriptor = Descriptor::new(KIND, KIND, env!("CARGO_PKG_VERSION"), "external");
        descriptor.claims = claims();
        descriptor
    }

    fn models() -> Result<Vec<ModelInfo>> {
        models(&Primary)
    }

    fn generate(request: Request) -> Result<impl Generation> {
        generate(&Primary, &request)
    }

    fn embed(request: EmbedRequest) -> Result<Embeddings> {
        embed(&Primary, &request)
    }

    fn health() -> Result<Readiness> {
        health(&Primary)
    }
}

/// Starts an answer.
///
/// # Errors
/// A field Ollama cannot express, by name; then the server's.
pub fn generate(server: &dyn Server, request: &Request) -> Result<impl Generation + use<>> {
    let (path, body) = encode::encode(request)?;
    let mut rules = Rules::of(request, MANNERS);
    rules.one_call = request.parallel_tool_calls == Some(false);
    Stream::start(server, &post(path, body), Framing::Lines, rules, lines::Lines::default())
}

/// One vector per text, in the order of the texts.
///
/// # Errors
/// `context-overflow` for a text that is too long, unless it may be cut; the server's.
pub fn embed(server: &dyn Server, request: &EmbedRequest) -> Result<Embeddings> {
    #[derive(Deserialize)]
    struct Answer {
        embeddings: Vec<Vec<f32>>,
        prompt_eval_count: Option<u32>,
    }
    let mut body = gristmill_bridge::Fields::new();
    body.set("model", &request.model);
    body.set("input", &request.inputs);
    // Unsaid, it would cut.
    body.set("truncate", request.truncate);
    body.maybe("dimensions", request.dimensions);
    let answer: Answer = ask(server, &MANNERS, &post("/api/embed", body))?;
    let dim = answer.embeddings.first().map_or(0, Vec::len);
    if answer.embeddings.len() != request.inputs.len()
        || answer.embeddings.iter().any(|vector| vector.len() != dim)
    {
        let (found, wanted) = (answer.embeddings.len(), request.inputs.len());
        let what = format!(
            "{KIND}: expected {wanted} vectors of one length, found {found}, the first of length {dim}"
        );
        return Err(MANNERS.named(Error::upstream(what)));
    }
    let narrow = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Ok(Embeddings {
        dim: narrow(dim),
        rows: narrow(answer.embeddings.len()),
        data: answer.embeddings.into_iter().flatten().collect(),
        prompt_tokens: answer.prompt_eval_count.unwrap_or_default(),
    })
}

/// Ready if it tells its version.
///
/// # Errors
/// The import's.
pub fn health(server: &dyn Server) -> Result<Readiness> {
    #[derive(Deserialize)]
    struct Version {
        version: String,
    }
    match ask::<Version>(server, &MANNERS, &get("/api/version")) {
        Ok(Version { version }) => {
            let mut readiness = Readiness::ready(format!("ollama {version} answers"));
            readiness.extras.push(("server-version".to_owned(), version));
            Ok(readiness)
        }
        Err(error) if error.code == "upstream-unavailable" => Err(error),
        Err(error) => Ok(Readiness::not_ready(error.message)),
    }
}

/// What holds whatever the model.
fn claims() -> Vec<Claim> {
    let mut claims: Vec<Claim> = [
        "inference.text",
        "structured_output",
        "logprobs",
        "streaming.content",
        "streaming.reasoning",
    ]
    .map(Claim::supported)
    .into();
    claims.extend(
        ["tools.calling", "reasoning.control", "embeddings", "multimodal.vision"]
            .map(|name| Claim::conditional(name, format!("model.{name}"))),
    );
    for (name, detail) in [
        ("streaming.tool_arguments", "calls come whole"),
        ("reranking", "ollama ranks nothing"),
        ("tokenize", "ollama has no route for it"),
        ("multimodal.audio", "ollama's messages have no field for sounds"),
    ] {
        claims.push(Claim::unsupported(name, "not-in-upstream", detail));
    }
    claims
}

/// Refuses a field of a request.
fn refused(field: &str, why: &str) -> Error {
    MANNERS
        .named(Error::unsupported(format!("{KIND} has no way to express {field}: {why}")))
        .with("field", field)
}
