//! What a bench needs beside the two engines: `measure model SPEC` prints the path of a model file,
//! fetched or made on the spot; `measure bandwidth THREADS` prints what the memory of this machine
//! gives to the best of several read loops, in GB/s; `measure peak THREADS` what its processor
//! multiplies in registers at most, in billions of products of 8-bit integers per second.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result, bail};
use gristmill_kernels::measure;
use gristmill_testing::{
    fetch,
    models::{self, Shape},
};

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["model", spec] => println!("{}", fs::canonicalize(model(spec)?)?.display()),
        ["bandwidth", threads] => {
            let bytes = measure::bandwidth(threads.parse()?);
            println!("{:.2}", bytes.context("not enough memory to read")? / 1e9);
        }
        ["peak", threads] => println!("{:.1}", measure::int8_rate(threads.parse()?) / 1e9),
        _ => bail!(
            "usage: measure model smollm2 | gemma3 | SHAPE:MIX | FILE, or measure bandwidth | peak THREADS"
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
