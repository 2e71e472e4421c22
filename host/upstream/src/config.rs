//! What the operator says about a server: its address, its key, its times.
//!
//! An address is `http` or `https`, a name or a whole IP address, a port, and a path in front of all
//! others. Refused: user information, queries, fragments, and every spelling of an IP address but the
//! full one (`127.1`, `0x7f.1` and `0177.0.0.1` are none).

use std::{fmt, net::IpAddr, time::Duration};

use gristmill_policies::is_plain_path;
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};

use crate::hide::SHOWN;

/// Why a server's configuration is refused. No message repeats the address: it may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The address is not one.
    #[error("url: {0}")]
    Url(String),
    /// The credential cannot be a header.
    #[error("key: {0}")]
    Key(String),
    /// Certificates that cannot be read.
    #[error("ca-file: {0}")]
    Certificates(String),
}

/// A server's address, taken apart once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Whether TLS is spoken.
    pub tls: bool,
    /// Its name in lower case, or an IP address.
    pub host: Host,
    /// Its port.
    pub port: u16,
    /// The path in front of every request's: empty, or `/…` without a slash at its end.
    pub prefix: String,
}

/// Who is dialled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// A name to resolve.
    Name(String),
    /// An address.
    Address(IpAddr),
}

impl fmt::Display for Host {
    /// As in a URL.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V4(address)) => write!(f, "{address}"),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

impl Endpoint {
    /// Reads `http://HOST[:PORT][/PREFIX]` or the same with `https`.
    ///
    /// # Errors
    /// What was expected, without repeating what was found.
    pub fn parse(url: &str) -> Result<Self, ConfigError> {
        let refuse = |reason: &str| Err(ConfigError::Url(reason.to_owned()));
        if !url.bytes().all(|b| b.is_ascii_graphic() && b != b'\\') {
            return refuse("expected printable ascii without blanks or backslashes");
        }
        let lower = url.to_ascii_lowercase();
        let (tls, rest) = match (lower.starts_with("http://"), lower.starts_with("https://")) {
            (true, _) => (false, url.get(7..).unwrap_or_default()),
            (_, true) => (true, url.get(8..).unwrap_or_default()),
            _ => return refuse("expected http:// or https://"),
        };
        if rest.contains(['?', '#']) {
            return refuse("expected no query and no fragment");
        }
        let (authority, path) = match rest.find('/') {
            Some(slash) => rest.split_at(slash),
            None => (rest, ""),
        };
        if authority.contains('@') {
            return refuse("expected no user information before the host; set key-env or key-file");
        }
        let (host, port) = split_port(authority)
            .ok_or_else(|| ConfigError::Url("expected HOST or HOST:PORT".to_owned()))?;
        let port = port.unwrap_or(if tls { 443 } else { 80 });
        if port == 0 {
            return refuse("expected a port from 1 to 65535");
        }
        Ok(Self { tls, host: host_of(host)?, port, prefix: prefix_of(path)? })
    }

    /// What the `Host` header says.
    #[must_use]
    pub fn authority(&self) -> String {
        let usual = if self.tls { 443 } else { 80 };
        if self.port == usual {
            self.host.to_string()
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

/// `host`, `host:port`, `[v6]` or `[v6]:port`.
fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    let host_end = match authority.strip_prefix('[') {
        Some(rest) => rest.find(']')? + 2,
        None => authority.find(':').unwrap_or(authority.len()),
    };
    let (host, rest) = authority.split_at_checked(host_end)?;
    match rest.strip_prefix(':') {
        // `parse` alone would take a sign.
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => {
            Some((host, Some(digits.parse().ok()?)))
        }
        Some(_) => None,
        None => rest.is_empty().then_some((host, None)),
    }
}

fn host_of(host: &str) -> Result<Host, ConfigError> {
    let refuse = |reason: &str| Err(ConfigError::Url(reason.to_owned()));
    if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return match address.parse() {
            Ok(address) => Ok(Host::Address(IpAddr::V6(address))),
            Err(_) => refuse("expected an IPv6 address without a zone in the brackets"),
        };
    }
    if let Ok(address) = host.parse() {
        return Ok(Host::Address(IpAddr::V4(address)));
    }
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if name.len() > 253 || !name.split('.').all(label) {
        return refuse("expected a host name of letters, digits, hyphens and dots");
    }
    // Resolvers read a name whose last part is a number as an address, in spellings of their own.
    let last = name.rsplit('.').next().unwrap_or_default();
    if last.bytes().all(|b| b.is_ascii_digit()) || last.starts_with("0x") {
        return refuse("expected an IPv4 address as four decimal numbers without leading zeros");
    }
    Ok(Host::Name(name))
}

fn prefix_of(path: &str) -> Result<String, ConfigError> {
    let prefix = path.strip_suffix('/').unwrap_or(path);
    if !prefix.is_empty() && (prefix.ends_with('/') || !is_plain_path(prefix)) {
        return Err(ConfigError::Url(
            "expected a path of plain letters without empty or dot segments".to_owned(),
        ));
    }
    Ok(prefix.to_owned())
}

/// A key, as the header it is sent in. It is never shown.
#[derive(Clone)]
pub struct Credential {
    pub(crate) header: HeaderName,
    pub(crate) value: HeaderValue,
    secret: String,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credential({}, not shown)", self.header)
    }
}

impl Credential {
    /// `Authorization: Bearer KEY`, or the key alone in the header of this name.
    ///
    /// # Errors
    /// A key that is empty or holds what a header cannot, or a header that is not the key's to use.
    pub fn new(key: &str, header: Option<&str>) -> Result<Self, ConfigError> {
        let secret = key.trim();
        let refuse = |reason: &str| Err(ConfigError::Key(reason.to_owned()));
        if secret.is_empty() || !secret.bytes().all(|b| b.is_ascii_graphic()) {
            return refuse("expected one line of printable ascii");
        }
        let (header, text) = match header {
            None => (AUTHORIZATION, format!("Bearer {secret}")),
            Some(name) => match HeaderName::from_bytes(name.as_bytes()) {
                Ok(name) if framing_header(&name) => {
                    return refuse("expected a header that does not frame the message");
                }
                Ok(name) => (name, secret.to_owned()),
                Err(_) => return refuse("expected the name of a header"),
            },
        };
        let Ok(mut value) = HeaderValue::from_str(&text) else {
            return refuse("expected one line of printable ascii");
        };
        value.set_sensitive(true);
        Ok(Self { header, value, secret: secret.to_owned() })
    }

    /// The text with the key cut out of it.
    pub(crate) fn hide(&self, text: &str) -> String {
        text.replace(&self.secret, SHOWN)
    }

    /// The key itself.
    pub(crate) fn secret(&self) -> &str {
        &self.secret
    }
}

fn framing_header(name: &HeaderName) -> bool {
    ["host", "content-length", "transfer-encoding", "connection", "accept-encoding"]
        .contains(&name.as_str())
}

/// How long the host waits for a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// For a connection: name, TCP and TLS.
    pub connect: Duration,
    /// From a sent request to the answer's head. A server that does not stream computes here.
    pub head: Duration,
    /// Between two pieces of a body, while somebody waits for them.
    pub idle: Duration,
    /// For the whole exchange.
    pub total: Duration,
}

impl Default for Times {
    /// Each is below what a grant gives a call (ten minutes) and an answer (an hour) by default, so
    /// that a slow server is a slow server and not a fault of the plugin.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            head: Duration::from_secs(540),
            idle: Duration::from_secs(300),
            total: Duration::from_secs(3_540),
        }
    }
}

/// One server.
#[derive(Debug, Clone)]
pub struct Config {
    /// The name under which it is live, for errors and logs.
    pub backend: String,
    /// The name by which the plugin's grant knows it.
    pub upstream: String,
    /// Where it is.
    pub endpoint: Endpoint,
    /// Its key, if it wants one.
    pub credential: Option<Credential>,
    /// How long to wait for it.
    pub times: Times,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_apart_or_refused() {
        let parsed =
            |url: &str| Endpoint::parse(url).map(|e| (e.tls, e.host.to_string(), e.port, e.prefix));
        for (url, expected) in [
            ("http://127.0.0.1:8000", (false, "127.0.0.1", 8000, "")),
            ("http://Example.test/", (false, "example.test", 80, "")),
            ("HTTPS://example.test./v1/", (true, "example.test", 443, "/v1")),
            ("http://[::1]:81/a/b", (false, "[::1]", 81, "/a/b")),
            ("http://llama_server:8080", (false, "llama_server", 8080, "")),
        ] {
            let (tls, host, port, prefix) = expected;
            assert_eq!(parsed(url), Ok((tls, host.into(), port, prefix.into())), "{url}");
        }
        for url in [
            "",
            "example.test",
            "ftp://example.test",
            "http://",
            "http://:80",
            "http://a:b@c",
            "http://key@host",
            "http://h?x",
            "http://h#x",
            "http://h/a b",
            "http://h\\x",
            "http://h:0",
            "http://h:+1",
            "http://h:99999",
            "http://h:",
            "http://127.1",
            "http://0177.0.0.1",
            "http://0x7f.0.0.1",
            "http://0x7f000001",
            "http://2130706433",
            "http://1.2.3.4.5",
            "http://127.0.0.01",
            "http://[::1",
            "http://::1",
            "http://[fe80::1%eth0]",
            "http://[1.2.3.4]",
            "http://-a",
            "http://a..b",
            "http://a/../b",
            "http://a//b",
            "http://h//",
            "http://h/a//",
            "http://a/%2e",
            "http://é",
        ] {
            assert!(parsed(url).is_err(), "{url}: {:?}", parsed(url));
        }
        assert_eq!(Endpoint::parse("http://h:81").unwrap().authority(), "h:81");
        assert_eq!(Endpoint::parse("https://h:443").unwrap().authority(), "h");
        let told = Endpoint::parse("http://user:secret@host").unwrap_err().to_string();
        assert!(!told.contains("secret"), "{told}");
    }

    #[test]
    fn a_key_is_never_shown() {
        let key = Credential::new(" sk-very-secret\n", None).unwrap();
        assert!(!format!("{key:?} {:?}", key.value).contains("secret"));
        assert_eq!(key.hide("401 for sk-very-secret!"), "401 for (key)!");
        assert_eq!(key.value.as_bytes(), b"Bearer sk-very-secret");
        let key = Credential::new("abc", Some("X-Api-Key")).unwrap();
        assert_eq!((key.header.as_str(), key.value.as_bytes()), ("x-api-key", &b"abc"[..]));
        for (key, header) in
            [("", None), ("a\nb", None), ("é", None), ("a", Some("a b")), ("a", Some("host"))]
        {
            assert!(Credential::new(key, header).is_err(), "{key:?} {header:?}");
        }
    }
}
