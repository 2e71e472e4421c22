//! What a reviewer should not have to look for: format, lints, licences, pins that match.

use anyhow::Result;

use crate::{
    build, setup,
    shell::{cargo, exists, run},
};

/// Workspaces beside the host's, and how their code is meant to be built.
const OTHERS: [(&str, &[&str]); 4] = [
    ("sdk/rust/Cargo.toml", &["--all-features", "--all-targets"]),
    ("plugins/Cargo.toml", &["--target", "wasm32-wasip2"]),
    ("plugins/probes/Cargo.toml", &["--target", "wasm32-wasip2"]),
    ("tests/guests/Cargo.toml", &["--target", "wasm32-wasip2"]),
];

/// All of it. Tidy rules and the contract's own check are tests of `xtask` and `host/sandbox`.
pub(crate) fn check() -> Result<()> {
    setup::wasm_target()?;
    run(cargo().args(["fmt", "--all", "--check"]))?;
    for (manifest, _) in OTHERS {
        run(cargo().args(["fmt", "--all", "--check", "--manifest-path", manifest]))?;
    }
    run(cargo()
        .args(["clippy", "--workspace", "--all-targets", "--locked", "--quiet"])
        .args(DENY))?;
    for (manifest, options) in OTHERS {
        run(cargo()
            .args(["clippy", "--all", "--locked", "--quiet", "--manifest-path", manifest])
            .args(options)
            .args(DENY))?;
    }
    if exists("cargo-deny", "--version") {
        run(cargo().args(["deny", "--workspace", "check", "bans", "licenses", "sources"]))?;
    } else {
        eprintln!("note: cargo-deny is not installed; licences and sources were not checked");
    }
    build::components().map(|_| ())
}

const DENY: [&str; 3] = ["--", "-D", "warnings"];
