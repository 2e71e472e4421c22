//! From a model's name to the one component that answers.
//!
//! Owns: which back-ends are live and in which generation ([`live`]), what a name means ([`name`]),
//! which back-end gets a request ([`route`]), what is known against one ([`blocks`]), how many wait for it ([`queue`]), and how long a model
//! stays in memory afterwards ([`keep`]). Knows model storage and memory only through [`Models`] and
//! [`Residency`].
//!
//! Refuses: an unknown name (nothing is ever substituted), a request whose needs the back-end or the
//! model declares unsupported or a block forbids, a request beyond the queue's bound.
//!
//! Bounds: every queue has a length; a listing is kept for [`live::LISTING_FRESH`]. No lock is held
//! while guest code runs: locks here guard maps, and no `await` happens under one.

pub mod blocks;
pub mod keep;
pub mod live;
pub mod models;
pub mod name;
pub mod queue;
pub mod route;

pub use blocks::Known;
pub use keep::{KeepAlive, KeepConfig};
pub use live::{Generation, Limits, Source};
pub use models::{Card, Engines, Models, NoModels, NoResidency, Progress, Record, Residency, Step};
pub use route::{Answer, Check, Load, Plan, Provenance, Resident, Router, RouterConfig};
