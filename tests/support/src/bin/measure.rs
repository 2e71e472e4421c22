//! What a bench needs beside the two engines: `measure model SPEC` prints the path of a model file,
//! fetched or made on the spot; `measure bandwidth THREADS` prints what the memory of this machine
//! gives to a plain read loop, in GB/s.

use std::{fs, hint::black_box, path::PathBuf, thread, time::Instant};

use anyhow::{Context, Result, bail};
use gristmill_testing::{
    fetch,
    models::{self, Shape},
};

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["model", spec] => println!("{}", fs::canonicalize(model(spec)?)?.display()),
        ["bandwidth", threads] => println!("{:.2}", bandwidth(threads.parse()?)),
        _ => bail!(
            "usage: measure model smollm2 | gemma3 | SHAPE:MIX | FILE, or measure bandwidth THREADS"
        ),
    }
    Ok(())
}

/// `smollm2`, `gemma3`, a file, or a made-up model such as `qwen2.5-1.5b:q4_k_m`.
fn model(spec: &str) -> Result<PathBuf> {
    match spec {
        "smollm2" => return fetch::smollm2(),
        "gemma3" => return fetch::gemma3(),
        _ => {}
    }
    let Some((shape, mix)) = spec.split_once(':') else { return Ok(PathBuf::from(spec)) };
    let name = shape;
    let shape = Shape::named(name).with_context(|| format!("no shape is called {name}"))?;
    let folder = fetch::folder();
    fs::create_dir_all(&folder)?;
    let path = folder.join(format!("random-{name}-{mix}.gguf"));
    if !path.exists() {
        let part = path.with_extension("part");
        models::write_for_speed(&shape, mix, 1, &part)?;
        fs::rename(part, &path)?;
    }
    Ok(path)
}

/// The best of several passes of all threads over memory far larger than any cache.
fn bandwidth(threads: usize) -> f64 {
    const WORDS: usize = 64 << 20;
    let blocks: Vec<Vec<u64>> =
        (0..threads.max(1)).map(|seed| vec![seed as u64 | 1; WORDS]).collect();
    let pass = || {
        let started = Instant::now();
        thread::scope(|scope| {
            for block in &blocks {
                scope.spawn(move || {
                    black_box(block.iter().fold(0_u64, |sum, word| sum.wrapping_add(*word)))
                });
            }
        });
        (blocks.len() * WORDS * size_of::<u64>()) as f64 / started.elapsed().as_secs_f64() / 1e9
    };
    (0..6).map(|_| pass()).fold(0.0, f64::max)
}
