//! The way out: one HTTP client for each server that a grant names and the operator has configured.
//!
//! Owns: the server's address, TLS, credentials, the base path, the cutting of answers into frames,
//! the connections that wait for the next request, quotas and time-outs. A guest holds none of that: it
//! says a name, a path and a body, and gets frames.
//!
//! Refuses: a request outside its grant, an address outside the grant's networks or that no server
//! may have ([`address`]), a redirection (it is an answer like any other), an answer that is not what
//! was asked for. The key, where a server says it, is cut out of every answer. The order is fixed: grant,
//! method, path and headers, size; then the name is resolved, *every* address is checked, and the
//! connection goes to exactly a checked one. Proxies named in the environment are not looked at.
//!
//! Bounds: the quotas of the grant, the time-outs of [`Config`], [`connection::MAX_HEAD_BYTES`] for an
//! answer's head. Reading happens only while somebody asks, and stops once 64 frames or 256 KiB wait
//! to be handed over; a stalled reader costs that, the last read and an unfinished frame. There is no
//! task behind a connection in use; dropping the answer closes the socket.

pub mod address;
mod client;
mod config;
pub mod connection;
mod dial;
mod fault;
pub mod framing;
mod hide;
mod pool;
mod response;

pub use client::Client;
pub use config::{Config, ConfigError, Credential, Endpoint, Times};
pub use dial::{Resolve, SystemResolver, Trust};
