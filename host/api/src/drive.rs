//! From a plan to response bytes: choices one after the other, a batch at a time, each only when
//! the connection takes more.
//!
//! Nothing is spawned: the answer lives in the handler's future, later in the response's body. When
//! the client goes away, hyper drops that, and with it the answer, the guest and the work.

use std::{collections::VecDeque, panic::AssertUnwindSafe, sync::Arc};

use axum::{
    Json,
    body::{Body, Bytes},
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use futures_util::{FutureExt, Stream, stream};
use gristmill_core::{Code, Error, Result, event::Event, request::Request};
use gristmill_router::{Answer, KeepAlive, Plan, Provenance};
use serde_json::Value;

use crate::{
    account::Account,
    collect::Collect,
    error::Failure,
    policy::{self, Names},
    state::AppState,
};

/// Most events taken from an answer at a time.
const BATCH: u32 = 64;

/// Events into one dialect's stream.
pub trait Encoder: Send + 'static {
    /// The stream's media type.
    fn content_type(&self) -> &'static str;

    /// The bytes for a batch of events of one choice. `finish` is among a choice's last events.
    fn batch(&mut self, choice: usize, events: Vec<Event>) -> String;

    /// The bytes after the last choice.
    fn end(&mut self) -> String;

    /// The bytes for a failure; nothing follows them.
    fn error(&mut self, error: &Error) -> String;
}

/// A server-sent event without a name.
#[must_use]
pub fn frame(value: &Value) -> String {
    format!("data: {value}\n\n")
}

/// A server-sent event named by the value's `type`.
#[must_use]
pub fn named_frame(value: &Value) -> String {
    let name = value.get("type").and_then(Value::as_str).unwrap_or_default();
    format!("event: {name}\ndata: {value}\n\n")
}

/// The choices of one HTTP request, computed one after the other.
pub struct Driver {
    state: AppState,
    account: Arc<Account>,
    plan: Plan,
    keep: Option<KeepAlive>,
    waiting: VecDeque<Request>,
    running: Option<Answer>,
    choice: usize,
    finished: bool,
}

impl Driver {
    /// A driver that has not begun.
    #[must_use]
    pub fn new(
        state: AppState,
        account: Arc<Account>,
        plan: Plan,
        keep: Option<KeepAlive>,
        requests: Vec<Request>,
    ) -> Self {
        account.model(&plan.provenance().model);
        let mut waiting = VecDeque::from(requests);
        policy::select(&account, &mut waiting);
        Self { state, account, plan, keep, waiting, running: None, choice: 0, finished: false }
    }

    /// Who answers.
    #[must_use]
    pub fn provenance(&self) -> Provenance {
        self.plan.provenance()
    }

    /// The next events and their choice; `None` after the last choice.
    ///
    /// # Errors
    /// The failure that ended the answer. A panic below is caught here and is `internal`.
    pub async fn next(&mut self) -> Result<Option<(usize, Vec<Event>)>> {
        match AssertUnwindSafe(self.step()).catch_unwind().await {
            Ok(result) => result,
            Err(_) => {
                self.running = None;
                self.waiting.clear();
                Err(Error::internal("the host has a defect; the request id names its log"))
            }
        }
    }

    async fn step(&mut self) -> Result<Option<(usize, Vec<Event>)>> {
        loop {
            if self.running.is_none() {
                let Some(request) = self.waiting.pop_front() else { return Ok(None) };
                let router = Arc::clone(&self.state.router);
                let names = Names::of(&self.account.route, &request);
                let begun = router.generate(&self.plan, request, self.keep).await;
                let answer = begun.map_err(|error| names.failed(&self.account, error))?;
                names.judged(&self.account, answer.judgement());
                // Further choices come from whoever gave the first.
                self.plan = answer.plan().clone();
                self.running = Some(answer);
                self.finished = false;
            }
            let Some(answer) = self.running.as_mut() else { return Ok(None) };
            match answer.next(BATCH).await {
                Ok(Some(events)) => {
                    for event in &events {
                        if let Event::Finish(finish) = event {
                            if finish.reason == "cancelled" {
                                return Err(Error::new(
                                    Code::Cancelled,
                                    "the back-end stopped the answer",
                                ));
                            }
                            self.finished = true;
                        }
                    }
                    self.account.observe(&events);
                    return Ok(Some((self.choice, events)));
                }
                Ok(None) => {
                    self.running = None;
                    if !self.finished {
                        return Err(Error::new(
                            Code::UpstreamError,
                            "the answer broke off: it has no finish",
                        ));
                    }
                    self.choice += 1;
                }
                Err(error) => {
                    self.running = None;
                    return Err(error);
                }
            }
        }
    }

    /// All choices, whole.
    ///
    /// # Errors
    /// As [`Driver::next`].
    pub async fn whole<T: Collect>(&mut self) -> Result<Vec<T>> {
        let mut wholes: Vec<T> = Vec::new();
        while let Some((choice, events)) = self.next().await? {
            while wholes.len() <= choice {
                wholes.push(T::default());
            }
            if let Some(whole) = wholes.get_mut(choice) {
                whole.take(events);
            }
        }
        Ok(wholes)
    }

    /// The one choice there is, whole.
    ///
    /// # Errors
    /// As [`Driver::next`].
    pub async fn only<T: Collect>(&mut self) -> Result<T> {
        Ok(self.whole().await?.pop().unwrap_or_default())
    }

    /// A streamed response. A failure before the first events is a failure of the request; later
    /// ones are written into the stream.
    ///
    /// # Errors
    /// As [`Driver::next`].
    pub async fn stream(mut self, encoder: impl Encoder) -> std::result::Result<Response, Failure> {
        let first = self.next().await?;
        // Only now: a block may have let an alternative answer, or a swap another generation.
        let provenance = self.provenance();
        let content_type = HeaderValue::from_static(encoder.content_type());
        self.account.stream();
        let mut response = Body::from_stream(frames(self, encoder, first)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, content_type);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        name_source(&mut response, &provenance);
        Ok(response)
    }
}

/// Where a stream stands.
enum Stage {
    /// These events come first.
    First(Option<(usize, Vec<Event>)>),
    Running,
    Over,
}

fn frames(
    driver: Driver,
    encoder: impl Encoder,
    first: Option<(usize, Vec<Event>)>,
) -> impl Stream<Item = std::result::Result<Bytes, std::convert::Infallible>> + Send {
    let start = (driver, encoder, Stage::First(first));
    stream::unfold(start, |(mut driver, mut encoder, mut stage)| async move {
        loop {
            let next = match std::mem::replace(&mut stage, Stage::Running) {
                Stage::Over => return None,
                Stage::First(first) => Ok(first),
                Stage::Running => driver.next().await,
            };
            let text = match next {
                Ok(Some((choice, events))) => encoder.batch(choice, events),
                Ok(None) => {
                    driver.account.close();
                    stage = Stage::Over;
                    encoder.end()
                }
                Err(error) => {
                    driver.account.fail(&error);
                    driver.account.close();
                    stage = Stage::Over;
                    encoder.error(&error)
                }
            };
            // An empty chunk would end a chunked body.
            if !text.is_empty() {
                return Some((Ok(Bytes::from(text)), (driver, encoder, stage)));
            }
        }
    })
}

/// A whole answer, with the headers that every answer of a model has.
#[must_use]
pub fn json_answer(value: Value, provenance: &Provenance, unused: &[String]) -> Response {
    let mut response = Json(value).into_response();
    name_source(&mut response, provenance);
    name_unused(&mut response, unused);
    response
}

/// Says in headers who answers.
pub fn name_source(response: &mut Response, provenance: &Provenance) {
    let headers = response.headers_mut();
    let pairs = [
        ("x-gristmill-model", provenance.model.as_str()),
        ("x-gristmill-backend", provenance.backend.as_str()),
        ("x-gristmill-digest", provenance.digest.as_str()),
    ];
    for (name, value) in pairs {
        headers.insert(name, header_value(value));
    }
    headers.insert("x-gristmill-generation", HeaderValue::from(provenance.generation));
}

/// Says in a header which fields were taken and changed nothing.
pub fn name_unused(response: &mut Response, unused: &[String]) {
    if !unused.is_empty() {
        response.headers_mut().insert("x-gristmill-unused", header_value(&unused.join(", ")));
    }
}

/// Says in a header of a list which back-ends could not be asked for theirs.
pub fn name_unreachable(response: &mut Response, state: &AppState) {
    let names: Vec<_> = state.router.unreachable().into_iter().map(|(name, _)| name).collect();
    if !names.is_empty() {
        response.headers_mut().insert("x-gristmill-unreachable", header_value(&names.join(", ")));
    }
}

/// Visible ASCII as it is, everything else as `%XX`.
pub(crate) fn header_value(text: &str) -> HeaderValue {
    let mut value = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => value.push(char::from(byte)),
            _ => value.push_str(&format!("%{byte:02X}")),
        }
    }
    HeaderValue::from_str(&value).unwrap_or(HeaderValue::from_static(""))
}
