//! A running host and its ledger keep up with each other.
//!
//! From the ledger to the host: files that change, or a SIGHUP, make every configured back-end whose pin
//! is another than what answers be proven, compiled, tried and swapped to. What is refused is said in the
//! log and by `/readyz`, and what answers goes on; it is tried again when a file changes or at the next
//! SIGHUP, not before.
//!
//! From the host to the ledger: where the router went back by itself, because a guardrail broke or a
//! digest was quarantined, the ledger goes back too, and its log says why.

use std::{collections::BTreeSet, fs, path::Path, sync::Arc, time::SystemTime};

use anyhow::Result;
use gristmill_ledger::{LedgerError, Pin};
use gristmill_router::{Happened, Rollout, SwapEvent, Why};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    task::spawn_blocking,
    time::{Duration, MissedTickBehavior, interval},
};

use crate::promote::Promoter;

/// How often the files are looked at: a few dozen `stat`s.
const LOOK: Duration = Duration::from_secs(1);

/// Starts to keep up, within the runtime that serves, until that ends.
pub(crate) fn watch(promoter: &Arc<Promoter>) -> Result<()> {
    let (told, mut happened) = mpsc::unbounded_channel();
    promoter.router.watch(Arc::new(told));
    let recorder = Arc::clone(promoter);
    tokio::spawn(async move {
        while let Some(event) = happened.recv().await {
            let promoter = Arc::clone(&recorder);
            // One after the other: the order is the log's.
            let _ = spawn_blocking(move || record(&promoter, &event)).await;
        }
    });

    let mut hangup = signal(SignalKind::hangup())?;
    let follower = Arc::clone(promoter);
    tokio::spawn(async move {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut seen = None;
        loop {
            let by = tokio::select! {
                _ = look.tick() => "a changed file",
                signal = hangup.recv() => match signal {
                    Some(()) => { seen = None; "SIGHUP" }
                    None => return,
                },
            };
            let (promoter, before) = (Arc::clone(&follower), seen.take());
            let work = move || {
                let now = stamp(&promoter.places.ledger);
                if before.as_ref() != Some(&now) {
                    follow(&promoter, by);
                }
                // What following wrote is no change to follow.
                stamp(&promoter.places.ledger)
            };
            match spawn_blocking(work).await {
                Ok(now) => seen = Some(now),
                Err(error) => tracing::error!(%error, "the ledger could not be looked at"),
            }
        }
    });
    Ok(())
}

/// What files there are, how long, since when.
type Stamp = Vec<(String, Option<(u64, SystemTime)>)>;

fn stamp(ledger: &Path) -> Stamp {
    let mut stamp = Vec::new();
    for folder in [ledger.join("pins"), ledger.to_owned()] {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let found = entry.metadata().ok().filter(|found| found.is_file());
            let when = found.and_then(|found| Some((found.len(), found.modified().ok()?)));
            stamp.push((entry.path().display().to_string(), when));
        }
    }
    stamp.sort();
    stamp
}

/// Swaps to what is pinned, for every configured back-end that something else answers for.
fn follow(promoter: &Promoter, by: &str) {
    let plugins: BTreeSet<&str> = promoter.configured.names().map(|(_, plugin)| plugin).collect();
    for name in plugins {
        let followed = pinned(promoter, name).and_then(|(pin, text)| {
            let digest = pin.digest();
            let mut backends = promoter.configured.names().filter(|(_, plugin)| *plugin == name);
            let answers = |backend: &str| {
                let slot = promoter.router.backends().slot(backend);
                slot.is_some_and(|slot| slot.current().digest == digest)
            };
            if backends.all(|(backend, _)| answers(backend)) {
                return Ok(());
            }
            promoter.promote(by, &pin, &text, Rollout::default()).map(|done| {
                for swapped in done.backends {
                    let (backend, generation) = (swapped.backend, swapped.generation);
                    tracing::info!(backend, generation, digest, by, "follows the ledger");
                }
            })
        });
        if let Err(refused) = followed {
            tracing::error!(plugin = name, code = refused.code(), %refused, by, "the ledger's pin is not followed");
        }
    }
}

/// The pin in its place.
fn pinned(promoter: &Promoter, name: &str) -> Result<(Pin, String), LedgerError> {
    let path = promoter.places.ledger.join("pins").join(format!("{name}.toml"));
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(source) => return Err(LedgerError::Io { path, source }),
    };
    match Pin::parse(&text) {
        Ok(pin) => Ok((pin, text)),
        Err(reason) => Err(LedgerError::Invalid { path, reason }),
    }
}

/// Takes the ledger back to where the router went by itself.
fn record(promoter: &Promoter, event: &SwapEvent) {
    let (to, why) = match &event.what {
        Happened::RolledBack { to, why } => (to.digest.clone(), why),
        Happened::Withdrawn(why) => {
            let Some(slot) = promoter.router.backends().slot(&event.backend) else { return };
            (slot.current().digest.clone(), why)
        }
        _ => return,
    };
    if !matches!(why, Why::Guardrail(_) | Why::Quarantined(_)) {
        return;
    }
    let Some(name) = promoter.configured.plugin(&event.backend) else { return };
    let by = format!("{}: {why}", why.code());
    let back = earlier(promoter, name, &to).and_then(|pin| match pin {
        Some(pin) => promoter.rollback(&by, name, pin.kind, Some(pin.sequence)).map(Some),
        None => Ok(None),
    });
    match back {
        Ok(Some(done)) => {
            tracing::warn!(
                backend = event.backend,
                to = done.pin.digest(),
                by,
                "the ledger went back"
            );
        }
        // The ledger names it already.
        Ok(None) => {}
        Err(error) => {
            tracing::error!(backend = event.backend, code = error.code(), %error, "the ledger could not go back: pin what answers");
        }
    }
}

/// The newest superseded pin of this component; none where the pin in force is of it.
fn earlier(promoter: &Promoter, name: &str, digest: &str) -> Result<Option<Pin>, LedgerError> {
    let (in_force, _) = pinned(promoter, name)?;
    if in_force.digest() == digest {
        return Ok(None);
    }
    let folder = promoter.places.ledger.join("history").join(name);
    let mut found: Option<Pin> = None;
    for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
        let pin = fs::read_to_string(entry.path()).ok().and_then(|text| Pin::parse(&text).ok());
        let newer = |pin: &Pin| found.as_ref().is_none_or(|known| known.sequence < pin.sequence);
        if let Some(pin) = pin.filter(|pin| pin.digest() == digest && newer(pin)) {
            found = Some(pin);
        }
    }
    found.map(Some).ok_or_else(|| LedgerError::Refused {
        code: "no-rollback-target",
        path: folder,
        reason: format!("no superseded pin of {digest}"),
    })
}
