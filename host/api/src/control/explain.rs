//! Why a request would go where it would: every live back-end with every condition that the router
//! looks at, and the one that would answer.
//!
//! The winner is not worked out here: it is what [`gristmill_router::Router::resolve`] says, which is
//! what a request goes by, and after it the blocks. What was measured is told beside it; the router
//! does not go by it, because a model never changes its back-end by itself.

use std::sync::Arc;

use gristmill_core::{Code, Error, Result, capability::Support};
use gristmill_policies::Block;
use gristmill_router::{Check, Plan, blocks, live::Slot, name};

use super::view::{Candidate, Cause, Condition, Route, RouteQuestion, Winner};
use crate::state::AppState;

/// A back-end as it was looked at.
struct Looked {
    candidate: Candidate,
    plan: Option<Plan>,
    block: Option<Block>,
}

/// Explains where a request for this model would go.
///
/// # Errors
/// `invalid-request` for what cannot be a model's name, and for a question without capabilities.
pub async fn explain(state: &AppState, question: RouteQuestion) -> Result<Route> {
    name::key(&question.model)?;
    if question.capabilities.is_empty() {
        return Err(crate::fields::wrong("capabilities", "must name at least one"));
    }
    let checks = state.router.checks().await;
    let slots = state.router.backends().slots();
    let mut looked = Vec::with_capacity(slots.len());
    for slot in slots.iter() {
        looked.push(look(state, slot, &question, &checks).await);
    }
    let decided = decide(state, &question, &looked).await;
    let (winner, refusal) = match decided {
        Ok(winner) => (Some(winner), None),
        Err(error) => (None, Some(Cause::from(&error))),
    };
    Ok(Route {
        model: question.model,
        capabilities: question.capabilities,
        candidates: looked.into_iter().map(|one| one.candidate).collect(),
        winner,
        refusal,
    })
}

async fn look(
    state: &AppState,
    slot: &Arc<Slot>,
    question: &RouteQuestion,
    checks: &[Check],
) -> Looked {
    let generation = slot.current();
    let mut candidate = Candidate {
        backend: slot.name.clone(),
        kind: generation.descriptor.kind.clone(),
        digest: generation.digest.clone(),
        generation: generation.number,
        model: None,
        conditions: Vec::new(),
        refusals: Vec::new(),
        score: None,
    };
    let mut condition = |name: &str, holds: bool, detail: String| {
        candidate.conditions.push(Condition { name: name.to_owned(), holds, detail });
    };

    let named = format!("backend {}", slot.name);
    if let Some(check) = checks.iter().find(|check| check.name == named) {
        condition("ready", check.ready, check.detail.clone());
    }
    let plan = match on(state, slot, &question.model).await {
        Ok(plan) => plan,
        Err(error) => {
            condition("has-model", false, error.message.clone());
            candidate.refusals.push(Cause::from(&error));
            return Looked { candidate, plan: None, block: None };
        }
    };
    condition("has-model", true, format!("it has it as \"{}\"", plan.info().id));
    let mut refusals = Vec::new();
    let mut found = None;
    for capability in &question.capabilities {
        let (holds, detail) = claimed(&plan, capability);
        if !holds {
            refusals.push(Cause { code: "unsupported".to_owned(), message: detail.clone() });
        }
        condition(&format!("capability {capability}"), holds, detail);
        let block = state.router.block(&plan, &[capability.as_str()]).await;
        let detail = match &block {
            None => "no block is about it".to_owned(),
            Some(block) => {
                let refusal = blocks::refusal(block, &slot.name, &plan.info().id);
                refusals.push(Cause::from(&refusal));
                refusal.message
            }
        };
        condition(&format!("unblocked {capability}"), block.is_none(), detail);
        found = found.or(block);
    }
    candidate.refusals = refusals;
    candidate.model = Some(plan.info().id.clone());
    candidate.score = state.control.score(plan.info().digest.as_deref(), &slot.name);
    Looked { candidate, plan: Some(plan), block: found }
}

/// The plan for the model on this very back-end.
async fn on(state: &AppState, slot: &Slot, model: &str) -> Result<Plan> {
    let bare = model
        .split_once('/')
        .filter(|(name, _)| slot.name.eq_ignore_ascii_case(name.trim()))
        .map_or(model, |(_, bare)| bare);
    let missing = || Error::not_found(format!("{} does not have the model", slot.name));
    match state.router.resolve(&format!("{}/{}", slot.name, bare.trim())).await {
        Ok(plan) if plan.provenance().backend == slot.name => Ok(plan),
        Ok(_) => Err(missing()),
        Err(error) if error.code == Code::NotFound => Err(missing()),
        Err(error) => Err(error),
    }
}

/// Whether a claim lets a request through, and the claim in words.
fn claimed(plan: &Plan, capability: &str) -> (bool, String) {
    match plan.claim(capability).map(|claim| &claim.support) {
        None => (true, "nobody says; it is handed on, and the back-end may refuse it".to_owned()),
        Some(Support::Supported) => (true, "it is claimed".to_owned()),
        Some(Support::Conditional(when)) => (true, format!("it is claimed if {when}")),
        Some(Support::Unsupported(reason)) => (false, reason.detail.clone()),
        Some(Support::Unknown) => (false, "nobody knows whether it works".to_owned()),
    }
}

async fn decide(state: &AppState, question: &RouteQuestion, looked: &[Looked]) -> Result<Winner> {
    let plan = state.router.resolve(&question.model).await?;
    let provenance = plan.provenance();
    let of = |name: &str| looked.iter().find(|one| one.candidate.backend == name);
    let asked = question
        .model
        .split_once('/')
        .is_some_and(|(name, _)| provenance.backend.eq_ignore_ascii_case(name.trim()));
    let because = if asked {
        "the request names it".to_owned()
    } else {
        "it is the first in the order of installation that has the model".to_owned()
    };
    let won = |plan: &Plan, because| {
        let provenance = plan.provenance();
        Winner {
            backend: provenance.backend,
            model: provenance.model,
            digest: provenance.digest,
            generation: provenance.generation,
            because,
        }
    };
    let Some(first) = of(&provenance.backend) else { return Ok(won(&plan, because)) };
    let refused = |one: &Looked| {
        let unsupported = one.candidate.refusals.iter().find(|cause| cause.code == "unsupported");
        unsupported.map(|cause| Error::unsupported(&cause.message))
    };
    if let Some(error) = refused(first) {
        return Err(error);
    }
    let Some(block) = &first.block else { return Ok(won(&plan, because)) };
    // As a request would: the back-end that the block names, if nothing speaks against that one.
    let other = block.alternative.as_deref().and_then(of).filter(|one| one.block.is_none());
    match other.and_then(|one| one.plan.as_ref().map(|plan| (one, plan))) {
        Some((one, plan)) => match refused(one) {
            Some(error) => Err(error),
            None => Ok(won(
                plan,
                format!("{} names it in the place of {}", block.id, provenance.backend),
            )),
        },
        None => Err(blocks::refusal(block, &provenance.backend, &provenance.model)),
    }
}
