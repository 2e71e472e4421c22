//! A domain error as each dialect says it: status, envelope, words.
//!
//! A handler fails with a [`Failure`]; the guard renders it in the dialect of the path, so that an
//! unknown route and a failed answer look alike to a client.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use gristmill_core::{Code, Error};
use serde_json::{Map, Value, json};

/// Whose words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// `{"error": "…"}`.
    Ollama,
    /// `{"error": {"message", "type", "param", "code"}}`.
    OpenAi,
    /// `{"type": "error", "error": {"type", "message"}, "request_id"}`.
    Anthropic,
    /// `{"error": {"code", "message", "request_id"}}`.
    Control,
}

/// What lies on the control plane; what lies below these does too.
const CONTROL: [&str; 9] = [
    "/v1/runtime",
    "/v1/capabilities",
    "/v1/backends",
    "/v1/route",
    "/v1/model-policies",
    "/v1/upstreams",
    "/v1/plugins",
    "/v1/ledger",
    "/v1/openapi.json",
];

/// Routes outside `/v1` that answer as the servers do from which clients know them: with an object.
const OBJECTS: [&str; 5] = ["/rerank", "/reranking", "/tokenize", "/detokenize", "/apply-template"];

impl Dialect {
    /// The dialect of a path.
    #[must_use]
    pub fn of(path: &str) -> Self {
        let at = |root: &str| {
            path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if at("/v1/messages") {
            Self::Anthropic
        } else if CONTROL.into_iter().any(at) {
            Self::Control
        } else if path == "/v1" || path.starts_with("/v1/") || OBJECTS.contains(&path) {
            Self::OpenAi
        } else {
            Self::Ollama
        }
    }

    /// The envelope. `request_id` is for the dialects that repeat it in the body.
    #[must_use]
    pub fn body(self, error: &Error, request_id: &str) -> Value {
        match self {
            Self::Ollama => json!({ "error": error.message }),
            Self::OpenAi => json!({ "error": object(error) }),
            Self::Control => json!({ "error": {
                "code": error.code.as_str(),
                "message": error.message,
                "request_id": request_id,
            } }),
            Self::Anthropic => {
                let mut inner = Map::new();
                inner.insert("type".into(), json!(family(status(&error.code))));
                inner.insert("message".into(), json!(error.message));
                details(&mut inner, error);
                json!({ "type": "error", "error": inner, "request_id": request_id })
            }
        }
    }
}

/// OpenAI's error object.
#[must_use]
pub fn object(error: &Error) -> Map<String, Value> {
    let mut inner = Map::new();
    inner.insert("message".into(), json!(error.message));
    inner.insert("type".into(), json!(kind(status(&error.code))));
    inner.insert("param".into(), json!(error.detail("field").or_else(|| asked_by(error))));
    inner.insert("code".into(), json!(word(error)));
    details(&mut inner, error);
    inner
}

/// The field that asks for a capability in this dialect.
fn asked_by(error: &Error) -> Option<&'static str> {
    Some(match error.detail("capability")? {
        "inference.text" | "reranking" => "model",
        "tools.calling" => "tools",
        "structured_output" => "response_format",
        "logprobs" => "logprobs",
        "reasoning.control" => "reasoning_effort",
        "multimodal.vision" => "image_url",
        "multimodal.audio" => "input_audio",
        _ => return None,
    })
}

/// Numbers and names behind an error, where there are any.
fn details(inner: &mut Map<String, Value>, error: &Error) {
    let details: Map<_, _> = error
        .details
        .iter()
        .filter(|(name, _)| name != "field")
        .map(|(name, value)| (name.clone(), json!(value)))
        .collect();
    if !details.is_empty() {
        inner.insert("details".into(), Value::Object(details));
    }
}

/// What a handler fails with.
#[derive(Debug, Clone)]
pub struct Failure {
    /// What went wrong.
    pub error: Error,
    /// Its status, where the code alone does not say it.
    pub status: Option<StatusCode>,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, status: None }
    }
}

impl Failure {
    /// A failure that belongs to HTTP and not to the domain: `unauthorized`, `forbidden`,
    /// `rate-limited`, `no-such-route`, `method-not-allowed`, `request-timeout`, `too-large`,
    /// `unsupported-encoding`.
    #[must_use]
    pub fn http(word: &str, message: impl Into<String>) -> Self {
        Error::new(Code::Other(word.to_owned()), message).into()
    }

    /// The status of the answer.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status.unwrap_or_else(|| status(&self.error.code))
    }

    /// The answer in a dialect.
    #[must_use]
    pub fn render(&self, dialect: Dialect, request_id: &str) -> Response {
        let status = self.status();
        let mut response = (status, Json(dialect.body(&self.error, request_id))).into_response();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json; charset=utf-8"),
        );
        if let Ok(code) = HeaderValue::from_str(self.error.code.as_str()) {
            headers.insert("x-gristmill-error", code);
        }
        if let Some(ms) = self.error.retry_after_ms {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(ms.div_ceil(1000)));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl IntoResponse for Failure {
    /// A placeholder the guard replaces by [`Failure::render`].
    fn into_response(self) -> Response {
        let mut response = self.status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// The status of a failure.
#[must_use]
pub fn status(code: &Code) -> StatusCode {
    match code {
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::Unsupported | Code::InvalidRequest | Code::ContextOverflow => StatusCode::BAD_REQUEST,
        Code::Busy | Code::Drained | Code::UpstreamUnavailable | Code::InsufficientMemory => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        Code::Cancelled => cancelled(),
        Code::UpstreamError | Code::PluginFault => StatusCode::BAD_GATEWAY,
        Code::UpstreamTimeout => StatusCode::GATEWAY_TIMEOUT,
        Code::ManifestMismatch | Code::SessionClosed => StatusCode::CONFLICT,
        Code::Blocked => StatusCode::FORBIDDEN,
        Code::SessionFatal | Code::DigestMismatch | Code::Internal => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
        Code::Other(word) => match word.as_str() {
            "unauthorized" => StatusCode::UNAUTHORIZED,
            "forbidden" => StatusCode::FORBIDDEN,
            "no-such-route" => StatusCode::NOT_FOUND,
            "method-not-allowed" => StatusCode::METHOD_NOT_ALLOWED,
            "rate-limited" => StatusCode::TOO_MANY_REQUESTS,
            "request-timeout" => StatusCode::REQUEST_TIMEOUT,
            "too-large" => StatusCode::PAYLOAD_TOO_LARGE,
            "unsupported-encoding" => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        },
    }
}

/// "Client closed request": no standard number exists, 499 is the one in use.
fn cancelled() -> StatusCode {
    StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST)
}

fn kind(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        429 => "rate_limit_error",
        code if code < 500 => "invalid_request_error",
        _ => "server_error",
    }
}

/// Anthropic's type for a status.
fn family(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        408 | 504 => "timeout_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 => "overloaded_error",
        code if code < 500 => "invalid_request_error",
        _ => "api_error",
    }
}

/// OpenAI's word where it has one, otherwise the domain's own.
#[must_use]
pub fn word(error: &Error) -> String {
    match &error.code {
        Code::NotFound if error.detail("model").is_some() => "model_not_found".to_owned(),
        Code::ContextOverflow => "context_length_exceeded".to_owned(),
        Code::Other(word) if word == "unauthorized" => "invalid_api_key".to_owned(),
        Code::Other(word) if word == "rate-limited" => "rate_limit_exceeded".to_owned(),
        code => code.as_str().replace('-', "_"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_control_planes_routes_and_no_others_have_its_dialect() {
        let ours: Vec<_> = crate::control::routes().into_iter().map(|route| route.path).collect();
        for route in crate::endpoint::endpoints() {
            let control = Dialect::of(route.path) == Dialect::Control;
            assert_eq!(control, ours.contains(&route.path), "{}", route.path);
        }
    }
}
