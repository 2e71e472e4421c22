//! The routes that belong to no dialect: whether the host lives, whether it can serve, its counters.

use axum::{
    Json,
    extract::State,
    http::{Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use gristmill_core::Error;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    control::view::Problem,
    endpoint::{Access, Endpoint},
    error::Failure,
    state::AppState,
};

/// Every route.
#[must_use]
pub fn routes() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/healthz", "Whether the process lives", healthz)
            .access(Access::Open)
            .gives::<Alive>(),
        Endpoint::get("/readyz", "Whether an answer could be given now", readyz)
            .access(Access::Key)
            .gives::<Ready>(),
        Endpoint::get("/metrics", "The counters, as OpenMetrics text", metrics)
            .access(Access::Operator),
    ]
}

/// The answer of `/healthz`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Alive {
    /// `ok`.
    pub status: &'static str,
}

/// The answer of `/readyz`: status 200 when ready, else 503.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Ready {
    /// Whether every part can serve.
    pub ready: bool,
    /// Part by part.
    pub checks: Vec<Part>,
    /// What is wrong with the ledger, the policies or the keys on disk. It stops no answer, what runs
    /// goes on running; but it wants somebody's hands.
    pub problems: Vec<Problem>,
}

/// Whether one part can serve.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Part {
    /// The part.
    pub name: String,
    /// Yes or no.
    pub ready: bool,
    /// A sentence.
    pub detail: String,
}

/// The process lives. Needs no key.
pub async fn healthz() -> Json<Alive> {
    Json(Alive { status: "ok" })
}

/// Whether an answer could be given now, part by part, and what is wrong on disk.
pub async fn readyz(State(state): State<AppState>) -> Response {
    let (checks, problems) = tokio::join!(state.router.checks(), state.problems());
    let ready = !checks.is_empty() && checks.iter().all(|check| check.ready);
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let checks = checks
        .into_iter()
        .map(|check| Part { name: check.name, ready: check.ready, detail: check.detail })
        .collect();
    (status, Json(Ready { ready, checks, problems })).into_response()
}

/// The counters.
pub async fn metrics(State(state): State<AppState>) -> Result<Response, Failure> {
    let text = state
        .metrics
        .text(state.router.load_now())
        .map_err(|_| Error::internal("metrics could not be written"))?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

/// 404 in the dialect of the path.
pub async fn no_such_route(method: Method, uri: Uri) -> Failure {
    Failure::http("no-such-route", format!("no such route: {method} {}", uri.path()))
}

/// 405 in the dialect of the path.
pub async fn wrong_method(method: Method, uri: Uri) -> Failure {
    Failure::http("method-not-allowed", format!("{} does not take {method}", uri.path()))
}
