//! HTTP dialects and control plane.
//!
//! Owns: the way from HTTP bytes to [`gristmill_core::request::Request`] and from
//! [`gristmill_core::event::Event`] back to HTTP bytes, in four dialects ([`ollama`], [`openai`],
//! [`responses`], [`anthropic`]), and the routes beside them ([`rerank`], [`tokens`]);
//! who may come in ([`access`], [`guard`]); what is counted ([`metrics`]); how long anybody may take
//! ([`server`]). Decoders and encoders are pure: JSON in, domain types out, and the other way.
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
pub mod error;
pub mod fields;
pub mod guard;
pub mod ids;
pub mod media;
pub mod metrics;
pub mod ollama;
pub mod openai;
pub mod rerank;
pub mod responses;
pub mod server;
pub mod state;
pub mod tokens;

pub use access::check_bind;
pub use server::{ServeConfig, serve};
pub use state::{ApiConfig, AppState, Readiness};

use axum::{Router, middleware, routing::get};

/// Every route, behind the guard. `docs/api.md` describes them.
pub fn app(state: AppState) -> Router {
    Router::new()
        .merge(ollama::routes())
        .merge(openai::routes())
        .merge(responses::routes())
        .merge(anthropic::routes())
        .merge(rerank::routes())
        .merge(tokens::routes())
        .route("/healthz", get(control::healthz))
        .route("/readyz", get(control::readyz))
        .route("/metrics", get(control::metrics))
        .fallback(control::no_such_route)
        .method_not_allowed_fallback(control::wrong_method)
        .layer(middleware::from_fn_with_state(state.clone(), guard::guard))
        .with_state(state)
}
