//! What a plugin may ask of one server: from which network it may come, with which methods, on which
//! paths, and how much may pass.
//!
//! A server's address is not in a grant: the operator's configuration binds one to the name.
//! Refused: an entry that names no network, method or path, and a path pattern that is neither exact
//! nor a folder with `*` at its end.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::keys;

/// A part of the network that an address belongs to.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// This machine: 127.0.0.0/8 and ::1.
    Loopback,
    /// Networks of one's own: RFC 1918, shared address space, unique local addresses.
    Private,
    /// Everything that the Internet routes.
    Public,
}

impl Network {
    /// The word in a grant.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Private => "private",
            Self::Public => "public",
        }
    }
}

/// The use of one named server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Upstream {
    /// Networks in which the server's addresses, every one of them, must lie.
    #[schemars(length(min = 1))]
    pub network: Vec<Network>,
    /// Methods, in capitals.
    #[schemars(length(min = 1), inner(regex(pattern = "^(GET|POST|PUT|PATCH|DELETE|HEAD)$")))]
    pub methods: Vec<String>,
    /// Paths below the configured address, without query: exact, or all that begins with what is
    /// before a final `/*`.
    #[schemars(length(min = 1), inner(regex(pattern = "^/")))]
    pub paths: Vec<String>,
    /// Bytes of one request's body.
    #[serde(default = "request_bytes")]
    #[schemars(range(min = 1, max = 1_073_741_824u64))]
    pub request_bytes: u64,
    /// Bytes of one answer's body.
    #[serde(default = "response_bytes")]
    #[schemars(range(min = 1, max = 68_719_476_736u64))]
    pub response_bytes: u64,
    /// Bytes of one line or event of an answer.
    #[serde(default = "frame_bytes")]
    #[schemars(range(min = 1, max = 268_435_456u64))]
    pub frame_bytes: u64,
    /// Exchanges at the same time; one more is refused with `busy`.
    #[serde(default = "exchanges")]
    #[schemars(range(min = 1, max = 4_096u64))]
    pub exchanges: u32,
    /// Whether every request may be made twice, as where the server only reads and computes. Only
    /// then, or with an idempotent method, does a request go over a connection that waited, and once
    /// more where that one turns out dead.
    #[serde(default)]
    pub repeatable: bool,
}

/// A conversation with pictures.
fn request_bytes() -> u64 {
    32 << 20
}

/// An hour of server-sent events at a thousand a second, 60 bytes each.
fn response_bytes() -> u64 {
    256 << 20
}

/// An answer that comes as one line, with the token ids of a long context in it. Less than what one
/// host call may carry by default.
fn frame_bytes() -> u64 {
    4 << 20
}

/// As many as a plugin has stores by default.
fn exchanges() -> u32 {
    64
}

/// The methods that a grant may allow.
pub const METHODS: &[&str] = &["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"];

const KEYS: &[&str] = &[
    "network",
    "methods",
    "paths",
    "request-bytes",
    "response-bytes",
    "frame-bytes",
    "exchanges",
    "repeatable",
];

/// Every quota with the largest value a grant may give it.
const BOUNDS: &[(&str, u64)] = &[
    ("request-bytes", 1 << 30),
    ("response-bytes", 64 << 30),
    ("frame-bytes", 256 << 20),
    ("exchanges", 4_096),
];

impl Upstream {
    /// Whether it may use this method.
    #[must_use]
    pub fn allows_method(&self, method: &str) -> bool {
        self.methods.iter().any(|granted| granted == method)
    }

    /// Whether it may ask for this path; a query is not looked at.
    #[must_use]
    pub fn allows_path(&self, path: &str) -> bool {
        let path = path.split('?').next().unwrap_or_default();
        self.paths.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(folder) => path.len() > folder.len() && path.starts_with(folder),
            None => path == pattern,
        })
    }

    /// Reads one `[upstreams.NAME]`.
    pub(crate) fn parse(name: &str, value: toml::Value) -> Result<Self, String> {
        if name.is_empty()
            || name.len() > 64
            || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        {
            return Err(format!(
                "upstream {name:?}: expected a name of letters, digits and hyphens"
            ));
        }
        let place = format!("in [upstreams.{name}]");
        let toml::Value::Table(table) = value else {
            return Err(format!("{place}: expected a table, found {}", value.type_str()));
        };
        keys::check(&place, &table, KEYS)?;
        for (key, most) in BOUNDS {
            let Some(value) = table.get(*key) else { continue };
            let number = value.as_integer().filter(|number| *number >= 1);
            if number.is_none_or(|number| number.unsigned_abs() > *most) {
                return Err(format!("{key} {place}: expected a whole number from 1 to {most}"));
            }
        }
        let upstream: Self =
            table.try_into().map_err(|error: toml::de::Error| format!("{place}: {error}"))?;
        upstream.check().map_err(|reason| format!("{place}: {reason}"))?;
        Ok(upstream)
    }

    fn check(&self) -> Result<(), String> {
        if self.network.is_empty() || self.methods.is_empty() || self.paths.is_empty() {
            return Err("expected at least one network, one method and one path".to_owned());
        }
        if let Some(method) = self.methods.iter().find(|method| !METHODS.contains(&method.as_str()))
        {
            return Err(format!("method {method:?}: expected one of {}", METHODS.join(", ")));
        }
        match self.paths.iter().find(|path| !is_pattern(path)) {
            Some(path) => Err(format!(
                "path {path:?}: expected an absolute path of plain letters, exact or with /* at its end"
            )),
            None => Ok(()),
        }
    }
}

/// `/a/b` or `/a/*`. Nothing in it needs an escape, so that what is granted is what is compared.
fn is_pattern(path: &str) -> bool {
    let exact =
        path.strip_suffix("/*").map_or(path, |folder| if folder.is_empty() { "/" } else { folder });
    is_plain_path(exact)
}

/// Whether this is an absolute path of single slashes without dot segments, in which nothing needs an
/// escape.
#[must_use]
pub fn is_plain_path(path: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~/:@".contains(&b);
    path.starts_with('/')
        && path.bytes().all(plain)
        && !path.contains("//")
        && !path.split('/').any(|segment| segment == "." || segment == "..")
}
