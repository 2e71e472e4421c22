//! A server's process: started, waited for, looked at in /proc, and ended with the bench.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::shell::root;

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
    pub(super) fn start(
        name: &str,
        mut command: Command,
        address: String,
        path: &str,
    ) -> Result<Self> {
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
        Ok(self.bytes("status", "VmRSS:")? / (1 << 20) as f64)
    }

    /// The most bytes it has had in memory so far.
    pub(super) fn peak(&self) -> Result<f64> {
        self.bytes("status", "VmHWM:")
    }

    /// Its proportional share of the memory it maps, in bytes: what several share counts once in all.
    pub(super) fn share(&self) -> Result<f64> {
        self.bytes("smaps_rollup", "Pss:")
    }

    /// A line of a file in its folder of /proc, in bytes.
    fn bytes(&self, file: &str, name: &str) -> Result<f64> {
        let text = fs::read_to_string(format!("/proc/{}/{file}", self.child.id()))?;
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let line = line.with_context(|| format!("no {name} in /proc"))?;
        Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? * 1024.0)
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

/// A free one on this machine.
pub(super) fn free_address() -> Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

/// The port of one.
pub(super) fn port(address: &str) -> &str {
    address.rsplit(':').next().unwrap_or_default()
}
