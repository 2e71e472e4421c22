//! Promotion, rollback and revocation on a running host: the ledger proves and writes, the sandbox
//! compiles and tries, the router moves the traffic.
//!
//! Everything here blocks and belongs on the blocking pool. One change at a time: who decides on one takes
//! a [`Turn`] first and keeps it until it is made, so that nobody decides by what is changing. A second
//! writer, another process, is waited for a while.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use gristmill_api::control::view::Swapped;
use gristmill_ledger::{
    Changed, Date, Host, HostRefusal, Inspected, Keeper, Kind, LedgerError, Pin, Plan, Revoke,
    Terms, guardrail::Rates,
};
use gristmill_policies::{Grant, Policies, PolicyError};
use gristmill_router::{Role, Rollout, Router, Standing};
use gristmill_sandbox::{FamilyPlugin, FamilySet, Sandbox, backend::Backend};
use tokio::runtime::Handle;

use crate::{
    compose::{Composed, Configured, Places},
    ledger::{Asked, against, fingerprint, inspected, keeper, release},
    quarantine::Agreed,
};

/// What a change of the ledger is made with.
pub(crate) struct Promoter {
    pub(crate) places: Places,
    pub(crate) sandbox: Sandbox,
    pub(crate) configured: Arc<Configured>,
    pub(crate) router: Arc<Router>,
    /// Where guests are run and the traffic is moved.
    pub(crate) runtime: Handle,
    /// With which grant each generation was bound, by its back-end and number.
    bound: Mutex<HashMap<(String, u64), Grant>>,
    families: Arc<FamilySet>,
    /// What the router and the ledger's log have told each other of quarantine.
    pub(crate) quarantine: Agreed,
    /// Pins that the router went back from by itself and the ledger could not, by their plugins.
    left: Mutex<BTreeMap<String, Left>>,
    turn: Mutex<()>,
}

/// A pin in force that does not run, because it broke and the ledger could not go back from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Left {
    /// Digest of the pin's file.
    pub(crate) pin: String,
    /// What happened, for people.
    pub(crate) why: String,
}

/// The right to decide on a change and to make it; there is one at a time.
pub(crate) struct Turn<'a> {
    promoter: &'a Promoter,
    _held: MutexGuard<'a, ()>,
}

/// What came of it.
pub(crate) struct Done {
    /// The pin in force.
    pub(crate) pin: Pin,
    /// What was done to each back-end that is this plugin.
    pub(crate) backends: Vec<Swapped>,
}

impl Promoter {
    /// Over the rooms as they are composed; within the runtime in which they serve.
    pub(crate) fn new(places: &Places, composed: Composed) -> Self {
        let bound = composed.bound.into_iter().map(|(name, number, it)| ((name, number), it));
        Self {
            bound: Mutex::new(bound.collect()),
            families: composed.families,
            quarantine: Agreed::default(),
            places: places.clone(),
            sandbox: composed.plugins.sandbox,
            configured: Arc::new(composed.configured),
            router: composed.router,
            runtime: Handle::current(),
            left: Mutex::default(),
            turn: Mutex::new(()),
        }
    }

    /// The pins that were left, by their plugins.
    pub(crate) fn left(&self) -> MutexGuard<'_, BTreeMap<String, Left>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nobody else decides or changes.
    pub(crate) fn turn(&self) -> Turn<'_> {
        let held = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        Turn { promoter: self, _held: held }
    }

    /// The back-ends that are this plugin.
    pub(crate) fn backends(&self, plugin: &str) -> Vec<String> {
        let names = self.configured.names().filter(|(_, pin)| *pin == plugin);
        names.map(|(name, _)| name.to_owned()).collect()
    }

    /// The generation of a back-end in this role, where it is of this component: its number.
    fn has(&self, backend: &str, role: Role, digest: &str) -> Option<u64> {
        let generations = self.router.generations(backend);
        let found =
            generations.iter().find(|one| one.role == role && one.generation.digest == digest);
        found.map(|one| one.generation.generation)
    }

    fn bound(&self) -> MutexGuard<'_, HashMap<(String, u64), Grant>> {
        self.bound.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a back-end has this component in this role, bound with this grant.
    fn ready(&self, backend: &str, role: Role, digest: &str, grant: &Grant) -> bool {
        let number = self.has(backend, role, digest);
        number.is_some_and(|it| self.bound().get(&(backend.to_owned(), it)) == Some(grant))
    }

    /// Whether this component answers for a back-end, or is on trial there.
    pub(crate) fn runs(&self, backend: &str, digest: &str) -> bool {
        [Role::Current, Role::Candidate]
            .iter()
            .any(|role| self.has(backend, *role, digest).is_some())
    }

    /// Whether it does so with this grant.
    pub(crate) fn runs_with(&self, backend: &str, digest: &str, grant: &Grant) -> bool {
        [Role::Current, Role::Candidate].iter().all(|role| {
            self.has(backend, *role, digest).is_none() || self.ready(backend, *role, digest, grant)
        })
    }

    /// Whether what answers for a back-end was bound with this grant.
    pub(crate) fn applies(&self, backend: &str, grant: &Grant) -> bool {
        let Some(slot) = self.router.backends().slot(backend) else { return true };
        let number = slot.current().number;
        self.bound().get(&(backend.to_owned(), number)) == Some(grant)
    }

    /// Whether a component is on trial for a back-end.
    pub(crate) fn on_trial(&self, backend: &str) -> bool {
        self.router.generations(backend).iter().any(|one| one.role == Role::Candidate)
    }

    /// The families, by name, that were loaded with another grant than these allow them, or for which
    /// there is none here.
    pub(crate) fn ungranted(&self, grants: &Policies) -> Vec<(String, Option<PolicyError>)> {
        let families = self.families.families();
        let told = families.iter().filter_map(|one| match grants.grant(one.name(), Kind::Family) {
            Ok(now) if now == one.grant() => None,
            other => Some((one.name().to_owned(), other.err())),
        });
        told.collect()
    }

    /// Whether a family is this component; also where none of this name is asked.
    pub(crate) fn asks(&self, family: &str, digest: &str) -> bool {
        let families = self.families.families();
        families.iter().all(|one| one.name() != family || one.digest() == digest)
    }

    /// Whether it was loaded with this grant.
    pub(crate) fn asks_with(&self, family: &str, grant: &Grant) -> bool {
        let families = self.families.families();
        families.iter().all(|one| one.name() != family || one.grant() == grant)
    }

    /// Notes with which grant a generation was bound, and forgets generations that are gone.
    fn bind(&self, backend: &str, number: u64, grant: &Grant) {
        let there = self.router.generations(backend);
        let mut bound = self.bound();
        bound.retain(|(name, number), _| {
            name != backend || there.iter().any(|one| one.generation.generation == *number)
        });
        bound.entry((backend.to_owned(), number)).or_insert_with(|| grant.clone());
    }
}

impl Turn<'_> {
    /// Whose turn it is.
    pub(crate) fn promoter(&self) -> &Promoter {
        self.promoter
    }

    /// Puts this pin in force and moves the traffic to it. One that is in force already and does not
    /// run yet, because it was pinned from outside, is proven again and then runs.
    pub(crate) fn promote(
        &self,
        by: &str,
        pin: &Pin,
        text: &str,
        rollout: Rollout,
    ) -> Result<Done, LedgerError> {
        let asked = Asked { name: &pin.name, kind: pin.kind, next: Some(pin), by };
        self.change(asked, rollout, |keeper, terms, live| {
            let changed = keeper.promote(&Plan { name: &pin.name, text, terms }, live)?;
            if !changed.changed {
                let proven = keeper.serve(&pin.name, terms, live)?;
                live.swap(&proven.pin, &proven.component).map_err(|refusal| {
                    let path =
                        self.promoter.places.ledger.join("pins").join(format!("{}.toml", pin.name));
                    LedgerError::Refused { code: "swap-failed", path, reason: refusal.reason }
                })?;
            }
            Ok(changed)
        })
    }

    /// Puts the pin that was in force before in force again, or the one of the sequence `to`.
    pub(crate) fn rollback(
        &self,
        by: &str,
        name: &str,
        kind: Kind,
        to: Option<u64>,
    ) -> Result<Done, LedgerError> {
        let asked = Asked { name, kind, next: None, by };
        self.change(asked, Rollout::default(), |keeper, terms, live| {
            keeper.rollback(name, to, terms, live)
        })
    }

    fn change(
        &self,
        asked: Asked<'_>,
        rollout: Rollout,
        work: impl FnOnce(&mut Keeper, Terms<'_>, &mut Live<'_>) -> Result<Changed, LedgerError>,
    ) -> Result<Done, LedgerError> {
        let Promoter { places, .. } = self.promoter;
        let mut keeper = keeper(places)?;
        let mut live = Live {
            promoter: self.promoter,
            rollout,
            grant: None,
            loaded: Vec::new(),
            family: None,
            anew: Vec::new(),
            swapped: Vec::new(),
        };
        let changed = against(places, asked, |terms| work(&mut keeper, terms, &mut live))?;
        // Ledger and router are of one mind again, whoever asked for it.
        self.promoter.left().remove(asked.name);
        if let Some(fault) = &changed.unrecorded {
            tracing::error!(code = fault.code(), %fault, plugin = asked.name, "the change is in force, and its record is not whole");
        }
        Ok(Done { pin: changed.pin, backends: live.swapped })
    }

    /// Lets components that were in quarantine be put in force again; their digests.
    pub(crate) fn release(
        &self,
        by: &str,
        what: &str,
        reason: Option<&str>,
    ) -> Result<Vec<String>, LedgerError> {
        let Promoter { places, router, quarantine, .. } = self.promoter;
        let (released, log) = release(places, what, reason, by)?;
        quarantine.obey(router, &log);
        Ok(released)
    }

    /// Takes something out of trust; the plugins whose pins that leaves without it.
    pub(crate) fn revoke(
        &self,
        by: &str,
        what: Revoke<'_>,
        reason: &str,
    ) -> Result<Vec<String>, LedgerError> {
        let Promoter { places, .. } = self.promoter;
        let mut keeper = keeper(places)?;
        keeper.revoke(what, reason, Date::now(), by)?;
        drop(keeper);
        let bare = |digest: &str| digest.strip_prefix("sha256:").unwrap_or(digest).to_owned();
        let about = |status: &gristmill_ledger::Status| match what {
            Revoke::Digest(digest) => {
                status.pin.sha256 == bare(digest) || status.digest == bare(digest)
            }
            Revoke::Key(key) => status.pin.signatures.iter().any(|one| one.key == bare(key)),
        };
        let all = gristmill_ledger::status(&places.ledger)?;
        Ok(all.into_iter().filter(about).map(|status| status.name).collect())
    }
}

/// The running host, for one change.
struct Live<'a> {
    promoter: &'a Promoter,
    rollout: Rollout,
    /// The grant of the plugin that is changed, as it was read for this change.
    grant: Option<Grant>,
    /// Components that are compiled for this change, by the name of their back-end.
    loaded: Vec<(String, Arc<dyn Backend>)>,
    /// The same of a family.
    family: Option<FamilyPlugin>,
    /// Back-ends that got the same component under another grant: there is no way back to the old one.
    anew: Vec<String>,
    swapped: Vec<Swapped>,
}

impl Live<'_> {
    fn swap_one(&mut self, backend: &str, digest: &str) -> Result<u64, HostRefusal> {
        let promoter = self.promoter;
        let grant = self.grant.clone().ok_or_else(|| format!("{backend} was not compiled"))?;
        let ready = |role| promoter.ready(backend, role, digest, &grant);
        let has = |role| promoter.has(backend, role, digest).is_some();
        let anew = [Role::Current, Role::Candidate].into_iter().any(|it| has(it) && !ready(it));
        let swapped = if !has(Role::Current) && ready(Role::Previous) {
            promoter.router.rollback(backend)
        } else {
            let loaded = self.loaded.iter().find(|(name, _)| name == backend);
            let component = match loaded {
                Some((_, component)) => Arc::clone(component),
                None => self.running(backend, digest)?,
            };
            let rollout = Rollout { anew, ..self.rollout.clone() };
            promoter.runtime.block_on(promoter.router.promote(backend, component, rollout))
        };
        let swapped = swapped
            .map_err(|error| HostRefusal { code: Some(error.code()), reason: error.to_string() })?;
        let standing = match swapped.standing {
            Standing::Live => "live",
            Standing::OnTrial => "on-trial",
            Standing::Unchanged => "unchanged",
        };
        let number = swapped.generation.generation;
        promoter.bind(backend, number, &grant);
        if anew {
            self.anew.push(backend.to_owned());
        }
        self.swapped.retain(|one| one.backend != backend);
        self.swapped.push(Swapped {
            backend: backend.to_owned(),
            generation: number,
            standing: standing.to_owned(),
            replaced: swapped.replaced.map(|replaced| replaced.digest),
        });
        Ok(number)
    }

    fn running(&self, backend: &str, digest: &str) -> Result<Arc<dyn Backend>, HostRefusal> {
        let slots = self.promoter.router.backends().slots();
        let slot = slots.iter().find(|slot| slot.name == backend);
        let current = slot.map(|slot| slot.current()).filter(|current| current.digest == digest);
        current
            .map(|current| Arc::clone(&current.backend))
            .ok_or_else(|| format!("{backend} is not live").into())
    }
}

impl Host for Live<'_> {
    fn class(&self) -> String {
        fingerprint().class()
    }

    fn inspect(&mut self, component: &[u8]) -> Result<Inspected, HostRefusal> {
        inspected(component)
    }

    /// Nobody could go back or revoke anything while it did.
    fn measure(&mut self, pin: &Pin, _: &[u8]) -> Result<Rates, HostRefusal> {
        let name = &pin.name;
        Err(format!("nothing was measured there, and a host does not measure in a promotion; have the candidate qualified, or `gristmill ledger promote {name}` measure it on this machine").into())
    }

    fn compile(&mut self, pin: &Pin, component: &[u8]) -> Result<(), HostRefusal> {
        let Promoter { places, sandbox, configured, .. } = self.promoter;
        let policies = Policies::open(&places.policies).map_err(|error| error.to_string())?;
        let grant = policies.grant(&pin.name, pin.kind).map_err(|error| error.to_string())?;
        self.grant = Some(grant.clone());
        let refused = |error: anyhow::Error| HostRefusal::from(format!("{error:#}"));
        match pin.kind {
            Kind::Family => {
                let loaded = sandbox.load_family(component, pin, grant);
                self.family = Some(loaded.map_err(|error| error.to_string())?);
                Ok(())
            }
            Kind::Probe => sandbox
                .load_probe(component, pin, grant)
                .map(drop)
                .map_err(|error| error.to_string().into()),
            Kind::Backend => {
                let digest = pin.digest();
                self.loaded.clear();
                for backend in self.promoter.backends(&pin.name) {
                    // What ran before is kept ready: going back to it compiles nothing.
                    let ready = |role| self.promoter.ready(&backend, role, &digest, grant);
                    if !ready(Role::Current) && !ready(Role::Previous) {
                        let loaded = configured.bind(sandbox, &backend, component, pin, grant);
                        self.loaded.push((backend, loaded.map_err(refused)?));
                    }
                }
                Ok(())
            }
        }
    }

    fn smoke(&mut self, _: &Pin, _: &[u8]) -> Result<(), HostRefusal> {
        for (name, component) in &self.loaded {
            let described = self.promoter.runtime.block_on(component.describe());
            described.map_err(|error| format!("{name}: it cannot say what it is: {error}"))?;
        }
        Ok(())
    }

    fn swap(&mut self, pin: &Pin, _: &[u8]) -> Result<Option<u64>, HostRefusal> {
        // Models that are opened from now on are its own; one that is open keeps what it was told.
        if let Some(family) = self.family.take() {
            self.promoter.families.replace(family);
        }
        let digest = pin.digest();
        let mut generation = None;
        for backend in self.promoter.backends(&pin.name) {
            match self.swap_one(&backend, &digest) {
                Ok(number) => generation = generation.or(Some(number)),
                Err(refusal) => {
                    // All of them or none.
                    let anew = &self.anew;
                    let moved = self.swapped.drain(..).filter(|done| {
                        done.standing != "unchanged" && !anew.contains(&done.backend)
                    });
                    for done in moved {
                        if let Err(error) = self.promoter.router.rollback(&done.backend) {
                            tracing::error!(backend = done.backend, %error, "cannot go back");
                        }
                    }
                    return Err(refusal);
                }
            }
        }
        Ok(generation)
    }
}
