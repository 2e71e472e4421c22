//! What every request passes: an id, an account, the host and origin checks, the key and its limits,
//! the net for defects, and the rendering of failures in the dialect of the path. Who may not come in
//! is told so before a body is read.

use std::{
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{
    body::{Body, Bytes, HttpBody},
    extract::{MatchedPath, Request, State},
    http::{
        HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
        header::{
            ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
            ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
            ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, ALLOW, AUTHORIZATION,
            HOST, ORIGIN, VARY,
        },
    },
    middleware::Next,
    response::{IntoResponse, Response},
};
use futures_util::FutureExt;
use gristmill_core::Error;
use hyper::body::{Frame, SizeHint};

use crate::{
    access,
    account::Account,
    endpoint::{self, Access},
    error::{Dialect, Failure},
    ids,
    keys::{Caller, Who, limit::Place},
    policy,
    state::AppState,
};

static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Anthropic's name of the same.
static PLAIN_REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
/// Where Anthropic's clients put their key.
static API_KEY: HeaderName = HeaderName::from_static("x-api-key");

const EXPOSED: &str = "x-request-id, request-id, x-gristmill-model, x-gristmill-backend, x-gristmill-digest, \
                       x-gristmill-generation, x-gristmill-unused, x-gristmill-unreachable, \
                       x-gristmill-policy, x-gristmill-policy-detail, x-gristmill-profile, \
                       x-gristmill-error, retry-after";

/// The one middleware.
pub async fn guard(State(state): State<AppState>, mut request: Request, next: Next) -> Response {
    let dialect = Dialect::of(request.uri().path());
    let id = request
        .headers()
        .get(&REQUEST_ID)
        .and_then(|id| ids::sane(id.to_str().ok()?))
        .unwrap_or_else(|| ids::fresh("req_", 20));
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or_else(|| "other".to_owned(), |path| path.as_str().to_owned());
    let needs = endpoint::access(&route, request.method());
    let profile = text(request.headers(), &policy::PROFILE).map(str::to_owned);
    let account = Account::open(id, route, profile, Arc::clone(&state.metrics));
    request.extensions_mut().insert(Arc::clone(&account));

    let mut origin = request.headers().get(ORIGIN).cloned();
    let mut place = Place::default();
    let entrance = match passes(&state, &request) {
        Ok(None) => admit(&state, &request, needs),
        Ok(Some(preflight)) => Ok(Entrance::Preflight(preflight)),
        Err(failure) => {
            // A page that may not come in does not get to read why.
            origin = None;
            Err(failure)
        }
    };
    let answer = match entrance {
        Err(failure) => failure.into_response(),
        Ok(Entrance::Preflight(preflight)) => preflight,
        Ok(Entrance::In(caller, held)) => {
            account.comes_from(caller);
            place = held;
            match AssertUnwindSafe(next.run(request)).catch_unwind().await {
                Ok(response) => response,
                Err(_) => {
                    let message = "the host has a defect; the request id names its log";
                    Failure::from(Error::internal(message)).into_response()
                }
            }
        }
    };
    finish(dialect, account, place, origin, answer)
}

/// What becomes of a request that is not refused.
enum Entrance {
    Preflight(Response),
    In(Caller, Place),
}

/// Whether a request may come from where it comes from; a preflight is answered here.
fn passes(state: &AppState, request: &Request) -> Result<Option<Response>, Failure> {
    let config = &state.config;
    let headers = request.headers();
    // In HTTP/1.1 the host stands in the header; a target in absolute form carries its own.
    let host = request
        .uri()
        .authority()
        .map(|authority| authority.as_str())
        .or_else(|| text(headers, &HOST));
    if config.loopback && host.is_some_and(|host| !access::host(host, &config.hosts)) {
        return Err(Failure::http(
            "forbidden",
            "this host name is not allowed here; use localhost, or add the name to the allowed hosts",
        ));
    }
    if headers.contains_key(ORIGIN) {
        let origin = text(headers, &ORIGIN).unwrap_or("");
        if !access::origin(origin, host, &config.origins) {
            return Err(Failure::http(
                "forbidden",
                "this origin is not allowed here; add it to the allowed origins",
            ));
        }
        if request.method() == Method::OPTIONS
            && let Some(method) = headers.get(ACCESS_CONTROL_REQUEST_METHOD)
        {
            return Ok(Some(preflight(method, headers.get(ACCESS_CONTROL_REQUEST_HEADERS))));
        }
    }
    Ok(None)
}

/// Lets a request in by its key, or says why not.
fn admit(state: &AppState, request: &Request, needs: Access) -> Result<Entrance, Failure> {
    if needs == Access::Open {
        return Ok(Entrance::In(Caller::default(), Place::default()));
    }
    let headers = request.headers();
    let bearers = headers.get(AUTHORIZATION).and_then(|value| access::bearer(value.as_bytes()));
    let key = headers.get(&API_KEY).map(HeaderValue::as_bytes);
    let shown: Vec<&[u8]> = [bearers, key].into_iter().flatten().collect();
    let (caller, place) = match state.config.keys.who(&shown) {
        Who::Anybody if needs == Access::Verb => {
            let message = "this needs an operator key, and this host has no keys: make one with \
                           gristmill key add NAME --operator";
            return Err(Failure::http("unauthorized", message));
        }
        Who::Anybody => (Caller::default(), Place::default()),
        Who::Stranger => {
            let message = "a valid key is required, as a bearer token or in x-api-key";
            return Err(Failure::http("unauthorized", message));
        }
        Who::Known(key) if needs >= Access::Operator && !key.operator => {
            let message = "this key reaches models and nothing else; use an operator key";
            return Err(Failure::http("forbidden", message));
        }
        Who::Known(key) => {
            let limited = needs == Access::Inference;
            let place = if limited { key.limits().admit()? } else { Place::default() };
            (Caller::new(key), place)
        }
    };
    if needs == Access::Change && !state.config.mutation {
        return Err(Failure::http(
            "forbidden",
            "changing models over HTTP is switched off; set server.model_changes to switch it on, or use the command line",
        ));
    }
    Ok(Entrance::In(caller, place))
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    // A value that is not text is present and allowed by nothing.
    headers.get(name).map(|value| value.to_str().unwrap_or(""))
}

/// Grants what was asked: methods and headers are the routes' to judge.
fn preflight(method: &HeaderValue, wanted: Option<&HeaderValue>) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, method.clone());
    if let Some(wanted) = wanted {
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
    }
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("43200"));
    response
}

/// Renders a failure, adds the headers every answer has, and ties the account to the body.
fn finish(
    dialect: Dialect,
    account: Arc<Account>,
    place: Place,
    origin: Option<HeaderValue>,
    mut response: Response,
) -> Response {
    if let Some(failure) = response.extensions_mut().remove::<Failure>() {
        account.fail(&failure.error);
        let old = std::mem::replace(&mut response, failure.render(dialect, &account.id));
        for name in [ALLOW] {
            if let Some(value) = old.headers().get(&name) {
                response.headers_mut().insert(name, value.clone());
            }
        }
    }
    account.status(response.status().as_u16());
    if let Some(told) = account.told() {
        told.name(&mut response);
    }
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(&account.id) {
        if dialect == Dialect::Anthropic {
            headers.insert(PLAIN_REQUEST_ID.clone(), id.clone());
        }
        headers.insert(REQUEST_ID.clone(), id);
    }
    if let Some(origin) = origin {
        headers.insert(VARY, HeaderValue::from_static("origin"));
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    }
    response.map(|body| Body::new(Tracked { body, _account: account, _place: place }))
}

/// A body that holds its request's account, and its place among those of its key, until it is written
/// or dropped.
struct Tracked {
    body: Body,
    _account: Arc<Account>,
    _place: Place,
}

impl HttpBody for Tracked {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
