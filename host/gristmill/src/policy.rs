//! `gristmill policy`: the schemas of policy files, and whether a folder of them would be taken; and
//! reading them again while the host serves.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use clap::Subcommand;
use gristmill_policies::{Approvals, Policies, PolicyError, block, schema};
use gristmill_router::Router;
use tokio::signal::unix::Signal;

use crate::compose::{Places, rules};

/// What to do with policies.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print the JSON Schema of a kind of file, or which kinds there are
    Schema {
        /// grant, block, parameter, profile or approval
        kind: Option<String>,
    },
    /// Would the files in the policy folder be taken?
    Check,
}

/// Does it.
pub(crate) fn policy(places: &Places, command: Command) -> Result<()> {
    match command {
        Command::Schema { kind: None } => {
            for (kind, what) in schema::KINDS {
                println!("{kind:<10} {what}");
            }
            Ok(())
        }
        Command::Schema { kind: Some(kind) } => {
            let known = || schema::KINDS.map(|(kind, _)| kind).join(", ");
            let schema = schema::of(&kind)
                .ok_or_else(|| anyhow!("there is no kind {kind:?}; known are {}", known()))?;
            println!("{schema:#}");
            Ok(())
        }
        Command::Check => check(places),
    }
}

fn check(places: &Places) -> Result<()> {
    let folder = &places.policies;
    let refused = |error: PolicyError| anyhow!("policies refused ({}): {error}", error.code());
    let grants = Policies::open(folder).map_err(refused)?.grants().count();
    let blocks = block::open(folder).map_err(refused)?.len();
    let rules = rules(places)?;
    let approvals = Approvals::open(folder).map_err(refused)?.rules.len();
    println!(
        "{}: {grants} grants, {blocks} blocks, {} parameter policies, {} profiles, {approvals} approval rules",
        folder.display(),
        rules.policies().len(),
        rules.profiles().len(),
    );
    Ok(())
}

/// Reads parameter policies and profiles again at every signal. Files that are not sound change
/// nothing: what runs goes on running, and the log says which file and what to do.
pub(crate) async fn reread(router: Arc<Router>, places: Places, mut hangups: Signal) {
    while hangups.recv().await.is_some() {
        match rules(&places) {
            Ok(rules) => {
                let (policies, profiles) = (rules.policies().len(), rules.profiles().len());
                router.policy().replace(rules);
                tracing::info!(policies, profiles, "policies read again");
            }
            Err(error) => tracing::error!("{error}; the policies before it stay in force"),
        }
    }
}
