//! Failures in every shape that servers give them: an object, a text or a list under `error`,
//! `detail` or `message`, a page, nothing at all; with a status, or inside a success. Each becomes
//! one of the contract's codes, names the back-end, and says what was seen.
//!
//! Bounds: [`MOST_SEEN`] characters of what a server said are passed on.

use gristmill_plugin::prelude::*;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, value::RawValue};

use crate::Reply;

/// Characters of a server's own words.
pub const MOST_SEEN: usize = 300;

/// When to come back to a server that does not say.
const LATER_MS: u32 = 1000;

/// A server's ways of failing.
#[derive(Debug, Clone, Copy)]
pub struct Manners {
    /// The bridge's name, in messages and in the detail `backend`.
    pub backend: &'static str,
    /// Whether status 404 means that the model is missing. One server answers 404 to every failure.
    pub missing_is_404: bool,
}

/// What tells a failure from an answer, read without keeping anything else.
#[derive(Debug, Deserialize)]
struct Signs<'b> {
    error: Option<IgnoredAny>,
    detail: Option<IgnoredAny>,
    #[serde(borrow)]
    object: Option<&'b RawValue>,
}

impl Signs<'_> {
    fn of_failure(&self) -> bool {
        let object = self.object.is_some_and(|word| word.get() == "\"error\"");
        self.error.is_some() || self.detail.is_some() || object
    }
}

/// What a server said of a failure.
#[derive(Debug, Default, PartialEq)]
struct Said {
    message: String,
    /// `type`, and `code` where it is a word.
    words: Vec<String>,
    /// `code` where it is a status.
    status: Option<u16>,
    tokens: Option<u64>,
    limit: Option<u64>,
}

impl Manners {
    /// What an unsuccessful response means.
    #[must_use]
    pub fn of(&self, reply: &dyn Reply, body: &[u8]) -> Error {
        let status = reply.status();
        let said = said(body).unwrap_or_else(|| Said { message: seen(body), ..Said::default() });
        let mut error = self.judged(status, &said);
        if error.code == "busy" {
            let wait = reply.header("retry-after").and_then(|text| text.trim().parse().ok());
            error.retry_after_ms =
                Some(wait.map_or(LATER_MS, |seconds: u32| seconds.saturating_mul(1000)));
        }
        error
    }

    /// The error inside a success or a stream, if these bytes are one.
    #[must_use]
    pub fn inside(&self, body: &[u8]) -> Option<Error> {
        serde_json::from_slice::<Signs<'_>>(body).ok().filter(Signs::of_failure)?;
        let said = said(body)?;
        let status = said.status.unwrap_or(0);
        let mut error = self.judged(status, &said);
        if error.code == "busy" {
            error.retry_after_ms = Some(LATER_MS);
        }
        Some(error)
    }

    /// `upstream-error` with what was seen.
    #[must_use]
    pub fn nonsense(&self, what: &str, body: &[u8]) -> Error {
        self.named(Error::upstream(what)).with("seen", seen(body))
    }

    /// An error of the import, with the back-end it concerns.
    #[must_use]
    pub fn during(&self, error: Error) -> Error {
        // The host knows the name under which the operator has configured it.
        if gristmill_plugin::extra(&error.details, "backend").is_some() {
            return error;
        }
        self.named(error)
    }

    /// The error with the back-end's name.
    #[must_use]
    pub fn named(&self, error: Error) -> Error {
        error.with("backend", self.backend)
    }

    fn judged(&self, status: u16, said: &Said) -> Error {
        let code = self.code(status, said);
        let backend = self.backend;
        let message = match (status, said.message.as_str()) {
            (0, message) => format!("{backend} failed: {message}"),
            (401 | 403, message) => format!(
                "{backend} refused the host's credentials with status {status} ({message}); \
                 the operator has to set them"
            ),
            (300..=399, _) => {
                format!("{backend} answered with a redirection ({status}), which is not followed")
            }
            (_, message) => format!("{backend} answered {status}: {message}"),
        };
        let mut error = self.named(Error::new(code, message));
        if status != 0 {
            error = error.with("status", status);
        }
        if code == "context-overflow" {
            for (name, number) in [("additional", said.tokens), ("limit", said.limit)] {
                if let Some(number) = number {
                    error = error.with(name, number);
                }
            }
        }
        error
    }

    fn code(&self, status: u16, said: &Said) -> &'static str {
        let text = said.message.to_ascii_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
        let word = |wanted: &str| said.words.iter().any(|word| word == wanted);
        if word("exceed_context_size_error") || word("context_length_exceeded") || has(OVERFLOWS) {
            return "context-overflow";
        }
        match status {
            // llama-server has 500 for fields that it does not take.
            400 | 405 | 409 | 413 | 422 | 500 if has(NOT_OFFERED) => "unsupported",
            400 | 405 | 409 | 413 | 422 => "invalid-request",
            404 if self.missing_is_404 || has(MISSING) => "not-found",
            408 | 504 => "upstream-timeout",
            429 | 503 => "busy",
            501 => "unsupported",
            0 if has(MISSING) && has(&["model"]) => "not-found",
            0 if word("invalid_request_error") || word("BadRequestError") => "invalid-request",
            0 if word("rate_limit_exceeded") || word("unavailable_error") => "busy",
            _ => "upstream-error",
        }
    }
}

/// How servers say that a prompt is too long, in lower case: OpenAI and vLLM, llama-server twice
/// (chat; embeddings), Ollama, and others.
const OVERFLOWS: &[&str] = &[
    "maximum context length",
    "exceeds the available context size",
    "increase the physical batch size",
    "exceeds the context length",
    "context length exceeded",
    "context window",
    "longer than the maximum model length",
    "prompt is too long",
];

const NOT_OFFERED: &[&str] =
    &["does not support", "is not supported", "not supported by", "unsupported param"];

const MISSING: &[&str] = &["not found", "does not exist", "no such model", "404 client error"];

/// What JSON says of a failure; none: it is no JSON, or no failure.
fn said(body: &[u8]) -> Option<Said> {
    let value: Value = serde_json::from_slice(body).ok()?;
    let object = value.as_object()?;
    let mut said = Said::default();
    // `{"error": …}`, FastAPI's `{"detail": …}`, and the flat `{"object": "error", "message": …}`.
    let inner = if let Some(error) = object.get("error").filter(|error| !error.is_null()) {
        error
    } else if let Some(detail) = object.get("detail").filter(|detail| !detail.is_null()) {
        detail
    } else if object.get("object").and_then(Value::as_str) == Some("error") {
        &value
    } else {
        return None;
    };
    match inner {
        Value::String(text) => said.message.clone_from(text),
        Value::Object(fields) => {
            said.message = match fields.get("message") {
                Some(Value::String(text)) => text.clone(),
                _ => inner.to_string(),
            };
            for name in ["type", "code"] {
                match fields.get(name) {
                    Some(Value::String(word)) => said.words.push(word.clone()),
                    Some(Value::Number(number)) => {
                        said.status = number.as_u64().and_then(|code| u16::try_from(code).ok());
                    }
                    _ => {}
                }
            }
            said.tokens = fields.get("n_prompt_tokens").and_then(Value::as_u64);
            said.limit = fields.get("n_ctx").and_then(Value::as_u64);
        }
        // FastAPI: `[{"loc": ["body", "stop"], "msg": "…"}]`.
        Value::Array(items) => {
            let each = items.iter().filter_map(|item| {
                let place: Vec<String> = item.get("loc")?.as_array()?.iter().map(plain).collect();
                Some(format!("{}: {}", place.join("."), item.get("msg")?.as_str()?))
            });
            said.message = each.collect::<Vec<_>>().join("; ");
        }
        other => said.message = other.to_string(),
    }
    if said.limit.is_none() {
        (said.limit, said.tokens) = lengths(&said.message);
    }
    said.message = cut(&said.message);
    Some(said)
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}

/// vLLM and OpenAI: "This model's maximum context length is 4096 tokens. However, … 5000 …";
/// llama-server: "input (600 tokens) is too large … (current batch size: 512)".
fn lengths(message: &str) -> (Option<u64>, Option<u64>) {
    let numbers = |text: &str| -> Vec<u64> {
        let words = text.split(|letter: char| !letter.is_ascii_digit());
        words.filter_map(|word| word.parse().ok()).collect()
    };
    if let Some((_, rest)) = message.split_once("maximum context length is ") {
        let found = numbers(rest);
        return (found.first().copied(), found.get(1).copied());
    }
    if message.contains("physical batch size") {
        let found = numbers(message);
        return (found.last().copied().filter(|_| found.len() > 1), found.first().copied());
    }
    (None, None)
}

/// What a body that says nothing looks like.
fn seen(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let text = text.trim();
    if text.is_empty() {
        return "an empty body".to_owned();
    }
    let start = text.get(..text.len().min(64)).unwrap_or(text).to_ascii_lowercase();
    if start.starts_with("<!doctype html") || start.starts_with("<html") {
        let lower = text.to_ascii_lowercase();
        let title = lower
            .find("<title>")
            .map(|at| at + "<title>".len())
            .and_then(|from| Some((from, from + lower.get(from..)?.find("</title>")?)))
            .and_then(|(from, to)| text.get(from..to));
        return match title.map(str::trim).filter(|title| !title.is_empty()) {
            Some(title) => cut(&format!("an html page titled {title:?}")),
            None => "an html page".to_owned(),
        };
    }
    cut(text)
}

/// At most [`MOST_SEEN`] characters, on one line.
fn cut(text: &str) -> String {
    let mut short: String =
        text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    if let Some((at, _)) = short.char_indices().nth(MOST_SEEN) {
        short.truncate(at);
        short.push('…');
    }
    short
}
