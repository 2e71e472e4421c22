//! What a build needs beyond Rust, git and Python: installed when we may, named when we may not.

use anyhow::{Result, bail};

use crate::shell::{exists, output, program, run};

/// Debian packages: C parts of dependencies, the llama.cpp that the tests compare with (its bindings
/// are made with libclang), the client tests.
const PACKAGES: [&str; 5] = ["build-essential", "cmake", "libclang-dev", "curl", "python3-venv"];

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
pub(crate) fn packages() -> Result<()> {
    if !exists("dpkg-query", "--version") {
        eprintln!("note: not Debian; the tests need {}, nodejs, npm", PACKAGES.join(", "));
        return Ok(());
    }
    let mut missing: Vec<&str> =
        PACKAGES.into_iter().filter(|package| !installed(package)).collect();
    // Often installed in other ways, for the clients in JavaScript.
    let tools = [("node", "nodejs"), ("npm", "npm")];
    missing.extend(
        tools.into_iter().filter(|(tool, _)| !exists(tool, "--version")).map(|(_, name)| name),
    );
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

fn installed(package: &str) -> bool {
    output(program("dpkg-query").args(["--show", "--showformat=${db:Status-Status}", package]))
        .is_ok_and(|status| status == "installed")
}

/// The test runner.
fn nextest() -> Result<()> {
    if exists("cargo-nextest", "--version") {
        return Ok(());
    }
    run(program("cargo").args(["install", "--locked", "cargo-nextest"]))
}
