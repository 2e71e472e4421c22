//! How long a process takes from nothing to its first token, and what it holds in memory then.

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use gristmill_core::{
    Error, Result,
    program::Families,
    request::{Prompt, Request, Sampling},
};
use gristmill_models::store::Store;
use serde_json::{Value, json};

use crate::{
    Engine, EngineConfig,
    memory::resident,
    runtime::{Model, Runtime},
};

/// Opens a stored model in a fresh engine and answers with one token; what it took since `begun`.
/// With `settle`, waits until the model runs from its package, and says so.
///
/// # Errors
/// What opening or answering says.
pub fn load(
    store: &Arc<Store>,
    id: &str,
    families: Arc<dyn Families>,
    config: EngineConfig,
    begun: Instant,
    settle: bool,
) -> Result<(Value, Arc<dyn Model>)> {
    let ms = |since: Instant| since.elapsed().as_secs_f64() * 1e3;
    let ready = ms(begun);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .map_err(|error| Error::internal(format!("cannot start a runtime: {error}")))?;
    runtime.block_on(async {
        let engine = Engine::new(config, Arc::clone(store), families)?;
        let model = engine.open(id).await?;
        let open = ms(begun);
        first_token(&*model, id).await?;
        let first = ms(begun);
        // To ask where the weights are takes milliseconds that loading does not.
        let mut weights = if settle { placement(&*model).await? } else { Value::Null };
        // What it waits for happens behind the model's back, and needs the processors.
        let patience = Instant::now();
        while weights.get("from").is_some_and(|from| from == "file")
            && weights.get("reason").is_none_or(Value::is_null)
            && patience.elapsed() < Duration::from_secs(600)
        {
            std::thread::sleep(Duration::from_millis(10));
            weights = placement(&*model).await?;
        }
        let found = json!({
            "model": id,
            "weights": weights,
            "start_ms": ready,
            "open_ms": open,
            "first_token_ms": first,
            "rss_bytes": resident(),
        });
        Ok((found, model))
    })
}

async fn first_token(model: &dyn Model, id: &str) -> Result<()> {
    let mut request = Request::new("measure", id, Prompt::Text("The".to_owned()));
    request.sampling = Sampling { temperature: Some(0.0), ..Sampling::default() };
    request.max_tokens = Some(1);
    let mut answer = model.generate(request).await?;
    while answer.next(64).await?.is_some() {}
    Ok(())
}

async fn placement(model: &dyn Model) -> Result<Value> {
    let mut session = model.open_session(Vec::new()).await?;
    let explained: Value = serde_json::from_str(&session.explain().await?)
        .map_err(|error| Error::internal(format!("explain: {error}")))?;
    Ok(explained.get("weights").cloned().unwrap_or_default())
}

/// A process's proportional share of the memory it maps: its own pages, and of shared ones its
/// part. The sum over processes counts every page once.
#[must_use]
pub fn pss(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}
