//! An engine over the demo model, and answers collected.

use std::sync::Arc;

use gristmill_core::{
    Result,
    event::{Event, Finish, Timings, TokenInfo, Usage},
    program::Dialect,
    request::{Message, Prompt, Request, Role, Sampling},
};
use gristmill_engine::{
    Engine, EngineConfig,
    runtime::{Decoding, Model, Runtime},
};
use gristmill_models::store::{Silent, Store};

/// A store that holds the demo model as `smollm2`, made once for all tests.
pub fn store() -> Arc<Store> {
    let file = gristmill_testing::fetch::smollm2().unwrap();
    let store = Store::open(gristmill_testing::fetch::folder().join("engine-store")).unwrap();
    if store.locate("smollm2").is_err() {
        store.import(file.to_str().unwrap(), Some("smollm2"), &mut Silent).unwrap();
    }
    Arc::new(store)
}

pub fn dialect() -> Dialect {
    Dialect { system_role: true, stops: vec!["<|im_end|>".into()], ..Dialect::default() }
}

pub fn engine_with(config: EngineConfig, dialect: Dialect) -> Arc<Engine> {
    Engine::new(
        EngineConfig { pin: false, packages: false, ..config },
        store(),
        super::families(dialect),
    )
    .unwrap()
}

pub async fn model() -> (Arc<Engine>, Arc<dyn Model>) {
    let engine = engine_with(EngineConfig::default(), dialect());
    let model = engine.open("smollm2").await.unwrap();
    (engine, model)
}

/// A greedy request.
pub fn greedy(prompt: Prompt, max_tokens: u32) -> Request {
    let mut request = Request::new("test", "smollm2", prompt);
    request.sampling = Sampling { temperature: Some(0.0), ..Sampling::default() };
    request.max_tokens = Some(max_tokens);
    request
}

pub fn chat(text: &str) -> Prompt {
    Prompt::Chat(vec![Message::text(Role::User, text)])
}

/// A whole answer.
#[derive(Debug, Default)]
pub struct Answer {
    pub text: String,
    pub reasoning: String,
    pub calls: Vec<(String, String, bool)>,
    pub tokens: Vec<TokenInfo>,
    pub usage: Usage,
    pub timings: Timings,
    pub finish: Option<Finish>,
}

impl Answer {
    pub fn reason(&self) -> &str {
        &self.finish.as_ref().unwrap().reason
    }
}

/// Reads an answer to its end and checks the order of its events.
pub async fn read(mut decoding: Box<dyn Decoding>) -> Result<Answer> {
    let mut answer = Answer::default();
    let mut place = 0;
    while let Some(events) = decoding.next(3).await? {
        assert!(!events.is_empty() && events.len() <= 3);
        for event in events {
            assert!(answer.finish.is_none(), "{event:?} after the end");
            let rank = match &event {
                Event::Usage(_) => 1,
                Event::Timings(_) => 2,
                Event::Finish(_) => 3,
                _ => 0,
            };
            assert!(rank >= place && (rank == 0 || rank == place + 1), "{event:?} at {place}");
            place = rank;
            match event {
                Event::Text(text) => answer.text.push_str(&text),
                Event::Reasoning(text) => answer.reasoning.push_str(&text),
                Event::ToolStart(start) => answer.calls.push((start.name, String::new(), false)),
                Event::ToolArguments(n, text) => answer.calls[n as usize].1.push_str(&text),
                Event::ToolEnd(n) => answer.calls[n as usize].2 = true,
                Event::Tokens(tokens) => answer.tokens.extend(tokens),
                Event::Usage(usage) => answer.usage = usage,
                Event::Timings(timings) => answer.timings = timings,
                Event::Finish(finish) => answer.finish = Some(finish),
                Event::Other(..) => panic!("unexpected {event:?}"),
            }
        }
    }
    assert!(answer.finish.is_some());
    Ok(answer)
}

pub async fn ask(model: &Arc<dyn Model>, request: Request) -> Answer {
    read(model.generate(request).await.unwrap()).await.unwrap()
}
