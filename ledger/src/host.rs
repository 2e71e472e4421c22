//! What only a host can do with a component: this crate inspects, measures, compiles and runs nothing itself.

use std::fmt;

use crate::{Kind, Pin, guardrail::Rates};

/// What a component is, as a host read it from its bytes without running it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspected {
    /// Its kind, by what it exports.
    pub kind: Kind,
    /// Contract version without the patch.
    pub contract: String,
    /// Everything it imports, by full name.
    pub imports: Vec<String>,
}

/// Why a host refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRefusal {
    /// The host's own documented word; none: that of the step.
    pub code: Option<&'static str>,
    /// What was expected and found.
    pub reason: String,
}

impl From<String> for HostRefusal {
    fn from(reason: String) -> Self {
        Self { code: None, reason }
    }
}

impl fmt::Display for HostRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

/// What only a host can do. Each is called at most once for a candidate, in the order given here.
pub trait Host {
    /// The class of this machine ([`crate::performance::HostFingerprint::class`]).
    fn class(&self) -> String;

    /// Reads what a component is, without running any of it.
    ///
    /// # Errors
    /// It is none, or damaged.
    fn inspect(&mut self, component: &[u8]) -> Result<Inspected, HostRefusal>;

    /// Measures the component on this machine: the medians of several runs.
    ///
    /// # Errors
    /// It could not be measured.
    fn measure(&mut self, pin: &Pin, component: &[u8]) -> Result<Rates, HostRefusal>;

    /// What the pin in force did on this class of host, where its guardrail does not say: as it was
    /// measured before with the model that this one is measured with.
    fn measured(&self, _in_force: &Pin) -> Option<Rates> {
        None
    }

    /// Compiles it, within limits.
    ///
    /// # Errors
    /// It does not compile.
    fn compile(&mut self, pin: &Pin, component: &[u8]) -> Result<(), HostRefusal>;

    /// Runs it once, away from the traffic.
    ///
    /// # Errors
    /// It does not do what it must.
    fn smoke(&mut self, pin: &Pin, component: &[u8]) -> Result<(), HostRefusal>;

    /// Moves the traffic to it, and says as which generation; none where nothing serves here.
    ///
    /// # Errors
    /// The traffic stays where it was.
    fn swap(&mut self, pin: &Pin, component: &[u8]) -> Result<Option<u64>, HostRefusal>;

    /// Told when a numbered step of a change on the disk is done ([`crate::keeper::Step`]).
    fn reached(&mut self, _step: crate::keeper::Step) {}
}

/// A host that serves nothing, for who writes a ledger and knows what the component is. Whoever serves
/// from that ledger compiles and smokes for itself.
#[derive(Debug, Clone)]
pub struct Unserved(pub Inspected);

impl Host for Unserved {
    fn class(&self) -> String {
        String::new()
    }

    fn inspect(&mut self, _component: &[u8]) -> Result<Inspected, HostRefusal> {
        Ok(self.0.clone())
    }

    fn measure(&mut self, _pin: &Pin, _component: &[u8]) -> Result<Rates, HostRefusal> {
        Err("nothing is measured here; promote it on a host that serves".to_owned().into())
    }

    fn compile(&mut self, _pin: &Pin, _component: &[u8]) -> Result<(), HostRefusal> {
        Ok(())
    }

    fn smoke(&mut self, _pin: &Pin, _component: &[u8]) -> Result<(), HostRefusal> {
        Ok(())
    }

    fn swap(&mut self, _pin: &Pin, _component: &[u8]) -> Result<Option<u64>, HostRefusal> {
        Ok(None)
    }
}
