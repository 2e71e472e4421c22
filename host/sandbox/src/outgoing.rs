//! What a guest may say to a server, whoever stands behind the `upstream` import.
//!
//! A request is refused here, before anything is resolved or dialled, when it would reach another
//! host or path than it seems to, break the framing of the connection, speak in the host's place, or
//! when the grant does not allow its method or path. An escape in a path is accepted only where the
//! byte could not stand for itself, so that what is compared with the grant is what the server reads.

use gristmill_core::{Code, Error, Result};
use gristmill_policies::{METHODS, Upstream};

use crate::{load::shown, services::HttpRequest};

/// Headers that say who asks whom, how the message is framed, or that it means something else than
/// its first line says: the host's, or nobody's.
const REFUSED_HEADERS: &[&str] = &[
    // Whom.
    "host",
    "forwarded",
    "via",
    "x-real-ip",
    "x-original-url",
    "x-rewrite-url",
    // Who.
    "authorization",
    "cookie",
    // Framing and the connection.
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "upgrade",
    "http2-settings",
    "te",
    "trailer",
    "expect",
    "accept-encoding",
    // Another method than the granted one.
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
];

/// Families of such headers.
const REFUSED_PREFIXES: &[&str] = &["proxy-", "x-forwarded-", "sec-"];

const MAX_HEADERS: usize = 64;
const MAX_HEADER_BYTES: usize = 16 << 10;
const MAX_PATH: usize = 4 << 10;

impl HttpRequest {
    /// Refuses what the contract or this grant does not allow.
    ///
    /// # Errors
    /// `invalid-request` with the detail `field` for what no grant allows; `blocked` for a method or
    /// path outside this one.
    pub fn check(&self, granted: &Upstream) -> Result<()> {
        self.check_method()?;
        self.check_path()?;
        self.check_headers()?;
        if self.body.len() as u64 > granted.request_bytes {
            return Err(field(
                "body",
                format!(
                    "the body has {} bytes, the grant allows {}",
                    self.body.len(),
                    granted.request_bytes
                ),
            ));
        }
        if !granted.allows_method(&self.method) {
            let reason = format!("the grant does not allow the method {}", self.method);
            return Err(Error::new(Code::Blocked, reason).with("method", &self.method));
        }
        if !granted.allows_path(&self.path) {
            let path = shown(self.path.split('?').next().unwrap_or_default());
            let reason = format!("the grant does not allow the path {path:?}");
            return Err(Error::new(Code::Blocked, reason).with("path", path));
        }
        Ok(())
    }

    fn check_method(&self) -> Result<()> {
        if METHODS.contains(&self.method.as_str()) {
            return Ok(());
        }
        Err(field("method", format!("expected one of {}", METHODS.join(", "))))
    }

    fn check_path(&self) -> Result<()> {
        if is_path(&self.path) {
            return Ok(());
        }
        Err(field(
            "path",
            "expected a path and query that begin with one /, in printable ascii, without empty or \
             dot segments, and with escapes only where they are needed"
                .to_owned(),
        ))
    }

    fn check_headers(&self) -> Result<()> {
        if self.headers.len() > MAX_HEADERS {
            return Err(field("headers", format!("expected at most {MAX_HEADERS}")));
        }
        let bytes: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > MAX_HEADER_BYTES {
            return Err(field("headers", format!("expected at most {MAX_HEADER_BYTES} bytes")));
        }
        for (name, value) in &self.headers {
            let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
            if name.is_empty() || !name.bytes().all(token) {
                return Err(field("headers", format!("{:?} is not a header name", shown(name))));
            }
            let plain = mapped(name);
            if REFUSED_HEADERS.contains(&plain.as_str())
                || REFUSED_PREFIXES.iter().any(|prefix| plain.starts_with(prefix))
            {
                return Err(field("headers", format!("{} is set by the host alone", shown(name))));
            }
            if value.chars().any(|c| c.is_control() && c != '\t') {
                let reason = format!("the value of {} has control characters", shown(name));
                return Err(field("headers", reason));
            }
        }
        Ok(())
    }
}

/// A header's name as servers compare it: in any case, and behind CGI `_` is `-`.
#[must_use]
pub fn mapped(name: &str) -> String {
    name.to_ascii_lowercase().replace('_', "-")
}

fn field(name: &str, reason: String) -> Error {
    Error::invalid(reason).with("field", name)
}

/// A path and query whose every reader sees the same segments.
fn is_path(whole: &str) -> bool {
    let (path, query) = whole.split_once('?').unwrap_or((whole, ""));
    let printable = |b: u8| b.is_ascii_graphic() && !matches!(b, b'\\' | b'#');
    whole.len() <= MAX_PATH
        && whole.bytes().all(printable)
        && path.starts_with('/')
        // `;` begins parameters that some servers cut off before they look for dot segments.
        && !path.contains("//")
        && !path.contains(';')
        && !path.split('/').any(|segment| segment == "." || segment == "..")
        && escapes(path).all(|byte| byte.is_some_and(needs_escape))
        // An overlong spelling of a letter, as `%c0%ae` is of a dot, is not UTF-8.
        && str::from_utf8(&decoded(path)).is_ok()
        && escapes(query).all(|byte| byte.is_some_and(|byte| !byte.is_ascii_control()))
}

/// The byte that each `%` stands for; none where two hexadecimal digits do not follow.
fn escapes(text: &str) -> impl Iterator<Item = Option<u8>> {
    text.split('%').skip(1).map(|rest| {
        let digits = rest.get(..2)?;
        if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        u8::from_str_radix(digits, 16).ok()
    })
}

/// A path whose escapes are sound, without them.
fn decoded(path: &str) -> Vec<u8> {
    let mut pieces = path.split('%');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for (byte, piece) in escapes(path).zip(pieces) {
        bytes.extend(byte);
        bytes.extend(piece.bytes().skip(2));
    }
    bytes
}

/// Whether a byte of a path segment cannot stand for itself and means nothing to a server's router.
fn needs_escape(byte: u8) -> bool {
    !byte.is_ascii_alphanumeric()
        && !byte.is_ascii_control()
        && !matches!(byte, b'-' | b'.' | b'_' | b'~' | b'/' | b'\\' | b'%' | b';')
}

#[cfg(test)]
mod tests {
    use gristmill_policies::Network;

    use super::*;

    fn granted() -> Upstream {
        Upstream {
            network: vec![Network::Loopback],
            methods: vec!["GET".into(), "POST".into()],
            paths: vec!["/*".into(), "/".into()],
            request_bytes: 4,
            response_bytes: 1,
            frame_bytes: 1,
            exchanges: 1,
            repeatable: false,
        }
    }

    fn sent(method: &str, path: &str, header: (&str, &str)) -> std::result::Result<(), String> {
        let request = HttpRequest {
            method: method.into(),
            path: path.into(),
            headers: vec![(header.0.into(), header.1.into())],
            body: Vec::new(),
        };
        request
            .check(&granted())
            .map_err(|error| error.detail("field").unwrap_or(error.code.as_str()).to_owned())
    }

    #[test]
    fn what_would_reach_another_server_or_break_the_framing_is_refused() {
        let fine = ("x-a", "b");
        for path in [
            "/",
            "/v1/chat",
            "/api?x=1&y=%20%2f%2e",
            "/a.b/..c",
            "/v1?next=/a//b",
            "/m/gr%C3%BC%C3%9Fe%20x",
        ] {
            assert_eq!(sent("POST", path, fine), Ok(()), "{path}");
        }
        for path in [
            "",
            "v1",
            "//host/x",
            "/a//b",
            "http://host/",
            "/a b",
            "/a\r\nhost: x",
            "/a\\b",
            "/é",
            "/a#b",
            "/../x",
            "/a/..",
            "/a/./b",
            "/%2e%2E/x",
            "/.%2e/x",
            "/a/..?x",
            "/a/..;/b",
            "/a%2fb",
            "/a%5cb",
            "/%61",
            "/a%00",
            "/a%0d%0a",
            "/a%252fb",
            "/%c0%ae%c0%ae/x",
            "/a%c0%afb",
            "/a%e0%80%afb",
            "/a%ff",
            "/a%c3",
            "/a%c3/%bc",
            "/a%",
            "/a%2",
            "/a%zz",
            "/a%+1",
            "/a?%0a",
            "/a?%",
        ] {
            assert_eq!(sent("POST", path, fine), Err("path".to_owned()), "{path}");
        }
        for method in ["", "post", "CONNECT", "TRACE", "OPTIONS", "GET /"] {
            assert_eq!(sent(method, "/", fine), Err("method".to_owned()), "{method}");
        }
        for method in ["PUT", "PATCH", "DELETE", "HEAD"] {
            assert_eq!(sent(method, "/", fine), Err("blocked".to_owned()), "{method}");
        }
        for header in [
            ("", "x"),
            ("a b", "x"),
            ("a:", "x"),
            ("é", "x"),
            ("Host", "x"),
            ("AUTHORIZATION", "x"),
            ("Content-Length", "1"),
            ("content_length", "1"),
            ("X_Forwarded-For", "1"),
            ("Transfer-Encoding", "chunked"),
            ("cookie", "a"),
            ("Proxy-Anything", "a"),
            ("X-Forwarded-Host", "a"),
            ("X-HTTP-Method-Override", "DELETE"),
            ("x-original-url", "/admin"),
            ("expect", "100-continue"),
            ("x-a", "a\r\nhost: b"),
            ("x-a", "a\0"),
        ] {
            assert_eq!(sent("GET", "/", header), Err("headers".to_owned()), "{header:?}");
        }
    }

    #[test]
    fn more_than_granted_is_refused() {
        let mut request = HttpRequest {
            method: "POST".into(),
            path: "/".into(),
            headers: Vec::new(),
            body: b"1234".to_vec(),
        };
        request.check(&granted()).unwrap();
        request.body.push(b'5');
        assert_eq!(request.check(&granted()).unwrap_err().detail("field"), Some("body"));
        request.body.clear();
        request.headers = vec![("x".into(), "y".repeat(MAX_HEADER_BYTES))];
        assert_eq!(request.check(&granted()).unwrap_err().detail("field"), Some("headers"));
    }
}
