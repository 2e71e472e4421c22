//! What a reviewer should not have to look for: format, lints, licences, pins that match.

use anyhow::Result;

use crate::{
    build, setup,
    shell::{cargo, exists, run},
};

/// Workspaces beside the host's, and the target their code is for.
const OTHERS: [(&str, Option<&str>); 4] = [
    ("sdk/rust/Cargo.toml", None),
    ("plugins/Cargo.toml", Some("wasm32-wasip2")),
    ("tests/guests/Cargo.toml", Some("wasm32-wasip2")),
    ("tests/reference/Cargo.toml", None),
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
    for (manifest, target) in OTHERS.iter().take(3) {
        let mut command = cargo();
        command.args(["clippy", "--all", "--locked", "--quiet", "--manifest-path", manifest]);
        if let Some(target) = target {
            command.args(["--target", target]);
        }
        run(command.args(DENY))?;
    }
    if exists("cargo-deny", "--version") {
        run(cargo().args(["deny", "--workspace", "check", "bans", "licenses", "sources"]))?;
    } else {
        eprintln!("note: cargo-deny is not installed; licences and sources were not checked");
    }
    build::components().map(|_| ())
}

const DENY: [&str; 3] = ["--", "-D", "warnings"];
