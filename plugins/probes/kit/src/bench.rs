//! What a check knows before it asks: the plan, the back-end's description, the model, and where a
//! claim stands.

use core::time::Duration;

use gristmill_plugin::{Support, clock, prelude::*, probe::serving};

use crate::{Stop, When, not_applicable};

/// Where a claim stands, for this model on this back-end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Claimed, with its value.
    Claimed(Option<String>),
    /// Claimed not to be there, and why.
    Denied(String),
    /// Nobody says, or it depends on what a probe cannot see; which of these.
    Open(String),
}

/// The back-end under test.
pub struct Bench {
    /// The model, as the plan names it.
    pub model: String,
    /// What the back-end says it is.
    pub descriptor: Descriptor,
    /// What it says of the model; none: it does not list it.
    pub info: Option<ModelInfo>,
    budget: Duration,
}

impl Bench {
    /// Asks the back-end what it is.
    ///
    /// # Errors
    /// Its failure to list its models.
    pub fn new(plan: &Plan) -> Result<Self> {
        let descriptor = serving::describe();
        let models = serving::models()?;
        Ok(Self::of(plan, descriptor, models))
    }

    fn of(plan: &Plan, descriptor: Descriptor, models: Vec<ModelInfo>) -> Self {
        let named = |info: &ModelInfo| info.id == plan.model || info.names.contains(&plan.model);
        Self {
            model: plan.model.clone(),
            descriptor,
            info: models.into_iter().find(named),
            budget: Duration::from_millis(plan.budget_ms.into()),
        }
    }

    /// Where a claim stands: the model's word, else the back-end's. `model.X` of a back-end means
    /// the model's word on X.
    #[must_use]
    pub fn standing(&self, capability: &str) -> Standing {
        let of_model = self.info.as_ref().map(|info| info.claims.as_slice()).unwrap_or_default();
        let find = |claims: &[Claim]| claims.iter().find(|claim| claim.name == capability).cloned();
        let Some(claim) = find(of_model).or_else(|| find(&self.descriptor.claims)) else {
            return Standing::Open(format!("nobody claims {capability}"));
        };
        match claim.support {
            Support::Supported => Standing::Claimed(claim.value),
            Support::Unsupported(reason) => {
                Standing::Denied(format!("{capability} is not claimed: {}", reason.detail))
            }
            Support::Conditional(condition) => {
                Standing::Open(format!("{capability} depends on `{condition}`"))
            }
            Support::Unknown => Standing::Open(format!("nobody knows whether {capability}")),
        }
    }

    /// Whether a capability is claimed.
    #[must_use]
    pub fn claims(&self, capability: &str) -> bool {
        matches!(self.standing(capability), Standing::Claimed(_))
    }

    /// Whether a check of this capability has something to test.
    ///
    /// # Errors
    /// "Not applicable", and why.
    pub fn ready_for(&self, capability: &str, when: When) -> Result<(), Stop> {
        match (when, self.standing(capability)) {
            (When::Always, _) | (When::Claimed, Standing::Claimed(_)) => Ok(()),
            (When::Claimed, Standing::Denied(why) | Standing::Open(why)) => not_applicable(why),
            (When::Denied, Standing::Denied(_)) => Ok(()),
            (When::Denied, Standing::Claimed(_)) => {
                not_applicable(format!("{capability} is claimed"))
            }
            (When::Denied, Standing::Open(why)) => not_applicable(why),
            (When::Generates, _) => match self.standing("inference.text") {
                Standing::Denied(why) => not_applicable(why),
                _ => Ok(()),
            },
        }
    }

    /// The longest context one answer may have, in tokens, where anybody says.
    #[must_use]
    pub fn context(&self) -> Option<u32> {
        let valued = |capability| match self.standing(capability) {
            Standing::Claimed(Some(value)) => value.parse().ok(),
            _ => None,
        };
        let said = ["context.effective_max", "context.requested_limit", "context.native_max"];
        said.into_iter()
            .find_map(valued)
            .or_else(|| self.info.as_ref().and_then(|info| info.context_native))
    }

    /// How long one check may take.
    #[must_use]
    pub fn budget(&self) -> Duration {
        self.budget
    }

    /// Time since the check began.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        clock::monotonic()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bench(of_backend: Claim, of_model: Option<Claim>) -> Bench {
        let plan =
            Plan { model: "m:latest".into(), checks: Vec::new(), budget_ms: 1, extras: Vec::new() };
        let mut descriptor = Descriptor::new("b", "b", "1", "library");
        descriptor.claims.push(of_backend);
        let mut info = ModelInfo::new("m");
        info.names.push("m:latest".into());
        info.claims.extend(of_model);
        Bench::of(&plan, descriptor, vec![ModelInfo::new("other"), info])
    }

    #[test]
    fn the_models_word_goes_before_the_back_ends() {
        let tools = Claim::supported("tools.calling");
        let none = Claim::unsupported("tools.calling", "not-offered", "no template");
        let open = Claim::conditional("tools.calling", "model.tools.calling");
        assert!(bench(tools.clone(), None).claims("tools.calling"));
        let denied = bench(tools.clone(), Some(none));
        assert_eq!(
            denied.standing("tools.calling"),
            Standing::Denied("tools.calling is not claimed: no template".into())
        );
        assert!(denied.ready_for("tools.calling", When::Denied).is_ok());
        assert!(denied.ready_for("tools.calling", When::Claimed).is_err());
        assert!(bench(open.clone(), Some(tools)).claims("tools.calling"));
        let silent = bench(open, None);
        assert!(silent.ready_for("tools.calling", When::Claimed).is_err());
        assert!(silent.ready_for("tools.calling", When::Denied).is_err());
        assert!(silent.ready_for("conduct.limits", When::Always).is_ok());
    }

    #[test]
    fn the_context_is_what_is_served_else_what_was_trained() {
        let mut bench = bench(Claim::valued("context.native_max", "512"), None);
        assert_eq!(bench.context(), Some(512));
        bench.descriptor.claims.push(Claim::valued("context.requested_limit", "256"));
        assert_eq!(bench.context(), Some(256));
        bench.descriptor.claims.clear();
        assert_eq!(bench.context(), None);
    }
}
