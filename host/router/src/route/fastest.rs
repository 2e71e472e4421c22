//! Which of several back-ends is asked that have the very same weights: the one that was measured to be
//! the fastest on this class of host.
//!
//! The first in the order of installation is asked unless another one was measured to be faster, it was
//! measured itself, and the other can do all that it can. Both serve the store's models or both their own: what
//! the host does for a stored model (its template, its place in memory) it does for no other.
//! A measurement is of a component, so one that answers for two back-ends says nothing of either.
//! Nothing is asked of a back-end of which no measurement says that it would be faster, and one that fails to
//! say whether it has the model is passed over: the first has it.

use std::sync::Arc;

use gristmill_core::{
    Result,
    capability::{Claim, ModelInfo, Support},
};

use super::{Plan, Router, called, named};
use crate::{Known, blocks::same_model, live::Slot, name};

/// A plan, and the one that it came before.
pub(super) struct Found {
    pub(super) plan: Plan,
    pub(super) over: Option<Over>,
}

/// Why it is not the first.
pub(super) struct Over {
    /// The first in the order of installation.
    pub(super) first: String,
    /// What a request takes with each, in seconds ([`crate::Known::takes`]).
    pub(super) takes: f64,
    pub(super) took: f64,
}

impl Router {
    /// The plan for a name, and why it is not the first.
    pub(super) async fn find(&self, asked: &str) -> Result<Found> {
        let first = self.first(asked).await?;
        let known = self.known();
        // Nearly always nothing was measured, and nothing else is looked at.
        if known.takes(&first.generation.digest, &first.info).is_none() {
            return Ok(Found { plan: first, over: None });
        }
        let (key, slots) = (name::key(asked)?, self.backends.slots());
        Ok(match named(&slots, &key) {
            Some((slot, _)) if Arc::ptr_eq(slot, &first.slot) => Found { plan: first, over: None },
            _ => self.fastest(first, &key, &slots, &known).await,
        })
    }

    /// The fastest with the weights of this plan.
    async fn fastest(&self, first: Plan, key: &str, slots: &[Arc<Slot>], known: &Known) -> Found {
        let mut found = Found { plan: first.clone(), over: None };
        let measured = |digest: &str| {
            let of_it = slots.iter().filter(|slot| slot.current().digest == digest).count();
            known.takes(digest, &first.info).filter(|_| of_it == 1)
        };
        let Some(took) = measured(&first.generation.digest) else { return found };
        let mut takes = took;
        let same =
            |slot: &&Arc<Slot>| slot.source == first.slot.source && !Arc::ptr_eq(slot, &first.slot);
        for slot in slots.iter().filter(same) {
            let generation = slot.current();
            let less = measured(&generation.digest).filter(|less| *less < takes);
            let Some(less) = less else { continue };
            let Ok(Some(plan)) = self.look_up(slot, generation, called(key)).await else {
                continue;
            };
            let plan = self.less(plan).await;
            if same_weights(&plan.info, &first.info) && self.serves_as(&plan, &first).await {
                takes = less;
                let over = Over { first: first.slot.name.clone(), takes, took };
                found = Found { plan, over: Some(over) };
            }
        }
        found
    }

    /// Whether a plan can do all that another one can: it claims the same, denies nothing that the other
    /// does not, and nothing is known against it.
    async fn serves_as(&self, plan: &Plan, other: &Plan) -> bool {
        let able =
            |claim: &Claim| !matches!(claim.support, Support::Unsupported(_) | Support::Unknown);
        let claimed = |claim: &Claim| plan.claim(&claim.name) == Some(claim);
        let denied = |claim: &Claim| other.claim(&claim.name).is_some_and(|theirs| !able(theirs));
        let known = self.known();
        other.claims().filter(|claim| able(claim)).all(claimed)
            && plan.claims().filter(|claim| !able(claim)).all(denied)
            && self.hit(&plan.generation, &plan.info, &known.blocked()).await.is_none()
    }
}

/// Both know what they have, and it is the same.
fn same_weights(a: &ModelInfo, b: &ModelInfo) -> bool {
    a.digest.is_some() && b.digest.is_some() && same_model(a, b)
}
