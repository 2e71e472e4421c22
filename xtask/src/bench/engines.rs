//! One process of one engine on one file.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::shell::output;

/// Tokens per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rates {
    pub(super) prefill: f64,
    pub(super) decode: f64,
    /// Bytes of weights that a decoded token reads, where the engine tells.
    pub(super) weights: Option<f64>,
}

impl Rates {
    pub(super) fn prefill(&self) -> f64 {
        self.prefill
    }

    pub(super) fn decode(&self) -> f64 {
        self.decode
    }
}

/// Whose engine, by its program.
#[derive(Debug)]
pub(super) enum Engine {
    /// `gristmill`.
    Ours(PathBuf),
    /// `llama-bench`.
    Theirs(PathBuf),
}

impl Engine {
    /// The reference build in a folder.
    pub(super) fn reference(folder: &Path) -> Result<Self> {
        let program = folder.join("plain/bin/llama-bench");
        ensure!(program.is_file(), "there is no {}", program.display());
        Ok(Self::Theirs(program))
    }

    /// Measures once, after the engine's own warm-up.
    pub(super) fn measure(
        &self,
        file: &Path,
        prefill: u32,
        decode: u32,
        threads: usize,
    ) -> Result<Rates> {
        let (prefill, decode) = (prefill.to_string(), decode.to_string());
        let threads_text = threads.to_string();
        match self {
            Self::Ours(program) => {
                let text = output(
                    Command::new(program)
                        .arg("bench")
                        .arg(file)
                        .args(["--prefill", &prefill, "--decode", &decode, "--repeat", "1"])
                        .args(["--engine-threads", &threads_text, "--engine-pin", "true"]),
                )?;
                ours(&text)
            }
            Self::Theirs(program) => {
                let mask = format!("{:#x}", (1_u64 << threads.min(63)) - 1);
                let text = output(
                    Command::new(program)
                        .arg("-m")
                        .arg(file)
                        .args(["-p", &prefill, "-n", &decode, "-r", "1", "-o", "json"])
                        .args([
                            "-t",
                            &threads_text,
                            "-C",
                            &mask,
                            "--cpu-strict",
                            "1",
                            "--poll",
                            "50",
                        ]),
                )?;
                theirs(&text)
            }
        }
    }
}

/// The last line of `gristmill bench`:
/// `{"prefill": {"per_second": …}, "decode": {"per_second": …}, "weights_bytes": …, …}`.
fn ours(text: &str) -> Result<Rates> {
    let line = text.lines().last().context("gristmill bench printed nothing")?;
    let json: Value = serde_json::from_str(line).with_context(|| format!("not JSON: {line}"))?;
    let rate = |name: &str| {
        let found = json.get(name).and_then(|part| part.get("per_second")?.as_f64());
        found.with_context(|| format!("no {name} in {line}"))
    };
    let weights = json.get("weights_bytes").and_then(Value::as_f64);
    Ok(Rates { prefill: rate("prefill")?, decode: rate("decode")?, weights })
}

/// llama-bench's list of tests, of which one has a prompt and one generates.
fn theirs(text: &str) -> Result<Rates> {
    let tests: Vec<Value> = serde_json::from_str(text).context("llama-bench did not print JSON")?;
    let rate = |field: &str| {
        let test = tests.iter().find(|test| test.get(field).and_then(Value::as_u64) > Some(0));
        test.and_then(|test| test.get("avg_ts")?.as_f64())
            .with_context(|| format!("llama-bench measured no {field}"))
    };
    Ok(Rates { prefill: rate("n_prompt")?, decode: rate("n_gen")?, weights: None })
}

#[cfg(test)]
mod tests {
    use super::{Rates, ours, theirs};

    #[test]
    fn both_engines_answers_are_read() {
        let expected = Rates { prefill: 900.5, decode: 120.25, weights: None };
        let text = r#"[{"n_prompt": 512, "n_gen": 0, "avg_ts": 900.5},
                       {"n_prompt": 0, "n_gen": 128, "avg_ts": 120.25}]"#;
        assert_eq!(theirs(text).unwrap(), expected);
        let line = "loading\n{\"prefill\": {\"per_second\": 900.5}, \
                    \"decode\": {\"per_second\": 120.25}, \"weights_bytes\": 8}\n";
        assert_eq!(ours(line).unwrap(), Rates { weights: Some(8.0), ..expected });
        assert!(ours("{\"prefill\": {}}").is_err());
        assert!(theirs("[]").is_err());
    }
}
