//! Putting another component in a live one's place: what can be asked, what becomes of it, what is
//! told of it.
//!
//! Owns: the words of a swap. [`Rollout`] says how much traffic a candidate gets first, what it is
//! held to ([`Guardrail`]) and how long answers of the old generation may go on; [`Swapped`] says
//! what was done; [`GenerationReport`] what there is; [`SwapEvent`] what happened, in order.
//!
//! Refuses: a digest in quarantine, a candidate that cannot say what it is or what it serves, a way
//! back where there is none, shares and windows without sense. A refusal changes nothing.
//!
//! Bounds: a window keeps at most [`guard::MOST`] requests, a shadow at most its own number of
//! copies at a time, faults are kept of at most [`strikes::KEPT`] digests. Quarantine has no bound.

use std::{fmt, time::Duration};

use gristmill_core::{Code, Error};

pub mod guard;
pub(crate) mod life;
pub(crate) mod shadow;
pub mod strikes;
pub(crate) mod trial;

pub use guard::{Breach, Guardrail, WindowReport};
pub use strikes::{Quarantined, Strikes};

/// How a candidate comes in.
#[derive(Debug, Clone, PartialEq)]
pub struct Rollout {
    /// What comes before full traffic.
    pub trial: Trial,
    /// What the candidate is held to, on trial and afterwards.
    pub guard: Guardrail,
    /// How long answers that run on the replaced generation may go on.
    pub drain: Duration,
    /// Whether the component comes in although it is there already: it was bound anew, to another server
    /// or under another grant. What it takes the place of is not kept to go back to.
    pub anew: bool,
}

impl Default for Rollout {
    /// Full traffic at once, watched for ten minutes, five minutes for answers under way.
    fn default() -> Self {
        Self {
            trial: Trial::None,
            guard: Guardrail::default(),
            drain: Duration::from_secs(300),
            anew: false,
        }
    }
}

/// What comes before full traffic. When it ends well, the candidate is promoted.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Trial {
    /// Nothing: full traffic at once.
    #[default]
    None,
    /// A share of the requests is answered by the candidate.
    Canary {
        /// Of all requests, above 0 and at most 1. Which ones is decided by their id alone.
        share: f64,
        /// So many requests end the trial.
        window: usize,
    },
    /// The candidate gets a copy of a share of the requests for text; its answers are compared with
    /// the real ones and dropped.
    Shadow {
        /// Of all requests, above 0 and at most 1.
        share: f64,
        /// So many compared answers end the trial.
        window: usize,
        /// Copies at the same time; what comes beyond is not copied.
        active: usize,
        /// Highest share of answers that may differ from the real ones; 1 lets all differ.
        differing: f64,
    },
}

impl Trial {
    fn word(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Canary { .. } => "canary",
            Self::Shadow { .. } => "shadow",
        }
    }
}

impl Rollout {
    /// Refuses numbers without sense.
    ///
    /// # Errors
    /// [`SwapError::Rollout`].
    pub fn check(&self) -> Result<(), SwapError> {
        let wrong = |field, expected| Err(SwapError::Rollout { field, expected });
        let share = |value: f64| value > 0.0 && value <= 1.0;
        let window = |value: usize| (1..=guard::MOST).contains(&value);
        match self.trial {
            Trial::Canary { share: part, .. } | Trial::Shadow { share: part, .. }
                if !share(part) =>
            {
                return wrong("trial.share", "a number above 0 and at most 1");
            }
            Trial::Canary { window: most, .. } | Trial::Shadow { window: most, .. }
                if !window(most) =>
            {
                return wrong("trial.window", "1 to 10000 requests");
            }
            Trial::Shadow { active, .. } if !(1..=64).contains(&active) => {
                return wrong("trial.active", "1 to 64 copies");
            }
            Trial::Shadow { differing, .. } if !(0.0..=1.0).contains(&differing) => {
                return wrong("trial.differing", "a number from 0 to 1");
            }
            _ => {}
        }
        self.guard.check()
    }
}

/// A generation, named for people and logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// Which installation under its name, from 1.
    pub generation: u64,
    /// `sha256:…` of its component.
    pub digest: String,
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "generation {} ({})", self.generation, self.digest)
    }
}

/// What a promotion or a rollback did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swapped {
    /// Name of the back-end.
    pub backend: String,
    /// The generation that the call was about: after a promotion the candidate, after a rollback
    /// what answers now.
    pub generation: Named,
    /// How it stands.
    pub standing: Standing,
    /// What it took the place of, where it did.
    pub replaced: Option<Named>,
}

/// How a generation stands after a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It answers, since this call.
    Live,
    /// It is on trial, since this call.
    OnTrial,
    /// It was what the call asked for already; nothing was done.
    Unchanged,
}

/// What a generation is to its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It answers.
    Current,
    /// It is on trial.
    Candidate,
    /// It answered before, and is kept to go back to.
    Previous,
    /// It will not answer again; answers that run on it are let end.
    Leaving,
}

impl Role {
    /// The documented word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Candidate => "candidate",
            Self::Previous => "previous",
            Self::Leaving => "leaving",
        }
    }
}

/// One generation of a name, as it is now.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerationReport {
    /// Name of the back-end.
    pub backend: String,
    /// Number and digest.
    pub generation: Named,
    /// What it is to its name.
    pub role: Role,
    /// Its kind, for instance `ollama`.
    pub kind: String,
    /// The component's own version.
    pub version: String,
    /// Answers that run on it.
    pub running: usize,
    /// How long until answers that run on it are ended, where it was replaced.
    pub drain: Option<Duration>,
    /// Its last requests.
    pub window: WindowReport,
    /// Faults of its component that count against it now.
    pub faults: usize,
    /// Whether its digest is in quarantine.
    pub quarantined: bool,
    /// Its trial, while it is on one.
    pub trial: Option<TrialReport>,
}

/// A trial under way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrialReport {
    /// What was asked for.
    pub trial: Trial,
    /// Requests answered, or answers compared, so far.
    pub seen: usize,
    /// Compared answers that differed.
    pub differing: usize,
    /// Requests that were not copied because too many copies ran.
    pub skipped: usize,
}

/// Why traffic went back, or a candidate left.
#[derive(Debug, Clone, PartialEq)]
pub enum Why {
    /// Somebody asked for it.
    Asked,
    /// Another component was asked for in its place.
    Replaced,
    /// It broke its guardrail.
    Guardrail(Breach),
    /// Its digest was quarantined after so many faults.
    Quarantined(usize),
}

impl Why {
    /// The documented word: `asked`, `replaced`, `guardrail` or `quarantined`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Replaced => "replaced",
            Self::Guardrail(_) => "guardrail",
            Self::Quarantined(_) => "quarantined",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("somebody asked for it"),
            Self::Replaced => f.write_str("another component was asked for"),
            Self::Guardrail(breach) => breach.fmt(f),
            Self::Quarantined(faults) => write!(f, "{faults} faults put its digest in quarantine"),
        }
    }
}

/// Something that happened to a generation.
#[derive(Debug, Clone, PartialEq)]
pub struct SwapEvent {
    /// Name of the back-end; empty where a digest alone is meant.
    pub backend: String,
    /// Whom it happened to.
    pub generation: Named,
    /// What.
    pub what: Happened,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Happened {
    /// It was put in place under its name, and is live or on trial.
    Installed(Trial),
    /// It gets all traffic, in the place of this one.
    Promoted {
        /// What it replaced; none for the first of its name.
        replaced: Option<Named>,
    },
    /// It answers no more; this one does again.
    RolledBack {
        /// What answers now.
        to: Named,
        /// Why.
        why: Why,
    },
    /// Its trial ended without a promotion; nothing else changed.
    Withdrawn(Why),
    /// Its digest may not be installed again until it is released. `generation` is 0.
    Quarantined {
        /// The faults that led to it; 0 when somebody asked for it.
        faults: usize,
    },
    /// Its digest may be installed again. `generation` is 0.
    Released,
    /// Its name was taken out of service.
    Retired,
    /// It was replaced or retired, and no answer runs on it. Comes again where one that had waited
    /// for it, or a further choice, began since.
    Drained {
        /// Answers that were ended at the deadline.
        ended: u64,
    },
}

impl Happened {
    /// The documented word, for a log.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Installed(_) => "installed",
            Self::Promoted { .. } => "promoted",
            Self::RolledBack { .. } => "rolled-back",
            Self::Withdrawn(_) => "withdrawn",
            Self::Quarantined { .. } => "quarantined",
            Self::Released => "released",
            Self::Retired => "retired",
            Self::Drained { .. } => "drained",
        }
    }
}

/// Told of every [`SwapEvent`].
///
/// Called in the order of the swaps, by whichever task made them, which may be one that answers a
/// request, and while no other swap can happen: it must neither wait nor call the router. Only
/// [`Happened::Drained`] may come later, and at the same time as something else: it is told by
/// whoever ends the last answer. A channel's sending end is what is meant.
pub trait SwapWatch: Send + Sync {
    /// This happened.
    fn told(&self, event: SwapEvent);
}

impl SwapWatch for tokio::sync::mpsc::UnboundedSender<SwapEvent> {
    fn told(&self, event: SwapEvent) {
        // Nobody listens any more: the host is going down.
        let _ = self.send(event);
    }
}

/// Why a swap was refused. Nothing has changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SwapError {
    /// `unknown-backend`
    #[error("no back-end \"{0}\" is live; expected the name of one that is")]
    Unknown(String),
    /// `no-previous-generation`
    #[error("\"{0}\" has no previous generation to go back to; promote the one that is wanted")]
    NoPrevious(String),
    /// `quarantined`
    #[error("{digest} is in quarantine: {reason}; release it before it is installed again")]
    Quarantined {
        /// `sha256:…` of the component.
        digest: String,
        /// Why.
        reason: String,
    },
    /// `candidate-failed`
    #[error("the candidate for \"{backend}\" cannot {step}: {error}")]
    Candidate {
        /// Name of the back-end.
        backend: String,
        /// `say what it is` or `list its models`.
        step: &'static str,
        /// Its own error.
        error: Error,
    },
    /// `invalid-rollout`
    #[error("{field}: expected {expected}")]
    Rollout {
        /// The number that has no sense.
        field: &'static str,
        /// What would have.
        expected: &'static str,
    },
}

impl SwapError {
    /// The documented word.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unknown(_) => "unknown-backend",
            Self::NoPrevious(_) => "no-previous-generation",
            Self::Quarantined { .. } => "quarantined",
            Self::Candidate { .. } => "candidate-failed",
            Self::Rollout { .. } => "invalid-rollout",
        }
    }
}

impl From<SwapError> for Error {
    fn from(refusal: SwapError) -> Self {
        let message = refusal.to_string();
        let reason = refusal.code();
        match refusal {
            SwapError::Unknown(name) => Self::not_found(message).with("backend", name),
            SwapError::NoPrevious(name) => {
                Self::new(Code::Blocked, message).with("reason", reason).with("backend", name)
            }
            SwapError::Quarantined { digest, .. } => {
                Self::new(Code::Blocked, message).with("reason", reason).with("digest", digest)
            }
            SwapError::Candidate { error, .. } => Self { message, ..error },
            SwapError::Rollout { field, .. } => Self::invalid(message).with("field", field),
        }
    }
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
