//! A component from a registry is the one that was named, or none: against a registry that runs here.
#![cfg(feature = "oci")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    thread,
};

use common::{Home, NAME, NOW, Told};
use gristmill_ledger::{Plan, Source as _, Terms, oci::Oci, sha256};
use serde_json::{Value, json};

const COMPONENT: &[u8] = b"first";

/// A registry: answers by path, and asks for a token where it has one.
struct Registry {
    host: String,
}

#[derive(Clone, Default)]
struct Answers {
    /// Status, a header, and a body, by path.
    paths: BTreeMap<String, (u16, String, Vec<u8>)>,
    token: Option<&'static str>,
}

impl Registry {
    fn start(make: impl FnOnce(&str) -> Answers) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let answers = make(&host);
        let own = host.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (answers, own, mut stream) = (answers.clone(), own.clone(), stream.unwrap());
                thread::spawn(move || {
                    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                    let first = lines.next().unwrap().unwrap();
                    let path = first.split(' ').nth(1).unwrap().to_owned();
                    let head: Vec<_> =
                        lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
                    let bearer = head.iter().find_map(|line| {
                        line.to_lowercase()
                            .strip_prefix("authorization: bearer ")
                            .map(str::to_owned)
                    });
                    let realm = format!(
                        "www-authenticate: Bearer realm=\"http://{own}/token\",service=\"here & now\",scope=\"repository:a/b:pull\"\r\n"
                    );
                    let (status, header, body) = match answers.token {
                        Some(token)
                            if path.starts_with("/v2/") && bearer.as_deref() != Some(token) =>
                        {
                            (401, realm, Vec::new())
                        }
                        _ => answers.paths.get(&path).cloned().unwrap_or((
                            404,
                            String::new(),
                            Vec::new(),
                        )),
                    };
                    let head = format!(
                        "HTTP/1.1 {status} X\r\n{header}content-length: {}\r\nconnection: close\r\n\r\n",
                        body.len()
                    );
                    // A client that has heard enough is gone.
                    let _ = stream.write_all(&[head.as_bytes(), &body].concat());
                });
            }
        });
        Self { host }
    }

    fn oci(&self, reference: &str) -> Oci {
        Oci::parse(&format!("oci:{}/a/b{reference}", self.host)).unwrap()
    }
}

fn manifest() -> Value {
    json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {
            "mediaType": "application/vnd.wasm.config.v0+json",
            "digest": format!("sha256:{}", sha256(b"{}")),
            "size": 2
        },
        "layers": [{
            "mediaType": "application/wasm",
            "digest": format!("sha256:{}", sha256(COMPONENT)),
            "size": COMPONENT.len()
        }]
    })
}

fn answers(manifest: &Value, blob: &[u8]) -> Answers {
    let manifest = serde_json::to_vec(manifest).unwrap();
    let blobs = format!("/v2/a/b/blobs/sha256:{}", sha256(COMPONENT));
    let ok = |body: &[u8]| (200, String::new(), body.to_vec());
    let digest = format!("/v2/a/b/manifests/sha256:{}", sha256(&manifest));
    let paths = [
        ("/v2/a/b/manifests/1.0".to_owned(), ok(&manifest)),
        (digest, ok(&manifest)),
        (blobs, ok(blob)),
    ];
    Answers { paths: paths.into(), token: None }
}

#[test]
fn a_tag_is_resolved_to_a_digest_and_both_give_the_component() {
    let registry = Registry::start(|_| answers(&manifest(), COMPONENT));
    let pulled = registry.oci(":1.0").pull().unwrap();
    assert_eq!(pulled.component, COMPONENT);
    let digest = sha256(&serde_json::to_vec(&manifest()).unwrap());
    assert_eq!(pulled.locked, format!("oci:{}/a/b@sha256:{digest}", registry.host));
    let again = Oci::parse(&pulled.locked).unwrap();
    assert_eq!((again.pull().unwrap(), again.original()), (pulled.clone(), pulled.locked));
}

#[test]
fn a_token_is_fetched_where_one_is_asked_for() {
    let registry = Registry::start(|_| {
        let mut answers = answers(&manifest(), COMPONENT);
        let path = "/token?service=here%20%26%20now&scope=repository%3Aa%2Fb%3Apull";
        let body = br#"{"token":"anonymous"}"#.to_vec();
        answers.paths.insert(path.to_owned(), (200, String::new(), body));
        Answers { token: Some("anonymous"), ..answers }
    });
    assert_eq!(registry.oci(":1.0").pull().unwrap().component, COMPONENT);
    let closed = Registry::start(|_| Answers { token: Some("secret"), ..Answers::default() });
    assert_eq!(closed.oci(":1.0").pull().unwrap_err().code(), "source-unavailable");
}

#[test]
fn a_blob_may_lie_elsewhere() {
    let registry = Registry::start(|host| {
        let mut answers = answers(&manifest(), COMPONENT);
        let blob = format!("/v2/a/b/blobs/sha256:{}", sha256(COMPONENT));
        let header = format!("location: http://{host}/elsewhere\r\n");
        answers.paths.insert(blob, (307, header, Vec::new()));
        answers.paths.insert("/elsewhere".into(), (200, String::new(), COMPONENT.to_vec()));
        answers
    });
    assert_eq!(registry.oci(":1.0").pull().unwrap().component, COMPONENT);
}

#[test]
fn what_is_not_what_was_named_is_refused() {
    let spoiled = |pointer: &str, value: Value| {
        let mut spoiled = manifest();
        *spoiled.pointer_mut(pointer).unwrap() = value;
        spoiled
    };
    let layer = manifest()["layers"][0].clone();
    for (case, manifest, blob) in [
        ("a flipped byte", manifest(), &b"firsu"[..]),
        ("a shorter blob", manifest(), b"firs"),
        ("a longer blob", manifest(), b"first!"),
        ("another layer type", spoiled("/layers/0/mediaType", "text/plain".into()), COMPONENT),
        ("another config type", spoiled("/config/mediaType", "text/plain".into()), COMPONENT),
        ("another schema", spoiled("/schemaVersion", 1.into()), COMPONENT),
        ("no layer", spoiled("/layers", json!([])), COMPONENT),
        ("two layers", spoiled("/layers", json!([layer, layer])), COMPONENT),
        ("a huge layer", spoiled("/layers/0/size", (64 << 20).into()), COMPONENT),
        ("no digest", spoiled("/layers/0/digest", "md5:00".into()), COMPONENT),
        ("no manifest", json!("hello"), COMPONENT),
    ] {
        let registry = Registry::start(|_| answers(&manifest, blob));
        let error = registry.oci(":1.0").pull().unwrap_err();
        assert_eq!(error.code(), "source-mismatch", "{case}: {error}");
        assert!(error.to_string().contains(&registry.host), "{case}: {error}");
    }
    // A manifest of another digest.
    let other = sha256(b"other");
    let registry = Registry::start(|_| {
        let mut answers = answers(&manifest(), COMPONENT);
        let bytes = answers.paths["/v2/a/b/manifests/1.0"].clone();
        answers.paths.insert(format!("/v2/a/b/manifests/sha256:{other}"), bytes);
        answers
    });
    let error = registry.oci(&format!("@sha256:{other}")).pull().unwrap_err();
    assert_eq!(error.code(), "source-mismatch");
    assert_eq!(registry.oci(":2.0").pull().unwrap_err().code(), "source-unavailable");
}

#[test]
fn a_reference_says_host_repository_and_tag_or_digest() {
    let digest = sha256(b"");
    for (text, fine) in [
        ("oci:registry.example/a/b:1.0".to_owned(), true),
        (format!("oci:registry.example:5000/a@sha256:{digest}"), true),
        (format!("oci:[::1]:5000/a@sha256:{digest}"), true),
        ("oci:registry.example/a".into(), false),
        ("oci:registry.example/a@sha256:abc".into(), false),
        ("oci:registry.example/a@1.0".into(), false),
        ("oci:registry.example/../a:1".into(), false),
        ("oci:registry.example//a:1".into(), false),
        ("oci:user@registry.example/a:1".into(), false),
        ("oci:registry.example/a:1?x".into(), false),
        ("registry.example/a:1".into(), false),
        ("oci:".into(), false),
    ] {
        let found = Oci::parse(&text);
        assert_eq!(found.is_ok(), fine, "{text}");
        if let Err(error) = found {
            assert_eq!(error.code(), "invalid-source");
        }
    }
}

#[test]
fn a_pin_is_promoted_from_a_registry_and_the_digest_is_the_pins() {
    let home = Home::signed();
    let mut keeper = home.keeper();
    let text = home.sealed(home.draft(&keeper, COMPONENT), &[1, 2]);
    let other = Registry::start(|_| {
        let mut manifest = manifest();
        manifest["layers"][0]["digest"] = format!("sha256:{}", sha256(b"other")).into();
        let mut answers = answers(&manifest, COMPONENT);
        let blob = format!("/v2/a/b/blobs/sha256:{}", sha256(b"other"));
        answers.paths.insert(blob, (200, String::new(), b"other".to_vec()));
        answers
    });
    let good = Registry::start(|_| answers(&manifest(), COMPONENT));
    for (registry, code) in [(other, Some("digest-mismatch")), (good, None)] {
        let source = registry.oci(":1.0");
        let result = home.with_terms(NOW, |terms| {
            let terms = Terms { source: &source, ..terms };
            keeper.promote(&Plan { name: NAME, text: &text, terms }, &mut Told::default())
        });
        assert_eq!(result.as_ref().err().map(|error| error.code()), code);
        if let Ok(changed) = result {
            assert_eq!(source.fetch(&changed.pin).unwrap(), COMPONENT);
        }
    }
}
