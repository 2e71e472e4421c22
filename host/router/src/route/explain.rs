//! Why a request goes where it goes.
//!
//! The winner is found by the code that routes; the conditions beside it say what holds for every
//! live back-end, also for those that were not asked because an earlier one has the model. Looking
//! takes no place in a queue and asks for no answer. What the ledger's measurements say that a request
//! takes decides between back-ends that have the very same weights ([`super::fastest`]), else the order
//! of installation does; how the last requests went explains and does not decide.

use std::sync::Arc;

use gristmill_core::{
    Error, Result,
    request::{Prompt, Request},
};

use super::{
    Plan, Provenance, Router, called,
    fastest::{Found, Over},
    named,
    plan::{capabilities, needs},
};
use crate::{
    blocks,
    live::Slot,
    name,
    swap::{Named, WindowReport},
};

/// Where a request would go, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// The name that was asked for.
    pub asked: String,
    /// Every live back-end, in the order in which they are asked.
    pub candidates: Vec<Considered>,
    /// Who would answer.
    pub winner: Option<Provenance>,
    /// Why nobody would.
    pub refusal: Option<Error>,
}

/// One back-end, as it was considered.
#[derive(Debug, Clone, PartialEq)]
pub struct Considered {
    /// Its name.
    pub backend: String,
    /// Its kind, for instance `ollama`.
    pub kind: String,
    /// The generation that is live.
    pub generation: Named,
    /// The model that the name means there, where it has one.
    pub model: Option<String>,
    /// Each condition that was looked at, in order.
    pub conditions: Vec<Condition>,
    /// What a request would be refused with here.
    pub refusal: Option<Error>,
    /// What was measured of its last requests.
    pub score: WindowReport,
    /// What a request takes with the model, in seconds, where that was measured on this class of host
    /// ([`crate::Known::takes`]).
    pub takes: Option<f64>,
    /// Whether it is the one.
    pub wins: bool,
}

/// One condition for being asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// `named` (the name asks for this back-end, or for none), `reachable` (it could be asked for
    /// its models), `has-model`, a capability by its name, `unblocked`, `has-room`, `first` (no
    /// earlier back-end has the model), `fastest` (of those with the very same weights).
    pub name: String,
    /// Whether it holds.
    pub holds: bool,
    /// A sentence, where there is more to say.
    pub detail: String,
}

impl Condition {
    fn new(name: &str, holds: bool, detail: impl Into<String>) -> Self {
        Self { name: name.to_owned(), holds, detail: detail.into() }
    }
}

impl Router {
    /// Where a request for this name would go, and why. Without a request, one for plain text.
    ///
    /// # Errors
    /// `invalid-request` for what cannot be a name; the store's own error.
    pub async fn explain(&self, asked: &str, request: Option<&Request>) -> Result<Explanation> {
        let key = name::key(asked)?;
        let plain = Request::new("", asked, Prompt::Text(String::new()));
        let (outcome, over) = match self.find(asked).await {
            Err(error) => (Err(error), None),
            Ok(Found { plan, over }) => {
                let over = over.map(|over| (plan.slot.name.clone(), over));
                let wanted = request.unwrap_or(&plain);
                (self.would(plan, wanted, request.is_some()).await, over)
            }
        };
        let slots = self.backends.slots();
        let mut candidates = Vec::new();
        let mut earlier = None;
        // The back-end that is asked by name comes first, and alone if it has the model.
        let alone = match named(&slots, &key) {
            Some((slot, model)) => {
                let request = request.unwrap_or(&plain);
                let considered = self.consider(slot, &model, request, true, &mut earlier).await?;
                let alone = considered.model.is_some() || considered.refusal.is_some();
                if alone {
                    candidates.push(considered);
                }
                alone.then_some(&slot.name)
            }
            None => None,
        };
        for slot in slots.iter().filter(|slot| alone != Some(&slot.name)) {
            let request = request.unwrap_or(&plain);
            let may = alone.is_none();
            candidates.push(self.consider(slot, &key, request, may, &mut earlier).await?);
        }
        if let Some((fastest, over)) = over {
            told(&mut candidates, &fastest, &over);
        }
        let (winner, refusal) = match outcome {
            Ok(winner) => (Some(winner), None),
            Err(error) => (None, Some(error)),
        };
        for considered in &mut candidates {
            considered.wins = winner.as_ref().is_some_and(|by| by.backend == considered.backend);
        }
        Ok(Explanation { asked: asked.to_owned(), candidates, winner, refusal })
    }

    /// Who would answer, by the code that routes.
    async fn would(&self, plan: Plan, request: &Request, given: bool) -> Result<Provenance> {
        plan.check(request)?;
        let words = capabilities(request);
        let other = self.unblocked(&plan, &words).await?;
        let plan = other.unwrap_or(plan);
        plan.check(request)?;
        if given {
            let chosen = plan.slot.choose(&request.id);
            if !Arc::ptr_eq(&chosen, &plan.generation)
                && let Ok(Some(other)) = self.again(&plan, chosen).await
                && self.admits(&other, &words, |plan| plan.check(request)).await.is_ok()
            {
                return Ok(other.provenance());
            }
        }
        Ok(plan.provenance())
    }

    /// What holds for one back-end. `may`: the name does not ask for another; `earlier`: the first
    /// that has the model.
    async fn consider(
        &self,
        slot: &Arc<Slot>,
        key: &str,
        request: &Request,
        may: bool,
        earlier: &mut Option<String>,
    ) -> Result<Considered> {
        let generation = slot.current();
        let mut considered = Considered {
            backend: slot.name.clone(),
            kind: generation.descriptor.kind.clone(),
            generation: generation.named(),
            model: None,
            conditions: Vec::new(),
            refusal: None,
            score: generation.window.report(),
            takes: None,
            wins: false,
        };
        let mut say = |name: &str, refusal: Option<Error>, detail: String| {
            let holds = refusal.is_none();
            considered.conditions.push(Condition::new(name, holds, detail));
            if considered.refusal.is_none() {
                considered.refusal = refusal;
            }
        };
        let found = self.look_up(slot, Arc::clone(&generation), called(key)).await;
        let plan = match found {
            Err(error) => {
                let detail = error.message.clone();
                say("reachable", Some(error), detail);
                return Ok(considered);
            }
            Ok(found) => {
                say("reachable", None, String::new());
                found
            }
        };
        let Some(plan) = plan else {
            considered.conditions.push(Condition::new("has-model", false, ""));
            return Ok(considered);
        };
        let plan = self.less(plan).await;
        say("has-model", None, plan.info.id.clone());
        for (capability, noun) in needs(request) {
            let refusal = plan.offers(capability, noun).err();
            let detail = refusal.as_ref().map(|error| error.message.clone()).unwrap_or_default();
            say(capability, refusal, detail);
        }
        let words = capabilities(request);
        let block = self.hit(&generation, &plan.info, &words).await;
        let refusal = block.as_ref().map(|it| blocks::refusal(it, &slot.name, &plan.info.id));
        say("unblocked", refusal, block.map(|block| block.id).unwrap_or_default());
        say("has-room", room(slot, &plan).err(), String::new());
        considered.conditions.push(match (may, &earlier) {
            (false, _) => Condition::new("named", false, "the name asks for another back-end"),
            (true, Some(first)) => {
                Condition::new("first", false, format!("{first} has the model and comes before"))
            }
            (true, None) => Condition::new("first", true, ""),
        });
        if may {
            earlier.get_or_insert_with(|| slot.name.clone());
        }
        considered.model = Some(plan.info.id.clone());
        considered.takes = self.known().takes(&generation.digest, &plan.info);
        Ok(considered)
    }
}

/// Says of the fastest and of the first in the order why that one is asked.
fn told(candidates: &mut [Considered], fastest: &str, Over { first, takes, took }: &Over) {
    for Considered { backend, conditions, .. } in candidates {
        if backend == fastest {
            conditions.retain(|condition| condition.name != "first");
            let detail = format!(
                "it has the weights of {first} and takes {takes:.3} s, that one {took:.3} s"
            );
            conditions.push(Condition::new("fastest", true, detail));
        } else if backend == first {
            let detail = format!(
                "{fastest} has the same weights and takes {takes:.3} s, this one {took:.3} s"
            );
            conditions.push(Condition::new("fastest", false, detail));
        }
    }
}

fn room(slot: &Slot, plan: &Plan) -> Result<()> {
    slot.queue(&plan.info.id).room()
}
