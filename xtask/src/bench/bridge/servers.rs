//! The processes between which the bench compares: a llama-server, Gristmill in front of it, and the
//! litellm proxy in front of it.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::{
    build::installed_command,
    shell::{program, root, run},
};

/// Loading a model, or importing a large Python package, on a busy machine.
const START: Duration = Duration::from_secs(180);

/// A server process, ended with the bench.
pub(super) struct Process {
    child: Child,
    /// `127.0.0.1:PORT`.
    pub(super) address: String,
}

impl Process {
    /// Starts it and waits until `path` answers 200. Its output goes to `target/bench-NAME.log`.
    fn start(name: &str, mut command: Command, address: String, path: &str) -> Result<Self> {
        let log = root().join(format!("target/bench-{name}.log"));
        let file = fs::File::create(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let mut process = Self { child, address };
        let begun = Instant::now();
        while !answers(&process.address, path) {
            if let Some(status) = process.child.try_wait()? {
                bail!("{name} ended at once ({status}); see {}", log.display());
            }
            if begun.elapsed() > START {
                bail!("{name} was not ready within {START:?}; see {}", log.display());
            }
            thread::sleep(Duration::from_millis(100));
        }
        Ok(process)
    }

    /// Seconds of processor time so far.
    pub(super) fn cpu(&self) -> Result<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok());
        // Fields 14 and 15 of proc(5), of which two are before the closing parenthesis.
        let (user, system) = ticks(11).zip(ticks(12)).context("no times in /proc")?;
        Ok((user + system) / 100.0)
    }

    /// MiB in memory now.
    pub(super) fn memory(&self) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line =
            status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn answers(address: &str, path: &str) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    let mut answer = [0; 12];
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.set_read_timeout(Some(Duration::from_secs(10))).is_ok()
        && stream.write_all(request.as_bytes()).is_ok()
        && stream.read_exact(&mut answer).is_ok()
        && answer.ends_with(b"200")
}

fn free_address() -> Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

fn port(address: &str) -> &str {
    address.rsplit(':').next().unwrap_or_default()
}

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
