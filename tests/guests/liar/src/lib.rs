//! A back-end whose models lie, each in the one way it is called after. `honest`, `perceptive` and
//! `modest` do not: the first does all it claims, the second also sees, hears and has experts, the last
//! claims nearly nothing and refuses the rest. The conformance suite has a check that fails for every
//! lie, and is not fooled by those that only hide what it looks for ([`HIDE`]).
//!
//! Its language model is arithmetic: words by a hash of the prompt. One token is one letter of a
//! prompt and one word of an answer.

mod answer;
mod made;
mod prompt;
mod vectors;

wit_bindgen::generate!({ world: "backend", path: "../../../wit/v0.1", generate_all });

use std::cell::RefCell;

use exports::gristmill::contract::serving::{self, GuestGeneration};
use gristmill::contract::{
    capability::{Claim, Descriptor, ModelInfo, Readiness, Reason, Support},
    types::{
        Constraint, EmbedRequest, Embeddings, Error, Event, Extras, Part, Prompt, Ranked,
        Reasoning, Request, RerankRequest, ToolChoice,
    },
};

/// Tokens that fit.
const CONTEXT: u32 = 1024;

/// Every way to lie; the models' names.
const LIES: &[&str] = &[
    "truncates",
    "reads-half",
    "no-ids",
    "same-ids",
    "names-another-model",
    "splits",
    "ignores-stop",
    "leaks-stop",
    "names-wrong-stop",
    "ignores-max",
    "stops-for-no-reason",
    "unbound",
    "takes-any-schema",
    "unseeded",
    "moody",
    "streams-another",
    "miscounts",
    "slow-clock",
    "drops-marks",
    "squeezes",
    "forges",
    "two-beginnings",
    "forgets-turns",
    "ignores-system",
    "no-logprobs",
    "rising-logprobs",
    "thinks-anyway",
    "leaks-thought",
    "stringly",
    "translates",
    "no-arguments",
    "calls-anyway",
    "never-calls",
    "calls-in-text",
    "forgets-results",
    "always-parallel",
    "streams-fewer",
    "one-piece",
    "shuffles",
    "too-long",
    "embeds-all",
    "worst-first",
    "all-ranks",
    "blind",
    "modest-takes-all",
    "any-constraint",
    "bad-digest",
    "two-contexts",
    "both-kinds",
    "more-active",
    "foreign-format",
    "over-accepts",
    "counts-unread",
    "reads-tail",
    "drops-wide",
    "loses-tail",
    "no-others",
    "forges-inside",
    "never-thinks",
    "all-thought",
    "thinks-in-secret",
    "streams-past-stop",
    "one-lump",
    "counts-one",
    "will-not-force",
    "rambles",
    "drops-falsy",
    "rounds",
    "unbound-wordless",
    "reuses-ids",
    "swaps-arguments",
    "streams-no-ids",
    "empty-pieces",
    "spaces-calls-out",
    "refuses-schemas",
    "loses-emoji",
    "reverses",
    "other-dimensions",
    "ranks-by-place",
    "one-score",
    "prefixes",
    "names-two-models",
    "glances",
    "deaf",
    "dense-with-active",
    "numberless",
    "one-expert",
    "routes-by-chance",
    "drafts-another",
    "half-told",
    "modest-says-nothing",
];

/// What leaves a check with nothing to see; no lie, and no reason to pass.
const HIDE: &[&str] = &[
    "mute",
    "always-greedy",
    "ascii",
    "tells-nothing",
    "one-call",
    "drafts-nothing",
    "refuses-all",
    "no-specials",
];

/// Models that do not lie.
const HONEST: &[&str] = &["honest", "modest", "perceptive"];

struct Liar;

/// A request, and which lie is told.
struct Job {
    request: Request,
    lie: String,
}

impl Job {
    fn lies(&self, lie: &str) -> bool {
        self.lie == lie
    }

    fn without_stops(&self) -> Self {
        let mut request = self.request.clone();
        request.stop.clear();
        Self { request, lie: self.lie.clone() }
    }
}

fn error(code: &str, message: &str) -> Error {
    Error { code: code.into(), message: message.into(), retry_after_ms: None, details: Vec::new() }
}

fn known(model: &str) -> Result<(), Error> {
    let all = [HONEST, LIES, HIDE];
    if all.iter().any(|models| models.contains(&model)) || model.starts_with("prefixes") {
        return Ok(());
    }
    Err(error("not-found", &format!("no model {model}")))
}

fn claim(name: &str, support: Support, value: Option<String>) -> Claim {
    Claim { name: name.into(), support, value }
}

fn no(name: &str) -> Claim {
    let reason = Reason { code: "not-offered".into(), detail: "not offered".into() };
    claim(name, Support::Unsupported(reason), None)
}

/// What `modest` models deny and others claim.
const MORE: [&str; 14] = [
    "tools.calling",
    "tools.required",
    "tools.streaming",
    "tools.parallel",
    "streaming.tool_arguments",
    "structured_output",
    "structured.json-object",
    "structured.json-schema",
    "structured.regex",
    "reasoning.control",
    "streaming.reasoning",
    "logprobs",
    "embeddings",
    "reranking",
];

fn info(id: &str) -> ModelInfo {
    let yes = |name: &str| claim(name, Support::Supported, None);
    let valued = |name: &str, value: &str| claim(name, Support::Supported, Some(value.into()));
    let mut claims: Vec<Claim> =
        ["inference.text", "inference.chat", "streaming.content", "tokenize"].map(yes).into();
    let modest = id.starts_with("modest");
    let denied =
        |name: &str| modest || (id == "unbound-wordless" && name.starts_with("structured"));
    claims.extend(MORE.map(|name| if denied(name) { no(name) } else { yes(name) }));
    let sees = matches!(id, "blind" | "glances" | "perceptive");
    let hears = matches!(id, "deaf" | "perceptive");
    let multimodal = |name, has| if has { yes(name) } else { no(name) };
    claims.push(multimodal("multimodal.vision", sees));
    claims.push(multimodal("multimodal.audio", hears));
    claims.push(match id {
        "numberless" => yes("context.native_max"),
        _ => valued("context.native_max", &CONTEXT.to_string()),
    });
    let mixed = matches!(
        id,
        "more-active" | "both-kinds" | "one-expert" | "routes-by-chance" | "perceptive"
    );
    if mixed {
        claims.push(yes("architecture.moe"));
        claims.push(valued("moe.total_experts", if id == "one-expert" { "1" } else { "8" }));
    }
    if mixed || id == "dense-with-active" {
        let active = match id {
            "more-active" => "9",
            "one-expert" => "1",
            _ => "2",
        };
        claims.push(valued("moe.active_experts", active));
    }
    if !mixed || id == "both-kinds" {
        claims.push(yes("architecture.dense"));
    }
    let quantization = if id == "foreign-format" { "IQ1_S" } else { "Q4_K_M" };
    // Its own word on formats; the back-end's is what counts.
    claims.push(valued("quantization.formats", quantization));
    let drafts =
        ["over-accepts", "honest", "drafts-another", "half-told", "drafts-nothing"].contains(&id);
    if drafts {
        claims.push(yes("speculative.draft_model"));
    }
    ModelInfo {
        id: id.into(),
        names: vec![format!("{id}:latest")],
        digest: Some(match id {
            "bad-digest" => "sha256:abc".into(),
            _ => format!("sha256:{}", "ab".repeat(32)),
        }),
        family: Some("made-up".into()),
        quantization: Some(quantization.into()),
        parameters: None,
        size_bytes: None,
        context_native: Some(if id == "two-contexts" { CONTEXT * 2 } else { CONTEXT }),
        claims,
        extras: Vec::new(),
    }
}

/// Refuses what is not offered; some lies do not.
fn refuse(job: &Job) -> Result<(), Error> {
    let request = &job.request;
    let unsupported = |what: &str| Err(error("unsupported", &format!("{what} is not offered")));
    let parts = || match &request.prompt {
        Prompt::Chat(messages) => messages.iter().flat_map(|m| &m.content).collect(),
        _ => Vec::new(),
    };
    if job.lies("refuses-all") {
        return unsupported("anything");
    }
    let takes_all = job.lies("modest-takes-all");
    let sees = takes_all || matches!(&*job.lie, "blind" | "glances" | "perceptive");
    if !sees && parts().iter().any(|part| matches!(part, Part::Image(_))) {
        return unsupported("an image");
    }
    let hears = takes_all || matches!(&*job.lie, "deaf" | "perceptive");
    if !hears && parts().iter().any(|part| matches!(part, Part::Audio(_))) {
        return unsupported("a sound");
    }
    if let Prompt::Tokens(tokens) = &request.prompt
        && tokens.contains(&u32::MAX)
    {
        return Err(error("invalid-request", "a token outside the vocabulary"));
    }
    if let Some(Constraint::Other((kind, _))) = &request.constraint
        && !job.lies("any-constraint")
        && !takes_all
    {
        return unsupported(kind);
    }
    let bindless = matches!(&*job.lie, "refuses-schemas" | "unbound-wordless");
    let modest = job.lie.starts_with("modest") && !takes_all;
    if (bindless || modest) && request.constraint.is_some() {
        return unsupported("a constraint");
    }
    let forced = matches!(request.tool_choice, ToolChoice::Required | ToolChoice::Named(_));
    if forced && job.lies("will-not-force") {
        return unsupported("forcing a call");
    }
    if !modest {
        return Ok(());
    }
    let called = !request.tools.is_empty() && !matches!(request.tool_choice, ToolChoice::None);
    if called && !job.lies("modest-says-nothing") {
        return unsupported("a tool");
    }
    if matches!(request.reasoning, Reasoning::On | Reasoning::Effort(_)) {
        return unsupported("thinking");
    }
    if request.logprobs.is_some() {
        return unsupported("log probabilities");
    }
    Ok(())
}

/// An answer: what is left of its events, and the other list for who asks one event at a time.
struct Generation {
    events: RefCell<Vec<Event>>,
    singly: RefCell<Option<Vec<Event>>>,
}

impl GuestGeneration for Generation {
    fn next(&self, max: u32) -> Result<Option<Vec<Event>>, Error> {
        if let Some(other) = self.singly.take()
            && max == 1
        {
            self.events.replace(other);
        }
        let mut events = self.events.borrow_mut();
        if events.is_empty() {
            return Ok(None);
        }
        let count = events.len().min(max as usize);
        Ok(Some(events.drain(..count).collect()))
    }
}

impl serving::Guest for Liar {
    type Generation = Generation;

    fn describe() -> Descriptor {
        Descriptor {
            id: "liar".into(),
            kind: "liar".into(),
            version: "0.1.0".into(),
            execution: "library".into(),
            claims: vec![
                claim("placement.cpu", Support::Supported, None),
                claim("quantization.formats", Support::Supported, Some("F16 Q4_K".into())),
            ],
            extras: Extras::new(),
        }
    }

    fn models() -> Result<Vec<ModelInfo>, Error> {
        Ok([HONEST, LIES, HIDE].concat().into_iter().map(info).collect())
    }

    fn generate(request: Request) -> Result<serving::Generation, Error> {
        known(&request.model)?;
        // Its worse sister says nothing of it, and leaves the ids out in every model.
        let lie = match env!("CARGO_PKG_NAME") {
            "liar-worse" => "no-ids".to_owned(),
            _ => request.model.clone(),
        };
        let job = Job { request, lie };
        refuse(&job)?;
        let length = prompt::length(&job)?;
        let (events, singly) = answer::events(&job, length)?;
        Ok(serving::Generation::new(Generation {
            events: RefCell::new(events),
            singly: RefCell::new(singly),
        }))
    }

    fn embed(request: EmbedRequest) -> Result<Embeddings, Error> {
        known(&request.model)?;
        vectors::embed(&request)
    }

    fn rerank(request: RerankRequest) -> Result<Vec<Ranked>, Error> {
        known(&request.model)?;
        vectors::rerank(&request)
    }

    fn tokenize(model: String, text: String, special: bool) -> Result<Vec<u32>, Error> {
        known(&model)?;
        Ok(prompt::tokenize(&model, &text, special))
    }

    fn detokenize(model: String, tokens: Vec<u32>) -> Result<Vec<u8>, Error> {
        known(&model)?;
        Ok(prompt::detokenize(&tokens))
    }

    fn health() -> Result<Readiness, Error> {
        Ok(Readiness { ready: true, detail: "lying as ever".into(), extras: Vec::new() })
    }
}

export!(Liar);
