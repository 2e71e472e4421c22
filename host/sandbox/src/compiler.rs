//! The compiler in a process of its own.
//!
//! Compiling is the one thing that is done with a component before any of its limits hold. In its own
//! process the compiler's hunger, its crash and its endless loop are that process's: it gets a component
//! on its standard input, and may use so much memory, time on a processor and time on the clock
//! ([`MEMORY`], [`CPU`], [`PATIENCE`]); it writes no file and yields to whoever answers requests. What it
//! gives back is machine code, which this process runs as it would its own: the wall that a guest runs
//! into is WebAssembly's, and not this one.

use std::{
    io::{self, Read, Write},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use wasmtime::Engine;

use crate::{
    inspect::MAX_COMPONENT_BYTES,
    load::{LoadError, one_line},
    sandbox::engine_config,
};

/// Address space of the compiler's process, in bytes. A component of 400 KB, the largest of the tree, takes
/// 35 MB and half a second; one of the largest size that is read is eighty times as long.
const MEMORY: u64 = 4 << 30;
/// Seconds on a processor, over all of its threads.
const CPU: u64 = 120;
/// What it may take by the clock.
const PATIENCE: Duration = Duration::from_secs(300);
/// How much it yields to others, of 19.
const NICE: i32 = 10;
/// Bytes of machine code.
const MOST_CODE: u64 = 256 << 20;
/// Bytes of its last words.
const MOST_WORDS: u64 = 2048;
/// What it ends with when the component is at fault.
const REFUSED: i32 = 2;

/// A command that calls [`compile_stdin`] and does nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiler {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
}

impl Compiler {
    /// The machine code of a component.
    ///
    /// # Errors
    /// [`LoadError::Invalid`] with the compiler's reason, or [`LoadError::Compiler`] where it came to no
    /// end.
    pub(crate) fn compile(&self, component: &[u8]) -> Result<Vec<u8>, LoadError> {
        self.compile_within(component, PATIENCE)
    }

    fn compile_within(&self, component: &[u8], patience: Duration) -> Result<Vec<u8>, LoadError> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).env_clear().current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| {
            LoadError::Compiler(format!("{} does not start: {error}", self.program.display()))
        })?;
        let (said, status) = converse(&mut child, component, patience);
        let Said { code, words } = said?;
        let status = status.map_err(|error| LoadError::Compiler(error.to_string()))?;
        let words: String = words.trim().chars().take(512).collect();
        match status.code() {
            Some(0) if code.len() as u64 > MOST_CODE => {
                Err(LoadError::Compiler(format!("more than {MOST_CODE} bytes of machine code")))
            }
            Some(0) => Ok(code),
            Some(REFUSED) => Err(LoadError::Invalid(words)),
            _ => Err(LoadError::Compiler(format!("{status}: {words}"))),
        }
    }
}

struct Said {
    code: Vec<u8>,
    words: String,
}

/// Gives it the component and hears it to its end, or ends it. Each pipe has a thread of its own: nobody
/// waits for one while the other end waits for another.
fn converse(
    child: &mut Child,
    component: &[u8],
    patience: Duration,
) -> (Result<Said, LoadError>, io::Result<ExitStatus>) {
    let (input, output, words) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (done, heard) = mpsc::channel();
    thread::scope(|scope| {
        // Who ends before it has read everything says why with its status.
        scope.spawn(move || input.map(|mut input| input.write_all(component)));
        let words = scope.spawn(move || all(words, MOST_WORDS));
        scope.spawn(move || done.send(all(output, MOST_CODE + 1)));
        let code = heard.recv_timeout(patience);
        if code.is_err() {
            let _ = child.kill();
        }
        let status = child.wait();
        let said = match code {
            Ok(code) => code.map_err(|error| LoadError::Compiler(error.to_string())).map(|code| {
                let words = words.join().ok().and_then(Result::ok).unwrap_or_default();
                Said { code, words: String::from_utf8_lossy(&words).into_owned() }
            }),
            Err(_) => Err(LoadError::Compiler(format!("no end within {} s", patience.as_secs()))),
        };
        (said, status)
    })
}

fn all(pipe: Option<impl Read>, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(most).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// What the compiler's process does: reads a component, writes its machine code, and gives the code to
/// exit with. The reason of a refusal goes to standard error.
#[must_use]
pub fn compile_stdin() -> i32 {
    match limit().and_then(|()| read()) {
        Err(error) => {
            eprintln!("{error}");
            1
        }
        Ok(component) => match code(&component) {
            Err(error) => {
                eprintln!("{}", one_line(&error));
                REFUSED
            }
            Ok(code) => i32::from(io::stdout().write_all(&code).is_err()),
        },
    }
}

fn read() -> io::Result<Vec<u8>> {
    let mut component = Vec::new();
    io::stdin().take(MAX_COMPONENT_BYTES as u64).read_to_end(&mut component)?;
    Ok(component)
}

fn code(component: &[u8]) -> wasmtime::Result<Vec<u8>> {
    Engine::new(&engine_config(None))?.precompile_component(component)
}

/// Bounds this process before it has read a byte.
fn limit() -> io::Result<()> {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, nice, setrlimit};
        for (resource, most) in [
            (Resource::As, MEMORY),
            (Resource::Cpu, CPU),
            (Resource::Fsize, 0),
            (Resource::Core, 0),
        ] {
            // A bound that is tighter already stays.
            let most = getrlimit(resource).maximum.map_or(most, |hard| hard.min(most));
            setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
        }
        nice(NICE)?;
    }
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn shell(script: &str) -> Compiler {
        let arguments = ["-c", script].map(str::to_owned).to_vec();
        Compiler { program: "/bin/sh".into(), arguments }
    }

    #[test]
    fn whatever_becomes_of_the_compiler_is_said() {
        let component = vec![0; 1 << 20];
        for (script, code, words) in [
            ("kill -9 $$", "compile-failed", "signal: 9"),
            ("exit 1", "compile-failed", "exit status: 1"),
            ("echo out of memory >&2; exit 134", "compile-failed", "out of memory"),
            (
                "cat >/dev/null; echo unknown import >&2; exit 2",
                "invalid-component",
                "unknown import",
            ),
            ("while echo; do :; done >&2; exit 2", "compile-failed", "SIGPIPE"),
        ] {
            let error = shell(script).compile(&component).unwrap_err();
            assert_eq!(error.code(), code, "{script}: {error}");
            assert!(error.to_string().contains(words), "{script}: {error}");
        }
        assert_eq!(shell("cat").compile(&component).unwrap(), component);
        let gone = Compiler { program: "/nowhere/gristmill".into(), arguments: Vec::new() };
        let error = gone.compile(&component).unwrap_err();
        assert!(error.to_string().contains("/nowhere/gristmill"), "{error}");
    }

    #[test]
    fn it_is_ended_when_its_time_is_over() {
        for script in ["exec sleep 1000", "exec cat /dev/zero >&2", "exec tail -f /dev/null"] {
            let error = shell(script).compile_within(&[0; 1 << 20], Duration::ZERO).unwrap_err();
            assert_eq!(error.code(), "compile-failed", "{script}");
        }
    }

    #[test]
    fn it_gets_nothing_of_this_process_but_the_component() {
        let told = shell("cat >/dev/null; env; pwd").compile(b"").unwrap();
        let told = String::from_utf8(told).unwrap();
        assert!(told.lines().any(|line| line == "/"), "{told}");
        assert!(!told.contains("CARGO") && !told.contains("HOME="), "{told}");
    }
}
