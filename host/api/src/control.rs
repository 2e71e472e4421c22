//! The routes that belong to no dialect.

use axum::{
    Json,
    extract::State,
    http::{Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use gristmill_core::Error;
use serde_json::json;

use crate::{error::Failure, state::AppState};

/// The process lives. Needs no token.
pub async fn healthz() -> Response {
    Json(json!({ "status": "ok" })).into_response()
}

/// Whether an answer could be given now, part by part.
pub async fn readyz(State(state): State<AppState>) -> Response {
    let checks = state.readiness.checks().await;
    let ready = !checks.is_empty() && checks.iter().all(|check| check.ready);
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let checks: Vec<_> = checks
        .iter()
        .map(|check| json!({ "name": check.name, "ready": check.ready, "detail": check.detail }))
        .collect();
    (status, Json(json!({ "ready": ready, "checks": checks }))).into_response()
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
