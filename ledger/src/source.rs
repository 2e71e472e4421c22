//! Where a component comes from. What a source returns is believed only as far as the pin's digest says.

use std::path::{Path, PathBuf};

use crate::{LedgerError, Pin, disk};

/// The longest component that is read.
pub const MAX_COMPONENT_BYTES: u64 = 32 << 20;

/// Something that has components.
pub trait Source {
    /// The bytes that lie where this pin says.
    ///
    /// # Errors
    /// `component-missing`, or that they cannot be read.
    fn fetch(&self, pin: &Pin) -> Result<Vec<u8>, LedgerError>;
}

/// One component's file, whatever its name.
#[derive(Debug, Clone)]
pub struct OneFile(pub PathBuf);

/// A folder of components, each under the file name in its pin.
#[derive(Debug, Clone)]
pub struct Folder(pub PathBuf);

impl Source for OneFile {
    fn fetch(&self, _pin: &Pin) -> Result<Vec<u8>, LedgerError> {
        read(&self.0)
    }
}

impl Source for Folder {
    fn fetch(&self, pin: &Pin) -> Result<Vec<u8>, LedgerError> {
        read(&self.0.join(&pin.file))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, LedgerError> {
    disk::read_if_there(path, MAX_COMPONENT_BYTES)?.ok_or_else(|| {
        let reason = "missing; build or fetch the component, or pin the one that is there";
        LedgerError::refused("component-missing", path, reason)
    })
}
