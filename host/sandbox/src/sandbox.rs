//! The engine that runs every plugin, and the doors through which plugins come in.
//!
//! One wasmtime engine per process: synchronous WIT only, no threads, no 64-bit memories, a pool of
//! preallocated instances, and a ticker thread of its own that interrupts computing guests.

use std::{
    collections::HashMap,
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use gristmill_core::Error;
use gristmill_ledger::{Kind, Pin};
use gristmill_policies::Grant;
use wasmtime::{
    Config, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, component::Component,
};

use crate::{
    backend::Backend,
    compiled::{self, Compiled},
    compiler::Compiler,
    contract,
    family::FamilyPlugin,
    fault::Fault,
    load::{self, LoadError},
    plugin::Plugin,
    probe::Probe,
    services::Services,
};

/// How much of everything all plugins together may use.
#[derive(Debug, Clone)]
pub struct SandboxConfig {
    /// Stores at the same time, over all plugins; one more is refused with `busy`.
    pub stores: u32,
    /// How often a computing guest is interrupted to let others run and to see its limits checked.
    pub tick: Duration,
    /// A folder in which compiled components are kept; none: every start compiles them.
    pub compiled: Option<PathBuf>,
    /// Where components are compiled; none: in this process.
    pub compiler: Option<Compiler>,
}

impl Default for SandboxConfig {
    fn default() -> Self {
        // 5 ms: a guest overruns its CPU limit by at most two ticks, and 200 wake-ups a second cost
        // nothing that can be measured.
        Self { stores: 512, tick: Duration::from_millis(5), compiled: None, compiler: None }
    }
}

/// Why there is no sandbox.
#[derive(Debug, thiserror::Error)]
#[error("cannot start the WebAssembly engine: {0}")]
pub struct SandboxError(String);

/// The largest linear memory of one store, whatever is granted.
const MAX_MEMORY: usize = 256 << 20;
/// Core instances, memories and tables of one store, as the pool is laid out.
const MAX_INSTANCES: u32 = 32;
const MAX_MEMORIES: u32 = 2;
const MAX_TABLES: u32 = 8;
/// Wasm frames; the rest of the fiber's stack (2 MiB, what a thread has) is for host functions.
const WASM_STACK: usize = 512 << 10;
const FIBER_STACK: usize = WASM_STACK + (2 << 20);

/// Loads plugins and runs them. Cheap to clone.
#[derive(Clone)]
pub struct Sandbox {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Engine,
    linkers: contract::v0_1::Linkers,
    strikes: Arc<Strikes>,
    compiled: Option<Compiled>,
    compiler: Option<Compiler>,
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandbox").field("occupancy", &self.occupancy()).finish_non_exhaustive()
    }
}

/// What runs right now, from the pool's own counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Components with a store.
    pub components: u64,
    /// Linear memories.
    pub memories: u64,
    /// Stacks of calls in flight.
    pub stacks: u64,
}

/// Faults by digest. Whoever decides about quarantine reads them.
#[derive(Debug, Default)]
pub(crate) struct Strikes(Mutex<HashMap<String, u32>>);

impl Strikes {
    pub(crate) fn count(&self, digest: &str) {
        let mut strikes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = strikes.entry(digest.to_owned()).or_default();
        *count = count.saturating_add(1);
    }

    fn of(&self, digest: &str) -> u32 {
        let strikes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        strikes.get(digest).copied().unwrap_or_default()
    }
}

impl Sandbox {
    /// Starts the engine. Where the address space is too small for a pool, instances are allocated
    /// one by one, which is slower and otherwise the same.
    ///
    /// # Errors
    /// [`SandboxError`] when wasmtime refuses the configuration or the machine.
    pub fn new(config: SandboxConfig) -> Result<Self, SandboxError> {
        let failed = |error: wasmtime::Error| SandboxError(format!("{error:#}"));
        let engine = match Engine::new(&engine_config(Some(config.stores))) {
            Ok(engine) => engine,
            Err(error) => {
                tracing::warn!(%error, "no instance pool on this machine; instances are slower");
                Engine::new(&engine_config(None)).map_err(failed)?
            }
        };
        let linkers = contract::v0_1::Linkers::new(&engine).map_err(failed)?;
        let weak = engine.weak();
        thread::Builder::new()
            .name("gristmill-ticks".to_owned())
            .spawn(move || {
                loop {
                    thread::sleep(config.tick);
                    match weak.upgrade() {
                        Some(engine) => engine.increment_epoch(),
                        None => return,
                    }
                }
            })
            .map_err(|error| SandboxError(error.to_string()))?;
        let strikes = Arc::new(Strikes::default());
        let compiler = config.compiler;
        let compiled = config.compiled.as_deref().and_then(|folder| {
            Compiled::open(folder)
                .inspect_err(|error| {
                    tracing::warn!(%error, folder = %folder.display(), "components are compiled at each start");
                })
                .ok()
        });
        Ok(Self { inner: Arc::new(Inner { engine, linkers, strikes, compiled, compiler }) })
    }

    /// Loads a back-end. Compiles, which takes a while: not on an async worker.
    ///
    /// # Errors
    /// [`LoadError`]; its code says which check failed.
    pub fn load_backend(
        &self,
        bytes: &[u8],
        pin: &Pin,
        grant: &Grant,
        services: Services,
    ) -> Result<Arc<dyn Backend>, LoadError> {
        let component = load::compile(self, bytes, pin, grant, Kind::Backend)?;
        let plugin = self.plugin(pin, grant, services);
        contract::v0_1::backend::load(&self.inner.linkers, &component, plugin)
    }

    /// Loads a model family. Compiles, which takes a while: not on an async worker.
    ///
    /// # Errors
    /// [`LoadError`]; its code says which check failed.
    pub fn load_family(
        &self,
        bytes: &[u8],
        pin: &Pin,
        grant: &Grant,
    ) -> Result<FamilyPlugin, LoadError> {
        let component = load::compile(self, bytes, pin, grant, Kind::Family)?;
        let plugin = self.plugin(pin, grant, Services::default());
        contract::v0_1::family::load(&self.inner.linkers, &component, plugin)
    }

    /// Loads a probe. Compiles, which takes a while: not on an async worker.
    ///
    /// # Errors
    /// [`LoadError`]; its code says which check failed.
    pub fn load_probe(
        &self,
        bytes: &[u8],
        pin: &Pin,
        grant: &Grant,
    ) -> Result<Arc<dyn Probe>, LoadError> {
        let component = load::compile(self, bytes, pin, grant, Kind::Probe)?;
        let plugin = self.plugin(pin, grant, Services::default());
        contract::v0_1::probe::load(&self.inner.linkers, &component, plugin)
    }

    /// How often the component with this digest (`sha256:…`) was at fault since the start.
    #[must_use]
    pub fn strikes(&self, digest: &str) -> u32 {
        self.inner.strikes.of(digest)
    }

    /// What runs right now; zeros where there is no pool.
    #[must_use]
    pub fn occupancy(&self) -> Occupancy {
        self.inner.engine.pooling_allocator_metrics().map_or_else(Occupancy::default, |pool| {
            Occupancy {
                components: pool.component_instances(),
                memories: pool.memories() as u64,
                stacks: pool.stacks() as u64,
            }
        })
    }

    /// The component with this digest: as it is kept, or compiled now.
    pub(crate) fn compile(&self, digest: &str, bytes: &[u8]) -> Result<Component, LoadError> {
        let Inner { engine, compiled, compiler, .. } = &*self.inner;
        let compile = || match compiler {
            Some(compiler) => compiler.compile(bytes),
            None => engine
                .precompile_component(bytes)
                .map_err(|error| LoadError::Invalid(load::one_line(&error))),
        };
        let kept = compiled.as_ref();
        if let Some(component) = kept.and_then(|kept| kept.find(engine, digest)) {
            return Ok(component);
        }
        let code = compile()?;
        let component = compiled::component(engine, &code)
            .map_err(|error| LoadError::Compiler(load::one_line(&error)))?;
        if let Some(kept) = kept {
            kept.keep(engine, digest, &code);
        }
        Ok(component)
    }

    fn plugin(&self, pin: &Pin, grant: &Grant, services: Services) -> Arc<Plugin> {
        Plugin::new(
            self.inner.engine.clone(),
            Arc::clone(&self.inner.strikes),
            pin,
            grant.clone(),
            services,
        )
    }
}

/// The engine's configuration; `stores`: with a pool of that size.
pub(crate) fn engine_config(stores: Option<u32>) -> Config {
    let mut config = Config::new();
    config
        // Synchronous WIT only. The default depends on features that any crate in the tree could
        // switch on; a test watches this.
        .concurrency_support(false)
        .epoch_interruption(true)
        .wasm_memory64(false)
        .shared_memory(false)
        .max_wasm_stack(WASM_STACK)
        .async_stack_size(FIBER_STACK);
    if let Some(stores) = stores {
        let mut pool = PoolingAllocationConfig::new();
        pool.total_component_instances(stores)
            .total_core_instances(stores.saturating_mul(8))
            .total_memories(stores)
            .total_tables(stores.saturating_mul(2))
            .total_stacks(stores)
            .max_core_instances_per_component(MAX_INSTANCES)
            .max_memories_per_component(MAX_MEMORIES)
            .max_tables_per_component(MAX_TABLES)
            .max_memory_size(MAX_MEMORY)
            .table_elements(100_000)
            .linear_memory_keep_resident(256 << 10);
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    }
    config
}

/// Runs a future to its end on a thread of its own, with timers: for callers that are not async, and
/// safe to call from code that is.
///
/// # Errors
/// `internal` when the thread cannot be started or panics.
pub(crate) fn apart<T: Send>(
    future: impl Future<Output = gristmill_core::Result<T>> + Send,
) -> gristmill_core::Result<T> {
    let run = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .map_err(|error| Error::internal(format!("cannot start a runtime: {error}")))?
            .block_on(future)
    };
    thread::scope(|scope| {
        thread::Builder::new()
            .name("gristmill-plugin".to_owned())
            .spawn_scoped(scope, run)
            .map_err(|error| Error::internal(format!("cannot start a thread: {error}")))?
            .join()
            .unwrap_or_else(|_| Err(Error::internal("a plugin call panicked in the host")))
    })
}

/// For tests and documentation: the words of all faults that a guest can cause.
#[must_use]
pub fn fault_words() -> Vec<&'static str> {
    [
        Fault::Unreachable,
        Fault::Memory,
        Fault::Arithmetic,
        Fault::Call,
        Fault::Exit,
        Fault::Trap,
        Fault::StackOverflow,
        Fault::Cpu(0),
        Fault::Deadline(0),
        Fault::MemoryLimit { wanted: 0, granted: 0 },
        Fault::TableLimit { wanted: 0, granted: 0 },
        Fault::InstanceLimit,
        Fault::HandleLimit,
        Fault::HostCallLimit,
        Fault::LogLimit,
        Fault::EventLimit(0),
        Fault::Contract(""),
    ]
    .iter()
    .map(Fault::word)
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the configuration promises, as a component meets it, with and without the pool.
    #[test]
    fn async_threads_and_large_memories_are_not_run() {
        let lifted = |options: &str| {
            format!(
                r#"(component
                    (core module $m (memory (export "m") 1) (func (export "f")))
                    (core instance $i (instantiate $m))
                    (func $f {options} (canon lift (core func $i "f") {options}))
                    (export "f" (func $f)))"#
            )
        };
        let with = |memory: &str| format!("(component (core module (memory {memory})))");
        for stores in [Some(4), None] {
            let engine = Engine::new(&engine_config(stores)).unwrap();
            let compiles = |source: &str| {
                let bytes = wat::parse_str(source).unwrap();
                Component::new(&engine, bytes).is_ok()
            };
            assert!(compiles(&lifted("")) && compiles(&with("1")));
            assert!(!compiles(&lifted("async")), "concurrency_support is on");
            assert!(!compiles(&with("1 1 shared")), "threads are on");
            assert!(!compiles(&with("i64 1")), "64-bit memories are on");
            assert!(engine.pooling_allocator_metrics().is_some() == stores.is_some());
        }
    }

    #[test]
    fn a_thread_apart_works_inside_and_outside_of_a_runtime() {
        let nap = || async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok(7)
        };
        assert_eq!(apart(nap()), Ok(7));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(runtime.block_on(async { apart(nap()) }), Ok(7));
        let failed = apart::<()>(async { panic!("as a host bug would") });
        assert_eq!(failed.unwrap_err().code, gristmill_core::Code::Internal);
    }
}
