//! A running host and its ledger keep up with each other.
//!
//! From the ledger to the host: files that change, or a SIGHUP, have every pin that waits in its place be
//! proven and put in force, and every configured back-end be swapped to the pin in force, unless that answers
//! or is on trial there already. What is refused is said in the log and by `/readyz`, and what answers goes
//! on; it is tried again when a file changes or at the next SIGHUP, not before.
//!
//! From the host to the ledger: where the router went back by itself, because a guardrail broke or a
//! digest was quarantined, the ledger goes back too, and its log says why.

use std::{fs, path::Path, sync::Arc, time::SystemTime};

use anyhow::Result;
use gristmill_ledger::{LedgerError, Status, earlier, in_force, in_place, is_kept};
use gristmill_router::{Happened, Rollout, SwapEvent, Why};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    task::spawn_blocking,
    time::{Duration, MissedTickBehavior, interval},
};

use crate::promote::{Done, Promoter};

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
                let folder = &promoter.places.ledger;
                let look = || (stamp(&folder.join("pins")), stamp(folder));
                let now = look();
                if before.as_ref() == Some(&now) {
                    return now;
                }
                follow(&promoter, by);
                // What following wrote into the log is no change to follow; a pin that changed
                // meanwhile is one.
                (now.0, stamp(folder))
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

fn stamp(folder: &Path) -> Stamp {
    let mut stamp = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let found = entry.metadata().ok().filter(|found| found.is_file());
        let when = found.and_then(|found| Some((found.len(), found.modified().ok()?)));
        stamp.push((entry.path().display().to_string(), when));
    }
    stamp.sort();
    stamp
}

/// Puts in force what waits in a pin's place, and swaps every configured back-end to the pin in force that
/// runs something else. A component on trial is left to its trial.
fn follow(promoter: &Promoter, by: &str) {
    let turn = promoter.turn();
    let folder = &promoter.places.ledger;
    let all = match gristmill_ledger::status(folder) {
        Ok(all) => all,
        Err(error) => {
            tracing::error!(code = error.code(), %error, by, "the ledger is not followed");
            return;
        }
    };
    // A folder that is no ledger yet is taken as it lies there.
    let kept = is_kept(folder);
    for Status { name, pin, text, proven, pending, .. } in all {
        let digest = pin.digest();
        let runs = promoter.backends(&name).iter().all(|backend| promoter.runs(backend, &digest));
        let followed = if pending {
            in_place(folder, &name).and_then(|waits| match waits {
                Some(waits) => {
                    turn.promote(by, &waits.pin, &waits.text, Rollout::default()).map(Some)
                }
                None => Ok(None),
            })
        } else if !runs || kept && !proven {
            turn.promote(by, &pin, &text, Rollout::default()).map(Some)
        } else {
            continue;
        };
        match followed {
            Ok(Some(done)) => {
                let digest = done.pin.digest();
                tracing::info!(plugin = name, digest, by, "follows the ledger");
                for swapped in done.backends {
                    let (backend, generation) = (swapped.backend, swapped.generation);
                    tracing::info!(backend, generation, digest, by, "follows the ledger");
                }
            }
            Ok(None) => {}
            Err(refused) => {
                tracing::error!(plugin = name, code = refused.code(), %refused, by, "the ledger's pin is not followed");
            }
        }
    }
}

/// Takes the ledger back to where the router went by itself.
fn record(promoter: &Promoter, event: &SwapEvent) {
    let why = match &event.what {
        Happened::RolledBack { why, .. } | Happened::Withdrawn(why) => why,
        _ => return,
    };
    if !matches!(why, Why::Guardrail(_) | Why::Quarantined(_)) {
        return;
    }
    let Some(name) = promoter.configured.plugin(&event.backend) else { return };
    let by = format!("{}: {why}", why.code());
    match back(promoter, &event.backend, name, &by) {
        Ok(Some(done)) => {
            tracing::warn!(
                backend = event.backend,
                to = done.pin.digest(),
                by,
                "the ledger went back"
            );
        }
        Ok(None) => {}
        Err(error) => {
            tracing::error!(backend = event.backend, code = error.code(), %error, "the ledger could not go back: pin what answers");
        }
    }
}

/// Nothing where the back-end runs what the ledger names: it went back already, or another change followed.
fn back(
    promoter: &Promoter,
    backend: &str,
    name: &str,
    by: &str,
) -> Result<Option<Done>, LedgerError> {
    let turn = promoter.turn();
    let folder = &promoter.places.ledger;
    let in_force = in_force(folder, name)?;
    let in_force = in_force.map(|filed| filed.pin.digest());
    let slot = promoter.router.backends().slot(backend);
    let (Some(in_force), Some(slot)) = (in_force, slot) else { return Ok(None) };
    if promoter.runs(backend, &in_force) {
        return Ok(None);
    }
    let to = earlier(folder, name, &slot.current().digest)?.pin;
    turn.rollback(by, name, to.kind, Some(to.sequence)).map(Some)
}
