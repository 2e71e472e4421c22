//! What of a pin in force can lapse after it was proven, held as [`crate::prove::prove`] holds it.
//!
//! For whoever starts from pins in force and changes nothing, so without the ledger's lock. What needs the
//! component (its bytes, its imports, that it compiles and runs) is for whoever loads it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use crate::{
    Ledger, LedgerError, Pin,
    change::{check_revoked, pin_changed},
    contract::World,
    date::Date,
    evidence::Evidence,
    keys::Keys,
    log::{Chain, LOG, Standing, check_clock},
    look::{PINS, is_kept, place},
    prove::{granted, report, serves, stands, world},
    revoked::Revoked,
    state::State,
};

/// What the pins in force of a ledger are held against.
#[derive(Debug, Clone)]
pub struct Trust {
    dir: PathBuf,
    standings: BTreeMap<String, Standing>,
    last: Option<Date>,
    keys: Keys,
    revoked: Revoked,
    evidence: Evidence,
    state: State,
    worlds: Vec<World>,
}

impl Trust {
    /// Reads it, and the pins that the log says are in force. None where the folder has neither a log
    /// nor keys, as one that is being made; where one of them is gone, nothing is in force or approved.
    ///
    /// `state` is the file outside the folder in which the highest sequences are remembered.
    ///
    /// # Errors
    /// `invalid-keys`, `revocation-missing`, `log-tampered`, `invalid-state`, `invalid-evidence`,
    /// `pin-changed`, or a file that cannot be read.
    pub fn open(
        dir: &Path,
        state: Option<&Path>,
        worlds: Vec<World>,
    ) -> Result<Option<(Self, Ledger)>, LedgerError> {
        if !is_kept(dir) {
            return Ok(None);
        }
        let chain = Chain::open(dir)?;
        let (revoked, digest) = Revoked::open(dir)?;
        check_revoked(dir, digest.as_deref(), chain.revoked())?;
        let ledger = Ledger::of_chain(dir, &chain)?;
        let standings = chain.standings().into_iter();
        let trust = Self {
            dir: dir.to_owned(),
            standings: standings.map(|(name, standing)| (name.to_owned(), standing)).collect(),
            last: chain.last(),
            keys: Keys::open(dir)?,
            revoked,
            evidence: Evidence::open(dir)?,
            state: State::open(state)?,
            worlds,
        };
        Ok(Some((trust, ledger)))
    }

    /// Whether a pin that is in force may still serve, with a grant of this digest.
    ///
    /// # Errors
    /// The first check that fails, under the word that `docs/ledger.md` has for it.
    pub fn holds(&self, pin: &Pin, grant: Option<&str>, now: Date) -> Result<(), LedgerError> {
        let path = place(&self.dir, PINS, &pin.name);
        let refused = |(code, reason): (_, String)| LedgerError::refused(code, &path, reason);
        let standing = self.standings.get(&pin.name).cloned().unwrap_or_default();
        let Some(digest) = &standing.pin else {
            return Err(pin_changed(&path, "no pin", "one"));
        };
        check_clock(&self.dir.join(LOG), now, self.last)?;
        stands(pin, digest, &self.revoked, now).map_err(refused)?;
        let highest = self.state.highest(&pin.name, &standing);
        let permitted = self.state.permitted(&pin.name, &standing);
        serves(pin, digest, highest, permitted.as_deref())
            .map_err(|reason| refused(("sequence-replayed", reason)))?;
        let signed = self.keys.verify(pin, &self.revoked);
        signed.map_err(|reason| refused(("signature-threshold", reason)))?;
        granted(pin, grant).map_err(refused)?;
        world(pin, &self.worlds).map_err(|reason| refused(("unsupported-contract", reason)))?;
        for digest in &pin.evidence {
            report(pin, digest, &self.evidence).map_err(refused)?;
        }
        Ok(())
    }
}
