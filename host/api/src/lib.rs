//! HTTP dialects and control plane.
//!
//! Owns: the way from HTTP bytes to [`gristmill_core::request::Request`] and from
//! [`gristmill_core::event::Event`] back to HTTP bytes, in four dialects ([`ollama`], [`openai`],
//! [`responses`], [`anthropic`]), and the routes beside them ([`rerank`], [`tokens`]); the control
//! plane ([`control`]); who may come in ([`access`], [`keys`], [`guard`]); what is counted
//! ([`metrics`]); how long anybody may take ([`server`]). Every route stands in one table
//! ([`endpoint`]). Decoders and encoders are pure: JSON in, domain types out, and the other way.
//!
//! Refuses: what cannot be honoured, by field, in the dialect's own envelope. `docs/api.md` is the
//! full list.
//!
//! Bounds: body size, body bytes in flight over all requests, connections, time for a header, time
//! without progress in either direction. An answer is pulled a batch at a time, when the connection
//! takes it: a slow reader costs one batch and its socket buffers.

pub mod access;
pub mod account;
pub mod anthropic;
pub mod blocks;
pub mod body;
pub mod collect;
pub mod control;
pub mod drive;
pub mod embed;
pub mod endpoint;
pub mod error;
pub mod fields;
pub mod guard;
pub mod health;
pub mod ids;
pub mod keys;
pub mod media;
pub mod metrics;
pub mod models;
pub mod ollama;
pub mod openai;
pub mod policy;
pub mod rerank;
pub mod responses;
pub mod server;
pub mod state;
pub mod tokens;

pub use access::check_bind;
pub use server::{ServeConfig, serve};
pub use state::{ApiConfig, AppState};

use axum::{Router, middleware};

/// Every route, behind the guard. `docs/api.md` and `docs/control.md` describe them.
pub fn app(state: AppState) -> Router {
    endpoint::endpoints()
        .into_iter()
        .fold(Router::new(), |router, endpoint| router.route(endpoint.path, endpoint.route))
        .fallback(health::no_such_route)
        .method_not_allowed_fallback(health::wrong_method)
        .layer(middleware::from_fn_with_state(state.clone(), guard::guard))
        .with_state(state)
}
