//! Every test, fast ones first: the host's crates, the SDK and the plugins, the numbers against
//! llama.cpp, the bridges against a real llama-server, the official clients against the real server.

use std::{fs, path::Path};

use anyhow::Result;

use crate::{
    build, servers, setup,
    shell::{cargo, program, root, run},
};

/// Runs everything, or only the host tests whose names match the filter.
pub(crate) fn test(filter: &[String]) -> Result<()> {
    setup::all()?;
    if !filter.is_empty() {
        return run(cargo().args(["nextest", "run", "--workspace"]).args(filter));
    }
    build::components()?;
    run(cargo().args(["nextest", "run", "--workspace", "--locked"]))?;
    run(cargo()
        .args(["test", "--quiet", "--locked", "--all-features"])
        .args(["--manifest-path", "sdk/rust/Cargo.toml"]))?;
    for workspace in ["plugins/Cargo.toml", "plugins/probes/Cargo.toml"] {
        run(cargo()
            .args(["test", "--quiet", "--locked", "--workspace", "--exclude", "gristmill-plugin"])
            .args(["--manifest-path", workspace]))?;
    }
    reference()?;
    servers::test()?;
    clients()
}

/// Logits against llama.cpp, which only this crate compiles.
fn reference() -> Result<()> {
    // The whole workspace is named so that its dependencies keep the features they were built with.
    run(cargo()
        .args(["nextest", "run", "--locked", "--workspace"])
        .args(["--features", "gristmill-reference/llama"])
        .args(["--filterset", "binary_id(gristmill-reference::logits)", "--no-capture"]))
}

/// Unmodified clients against the distribution.
fn clients() -> Result<()> {
    let binary = build::dist(build::Host::Tested)?;
    let python = venv(&root().join("target/clients"), &["tests/clients/requirements.txt"])?;
    let foreign = ["tests/clients/foreign/requirements.txt", "--no-deps"];
    venv(&root().join("target/foreign"), &foreign)?;
    node(&root().join("target/clients-node"))?;
    run(program(&python)
        .args(["-m", "pytest", "-q", "tests/clients"])
        .env("GRISTMILL_BINARY", binary))
}

/// The official packages for JavaScript, where `tests/clients/test_node.py` looks for them.
fn node(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let wanted = root().join("tests/clients/node/package.json");
    fs::copy(wanted, folder.join("package.json"))?;
    run(program("npm").args(["install", "--silent", "--no-audit", "--no-fund"]).current_dir(folder))
}

/// A Python of its own with what this file lists; `wanted`: the file, and pip's options.
fn venv(folder: &Path, wanted: &[&str]) -> Result<String> {
    let python = folder.join("bin/python").display().to_string();
    if !Path::new(&python).exists() {
        run(program("python3").args(["-m", "venv"]).arg(folder))?;
    }
    run(program(&python)
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"])
        .args(wanted))?;
    Ok(python)
}
