//! What a policy found about a request: an outcome for each control that is not simply the caller's,
//! or the refusal of the whole.

use std::fmt;

use serde::Serialize;

use crate::{
    control::{Control, Setting},
    parameter::Action,
};

/// What became of a control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The caller left it out and it was put in.
    Set,
    /// The caller's value was replaced by the required one.
    Replaced,
    /// It was taken out.
    Stripped,
    /// It went on although the policy does not call it good.
    Passed,
    /// The request was refused for it.
    Refused,
}

impl Outcome {
    /// The word in answers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Replaced => "replaced",
            Self::Stripped => "stripped",
            Self::Passed => "passed",
            Self::Refused => "refused",
        }
    }
}

impl From<Action> for Outcome {
    fn from(action: Action) -> Self {
        match action {
            Action::Refuse => Self::Refused,
            Action::Strip => Self::Stripped,
            Action::Pass => Self::Passed,
        }
    }
}

/// What was decided about one control, and why.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Verdict {
    /// The control.
    pub control: Control,
    /// What became of it.
    pub outcome: Outcome,
    /// A class's word, `override-unsupported`, `override-unverified`, `beyond-native-max` or `profile`.
    pub why: &'static str,
    /// The value that is required or known to be good, or that a profile put in.
    pub value: Option<Setting>,
    /// The reason, in the policy's or the profile's words.
    pub reason: Option<String>,
}

impl Verdict {
    /// The verdict in a few words, with the control under the name its caller knows.
    #[must_use]
    pub fn told(&self, name: &str) -> String {
        let Self { outcome, why, .. } = self;
        let word = outcome.as_str();
        match (outcome, &self.value) {
            (Outcome::Set | Outcome::Replaced, Some(value)) => {
                format!("{word} {name}={value} ({why})")
            }
            (_, Some(value)) => format!("{word} {name} ({why} is {value})"),
            (_, None) => format!("{word} {name} ({why})"),
        }
    }
}

/// Everything that policies and profiles did to one request that went on.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Judgement {
    /// Id of the policy that applied, if one did.
    pub policy: Option<String>,
    /// Name of the profile that applied, if one did.
    pub profile: Option<String>,
    /// What was decided, control by control; what is the caller's and went on as it came is not here.
    pub verdicts: Vec<Verdict>,
    /// Whether the length of the context that goes on was tested.
    pub context_verified: bool,
}

/// Why a request does not go on.
#[derive(Debug, Clone, PartialEq)]
pub enum Refusal {
    /// A policy forbids a control.
    Control {
        /// The policy's id.
        policy: String,
        /// What was found.
        verdict: Verdict,
    },
    /// The caller asked for a profile that there is not, or not for this model.
    Profile {
        /// The name.
        name: String,
        /// The names of those there are.
        known: Vec<String>,
    },
}

impl Refusal {
    pub(crate) fn new(policy: &str, verdict: Verdict) -> Self {
        Self::Control { policy: policy.to_owned(), verdict }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Control { policy, verdict } => {
                let Verdict { control, why, value, reason, .. } = verdict;
                write!(f, "{control} is refused by the policy {policy}: {why}")?;
                if let Some(value) = value {
                    write!(f, " is {value}")?;
                }
                match reason {
                    Some(reason) => write!(f, "; {reason}; leave it out"),
                    None => write!(f, "; leave it out"),
                }
            }
            Self::Profile { name, known } if known.is_empty() => {
                write!(f, "there is no profile {name:?}; none is known here")
            }
            Self::Profile { name, known } => {
                write!(f, "there is no profile {name:?} for this; known are {}", known.join(", "))
            }
        }
    }
}
