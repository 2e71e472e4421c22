//! Everything but answers: models, embeddings, ranks, tokens, health.

use gristmill_plugin::{prelude::*, sqrt};
use serde::Deserialize;

use super::{Dimensions, Profile, Tokens, refused};
use crate::{
    Fields, Server,
    http::{ask, exchange, get, post},
};

/// One entry of `/v1/models`, with what some servers add.
#[derive(Debug, Deserialize)]
pub struct Listed {
    /// Its id.
    pub id: String,
    /// vLLM: the longest context it serves.
    pub max_model_len: Option<u32>,
    /// llama-server: what the file says.
    pub meta: Option<Meta>,
}

/// llama-server's knowledge of a model.
#[derive(Debug, Deserialize)]
pub struct Meta {
    /// The longest context it was trained for.
    pub n_ctx_train: Option<u32>,
    /// Weights.
    pub n_params: Option<u64>,
    /// Bytes.
    pub size: Option<u64>,
}

impl Listed {
    /// What the entry says.
    #[must_use]
    pub fn info(&self) -> ModelInfo {
        let mut info = ModelInfo::new(&*self.id);
        if let Some(longest) = self.max_model_len {
            info.context_native = Some(longest);
            info.claims.push(Claim::valued("context.effective_max", longest.to_string()));
        }
        if let Some(meta) = &self.meta {
            info.context_native = meta.n_ctx_train;
            info.parameters = meta.n_params;
            info.size_bytes = meta.size;
        }
        info
    }
}

#[derive(Deserialize)]
struct Data<T> {
    data: Vec<T>,
}

/// The models of `/v1/models`.
///
/// # Errors
/// The import's and the server's.
pub fn list(server: &dyn Server, profile: &Profile) -> Result<Vec<Listed>> {
    Ok(ask::<Data<Listed>>(server, &profile.manners, &get("/v1/models"))?.data)
}

/// Ready if [`Profile::health`] answers with success. A server that says it is busy, or loading, is
/// not ready; one that cannot be reached is an error.
///
/// # Errors
/// The import's.
pub fn health(server: &dyn Server, profile: &Profile) -> Result<Readiness> {
    match exchange(server, &profile.manners, &get(profile.health)) {
        Ok(_) => Ok(Readiness::ready(format!("{} answers", profile.kind))),
        Err(error) if error.code == "upstream-unavailable" => Err(error),
        Err(error) => Ok(Readiness::not_ready(error.message)),
    }
}

/// The text field `version` of a route, for [`Readiness`].
pub fn version(server: &dyn Server, profile: &Profile, path: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Version {
        version: Option<String>,
        build_info: Option<String>,
    }
    let found: Version = ask(server, &profile.manners, &get(path)).ok()?;
    found.version.or(found.build_info)
}

/// One vector per text, in the order of the texts.
///
/// # Errors
/// `unsupported`, `context-overflow`, the import's and the server's.
pub fn embed(profile: &Profile, server: &dyn Server, request: &EmbedRequest) -> Result<Embeddings> {
    #[derive(Deserialize)]
    struct Item {
        index: Option<usize>,
        embedding: Vec<f32>,
    }
    #[derive(Deserialize)]
    struct Answer {
        data: Vec<Item>,
        usage: Option<Counts>,
    }
    #[derive(Deserialize)]
    struct Counts {
        prompt_tokens: Option<u32>,
    }
    let Some(ways) = profile.embedding else {
        return Err(refused(profile, "input", "the server makes no embeddings"));
    };
    let mut body = Fields::new();
    body.set("model", &request.model);
    body.set("input", &request.inputs);
    if ways.dimensions == Dimensions::Server {
        body.maybe("dimensions", request.dimensions);
    }
    if let (true, Some((field, value))) = (request.truncate, ways.truncate) {
        body.set(field, value);
    }
    let answer: Answer = ask(server, &profile.manners, &post("/v1/embeddings", body))?;
    let prompt_tokens = answer.usage.and_then(|usage| usage.prompt_tokens).unwrap_or_default();
    let mut rows: Vec<Option<Vec<f32>>> = request.inputs.iter().map(|_| None).collect();
    for (place, item) in answer.data.into_iter().enumerate() {
        match rows.get_mut(item.index.unwrap_or(place)) {
            Some(row @ None) => *row = Some(item.embedding),
            _ => return Err(bad(profile, "an embedding has a number that no text has, or twice")),
        }
    }
    let mut vectors = Vec::with_capacity(rows.len());
    for row in rows {
        let mut row = row.ok_or_else(|| bad(profile, "a text came back without its vector"))?;
        if let (Dimensions::Here, Some(wanted)) = (ways.dimensions, request.dimensions) {
            shorten(&mut row, wanted as usize);
        }
        vectors.push(row);
    }
    matrix(profile, vectors, prompt_tokens)
}

fn matrix(profile: &Profile, vectors: Vec<Vec<f32>>, prompt_tokens: u32) -> Result<Embeddings> {
    let dim = vectors.first().map_or(0, Vec::len);
    if vectors.iter().any(|vector| vector.len() != dim) {
        return Err(bad(profile, "vectors of different lengths"));
    }
    let narrow = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Ok(Embeddings {
        dim: narrow(dim),
        rows: narrow(vectors.len()),
        data: vectors.into_iter().flatten().collect(),
        prompt_tokens,
    })
}

/// The leading dimensions, of length 1 again.
fn shorten(row: &mut Vec<f32>, wanted: usize) {
    if wanted == 0 || wanted >= row.len() {
        return;
    }
    row.truncate(wanted);
    let length = sqrt(row.iter().map(|number| f64::from(*number) * f64::from(*number)).sum());
    if length > 0.0 {
        for number in row {
            *number = (f64::from(*number) / length) as f32;
        }
    }
}

/// Documents by relevance, best first.
///
/// # Errors
/// `unsupported`, the import's and the server's.
pub fn rerank(
    profile: &Profile,
    server: &dyn Server,
    request: &RerankRequest,
) -> Result<Vec<Ranked>> {
    #[derive(Deserialize)]
    struct Result_ {
        index: u32,
        relevance_score: f32,
    }
    #[derive(Deserialize)]
    struct Answer {
        results: Vec<Result_>,
    }
    let Some(ways) = profile.ranking else {
        return Err(refused(profile, "documents", "the server ranks nothing"));
    };
    let mut body = Fields::new();
    body.set("model", &request.model);
    body.set("query", &request.query);
    body.set("documents", &request.documents);
    body.maybe("top_n", request.top_n);
    let answer: Answer = ask(server, &profile.manners, &post(ways.path, body))?;
    let mut ranked = Vec::with_capacity(answer.results.len());
    for result in answer.results {
        if result.index as usize >= request.documents.len() {
            return Err(bad(profile, "a rank names a document that was not sent"));
        }
        let score =
            if ways.logits { logistic(result.relevance_score) } else { result.relevance_score };
        ranked.push(Ranked { index: result.index, score });
    }
    ranked.sort_by(|a, b| b.score.total_cmp(&a.score));
    ranked.truncate(request.top_n.map_or(usize::MAX, |most| most as usize));
    Ok(ranked)
}

/// A logit as a probability.
fn logistic(logit: f32) -> f32 {
    1.0 / (1.0 + libm::expf(-logit))
}

/// Token ids of a text, without the marks that begin and end one.
///
/// # Errors
/// `unsupported`, the import's and the server's.
pub fn tokenize(
    profile: &Profile,
    server: &dyn Server,
    model: &str,
    text: &str,
    special: bool,
) -> Result<Vec<u32>> {
    #[derive(Deserialize)]
    struct Answer {
        tokens: Vec<u32>,
    }
    let mut body = Fields::new();
    body.set("model", model);
    match profile.tokens {
        Tokens::Unread => return Err(refused(profile, "tokenize", "the server does not tell")),
        Tokens::Prompt => {
            // Every spelling of a special token has one of these; a text without them has none.
            if !special && text.contains(['<', '[', '|', '{']) {
                let why = "spellings of special tokens always become those tokens";
                return Err(refused(profile, "special", why));
            }
            body.set("prompt", text);
            body.set("add_special_tokens", false);
        }
        Tokens::Content => {
            body.set("content", text);
            body.set("add_special", false);
            body.set("parse_special", special);
        }
    }
    Ok(ask::<Answer>(server, &profile.manners, &post("/tokenize", body))?.tokens)
}

/// The text that tokens stand for.
///
/// # Errors
/// `unsupported`, the import's and the server's.
pub fn detokenize(
    profile: &Profile,
    server: &dyn Server,
    model: &str,
    tokens: &[u32],
) -> Result<Vec<u8>> {
    #[derive(Deserialize)]
    struct Answer {
        #[serde(alias = "content")]
        prompt: String,
    }
    if profile.tokens == Tokens::Unread {
        return Err(refused(profile, "detokenize", "the server does not tell"));
    }
    let mut body = Fields::new();
    body.set("model", model);
    body.set("tokens", tokens);
    let answer: Answer = ask(server, &profile.manners, &post("/detokenize", body))?;
    Ok(answer.prompt.into_bytes())
}

fn bad(profile: &Profile, what: &str) -> Error {
    let kind = profile.kind;
    profile.manners.named(Error::upstream(format!("{kind} answered with {what}")))
}
