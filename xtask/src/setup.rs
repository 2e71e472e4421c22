//! What a build needs beyond Rust, git and Python: installed when we may, named when we may not.

use anyhow::{Result, bail};

use crate::shell::{exists, output, program, run};

/// Debian packages, each with the program that shows it is there and what needs it.
const PACKAGES: [(&str, &str, &str); 3] = [
    ("build-essential", "cc", "C parts of dependencies"),
    ("cmake", "cmake", "the reference llama.cpp of the tests"),
    ("curl", "curl", "the client tests"),
];

/// Everything the tests need.
pub(crate) fn all() -> Result<()> {
    wasm_target()?;
    packages()?;
    nextest()
}

/// The target that plugins are built for.
pub(crate) fn wasm_target() -> Result<()> {
    let sysroot = output(program("rustc").args(["--print", "sysroot"]))?;
    if std::path::Path::new(sysroot.trim()).join("lib/rustlib/wasm32-wasip2").is_dir() {
        return Ok(());
    }
    if !exists("rustup", "--version") {
        bail!(
            "the Rust target wasm32-wasip2 is missing and there is no rustup here: \
             install the target with the tool that installed rustc"
        );
    }
    run(program("rustup").args(["target", "add", "wasm32-wasip2"]))
}

/// The Debian packages.
fn packages() -> Result<()> {
    let missing: Vec<&str> = PACKAGES
        .iter()
        .filter(|(_, probe, _)| !exists(probe, "--version"))
        .map(|(name, ..)| *name)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let root = output(program("id").arg("-u"))?.trim() == "0";
    if !root || !exists("apt-get", "--version") {
        bail!("missing packages; run: sudo apt-get install -y {}", missing.join(" "));
    }
    run(program("apt-get").args(["update", "-q"]))?;
    run(program("apt-get").args(["install", "-y", "-q"]).args(&missing))
}

/// The test runner.
fn nextest() -> Result<()> {
    if exists("cargo-nextest", "--version") {
        return Ok(());
    }
    run(program("cargo").args(["install", "--locked", "cargo-nextest"]))
}
