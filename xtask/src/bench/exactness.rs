//! How close both engines' distributions are to a plain f32 pass: what the comparison of logits
//! prints, which fails when ours is further away than llama.cpp's.

use anyhow::{Result, ensure};

use crate::shell::{cargo, output};

/// Runs the comparison; its lines, sorted by model.
pub(super) fn measure() -> Result<Vec<String>> {
    let text = output(
        cargo()
            .args(["nextest", "run", "--locked", "--workspace", "--no-capture"])
            .args(["--features", "gristmill-reference/llama"])
            .args(["--filterset", "binary_id(gristmill-reference::logits)"]),
    )?;
    let mut lines: Vec<String> =
        text.lines().filter(|line| line.contains("KL")).map(str::to_owned).collect();
    lines.sort();
    ensure!(!lines.is_empty(), "the comparison of logits printed nothing");
    Ok(lines)
}
