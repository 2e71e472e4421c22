//! The tree's ledger: proving it, and sealing what is written by hand.
//!
//! Entries in `ledger/upstreams/` are edited by people and sealed here, with the digests of the recorded
//! answers as they are now. Pins are written by `plugins --pin` alone.

use std::{fs, path::Path};

use anyhow::{Context, Result, anyhow, bail, ensure};
use gristmill_ledger::{
    Audit, Date, Ledger, contract,
    keys::{KEYS, Keys},
    upstream::{UPSTREAMS, Upstream, transcripts},
};

use crate::{build, shell::root};

const HELP: &str = "cargo xtask ledger verify|seal";

/// What a ledger consists of.
const FOLDERS: [&str; 6] = ["pins", "history", "evidence", "performance", "upstreams", "schema"];
const FILES: [&str; 3] = ["keys.toml", "revoked.toml", "log.jsonl"];

/// Does it.
pub(crate) fn ledger(arguments: &[String]) -> Result<()> {
    match arguments.first().map(String::as_str) {
        Some("verify") => verify(),
        Some("seal") => seal(),
        _ => bail!("{HELP}"),
    }
}

/// Proves the tree's ledger, without the components.
fn verify() -> Result<()> {
    let worlds = contract::worlds();
    let audit = Audit {
        components: None,
        policies: Some(&root().join("policies")),
        transcripts: Some(&root().join("tests/fakes/transcripts")),
        worlds: &worlds,
        state: None,
        now: Date::now(),
    };
    let report = Ledger::verify(&root().join("ledger"), &audit)?;
    for fault in &report.faults {
        println!("{}: {fault}", fault.code());
    }
    println!(
        "{} pins, {} superseded, {} log lines, {} reports, {} upstreams, {} measurements",
        report.pins,
        report.history,
        report.log,
        report.evidence,
        report.upstreams,
        report.performance
    );
    ensure!(report.is_sound(), "{} faults in ledger/", report.faults.len());
    Ok(())
}

fn seal() -> Result<()> {
    let ledger = root().join("ledger");
    let keys = ledger.join(KEYS);
    if !keys.exists() {
        write(&keys, &Keys::default().to_toml().map_err(anyhow::Error::msg)?)?;
    }
    for entry in fs::read_dir(ledger.join(UPSTREAMS))? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let named = |reason: String| anyhow!("{}: {reason}", path.display());
        let mut entry = Upstream::draft(&fs::read_to_string(&path)?).map_err(named)?;
        let answers = root().join("tests/fakes/transcripts").join(&entry.project);
        entry.transcripts = answers.is_dir().then(|| transcripts(&answers)).transpose()?;
        write(&path, &entry.to_toml().map_err(named)?)?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Copies what belongs to a ledger, and nothing of the crate beside it.
pub(crate) fn copy(source: &Path, target: &Path) -> Result<()> {
    fs::create_dir_all(target)?;
    for folder in FOLDERS {
        build::copy_folder(&source.join(folder), &target.join(folder))?;
    }
    for file in FILES {
        if source.join(file).exists() {
            fs::copy(source.join(file), target.join(file))?;
        }
    }
    Ok(())
}
