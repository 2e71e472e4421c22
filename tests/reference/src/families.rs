//! The real family components, as `cargo xtask plugins` built them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use gristmill_ledger::Pin;
use gristmill_policies::Policies;
use gristmill_sandbox::{FamilySet, Sandbox, SandboxConfig, inspect};

/// The repository's root.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Loads every family in `target/plugins`. Their pins are made here from what they are: this is
/// about numbers, and another compiler gives other bytes than the reviewed pins name.
///
/// # Errors
/// When none was built, or the sandbox refuses one.
pub fn families() -> Result<FamilySet> {
    let folder = root().join("target/plugins");
    let policies = Policies::open(&root().join("policies"))?;
    let sandbox = Sandbox::new(SandboxConfig::default())?;
    let mut families = Vec::new();
    let found = fs::read_dir(&folder)
        .with_context(|| format!("no {}: run cargo xtask plugins", folder.display()))?;
    for entry in found {
        let path = entry?.path();
        let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let Some((_, name)) = name.split_once("family_") else { continue };
        let bytes = fs::read(&path)?;
        let found = inspect(&bytes)?;
        let pin = Pin {
            name: name.to_owned(),
            kind: found.kind,
            version: "0.0.0".to_owned(),
            contract: found.contract,
            world: found.kind.world().to_owned(),
            file: path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned(),
            sha256: found.digest.trim_start_matches("sha256:").to_owned(),
            size: found.size,
            sequence: 1,
            imports: found.imports,
        };
        families.push(sandbox.load_family(&bytes, &pin, policies.grant(name, pin.kind)?)?);
    }
    ensure!(!families.is_empty(), "no family in {}: run cargo xtask plugins", folder.display());
    Ok(FamilySet::new(families))
}
