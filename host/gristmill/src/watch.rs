//! A running host keeps up with what lies on the disk, and its ledger with the host.
//!
//! From the disk to the host: files that change, or a SIGHUP, have the policies read again, every pin that
//! waits in its place be proven and put in force, and every configured back-end and family be swapped to the
//! pin in force and to its grant, unless that answers or is on trial there already. What is refused is said in the
//! log and by `/readyz`, and what answers goes on; it is tried again when a file changes or at the next
//! SIGHUP, not before.
//!
//! From the host to the ledger: a digest that the router put in quarantine is so in the ledger's log too
//! ([`crate::quarantine`]). Where the router went back by itself, because a guardrail broke or for a
//! quarantine, the ledger goes back too, and its log says why.

use std::sync::Arc;

use anyhow::Result;
use gristmill_ledger::{
    Filed, Kind, LedgerError, Pin, Status, earlier, in_force, in_place, is_kept,
};
use gristmill_router::{Happened, Rollout, SwapEvent, Why};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    task::spawn_blocking,
    time::{Duration, MissedTickBehavior, interval},
};

use crate::{
    compose::Places,
    policy,
    promote::{Done, Left, Promoter, Turn},
    quarantine::agree,
    stamp::Stamp,
};

/// Who asks for what a signal asks for, in logs.
const SIGHUP: &str = "SIGHUP";

/// How often the files are looked at: about a hundred `stat`s.
const LOOK: Duration = Duration::from_secs(1);

/// Starts to keep up, within the runtime that serves, until that ends. `seen`: what the files looked like
/// before the host read them.
pub(crate) fn watch(promoter: &Arc<Promoter>, seen: Seen) -> Result<()> {
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
        // What waits is proven now that the host serves.
        let mut seen = Seen { pins: None, ..seen };
        loop {
            let by = tokio::select! {
                _ = look.tick() => "a changed file",
                signal = hangup.recv() => match signal {
                    Some(()) => { seen = Seen::default(); SIGHUP }
                    None => return,
                },
            };
            let (promoter, before) = (Arc::clone(&follower), std::mem::take(&mut seen));
            match spawn_blocking(move || keep_up(&promoter, before, by)).await {
                Ok(now) => seen = now,
                Err(error) => tracing::error!(%error, "the files could not be looked at"),
            }
        }
    });
    Ok(())
}

/// What the files looked like when they were last followed; none: they are to be followed in any case.
#[derive(Default)]
pub(crate) struct Seen {
    policies: Option<Stamp>,
    evidence: Option<Stamp>,
    performance: Option<Stamp>,
    pins: Option<Stamp>,
    ledger: Option<Stamp>,
}

impl Seen {
    pub(crate) fn now(places: &Places) -> Self {
        let stamp =
            |folder: &str, below| Some(Stamp::default().with(&places.ledger.join(folder), below));
        Self {
            policies: Some(Stamp::default().with(&places.policies, true)),
            evidence: stamp("evidence", false),
            performance: stamp("performance", false),
            pins: stamp("pins", false),
            ledger: stamp("", false),
        }
    }
}

fn keep_up(promoter: &Promoter, before: Seen, by: &str) -> Seen {
    let now = Seen::now(&promoter.places);
    let policies = before.policies != now.policies;
    if policies {
        policy::reread(promoter, by);
    }
    if before.evidence != now.evidence {
        policy::reread_evidence(promoter, by);
    }
    if before.performance != now.performance {
        policy::reread_measured(promoter, by);
    }
    if !policies && before.pins == now.pins && before.ledger == now.ledger {
        return now;
    }
    let done = follow(promoter, by);
    // What following wrote into the log is no change to follow; a pin that changed meanwhile is one.
    let ledger = Seen::now(&promoter.places).ledger;
    Seen { ledger: ledger.filter(|_| done), ..now }
}

/// Puts in force what waits in a pin's place, and swaps every configured back-end and family to the pin in
/// force that runs something else, or runs it with another grant. A component on trial is left to its trial. Whether
/// nothing is left for when a trial has ended.
fn follow(promoter: &Promoter, by: &str) -> bool {
    let turn = promoter.turn();
    if let Err(error) = agree(&turn) {
        tracing::error!(code = error.code(), %error, by, "quarantine is not in the ledger's log");
    }
    let folder = &promoter.places.ledger;
    let all = match gristmill_ledger::status(folder) {
        Ok(all) => all,
        Err(error) => {
            tracing::error!(code = error.code(), %error, by, "the ledger is not followed");
            return true;
        }
    };
    // A folder that is no ledger yet is taken as it lies there.
    let kept = is_kept(folder);
    // Unsound policies were told of when they were read; what runs keeps the grants that it has.
    let grants = policy::grants(&promoter.places).filter(|_| kept);
    let mut left = false;
    for status in all {
        let Status { name, pin, text, proven, pending, quarantined, digest: file, .. } = status;
        let digest = pin.digest();
        let backends = promoter.backends(&name);
        let runs = backends.iter().all(|backend| promoter.runs(backend, &digest))
            && (pin.kind != Kind::Family || promoter.asks(&name, &digest));
        // It is over with one that was left once it runs, or another pin is in force.
        promoter.left().retain(|of, it| *of != name || it.pin == file && !runs);
        let grant = grants.as_ref().and_then(|grants| grants.grant(&name, pin.kind).ok());
        let granted = grant.is_none_or(|grant| {
            backends.iter().all(|backend| promoter.runs_with(backend, &digest, grant))
                && (pin.kind != Kind::Family || promoter.asks_with(&name, grant))
        });
        let trial = backends.iter().any(|backend| promoter.on_trial(backend));
        let followed = if pending {
            in_place(folder, &name).and_then(|waits| match waits {
                Some(waits) => {
                    turn.promote(by, &waits.pin, &waits.text, Rollout::default()).map(Some)
                }
                None => Ok(None),
            })
        } else if quarantined && proven {
            gone_back(&turn, &name, &pin)
        } else if runs && !granted && trial {
            left = true;
            continue;
        } else if !runs
            && by != SIGHUP
            && promoter.left().get(&name).is_some_and(|it| it.pin == file)
        {
            // It broke and was left. A pin that somebody writes is another one, and who promotes it is heard.
            continue;
        } else if !runs || !granted || kept && !proven {
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
    !left
}

/// Goes back from a pin whose component is in quarantine. Where there is nothing to go back to it serves
/// on: a fault ends its own request only, and something must answer.
fn gone_back(turn: &Turn<'_>, name: &str, pin: &Pin) -> Result<Option<Done>, LedgerError> {
    match turn.rollback("quarantined", name, pin.kind, None) {
        Err(error) if error.code() == "no-rollback-target" => Ok(None),
        other => other.map(Some),
    }
}

/// Writes into the ledger what the router did by itself.
fn record(promoter: &Promoter, event: &SwapEvent) {
    let why = match &event.what {
        Happened::Quarantined { .. } => {
            if let Err(error) = agree(&promoter.turn()) {
                let digest = &event.generation.digest;
                tracing::error!(code = error.code(), %error, digest, "quarantine is in memory alone, and a restart forgets it");
            }
            return;
        }
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
    let Some(filed) = in_force(folder, name)? else { return Ok(None) };
    let Some(slot) = promoter.router.backends().slot(backend) else { return Ok(None) };
    if promoter.runs(backend, &filed.pin.digest()) {
        return Ok(None);
    }
    let to = earlier(folder, name, &slot.current().digest);
    let done =
        to.and_then(|Filed { pin, .. }| turn.rollback(by, name, pin.kind, Some(pin.sequence)));
    if let Err(error) = &done {
        // While it is this one's turn: whoever follows the files next must not bring it back.
        let why = format!(
            "{backend} went back from it by itself ({by}), and the ledger could not ({}: {error})",
            error.code()
        );
        promoter.left().insert(name.to_owned(), Left { pin: filed.digest, why });
    }
    done.map(Some)
}
