//! A back-end that traps when it is asked what it is.

wit_bindgen::generate!({ world: "backend", path: "../../../wit/v0.1", generate_all });

use exports::gristmill::contract::serving::{self, GuestGeneration};
use gristmill::contract::{
    capability::{Descriptor, ModelInfo, Readiness},
    types::{EmbedRequest, Embeddings, Error, Event, Ranked, Request, RerankRequest},
};

struct Guest;
struct Generation;

fn trap() -> ! {
    core::arch::wasm32::unreachable()
}

impl serving::Guest for Guest {
    type Generation = Generation;

    fn describe() -> Descriptor {
        trap()
    }
    fn models() -> Result<Vec<ModelInfo>, Error> {
        trap()
    }
    fn generate(_: Request) -> Result<serving::Generation, Error> {
        trap()
    }
    fn embed(_: EmbedRequest) -> Result<Embeddings, Error> {
        trap()
    }
    fn rerank(_: RerankRequest) -> Result<Vec<Ranked>, Error> {
        trap()
    }
    fn tokenize(_: String, _: String, _: bool) -> Result<Vec<u32>, Error> {
        trap()
    }
    fn detokenize(_: String, _: Vec<u32>) -> Result<Vec<u8>, Error> {
        trap()
    }
    fn health() -> Result<Readiness, Error> {
        trap()
    }
}

impl GuestGeneration for Generation {
    fn next(&self, _: u32) -> Result<Option<Vec<Event>>, Error> {
        trap()
    }
}

export!(Guest);
