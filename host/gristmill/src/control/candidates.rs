//! The verbs of the control plane on candidates: pin, sign, qualify.
//!
//! A secret key has no place here: signatures are made where the key is. Nor has a word on whose signatures
//! count: who signs is not decided by who has an operator's key.

use std::sync::Arc;

use gristmill_api::control::{
    Kind, Refused,
    view::{Base64, Origin, Propose, Proposed, Qualified, Qualify, Sign, Signer},
};
use gristmill_ledger::{self as ledger, Date, LedgerError, Pin, keys::Keys, revoked::Revoked};
use tokio::sync::{Mutex, oneshot};

use super::refused;
use crate::{
    compose::Places,
    ledger::keeper,
    measure::{ROUNDS, TOLERANCE},
    promote::Promoter,
    propose::{self, Component, Conditions},
    qualify::{Arguments, Compared, compared},
    settings::Settings,
};

fn date(field: &str, text: Option<&str>) -> Result<Option<Date>, Refused> {
    let invalid =
        |reason| Refused::new(Kind::Invalid, "invalid-request", format!("`{field}`: {reason}"));
    text.map(|text| text.parse().map_err(invalid)).transpose()
}

pub(super) fn pin(promoter: &Promoter, by: &str, what: Propose) -> Result<Proposed, Refused> {
    let conditions = Conditions {
        not_before: date("not_before", what.not_before.as_deref())?,
        expires: date("expires", what.expires.as_deref())?,
        version: what.version,
        evidence: what.evidence,
    };
    let component = match what.source {
        Origin::Registry { reference } => {
            propose::pulled(&reference).map_err(|error| refused(&error))?
        }
        Origin::Bytes { component, original } => {
            Component { original, resolved: None, bytes: component.0 }
        }
    };
    let places = &promoter.places;
    let _turn = promoter.turn();
    let proposed = propose::propose(places, &what.name, &component, conditions);
    let (pin, _) = proposed.map_err(|error| refused(&error))?;
    tracing::info!(by, plugin = pin.name, digest = pin.digest(), "a candidate is proposed");
    Ok(Proposed { resolved: component.resolved, ..candidate(places, &what.name)? })
}

/// The candidate of a name as it lies there now.
pub(super) fn candidate(places: &Places, name: &str) -> Result<Proposed, Refused> {
    let filed = ledger::candidate(&places.ledger, name).map_err(|error| refused(&error))?;
    let filed = filed.ok_or_else(|| {
        Refused::new(Kind::NotFound, "not-found", format!("no candidate {name:?}: pin it first"))
    })?;
    let invalid = |reason| Refused::new(Kind::Conflict, "invalid-pin", reason);
    let (keys, wanting) = wanting(places, &filed.pin).map_err(|error| refused(&error))?;
    let signatures = filed.pin.signatures.iter().map(|one| signer(&keys, one.key.clone()));
    Ok(Proposed {
        name: filed.pin.name.clone(),
        sequence: filed.pin.sequence,
        digest: filed.pin.digest(),
        resolved: None,
        signed: Base64(filed.pin.signed().map_err(invalid)?),
        signatures: signatures.collect(),
        threshold: keys.threshold,
        wanting,
        text: filed.text,
    })
}

/// Whose signatures count, and what they find wanting in a pin.
fn wanting(places: &Places, pin: &Pin) -> Result<(Keys, Option<String>), LedgerError> {
    let keys = Keys::open(&places.ledger)?;
    let (revoked, _) = Revoked::open(&places.ledger)?;
    let wanting = keys.verify(pin, &revoked).err();
    Ok((keys, wanting))
}

fn signer(keys: &Keys, id: String) -> Signer {
    let known = keys.keys.iter().find(|key| key.id().is_ok_and(|own| own == id));
    Signer { name: known.map(|key| key.name.clone()), key: id }
}

pub(super) fn sign(promoter: &Promoter, by: &str, what: &Sign) -> Result<Proposed, Refused> {
    let Sign { name, public, signature } = what;
    let places = &promoter.places;
    let _turn = promoter.turn();
    let keeper = keeper(places).map_err(|error| refused(&error))?;
    let pin = keeper.attach(name, public, signature).map_err(|error| refused(&error))?;
    tracing::info!(by, plugin = name, digest = pin.digest(), "a candidate is signed");
    candidate(places, name)
}

/// On a thread of its own: it takes minutes, goes on when nobody waits for it, and does not keep the host
/// from stopping. One at a time: two would measure each other.
pub(super) async fn qualify(
    settings: Arc<Settings>,
    promoter: Arc<Promoter>,
    qualifying: Arc<Mutex<()>>,
    by: &str,
    what: Qualify,
) -> Result<Qualified, Refused> {
    let held = qualifying.try_lock_owned().map_err(|_| {
        let message = "another candidate is being measured, and two would measure each other; wait until it is done";
        Refused::new(Kind::Conflict, "qualify-running", message)
    })?;
    let failed = |reason: String| Refused::new(Kind::Failed, "internal", reason);
    let (by, (told, answer)) = (by.to_owned(), oneshot::channel());
    let work = move || {
        tracing::info!(by, plugin = what.name, "a candidate is held against what is in force");
        let done = held_against(&settings, &promoter, &what);
        match &done {
            Ok(done) => {
                let Qualified { name, digest, verdict, .. } = done;
                tracing::info!(
                    by,
                    plugin = name,
                    digest,
                    ?verdict,
                    "a candidate was held against what is in force"
                );
            }
            Err(refused) => {
                tracing::warn!(by, plugin = what.name, code = refused.code, %refused, "a candidate could not be compared");
            }
        }
        // The next may begin before this one is told of.
        drop(held);
        let _ = told.send(done);
    };
    std::thread::Builder::new()
        .name("qualify".to_owned())
        .spawn(work)
        .map_err(|error| failed(format!("a thread cannot be started: {error}")))?;
    answer.await.map_err(|_| failed("the comparison ended without a result".to_owned()))?
}

fn held_against(
    settings: &Settings,
    promoter: &Promoter,
    what: &Qualify,
) -> Result<Qualified, Refused> {
    let arguments = Arguments {
        name: what.name.clone(),
        model: what.model.clone(),
        rounds: what.rounds.unwrap_or(ROUNDS),
        tolerance: what.tolerance.unwrap_or(TOLERANCE),
        key: None,
    };
    let done = compared(settings, &promoter.places, &arguments, Some(promoter));
    let Compared { pin, verdict, lost, ratios, evidence, performance } =
        done.map_err(|error| match error.downcast_ref::<LedgerError>() {
            Some(error) => refused(error),
            None => Refused::new(Kind::Conflict, "not-comparable", format!("{error:#}")),
        })?;
    Ok(Qualified {
        digest: pin.digest(),
        name: pin.name,
        verdict,
        lost,
        ratios,
        evidence: evidence.1,
        performance: serde_json::to_value(performance.1).unwrap_or_default(),
    })
}
