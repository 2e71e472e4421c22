//! What runs is what was pinned, proven and approved.
//!
//! A ledger is a folder of text, kept in git and written by commands:
//!
//! ```text
//! pins/NAME.toml                which bytes run under a name; one pin for each, a change is one diff
//! candidates/NAME.toml          a pin that is to be signed and promoted
//! history/NAME/SEQUENCE.toml    superseded pins, each named by its successor's digest of it
//! evidence/*.json               what probes found out about components ([`evidence`])
//! performance/*.json            how fast they were ([`performance`])
//! upstreams/*.toml              what is known of the servers behind bridges ([`upstream`])
//! keys.toml, revoked.toml       who may approve ([`keys`]), what must not run any more ([`revoked`])
//! log.jsonl                     what happened, hash-chained ([`log`])
//! ```
//!
//! [`prove::prove`] holds a pin against all of it, in one order, fail closed. [`Keeper`] changes it, so
//! that a crash at any moment leaves the old pin or the new one. [`Ledger::verify`] proves the whole
//! folder with no network. This crate compiles and runs nothing: what needs a host is [`Host`].
//!
//! Refused, under the codes in `docs/ledger.md`: unknown keys, files whose names are not their contents',
//! digests that are not 64 lower-case hexadecimal digits, unsorted imports, and a `file` that is a path.

pub mod audit;
mod change;
pub mod contract;
mod date;
mod digest;
mod disk;
mod error;
pub mod evidence;
pub mod guardrail;
mod history;
pub mod host;
pub mod keeper;
pub mod keys;
pub mod log;
#[cfg(feature = "oci")]
mod login;
mod look;
#[cfg(feature = "oci")]
pub mod oci;
pub mod performance;
mod pin;
pub mod prove;
pub mod quarantine;
mod reports;
pub mod revoked;
pub mod schema;
mod seal;
pub mod source;
mod state;
mod trust;
pub mod upstream;

use std::{collections::BTreeMap, path::Path};

pub use audit::{Audit, Report};
pub use change::{Changed, Plan, Terms};
pub use date::Date;
pub use digest::sha256;
pub use error::LedgerError;
pub use history::Filed;
pub use host::{Host, HostRefusal, Inspected, Unserved};
pub use keeper::{Draft, Keeper, Revoke, Step};
pub use look::{
    Status, candidate, earlier, in_force, in_place, is_kept, proven, status, suite, waiting,
};
pub use pin::{Kind, Pin, VerifyError};
pub use prove::{Granted, Proven, Purpose, Rules, grant_digest};
pub use quarantine::Quarantine;
pub use source::Source;
pub use state::{Seen, State};
pub use trust::Trust;

/// A pin is a page of text; a longer file is not one.
const MAX_PIN_BYTES: u64 = 256 << 10;

/// The pins of a ledger folder.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    pins: BTreeMap<String, Pin>,
}

impl Ledger {
    /// Reads every `*.toml` in `dir/pins`. A ledger without that folder has no pins.
    ///
    /// # Errors
    /// The first file that cannot be read, or is not a valid pin under its own name.
    pub fn open(dir: &Path) -> Result<Self, LedgerError> {
        let mut pins = Vec::new();
        for path in disk::list(&dir.join(look::PINS), "toml")? {
            let Some(filed) = Filed::read(&path)? else { continue };
            filed.named()?;
            pins.push(filed.pin);
        }
        Self::from_pins(pins)
    }

    /// The pins that the log says are in force, wherever they lie: what a host runs while a changed pin
    /// waits to be proven.
    ///
    /// # Errors
    /// `log-tampered`, a file that cannot be read, `pin-changed` where a pin in force is nowhere.
    pub fn in_force(dir: &Path) -> Result<Self, LedgerError> {
        Self::of_chain(dir, &log::Chain::open(dir)?)
    }

    pub(crate) fn of_chain(dir: &Path, chain: &log::Chain) -> Result<Self, LedgerError> {
        let mut pins = Vec::new();
        for (name, standing) in chain.standings() {
            let Some(digest) = standing.pin else { continue };
            let place = look::place(dir, look::PINS, name);
            let filed = look::find(dir, name, &digest)?.ok_or_else(|| {
                let there = disk::read_if_there(&place, MAX_PIN_BYTES).ok().flatten();
                let there = there.map_or_else(|| "no file".to_owned(), |bytes| sha256(&bytes));
                change::pin_changed(&place, &digest, &there)
            })?;
            pins.push(filed.pin);
        }
        Self::from_pins(pins)
    }

    /// Proves the whole folder with no network: pins, history, signatures, evidence, policies by
    /// digest, log, upstreams, performance.
    ///
    /// # Errors
    /// The folder itself cannot be read. What is wrong inside is in the report, all of it.
    pub fn verify(dir: &Path, audit: &Audit<'_>) -> Result<Report, LedgerError> {
        audit::audit(dir, audit)
    }

    /// A ledger of these pins, for instance for one plugin under development.
    ///
    /// # Errors
    /// [`LedgerError::Duplicate`] when two of them have one name.
    pub fn from_pins(pins: impl IntoIterator<Item = Pin>) -> Result<Self, LedgerError> {
        let mut by_name = BTreeMap::new();
        for pin in pins {
            let name = pin.name.clone();
            if by_name.insert(name.clone(), pin).is_some() {
                return Err(LedgerError::Duplicate { name });
            }
        }
        Ok(Self { pins: by_name })
    }

    /// The pin of a plugin.
    #[must_use]
    pub fn pin(&self, name: &str) -> Option<&Pin> {
        self.pins.get(name)
    }

    /// All pins, by name.
    pub fn pins(&self) -> impl Iterator<Item = &Pin> {
        self.pins.values()
    }
}
