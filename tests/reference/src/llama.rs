//! llama.cpp as a program of its own, built from its package by `tests/reference/llama`.

use std::{
    io::{Read, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};

use crate::families::root;

/// How llama.cpp computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// As it comes.
    Usual,
    /// K and V in F32, attention unfused: for files whose weights are F32.
    Exact,
}

/// The program.
#[derive(Debug, Clone)]
pub struct Llama {
    binary: PathBuf,
}

impl Llama {
    /// Compiles it, which takes minutes the first time and nothing later.
    ///
    /// # Errors
    /// When cmake, a C++ compiler or libclang is missing, with the compiler's own words on stderr.
    pub fn build() -> Result<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("llama");
        // In its own folder: that is where cargo finds the instruction sets to compile for.
        let status = Command::new("cargo")
            .args(["build", "--quiet", "--locked"])
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .env_remove("CARGO_TARGET_DIR")
            .current_dir(&folder)
            .status()
            .context("cannot start cargo")?;
        ensure!(
            status.success(),
            "llama.cpp could not be built; it needs cmake, a C++ compiler and libclang \
             (Debian: apt-get install cmake g++ libclang-dev)"
        );
        Ok(Self { binary: root().join("target/reference/debug/llama-logits") })
    }

    /// Logits after every token of a text of which `step` tokens are computed at once, row by row.
    ///
    /// # Errors
    /// When llama.cpp refuses the file, or gives another number of rows.
    pub fn logits(
        &self,
        file: &Path,
        tokens: &[u32],
        vocabulary: usize,
        (mode, step): (Mode, usize),
        mut each: impl FnMut(usize, &[f32]),
    ) -> Result<()> {
        let mode = if mode == Mode::Usual { "usual" } else { "exact" };
        let mut child = Command::new(&self.binary)
            .arg(file)
            .args([&step.to_string(), mode])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", self.binary.display()))?;
        let line: String = tokens.iter().map(|token| format!("{token} ")).collect();
        let mut input = child.stdin.take().context("stdin is piped")?;
        input.write_all(line.as_bytes())?;
        drop(input);
        let mut output = child.stdout.take().context("stdout is piped")?;
        let mut bytes = vec![0; vocabulary * 4];
        for position in 0..tokens.len() {
            if output.read_exact(&mut bytes).is_err() {
                bail!("llama.cpp ended before position {position} ({})", child.wait()?);
            }
            let row: Vec<f32> = bytes
                .chunks_exact(4)
                .filter_map(|four| four.try_into().ok())
                .map(f32::from_le_bytes)
                .collect();
            each(position, &row);
        }
        ensure!(output.read(&mut [0])? == 0, "llama.cpp has another vocabulary than {vocabulary}");
        ensure!(child.wait()?.success(), "llama.cpp failed");
        Ok(())
    }
}
