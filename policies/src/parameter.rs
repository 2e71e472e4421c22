//! Parameter policies: which controls of a generation are known to be good, bad or neither, for a
//! model family, a variant, a back-end, its versions and a class of hardware.
//!
//! A policy is one file, `policies/parameters/<id>.toml`; its name is its id. What it does not name it
//! does not limit. Of several that match a request the most specific applies, alone
//! ([`crate::rules`]). A policy adds nothing to a request but the values it calls `required`.
//!
//! Refused by name: unknown keys and controls, a value that is missing where the class needs one or
//! that the control cannot have, an action that contradicts its class, and a policy without reason.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    block::Versions,
    control::{Asked, Control, Setting, table_of},
    judge::{Outcome, Refusal, Verdict},
};

/// What is known of a control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// It must have this value. A request that leaves it out gets it.
    Required,
    /// This value was tested. A request that leaves the control out does not get it.
    KnownGood,
    /// Whatever the caller wants.
    Optional,
    /// Nobody has shown that it does no harm.
    Unverified,
    /// It was shown to do harm; with a value: only that value.
    KnownBad,
}

impl Class {
    /// The word in files and answers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::KnownGood => "known-good",
            Self::Optional => "optional",
            Self::Unverified => "unverified",
            Self::KnownBad => "known-bad",
        }
    }
}

/// What happens to a control that is not as the policy has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// The request fails and the answer says why.
    Refuse,
    /// The control is taken out (of a required one: its value is put in), and the answer says so.
    Strip,
    /// The control goes on as it is, and the answer says so.
    Pass,
}

/// What happens in each class. What is not written has the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct Actions {
    /// Another value than the required one. Default: refuse.
    pub required: Action,
    /// Another value than the known-good one. Default: pass.
    pub known_good: Action,
    /// An unverified control. Default: refuse.
    pub unverified: Action,
    /// A control, or a value, known to be bad: refuse or strip. Default: refuse.
    pub known_bad: Action,
}

impl Default for Actions {
    fn default() -> Self {
        Self {
            required: Action::Refuse,
            known_good: Action::Pass,
            unverified: Action::Refuse,
            known_bad: Action::Refuse,
        }
    }
}

impl Actions {
    fn of(self, class: Class) -> Action {
        match class {
            Class::Required => self.required,
            Class::KnownGood => self.known_good,
            Class::Optional => Action::Pass,
            Class::Unverified => self.unverified,
            Class::KnownBad => self.known_bad,
        }
    }
}

/// What is known of one control.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(extend(
    "if" = { "properties": { "class": { "enum": ["required", "known-good"] } } },
    "then" = { "required": ["value"] }
))]
pub struct Parameter {
    /// What is known.
    pub class: Class,
    /// The value that is required, known to be good, or known to be bad.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Setting>,
    /// Instead of the class's action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
    /// Why, where it is not the policy's reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What holds for the context's length. `num_ctx` is judged by this table and by no other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Context {
    /// Tokens the model was trained for. Where the back-end tells a number too, the smaller counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub native_max: Option<u32>,
    /// Whether the back-end chooses the length where a request does not.
    pub backend_managed: bool,
    /// Whether the back-end takes a length from a request at all.
    pub override_supported: bool,
    /// Whether it was tested that it does so without harm.
    pub override_verified: bool,
    /// What happens to a length that is asked for and may not be: refuse or strip. Default: refuse.
    #[serde(default = "refuse")]
    pub action: Action,
    /// Why, where it is not the policy's reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

fn refuse() -> Action {
    Action::Refuse
}

/// What becomes of controls that a policy does not name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unlisted {
    /// They are the caller's.
    #[default]
    Optional,
    /// They are as unverified as those that are named so.
    Unverified,
}

/// One policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(title = "parameter policy")]
pub struct ParameterPolicy {
    /// The file's name without `.toml`; answers and refusals carry it.
    #[serde(skip_deserializing)]
    #[schemars(skip)]
    pub id: String,
    /// Model family, as the back-end tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// Models, by any of their names, whole or with `*` at the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<String>,
    /// Kind of the back-end, as its descriptor says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Versions of the server behind a bridge, otherwise of the back-end: `>=0.6.0, <0.6.4`.
    #[serde(default)]
    #[schemars(with = "String", extend("pattern" = Versions::PATTERN))]
    pub versions: Versions,
    /// A word of the host's hardware: `x86_64`, `avx2`, `avx512`, ….
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<String>,
    /// Why there is this policy, in a sentence. Refusals carry it.
    pub reason: String,
    /// Where that was seen, for those who want to check it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
    /// What becomes of controls that are not named below.
    #[serde(default)]
    pub unlisted: Unlisted,
    /// What happens in each class.
    #[serde(default)]
    pub actions: Actions,
    /// What holds for the context's length. Without it `num_ctx` is left to the back-end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Context>,
    /// What is known of each control.
    #[serde(default)]
    #[schemars(schema_with = "parameters")]
    pub parameters: BTreeMap<Control, Parameter>,
}

fn parameters(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let judged = Control::ALL.iter().copied().filter(|control| *control != Control::NumCtx);
    table_of::<Parameter>(generator, judged)
}

impl ParameterPolicy {
    /// Reads a policy from TOML.
    ///
    /// # Errors
    /// What was expected and found.
    pub fn parse(id: &str, text: &str) -> Result<Self, String> {
        let mut policy: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        id.clone_into(&mut policy.id);
        policy.check()?;
        crate::rules::fold_patterns("variants", &mut policy.variants)?;
        Ok(policy)
    }

    fn check(&self) -> Result<(), String> {
        for (key, text) in [("family", &self.family), ("backend", &self.backend)] {
            if text.as_ref().is_some_and(|text| text.trim().is_empty()) {
                return Err(format!("{key}: expected a text, found an empty one"));
            }
        }
        if self.reason.trim().is_empty() {
            return Err("reason: a policy must say why; it is empty".to_owned());
        }
        if self.actions.known_bad == Action::Pass {
            return Err(
                "actions.known-bad: what is known to be bad does not pass; refuse or strip it"
                    .to_owned(),
            );
        }
        if let Some(context) = &self.context {
            context.check()?;
        }
        for (control, parameter) in &self.parameters {
            parameter
                .check(*control)
                .map_err(|reason| format!("parameters.{control}: {reason}"))?;
        }
        Ok(())
    }

    /// Judges what a request asks for and changes it accordingly. `native`: the longest context the
    /// back-end tells for the model, in tokens.
    ///
    /// # Errors
    /// The first refusal, in the order of [`Control::ALL`].
    pub fn judge(&self, asked: &mut Asked, native: Option<u32>) -> Result<Vec<Verdict>, Refusal> {
        let mut verdicts = Vec::new();
        for control in Control::ALL.iter().copied() {
            let verdict = match &self.context {
                Some(context) if control == Control::NumCtx => {
                    context.judge(asked, [native, context.native_max].into_iter().flatten().min())
                }
                None if control == Control::NumCtx => None,
                _ => self.parameter(control, asked),
            };
            let Some(mut verdict) = verdict else { continue };
            verdict.reason.get_or_insert_with(|| self.reason.clone());
            match verdict.outcome {
                Outcome::Refused => return Err(Refusal::new(&self.id, verdict)),
                Outcome::Stripped => {
                    asked.remove(&control);
                }
                Outcome::Set | Outcome::Replaced => {
                    asked.insert(control, verdict.value.clone());
                }
                Outcome::Passed => {}
            }
            verdicts.push(verdict);
        }
        Ok(verdicts)
    }

    fn parameter(&self, control: Control, asked: &Asked) -> Option<Verdict> {
        let unlisted = Parameter {
            class: match self.unlisted {
                Unlisted::Optional => Class::Optional,
                Unlisted::Unverified => Class::Unverified,
            },
            value: None,
            action: None,
            reason: None,
        };
        let known = self.parameters.get(&control).unwrap_or(&unlisted);
        let action = known.action.unwrap_or_else(|| self.actions.of(known.class));
        let given = asked.get(&control);
        let same = given.is_some_and(|given| *given == known.value);
        let outcome = match (known.class, given) {
            (Class::Optional, _) => return None,
            (Class::Required, None) => Outcome::Set,
            (_, None) => return None,
            (Class::Required | Class::KnownGood, Some(_)) if same => return None,
            (Class::KnownBad, Some(_)) if known.value.is_some() && !same => return None,
            (Class::Required, Some(_)) if action == Action::Strip => Outcome::Replaced,
            // What reaches no back-end does not go on either.
            (_, Some(_)) if action == Action::Pass && control.is_placement() => return None,
            (_, Some(_)) => action.into(),
        };
        Some(Verdict {
            control,
            outcome,
            why: known.class.as_str(),
            value: known.value.clone().filter(|_| known.class != Class::KnownBad),
            reason: known.reason.clone(),
        })
    }
}

impl Parameter {
    fn check(&self, control: Control) -> Result<(), String> {
        if control == Control::NumCtx {
            return Err("the context's length is judged by [context] alone".to_owned());
        }
        let class = self.class.as_str();
        match (self.class, &self.value) {
            (Class::Required | Class::KnownGood, None) => {
                return Err(format!("value is missing: {class} says which one"));
            }
            (Class::Optional | Class::Unverified, Some(_)) => {
                return Err(format!("a value means nothing where the class is {class}"));
            }
            (_, Some(value)) => control.check(value)?,
            (_, None) => {}
        }
        match (self.class, self.action) {
            (Class::Optional, Some(_)) => {
                Err("an action means nothing where the class is optional".to_owned())
            }
            (Class::KnownBad, Some(Action::Pass)) => {
                Err("what is known to be bad does not pass; refuse or strip it".to_owned())
            }
            _ => Ok(()),
        }
    }
}

impl Context {
    fn check(&self) -> Result<(), String> {
        if self.override_verified && !self.override_supported {
            return Err(
                "context: override-verified without override-supported; what does not work was not tested"
                    .to_owned(),
            );
        }
        if self.action == Action::Pass {
            return Err(
                "context.action: a length that is not verified does not pass; refuse or strip it"
                    .to_owned(),
            );
        }
        if self.native_max == Some(0) {
            return Err("context.native-max: expected a number of tokens from 1".to_owned());
        }
        Ok(())
    }

    fn judge(&self, asked: &Asked, most: Option<u32>) -> Option<Verdict> {
        let length = asked.get(&Control::NumCtx)?.as_ref().and_then(Setting::number);
        let most = most.map(f64::from);
        let why = match (self.override_supported, self.override_verified) {
            (false, _) => "override-unsupported",
            (true, false) => "override-unverified",
            (true, true) if length.zip(most).is_some_and(|(length, most)| length > most) => {
                "beyond-native-max"
            }
            (true, true) => return None,
        };
        Some(Verdict {
            control: Control::NumCtx,
            outcome: self.action.into(),
            why,
            value: None,
            reason: self.reason.clone(),
        })
    }
}
