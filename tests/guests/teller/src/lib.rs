//! A back-end that tells its own name, so that an answer says which component gave it. Built three
//! times, under three names; `teller-worse` obeys the words in a prompt that the others pass over.
//!
//! A prompt is a number of pieces (one an event, one event a call) and words: `same` (everybody
//! says it instead of his name), and for `teller-worse` `fail`, `trap`, `breaks` (an error after the
//! first piece), `cheats` (no finish), `late` (before the first piece) and `slow` (before the others).

wit_bindgen::generate!({ world: "backend", path: "../../../wit/v0.1", generate_all });

use std::{cell::Cell, thread::sleep, time::Duration};

use exports::gristmill::contract::serving::{self, GuestGeneration};
use gristmill::contract::{
    capability::{Claim, Descriptor, ModelInfo, Readiness, Support},
    types::{
        EmbedRequest, Embeddings, Error, Event, Finish, Part, Prompt, Ranked, Request,
        RerankRequest,
    },
};

const NAME: &str = env!("CARGO_PKG_NAME");
/// What `late` and `slow` mean.
const NAP: Duration = Duration::from_millis(20);

struct Teller;

struct Telling {
    pieces: u32,
    told: Cell<u32>,
    words: Vec<String>,
}

impl Telling {
    fn says(&self, word: &str) -> bool {
        self.words.iter().any(|said| said == word)
    }

    fn obeys(&self, word: &str) -> bool {
        NAME == "teller-worse" && self.says(word)
    }
}

fn trap() -> ! {
    core::arch::wasm32::unreachable()
}

fn error(code: &str, message: &str) -> Error {
    Error { code: code.into(), message: message.into(), retry_after_ms: None, details: Vec::new() }
}

fn claims() -> Vec<Claim> {
    let name = |name: &str| Claim { name: name.into(), support: Support::Supported, value: None };
    ["inference.text", "embeddings", "reranking"].map(name).into()
}

impl serving::Guest for Teller {
    type Generation = Telling;

    fn describe() -> Descriptor {
        Descriptor {
            id: NAME.into(),
            kind: "teller".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            execution: "library".into(),
            claims: claims(),
            extras: Vec::new(),
        }
    }

    fn models() -> Result<Vec<ModelInfo>, Error> {
        Ok(vec![ModelInfo {
            id: "teller".into(),
            names: Vec::new(),
            digest: None,
            family: None,
            quantization: None,
            parameters: None,
            size_bytes: None,
            context_native: None,
            claims: claims(),
            extras: Vec::new(),
        }])
    }

    fn generate(request: Request) -> Result<serving::Generation, Error> {
        let prompt = match request.prompt {
            Prompt::Text(text) => text,
            Prompt::Chat(messages) => messages
                .into_iter()
                .flat_map(|message| message.content)
                .filter_map(|part| match part {
                    Part::Text(text) => Some(text),
                    _ => None,
                })
                .collect(),
            _ => String::new(),
        };
        let mut words = prompt.split_whitespace();
        let pieces = words.next().and_then(|word| word.parse().ok()).unwrap_or(1);
        let words = words.map(str::to_owned).collect();
        let telling = Telling { pieces, told: Cell::new(0), words };
        if telling.obeys("trap") {
            trap();
        }
        if telling.obeys("fail") {
            return Err(error("upstream-error", "as asked"));
        }
        Ok(serving::Generation::new(telling))
    }

    fn embed(request: EmbedRequest) -> Result<Embeddings, Error> {
        let rows = u32::try_from(request.inputs.len()).unwrap_or(u32::MAX);
        Ok(Embeddings { dim: 1, rows, data: vec![1.0; request.inputs.len()], prompt_tokens: rows })
    }

    fn rerank(request: RerankRequest) -> Result<Vec<Ranked>, Error> {
        Ok((0..).zip(request.documents).map(|(index, _)| Ranked { index, score: 0.5 }).collect())
    }

    fn tokenize(_: String, text: String, _: bool) -> Result<Vec<u32>, Error> {
        Ok(text.bytes().map(u32::from).collect())
    }

    fn detokenize(_: String, tokens: Vec<u32>) -> Result<Vec<u8>, Error> {
        Ok(tokens.into_iter().map(|token| token as u8).collect())
    }

    fn health() -> Result<Readiness, Error> {
        Ok(Readiness { ready: true, detail: NAME.into(), extras: Vec::new() })
    }
}

impl GuestGeneration for Telling {
    fn next(&self, _max: u32) -> Result<Option<Vec<Event>>, Error> {
        let told = self.told.get();
        self.told.set(told + 1);
        if (told == 0 && self.obeys("late")) || (told > 0 && self.obeys("slow")) {
            sleep(NAP);
        }
        if told == 1 && self.obeys("breaks") {
            return Err(error("upstream-error", "broke off as asked"));
        }
        if told < self.pieces {
            let piece = if self.says("same") { "same" } else { NAME };
            return Ok(Some(vec![Event::Text(format!("{piece} "))]));
        }
        if told > self.pieces || self.obeys("cheats") {
            return Ok(None);
        }
        Ok(Some(vec![Event::Finish(Finish { reason: "stop".into(), stop: None })]))
    }
}

export!(Teller);
