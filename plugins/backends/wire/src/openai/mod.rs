//! The OpenAI wire format, and each server's ways as data: a bridge is a [`Profile`] and what is the
//! server's own beyond it.

mod chunk;
mod decode;
mod encode;
mod messages;
mod routes;
mod sampling;

use core::marker::PhantomData;

use gristmill_plugin::{prelude::*, upstream::Framing};

pub use encode::function;
pub use routes::{Listed, detokenize, embed, health, list, rerank, tokenize, version};

use crate::{Primary, Server, answer::Rules, failure::Manners, http::post, stream::Stream};

/// Whether the caller may say which tool is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// `auto`, `none`, `required`, and a tool by name.
    Full,
    /// The words only. One tool by name is that tool alone, required.
    Words,
    /// Nothing. `none` is a request without tools; more is refused.
    Unread,
}

/// How thinking is switched.
#[derive(Debug, Clone, Copy)]
pub struct Thinking {
    /// On and off: `chat_template_kwargs.enable_thinking`.
    pub kwarg: bool,
    /// The word of `reasoning_effort` that means off; it also says that efforts are understood.
    pub effort_off: Option<&'static str>,
    /// The field for a number of tokens.
    pub budget: Option<&'static str>,
    /// The field in which a message's earlier reasoning is sent back.
    pub back: &'static str,
}

/// Where a regular expression and a grammar go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Constraints {
    /// `response_format` alone.
    Format,
    /// `response_format`, and `structured_outputs` with `regex` and `grammar`.
    Structured,
    /// `response_format`, and `grammar`, which does not go with tools; a schema for a raw prompt is
    /// `json_schema`.
    Grammar,
    /// None at all.
    Unread,
}

/// How a gap is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Infill {
    /// It is not.
    Unread,
    /// `suffix` of `/v1/completions`.
    Suffix,
    /// `/infill`.
    Native,
}

/// How embeddings are cut to a number of dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dimensions {
    /// The server does it, or refuses.
    Server,
    /// Here: the leading ones, normalised again.
    Here,
}

/// Embeddings.
#[derive(Debug, Clone, Copy)]
pub struct Embedding {
    /// Who cuts dimensions.
    pub dimensions: Dimensions,
    /// The field and value that cut a text to the model's limit.
    pub truncate: Option<(&'static str, i32)>,
}

/// Ranks.
#[derive(Debug, Clone, Copy)]
pub struct Ranking {
    /// Where.
    pub path: &'static str,
    /// Whether scores are logits; 0..1 otherwise.
    pub logits: bool,
}

/// Tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tokens {
    /// Not offered.
    Unread,
    /// `{prompt}` gives `{tokens}`; spellings of special tokens always become those tokens.
    Prompt,
    /// `{content, parse_special}` gives `{tokens}`.
    Content,
}

/// A field of a request for one sampling parameter.
#[derive(Debug, Clone, Copy)]
pub struct Sampler {
    /// The parameter, as the contract names it.
    pub name: &'static str,
    /// The field.
    pub field: &'static str,
}

/// An extra of a request that the server has a field for.
#[derive(Debug, Clone, Copy)]
pub struct Extra {
    /// Its name.
    pub name: &'static str,
    /// The field; its value is the extra's text, as JSON where it is JSON.
    pub field: &'static str,
}

/// A server's ways.
#[derive(Debug, Clone, Copy)]
pub struct Profile {
    /// The bridge's id and kind.
    pub kind: &'static str,
    /// How it fails.
    pub manners: Manners,
    /// What it claims, whatever the model.
    pub claims: &'static [&'static str],
    /// What it does not offer, and why.
    pub lacks: &'static [(&'static str, &'static str)],
    /// Thinking.
    pub thinking: Thinking,
    /// Sampling beyond temperature, top-p and the two penalties that everybody knows.
    pub sampling: &'static [Sampler],
    /// The largest seed; a larger one would become another.
    pub most_seed: u64,
    /// Whether single tokens can be favoured.
    pub logit_bias: bool,
    /// Tool choice.
    pub choice: Choice,
    /// Whether `parallel_tool_calls` is read; otherwise the first call is kept.
    pub parallel_switch: bool,
    /// Constraints.
    pub constraints: Constraints,
    /// The most stop strings; further ones are looked for here.
    pub stops: Option<usize>,
    /// Whether pictures and sounds are taken.
    pub media: bool,
    /// Log probabilities.
    pub logprobs: bool,
    /// Whether log probabilities with tools need an answer in one piece.
    pub logprobs_unstreamed_with_tools: bool,
    /// Whether a raw prompt may be token ids.
    pub token_prompt: bool,
    /// Whether its answers repeat the model's listed id, so that another one is a substitution.
    pub tells_model: bool,
    /// Filling a gap.
    pub infill: Infill,
    /// Whether the stream ends with `[DONE]`; without it, a finish reason is the end.
    pub done: bool,
    /// Embeddings.
    pub embedding: Option<Embedding>,
    /// Ranks.
    pub ranking: Option<Ranking>,
    /// Tokens.
    pub tokens: Tokens,
    /// Where its health is told.
    pub health: &'static str,
    /// Extras it has fields for.
    pub extras: &'static [Extra],
}

/// What differs between the bridges.
pub trait Speaks {
    /// The server's ways.
    const PROFILE: Profile;
    /// The bridge's own version.
    const VERSION: &'static str;

    /// The models it serves.
    ///
    /// # Errors
    /// When they cannot be listed now.
    fn models(server: &dyn Server) -> Result<Vec<ModelInfo>> {
        Ok(list(server, &Self::PROFILE)?.into_iter().map(|listed| listed.info()).collect())
    }

    /// Whether it can serve now.
    ///
    /// # Errors
    /// When that cannot be found out.
    fn health(server: &dyn Server) -> Result<Readiness> {
        health(server, &Self::PROFILE)
    }
}

/// Starts an answer.
///
/// # Errors
/// A field the server cannot express, by name; then as [`Stream::start`].
pub fn generate(
    profile: &Profile,
    server: &dyn Server,
    request: &Request,
) -> Result<impl Generation + use<>> {
    let encoded = encode::encode(profile, request)?;
    let mut rules = Rules::of(request, profile.manners);
    rules.one_call = request.parallel_tool_calls == Some(false) && !profile.parallel_switch;
    rules.stops = encoded.local_stops;
    let decoder = decode::Chunks::new(profile, request);
    Stream::start(server, &post(encoded.path, encoded.body), Framing::Sse, rules, decoder)
}

/// The bridge of a server that speaks this format.
#[derive(Debug)]
pub struct Bridge<S>(PhantomData<S>);

impl<S: Speaks> Backend for Bridge<S> {
    fn describe() -> Descriptor {
        let kind = S::PROFILE.kind;
        let mut descriptor = Descriptor::new(kind, kind, S::VERSION, "external");
        descriptor.claims = claims(&S::PROFILE);
        descriptor
    }

    fn models() -> Result<Vec<ModelInfo>> {
        S::models(&Primary)
    }

    fn generate(request: Request) -> Result<impl Generation> {
        generate(&S::PROFILE, &Primary, &request)
    }

    fn embed(request: EmbedRequest) -> Result<Embeddings> {
        embed(&S::PROFILE, &Primary, &request)
    }

    fn rerank(request: RerankRequest) -> Result<Vec<Ranked>> {
        rerank(&S::PROFILE, &Primary, &request)
    }

    fn tokenize(model: &str, text: &str, special: bool) -> Result<Vec<u32>> {
        tokenize(&S::PROFILE, &Primary, model, text, special)
    }

    fn detokenize(model: &str, tokens: &[u32]) -> Result<Vec<u8>> {
        detokenize(&S::PROFILE, &Primary, model, tokens)
    }

    fn health() -> Result<Readiness> {
        S::health(&Primary)
    }
}

/// What a profile claims and denies.
#[must_use]
pub fn claims(profile: &Profile) -> Vec<Claim> {
    let has = profile.claims.iter().map(|name| Claim::supported(*name));
    let lacks = profile
        .lacks
        .iter()
        .map(|(name, detail)| Claim::unsupported(*name, "not-in-upstream", *detail));
    has.chain(lacks).collect()
}

/// Refuses a field of a request.
pub(crate) fn refused(profile: &Profile, field: &str, why: &str) -> Error {
    let kind = profile.kind;
    profile
        .manners
        .named(Error::unsupported(format!("{kind} has no way to express {field}: {why}")))
        .with("field", field)
}
