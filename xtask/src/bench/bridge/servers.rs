//! The processes between which the bench compares: a llama-server, Gristmill in front of it, and the
//! litellm proxy in front of it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use crate::{
    bench::process::{Process, free_address, port},
    build::installed_command,
    shell::{program, root, run},
};

/// The model as the servers call it.
pub(super) const MODEL: &str = "demo";

/// llama.cpp's server with a place for every stream.
pub(super) fn llama_server(
    binary: &Path,
    model: &Path,
    streams: usize,
    threads: usize,
) -> Result<Process> {
    let address = free_address()?;
    let mut command = Command::new(binary);
    command
        .args(["--host", "127.0.0.1", "--port", port(&address), "--alias", MODEL, "--model"])
        .arg(model)
        .args(["--parallel", &streams.to_string(), "--threads", &threads.to_string()])
        .args(["--ctx-size", &(streams * 512).to_string()]);
    Process::start("llama-server", command, address, "/health")
}

/// Gristmill with bridges to both servers and no engine of its own.
pub(super) fn gristmill(binary: &Path, real: &str, fake: &str, waiting: usize) -> Result<Process> {
    let address = free_address()?;
    let mut command = installed_command(binary);
    command
        .args(["serve", "--server-listen", &address, "--plugins-backend", ""])
        .args(["--log-filter", "error"])
        .args(["--backend", &format!("real=llama-server,http://{real}")])
        .args(["--backend", &format!("fake=openai-compatible,http://{fake},queued={waiting}")]);
    Process::start("gristmill", command, address, "/healthz")
}

/// The litellm proxy, installed from PyPI into an environment under `target` the first time.
pub(super) fn litellm(real: &str, fake: &str) -> Result<Process> {
    let python = environment()?;
    let address = free_address()?;
    let config = root().join("target/bench-litellm.yaml");
    let entry = |name: &str, model: &str, address: &str| {
        format!(
            "  - model_name: {name}\n    litellm_params:\n      model: openai/{model}\n      \
             api_base: http://{address}/v1\n      api_key: none\n"
        )
    };
    let list = entry("real", MODEL, real) + &entry("fake", super::fake::MODEL, fake);
    fs::write(&config, format!("model_list:\n{list}"))?;
    let mut command = Command::new(python.join("bin/litellm"));
    command
        .args(["--host", "127.0.0.1", "--port", port(&address), "--config"])
        .arg(&config)
        // It would fetch a price list from elsewhere when it starts.
        .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        // It is reached from this machine alone.
        .env("LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY", "true");
    Process::start("litellm", command, address, "/health/liveliness")
}

fn environment() -> Result<PathBuf> {
    let folder = root().join("target/bench-litellm");
    if !folder.join("bin/litellm").is_file() {
        run(program("python3").args(["-m", "venv"]).arg(&folder))?;
        let pip = folder.join("bin/pip");
        run(Command::new(pip).args(["install", "--quiet", "litellm[proxy]==1.106.12"]))?;
    }
    Ok(folder)
}
