//! From a model's name to the one component that answers.
//!
//! Owns: which back-ends are live ([`live`]) and in which generation ([`generation`]), how one takes
//! another's place ([`swap`]), what a name means ([`name`]), which back-end gets a request
//! ([`route`]), what is known against one ([`blocks`]), which of its
//! controls go on ([`policy`]), how many wait for it ([`queue`]), and how long a model stays in memory
//! afterwards ([`keep`]). Knows model storage and memory only through [`Models`] and
//! [`Residency`].
//!
//! Refuses: an unknown name (nothing is ever substituted), a request whose needs the back-end or the
//! model declares unsupported or a block forbids, a request beyond the queue's bound.
//!
//! Bounds: every queue has a length; a listing is kept for [`generation::LISTING_FRESH`]. No lock is held
//! while guest code runs: locks here guard maps, and no `await` happens under one.

pub mod blocks;
pub mod generation;
pub mod keep;
pub mod live;
pub mod models;
pub mod name;
pub mod policy;
pub mod queue;
pub mod route;
pub mod swap;
mod turn;

pub use blocks::Known;
pub use generation::Generation;
pub use keep::{KeepAlive, KeepConfig};
pub use live::{Limits, Source};
pub use models::{Card, Engines, Models, NoModels, NoResidency, Progress, Record, Residency, Step};
pub use policy::Policy;
pub use route::{
    Answer, Answered, Check, Condition, Considered, Explanation, Load, Plan, Provenance, Resident,
    Router, RouterConfig,
};
pub use swap::{
    Breach, GenerationReport, Guardrail, Happened, Named, Quarantined, Role, Rollout, Standing,
    Strikes, SwapError, SwapEvent, SwapWatch, Swapped, Trial, TrialReport, Why, WindowReport,
};
