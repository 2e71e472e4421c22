//! The hostile guests of `tests/guests`, built for wasm32-wasip2 when a test first asks for one.
//!
//! Concurrent test processes build once: cargo runs under a file lock, and finds nothing to do for
//! whoever comes second.

use std::{
    env, fs,
    fs::File,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use anyhow::{Context, Result, ensure};

/// The bytes of the guest with this name: `hostile`, `describe`, `family`, `probe`, `liar`, `liar_slower`,
/// `liar_worse`, `teller`, `teller_next` or `teller_worse`.
///
/// # Errors
/// When the guests cannot be built, or there is none of that name.
pub fn guest(name: &str) -> Result<Vec<u8>> {
    let path = folder()?.join(format!("{name}.wasm"));
    fs::read(&path).with_context(|| format!("no guest {name} at {}", path.display()))
}

/// The folder of the built guests, `<name>.wasm` each.
///
/// # Errors
/// When they cannot be built.
pub fn folder() -> Result<PathBuf> {
    static FOLDER: OnceLock<std::result::Result<PathBuf, String>> = OnceLock::new();
    FOLDER
        .get_or_init(|| build().map_err(|error| format!("{error:#}")))
        .clone()
        .map_err(anyhow::Error::msg)
}

/// The folder of the guests' sources.
#[must_use]
pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../guests")
}

fn build() -> Result<PathBuf> {
    let target = sources().join("target");
    fs::create_dir_all(&target)?;
    let lock = File::create(target.join(".build.lock"))?;
    lock.lock()?;

    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--quiet", "--locked", "--release", "--target", "wasm32-wasip2"])
        .arg("--manifest-path")
        .arg(sources().join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        // What this process was started with is meant for the host, not for guests.
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("CARGO_BUILD_TARGET")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTFLAGS")
        .output()
        .context("cargo is needed to build the guests")?;
    ensure!(
        output.status.success(),
        "the guests do not build (is the target there? rustup target add wasm32-wasip2): {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(target.join("wasm32-wasip2/release"))
}
