//! What is known against a back-end, kept to where a route is chosen: whom the blocks let answer, and
//! which claims are left. The server's version is asked for only where it matters.

use std::sync::Arc;

use gristmill_core::{
    Error, Result,
    capability::{ModelInfo, Support},
};
use gristmill_policies::Block;

use super::{Plan, Router};
use crate::{blocks, generation::Generation};

impl Plan {
    /// Refuses what a probe has found not to work. Other denials are the back-end's to say where a
    /// model's file knows less than the back-end can.
    ///
    /// # Errors
    /// `unsupported` with the detail `capability`.
    pub(super) fn uncontradicted(&self, capability: &str) -> Result<()> {
        match self.claim(capability).map(|claim| &claim.support) {
            Some(Support::Unsupported(reason)) if reason.code == blocks::CONTRADICTED => {
                let message = format!("\"{}\": {}", self.info.id, reason.detail);
                Err(Error::unsupported(message).with("capability", capability))
            }
            _ => Ok(()),
        }
    }
}

impl Router {
    /// Whom the blocks let answer: `None` the plan itself, else the alternative that the block names,
    /// with the same model, unless the plan is to answer alone.
    ///
    /// # Errors
    /// `blocked`, with the details `block`, `reason`, `capability` and `backend`.
    pub(super) async fn unblocked(&self, plan: &Plan, needs: &[&str]) -> Result<Option<Plan>> {
        let Some(block) = self.hit(&plan.generation, &plan.info, needs).await else {
            return Ok(None);
        };
        let refusal = || blocks::refusal(&block, &plan.slot.name, &plan.info.id);
        let alternative = block.alternative.as_ref().filter(|_| !plan.alone);
        let name = alternative.ok_or_else(refusal)?;
        let other = self.alternative(name, plan).await.ok_or_else(refusal)?;
        if self.hit(&other.generation, &other.info, needs).await.is_some() {
            return Err(refusal());
        }
        tracing::info!(block = block.id, model = plan.info.id, backend = name, "answers instead");
        Ok(Some(other))
    }

    /// The plan's model on another back-end.
    async fn alternative(&self, name: &str, plan: &Plan) -> Option<Plan> {
        let slots = self.backends.slots();
        let slot = slots.iter().find(|slot| slot.name == name)?;
        let same = |info: &ModelInfo| blocks::same_model(info, &plan.info);
        let found = self.look_up(slot, slot.current(), same).await.ok()??;
        Some(self.less(found).await)
    }

    pub(super) async fn hit(
        &self,
        generation: &Generation,
        info: &ModelInfo,
        needs: &[&str],
    ) -> Option<Block> {
        let known = self.known();
        if !known.concerns(&generation.descriptor.kind, &generation.digest) {
            return None;
        }
        let server = generation.server_version().await;
        known.hit(&generation.descriptor, server.as_deref(), info, needs).cloned()
    }

    /// The plan, less what probes contradict.
    pub(super) async fn less(&self, plan: Plan) -> Plan {
        if !self.known().concerns(&plan.generation.descriptor.kind, &plan.generation.digest) {
            return plan;
        }
        let info = Arc::unwrap_or_clone(plan.info);
        let info = Arc::new(self.judged(&plan.generation, info).await);
        Plan { info, ..plan }
    }

    /// The model's claims, less what probes contradict.
    pub(super) async fn judged(&self, generation: &Generation, info: ModelInfo) -> ModelInfo {
        let known = self.known();
        if !known.concerns(&generation.descriptor.kind, &generation.digest) {
            return info;
        }
        let server = generation.server_version().await;
        let Generation { digest, descriptor, .. } = generation;
        known.judged(digest, descriptor, server.as_deref(), info)
    }
}
