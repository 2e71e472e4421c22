//! GET over HTTPS, for pulls: redirects by rule, a caller that can stop at any time, and an end to
//! waiting.
//!
//! A request runs on a thread of its own and hands over what arrives, so that the caller can look
//! up ten times a second whatever the server does. A redirect is followed to https only (plain http
//! only between loopback addresses), at most [`MAX_REDIRECTS`] times, and the token goes to the
//! hub's own origin alone.

use std::{
    fs, io,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use ureq::{
    Agent, Body,
    http::{HeaderMap, Response, Uri, header, uri::Authority},
    tls::{PemItem, RootCerts, TlsConfig, parse_pem},
};

use super::{
    error::{Result, StoreError, shorten},
    layout::TICK,
    settings::Sources,
};

const MAX_REDIRECTS: usize = 10;
/// Answers that are read as a whole are no longer than this.
const MAX_TEXT: usize = 16 << 20;
const CHUNK: usize = 256 << 10;
/// Chunks on their way from the connection to the disk.
const QUEUE: usize = 4;

/// Called while waiting, and to be asked whether to go on.
pub(super) type Tick<'a> = &'a mut dyn FnMut() -> Result<()>;

/// A client of one hub.
pub(super) struct Client {
    agent: Agent,
    /// The hub's address without a slash at the end.
    base: String,
    inner: Arc<Rules>,
}

struct Rules {
    origin: Uri,
    token: Option<String>,
    silence: Duration,
}

/// The head of an answer, and its body as it arrives.
pub(super) struct Answer {
    pub(super) status: u16,
    /// Of the last answer, after redirects.
    pub(super) headers: HeaderMap,
    /// Of the first, which the hub itself gave.
    pub(super) first: HeaderMap,
    url: String,
    silence: Duration,
    events: Receiver<Event>,
}

enum Event {
    Head(u16, Box<(HeaderMap, HeaderMap)>),
    Chunk(Vec<u8>),
    End,
    Failed(StoreError),
}

impl Client {
    pub(super) fn new(settings: &Sources) -> Result<Self> {
        let base = settings.hub.trim_end_matches('/').to_owned();
        let refuse = |reason: &str| StoreError::source(&base, format!("as a hub: {reason}"));
        let origin: Uri = base.parse().map_err(|_| refuse("it is not a URL"))?;
        if origin.query().is_some() {
            return Err(refuse("it has a query"));
        }
        allowed(&origin, is_plain_loopback(&origin)).map_err(|reason| refuse(&reason))?;
        let mut tls = TlsConfig::builder();
        if let Some(path) = &settings.certificates {
            let pem = fs::read(path).map_err(|error| StoreError::io("read", path, error))?;
            let certificates: Vec<_> = parse_pem(&pem)
                .filter_map(|item| match item {
                    Ok(PemItem::Certificate(certificate)) => Some(certificate),
                    _ => None,
                })
                .collect();
            if certificates.is_empty() {
                let reason = "it has no certificate in PEM form; see SSL_CERT_FILE";
                return Err(StoreError::source(&path.display().to_string(), reason));
            }
            tls = tls.root_certs(RootCerts::new_with_certs(&certificates));
        }
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(settings.silence))
            .timeout_recv_response(Some(settings.silence))
            .timeout_per_read(Some(settings.silence))
            .user_agent(concat!("gristmill/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls.build());
        if is_plain_loopback(&origin) {
            config = config.proxy(None);
        }
        let inner =
            Arc::new(Rules { origin, token: settings.token.clone(), silence: settings.silence });
        Ok(Self { agent: config.build().new_agent(), base, inner })
    }

    /// The address of a path at the hub.
    pub(super) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Asks and waits for the head of the answer.
    pub(super) fn get(
        &self,
        url: &str,
        headers: Vec<(&'static str, String)>,
        tick: Tick<'_>,
    ) -> Result<Answer> {
        let (send, events) = sync_channel(QUEUE);
        let (agent, rules, address) = (self.agent.clone(), self.inner.clone(), url.to_owned());
        thread::Builder::new()
            .name("gristmill-pull".to_owned())
            .spawn(move || {
                let end = match run(&agent, &rules, &address, &headers, &send) {
                    Ok(()) => Event::End,
                    Err(error) => Event::Failed(error),
                };
                // Nobody to hear it: the pull was stopped.
                let _ = send.send(end);
            })
            .map_err(|error| StoreError::io("start", "a thread", error))?;
        let mut answer = Answer {
            status: 0,
            headers: HeaderMap::new(),
            first: HeaderMap::new(),
            url: url.to_owned(),
            silence: self.inner.silence,
            events,
        };
        match answer.event(tick)? {
            Event::Head(status, heads) => {
                answer.status = status;
                (answer.first, answer.headers) = *heads;
                Ok(answer)
            }
            Event::Failed(error) => Err(error),
            Event::Chunk(_) | Event::End => Err(answer.broken("it gave no answer")),
        }
    }

    /// Asks for a short text.
    pub(super) fn text(&self, url: &str, tick: Tick<'_>) -> Result<Vec<u8>> {
        let mut answer = self.get(url, Vec::new(), tick)?;
        answer.succeed()?;
        let mut out = Vec::new();
        while let Some(chunk) = answer.chunk(tick)? {
            out.extend_from_slice(&chunk);
            if out.len() > MAX_TEXT {
                let reason = format!("more than {MAX_TEXT} bytes, which is no list of files");
                return Err(StoreError::upstream(url, reason));
            }
        }
        Ok(out)
    }
}

impl Answer {
    /// The next bytes of the body; none at its end.
    pub(super) fn chunk(&mut self, tick: Tick<'_>) -> Result<Option<Vec<u8>>> {
        match self.event(tick)? {
            Event::Chunk(bytes) => Ok(Some(bytes)),
            Event::End => Ok(None),
            Event::Failed(error) => Err(error),
            Event::Head(..) => Err(self.broken("it began twice")),
        }
    }

    fn event(&self, tick: Tick<'_>) -> Result<Event> {
        let since = Instant::now();
        loop {
            match self.events.recv_timeout(TICK) {
                Ok(event) => return Ok(event),
                Err(RecvTimeoutError::Timeout) if since.elapsed() > self.silence => {
                    return Err(silent(&self.url, self.silence));
                }
                Err(RecvTimeoutError::Timeout) => tick()?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.broken("the connection ended"));
                }
            }
        }
    }

    fn broken(&self, reason: &str) -> StoreError {
        StoreError::Unreachable { url: self.url.clone(), reason: reason.to_owned() }
    }

    /// Fails with what a status means for a pull, unless it is a success.
    pub(super) fn succeed(&self) -> Result<()> {
        let reason = match self.status {
            200..=299 => return Ok(()),
            401 | 403 => format!(
                "{}: the repository is private or gated, or does not exist; accept its terms on \
                 the hub and set HF_TOKEN",
                self.status
            ),
            404 => "404: there is no such repository, revision or file".to_owned(),
            // What a busy or broken server says; asking again may help.
            429 | 500..=599 => return Err(self.broken(&format!("it answered {}", self.status))),
            other => format!("{other}, expected 200"),
        };
        Err(StoreError::upstream(&self.url, reason))
    }

    /// A header of the last answer.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// A header that only the hub itself may give.
    pub(super) fn hub_header(&self, name: &str) -> Option<&str> {
        self.first.get(name)?.to_str().ok()
    }
}

/// The whole exchange, on its own thread.
fn run(
    agent: &Agent,
    rules: &Rules,
    url: &str,
    headers: &[(&'static str, String)],
    send: &SyncSender<Event>,
) -> Result<()> {
    let mut at: Uri =
        url.parse().map_err(|_| StoreError::upstream(shorten(url), "an address that is no URL"))?;
    let mut first = None;
    for _ in 0..=MAX_REDIRECTS {
        let answer = ask(agent, rules, &at, headers)?;
        let head = answer.headers().clone();
        if !answer.status().is_redirection() || answer.status().as_u16() == 304 {
            let status = answer.status().as_u16();
            let heads = Box::new((first.unwrap_or_else(|| head.clone()), head));
            if send.send(Event::Head(status, heads)).is_err() {
                return Ok(());
            }
            return body(rules, url, answer, send);
        }
        at = follow(rules, &at, &head).map_err(|reason| StoreError::upstream(url, reason))?;
        first.get_or_insert(head);
    }
    Err(StoreError::upstream(url, format!("more than {MAX_REDIRECTS} redirects")))
}

fn ask(
    agent: &Agent,
    rules: &Rules,
    at: &Uri,
    headers: &[(&'static str, String)],
) -> Result<Response<Body>> {
    let mut request = agent.get(at).header("Accept-Encoding", "identity");
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    if let Some(token) = rules.token.as_ref().filter(|_| same_origin(&rules.origin, at)) {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    request.call().map_err(|error| failure(&error, &plain(at), rules.silence))
}

fn body(rules: &Rules, url: &str, answer: Response<Body>, send: &SyncSender<Event>) -> Result<()> {
    let mut reader = answer.into_body().into_reader();
    loop {
        let mut chunk = vec![0; CHUNK];
        match io::Read::read(&mut reader, &mut chunk) {
            Ok(0) => return Ok(()),
            Ok(read) => {
                chunk.truncate(read);
                if send.send(Event::Chunk(chunk)).is_err() {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<ureq::Error>());
                return Err(match inner {
                    Some(inner) => failure(inner, url, rules.silence),
                    None => unreachable(url, &error),
                });
            }
        }
    }
}

/// Where a redirect leads, if it may.
fn follow(rules: &Rules, at: &Uri, head: &HeaderMap) -> std::result::Result<Uri, String> {
    let location = head
        .get(header::LOCATION)
        .and_then(|value| value.to_str().ok())
        .ok_or("a redirect without a location")?;
    let bad = || format!("a redirect to `{}`, which is no URL", shorten(location));
    let scheme = at.scheme_str().unwrap_or("https");
    let authority = at.authority().map_or("", Authority::as_str);
    let absolute = if location.contains("://") {
        location.to_owned()
    } else if let Some(rest) = location.strip_prefix("//") {
        format!("{scheme}://{rest}")
    } else if location.starts_with('/') {
        format!("{scheme}://{authority}{location}")
    } else {
        let folder = at.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        format!("{scheme}://{authority}{folder}/{location}")
    };
    let to: Uri = absolute.parse().map_err(|_| bad())?;
    allowed(&to, is_plain_loopback(&rules.origin))
        .map_err(|reason| format!("a redirect to {}: {reason}", shorten(&plain(&to))))?;
    Ok(to)
}

/// Whether an address may be asked at all.
fn allowed(uri: &Uri, plain_loopback: bool) -> std::result::Result<(), String> {
    let authority = uri.authority().map_or("", Authority::as_str);
    if authority.is_empty() || authority.contains('@') {
        return Err("it has no host, or credentials in it".to_owned());
    }
    match uri.scheme_str() {
        Some("https") => Ok(()),
        Some("http") if plain_loopback && is_plain_loopback(uri) => Ok(()),
        _ => Err("only https is followed (http on a loopback address only)".to_owned()),
    }
}

fn is_plain_loopback(uri: &Uri) -> bool {
    uri.scheme_str() == Some("http")
        && matches!(uri.host(), Some("127.0.0.1" | "localhost" | "[::1]"))
}

fn same_origin(a: &Uri, b: &Uri) -> bool {
    let port = |uri: &Uri| {
        uri.port_u16().unwrap_or(if uri.scheme_str() == Some("http") { 80 } else { 443 })
    };
    let host = |uri: &Uri| uri.host().map(str::to_ascii_lowercase);
    a.scheme() == b.scheme() && host(a) == host(b) && port(a) == port(b)
}

/// An address without its query, which may be a signature.
fn plain(uri: &Uri) -> String {
    let authority = uri.authority().map_or("", Authority::as_str);
    format!("{}://{authority}{}", uri.scheme_str().unwrap_or("https"), uri.path())
}

fn failure(error: &ureq::Error, url: &str, silence: Duration) -> StoreError {
    match error {
        ureq::Error::Timeout(_) => silent(url, silence),
        ureq::Error::Io(_)
        | ureq::Error::HostNotFound
        | ureq::Error::ConnectionFailed
        | ureq::Error::ConnectProxyFailed(_)
        | ureq::Error::BodyStalled => unreachable(url, error),
        other => StoreError::upstream(url, format!("what cannot be understood: {other}")),
    }
}

fn unreachable(url: &str, error: &dyn std::error::Error) -> StoreError {
    StoreError::Unreachable { url: url.to_owned(), reason: error.to_string() }
}

fn silent(url: &str, silence: Duration) -> StoreError {
    StoreError::Silent { url: url.to_owned(), seconds: silence.as_secs() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(origin: &str) -> Rules {
        Rules { origin: origin.parse().unwrap(), token: None, silence: Duration::from_secs(1) }
    }

    #[test]
    fn redirects_stay_on_https() {
        let mut head = HeaderMap::new();
        for (origin, location, expected) in [
            ("https://hub/x", "https://cdn/y?sig=1", Some("https://cdn/y?sig=1")),
            ("https://hub/a/x", "y", Some("https://hub/a/y")),
            ("https://hub/a/x", "/y", Some("https://hub/y")),
            ("https://hub/a/x", "//cdn/y", Some("https://cdn/y")),
            ("https://hub/x", "http://cdn/y", None),
            ("https://hub/x", "http://127.0.0.1/y", None),
            ("https://hub/x", "file:///etc/passwd", None),
            ("https://hub/x", "https://hub@evil/y", None),
            ("http://127.0.0.1:1/x", "http://localhost:2/y", Some("http://localhost:2/y")),
            ("http://127.0.0.1:1/x", "http://10.0.0.1/y", None),
        ] {
            head.insert(header::LOCATION, location.parse().unwrap());
            let to = follow(&rules(origin), &origin.parse().unwrap(), &head);
            assert_eq!(to.ok().map(|uri| uri.to_string()).as_deref(), expected, "{location}");
        }
    }

    #[test]
    fn the_token_knows_its_origin() {
        let same = |a: &str, b: &str| same_origin(&a.parse().unwrap(), &b.parse().unwrap());
        assert!(same("https://hub", "https://HUB:443/path"));
        assert!(!same("https://hub", "https://hub:8443/"));
        assert!(!same("https://hub", "http://hub/"));
        assert!(!same("https://hub", "https://hub.evil/"));
    }

    #[test]
    fn a_plain_http_hub_is_refused() {
        for (hub, good) in [
            ("https://hub/mirror/", true),
            ("http://127.0.0.1:80", true),
            ("http://hub", false),
            ("http://127.0.0.1.evil", false),
            ("hub", false),
            ("https://user@hub", false),
        ] {
            let settings = Sources { hub: hub.to_owned(), ..Sources::default() };
            assert_eq!(Client::new(&settings).is_ok(), good, "{hub}");
        }
    }
}
