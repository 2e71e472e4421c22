//! From the start of a process to its first token, and the memory of four processes on one model.
//!
//! Ours has its package made and both engines' files are in the page cache. A process's time is that
//! of the whole process, from its start to its end, with one token in between; llama.cpp's is
//! llama-bench, which loads the file and computes a token without reading or writing any text.
//! Memory is the sum of the processes' proportional shares, so that what they share counts once.

use std::{
    fs,
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::{engines::Variant, stats::Series};
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
const PATIENCE: Duration = Duration::from_secs(60);

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
    let best = least(&variants, |variant| wall(&mut theirs(variant)))?;
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
    let mut megabytes = None;
    let smallest = least(&variants, |variant| {
        let found = servers(variant, file, &threads)? as f64 / 1e6;
        megabytes = Some(megabytes.map_or(found, |least: f64| least.min(found)));
        Ok(found)
    })?;
    let named = |variant: Option<&Variant>| variant.map_or("–".to_owned(), ToString::to_string);
    Ok(Loads {
        model: model.to_owned(),
        times: (mine.into_iter().collect(), other.into_iter().collect()),
        megabytes: fs::metadata(file)?.len() as f64 / 1e6,
        memory: ([bytes / 1e6].into_iter().collect(), megabytes.into_iter().collect()),
        best: (named(best), named(smallest)),
    })
}

/// The variant with the least of what is measured.
fn least<'a>(
    variants: &[&'a Variant],
    mut measure: impl FnMut(&Variant) -> Result<f64>,
) -> Result<Option<&'a Variant>> {
    let mut best: Option<(f64, &Variant)> = None;
    for &variant in variants {
        let found = measure(variant)?;
        if best.is_none_or(|(least, _)| found < least) {
            best = Some((found, variant));
        }
    }
    Ok(best.map(|(_, variant)| variant))
}

/// Milliseconds that a process takes.
fn wall(command: &mut Command) -> Result<f64> {
    let begun = Instant::now();
    output(command)?;
    Ok(begun.elapsed().as_secs_f64() * 1e3)
}

/// Bytes that four of llama.cpp's servers take, each after a token.
fn servers(variant: &Variant, file: &Path, threads: &str) -> Result<u64> {
    let mut running = Vec::new();
    for _ in 0..PROCESSES {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut command = variant.program("llama-server");
        command
            .arg("-m")
            .arg(file)
            .args(["--port", &address.port().to_string(), "-c", CONTEXT, "-np", "1"])
            .args(["-t", threads, "--no-warmup", "--no-webui"])
            .args(if variant.repack() { &[] as &[&str] } else { &["--no-repack"] })
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut server = Server(command.spawn().context("cannot start llama-server")?);
        server.wait_for(&format!("http://{address}/health"))?;
        let body = json!({"prompt": "The", "n_predict": 1}).to_string();
        output(
            Command::new("curl")
                .args(["-sSf", "--data-binary", &body, "-H", "Content-Type: application/json"])
                .arg(format!("http://{address}/completion")),
        )?;
        running.push(server);
    }
    running.iter().map(Server::share).sum()
}

struct Server(Child);

impl Server {
    fn wait_for(&mut self, url: &str) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if let Some(status) = self.0.try_wait()? {
                bail!("llama-server ended at once ({status})");
            }
            if output(Command::new("curl").args(["-sf", "-o", "/dev/null", url])).is_ok() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(20));
        }
        bail!("llama-server was not ready within {PATIENCE:?}")
    }

    /// Its proportional share of memory, in bytes.
    fn share(&self) -> Result<u64> {
        let text = fs::read_to_string(format!("/proc/{}/smaps_rollup", self.0.id()))?;
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).context("no Pss")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
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
