//! One process of one engine on one file.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::cells::{Speed, Work};
use crate::shell::output;

/// Tokens per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rates {
    prefill: f64,
    decode: f64,
    /// Bytes of weights that one step of writing reads, where the engine tells.
    pub(super) weights: Option<f64>,
    /// Multiplications that a token of a prompt costs, where the engine tells.
    pub(super) products: Option<f64>,
}

impl Rates {
    pub(super) fn of(&self, speed: Speed) -> f64 {
        match speed {
            Speed::Prefill => self.prefill,
            Speed::Decode => self.decode,
        }
    }
}

/// An engine that can be measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Engine {
    /// Ours: the program.
    Gristmill(PathBuf),
    /// llama.cpp.
    Llama(Variant),
}

/// llama.cpp in one build with one set of flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Variant {
    build: PathBuf,
    flash_attention: bool,
    repack: bool,
}

impl Variant {
    /// Every build under this folder (`DIR/*/bin/llama-bench`) with every set of flags, by name.
    pub(super) fn all(folder: &Path) -> Result<Vec<Self>> {
        let mut builds = Vec::new();
        for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
            let build = entry?.path();
            if build.join("bin/llama-bench").is_file() {
                builds.push(build);
            }
        }
        ensure!(!builds.is_empty(), "there is no */bin/llama-bench in {}", folder.display());
        builds.sort();
        let flags = [(false, true), (true, true), (false, false), (true, false)];
        Ok(builds
            .iter()
            .flat_map(|build| {
                flags.map(|(flash_attention, repack)| Self {
                    build: build.clone(),
                    flash_attention,
                    repack,
                })
            })
            .collect())
    }

    /// Whether the build's name says that it uses AMX.
    pub(super) fn is_amx(&self) -> bool {
        self.build.file_name().is_some_and(|name| name == "amx")
    }

    /// Whether it computes attention by blocks.
    pub(super) fn flash_attention(&self) -> bool {
        self.flash_attention
    }

    /// Whether it brings weights into a layout of its own when it loads them.
    pub(super) fn repack(&self) -> bool {
        self.repack
    }

    /// One of the build's programs.
    pub(super) fn program(&self, name: &str) -> Command {
        Command::new(self.build.join("bin").join(name))
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let build = self.build.file_name().unwrap_or_default().to_string_lossy();
        write!(f, "{build}{}", if self.flash_attention { " fa" } else { "" })?;
        f.write_str(if self.repack { "" } else { " plain-layout" })
    }
}

impl Engine {
    /// Measures once, after the engine's own warm-up.
    pub(super) fn measure(&self, file: &Path, work: Work, threads: usize) -> Result<Rates> {
        match self {
            Self::Gristmill(program) => {
                let mut command = Command::new(program);
                command.arg("bench").arg(file).args(["--repeat", "1", "--engine-pin", "true"]);
                for (name, value) in [
                    ("--prefill", work.prefill as usize),
                    ("--decode", work.decode as usize),
                    ("--depth", work.depth as usize),
                    ("--batch", work.streams as usize),
                    ("--engine-threads", threads),
                ] {
                    command.args([name, &value.to_string()]);
                }
                ours(&output(&mut command)?)
            }
            Self::Llama(variant) => {
                let mut command = match work.streams {
                    1 => single(variant, work),
                    _ => several(variant, work),
                };
                let mask = format!("{:#x}", (1_u64 << threads.min(63)) - 1);
                command.arg("-m").arg(file).args(["-t", &threads.to_string(), "-C", &mask]);
                command.args(["--cpu-strict", "1", "--poll", "50"]);
                let text = output(&mut command)?;
                if work.streams == 1 { theirs(&text, work) } else { theirs_together(&text) }
            }
        }
    }
}

fn single(variant: &Variant, work: Work) -> Command {
    let mut command = variant.program("llama-bench");
    command
        .args(["-r", "1", "-o", "json"])
        .args(["-p", &work.prefill.to_string(), "-n", &work.decode.to_string()])
        .args(["-d", &work.depth.to_string()])
        .args(["-fa", if variant.flash_attention { "on" } else { "off" }])
        .args(["--repack", if variant.repack { "1" } else { "0" }]);
    command
}

/// Streams at once have a program of their own; a short prompt each, of which the time is apart.
fn several(variant: &Variant, work: Work) -> Command {
    const PROMPT: u32 = 8;
    let context = work.streams * (PROMPT + work.decode);
    let mut command = variant.program("llama-batched-bench");
    command
        .args(["--output-format", "jsonl", "-c", &context.to_string()])
        .args(["-npp", &PROMPT.to_string(), "-ntg", &work.decode.to_string()])
        .args(["-npl", &work.streams.to_string()])
        .args(["-fa", if variant.flash_attention { "on" } else { "off" }]);
    if !variant.repack {
        command.arg("--no-repack");
    }
    command
}

/// The last line of `gristmill bench`:
/// `{"prefill": {"per_second": …}, "decode": {"per_second": …}, "weights_bytes": …,
/// "products_per_token": …, …}`.
fn ours(text: &str) -> Result<Rates> {
    let line = text.lines().last().context("gristmill bench printed nothing")?;
    let json: Value = serde_json::from_str(line).with_context(|| format!("not JSON: {line}"))?;
    let rate = |name: &str| {
        let found = json.get(name).and_then(|part| part.get("per_second")?.as_f64());
        found.with_context(|| format!("no {name} in {line}"))
    };
    let number = |name: &str| json.get(name).and_then(Value::as_f64);
    Ok(Rates {
        prefill: rate("prefill")?,
        decode: rate("decode")?,
        weights: number("weights_bytes"),
        products: number("products_per_token"),
    })
}

/// llama-bench's list of tests, of which one has a prompt and one generates.
fn theirs(text: &str, work: Work) -> Result<Rates> {
    let tests: Vec<Value> = serde_json::from_str(text).context("llama-bench did not print JSON")?;
    let rate = |field: &str, wanted: u32| {
        if wanted == 0 {
            return Ok(0.0);
        }
        let test = tests.iter().find(|test| test.get(field).and_then(Value::as_u64) > Some(0));
        test.and_then(|test| test.get("avg_ts")?.as_f64())
            .with_context(|| format!("llama-bench measured no {field}"))
    };
    Ok(Rates {
        prefill: rate("n_prompt", work.prefill)?,
        decode: rate("n_gen", work.decode)?,
        weights: None,
        products: None,
    })
}

/// The one line of llama-batched-bench that is JSON.
fn theirs_together(text: &str) -> Result<Rates> {
    let line = text.lines().rev().find(|line| line.starts_with('{'));
    let json: Value = serde_json::from_str(line.context("llama-batched-bench printed no JSON")?)?;
    let decode = json.get("speed_tg").and_then(Value::as_f64).context("no speed_tg")?;
    Ok(Rates { prefill: 0.0, decode, weights: None, products: None })
}

#[cfg(test)]
mod tests {
    use super::{Rates, Speed, Variant, Work, ours, theirs, theirs_together};
    use crate::bench::cells::USUAL;

    #[test]
    fn every_programs_answer_is_read() {
        let expected = Rates { prefill: 900.5, decode: 120.25, weights: None, products: None };
        let text = r#"[{"n_prompt": 512, "n_gen": 0, "avg_ts": 900.5},
                       {"n_prompt": 0, "n_gen": 128, "avg_ts": 120.25}]"#;
        assert_eq!(theirs(text, USUAL).unwrap(), expected);
        assert_eq!(expected.of(Speed::Prefill), 900.5);
        let only = r#"[{"n_prompt": 0, "n_gen": 64, "avg_ts": 26.5}]"#;
        let deep = Work { prefill: 0, ..USUAL };
        assert_eq!(theirs(only, deep).unwrap().of(Speed::Decode), 26.5);
        assert!(theirs(only, USUAL).is_err());
        let line = "loading\n{\"prefill\": {\"per_second\": 900.5}, \
                    \"decode\": {\"per_second\": 120.25}, \"weights_bytes\": 8, \
                    \"products_per_token\": 4}\n";
        let told = Rates { weights: Some(8.0), products: Some(4.0), ..expected };
        assert_eq!(ours(line).unwrap(), told);
        assert!(ours("{\"prefill\": {}}").is_err());
        assert!(theirs("[]", USUAL).is_err());
        let together = "build 1\n{\"speed_pp\": 1.0, \"speed_tg\": 464.0}\n";
        assert_eq!(theirs_together(together).unwrap().of(Speed::Decode), 464.0);
        assert!(theirs_together("nothing").is_err());
    }

    #[test]
    fn builds_are_found_and_flags_are_named() {
        let folder =
            std::env::temp_dir().join(format!("gristmill-variants-{}", std::process::id()));
        assert!(Variant::all(&folder).is_err());
        for build in ["plain", "amx"] {
            std::fs::create_dir_all(folder.join(build).join("bin")).unwrap();
            std::fs::write(folder.join(build).join("bin/llama-bench"), "").unwrap();
        }
        std::fs::create_dir_all(folder.join("source")).unwrap();
        let all = Variant::all(&folder).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let names: Vec<String> = all.iter().map(ToString::to_string).collect();
        assert_eq!(names[..4], ["amx", "amx fa", "amx plain-layout", "amx fa plain-layout"]);
        assert_eq!((names.len(), all[0].is_amx(), all[4].is_amx()), (8, true, false));
    }
}
