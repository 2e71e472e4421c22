//! The host's log. Lines are counted and capped by the grant. Never log a prompt.

use alloc::{borrow::ToOwned, string::String, vec::Vec};

use crate::bindings::shared::gristmill::contract::log as host;
pub use crate::bindings::shared::gristmill::contract::log::Level;

/// Writes a line with named fields.
pub fn write(level: Level, message: &str, fields: &[(&str, &str)]) {
    let fields: Vec<(String, String)> =
        fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    host::write(level, message, &fields);
}

/// A line for whoever debugs the plugin.
pub fn debug(message: &str) {
    write(Level::Debug, message, &[]);
}

/// A line for the operator.
pub fn info(message: &str) {
    write(Level::Info, message, &[]);
}

/// Something is not as it should be, and the plugin goes on.
pub fn warn(message: &str) {
    write(Level::Warn, message, &[]);
}

/// Something failed.
pub fn error(message: &str) {
    write(Level::Error, message, &[]);
}
