//! `gristmill policy`: the schemas of files, and whether a folder of policies would be taken; and reading
//! policies again while the host serves.

use anyhow::{Result, anyhow};
use clap::Subcommand;
use gristmill_ledger::{LedgerError, evidence::Evidence};
use gristmill_policies::{Approvals, Block, Policies, PolicyError, Rules, block};
use gristmill_router::Known;

use crate::{
    compose::{Places, hardware, measured},
    promote::Promoter,
    schema,
};

/// What to do with policies.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print the JSON Schema of a kind of file, of policies, a ledger or the host, or which kinds there are
    Schema {
        /// What kind of file: grant, parameter, pin, settings, …; without it, all are listed
        kind: Option<String>,
    },
    /// Would the files in the policy folder be taken?
    Check,
}

/// Does it.
pub(crate) fn policy(places: &Places, command: Command) -> Result<()> {
    match command {
        Command::Schema { kind: None } => {
            for (kind, what) in schema::kinds() {
                println!("{kind:<12} {what}");
            }
            Ok(())
        }
        Command::Schema { kind: Some(kind) } => {
            let known = || schema::kinds().map(|(kind, _)| kind).collect::<Vec<_>>().join(", ");
            let schema = schema::of(&kind)
                .ok_or_else(|| anyhow!("there is no kind {kind:?}; known are {}", known()))?;
            println!("{schema:#}");
            Ok(())
        }
        Command::Check => check(places),
    }
}

fn check(places: &Places) -> Result<()> {
    let Whole { grants, blocks, rules, approvals } = Whole::open(places).map_err(refused)?;
    println!(
        "{}: {} grants, {} blocks, {} parameter policies, {} profiles, {} approval rules",
        places.policies.display(),
        grants.grants().count(),
        blocks.len(),
        rules.policies().len(),
        rules.profiles().len(),
        approvals.rules.len(),
    );
    Ok(())
}

/// The words for policies that are not taken.
fn refused(Unsound { faults, .. }: Unsound) -> anyhow::Error {
    let faults: Vec<String> =
        faults.iter().map(|fault| format!("({}): {fault}", fault.code())).collect();
    anyhow!("policies refused {}", faults.join("; "))
}

/// Everything in a policy folder.
pub(crate) struct Whole {
    pub(crate) grants: Policies,
    blocks: Vec<Block>,
    rules: Rules,
    approvals: Approvals,
}

/// A folder of which nothing comes in force.
pub(crate) struct Unsound {
    /// What is wrong with each kind of file.
    pub(crate) faults: Vec<PolicyError>,
    /// The grants, where it is not they.
    pub(crate) grants: Option<Policies>,
}

impl Whole {
    /// Reads all of it.
    ///
    /// # Errors
    /// [`Unsound`].
    pub(crate) fn open(places: &Places) -> Result<Self, Unsound> {
        let folder = &places.policies;
        let read = (
            Policies::open(folder),
            block::open(folder),
            Rules::open(folder, hardware()),
            Approvals::open(folder),
        );
        match read {
            (Ok(grants), Ok(blocks), Ok(rules), Ok(approvals)) => {
                Ok(Self { grants, blocks, rules, approvals })
            }
            (grants, blocks, rules, approvals) => {
                let (grants, fault) = match grants {
                    Ok(grants) => (Some(grants), None),
                    Err(fault) => (None, Some(fault)),
                };
                let faults = fault.into_iter().chain(blocks.err()).chain(rules.err());
                Err(Unsound { faults: faults.chain(approvals.err()).collect(), grants })
            }
        }
    }
}

/// The grants, where everything else in the folder is sound too.
pub(crate) fn grants(places: &Places) -> Option<Policies> {
    Whole::open(places).ok().map(|whole| whole.grants)
}

/// Reads every policy again and puts blocks, parameter policies and profiles in force, all of them or none:
/// files that are not sound change nothing, and the log says which and what to do. Grants come in force
/// where the ledger is followed, because a pin may name its grant; approval rules when they are asked for.
pub(crate) fn reread(promoter: &Promoter, by: &str) {
    match Whole::open(&promoter.places) {
        Ok(Whole { grants, blocks, rules, approvals }) => {
            let (policies, profiles) = (rules.policies().len(), rules.profiles().len());
            let (grants, approvals) = (grants.grants().count(), approvals.rules.len());
            let count = blocks.len();
            let router = &promoter.router;
            router.know(router.known().with_blocks(blocks));
            router.policy().replace(rules);
            tracing::info!(
                by,
                grants,
                blocks = count,
                policies,
                profiles,
                approvals,
                "policies read again"
            );
        }
        Err(unsound) => {
            tracing::error!(by, "{}; the policies before it stay in force", refused(unsound));
        }
    }
}

/// Reads the ledger's measurements again: they decide between back-ends that have the same weights.
pub(crate) fn reread_measured(promoter: &Promoter, by: &str) {
    let read = measured(&promoter.places);
    learn(promoter, by, "measurements", read.map(|it| (it.len(), it)), Known::with_measured);
}

/// Reads the ledger's reports again: what they contradict is no claim any more.
pub(crate) fn reread_evidence(promoter: &Promoter, by: &str) {
    let read = Evidence::open(&promoter.places.ledger).map_err(LedgerError::from);
    learn(promoter, by, "evidence", read.map(|it| (it.len(), it)), Known::with_evidence);
}

/// What was read comes in force; where it could not be, what was known before stays.
fn learn<T>(
    promoter: &Promoter,
    by: &str,
    what: &str,
    read: Result<(usize, T), LedgerError>,
    with: impl FnOnce(&Known, T) -> Known,
) {
    let router = &promoter.router;
    match read {
        Ok((count, read)) => {
            tracing::info!(by, count, "{what} read again");
            router.know(with(&router.known(), read));
        }
        Err(error) => {
            let code = error.code();
            tracing::error!(
                by,
                "{what} refused ({code}): {error}; what was known before stays in force"
            );
        }
    }
}
