//! One streamed answer over HTTP from the real server: how much of it was spent outside the engine,
//! and how much memory the server took.

use std::{
    fmt, fs,
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::process::{Process, free_address};
use crate::{
    build::installed_command,
    shell::{root, run},
};

/// Context the server may plan for.
const CONTEXT: u64 = 1024;
/// What the server may take beside the file and the cache.
const ALLOWED: u64 = 200_000_000;

/// What was measured.
#[derive(Debug)]
pub(super) struct Answer {
    tokens: u64,
    wall: f64,
    engine: f64,
    peak: u64,
    /// File, cache of [`CONTEXT`] tokens and [`ALLOWED`], where the cache's size is known.
    limit: Option<u64>,
}

impl Answer {
    fn outside(&self) -> f64 {
        (self.wall - self.engine) / self.wall * 100.0
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "tokens": self.tokens, "wall_seconds": self.wall, "engine_seconds": self.engine,
            "outside_percent": self.outside(), "peak_bytes": self.peak, "limit_bytes": self.limit,
        })
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} tokens over HTTP in {:.3} s, {:.2} % of it outside the engine; server at most {:.0} MB",
            self.tokens,
            self.wall,
            self.outside(),
            self.peak as f64 / 1e6
        )?;
        match self.limit {
            Some(limit) => write!(f, ", allowed {:.0} MB", limit as f64 / 1e6),
            None => Ok(()),
        }
    }
}

/// Bytes of keys and values per token in F16: layers × key/value heads × head width × 2 × 2.
fn cache_per_token(model: &str) -> Option<u64> {
    match model {
        "smollm2" => Some(30 * 3 * 64 * 4),
        "gemma3" => Some(18 * 256 * 4),
        _ => None,
    }
}

/// Serves the file, asks twice and measures the second answer.
pub(super) fn measure(binary: &Path, file: &Path, model: &str) -> Result<Answer> {
    let store = root().join("target/bench-store");
    let mut import = Command::new(binary);
    import.arg("import").arg(file).args(["--name", "bench"]).env("GRISTMILL_PATHS_MODELS", &store);
    run(&mut import)?;
    let address = free_address()?;
    let mut command = installed_command(binary);
    command
        .args(["serve", "--server-listen", &address])
        .args(["--engine-context", &CONTEXT.to_string(), "--log-filter", "warn"])
        .env("GRISTMILL_PATHS_MODELS", &store);
    let server = Process::start("gristmill", command, address, "/readyz")?;
    let url = format!("http://{}/api/generate", server.address);
    ask(&url)?;
    let (wall, last) = ask(&url)?;
    let number = |name: &str| {
        last.get(name).and_then(Value::as_u64).with_context(|| format!("no {name} in {last}"))
    };
    let engine = (number("prompt_eval_duration")? + number("eval_duration")?) as f64 / 1e9;
    let size = fs::metadata(file)?.len();
    Ok(Answer {
        tokens: number("eval_count")?,
        wall,
        engine,
        peak: server.peak()? as u64,
        limit: cache_per_token(model).map(|bytes| size + bytes * CONTEXT + ALLOWED),
    })
}

/// Seconds until the whole answer was here, and its last line.
fn ask(url: &str) -> Result<(f64, Value)> {
    let body = json!({
        "model": "bench", "prompt": "Count: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,", "raw": true,
        "options": {"num_predict": 128, "temperature": 0},
    });
    let mut curl = Command::new("curl")
        .args(["-sS", "-N", "--fail-with-body", "--data-binary", "@-"])
        .args(["-H", "Content-Type: application/json", "-w", "\n%{time_total}", url])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("curl is needed to ask the server")?;
    curl.stdin.take().context("stdin is piped")?.write_all(body.to_string().as_bytes())?;
    let done = curl.wait_with_output()?;
    let text = String::from_utf8_lossy(&done.stdout);
    ensure!(done.status.success(), "the server answered: {text}");
    let (lines, seconds) = text.trim_end().rsplit_once('\n').context("no time from curl")?;
    let last = lines.trim_end().lines().last().context("an empty answer")?;
    Ok((seconds.parse()?, serde_json::from_str(last)?))
}
