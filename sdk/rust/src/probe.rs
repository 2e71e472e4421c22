//! Probes: what tests a back-end's claims. A probe sees a back-end exactly as the host does,
//! through [`serving`], and reports what it sent and saw.

use alloc::{borrow::ToOwned, string::String, vec::Vec};
use core::marker::PhantomData;

use crate::bindings::probe::exports::gristmill::contract::probing;
pub use crate::bindings::probe::exports::gristmill::contract::probing::{Check, Outcome, Plan};

/// The back-end under test.
pub mod serving {
    pub use crate::bindings::probe::gristmill::contract::serving::*;
}

/// What a probe answers.
pub trait Probe {
    /// The ids of its checks.
    fn checks() -> Vec<&'static str>;

    /// Runs one check against `plan.model`. A check that needs more time than is left of
    /// `plan.budget_ms` is not applicable.
    fn run(check: &str, plan: &Plan) -> Check;
}

impl Check {
    /// The claim holds; `evidence` is short and has no secrets.
    pub fn passed(id: &str, evidence: impl Into<String>) -> Self {
        Self {
            id: id.to_owned(),
            capability: None,
            outcome: Outcome::Passed,
            evidence: evidence.into(),
        }
    }

    /// The claim does not hold.
    pub fn failed(id: &str, why: impl Into<String>, evidence: impl Into<String>) -> Self {
        Self { outcome: Outcome::Failed(why.into()), ..Self::passed(id, evidence) }
    }

    /// The check does not fit this back-end or model.
    pub fn not_applicable(id: &str, why: impl Into<String>) -> Self {
        Self { outcome: Outcome::NotApplicable(why.into()), ..Self::passed(id, "") }
    }

    /// The same check, tied to the capability it tests.
    #[must_use]
    pub fn of(mut self, capability: &str) -> Self {
        self.capability = Some(capability.to_owned());
        self
    }
}

/// The contract's `probing`, answered by a [`Probe`]. [`export_probe!`](crate::export_probe) uses it.
#[doc(hidden)]
pub struct Probed<P>(PhantomData<P>);

impl<P: Probe> probing::Guest for Probed<P> {
    fn checks() -> Vec<String> {
        P::checks().into_iter().map(str::to_owned).collect()
    }

    /// The checks the plan names, or all; one the probe does not know is reported as such.
    fn run(plan: Plan) -> Vec<Check> {
        let known = P::checks();
        let wanted: Vec<String> =
            if plan.checks.is_empty() { Self::checks() } else { plan.checks.clone() };
        wanted
            .iter()
            .map(|id| {
                if known.contains(&id.as_str()) {
                    P::run(id, &plan)
                } else {
                    Check::not_applicable(id, "this probe has no such check")
                }
            })
            .collect()
    }
}

/// Makes the crate a probe component: `export_probe!(MyProbe);`, once.
#[macro_export]
macro_rules! export_probe {
    ($probe:ty) => {
        #[cfg(target_arch = "wasm32")]
        #[allow(
            unsafe_code,
            unused_imports,
            missing_docs,
            clippy::all,
            reason = "generated exports"
        )]
        mod exported {
            use super::*;
            type Exported = $crate::probe::Probed<$probe>;
            $crate::bindings::probe::export!(Exported with_types_in $crate::bindings::probe);
        }
    };
}
