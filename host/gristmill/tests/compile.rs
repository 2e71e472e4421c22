//! The program is the compiler of its own sandbox, in a process that is bounded.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may fail loudly")]

use std::{
    io::Write,
    process::{Command, Output, Stdio},
};

use gristmill_testing::guests;

/// What the compiler says to a component, within bounds that a shell has set, to where that sent it.
fn compile(bounds: &str, redirection: &str, component: &[u8]) -> Output {
    let script =
        format!("{bounds}exec {} compile-stdin {redirection}", env!("CARGO_BIN_EXE_gristmill"));
    let mut child = Command::new("/bin/sh")
        .args(["-c", &script])
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // One that is ended early does not read all of it.
    let _ = child.stdin.take().unwrap().write_all(component);
    child.wait_with_output().unwrap()
}

#[test]
fn a_component_becomes_code_and_other_bytes_a_reason() {
    let component = guests::guest("teller").unwrap();
    let done = compile("", "", &component);
    assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(done.stdout.get(..4), Some(&b"\x7fELF"[..]), "an object file, as wasmtime has it");
    assert!(done.stdout.len() > component.len() / 4);

    for bytes in [&b"no component"[..], b"", component.get(..component.len() / 2).unwrap()] {
        let done = compile("", "", bytes);
        assert_eq!((done.status.code(), done.stdout.len()), (Some(2), 0));
        let reason = String::from_utf8(done.stderr).unwrap();
        assert!(!reason.trim().is_empty() && reason.lines().count() == 1, "{reason}");
    }
}

#[test]
fn bounds_hold_and_tighter_ones_stay() {
    let component = guests::guest("teller").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("code");
    // Forty megabytes are too few; and not even what the shell opened for it is written to.
    for (bounds, redirection) in
        [("ulimit -v 40000; ", String::new()), ("", format!("> {}", file.display()))]
    {
        let done = compile(bounds, &redirection, &component);
        assert!(!matches!(done.status.code(), Some(0 | 2)), "{bounds}{:?}", done.status);
        assert!(done.stdout.is_empty(), "{bounds}");
    }
    assert_eq!(std::fs::metadata(file).unwrap().len(), 0);
}
