//! Who would answer, and what it is held to: a model on a back-end, and the capabilities a request needs.

use std::sync::Arc;

use gristmill_core::{
    Error, Result,
    capability::{Claim, ModelInfo, Support},
    request::{Part, Prompt, Reasoning, Request, ToolChoice},
};
use gristmill_sandbox::backend::Backend;

use crate::{generation::Generation, keep::KeepAlive, live::Slot};

/// Who answers: exactly this model on exactly this component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provenance {
    /// Canonical model id.
    pub model: String,
    /// Name of the back-end.
    pub backend: String,
    /// `sha256:…` of its component.
    pub digest: String,
    /// Which installation under that name.
    pub generation: u64,
}

impl Provenance {
    /// A bridge names itself by its kind, in the detail `backend`; what the operator calls the
    /// back-end takes its place.
    pub(super) fn naming(&self, mut error: Error) -> Error {
        let told = error.details.iter_mut().find(|(name, _)| name == "backend");
        if let Some((_, told)) = told
            && *told != self.backend
        {
            told.clone_from(&self.backend);
            error.message = format!("back-end {}: {}", self.backend, error.message);
        }
        error
    }
}

/// One model on one back-end, chosen and not yet asked.
///
/// Which generation answers is settled when the request's place in the queue comes: a plan that
/// waited through a swap is asked of what answers then. The plan of an answer
/// ([`super::Answer::plan`]) is settled and stays with its generation.
#[derive(Clone)]
pub struct Plan {
    pub(super) slot: Arc<Slot>,
    pub(super) generation: Arc<Generation>,
    pub(super) info: Arc<ModelInfo>,
    pub(super) keep: Option<KeepAlive>,
    pub(super) settled: bool,
    /// No other back-end may answer, whatever a block names.
    pub(super) alone: bool,
}

impl Plan {
    pub(super) fn new(
        slot: &Arc<Slot>,
        generation: Arc<Generation>,
        info: ModelInfo,
        keep: Option<KeepAlive>,
    ) -> Self {
        let (slot, info) = (Arc::clone(slot), Arc::new(info));
        Self { slot, generation, info, keep, settled: false, alone: false }
    }

    /// The same plan for a caller who may not have the model of another back-end: a block that would
    /// let one answer refuses.
    #[must_use]
    pub fn alone(self) -> Self {
        Self { alone: true, ..self }
    }

    /// Who would answer now; of a settled plan, who answers.
    #[must_use]
    pub fn provenance(&self) -> Provenance {
        Provenance {
            model: self.info.id.clone(),
            backend: self.slot.name.clone(),
            digest: self.generation.digest.clone(),
            generation: self.generation.number,
        }
    }

    /// What the model is.
    #[must_use]
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// The component that will answer.
    #[must_use]
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.generation.backend
    }

    /// What is claimed for a capability: the model's word, else the back-end's, else nothing.
    #[must_use]
    pub fn claim(&self, capability: &str) -> Option<&Claim> {
        let claims = [&self.info.claims, &self.generation.descriptor.claims];
        claims.into_iter().flatten().find(|claim| claim.name == capability)
    }

    /// Refuses what the model or the back-end has declared it cannot do. What nobody has declared
    /// is the back-end's to refuse.
    ///
    /// # Errors
    /// `unsupported` with the detail `capability`.
    pub fn check(&self, request: &Request) -> Result<()> {
        needs(request).into_iter().try_for_each(|(capability, noun)| self.offers(capability, noun))
    }

    /// Refuses one capability, if it was declared impossible.
    pub(super) fn offers(&self, capability: &str, noun: &str) -> Result<()> {
        let reason = match self.claim(capability).map(|claim| &claim.support) {
            Some(Support::Unsupported(reason)) => format!(": {}", reason.detail),
            Some(Support::Unknown) => ": nobody knows whether it works".to_owned(),
            _ => return Ok(()),
        };
        Err(Error::unsupported(format!("\"{}\" does not support {noun}{reason}", self.info.id))
            .with("capability", capability))
    }
}

/// The capabilities a request needs, each with a noun for the message. Which field of a dialect
/// asked for one is the dialect's to say.
pub(super) fn needs(request: &Request) -> Vec<(&'static str, &'static str)> {
    let mut needs = vec![("inference.text", "generating text")];
    if !request.tools.is_empty() && request.tool_choice != ToolChoice::None {
        needs.push(("tools.calling", "tools"));
    }
    if request.constraint.is_some() {
        needs.push(("structured_output", "structured output"));
    }
    if request.logprobs.is_some() {
        needs.push(("logprobs", "log probabilities"));
    }
    if matches!(request.reasoning, Reasoning::On | Reasoning::Effort(_)) {
        needs.push(("reasoning.control", "thinking"));
    }
    if let Prompt::Chat(messages) = &request.prompt {
        let parts = || messages.iter().flat_map(|message| &message.content);
        if parts().any(|part| matches!(part, Part::Image(_))) {
            needs.push(("multimodal.vision", "images"));
        }
        if parts().any(|part| matches!(part, Part::Audio(_))) {
            needs.push(("multimodal.audio", "audio"));
        }
    }
    needs
}
