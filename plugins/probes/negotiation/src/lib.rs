//! Probe: what is not offered is refused by name (`unsupported`), never ignored; what is offered is
//! taken.
#![cfg_attr(target_arch = "wasm32", no_std)]

use gristmill_plugin::{prelude::*, probe::serving};
use probe_kit::{
    Bench, Stop, Verdict,
    ask::{Answer, ask, tool},
    failed, not_applicable, short,
};

probe_kit::suite! {
    "negotiation.no-image" of "multimodal.vision" if Denied => no_image,
    "negotiation.image" of "multimodal.vision" if Claimed => image,
    "negotiation.no-audio" of "multimodal.audio" if Denied => no_audio,
    "negotiation.no-tools" of "tools.calling" if Denied => no_tools,
    "negotiation.no-schema" of "structured_output" if Denied => no_schema,
    "negotiation.no-reasoning" of "reasoning.control" if Denied => no_reasoning,
    "negotiation.no-logprobs" of "logprobs" if Denied => no_logprobs,
    "negotiation.no-embeddings" of "embeddings" if Denied => no_embeddings,
    "negotiation.no-ranks" of "reranking" if Denied => no_ranks,
    "negotiation.unknown-constraint" of "conduct.negotiation" if Generates => unknown_constraint,
}

/// A picture of one grey pixel.
const PIXEL: [u8; 67] = [
    0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A, 0x00, 0x00, 0x00, 0x0D, 0x49, 0x48, 0x44, 0x52,
    0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x00, 0x00, 0x00, 0x00, 0x3A, 0x7E, 0x9B,
    0x55, 0x00, 0x00, 0x00, 0x0A, 0x49, 0x44, 0x41, 0x54, 0x78, 0xDA, 0x63, 0x68, 0x00, 0x00, 0x00,
    0x82, 0x00, 0x81, 0xDA, 0x45, 0x08, 0x3B, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4E, 0x44, 0xAE,
    0x42, 0x60, 0x82,
];

/// `unsupported` is the answer; an answer as if nothing had been asked is not.
fn refused<T>(answer: Result<T>, what: &str) -> Verdict {
    match answer {
        Err(error) if error.code == "unsupported" => Ok(error.message),
        Err(error) => {
            failed("expected unsupported", format!("{what}: {}: {}", error.code, error.message))
        }
        Ok(_) => failed(format!("{what} was ignored instead of refused"), what),
    }
}

/// The same, where an answer can show that it was given what was asked for: more than is claimed is
/// no lie.
fn refused_or_given(answer: Result<Answer>, what: &str, given: fn(&Answer) -> bool) -> Verdict {
    match answer {
        Ok(answer) if given(&answer) => {
            not_applicable(format!("{what} is given, although it is not claimed"))
        }
        other => refused(other, what),
    }
}

fn with(bench: &Bench, part: Part) -> Request {
    let mut request = bench.request("", 8);
    let mut message = Message::text(Role::User, "What is this?");
    message.content.push(part);
    request.prompt = Prompt::Chat(vec![message]);
    request
}

fn picture() -> Part {
    Part::Image(gristmill_plugin::Media { mime: "image/png".to_owned(), data: PIXEL.to_vec() })
}

fn no_image(bench: &Bench) -> Verdict {
    refused(ask(&with(bench, picture())), "a picture")
}

/// A claimed picture is read: it costs tokens.
fn image(bench: &Bench) -> Verdict {
    let seeing = ask(&with(bench, picture()))?;
    let blind = ask(&bench.request("What is this?", 8))?;
    let told = |usage: &Option<Usage>| usage.as_ref().map(|usage| usage.prompt);
    let (with, without) = (told(&seeing.usage), told(&blind.usage));
    match (with, without) {
        (Some(with), Some(without)) if with <= without => {
            failed("the picture does not reach the model", format!("{with} and {without} tokens"))
        }
        _ => Ok(format!("{with:?} tokens with it, {without:?} without")),
    }
}

fn no_audio(bench: &Bench) -> Verdict {
    let sound = gristmill_plugin::Media { mime: "audio/wav".to_owned(), data: vec![0; 64] };
    refused(ask(&with(bench, Part::Audio(sound))), "a sound")
}

fn no_tools(bench: &Bench) -> Verdict {
    generates(bench)?;
    let parameters = r#"{"type":"object","properties":{}}"#;
    let request = bench.forced("Call it.", tool("it", parameters), 64);
    // A call that is cut by the limit is no call yet, and no text either.
    let given = |answer: &Answer| !answer.calls.is_empty() || answer.text.is_empty();
    refused_or_given(ask(&request), "a forced call", given)
}

fn no_schema(bench: &Bench) -> Verdict {
    generates(bench)?;
    let mut request = bench.request("Answer in JSON.", 8);
    request.constraint = Some(Constraint::JsonSchema(r#"{"type":"boolean"}"#.to_owned()));
    refused(ask(&request), "a schema")
}

fn no_reasoning(bench: &Bench) -> Verdict {
    generates(bench)?;
    let mut request = bench.request("Think.", 8);
    request.reasoning = Reasoning::On;
    refused_or_given(ask(&request), "thinking", |answer| !answer.reasoning.is_empty())
}

fn no_logprobs(bench: &Bench) -> Verdict {
    generates(bench)?;
    let mut request = bench.request("Hello.", 4);
    request.logprobs = Some(2);
    let given = |answer: &Answer| !answer.tokens.is_empty();
    refused_or_given(ask(&request), "log probabilities", given)
}

fn no_embeddings(bench: &Bench) -> Verdict {
    let answer = serving::embed(&EmbedRequest {
        model: bench.model.clone(),
        inputs: vec!["a".to_owned()],
        dimensions: None,
        truncate: false,
        extras: Vec::new(),
    });
    refused(answer, "an embedding")
}

fn no_ranks(bench: &Bench) -> Verdict {
    let answer = serving::rerank(&RerankRequest {
        model: bench.model.clone(),
        query: "a".to_owned(),
        documents: vec!["a".to_owned(), "b".to_owned()],
        top_n: None,
        extras: Vec::new(),
    });
    refused(answer, "a ranking")
}

/// A constraint of a later contract is refused, not dropped.
fn unknown_constraint(bench: &Bench) -> Verdict {
    let mut request = bench.request("Hello.", 8);
    request.constraint =
        Some(Constraint::Other(("x-unheard-of".to_owned(), "anything".to_owned())));
    match ask(&request) {
        Err(error) if matches!(&*error.code, "unsupported" | "invalid-request") => {
            Ok(error.message)
        }
        Err(error) => Err(error.into()),
        Ok(answer) => failed("a constraint nobody knows was ignored", short(&answer.text)),
    }
}

fn generates(bench: &Bench) -> Result<(), Stop> {
    bench.ready_for("inference.text", probe_kit::When::Generates)
}
