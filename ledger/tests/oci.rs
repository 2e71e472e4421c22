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
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    path::PathBuf,
    sync::{Arc, Mutex},
    thread,
};

use common::{Home, NAME, NOW, Told};
use gristmill_ledger::{Plan, Source as _, Terms, oci::Oci, sha256};
use serde_json::{Value, json};

const COMPONENT: &[u8] = b"first";

/// A registry: answers by path, asks for a proof where it wants one, and remembers what it was asked.
struct Registry {
    host: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

/// Path and `Authorization` of a request.
type Seen = (String, Option<String>);

#[derive(Clone, Default)]
struct Answers {
    /// Status, a header, and a body, by path.
    paths: BTreeMap<String, (u16, String, Vec<u8>)>,
    /// The `Authorization` without which nothing below `/v2/` is given, and the header that says so.
    wants: Option<(String, String)>,
    /// The `Authorization` without which there is no token.
    login: Option<String>,
}

/// How a registry asks for a token from `at`.
fn bearer(at: &str) -> String {
    format!(
        "www-authenticate: Bearer realm=\"{at}/token\",service=\"here & now\",scope=\"repository:a/b:pull\"\r\n"
    )
}

const TOKEN: &str = "/token?service=here%20%26%20now&scope=repository%3Aa%2Fb%3Apull";

impl Registry {
    fn start(make: impl FnOnce(&str) -> Answers) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let answers = make(&host);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&seen);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (answers, seen) = (answers.clone(), Arc::clone(&noted));
                let mut stream = stream.unwrap();
                thread::spawn(move || {
                    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                    let first = lines.next().unwrap().unwrap();
                    let path = first.split(' ').nth(1).unwrap().to_owned();
                    let head: Vec<_> =
                        lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
                    let proof = head.iter().find_map(|line| {
                        let (name, value) = line.split_once(": ")?;
                        name.eq_ignore_ascii_case("authorization").then(|| value.to_owned())
                    });
                    seen.lock().unwrap().push((path.clone(), proof.clone()));
                    let none = || (404, String::new(), Vec::new());
                    let found = answers.paths.get(&path).cloned().unwrap_or_else(none);
                    let (status, header, body) = match (&answers.wants, &answers.login) {
                        (Some((wanted, ask)), _)
                            if path.starts_with("/v2/") && proof.as_ref() != Some(wanted) =>
                        {
                            (401, ask.clone(), Vec::new())
                        }
                        (_, Some(_)) if path == TOKEN && proof != answers.login => {
                            (401, String::new(), Vec::new())
                        }
                        _ => found,
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
        Self { host, seen }
    }

    /// Who was shown something: the paths, and what.
    fn shown(&self) -> Vec<(String, String)> {
        let seen = self.seen.lock().unwrap();
        let shown = seen.iter().filter_map(|(path, proof)| Some((path.clone(), proof.clone()?)));
        shown.collect()
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
    Answers { paths: paths.into(), ..Answers::default() }
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
    let registry = Registry::start(|host| token("anonymous", &format!("http://{host}")));
    assert_eq!(registry.oci(":1.0").pull().unwrap().component, COMPONENT);
    assert!(registry.shown().iter().all(|(path, _)| path.starts_with("/v2/")), "no login");
    let closed = Registry::start(|host| Answers {
        paths: BTreeMap::new(),
        ..token("secret", &format!("http://{host}"))
    });
    let error = closed.oci(":1.0").pull().unwrap_err();
    assert_eq!(error.code(), "source-unavailable");
    let said = error.to_string();
    assert!(said.contains("wants a login") && said.contains(&closed.host), "{said}");
}

/// A registry that gives this token at `at`, and its component for that.
fn token(token: &str, at: &str) -> Answers {
    let mut answers = answers(&manifest(), COMPONENT);
    let body = json!({ "token": token }).to_string().into_bytes();
    answers.paths.insert(TOKEN.to_owned(), (200, String::new(), body));
    Answers { wants: Some((format!("Bearer {token}"), bearer(at))), ..answers }
}

/// `ada:open sesame`
const PAIR: &str = "YWRhOm9wZW4gc2VzYW1l";

/// A config.json in a folder of its own.
fn config(text: &Value) -> (tempfile::TempDir, Option<PathBuf>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    fs::write(&path, text.to_string()).unwrap();
    (folder, Some(path))
}

#[test]
fn a_login_goes_to_its_registry_and_the_token_endpoint_and_to_nobody_else() {
    let basic = format!("Basic {PAIR}");
    // The token endpoint is another host, and the blob lies on a third.
    let shed = Registry::start(|_| {
        let mut answers = Answers::default();
        answers.paths.insert("/shed".into(), (200, String::new(), COMPONENT.to_vec()));
        answers
    });
    let desk = Registry::start(|_| Answers {
        login: Some(basic.clone()),
        ..token("for-ada", "http://127.0.0.1:1")
    });
    let elsewhere = |mut answers: Answers| {
        let blob = format!("/v2/a/b/blobs/sha256:{}", sha256(COMPONENT));
        let header = format!("location: http://{}/shed\r\n", shed.host);
        answers.paths.insert(blob, (307, header, Vec::new()));
        answers
    };
    let bearer = Registry::start(|_| elsewhere(token("for-ada", &format!("http://{}", desk.host))));
    let plain = Registry::start(|_| {
        let ask = "www-authenticate: Basic realm=\"here\"\r\n".to_owned();
        let wants = Some((basic.clone(), ask));
        Answers { wants, ..elsewhere(answers(&manifest(), COMPONENT)) }
    });
    let open = Registry::start(|_| elsewhere(answers(&manifest(), COMPONENT)));
    let entry = json!({ "auth": PAIR });
    let auths = json!({ &bearer.host: entry, &plain.host: entry, &open.host: entry });
    let (_folder, path) = config(&json!({ "auths": auths, "credsStore": "desktop" }));
    for registry in [&bearer, &plain, &open] {
        let oci = registry.oci(":1.0").with_logins(path.clone());
        assert_eq!(oci.pull().unwrap().component, COMPONENT);
        assert!(!format!("{oci:?}").contains(PAIR));
    }
    assert_eq!(desk.shown(), [(TOKEN.to_owned(), basic.clone())]);
    assert!(bearer.shown().iter().all(|(_, proof)| proof == "Bearer for-ada"));
    assert!(plain.shown().iter().all(|(_, proof)| *proof == basic) && !plain.shown().is_empty());
    assert!(open.shown().is_empty(), "it did not ask");
    assert!(shed.shown().is_empty() && shed.seen.lock().unwrap().len() == 3);

    // Another registry's login is nobody's.
    let other = Registry::start(|_| token("for-ada", &format!("http://{}", desk.host)));
    let error = other.oci(":1.0").with_logins(path).pull().unwrap_err();
    assert_eq!(error.code(), "source-unavailable");
    assert_eq!(desk.shown().len(), 1);
}

#[test]
fn a_login_that_cannot_be_used_is_refused_by_its_name_and_told_to_nobody() {
    let entry = |host: &str, entry: Value| json!({ "auths": { host: entry } });
    type Make = fn(&dyn Fn(&str, Value) -> Value, &str) -> Value;
    let cases: [(&str, Make, &[&str]); 7] = [
        (
            "source-unavailable",
            |entry, host| entry(host, json!({ "auth": PAIR })),
            &["refuses the login"],
        ),
        ("source-unavailable", |_, _| json!({}), &["wants a login", "docker login"]),
        (
            "invalid-login",
            |_, host| json!({ "credHelpers": { host: "pass" } }),
            &["helper \"pass\"", "DOCKER_CONFIG"],
        ),
        (
            "invalid-login",
            |_, host| json!({ "auths": { host: {} }, "credsStore": "desktop" }),
            &["helper \"desktop\"", "DOCKER_CONFIG"],
        ),
        (
            "invalid-login",
            |entry, host| entry(host, json!({ "identitytoken": "sesame" })),
            &["identity token"],
        ),
        (
            "invalid-login",
            // Without a colon.
            |entry, host| entry(host, json!({ "auth": "c2VzYW1l" })),
            &["USER:PASSWORD in base64"],
        ),
        ("invalid-login", |_, _| json!({ "auths": ["sesame"] }), &["config.json of docker"]),
    ];
    for (code, make, words) in cases {
        let desk = Registry::start(|_| Answers {
            login: Some("Basic of somebody else".into()),
            ..token("t", "http://127.0.0.1:1")
        });
        let registry = Registry::start(|_| token("t", &format!("http://{}", desk.host)));
        let (_folder, path) = config(&make(&entry, &registry.host));
        let error = registry.oci(":1.0").with_logins(path).pull().unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        let said = format!("{error} {error:?}");
        for word in words.iter().chain(&["config.json"]) {
            assert!(said.contains(word), "{word}: {said}");
        }
        for secret in [PAIR, "c2VzYW1l", "sesame"] {
            assert!(!said.contains(secret), "{said}");
        }
    }
}

#[test]
fn a_login_does_not_go_where_everybody_can_read_it() {
    for realm in [
        "http://registry.example",
        "http://localhost:1@registry.example",
        "ftp://127.0.0.1",
        "token",
    ] {
        let registry = Registry::start(|_| token("t", realm));
        let (_folder, path) = config(&json!({ "auths": { &registry.host: { "auth": PAIR } } }));
        let error = registry.oci(":1.0").with_logins(path).pull().unwrap_err();
        assert_eq!(error.code(), "source-unavailable");
        assert!(error.to_string().contains("neither https nor on loopback"), "{realm}: {error}");
    }
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
