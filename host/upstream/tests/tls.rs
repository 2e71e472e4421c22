//! With `https`, the server is who its address says, as certified by somebody the operator believes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod support;

use std::{fs, path::Path, sync::Arc};

use gristmill_core::Code;
use gristmill_sandbox::{Framing, Upstream as _};
use gristmill_upstream::{Client, Resolve, Trust};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use support::{Fake, Names, Step, config, drain, granted, request, texts};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::ring,
        pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    },
};

/// A server certified for `server.test` and 127.0.0.1, its port, and its authority in PEM form.
async fn server() -> (u16, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let names = vec!["server.test".to_owned(), "127.0.0.1".to_owned()];
    let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &authority).unwrap();

    let private = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut request = vec![0; 4096];
                let read = stream.read(&mut request).await.unwrap();
                let keyed = String::from_utf8_lossy(&request[..read]).contains(support::SECRET);
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nkey {keyed:<5}");
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
            });
        }
    });
    (port, authority.pem())
}

fn client(url: &str, authorities: Option<&Path>) -> Client {
    let names = Names { answers: vec![vec!["127.0.0.1".parse().unwrap()]], ..Names::default() };
    let trust = Trust::new(authorities).unwrap();
    Client::new(config(url), granted(""), Arc::new(names) as Arc<dyn Resolve>, trust)
}

#[tokio::test]
async fn a_certificate_is_for_the_name_and_from_an_authority_that_is_believed() {
    let (port, authority) = server().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("authority.pem");
    fs::write(&file, authority).unwrap();

    for host in ["server.test", "127.0.0.1"] {
        let client = client(&format!("https://{host}:{port}"), Some(&file));
        let sent = client.send("primary", request("GET", "/v1/x", ""), Framing::Raw).await;
        let (frames, error) = drain(&mut *sent.unwrap()).await;
        assert_eq!((texts(&frames).concat(), error), ("key true ".to_owned(), None), "{host}");
    }
    for (host, authorities) in
        [("server.test", None), ("other.test", Some(file.as_path())), ("127.0.0.1", None)]
    {
        let client = client(&format!("https://{host}:{port}"), authorities);
        let sent = client.send("primary", request("GET", "/v1/x", ""), Framing::Raw).await;
        let error = sent.err().unwrap();
        assert_eq!(error.code, Code::UpstreamUnavailable, "{host}: {error}");
        assert!(error.message.contains("certificate is not accepted"), "{host}: {error}");
        assert!(!error.message.contains(".test"), "{host}: {error}");
    }
}

#[tokio::test]
async fn a_server_without_tls_gets_no_request() {
    let fake =
        Fake::new(vec![vec![support::send("HTTP/1.1 400 Bad Request\r\n\r\n"), Step::Hang]]).await;
    let client = client(&format!("https://127.0.0.1:{}", fake.address.port()), None);
    let sent = client.send("primary", request("GET", "/v1/x", ""), Framing::Raw).await;
    let error = sent.err().unwrap();
    assert_eq!(error.code, Code::UpstreamUnavailable, "{error}");
    assert!(error.message.contains("does not speak TLS"), "{error}");
}

#[test]
fn what_holds_no_certificate_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("authority.pem");
    for text in
        ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
    {
        fs::write(&file, text).unwrap();
        assert!(Trust::new(Some(&file)).is_err(), "{text:?}");
    }
    assert!(Trust::new(Some(&folder.path().join("missing"))).is_err());
}
