//! From bytes to a plugin: every check in its order, every refusal under its own name.
//!
//! size and digest are the pin's → it is a component → its imports are exactly the pin's → the grant
//! allows them → the host knows them → its exports make it the pinned kind and contract → it compiles
//! → it asks for no more than granted → its shapes are the contract's → it starts.

use gristmill_ledger::{Kind, Pin, VerifyError};
use gristmill_policies::Grant;
use wasmtime::component::Component;

use crate::{contract, inspect::Surface, sandbox::Sandbox};

/// Why a component was not loaded. Nothing of it ran, but for [`LoadError::Start`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The bytes are not the pinned ones.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// It is larger than the host reads, or asks for more than its grant at once.
    #[error("the component is too large: {0}")]
    TooLarge(String),
    /// A core module, or something else.
    #[error("expected a WebAssembly component, found other bytes; build for wasm32-wasip2")]
    NotAComponent,
    /// Damaged, or with features this host does not run.
    #[error("the component is not valid here: {0}")]
    Invalid(String),
    /// Its imports are not those of the pin.
    #[error(
        "the imports are not the pinned ones: not in the pin [{}], only in the pin [{}]; a new import needs a new approval",
        .extra.join(", "),
        .missing.join(", ")
    )]
    ImportMismatch {
        /// Imports that the pin does not list.
        extra: Vec<String>,
        /// Imports that only the pin lists.
        missing: Vec<String>,
    },
    /// An import that the grant does not allow.
    #[error("the grant does not allow the import {0}")]
    ImportNotGranted(String),
    /// An import that the host does not have.
    #[error("the host does not know the import {0}")]
    UnknownImport(String),
    /// It exports no world of the contract, several, or not the pinned one.
    #[error("wrong world: {0}")]
    WrongWorld(String),
    /// A version of the contract that this host does not speak.
    #[error("the component is built for contract {found}, this host speaks {known}")]
    UnsupportedContract {
        /// As the component has it.
        found: String,
        /// What would do.
        known: String,
    },
    /// An import or export has another shape than the contract's.
    #[error("an import or export has another shape than the contract's: {0}")]
    WrongShape(String),
    /// The grant is for another kind.
    #[error("the grant is for a {grant}, and the pin is of a {pin}")]
    WrongGrant {
        /// The grant's kind.
        grant: Kind,
        /// The pin's kind.
        pin: Kind,
    },
    /// The compiler, in its own process, came to no end with it.
    #[error("the compiler gave up: {0}")]
    Compiler(String),
    /// It failed while it was started for the first time.
    #[error("the component does not start: {0}")]
    Start(gristmill_core::Error),
}

impl LoadError {
    /// The documented word.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Verify(error) => error.code(),
            Self::TooLarge(_) => "too-large",
            Self::NotAComponent => "not-a-component",
            Self::Invalid(_) => "invalid-component",
            Self::ImportMismatch { .. } => "import-mismatch",
            Self::ImportNotGranted(_) => "import-not-granted",
            Self::UnknownImport(_) => "unknown-import",
            Self::WrongWorld(_) => "wrong-world",
            Self::UnsupportedContract { .. } => "unsupported-contract",
            Self::WrongShape(_) => "wrong-shape",
            Self::WrongGrant { .. } => "wrong-grant",
            Self::Compiler(_) => "compile-failed",
            Self::Start(_) => "start-failed",
        }
    }
}

/// All checks up to the component's shapes, which are its contract version's business.
pub(crate) fn compile(
    sandbox: &Sandbox,
    bytes: &[u8],
    pin: &Pin,
    grant: &Grant,
    kind: Kind,
) -> Result<Component, LoadError> {
    if pin.kind != kind {
        return Err(LoadError::WrongWorld(format!(
            "expected a {kind}, the pin of {} is of a {}",
            pin.name, pin.kind
        )));
    }
    if grant.kind != kind {
        return Err(LoadError::WrongGrant { grant: grant.kind, pin: kind });
    }
    pin.verify(bytes)?;

    let surface = Surface::read(bytes)?;
    imports(&surface, pin, grant)?;
    let (found, version) = contract::detect(&surface.exports)?;
    if found != kind {
        return Err(LoadError::WrongWorld(format!(
            "the pin is of a {kind}, the component is a {found}"
        )));
    }
    if version != pin.contract {
        return Err(LoadError::UnsupportedContract {
            found: version.to_owned(),
            known: format!("{} for this pin", pin.contract),
        });
    }

    // wasmtime validates before it compiles.
    let component = sandbox.compile(&pin.sha256, bytes)?;
    if let Some(needs) = component.resources_required() {
        let pages = needs.max_initial_memory_size.unwrap_or_default();
        let memory = pages.saturating_mul(65_536);
        if memory > grant.limits.memory_bytes() as u64 {
            return Err(LoadError::TooLarge(format!(
                "it starts with {memory} bytes of memory, granted are {} MiB",
                grant.limits.memory_mib
            )));
        }
        let elements = needs.max_initial_table_size.unwrap_or_default();
        if elements > grant.limits.table_elements.into() {
            return Err(LoadError::TooLarge(format!(
                "it starts with a table of {elements} elements, granted are {}",
                grant.limits.table_elements
            )));
        }
    }
    Ok(component)
}

fn imports(surface: &Surface, pin: &Pin, grant: &Grant) -> Result<(), LoadError> {
    let without = |from: &[String], other: &[String]| -> Vec<String> {
        from.iter().filter(|name| !other.contains(name)).map(|name| shown(name)).collect()
    };
    let extra = without(&surface.imports, &pin.imports);
    let missing = without(&pin.imports, &surface.imports);
    if !extra.is_empty() || !missing.is_empty() {
        return Err(LoadError::ImportMismatch { extra, missing });
    }
    for name in &surface.imports {
        let known = contract::known_import(name);
        let interface = name.split('@').next().unwrap_or(name);
        match known {
            // Types alone are words, not powers.
            contract::Known::Types => {}
            _ if !grant.allows(interface) => return Err(LoadError::ImportNotGranted(shown(name))),
            contract::Known::Powers => {}
            contract::Known::No => return Err(LoadError::UnknownImport(shown(name))),
        }
    }
    Ok(())
}

/// A name from a component, fit for a message.
pub(crate) fn shown(name: &str) -> String {
    name.chars().take(128).flat_map(char::escape_debug).collect()
}

/// wasmtime's reason in one line of bounded length.
pub(crate) fn one_line(error: &wasmtime::Error) -> String {
    shown_long(&format!("{error:#}"))
}

fn shown_long(text: &str) -> String {
    text.chars().take(512).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
