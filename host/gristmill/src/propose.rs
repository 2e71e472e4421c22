//! A candidate is made: a component is fetched, kept beside the others, and pinned to be qualified, signed
//! and promoted. The command line and the control plane do it with the same code.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use gristmill_ledger::{
    Date, Draft, LedgerError, Pin, contract, grant_digest, oci::Oci, sha256,
    source::MAX_COMPONENT_BYTES,
};

use crate::{
    compose::Places,
    ledger::{inspected, keeper},
};

/// A component, and what it was asked for by.
pub(crate) struct Component {
    /// As the pin calls it; none: by the name of the file it is kept in.
    pub(crate) original: Option<String>,
    /// What a registry's tag was resolved to.
    pub(crate) resolved: Option<String>,
    pub(crate) bytes: Vec<u8>,
}

/// What a pin says of a component besides.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    pub(crate) version: Option<String>,
    pub(crate) evidence: Vec<String>,
    pub(crate) not_before: Option<Date>,
    pub(crate) expires: Option<Date>,
}

/// Fetches a component from a registry.
///
/// # Errors
/// `invalid-source`, `source-unavailable`, `source-mismatch`, `invalid-login`.
pub(crate) fn pulled(reference: &str) -> Result<Component, LedgerError> {
    let registry = Oci::parse(reference)?.with_logins(logins());
    let pulled = registry.pull()?;
    Ok(Component {
        original: Some(registry.original()),
        resolved: Some(pulled.locked),
        bytes: pulled.component,
    })
}

/// Where `docker login` writes.
fn logins() -> Option<PathBuf> {
    let folder = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = folder("DOCKER_CONFIG").or_else(|| Some(folder("HOME")?.join(".docker")));
    Some(folder?.join("config.json"))
}

/// Keeps a component and makes it the candidate of a name. Nothing of it has run.
///
/// # Errors
/// `invalid-component`, `invalid-pin`, or what cannot be read or written.
pub(crate) fn propose(
    places: &Places,
    name: &str,
    component: &Component,
    conditions: Conditions,
) -> Result<(Pin, PathBuf), LedgerError> {
    let Component { original, bytes, .. } = component;
    let invalid = |reason: String| LedgerError::Refused {
        code: "invalid-component",
        path: PathBuf::from(original.as_deref().unwrap_or("the component")),
        reason,
    };
    let (found, most) = (bytes.len(), MAX_COMPONENT_BYTES);
    if found as u64 > most {
        return Err(invalid(format!("expected at most {most} bytes, found {found}")));
    }
    let inspected = inspected(bytes).map_err(|refusal| invalid(refusal.reason))?;
    // Under a name of its own: what is in force, and what it may be rolled back to, stays.
    let short: String = sha256(bytes).chars().take(12).collect();
    let kept = format!("{name}-{short}.wasm");
    let worlds = contract::worlds();
    let keeper = keeper(places)?;
    let pin = keeper.draft(&Draft {
        version: conditions.version.as_deref(),
        original: Some(original.as_deref().unwrap_or(&kept)),
        worlds: &worlds,
        grant: grant_digest(&places.policies, name, inspected.kind)?,
        evidence: conditions.evidence,
        not_before: conditions.not_before,
        expires: conditions.expires,
        ..Draft::new(name, &kept, bytes, &inspected)
    })?;
    keep(&places.plugins.join(&kept), bytes)?;
    let candidate = keeper.propose(&pin)?;
    Ok((pin, candidate))
}

/// Whole or not at all.
fn keep(place: &Path, bytes: &[u8]) -> Result<(), LedgerError> {
    let beside = place.with_extension("new");
    let written = fs::write(&beside, bytes).and_then(|()| fs::rename(&beside, place));
    written.map_err(|source| {
        // A part of a component is of no use to anybody; what matters is the first error.
        let _ = fs::remove_file(&beside);
        LedgerError::Write { path: place.to_owned(), source }
    })
}
