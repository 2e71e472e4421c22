//! The performance guardrail: how fast an approved component is on each class of host, and how much
//! slower its successor may be.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Medians of an approved component, and the tolerance for what follows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Guardrail {
    /// How much slower a successor may be, as a share: 0.05 is five percent. From 0 to below 1.
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub tolerance: f64,
    /// What was measured, one entry for each class of host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub measured: Vec<Measured>,
}

/// Medians on one class of host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Measured {
    /// As [`crate::performance::HostFingerprint::class`] names it, for instance `x86_64-avx512-8`.
    #[schemars(length(min = 1, max = 64))]
    pub host_class: String,
    /// Tokens per second while the prompt is read.
    pub prefill: f64,
    /// Tokens per second while the answer is written.
    pub decode: f64,
}

/// Medians without their place: what a host measures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Tokens per second while the prompt is read.
    pub prefill: f64,
    /// Tokens per second while the answer is written.
    pub decode: f64,
}

impl Rates {
    /// Whether anything was computed at all: a run of zero tokens is a failed run.
    #[must_use]
    pub fn is_run(self) -> bool {
        [self.prefill, self.decode].iter().all(|rate| rate.is_finite() && *rate > 0.0)
    }

    /// Whether this is at least the baseline less the tolerance, in both rates.
    ///
    /// # Errors
    /// Which rate is too low, with the numbers.
    pub fn holds(self, baseline: Self, tolerance: f64) -> Result<(), String> {
        for (what, found, before) in
            [("prefill", self.prefill, baseline.prefill), ("decode", self.decode, baseline.decode)]
        {
            let least = before * (1.0 - tolerance);
            if found < least {
                return Err(format!(
                    "{what} is {found:.2} tokens per second, expected at least {least:.2} ({before:.2} less {:.1} %)",
                    tolerance * 100.0
                ));
            }
        }
        Ok(())
    }
}

impl Guardrail {
    /// What was measured on this class of host.
    #[must_use]
    pub fn on(&self, host_class: &str) -> Option<Rates> {
        let found = self.measured.iter().find(|one| one.host_class == host_class)?;
        Some(Rates { prefill: found.prefill, decode: found.decode })
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        if !(0.0..1.0).contains(&self.tolerance) {
            let found = self.tolerance;
            return Err(format!("guardrail tolerance {found}: expected a share from 0 to below 1"));
        }
        for (at, one) in self.measured.iter().enumerate() {
            let class = &one.host_class;
            if class.is_empty() || class.len() > 64 || class.chars().any(char::is_control) {
                return Err(format!(
                    "guardrail host-class {class:?}: expected up to 64 characters"
                ));
            }
            if !(Rates { prefill: one.prefill, decode: one.decode }).is_run() {
                return Err(format!(
                    "guardrail on {class}: zero tokens per second is a failed run"
                ));
            }
            if self.measured.iter().skip(at + 1).any(|other| other.host_class == *class) {
                return Err(format!("guardrail on {class}: expected one entry, found two"));
            }
        }
        Ok(())
    }
}
