//! What a component says of itself, read from its bytes without compiling or running anything.

use gristmill_ledger::{Kind, sha256};
use wasmparser::{ComponentExternName, Encoding, Parser, Payload};

use crate::{contract, load::LoadError};

/// The longest component that is read.
pub const MAX_COMPONENT_BYTES: usize = 32 << 20;

/// More imports or exports than any world has.
const MAX_NAMES: usize = 256;

/// What a component is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// Its kind, by what it exports.
    pub kind: Kind,
    /// Contract version without the patch, for instance `0.1`.
    pub contract: String,
    /// Everything it imports, by full name, sorted: what a pin lists.
    pub imports: Vec<String>,
    /// Everything it exports, by full name, sorted.
    pub exports: Vec<String>,
    /// `sha256:…` of its bytes.
    pub digest: String,
    /// How many bytes.
    pub size: u64,
}

/// Reads a component's kind, contract version, imports and exports.
///
/// # Errors
/// `too-large`, `not-a-component`, `invalid-component`, `wrong-world`, `unsupported-contract`.
pub fn inspect(bytes: &[u8]) -> Result<Inspection, LoadError> {
    let surface = Surface::read(bytes)?;
    let (kind, contract) = contract::detect(&surface.exports)?;
    Ok(Inspection {
        kind,
        contract: contract.to_owned(),
        imports: surface.imports,
        exports: surface.exports,
        digest: format!("sha256:{}", sha256(bytes)),
        size: bytes.len() as u64,
    })
}

/// The names at a component's edge, sorted.
#[derive(Debug)]
pub(crate) struct Surface {
    pub(crate) imports: Vec<String>,
    pub(crate) exports: Vec<String>,
}

impl Surface {
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, LoadError> {
        if bytes.len() > MAX_COMPONENT_BYTES {
            return Err(LoadError::TooLarge(format!(
                "{} bytes; at most {MAX_COMPONENT_BYTES} are read",
                bytes.len()
            )));
        }
        if !Parser::is_component(bytes) {
            return Err(LoadError::NotAComponent);
        }
        let invalid = |error: wasmparser::BinaryReaderError| LoadError::Invalid(error.to_string());
        let mut surface = Self { imports: Vec::new(), exports: Vec::new() };
        let mut depth = 0usize;
        for payload in Parser::new(0).parse_all(bytes) {
            match payload.map_err(invalid)? {
                Payload::Version { encoding: Encoding::Module, .. } if depth == 0 => {
                    return Err(LoadError::NotAComponent);
                }
                Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
                Payload::End(_) => depth = depth.saturating_sub(1),
                Payload::ComponentImportSection(section) if depth == 0 => {
                    for import in section {
                        push(&mut surface.imports, import.map_err(invalid)?.name)?;
                    }
                }
                Payload::ComponentExportSection(section) if depth == 0 => {
                    for export in section {
                        push(&mut surface.exports, export.map_err(invalid)?.name)?;
                    }
                }
                _ => {}
            }
        }
        surface.imports.sort();
        surface.exports.sort();
        Ok(surface)
    }
}

fn push(names: &mut Vec<String>, name: ComponentExternName<'_>) -> Result<(), LoadError> {
    if name.implements.is_some() || name.version_suffix.is_some() || name.external_id.is_some() {
        return Err(LoadError::Invalid(format!(
            "{} uses a kind of name this host does not know",
            name.name.escape_debug()
        )));
    }
    if names.len() == MAX_NAMES {
        return Err(LoadError::TooLarge(format!("more than {MAX_NAMES} imports or exports")));
    }
    names.push(name.name.to_owned());
    Ok(())
}
