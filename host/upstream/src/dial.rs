//! From an endpoint to an open stream: resolve once, check every address, connect to a checked one.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    path::Path,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use gristmill_core::{Error, Result};
use gristmill_policies::{Network, Upstream};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::{Instant, timeout_at},
};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, ServerName, pem::PemObject as _},
    },
};

use crate::{
    address::{self, Verdict},
    config::{Config, ConfigError, Endpoint, Host},
    fault::Fault,
};

/// Turns names into addresses.
#[async_trait]
pub trait Resolve: Send + Sync {
    /// Every address of a name.
    ///
    /// # Errors
    /// The resolver's own.
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// The system's resolver.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

#[async_trait]
impl Resolve for SystemResolver {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        Ok(tokio::net::lookup_host((name, 0)).await?.map(|address| address.ip()).collect())
    }
}

/// Whose certificates are believed.
#[derive(Clone)]
pub struct Trust(Arc<ClientConfig>);

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trust")
    }
}

impl Trust {
    /// Mozilla's list of authorities, and those in a PEM file.
    ///
    /// # Errors
    /// A file that cannot be read or has no certificate in it.
    pub fn new(more: Option<&Path>) -> std::result::Result<Self, ConfigError> {
        let refuse = |reason: String| ConfigError::Certificates(reason);
        let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        if let Some(path) = more {
            let read = CertificateDer::pem_file_iter(path).map_err(|e| refuse(e.to_string()))?;
            let before = roots.len();
            for certificate in read {
                let certificate = certificate.map_err(|e| refuse(e.to_string()))?;
                roots.add(certificate).map_err(|e| refuse(e.to_string()))?;
            }
            if roots.len() == before {
                return Err(refuse("expected certificates in PEM form, found none".to_owned()));
            }
        }
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| refuse(e.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }
}

/// A stream to a server, TLS or not.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Opens a stream. Every address is checked before any is dialled, and one wrong address among
/// good ones refuses all: whoever can add it can also put it first.
pub(crate) async fn dial(
    config: &Config,
    granted: &Upstream,
    resolver: &dyn Resolve,
    trust: &Trust,
) -> Result<Box<dyn Stream>> {
    let fault = Fault(config);
    let deadline = Instant::now() + config.times.connect;
    let late = |_| fault.timeout("connecting", config.times.connect);

    let endpoint = &config.endpoint;
    let resolved = timeout_at(deadline, addresses(endpoint, resolver)).await.map_err(late)?;
    let addresses = resolved.map_err(|error| {
        tracing::warn!(backend = config.backend, host = %endpoint.host, %error, "cannot resolve");
        fault.unavailable("its host name cannot be resolved")
    })?;
    let public = check(config, granted, &addresses)?;
    if public && !endpoint.tls && config.credential.is_some() {
        return Err(fault.unavailable(
            "it has a public address and no TLS: a key is not sent in the clear; use https",
        ));
    }

    let tcp = connect(config, &addresses, deadline).await?;
    if !endpoint.tls {
        return Ok(Box::new(tcp));
    }
    let name = match &endpoint.host {
        Host::Address(address) => ServerName::from(*address),
        Host::Name(name) => ServerName::try_from(name.clone())
            .map_err(|_| fault.unavailable("its host name cannot be in a certificate"))?,
    };
    let connector = TlsConnector::from(Arc::clone(&trust.0));
    let stream = timeout_at(deadline, connector.connect(name, tcp)).await.map_err(late)?;
    match stream {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) => {
            tracing::warn!(backend = config.backend, host = %endpoint.host, %error, "no TLS");
            Err(fault.unavailable(&tls_reason(&error)))
        }
    }
}

async fn addresses(endpoint: &Endpoint, resolver: &dyn Resolve) -> io::Result<Vec<IpAddr>> {
    match &endpoint.host {
        Host::Address(address) => Ok(vec![*address]),
        Host::Name(name) => resolver.resolve(name).await,
    }
}

/// Whether the addresses are public; refused if any is outside the grant.
fn check(config: &Config, granted: &Upstream, addresses: &[IpAddr]) -> Result<bool> {
    let fault = Fault(config);
    let mut public = false;
    for found in addresses {
        let reason = match address::verdict(*found) {
            Verdict::In(network) if granted.network.contains(&network) => {
                public |= network == Network::Public;
                continue;
            }
            Verdict::In(network) => {
                format!("its address is {}, which the grant does not allow", network.as_str())
            }
            Verdict::Never(reason) => format!("no server may have its address: {reason}"),
        };
        tracing::warn!(
            backend = config.backend,
            host = %config.endpoint.host,
            address = %found,
            "refused: {reason}"
        );
        return Err(fault.blocked(&reason));
    }
    if addresses.is_empty() {
        return Err(fault.unavailable("its host name has no address"));
    }
    Ok(public)
}

/// The first of the addresses that takes a connection. None but the last may use up the time.
async fn connect(config: &Config, addresses: &[IpAddr], deadline: Instant) -> Result<TcpStream> {
    let fault = Fault(config);
    let mut failure: Option<Error> = None;
    for (tried, ip) in addresses.iter().enumerate() {
        let socket = SocketAddr::new(address::canonical(*ip), config.endpoint.port);
        let left = deadline.saturating_duration_since(Instant::now());
        let until = if tried + 1 == addresses.len() { left } else { left / 2 };
        match timeout_at(Instant::now() + until, TcpStream::connect(socket)).await {
            Ok(Ok(stream)) => {
                // Without this, a small request waits for the acknowledgement of the one before.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "nodelay");
                }
                return Ok(stream);
            }
            Ok(Err(error)) => {
                tracing::debug!(backend = config.backend, %socket, %error, "cannot connect");
                failure = Some(fault.unavailable(&connect_reason(&error)));
            }
            Err(_) => failure = Some(fault.timeout("connecting", config.times.connect)),
        }
    }
    Err(failure.unwrap_or_else(|| fault.timeout("connecting", Duration::ZERO)))
}

fn connect_reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            "it refused the connection; is the server running?".to_owned()
        }
        kind => format!("cannot connect: {kind}"),
    }
}

/// Why TLS failed, without the names that certificates carry.
fn tls_reason(error: &io::Error) -> String {
    use tokio_rustls::rustls::Error as Tls;
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Tls>()) {
        Some(Tls::InvalidCertificate(_)) => "its certificate is not accepted".to_owned(),
        Some(Tls::InvalidMessage(_)) => "it does not speak TLS".to_owned(),
        Some(_) => "TLS could not be agreed on".to_owned(),
        None => format!("the connection broke while TLS began: {}", error.kind()),
    }
}
