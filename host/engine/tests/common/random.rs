//! An engine over a random model of a few megabytes: whatever it says, it does not mean.

use std::sync::Arc;

use gristmill_core::{
    program::Dialect,
    request::{Prompt, Request, Sampling},
};
use gristmill_engine::{
    Engine, EngineConfig,
    runtime::{Model, Runtime},
};
use gristmill_models::store::{Silent, Store};
use gristmill_testing::models::{Family, Shape, write_marked};

/// A control token that ends nothing, for marks.
pub const MARK: &str = "<|im_start|>";

/// The model and what it needs to live.
pub struct Noise {
    pub model: Arc<dyn Model>,
    _engine: Arc<Engine>,
    _folder: tempfile::TempDir,
}

pub async fn noise(dialect: Dialect) -> Noise {
    noise_marked(dialect, &[]).await
}

/// The same with more control tokens.
pub async fn noise_marked(dialect: Dialect, marks: &[&str]) -> Noise {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("noise.gguf");
    let shape = Shape { layers: 2, context: 4096, ..Shape::tiny(Family::Llama) };
    write_marked(&shape, "q8_0", 3, marks, &file).unwrap();
    let store = Store::open(folder.path().join("store")).unwrap();
    store.import(file.to_str().unwrap(), Some("noise"), &mut Silent).unwrap();
    let config = EngineConfig { pin: false, ..EngineConfig::default() };
    let engine = Engine::new(config, Arc::new(store), super::families(dialect)).unwrap();
    let model = engine.open("noise").await.unwrap();
    Noise { model, _engine: engine, _folder: folder }
}

/// A request with a seed, drawn from everything the model could say.
pub fn wild(seed: u64, max_tokens: u32) -> Request {
    let mut request = Request::new("wild", "noise", Prompt::Text("say ".into()));
    request.sampling = Sampling {
        temperature: Some(1.0),
        top_k: Some(0),
        top_p: Some(1.0),
        seed: Some(seed),
        ..Sampling::default()
    };
    request.max_tokens = Some(max_tokens);
    request
}
