//! Components from an OCI registry: `oci:HOST/REPOSITORY:TAG` or `…@sha256:DIGEST`, packed as the
//! Wasm working group has it (config `application/vnd.wasm.config.v0+json`, one layer
//! `application/wasm`).
//!
//! A tag is what was asked for; [`Pulled::locked`] is what it was resolved to, by the manifest's digest.
//! Every digest and size that a manifest names is held against the bytes that came. A registry is
//! reached over https, over plain http only on loopback; an anonymous token is fetched where it asks
//! for one.
//!
//! Bounds: manifests of 1 MiB, components of 32 MiB, five redirects, two minutes.

use std::{path::Path, time::Duration};

use serde::Deserialize;
use ureq::{Agent, Body, http::Response};

use crate::{
    LedgerError, Pin,
    digest::is_digest,
    sha256,
    source::{MAX_COMPONENT_BYTES, Source},
};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.wasm.config.v0+json";
const LAYER: &str = "application/wasm";

const MAX_MANIFEST_BYTES: u64 = 1 << 20;
const MAX_TOKEN_BYTES: u64 = 64 << 10;
const PATIENCE: Duration = Duration::from_secs(120);

/// A component in a registry.
#[derive(Debug, Clone)]
pub struct Oci {
    host: String,
    repository: String,
    /// A tag, or `sha256:…`.
    reference: String,
    agent: Agent,
}

/// What came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulled {
    /// The reference by the manifest's digest, whatever tag was asked for.
    pub locked: String,
    /// The component.
    pub component: Vec<u8>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    schema_version: u32,
    config: Descriptor,
    layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    media_type: String,
    digest: String,
    size: u64,
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl Oci {
    /// Reads a reference.
    ///
    /// # Errors
    /// `invalid-source`: what was expected.
    pub fn parse(text: &str) -> Result<Self, LedgerError> {
        let invalid = || {
            let reason = "expected oci:HOST/REPOSITORY:TAG or oci:HOST/REPOSITORY@sha256:DIGEST";
            LedgerError::refused("invalid-source", Path::new(text), reason)
        };
        let (host, rest) =
            text.strip_prefix("oci:").and_then(|rest| rest.split_once('/')).ok_or_else(invalid)?;
        let (repository, reference) =
            rest.split_once('@').or_else(|| rest.rsplit_once(':')).ok_or_else(invalid)?;
        let word = |text: &str, more: &[u8]| {
            !text.is_empty()
                && text.len() <= 255
                && text.bytes().all(|b| b.is_ascii_alphanumeric() || more.contains(&b))
        };
        let path = repository.split('/').all(|part| {
            word(part, b"-_.") && part.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric)
        });
        let tag = match reference.strip_prefix("sha256:") {
            Some(digest) => is_digest(digest),
            None => !rest.contains('@') && word(reference, b"-_.") && reference.len() <= 128,
        };
        if !(word(host, b"-.:[]") && path && tag) {
            return Err(invalid());
        }
        let loopback = is_loopback(host);
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .https_only(!loopback)
            .max_redirects(5)
            .timeout_global(Some(PATIENCE))
            .user_agent(concat!("gristmill/", env!("CARGO_PKG_VERSION")));
        if loopback {
            config = config.proxy(None);
        }
        Ok(Self {
            host: host.to_owned(),
            repository: repository.to_owned(),
            reference: reference.to_owned(),
            agent: config.build().new_agent(),
        })
    }

    /// The reference as it was asked for.
    #[must_use]
    pub fn original(&self) -> String {
        let sign = if self.reference.contains(':') { '@' } else { ':' };
        format!("oci:{}/{}{sign}{}", self.host, self.repository, self.reference)
    }

    /// Fetches the component.
    ///
    /// # Errors
    /// `source-unavailable` where the registry cannot be reached or does not have it; `source-mismatch`
    /// where what came is not one component, or not the bytes that were named.
    pub fn pull(&self) -> Result<Pulled, LedgerError> {
        let (bytes, token) = self.get("manifests", &self.reference, None, MAX_MANIFEST_BYTES)?;
        let found = sha256(&bytes);
        if let Some(expected) = self.reference.strip_prefix("sha256:").filter(|one| *one != found) {
            return Err(self.mismatch(format!("the manifest has digest {found}, not {expected}")));
        }
        let manifest: Manifest =
            serde_json::from_slice(&bytes).map_err(|error| self.mismatch(error.to_string()))?;
        let [layer] = manifest.layers.as_slice() else {
            let layers = manifest.layers.len();
            return Err(self.mismatch(format!("expected one layer, found {layers}")));
        };
        for (found, expected) in [(&manifest.config.media_type, CONFIG), (&layer.media_type, LAYER)]
        {
            if manifest.schema_version != 2 || found != expected {
                return Err(self.mismatch(format!("expected {expected}, found {found}")));
            }
        }
        let digest = layer.digest.strip_prefix("sha256:").filter(|digest| is_digest(digest));
        let digest = digest.ok_or_else(|| self.mismatch("the layer's digest is no SHA-256"))?;
        if layer.size > MAX_COMPONENT_BYTES {
            let size = layer.size;
            return Err(self.mismatch(format!("{size} bytes; at most {MAX_COMPONENT_BYTES}")));
        }
        let (component, _) = self.get("blobs", &layer.digest, token, layer.size)?;
        let came = sha256(&component);
        if came != digest || component.len() as u64 != layer.size {
            return Err(self.mismatch(format!("the layer has digest {came}, not {digest}")));
        }
        let locked = format!("oci:{}/{}@sha256:{found}", self.host, self.repository);
        Ok(Pulled { locked, component })
    }

    fn get(
        &self,
        kind: &str,
        reference: &str,
        token: Option<String>,
        most: u64,
    ) -> Result<(Vec<u8>, Option<String>), LedgerError> {
        let scheme = if is_loopback(&self.host) { "http" } else { "https" };
        let url = format!("{scheme}://{}/v2/{}/{kind}/{reference}", self.host, self.repository);
        let mut token = token;
        let mut response = self.ask(&url, token.as_deref())?;
        if response.status().as_u16() == 401 && token.is_none() {
            token = Some(self.token(&response)?);
            response = self.ask(&url, token.as_deref())?;
        }
        Ok((self.body(response, most)?, token))
    }

    fn ask(&self, url: &str, token: Option<&str>) -> Result<Response<Body>, LedgerError> {
        let mut request = self.agent.get(url).header("accept", MANIFEST);
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        request.call().map_err(|error| self.unavailable(error.to_string()))
    }

    fn body(&self, mut response: Response<Body>, most: u64) -> Result<Vec<u8>, LedgerError> {
        let status = response.status().as_u16();
        if status != 200 {
            return Err(self.unavailable(format!("the registry answers {status}")));
        }
        let body = response.body_mut().with_config().limit(most + 1).read_to_vec();
        let body = body.map_err(|error| self.unavailable(error.to_string()))?;
        if body.len() as u64 > most {
            return Err(self.mismatch(format!("an answer of more than {most} bytes")));
        }
        Ok(body)
    }

    /// The anonymous token that a registry asks for.
    fn token(&self, response: &Response<Body>) -> Result<String, LedgerError> {
        let header = response.headers().get("www-authenticate").and_then(|one| one.to_str().ok());
        let fields = header.and_then(|header| header.strip_prefix("Bearer ")).unwrap_or_default();
        let field = |name: &str| {
            fields.split(',').find_map(|field| {
                let (key, value) = field.trim().split_once('=')?;
                (key == name).then(|| value.trim_matches('"'))
            })
        };
        let refused = || self.unavailable("the registry wants a login that is not anonymous");
        let realm = field("realm").ok_or_else(refused)?;
        let mut url = format!("{realm}{}", if realm.contains('?') { '&' } else { '?' });
        for name in ["service", "scope"] {
            if let Some(value) = field(name) {
                url.push_str(&format!("{name}={}&", escaped(value)));
            }
        }
        let body = self.body(self.ask(url.trim_end_matches('&'), None)?, MAX_TOKEN_BYTES)?;
        let token: Token = serde_json::from_slice(&body).map_err(|_| refused())?;
        token.token.or(token.access_token).ok_or_else(refused)
    }

    fn unavailable(&self, reason: impl Into<String>) -> LedgerError {
        let reason = format!("{}; what is in force stays", reason.into());
        LedgerError::refused("source-unavailable", Path::new(&self.original()), reason)
    }

    fn mismatch(&self, reason: impl Into<String>) -> LedgerError {
        LedgerError::refused("source-mismatch", Path::new(&self.original()), reason)
    }
}

impl Source for Oci {
    fn fetch(&self, _pin: &Pin) -> Result<Vec<u8>, LedgerError> {
        self.pull().map(|pulled| pulled.component)
    }
}

fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next(),
        None => host.split(':').next(),
    };
    name.is_some_and(|name| {
        name == "localhost"
            || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    })
}

fn escaped(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'~');
    text.bytes().fold(String::new(), |mut url, byte| {
        if plain(byte) {
            url.push(byte.into());
        } else {
            url.push_str(&format!("%{byte:02X}"));
        }
        url
    })
}
