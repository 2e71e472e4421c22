//! Speeds of a model on this machine, measured on the bare forward pass: no sampling, no text.

mod load;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use gristmill_core::{Result, program::Families};
use gristmill_kernels::Pool;
use gristmill_models::Gguf;
use serde_json::{Value, json};

use crate::{
    cache::{Cache, KvTypes},
    execute::{Arena, Model, Row, Want},
    memory::resident,
    plan::Plan,
    program::{Checked, check},
    weights::Weights,
};

pub use load::{load, pss};

/// A plan with its weights, without an engine around it.
pub struct Bare {
    /// The file; weights may be mapped from it.
    pub file: Gguf,
    /// The plan.
    pub plan: Plan,
    /// The weights.
    pub weights: Weights,
}

impl Bare {
    /// Opens a model file.
    ///
    /// # Errors
    /// What opening, resolving or checking says.
    pub fn open(path: &std::path::Path, families: &dyn Families) -> Result<Self> {
        let file = Gguf::open(path)?;
        let metadata = file.metadata();
        let resolved = families.resolve(&metadata)?;
        let checked: Checked = check(&resolved.program, &metadata)?;
        let plan = Plan::new(Arc::new(checked));
        let weights = Weights::load(&plan, &file, true)?;
        Ok(Self { file, plan, weights })
    }

    /// Logits after every token, `tokens × vocabulary`, computed as the engine computes them in
    /// passes of `chunk` rows.
    ///
    /// # Errors
    /// What the pass says.
    pub fn logits(
        &self,
        pool: &Pool,
        types: KvTypes,
        tokens: &[u32],
        chunk: usize,
    ) -> Result<Vec<f32>> {
        let model = Model { plan: &self.plan, weights: &self.weights, pool };
        let chunk = chunk.clamp(1, tokens.len().max(1));
        let mut arena = Arena::new(&self.plan, chunk, chunk);
        let mut cache = Cache::new(&self.plan, types, tokens.len())?;
        let mut out = Vec::with_capacity(tokens.len() * self.plan.program.vocabulary);
        for part in tokens.chunks(chunk) {
            let first = cache.len();
            let rows: Vec<Row> = part
                .iter()
                .enumerate()
                .map(|(n, &token)| Row {
                    cache: 0,
                    position: first + n,
                    token,
                    wanted: true,
                    bulk: chunk > 1,
                })
                .collect();
            model.run(&mut arena, &rows, &mut [&mut cache], Want::Result)?;
            out.extend_from_slice(arena.result());
        }
        Ok(out)
    }
}

/// What to measure.
#[derive(Debug, Clone, Copy)]
pub struct Measure {
    /// Threads that compute.
    pub threads: usize,
    /// Tokens of prompt.
    pub prefill: usize,
    /// Tokens of answer.
    pub decode: usize,
    /// Tokens that each sequence holds before the answer begins.
    pub depth: usize,
    /// Sequences decoded at once.
    pub batch: usize,
    /// Times; the median counts.
    pub rounds: usize,
}

/// Measures a model file; a JSON document of what was found.
///
/// # Errors
/// What opening the model or a pass says.
pub fn measure(path: &std::path::Path, families: &dyn Families, what: Measure) -> Result<Value> {
    let begun = Instant::now();
    let bare = Bare::open(path, families)?;
    let load = begun.elapsed();
    let pool = Pool::new(what.threads, true);
    pool.pin_caller();
    let model = Model { plan: &bare.plan, weights: &bare.weights, pool: &pool };
    let batch = what.batch.max(1);
    let mut arena = Arena::new(&bare.plan, 512.max(batch), batch);
    let (mut reading, mut writing) = (Vec::new(), Vec::new());
    let vocabulary = u32::try_from(bare.plan.program.vocabulary).unwrap_or(u32::MAX);
    let token = |n: usize| (u32::try_from(n).unwrap_or(0).wrapping_mul(2_654_435_761)) % vocabulary;
    let read = |arena: &mut Arena, cache: &mut Cache, count: usize| -> Result<()> {
        let mut position = cache.len();
        while position < count {
            let next = count.min(position + 512);
            let rows: Vec<Row> = (position..next)
                .map(|position| Row {
                    cache: 0,
                    position,
                    token: token(position),
                    wanted: position + 1 == count,
                    bulk: position + 1 < count,
                })
                .collect();
            model.run(arena, &rows, &mut [&mut *cache], Want::Result)?;
            position = next;
        }
        Ok(())
    };
    let mut held = (0..batch)
        .map(|_| {
            let mut cache =
                Cache::new(&bare.plan, KvTypes::default(), (what.depth + what.decode).max(1))?;
            read(&mut arena, &mut cache, what.depth)?;
            Ok(cache)
        })
        .collect::<Result<Vec<_>>>()?;
    for round in 0..=what.rounds {
        let mut cache = Cache::new(&bare.plan, KvTypes::default(), what.prefill.max(1))?;
        let begun = Instant::now();
        read(&mut arena, &mut cache, what.prefill)?;
        let time = begun.elapsed();
        for cache in &mut held {
            cache.truncate(what.depth);
        }
        let begun = Instant::now();
        for position in what.depth..what.depth + what.decode {
            let rows: Vec<Row> = (0..batch)
                .map(|cache| Row {
                    cache,
                    position,
                    token: token(position + cache),
                    wanted: true,
                    bulk: false,
                })
                .collect();
            let mut caches: Vec<&mut Cache> = held.iter_mut().collect();
            model.run(&mut arena, &rows, &mut caches, Want::Result)?;
        }
        // The first round warms up.
        if round > 0 {
            reading.push(time);
            writing.push(begun.elapsed());
        }
    }
    let rate = |tokens: usize, times: &mut Vec<Duration>| {
        times.sort_unstable();
        let median = times.get(times.len() / 2).copied().unwrap_or_default().as_secs_f64();
        if median > 0.0 { tokens as f64 / median } else { 0.0 }
    };
    let decode = rate(what.decode * batch, &mut writing);
    let bytes = bare.weights.memory() as f64;
    Ok(json!({
        "file": path.display().to_string(),
        "threads": pool.threads(),
        "isa": pool.isa().to_string(),
        "load_ms": load.as_secs_f64() * 1e3,
        "rss_bytes": resident(),
        "weights_bytes": bare.weights.memory(),
        "products_per_token": bare.plan.products_per_token(),
        "prefill": {"tokens": what.prefill, "per_second": rate(what.prefill, &mut reading)},
        "decode": {
            "tokens": what.decode,
            "batch": batch,
            "per_second": decode,
            "weights_gb_per_second": bytes * decode / batch as f64 / 1e9,
        },
    }))
}
