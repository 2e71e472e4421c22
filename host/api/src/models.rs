//! Which models a caller reaches: the one place where a name becomes a plan, and where lists lose what
//! a key does not reach. Such a model is not there for it: not found, and not listed.

use gristmill_core::{Code, Result};
use gristmill_router::{Plan, Record, Resident};

use crate::{
    account::Account,
    keys::{self, Caller},
    state::AppState,
};

/// The one plan for a model, noted in the request's account. A key that reaches the model on one
/// back-end gets no block's alternative, and the first in the order where it may not have the fastest.
///
/// # Errors
/// As [`gristmill_router::Router::resolve`]; `not-found` for a model that the key does not reach.
pub async fn plan(state: &AppState, account: &Account, model: &str) -> Result<Plan> {
    let caller = account.caller();
    let plan = match found(state, &caller, model).await {
        Ok(plan) if !caller.may(&plan) => return Err(keys::missing(model)),
        Ok(plan) if caller.tied(&plan) => plan.alone(),
        Ok(plan) => plan,
        // Why it cannot be asked now is for those who may ask it.
        Err(error) if error.code == Code::InvalidRequest || caller.names(model) => {
            return Err(error);
        }
        Err(_) => return Err(keys::missing(model)),
    };
    account.model(&plan.provenance().model);
    Ok(plan)
}

/// Every model that the caller may ask for.
///
/// # Errors
/// As [`gristmill_router::Router::catalogue`].
pub async fn catalogue(state: &AppState, account: &Account) -> Result<Vec<Record>> {
    let records = state.router.catalogue().await?;
    if !account.caller().restricted() {
        return Ok(records);
    }
    let mut reached = Vec::new();
    for record in records {
        if reaches(state, account, &record.info.id).await {
            reached.push(record);
        }
    }
    Ok(reached)
}

/// The models in memory that the caller may ask for.
///
/// # Errors
/// As [`gristmill_router::Router::residents`].
pub async fn residents(state: &AppState, account: &Account) -> Result<Vec<Resident>> {
    let residents = state.router.residents().await?;
    if !account.caller().restricted() {
        return Ok(residents);
    }
    let mut reached = Vec::new();
    for resident in residents {
        if reaches(state, account, &resident.loaded.id).await {
            reached.push(resident);
        }
    }
    Ok(reached)
}

async fn reaches(state: &AppState, account: &Account, model: &str) -> bool {
    let caller = account.caller();
    found(state, &caller, model).await.is_ok_and(|plan| caller.may(&plan))
}

/// The fastest that has the model; else the first in the order.
async fn found(state: &AppState, caller: &Caller, model: &str) -> Result<Plan> {
    match state.router.resolve(model).await {
        Ok(plan) if !caller.may(&plan) => state.router.first(model).await,
        found => found,
    }
}
