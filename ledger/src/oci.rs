//! Components from an OCI registry: `oci:HOST/REPOSITORY:TAG` or `…@sha256:DIGEST`, packed as the
//! Wasm working group has it (config `application/vnd.wasm.config.v0+json`, one layer
//! `application/wasm`).
//!
//! A tag is what was asked for; [`Pulled::locked`] is what it was resolved to, by the manifest's digest.
//! Every digest and size that a manifest names is held against the bytes that came. A registry is
//! reached over https, over plain http only on loopback; a token is fetched where it asks for one, with
//! the login that [`Oci::with_logins`] has for it, else anonymously. A login goes to the registry and to the
//! token endpoint it names, and does not follow a redirect.
//!
//! Bounds: manifests of 1 MiB, components of 32 MiB, five redirects, two minutes.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;
use ureq::{
    Agent, Body,
    http::{Response, Uri},
};

use crate::{
    LedgerError, Pin,
    digest::is_digest,
    login::{Login, Logins},
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
    logins: Logins,
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
            logins: Logins::default(),
            agent: config.build().new_agent(),
        })
    }

    /// The same, with the logins in this file, as `docker login` writes it. One that is not there has
    /// none.
    #[must_use]
    pub fn with_logins(self, config: Option<PathBuf>) -> Self {
        Self { logins: Logins(config), ..self }
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
    /// `source-unavailable` where the registry cannot be reached, does not have it, or wants another login;
    /// `invalid-login` where the one that is there cannot be used; `source-mismatch` where what came is not
    /// one component, or not the bytes that were named.
    pub fn pull(&self) -> Result<Pulled, LedgerError> {
        let (bytes, proof) = self.get("manifests", &self.reference, None, MAX_MANIFEST_BYTES)?;
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
        let (component, _) = self.get("blobs", &layer.digest, proof, layer.size)?;
        let came = sha256(&component);
        if came != digest || component.len() as u64 != layer.size {
            return Err(self.mismatch(format!("the layer has digest {came}, not {digest}")));
        }
        let locked = format!("oci:{}/{}@sha256:{found}", self.host, self.repository);
        Ok(Pulled { locked, component })
    }

    /// What lies there, and by which `Authorization` it was had.
    fn get(
        &self,
        kind: &str,
        reference: &str,
        mut proof: Option<String>,
        most: u64,
    ) -> Result<(Vec<u8>, Option<String>), LedgerError> {
        let scheme = if is_loopback(&self.host) { "http" } else { "https" };
        let url = format!("{scheme}://{}/v2/{}/{kind}/{reference}", self.host, self.repository);
        let mut response = self.ask(&url, proof.as_deref())?;
        if response.status().as_u16() == 401 && proof.is_none() {
            let login = self.logins.of(&self.host)?;
            let own = self.prove(&response, &login)?;
            response = self.ask(&url, Some(&own))?;
            if matches!(response.status().as_u16(), 401 | 403) {
                return Err(self.shut(&login));
            }
            proof = Some(own);
        }
        Ok((self.body(response, most)?, proof))
    }

    fn ask(&self, url: &str, proof: Option<&str>) -> Result<Response<Body>, LedgerError> {
        let mut request = self.agent.get(url).header("accept", MANIFEST);
        if let Some(proof) = proof {
            request = request.header("authorization", proof);
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

    /// The `Authorization` that a registry asks for: the login itself, or a token for it.
    fn prove(&self, response: &Response<Body>, login: &Login) -> Result<String, LedgerError> {
        let header = response.headers().get("www-authenticate").and_then(|one| one.to_str().ok());
        let (scheme, fields) = header.and_then(|one| one.split_once(' ')).unwrap_or_default();
        let basic = match login {
            Login::Basic(pair) => Some(format!("Basic {pair}")),
            Login::None | Login::Helper(_) => None,
        };
        if scheme.eq_ignore_ascii_case("basic") {
            return basic.ok_or_else(|| self.shut(login));
        }
        let field = |name: &str| {
            fields.split(',').find_map(|field| {
                let (key, value) = field.trim().split_once('=')?;
                (key == name).then(|| value.trim_matches('"'))
            })
        };
        let bearer = scheme.eq_ignore_ascii_case("bearer");
        let realm = field("realm").filter(|_| bearer).ok_or_else(|| self.shut(login))?;
        if !is_safe(realm) {
            let reason =
                "the registry names a token endpoint that is neither https nor on loopback";
            return Err(self.unavailable(reason));
        }
        let mut url = format!("{realm}{}", if realm.contains('?') { '&' } else { '?' });
        for name in ["service", "scope"] {
            if let Some(value) = field(name) {
                url.push_str(&format!("{name}={}&", escaped(value)));
            }
        }
        let response = self.ask(url.trim_end_matches('&'), basic.as_deref())?;
        if response.status().as_u16() != 200 {
            return Err(self.shut(login));
        }
        let body = self.body(response, MAX_TOKEN_BYTES)?;
        let Token { token, access_token } =
            serde_json::from_slice(&body).map_err(|_| self.shut(login))?;
        let token = token.or(access_token).ok_or_else(|| self.shut(login))?;
        Ok(format!("Bearer {token}"))
    }

    /// The registry lets nobody in, or not with this login.
    fn shut(&self, login: &Login) -> LedgerError {
        let (host, place) = (&self.host, self.logins.place());
        match login {
            Login::Basic(_) => self.unavailable(format!(
                "the registry refuses the login for {host} in {place}; log in anew, or ask for the right to pull"
            )),
            Login::None => self.unavailable(format!(
                "the registry wants a login: write auths.{host}.auth into {place}, as `docker login` does"
            )),
            Login::Helper(helper) => {
                let reason = format!(
                    "the login for {host} is kept by the credential helper {helper:?}, and none is run: write auths.{host}.auth into a config.json of its own, and name its folder in DOCKER_CONFIG"
                );
                LedgerError::refused("invalid-login", Path::new(&place), reason)
            }
        }
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

/// Whether a login may go there: over https, on loopback also plainly.
fn is_safe(url: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else { return false };
    let plain = |authority: &str| is_loopback(authority) && !authority.contains('@');
    match uri.scheme_str() {
        Some("https") => true,
        Some("http") => uri.authority().is_some_and(|it| plain(it.as_str())),
        _ => false,
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
