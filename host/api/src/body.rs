//! A request's body: bounded in size, in time without progress, and in what all bodies together
//! hold.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{FromRequest, Request},
    http::header::{CONTENT_ENCODING, CONTENT_LENGTH, EXPECT},
};
use gristmill_core::{Code, Error};
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::{sync::OwnedSemaphorePermit, time::timeout};

use crate::{account::Account, error::Failure, state::AppState};

/// Of a body beyond the limit so much is read and thrown away, so that a client that first sends
/// everything sees the answer and not a broken pipe.
const DISCARD: u64 = 1 << 30;

/// A request with a body of JSON.
pub struct Posted {
    /// The host.
    pub state: AppState,
    /// The request's account.
    pub account: Arc<Account>,
    /// The body.
    pub body: Value,
}

impl FromRequest<AppState> for Posted {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, Failure> {
        let account = request.extensions().get::<Arc<Account>>().map(Arc::clone);
        let account = account.ok_or_else(|| Error::internal("a route has no guard before it"))?;
        let body = json(state, request).await?;
        Ok(Self { state: state.clone(), account, body })
    }
}

/// The whole body as JSON.
///
/// # Errors
/// `too-large`, `request-timeout`, `unsupported-encoding`; `invalid-request` for an empty body and
/// for anything that is not JSON; `busy` when the bodies in flight hold what they may.
pub async fn json(state: &AppState, request: Request) -> Result<Value, Failure> {
    let (bytes, _held) = read(state, request).await?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Error::invalid(format!("request body is not valid JSON: {error}")).into())
}

/// The bytes, and what they hold of the budget.
///
/// # Errors
/// As [`json`], but for what is not JSON.
pub async fn read(
    state: &AppState,
    request: Request,
) -> Result<(Vec<u8>, Vec<OwnedSemaphorePermit>), Failure> {
    let (parts, mut body) = request.into_parts();
    if let Some(encoding) = parts.headers.get(CONTENT_ENCODING)
        && !encoding.as_bytes().eq_ignore_ascii_case(b"identity")
    {
        return Err(Failure::http(
            "unsupported-encoding",
            "compressed request bodies are not taken",
        ));
    }
    let limit = state.config.body_limit;
    let announced = parts
        .headers
        .get(CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > limit as u64) {
        // A client that asks first has not begun to send.
        if !parts.headers.contains_key(EXPECT) {
            discard(state, &mut body).await;
        }
        return Err(too_large(limit));
    }

    let mut bytes = Vec::new();
    let mut held = Vec::new();
    let mut paid = 0_usize;
    while let Some(chunk) = next(state, &mut body).await? {
        if bytes.len() + chunk.len() > limit {
            drop((bytes, held));
            discard(state, &mut body).await;
            return Err(too_large(limit));
        }
        bytes.extend_from_slice(&chunk);
        let due = bytes.len().div_ceil(1024).saturating_sub(paid);
        if due > 0 {
            let share = u32::try_from(due).unwrap_or(u32::MAX);
            let permit = Arc::clone(&state.budget).try_acquire_many_owned(share).map_err(|_| {
                let message = "server busy: request bodies hold all the memory they may";
                Error::new(Code::Busy, message).retry_after(1000)
            })?;
            held.push(permit);
            paid += due;
        }
    }
    if bytes.is_empty() {
        return Err(Error::invalid("missing request body").into());
    }
    Ok((bytes, held))
}

async fn next(state: &AppState, body: &mut Body) -> Result<Option<bytes::Bytes>, Failure> {
    loop {
        let frame = timeout(state.config.body_timeout, body.frame()).await.map_err(|_| {
            Failure::http("request-timeout", "the request body stopped coming; send it faster")
        })?;
        match frame {
            None => return Ok(None),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
            Some(Err(error)) => {
                return Err(Error::invalid(format!("request body broke off: {error}")).into());
            }
        }
    }
}

async fn discard(state: &AppState, body: &mut Body) {
    let mut thrown = 0_u64;
    while thrown < DISCARD {
        match next(state, body).await {
            Ok(Some(chunk)) => thrown += chunk.len() as u64,
            _ => break,
        }
    }
}

fn too_large(limit: usize) -> Failure {
    Error::new(
        Code::Other("too-large".to_owned()),
        format!("request body is larger than the limit of {limit} bytes"),
    )
    .with("limit", limit)
    .into()
}
