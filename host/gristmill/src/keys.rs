//! `gristmill key …`: who may come in over HTTP. A running host sees every change with its next
//! request.

use anyhow::{Context, Result};
use clap::Subcommand;
use gristmill_api::keys::{Entry, KeyFile, Wanted};

use crate::compose::Places;

/// `gristmill key …`
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a key and print it; nobody can tell it again. From the first key on, nobody comes in
    /// without one
    Add {
        /// What it is called in logs and here; a name is not used twice
        name: String,
        /// It reaches everything: the control plane and its verbs too
        #[arg(long, conflicts_with = "models")]
        operator: bool,
        /// The models it reaches, by name or as BACK-END/NAME [default: all]
        #[arg(long, value_delimiter = ',', value_name = "MODEL,…")]
        models: Option<Vec<String>>,
        /// Requests per second [default: no limit]
        #[arg(long, value_name = "NUMBER")]
        rate: Option<f64>,
        /// Requests at the same time [default: no limit]
        #[arg(long, value_name = "NUMBER")]
        concurrent: Option<u32>,
    },
    /// List the keys, the revoked ones too
    List,
    /// End a key: its running answers end in peace, its next request is refused
    Revoke {
        /// Its name
        name: String,
    },
}

/// Does it.
pub(crate) fn keys(places: &Places, command: Command) -> Result<()> {
    let path = places.keys.clone();
    let path = path.context("neither XDG_DATA_HOME nor HOME is set: set paths.keys")?;
    let file = KeyFile::new(path);
    match command {
        Command::Add { name, operator, models, rate, concurrent } => {
            let key = file.add(Wanted { name, operator, models, rate, concurrent })?;
            eprintln!("written to {}; this is the only time it is shown:", file.path().display());
            println!("{key}");
        }
        Command::List => list(&file.read()?),
        Command::Revoke { name } => {
            file.revoke(&name)?;
            println!("revoked {name}");
        }
    }
    Ok(())
}

fn list(entries: &[Entry]) {
    if entries.is_empty() {
        println!("no keys: everybody who can connect is let in; try: gristmill key add NAME");
        return;
    }
    println!(
        "{:<24} {:<10} {:>8} {:>10} {:<21} {:<24} MODELS",
        "NAME", "REACHES", "RATE", "CONCURRENT", "CREATED", "REVOKED"
    );
    let none = || "-".to_owned();
    for entry in entries {
        println!(
            "{:<24} {:<10} {:>8} {:>10} {:<21} {:<24} {}",
            entry.name,
            if entry.operator { "everything" } else { "models" },
            entry.rate.map_or_else(none, |rate| rate.to_string()),
            entry.concurrent.map_or_else(none, |count| count.to_string()),
            entry.created,
            entry.revoked.clone().unwrap_or_else(none),
            entry.models.as_ref().map_or_else(|| "all".to_owned(), |models| models.join(",")),
        );
    }
}
