//! One loaded plugin, and the stores its calls run in.
//!
//! A [`Cell`] is a fresh store with a [`Gate`]: every call into the guest goes through the gate, which
//! bounds its time, reads its failure and counts the strike. Dropping a cell drops the store, the
//! guest and whatever it held in the host, whether a call is in flight or not.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use gristmill_core::{Code, Error, Result};
use gristmill_ledger::{Kind, Pin};
use gristmill_policies::Grant;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasmtime::{Engine, Store, UpdateDeadline, component::ResourceTable};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

use crate::{
    backend::Backend,
    fault::{Failure, Fault, classify},
    limits::{Limiter, LogBudget, Meter},
    sandbox::Strikes,
    services::Services,
    wasi,
};

/// What all stores of one plugin share.
pub(crate) struct Plugin {
    engine: Engine,
    strikes: Arc<Strikes>,
    slots: Arc<Semaphore>,
    pub(crate) name: String,
    /// `sha256:…`
    pub(crate) digest: String,
    pub(crate) grant: Grant,
    pub(crate) services: Services,
}

impl Plugin {
    pub(crate) fn new(
        engine: Engine,
        strikes: Arc<Strikes>,
        pin: &Pin,
        grant: Grant,
        services: Services,
    ) -> Arc<Self> {
        Arc::new(Self {
            engine,
            strikes,
            slots: Arc::new(Semaphore::new(grant.limits.stores as usize)),
            name: pin.name.clone(),
            digest: pin.digest(),
            grant,
            services,
        })
    }

    /// A fresh store. `life`: how long it may take from now, over all its calls.
    ///
    /// # Errors
    /// `busy` when the plugin has as many stores as granted.
    pub(crate) fn cell(
        self: &Arc<Self>,
        life: Duration,
        probed: Option<Arc<dyn Backend>>,
    ) -> Result<Cell> {
        let slot = Arc::clone(&self.slots).try_acquire_owned().map_err(|_| self.busy())?;
        let limits = &self.grant.limits;
        let mut table = ResourceTable::new();
        table.set_max_capacity(limits.handles as usize);
        let meter = Arc::new(Meter::default());
        let guest = Guest {
            table,
            wasi: if self.grant.kind == Kind::Family { wasi::pure() } else { wasi::inert() },
            limiter: Limiter::new(limits),
            log: LogBudget::new(limits),
            held: 0,
            started: Instant::now(),
            plugin: Arc::clone(self),
            probed,
            told: None,
        };
        let mut store = Store::new(&self.engine, guest);
        store.limiter(|guest| &mut guest.limiter);
        store.set_hostcall_fuel(limits.host_call_bytes as usize);
        store.set_max_component_handles(limits.handles as usize);
        // At every tick a computing guest lets others run, until its time is used up.
        store.set_epoch_deadline(1);
        let cpu = limits.cpu();
        let watch = Arc::clone(&meter);
        store.epoch_deadline_callback(move |_| {
            if watch.elapsed() > cpu {
                return Err(Fault::Cpu(cpu.as_millis()).into());
            }
            Ok(UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now())))
        });
        let gate =
            Gate { plugin: Arc::clone(self), meter, begun: Instant::now(), life, _slot: slot };
        Ok(Cell { store, gate })
    }

    /// A fault of this plugin, counted.
    pub(crate) fn fault(&self, fault: &Fault) -> Error {
        self.strikes.count(&self.digest);
        tracing::warn!(plugin = %self.name, digest = %self.digest, fault = fault.word(), "{fault}");
        fault.error(&self.name, &self.digest)
    }

    fn busy(&self) -> Error {
        Error::new(Code::Busy, format!("plugin {} has no free place; try again shortly", self.name))
            .with("limit", self.grant.limits.stores)
            .retry_after(100)
    }
}

/// A fresh store, and the gate through which it is called. The store goes first.
pub(crate) struct Cell {
    pub(crate) store: Store<Guest>,
    pub(crate) gate: Gate,
}

/// Bounds and judges calls into one store.
pub(crate) struct Gate {
    plugin: Arc<Plugin>,
    meter: Arc<Meter>,
    begun: Instant,
    life: Duration,
    _slot: OwnedSemaphorePermit,
}

impl Gate {
    /// Runs one call. After an error the store must not be called again.
    ///
    /// # Errors
    /// `plugin-fault`, `busy`.
    pub(crate) async fn run<T>(
        &self,
        call: impl Future<Output = wasmtime::Result<T>>,
    ) -> Result<T> {
        let limits = &self.plugin.grant.limits;
        let left = self.life.saturating_sub(self.begun.elapsed());
        let (time, whole) =
            if left < limits.call() { (left, self.life) } else { (limits.call(), limits.call()) };
        // A timer alone would not do: a call that is ready at once never looks at it, and an endless
        // answer is made of such calls.
        if time.is_zero() {
            return Err(self.plugin.fault(&Fault::Deadline(whole.as_millis())));
        }
        match tokio::time::timeout(time, self.meter.run(call)).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(match classify(&error) {
                Failure::Fault(fault) => {
                    tracing::debug!(plugin = %self.plugin.name, ?error, "guest stopped");
                    self.plugin.fault(&fault)
                }
                Failure::Busy => self.plugin.busy(),
            }),
            Err(_) => Err(self.plugin.fault(&Fault::Deadline(whole.as_millis()))),
        }
    }
}

/// What a store holds for its guest.
pub(crate) struct Guest {
    pub(crate) table: ResourceTable,
    wasi: WasiCtx,
    limiter: Limiter,
    pub(crate) log: LogBudget,
    /// Bytes of matrices that the host holds for the guest; bounded like its own memory.
    pub(crate) held: usize,
    pub(crate) started: Instant,
    pub(crate) plugin: Arc<Plugin>,
    /// The back-end under test, for a probe.
    pub(crate) probed: Option<Arc<dyn Backend>>,
    /// The last fault of another plugin that it was told of: it may pass that on.
    pub(crate) told: Option<Error>,
}

impl WasiView for Guest {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

/// A bounded memory of answers by hash, for pure plugins.
pub(crate) struct Memo<T>(Mutex<std::collections::HashMap<[u8; 32], T>>);

impl<T: Clone> Memo<T> {
    /// More distinct models than a host opens.
    const MOST: usize = 64;

    pub(crate) fn new() -> Self {
        Self(Mutex::default())
    }

    pub(crate) fn get(&self, key: &[u8; 32]) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    pub(crate) fn put(&self, key: [u8; 32], value: T) {
        let mut memo = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if memo.len() >= Self::MOST {
            memo.clear();
        }
        memo.insert(key, value);
    }
}
