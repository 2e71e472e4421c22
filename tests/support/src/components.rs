//! The first-party components and a distribution's `share` folder made of them.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

/// The repository's root.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The folder of the built components; builds what is not fresh, once for all test processes.
///
/// # Errors
/// When they do not build.
pub fn components() -> Result<PathBuf> {
    let target = root().join("target/plugins");
    fs::create_dir_all(&target)?;
    let lock = File::create(target.join(".build.lock"))?;
    lock.lock()?;
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["xtask", "plugins"])
        .current_dir(root())
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("RUSTFLAGS")
        .output()
        .context("cargo is needed to build the components")?;
    ensure!(
        output.status.success(),
        "the components do not build: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(target)
}

/// Lays out `plugins`, `ledger` and `policies` in `folder`, with pins made by this binary for what
/// was just built, and returns the settings that point there.
///
/// # Errors
/// When the components do not build, or the binary refuses to pin one.
pub fn share(binary: &Path, folder: &Path) -> Result<Vec<(&'static str, PathBuf)>> {
    let built = components()?;
    let plugins = folder.join("plugins");
    fs::create_dir_all(&plugins)?;
    for kind in ["policies/grants", "policies/parameters", "policies/profiles"] {
        fs::create_dir_all(folder.join(kind))?;
        for entry in fs::read_dir(root().join(kind))? {
            let entry = entry?;
            fs::copy(entry.path(), folder.join(kind).join(entry.file_name()))?;
        }
    }
    let approvals = "policies/approvals.toml";
    fs::copy(root().join(approvals), folder.join(approvals))?;
    let mut files = Vec::new();
    for entry in fs::read_dir(built)? {
        let entry = entry?;
        if entry.path().extension().is_some_and(|extension| extension == "wasm") {
            let copy = plugins.join(entry.file_name());
            fs::copy(entry.path(), &copy)?;
            files.push(copy);
        }
    }
    let output = Command::new(binary)
        .args(["plugin", "pin", "--ledger"])
        .arg(folder.join("ledger"))
        .args(&files)
        .output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(vec![
        ("GRISTMILL_PATHS_PLUGINS", plugins),
        ("GRISTMILL_PATHS_LEDGER", folder.join("ledger")),
        ("GRISTMILL_PATHS_POLICIES", folder.join("policies")),
        ("GRISTMILL_PATHS_MODELS", folder.join("models")),
    ])
}
