//! What a guest can do wrong, in documented words, and how wasmtime's errors become those words.
//!
//! A fault is never the caller's error and never a defect of the host: it becomes the domain error
//! `plugin-fault` with the details `fault` and `digest`. No text of the guest is in it.

use gristmill_core::{Code, Error};
use wasmtime::{PoolConcurrencyLimitError, Trap, component::ResourceTableError};
use wasmtime_wasi::I32Exit;

/// Why a guest was stopped. Its store is dropped in every case.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// It executed `unreachable`: a panic or an abort.
    #[error("the guest panicked or aborted")]
    Unreachable,
    /// It reached outside its memory.
    #[error("the guest reached outside its memory")]
    Memory,
    /// It divided by zero, overflowed or converted what cannot be converted.
    #[error("the guest made an arithmetic error")]
    Arithmetic,
    /// It called through an entry of a table that is empty, missing or of another type.
    #[error("the guest called a function that is not there")]
    Call,
    /// It called `exit`.
    #[error("the guest exited")]
    Exit,
    /// It trapped in another way.
    #[error("the guest trapped")]
    Trap,
    /// Its calls nested too deeply.
    #[error("the guest's call stack is exhausted")]
    StackOverflow,
    /// One call computed for too long.
    #[error("one call used more than {0} ms of cpu time")]
    Cpu(u128),
    /// One call, or the whole answer, took too long.
    #[error("the guest took longer than {0} ms")]
    Deadline(u128),
    /// Its linear memory would have grown too large.
    #[error("the guest wanted {wanted} bytes of memory, granted are {granted}")]
    MemoryLimit {
        /// Bytes it would have had.
        wanted: usize,
        /// Bytes it may have.
        granted: usize,
    },
    /// A table would have grown too large.
    #[error("the guest wanted a table of {wanted} elements, granted are {granted}")]
    TableLimit {
        /// Elements it would have had.
        wanted: usize,
        /// Elements it may have.
        granted: usize,
    },
    /// Too many core instances, memories or tables.
    #[error("the guest is made of more instances, memories or tables than granted")]
    InstanceLimit,
    /// Too many live handles.
    #[error("the guest holds more handles than granted")]
    HandleLimit,
    /// One call carried too many bytes to the host.
    #[error("one call carried more bytes to the host than granted")]
    HostCallLimit,
    /// Too many log records or bytes.
    #[error("the guest logged more than granted")]
    LogLimit,
    /// An answer of too many events.
    #[error("the answer has more than {0} events")]
    EventLimit(u32),
    /// It broke a rule of the contract; the sentence is the host's.
    #[error("the guest broke the contract: {0}")]
    Contract(&'static str),
}

impl Fault {
    /// The documented word, as in the detail `fault`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Unreachable => "trap-unreachable",
            Self::Memory => "trap-memory",
            Self::Arithmetic => "trap-arithmetic",
            Self::Call => "trap-call",
            Self::Exit => "trap-exit",
            Self::Trap => "trap",
            Self::StackOverflow => "stack-overflow",
            Self::Cpu(_) => "cpu-limit",
            Self::Deadline(_) => "deadline",
            Self::MemoryLimit { .. } => "memory-limit",
            Self::TableLimit { .. } => "table-limit",
            Self::InstanceLimit => "instance-limit",
            Self::HandleLimit => "handle-limit",
            Self::HostCallLimit => "host-call-limit",
            Self::LogLimit => "log-limit",
            Self::EventLimit(_) => "event-limit",
            Self::Contract(_) => "contract-violation",
        }
    }

    /// The domain error for this fault of the component with this digest.
    #[must_use]
    pub fn error(&self, name: &str, digest: &str) -> Error {
        Error::new(Code::PluginFault, format!("plugin {name}: {self}"))
            .with("fault", self.word())
            .with("digest", digest)
    }
}

/// What a failed call was.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The guest's doing.
    Fault(Fault),
    /// The pool of instances is full: a matter of load, nobody's fault.
    Busy,
}

/// Reads wasmtime's error. What is not recognised is a trap: wasmtime reports the guest's failures
/// and the failures of host functions this way, and the latter always carry a [`Fault`].
pub(crate) fn classify(error: &wasmtime::Error) -> Failure {
    if let Some(fault) = error.downcast_ref::<Fault>() {
        return Failure::Fault(fault.clone());
    }
    if error.is::<PoolConcurrencyLimitError>() {
        return Failure::Busy;
    }
    if error.is::<I32Exit>() {
        return Failure::Fault(Fault::Exit);
    }
    if let Some(table) = error.downcast_ref::<ResourceTableError>() {
        return Failure::Fault(match table {
            ResourceTableError::Full => Fault::HandleLimit,
            _ => Fault::Contract("it used a handle that is gone"),
        });
    }
    if let Some(trap) = error.downcast_ref::<Trap>() {
        return Failure::Fault(match trap {
            Trap::UnreachableCodeReached => Fault::Unreachable,
            Trap::MemoryOutOfBounds | Trap::HeapMisaligned => Fault::Memory,
            Trap::IntegerOverflow | Trap::IntegerDivisionByZero | Trap::BadConversionToInteger => {
                Fault::Arithmetic
            }
            Trap::TableOutOfBounds | Trap::IndirectCallToNull | Trap::BadSignature => Fault::Call,
            Trap::StackOverflow => Fault::StackOverflow,
            _ => Fault::Trap,
        });
    }
    // wasmtime has no types for these; tests/limits.rs hits each of them and so watches the words.
    for cause in error.chain() {
        let words = cause.to_string();
        if words.contains("fuel allocated for hostcalls has been exhausted") {
            return Failure::Fault(Fault::HostCallLimit);
        }
        if words.contains("store handle limit exceeded") {
            return Failure::Fault(Fault::HandleLimit);
        }
        if words.contains("resource limit exceeded") {
            return Failure::Fault(Fault::InstanceLimit);
        }
    }
    Failure::Fault(Fault::Trap)
}
