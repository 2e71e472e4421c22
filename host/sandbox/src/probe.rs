//! Probes: plugins that test a back-end through the same interface that the host uses.

use std::sync::Arc;

use async_trait::async_trait;
use gristmill_core::{Extras, Result};

use crate::backend::Backend;

/// What to test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Canonical model id to test with.
    pub model: String,
    /// Which checks, by id; empty: all.
    pub checks: Vec<String>,
    /// How long the run should take at most, in milliseconds.
    pub budget_ms: u32,
    /// What a later contract knows.
    pub extras: Extras,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// As claimed.
    Passed,
    /// Not as claimed: what was expected and seen.
    Failed(String),
    /// Cannot be tested here, and why.
    NotApplicable(String),
}

/// One check's result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Which check.
    pub id: String,
    /// The claim it tests.
    pub capability: Option<String>,
    /// What it found.
    pub outcome: Outcome,
    /// What was sent and seen, short, no secrets.
    pub evidence: String,
}

/// A loaded probe.
#[async_trait]
pub trait Probe: Send + Sync {
    /// `sha256:…` of the component.
    fn digest(&self) -> &str;

    /// The ids of all checks, in the order in which they run.
    ///
    /// # Errors
    /// `plugin-fault`, `busy`.
    async fn checks(&self) -> Result<Vec<String>>;

    /// Runs the plan's checks against this back-end, which runs in stores of its own: its faults are
    /// findings, not the probe's.
    ///
    /// # Errors
    /// `plugin-fault` of the probe, `busy`.
    async fn run(&self, backend: Arc<dyn Backend>, plan: Plan) -> Result<Vec<Check>>;
}
