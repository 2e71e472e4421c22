//! From the start of a process to its first token, and the memory of four processes on one model.
//!
//! Ours has its package made and both engines' files are in the page cache. A process's time is that
//! of the whole process, from its start to its end, with one token in between; llama.cpp's is
//! llama-bench, which loads the file and computes a token without reading or writing any text.
//! Memory is the sum of the processes' proportional shares, so that what they share counts once.

use std::{fs, path::Path, process::Command, time::Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{
    engines::Variant,
    process::{Process, free_address, port},
    stats::Series,
};
use crate::{
    build::installed_command,
    shell::{output, root, run},
};

/// How many times sooner the first token must come, and after how many milliseconds it should.
const LOAD: (f64, f64) = (10.0, 50.0);
/// How many times less memory the processes must take; they should take no more than the file.
const MEMORY: f64 = 2.5;
const PROCESSES: usize = 4;
/// Context that every process plans for.
const CONTEXT: &str = "1024";

/// What was measured of one model.
#[derive(Debug)]
pub(super) struct Loads {
    model: String,
    /// Milliseconds, ours and llama.cpp's.
    times: (Series, Series),
    /// Megabytes, once each.
    memory: (Series, Series),
    /// Of the file.
    megabytes: f64,
    /// llama.cpp's best for each.
    best: (String, String),
}

impl Loads {
    pub(super) fn print(&self) {
        let (time, memory) = (&self.times, &self.memory);
        for (what, ours, theirs, (must, aim), name) in [
            ("load, ms", &time.0, &time.1, LOAD, &self.best.0),
            ("4 processes, MB", &memory.0, &memory.1, (MEMORY, self.megabytes), &self.best.1),
        ] {
            let ratio = theirs.over(ours);
            println!(
                "{:<20} {what:<15} {:>21} {:>20} {:>20} {:>9}  {:<7} {must:>4} {:>4}  {name}",
                self.model,
                ours.show(1),
                theirs.show(1),
                ratio.show(2),
                "–",
                verdict(ratio.median(), must, ours.median() <= aim),
                format!("≤{aim:.0}"),
            );
        }
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "model": self.model,
            "load_ms": {"ours": self.times.0.values(), "llama_cpp": self.times.1.values(),
                        "llama_cpp_variant": self.best.0},
            "megabytes_of_four": {"ours": self.memory.0.values(), "llama_cpp": self.memory.1.values(),
                                  "llama_cpp_variant": self.best.1},
        })
    }
}

/// `MISSED` below the ratio that must be reached, `aim` where ours is as small as it should be.
fn verdict(ratio: f64, must: f64, small: bool) -> &'static str {
    match (ratio >= must, small) {
        _ if ratio.is_nan() => "–",
        (false, _) => "MISSED",
        (true, false) => "reached",
        (true, true) => "aim",
    }
}

/// Measures one model in rounds, both engines in turns.
pub(super) fn measure(
    binary: &Path,
    file: &Path,
    model: &str,
    variants: &[Variant],
    rounds: usize,
    threads: usize,
) -> Result<Loads> {
    let threads = threads.to_string();
    let store = root().join("target/bench-store");
    let name = format!("bench-{model}");
    let mut import = Command::new(binary);
    import.arg("import").arg(file).args(["--name", &name]).env("GRISTMILL_PATHS_MODELS", &store);
    run(&mut import)?;
    let ours = |options: &[&str]| {
        let mut command = installed_command(binary);
        command
            .args(["bench", &name, "--engine-context", CONTEXT, "--engine-threads", &threads])
            .args(options)
            .env("GRISTMILL_PATHS_MODELS", &store);
        command
    };
    // The first makes the package.
    output(&mut ours(&["--load", "--settle"]))?;
    let theirs = |variant: &Variant| {
        let mut command = variant.program("llama-bench");
        command
            .arg("-m")
            .arg(file)
            .args(["-p", "0", "-n", "1", "-r", "1", "--no-warmup", "-t", &threads])
            .args(["--repack", if variant.repack() { "1" } else { "0" }]);
        command
    };
    // Flash attention makes no difference to one token.
    let variants: Vec<&Variant> = variants.iter().filter(|it| !it.flash_attention()).collect();
    let best = least(&variants, |variant| wall(&mut theirs(variant)))?.map(|(_, best)| best);
    let (mut mine, mut other) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let mut sides = [true, false];
        sides.rotate_left(round % 2);
        for ours_now in sides {
            match (ours_now, best) {
                (true, _) => mine.push(wall(&mut ours(&["--load"]))?),
                (false, Some(best)) => other.push(wall(&mut theirs(best))?),
                (false, None) => {}
            }
        }
    }
    let text = output(&mut ours(&[&format!("--load={PROCESSES}"), "--settle"]))?;
    let document: Value = serde_json::from_str(text.trim()).context("gristmill bench's JSON")?;
    let bytes = document.get("pss_bytes").and_then(Value::as_f64).context("no pss_bytes")?;
    let smallest = least(&variants, |variant| servers(variant, file, &threads))?;
    let named = |variant: Option<&Variant>| variant.map_or("–".to_owned(), ToString::to_string);
    Ok(Loads {
        model: model.to_owned(),
        times: (mine.into_iter().collect(), other.into_iter().collect()),
        megabytes: fs::metadata(file)?.len() as f64 / 1e6,
        memory: (
            [bytes / 1e6].into_iter().collect(),
            smallest.map(|(bytes, _)| bytes / 1e6).into_iter().collect(),
        ),
        best: (named(best), named(smallest.map(|(_, smallest)| smallest))),
    })
}

/// The least of what is measured, and which variant has it.
fn least<'a>(
    variants: &[&'a Variant],
    measure: impl Fn(&Variant) -> Result<f64>,
) -> Result<Option<(f64, &'a Variant)>> {
    let measured = variants.iter().map(|&variant| Ok((measure(variant)?, variant)));
    let all = measured.collect::<Result<Vec<_>>>()?;
    Ok(all.into_iter().min_by(|(a, _), (b, _)| a.total_cmp(b)))
}

/// Milliseconds that a process takes.
fn wall(command: &mut Command) -> Result<f64> {
    let begun = Instant::now();
    output(command)?;
    Ok(begun.elapsed().as_secs_f64() * 1e3)
}

/// Bytes that four of llama.cpp's servers take, each after a token.
fn servers(variant: &Variant, file: &Path, threads: &str) -> Result<f64> {
    let mut running = Vec::new();
    for _ in 0..PROCESSES {
        let address = free_address()?;
        let mut command = variant.program("llama-server");
        command
            .arg("-m")
            .arg(file)
            .args(["--port", port(&address), "-c", CONTEXT, "-np", "1", "-t", threads])
            .args(["--no-warmup", "--no-webui"])
            .args((!variant.repack()).then_some("--no-repack"));
        let server = Process::start("llama-server", command, address, "/health")?;
        let body = json!({"prompt": "The", "n_predict": 1}).to_string();
        output(
            Command::new("curl")
                .args(["-sSf", "--data-binary", &body, "-H", "Content-Type: application/json"])
                .arg(format!("http://{}/completion", server.address)),
        )?;
        running.push(server);
    }
    running.iter().map(Process::share).sum()
}

#[cfg(test)]
mod tests {
    use super::verdict;

    #[test]
    fn a_cell_is_judged_by_its_ratio_and_by_what_ours_takes() {
        assert_eq!(verdict(f64::NAN, 10.0, true), "–");
        assert_eq!(verdict(9.9, 10.0, true), "MISSED");
        assert_eq!(verdict(10.0, 10.0, false), "reached");
        assert_eq!(verdict(10.0, 10.0, true), "aim");
    }
}
