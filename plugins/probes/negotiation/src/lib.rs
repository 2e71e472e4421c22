//! Probe: what is not offered is refused by name (`unsupported`), never ignored; what is offered is
//! taken.
#![cfg_attr(target_arch = "wasm32", no_std)]

use gristmill_plugin::{prelude::*, probe::serving};
use probe_kit::{
    Bench, Stop, Verdict,
    ask::{Answer, ask, tool},
    failed, not_applicable,
    reach::reaches,
    short,
};

probe_kit::suite! {
    "negotiation.no-image" of "multimodal.vision" if Denied => no_image,
    "negotiation.image" of "multimodal.vision" if Claimed => image,
    "negotiation.audio" of "multimodal.audio" if Claimed => audio,
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

/// The same, nearly black.
const DARK: [u8; 67] = [
    0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A, 0x00, 0x00, 0x00, 0x0D, 0x49, 0x48, 0x44, 0x52,
    0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x00, 0x00, 0x00, 0x00, 0x3A, 0x7E, 0x9B,
    0x55, 0x00, 0x00, 0x00, 0x0A, 0x49, 0x44, 0x41, 0x54, 0x78, 0xDA, 0x63, 0x60, 0x07, 0x00, 0x00,
    0x09, 0x00, 0x08, 0x8D, 0xAB, 0xB9, 0x01, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4E, 0x44, 0xAE,
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

fn with(bench: &Bench, part: Option<Part>) -> Request {
    let mut request = bench.request("", 8);
    let mut message = Message::text(Role::User, "What is this?");
    message.content.extend(part);
    request.prompt = Prompt::Chat(vec![message]);
    request
}

fn picture(data: &[u8]) -> Part {
    Part::Image(gristmill_plugin::Media { mime: "image/png".to_owned(), data: data.to_vec() })
}

/// A sound of so many Hertz and 100 ms: 16 bits, 8000 numbers a second, up and down.
fn sound(hertz: u32) -> Part {
    const RATE: u32 = 8000;
    let samples: Vec<u8> = (0..RATE / 10)
        .flat_map(|at| {
            if (at * hertz * 2 / RATE).is_multiple_of(2) { 8000_i16 } else { -8000 }.to_le_bytes()
        })
        .collect();
    let mut data = b"RIFF".to_vec();
    let size = samples.len() as u32;
    data.extend((36 + size).to_le_bytes());
    data.extend(b"WAVEfmt ");
    // Plain numbers, one channel.
    for number in [16, 1 | 1 << 16, RATE, RATE * 2, 2 | 16 << 16] {
        data.extend(u32::to_le_bytes(number));
    }
    data.extend(b"data");
    data.extend(size.to_le_bytes());
    data.extend(samples);
    Part::Audio(gristmill_plugin::Media { mime: "audio/wav".to_owned(), data })
}

/// The same message without the part is answered, so a refusal is a refusal of the part.
fn answers(bench: &Bench, request: &Request) -> Result<(), Stop> {
    generates(bench)?;
    match ask(request) {
        Err(error) if error.code == "unsupported" => {
            not_applicable(format!("refused without what is to be refused, too: {}", error.message))
        }
        other => other.map(drop).map_err(Stop::from),
    }
}

fn no_image(bench: &Bench) -> Verdict {
    answers(bench, &with(bench, None))?;
    refused(ask(&with(bench, Some(picture(&PIXEL)))), "a picture")
}

/// A claimed picture is read: it costs tokens, and another picture makes another answer.
fn image(bench: &Bench) -> Verdict {
    perceived(bench, picture(&PIXEL), picture(&DARK), "picture")
}

/// The same of a sound.
fn audio(bench: &Bench) -> Verdict {
    perceived(bench, sound(400), sound(1000), "sound")
}

fn perceived(bench: &Bench, part: Part, other: Part, what: &'static str) -> Verdict {
    let told = |answer: &Answer| answer.usage.as_ref().map(|usage| usage.prompt);
    let seeing = with(bench, Some(part));
    let (with_it, without) = (told(&ask(&seeing)?), told(&ask(&with(bench, None))?));
    if let (Some(with), Some(without)) = (with_it, without)
        && with <= without
    {
        let seen = format!("{with} and {without} tokens");
        return failed(format!("the {what} does not reach the model"), seen);
    }
    reaches(bench, &seeing, &[(with(bench, Some(other)), what)])?;
    Ok(format!("{with_it:?} tokens with it, {without:?} without; another {what}, another answer"))
}

fn no_audio(bench: &Bench) -> Verdict {
    answers(bench, &with(bench, None))?;
    refused(ask(&with(bench, Some(sound(400)))), "a sound")
}

fn no_tools(bench: &Bench) -> Verdict {
    answers(bench, &bench.request("Call it.", 8))?;
    let parameters = r#"{"type":"object","properties":{}}"#;
    let request = bench.forced("Call it.", tool("it", parameters), 64);
    // A call that is cut by the limit is no call yet, and no text either.
    let given = |answer: &Answer| {
        !answer.calls.is_empty() || (answer.text.is_empty() && answer.finish == "length")
    };
    refused_or_given(ask(&request), "a forced call", given)
}

fn no_schema(bench: &Bench) -> Verdict {
    let mut request = bench.request("Answer in JSON.", 8);
    answers(bench, &request)?;
    request.constraint = Some(Constraint::JsonSchema(r#"{"type":"boolean"}"#.to_owned()));
    refused(ask(&request), "a schema")
}

fn no_reasoning(bench: &Bench) -> Verdict {
    let mut request = bench.request("Think.", 8);
    answers(bench, &request)?;
    request.reasoning = Reasoning::On;
    refused_or_given(ask(&request), "thinking", |answer| !answer.reasoning.is_empty())
}

fn no_logprobs(bench: &Bench) -> Verdict {
    let mut request = bench.request("Hello.", 4);
    answers(bench, &request)?;
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
    answers(bench, &request)?;
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
