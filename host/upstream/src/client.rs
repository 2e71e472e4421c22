//! The client of one server, behind the sandbox's [`Upstream`].

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use gristmill_core::{Error, Result};
use gristmill_policies as policies;
use gristmill_sandbox::{Framing, HttpRequest, Response, Upstream, mapped};
use http_body_util::Full;
use hyper::{
    Request, StatusCode, Uri,
    body::{Body as _, Incoming},
    header::{
        ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, HOST, HeaderMap, HeaderName,
        HeaderValue, TRANSFER_ENCODING, USER_AGENT,
    },
};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout, timeout_at},
};

use crate::{
    config::{Config, Credential},
    connection::{Broken, Connection, MAX_HEAD_BYTES, MAX_HEADERS},
    dial::{Resolve, Trust, dial},
    fault::Fault,
    pool::Pool,
    response::Answer,
};

/// One server, as one plugin may use it.
pub struct Client {
    shared: Arc<Shared>,
    resolver: Arc<dyn Resolve>,
    trust: Trust,
    exchanges: Arc<Semaphore>,
}

/// What answers keep of it.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) granted: policies::Upstream,
    pub(crate) pool: Arc<Pool>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({})", self.shared.config.backend)
    }
}

impl Client {
    /// A client; nothing is dialled before the first request.
    #[must_use]
    pub fn new(
        config: Config,
        granted: policies::Upstream,
        resolver: Arc<dyn Resolve>,
        trust: Trust,
    ) -> Self {
        let exchanges = Arc::new(Semaphore::new(granted.exchanges as usize));
        let shared = Arc::new(Shared { config, granted, pool: Arc::default() });
        Self { shared, resolver, trust, exchanges }
    }

    /// Exchanges under way and connections that wait.
    #[must_use]
    pub fn open(&self) -> (usize, usize) {
        let granted = self.shared.granted.exchanges as usize;
        (granted - self.exchanges.available_permits(), self.shared.pool.len())
    }

    /// Sends and waits for the head. Only a request that may be made twice goes over a connection that
    /// waited: if no byte answers it there, it goes once more, over a fresh one.
    async fn open_exchange(
        &self,
        request: &Outgoing,
    ) -> Result<(hyper::Response<Incoming>, Connection)> {
        let config = &self.shared.config;
        let fault = Fault(config);
        let repeatable = self.shared.granted.repeatable || request.method.is_idempotent();
        let mut waiting = if repeatable { self.shared.pool.take().await } else { None };
        loop {
            let used = waiting.is_some();
            let mut connection = match waiting.take() {
                Some(connection) => connection,
                None => {
                    let resolver = self.resolver.as_ref();
                    let stream = dial(config, &self.shared.granted, resolver, &self.trust).await?;
                    Connection::new(stream)
                        .await
                        .map_err(|error| fault.failed(&format!("no connection: {error}")))?
                }
            };
            let sent = timeout(config.times.head, connection.exchange(request.build()));
            match sent.await {
                Ok(Ok(head)) => return Ok((head, connection)),
                Ok(Err(broken)) if used && broken.silent => {
                    tracing::debug!(backend = config.backend, "a waiting connection was dead");
                }
                Ok(Err(broken)) => return Err(broken_head(fault, &broken)),
                Err(_) => {
                    return Err(fault.timeout("waiting for its answer to begin", config.times.head));
                }
            }
        }
    }
}

#[async_trait]
impl Upstream for Client {
    async fn send(
        &self,
        grant: &str,
        request: HttpRequest,
        framing: Framing,
    ) -> Result<Box<dyn Response>> {
        let config = &self.shared.config;
        let fault = Fault(config);
        if grant != config.upstream {
            return Err(Error::new(
                gristmill_core::Code::UpstreamUnavailable,
                format!("no server is configured for the upstream {grant:?}"),
            )
            .with("upstream", grant));
        }
        request.check(&self.shared.granted)?;
        let request = Outgoing::new(config, request)?;
        let permit = Arc::clone(&self.exchanges)
            .try_acquire_owned()
            .map_err(|_| fault.busy(self.shared.granted.exchanges))?;

        let deadline = Instant::now() + config.times.total;
        let opened = timeout_at(deadline, self.open_exchange(&request));
        let (head, connection) = match opened.await {
            Ok(opened) => opened?,
            Err(_) => return Err(fault.timeout("answering", config.times.total)),
        };
        let has_body = !head.body().is_end_stream();
        if let Some(what) =
            wrong_head(head.status(), head.headers(), has_body, &self.shared.granted)
        {
            let seen = fault.seen(&connection.seen());
            return Err(fault
                .failed(&what)
                .with("status", head.status().as_u16())
                .with("seen", seen));
        }
        let answer = Answer::new(Arc::clone(&self.shared), head, connection, framing, deadline);
        Ok(Box::new(answer.holding(permit).await))
    }
}

/// A request that can be sent more than once.
struct Outgoing {
    method: hyper::Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
}

impl Outgoing {
    fn new(config: &Config, request: HttpRequest) -> Result<Self> {
        let fault = Fault(config);
        let method = hyper::Method::from_bytes(request.method.as_bytes())
            .map_err(|_| fault.invalid("the method cannot be sent"))?;
        let path = format!("{}{}", config.endpoint.prefix, request.path);
        let uri = path.parse().map_err(|_| fault.invalid("the path cannot be sent"))?;

        let mut headers = HeaderMap::new();
        for (name, value) in &request.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| {
                fault.invalid("a header's name cannot be sent").with("field", "headers")
            })?;
            let same = |key: &Credential| mapped(key.header.as_str()) == mapped(name.as_str());
            if config.credential.as_ref().is_some_and(same) {
                let what = format!("the header {name} is set by the host alone");
                return Err(fault.invalid(&what).with("field", "headers"));
            }
            let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| {
                fault.invalid("a header's value cannot be sent").with("field", "headers")
            })?;
            headers.append(name, value);
        }
        let authority = HeaderValue::from_str(&config.endpoint.authority())
            .map_err(|_| fault.invalid("the configured host cannot be sent"))?;
        headers.insert(HOST, authority);
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if !headers.contains_key(USER_AGENT) {
            let agent = concat!("gristmill/", env!("CARGO_PKG_VERSION"));
            headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        }
        if let Some(credential) = &config.credential {
            headers.insert(credential.header.clone(), credential.value.clone());
        }
        Ok(Self { method, uri, headers, body: Bytes::from(request.body) })
    }

    fn build(&self) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }
}

/// What is wrong with an answer's head, if anything. Whatever leaves two ways to read where the body
/// ends, or what it is, is refused.
fn wrong_head(
    status: StatusCode,
    headers: &HeaderMap,
    has_body: bool,
    granted: &policies::Upstream,
) -> Option<String> {
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return Some("it switched protocols unasked".to_owned());
    }
    let lengths: Vec<_> = headers.get_all(CONTENT_LENGTH).iter().collect();
    let coding: Vec<_> = headers.get_all(TRANSFER_ENCODING).iter().collect();
    if lengths.len() + coding.len() > 1 {
        return Some("its answer says more than once how long it is".to_owned());
    }
    if coding.iter().any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"chunked")) {
        return Some("its answer has a transfer coding that was not asked for".to_owned());
    }
    let plain = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"identity");
    if headers.get_all(CONTENT_ENCODING).iter().any(|coding| !plain(coding)) {
        return Some("its answer is compressed, which was not asked for".to_owned());
    }
    let number = |text: &HeaderValue| -> Option<u64> {
        let text = text.to_str().ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?;
        text.parse().ok()
    };
    let most = granted.response_bytes;
    match lengths.first().map(|length| number(length)) {
        Some(None) => Some("its answer says in no plain number how long it is".to_owned()),
        Some(Some(length)) if length > most && has_body => {
            Some(format!("its answer is longer than the {most} bytes that are granted"))
        }
        _ => None,
    }
}

fn broken_head(fault: Fault<'_>, broken: &Broken) -> Error {
    let error = &broken.error;
    let what = if error.is_parse_too_large() {
        format!(
            "the head of its answer is longer than {MAX_HEAD_BYTES} bytes or {MAX_HEADERS} headers"
        )
    } else if error.is_parse() {
        "its answer is not HTTP/1.1".to_owned()
    } else if broken.silent {
        "the connection ended before its answer began".to_owned()
    } else {
        "the connection ended in the head of its answer".to_owned()
    };
    tracing::debug!(backend = fault.0.backend, %error, "{what}");
    let failed = fault.failed(&what);
    if broken.seen.is_empty() { failed } else { failed.with("seen", fault.seen(&broken.seen)) }
}
