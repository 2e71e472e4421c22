//! Building components and laying out a distribution:
//!
//! ```text
//! target/dist/bin/gristmill
//! target/dist/share/gristmill/{plugins/*.wasm, ledger/pins/*.toml, policies/*}
//! ```
//!
//! and beside pins and grants the rest of the ledger and of the policies.
//!
//! The pins in `ledger/` are the reviewed ones. The build of a component is reproducible for one
//! compiler version; another compiler gives other bytes, so `dist` then pins what was built here in
//! the distribution's own ledger, and says so. The ledger in the tree changes only by `plugins --pin`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::{
    ledger, setup,
    shell::{cargo, output, root, run},
};

/// Builds the components into `target/plugins` and, if asked, rewrites their pins.
pub(crate) fn plugins(pin: bool) -> Result<()> {
    let built = components()?;
    if pin {
        let binary = host(Host::Tested)?;
        pin_all(&binary, &built, &root().join("ledger"))?;
    }
    Ok(())
}

/// A host, by how it is built. Another selection of packages would have other features, and compile
/// wasmtime again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Host {
    /// As the tests build it.
    Tested,
    /// Optimised, and sooner built than what is shipped.
    Quick,
    /// Optimised as a whole.
    Shipped,
    /// The same, built together with what measures it.
    Measured,
}

/// Lays out `target/dist`, or `target/dist-dev` with the host of the tests; the path of its binary.
pub(crate) fn dist(which: Host) -> Result<PathBuf> {
    let built = components()?;
    let binary = host(which)?;
    let dist = root().join("target").join(match which {
        Host::Tested => "dist-dev",
        Host::Quick | Host::Shipped | Host::Measured => "dist",
    });
    let share = dist.join("share/gristmill");
    let installed = dist.join("bin/gristmill");
    for folder in ["bin", "share/gristmill/plugins"] {
        fs::create_dir_all(dist.join(folder))?;
    }
    // The ledger is laid out anew, and what was remembered is of the one before.
    let seen = seen(&installed);
    if seen.exists() {
        fs::remove_file(seen)?;
    }
    for folder in ["ledger", "policies"] {
        let target = share.join(folder);
        if target.exists() {
            fs::remove_dir_all(&target)?;
        }
    }
    for folder in ["grants", "blocks", "parameters", "profiles", "schema"] {
        let folder = Path::new("policies").join(folder);
        copy_folder(&root().join(&folder), &share.join(&folder))?;
    }
    fs::copy(root().join("policies/approvals.toml"), share.join("policies/approvals.toml"))?;
    ledger::copy(&root().join("ledger"), &share.join("ledger"))?;
    for component in &built {
        let name = component.file_name().context("a component has a name")?;
        replace(component, &share.join("plugins").join(name))?;
    }
    replace(&binary, &installed)?;

    let verified = installed_command(&installed).args(["plugin", "verify"]).output()?;
    if !verified.status.success() {
        eprintln!(
            "note: this compiler gives other bytes than the pins in ledger/ were made for;\n\
             pinning what was just built in {}",
            share.join("ledger").display()
        );
        pin_all(&installed, &built, &share.join("ledger"))?;
    }
    Ok(installed)
}

/// What is remembered of a distribution's ledger, which is not what this user's own has seen.
fn seen(installed: &Path) -> PathBuf {
    installed.ancestors().nth(2).unwrap_or(installed).join("ledger-seen.toml")
}

/// Calls the binary of a distribution.
pub(crate) fn installed_command(installed: &Path) -> Command {
    let mut command = Command::new(installed);
    command.env("GRISTMILL_PATHS_LEDGER_SEEN", seen(installed));
    command
}

/// The workspaces of first-party components and where each is built: back-ends and families, and the
/// probes, whose feature of the SDK must not meet the back-ends'.
const WORKSPACES: [(&str, &str); 2] = [
    ("plugins/Cargo.toml", "target/plugins-build"),
    ("plugins/probes/Cargo.toml", "target/probes-build"),
];

/// Builds all first-party components and returns their files, sorted.
pub(crate) fn components() -> Result<Vec<PathBuf>> {
    setup::wasm_target()?;
    let root = root();
    let home = std::env::var("CARGO_HOME")
        .or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cargo")))?;
    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]))?;
    // Paths end up in panic messages; the same source must give the same bytes in any folder.
    let flags = [
        format!("--remap-path-prefix={}=/gristmill", root.display()),
        format!("--remap-path-prefix={home}=/cargo"),
        format!("--remap-path-prefix={}=/rust", sysroot.trim()),
    ];
    let target = root.join("target/plugins");
    fs::create_dir_all(&target)?;
    let mut built = Vec::new();
    for (workspace, folder) in WORKSPACES {
        run(cargo()
            .args(["build", "--quiet", "--release", "--locked", "--target", "wasm32-wasip2"])
            .args(["--manifest-path", workspace, "--target-dir", folder])
            .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}")))?;
        for entry in fs::read_dir(root.join(folder).join("wasm32-wasip2/release"))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "wasm") {
                let name = path.file_name().context("a component has a name")?;
                let copy = target.join(name);
                replace(&path, &copy)?;
                built.push(copy);
            }
        }
    }
    built.sort();
    Ok(built)
}

/// Builds the host's binary and returns its path.
pub(crate) fn host(which: Host) -> Result<PathBuf> {
    let mut command = cargo();
    let folder = match which {
        Host::Tested => {
            command.args(["nextest", "run", "--locked", "--workspace", "--no-run"]);
            "debug"
        }
        Host::Quick => {
            command.args(["build", "--locked", "--release", "--package", "gristmill"]);
            "release"
        }
        Host::Shipped => {
            command.args(["build", "--locked", "--profile", SHIPPED, "--package", "gristmill"]);
            SHIPPED
        }
        Host::Measured => {
            command
                .args(["build", "--locked", "--profile", SHIPPED, "--package", "gristmill"])
                .args(["--package", "gristmill-sandbox", "--package", "gristmill-testing"])
                .args(["--bins", "--example", "sandbox_bench"]);
            SHIPPED
        }
    };
    run(&mut command)?;
    Ok(root().join("target").join(folder).join("gristmill"))
}

/// The profile of what is shipped; its folder is called after it.
pub(crate) const SHIPPED: &str = "shipped";

fn pin_all(binary: &Path, components: &[PathBuf], ledger: &Path) -> Result<()> {
    run(Command::new(binary)
        .args(["plugin", "pin", "--ledger"])
        .arg(ledger)
        .args(components)
        .env("GRISTMILL_PATHS_POLICIES", root().join("policies")))
}

/// Puts a copy in place at once, so that a running program keeps its own file.
fn replace(source: &Path, target: &Path) -> Result<()> {
    let temporary = target.with_extension(format!("{}.new", std::process::id()));
    fs::copy(source, &temporary)
        .and_then(|_| fs::rename(&temporary, target))
        .with_context(|| format!("cannot copy {} to {}", source.display(), target.display()))
}

pub(crate) fn copy_folder(source: &Path, target: &Path) -> Result<()> {
    fs::create_dir_all(target)?;
    if !source.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(source)? {
        let entry = entry?;
        let target = target.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
