//! What of a pin in force can lapse after it was proven: its dates, its signatures, the trust in it.
//!
//! For whoever starts from pins in force and changes nothing, so without the ledger's lock.

use std::path::Path;

use crate::{
    LedgerError, Pin, change::check_revoked, date::Date, keys::Keys, log::Chain, prove::dates,
    revoked::Revoked,
};

/// Who may sign, and what must not run.
#[derive(Debug, Clone)]
pub struct Trust {
    keys: Keys,
    revoked: Revoked,
}

impl Trust {
    /// Reads it. The revocations must be those that the log knows.
    ///
    /// # Errors
    /// `invalid-keys`, `revocation-missing`, `log-tampered`, or a file that cannot be read.
    pub fn open(dir: &Path) -> Result<Self, LedgerError> {
        let (revoked, digest) = Revoked::open(dir)?;
        check_revoked(dir, digest.as_deref(), Chain::open(dir)?.revoked())?;
        Ok(Self { keys: Keys::open(dir)?, revoked })
    }

    /// Whether a pin that is in force may still serve.
    ///
    /// # Errors
    /// `not-yet-valid`, `expired`, `revoked` or `signature-threshold`, with the reason.
    pub fn holds(&self, pin: &Pin, now: Date) -> Result<(), (&'static str, String)> {
        dates(pin, now)?;
        if let Some(revocation) = self.revoked.digest(&pin.sha256) {
            let reason = format!("{} was revoked: {}", pin.sha256, revocation.reason);
            return Err(("revoked", reason));
        }
        let signed = self.keys.verify(pin, &self.revoked);
        signed.map(|_| ()).map_err(|reason| ("signature-threshold", reason))
    }
}
