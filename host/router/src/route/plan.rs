//! Who would answer, and what it is held to: a model on a back-end, and the capabilities a request needs.

use std::sync::{Arc, OnceLock};

use gristmill_core::{
    Error, Result,
    capability::{Claim, ModelInfo, Support},
    request::{Part, Prompt, Reasoning, Request, ToolChoice},
};
use gristmill_sandbox::backend::Backend;

use crate::{
    keep::KeepAlive,
    live::{Generation, Slot},
};

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
pub struct Plan {
    pub(super) slot: Arc<Slot>,
    pub(super) generation: Arc<Generation>,
    pub(super) info: ModelInfo,
    pub(super) keep: Option<KeepAlive>,
    /// Who answered, where a block let an alternative do it.
    pub(super) instead: OnceLock<Provenance>,
}

impl Plan {
    pub(super) fn new(
        slot: &Arc<Slot>,
        generation: Arc<Generation>,
        info: ModelInfo,
        keep: Option<KeepAlive>,
    ) -> Self {
        Self { slot: Arc::clone(slot), generation, info, keep, instead: OnceLock::new() }
    }

    /// Who will answer; after the answer has begun, who does.
    #[must_use]
    pub fn provenance(&self) -> Provenance {
        if let Some(instead) = self.instead.get() {
            return instead.clone();
        }
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
    /// `unsupported` with the details `field` and `capability`.
    pub fn check(&self, request: &Request) -> Result<()> {
        needs(request)
            .into_iter()
            .try_for_each(|(capability, field, noun)| self.offers(capability, field, noun))
    }

    /// Refuses one capability, if it was declared impossible.
    pub(super) fn offers(&self, capability: &str, field: &str, noun: &str) -> Result<()> {
        let reason = match self.claim(capability).map(|claim| &claim.support) {
            Some(Support::Unsupported(reason)) => format!(": {}", reason.detail),
            Some(Support::Unknown) => ": nobody knows whether it works".to_owned(),
            _ => return Ok(()),
        };
        Err(Error::unsupported(format!("\"{}\" does not support {noun}{reason}", self.info.id))
            .with("field", field)
            .with("capability", capability))
    }
}

/// The capabilities a request needs: name, the field that needs it, and a noun for the message.
pub(super) fn needs(request: &Request) -> Vec<(&'static str, &'static str, &'static str)> {
    let mut needs = vec![("inference.text", "model", "generating text")];
    if !request.tools.is_empty() && request.tool_choice != ToolChoice::None {
        needs.push(("tools.calling", "tools", "tools"));
    }
    if request.constraint.is_some() {
        needs.push((
            "structured_output",
            "response_format",
            "structured output (format, response_format)",
        ));
    }
    if request.logprobs.is_some() {
        needs.push(("logprobs", "logprobs", "log probabilities"));
    }
    if matches!(request.reasoning, Reasoning::On | Reasoning::Effort(_)) {
        needs.push(("reasoning.control", "think", "thinking"));
    }
    if let Prompt::Chat(messages) = &request.prompt {
        let parts = || messages.iter().flat_map(|message| &message.content);
        if parts().any(|part| matches!(part, Part::Image(_))) {
            needs.push(("multimodal.vision", "images", "images"));
        }
        if parts().any(|part| matches!(part, Part::Audio(_))) {
            needs.push(("multimodal.audio", "input_audio", "audio"));
        }
    }
    needs
}
