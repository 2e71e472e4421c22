//! The host's side of the imports of contract 0.1: `engine` and `kernels` and `upstream` in files of
//! their own; `log`, `clock`, `onnx` and a probe's `serving` here.
//!
//! A call that a guest may make wrongly returns the contract's error; a call that breaks a limit
//! returns a [`crate::Fault`], which stops the guest.
#![allow(unreachable_pub, reason = "the generated bindings re-export the types of handles")]

mod engine;
mod kernels;
mod serving;
mod upstream;

pub use engine::{Decoding, Model, Session};
pub use kernels::Matrix;
pub use serving::Probed;
pub use upstream::Response;

use std::time::{SystemTime, UNIX_EPOCH};

use gristmill_core::Error;
use wasmtime::{Result, component::Resource};

use super::{bindings::gristmill::contract, convert::To, wit};
use crate::plugin::Guest;

/// What a function of the contract returns: the contract's error inside, a fault outside.
type Answer<T> = Result<std::result::Result<T, wit::Error>>;

/// A domain result as the contract's.
fn answer<A: To<B>, B>(result: gristmill_core::Result<A>) -> Answer<B> {
    Ok(result.map(To::to).map_err(To::to))
}

/// A domain error as the contract's.
fn refuse<T>(error: Error) -> Answer<T> {
    Ok(Err(error.to()))
}

// Words alone.
impl contract::types::Host for Guest {}
impl contract::capability::Host for Guest {}

/// One record's message and fields are cut to this many characters each.
const LOG_CHARS: usize = 2_000;

impl contract::log::Host for Guest {
    fn write(
        &mut self,
        level: wit::log::Level,
        message: String,
        fields: Vec<(String, String)>,
    ) -> Result<()> {
        let bytes = message.len() + fields.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
        self.log.take(bytes)?;

        // Escaped, so that a guest cannot write lines that look like the host's.
        let shown = |text: &str| -> String {
            text.chars().take(LOG_CHARS).flat_map(char::escape_debug).collect()
        };
        let message = shown(&message);
        let fields = fields
            .iter()
            .map(|(name, value)| format!("{}={}", shown(name), shown(value)))
            .collect::<Vec<_>>()
            .join(" ");
        let plugin = self.plugin.name.as_str();
        use wit::log::Level;
        match level {
            Level::Trace => tracing::trace!(target: "plugin", plugin, fields, "{message}"),
            Level::Debug => tracing::debug!(target: "plugin", plugin, fields, "{message}"),
            Level::Info => tracing::info!(target: "plugin", plugin, fields, "{message}"),
            Level::Warn => tracing::warn!(target: "plugin", plugin, fields, "{message}"),
            Level::Error => tracing::error!(target: "plugin", plugin, fields, "{message}"),
        }
        Ok(())
    }
}

impl contract::clock::Host for Guest {
    fn monotonic(&mut self) -> Result<u64> {
        Ok(u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    fn wall(&mut self) -> Result<u64> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
    }
}

/// No graph is ever opened yet; the type is empty.
pub enum Graph {}

impl contract::onnx::Host for Guest {}

impl contract::onnx::HostGraph for Guest {
    async fn open(&mut self, _model: String) -> Answer<Resource<Graph>> {
        refuse(Error::unsupported(
            "this host has no onnx runtime; ask for another back-end, or use the kernels import",
        ))
    }

    async fn inputs(&mut self, graph: Resource<Graph>) -> Result<Vec<contract::onnx::Port>> {
        match *self.table.get(&graph)? {}
    }

    async fn outputs(&mut self, graph: Resource<Graph>) -> Result<Vec<contract::onnx::Port>> {
        match *self.table.get(&graph)? {}
    }

    async fn run(
        &mut self,
        graph: Resource<Graph>,
        _inputs: Vec<contract::onnx::Tensor>,
        _outputs: Vec<String>,
    ) -> Answer<Vec<contract::onnx::Tensor>> {
        match *self.table.get(&graph)? {}
    }

    async fn drop(&mut self, graph: Resource<Graph>) -> Result<()> {
        self.table.delete(graph)?;
        Ok(())
    }
}
