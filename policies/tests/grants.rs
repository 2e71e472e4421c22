//! Grants say exactly what is allowed; what they do not say is refused.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use std::{fs, path::Path};

use gristmill_policies::{Grant, Kind, Limits, Network, Policies};

const GRANT: &str = r#"
kind = "backend"
imports = ["gristmill:contract/engine", "wasi:io/*"]

[limits]
memory-mib = 8

[upstreams.primary]
network = ["loopback", "private"]
methods = ["GET", "POST"]
paths = ["/health", "/v1/*"]
exchanges = 4
"#;

#[test]
fn a_grant_allows_what_it_names_and_nothing_else() {
    let grant = Grant::parse(GRANT).unwrap();
    for (interface, allowed) in [
        ("gristmill:contract/engine", true),
        ("gristmill:contract/engine-two", false),
        ("gristmill:contract/kernels", false),
        ("wasi:io/poll", true),
        ("wasi:io-extra/poll", false),
        ("wasi:sockets/tcp", false),
        ("", false),
    ] {
        assert_eq!(grant.allows(interface), allowed, "{interface}");
    }
    assert!(!Grant::none(Kind::Backend).allows("gristmill:contract/log"));
}

#[test]
fn an_upstream_is_as_wide_as_its_entry() {
    let grant = Grant::parse(GRANT).unwrap();
    assert!(grant.upstream("secondary").is_none());
    let primary = grant.upstream("primary").unwrap();
    assert_eq!(primary.network, [Network::Loopback, Network::Private]);
    assert_eq!(primary.exchanges, 4);
    assert!(primary.request_bytes > 0 && primary.response_bytes > primary.frame_bytes);
    for (method, allowed) in [("GET", true), ("POST", true), ("DELETE", false), ("get", false)] {
        assert_eq!(primary.allows_method(method), allowed, "{method}");
    }
    for (path, allowed) in [
        ("/health", true),
        ("/health?slots=1", true),
        ("/health/", false),
        ("/healthz", false),
        ("/v1/models", true),
        ("/v1/chat/completions?x=/../y", true),
        ("/v1/", false),
        ("/v1", false),
        ("/v10/models", false),
        ("/V1/models", false),
        ("/x?/v1/models", false),
        ("/", false),
    ] {
        assert_eq!(primary.allows_path(path), allowed, "{path}");
    }
}

#[test]
fn limits_not_written_are_the_defaults() {
    let grant = Grant::parse(GRANT).unwrap();
    assert_eq!(grant.limits, Limits { memory_mib: 8, ..Limits::default() });
    let family = Grant::parse("kind = \"family\"").unwrap();
    assert_eq!(family, Grant::none(Kind::Family));
}

#[test]
fn what_is_not_a_grant_is_refused_with_a_way_out() {
    let cases = [
        (GRANT.replace("memory-mib", "memory-mb"), "did you mean \"memory-mib\"?"),
        (GRANT.replace("upstreams", "upstream"), "did you mean \"upstreams\"?"),
        (GRANT.replace("exchanges", "exchange"), "did you mean \"exchanges\"?"),
        (GRANT.replace("network =", "networks ="), "did you mean \"network\"?"),
        (GRANT.replace("methods = [\"GET\", \"POST\"]", ""), "methods"),
        (GRANT.replace("\"GET\", \"POST\"", ""), "at least one"),
        (GRANT.replace("\"GET\"", "\"CONNECT\""), "expected one of GET"),
        (GRANT.replace("\"loopback\"", "\"anywhere\""), "anywhere"),
        (GRANT.replace("/v1/*", "v1"), "absolute path"),
        (GRANT.replace("/v1/*", "/v1*"), "absolute path"),
        (GRANT.replace("/v1/*", "/*/models"), "absolute path"),
        (GRANT.replace("/v1/*", "/v1/../admin"), "absolute path"),
        (GRANT.replace("/v1/*", "/v1%2f*"), "absolute path"),
        (GRANT.replace("/v1/*", "http://host/*"), "absolute path"),
        (GRANT.replace("exchanges = 4", "exchanges = 0"), "from 1 to 4096"),
        ("kind = \"backend\"\nupstreams = [\"primary\"]".to_owned(), "[upstreams.NAME]"),
        ("kind = \"backend\"\nupstreams.primary = true".to_owned(), "expected a table"),
        (GRANT.replace("memory-mib", "colour"), "known are memory-mib"),
        (GRANT.replace("= 8", "= 0"), "from 1 to 256"),
        (GRANT.replace("= 8", "= -1"), "from 1 to 256"),
        (GRANT.replace("= 8", "= 257"), "from 1 to 256"),
        (GRANT.replace("= 8", "= \"8\""), "whole number"),
        (GRANT.replace("wasi:io/*", "wasi:io/poll@0.2.6"), "without a version"),
        (GRANT.replace("wasi:io/*", "*"), "namespace:package"),
        (GRANT.replace("wasi:io/*", "wasi:*/poll"), "namespace:package"),
        (GRANT.replace("primary", "\"http://host\""), "letters, digits"),
        (GRANT.replace("backend", "kernel"), "expected backend, family or probe"),
        (GRANT.replace("kind", "kin"), "did you mean \"kind\"?"),
        ("limits = 3\nkind = \"probe\"".to_owned(), "expected a table"),
    ];
    for (text, words) in cases {
        let error = Grant::parse(&text).unwrap_err();
        assert!(error.contains(words), "{words}: {error}");
    }
}

#[test]
fn a_plugin_has_its_own_grant_or_that_of_its_kind_or_none() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(
        Policies::open(dir.path()).unwrap().grant("cpu", Kind::Backend).unwrap_err().code(),
        "no-grant"
    );
    fs::create_dir(dir.path().join("grants")).unwrap();
    let write = |name: &str, text: &str| {
        fs::write(dir.path().join("grants").join(name), text).unwrap();
    };
    write("cpu.toml", GRANT);
    write("family.toml", "kind = \"family\"");
    let policies = Policies::open(dir.path()).unwrap();
    assert_eq!(policies.grants().count(), 2);
    assert_eq!(policies.grant("cpu", Kind::Backend).unwrap().limits.memory_mib, 8);
    assert_eq!(policies.grant("llama", Kind::Family).unwrap().kind, Kind::Family);
    assert_eq!(policies.grant("other", Kind::Backend).unwrap_err().code(), "no-grant");
    assert_eq!(policies.grant("cpu", Kind::Family).unwrap_err().code(), "invalid-grant");

    write("broken.toml", "kind = \"backend\"\nlimit = 1");
    let error = Policies::open(dir.path()).unwrap_err();
    assert_eq!(error.code(), "invalid-grant");
    assert!(error.to_string().contains("broken.toml"), "{error}");
    fs::remove_file(dir.path().join("grants/broken.toml")).unwrap();

    write("README.md", "for people");
    assert_eq!(Policies::open(dir.path()).unwrap().grants().count(), 2);
    write("vllm.tml", GRANT);
    let error = Policies::open(dir.path()).unwrap_err();
    assert_eq!(error.code(), "unknown-policy", "a misspelt name is not no grant");
    assert!(error.to_string().contains("vllm.tml"), "{error}");
}

#[test]
fn the_shipped_grants_are_valid_and_give_families_no_way_out() {
    let policies = Policies::open(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
    for name in ["cpu", "family", "probe", "scripted"] {
        assert!(policies.grants().any(|(known, _)| known == name), "{name}");
    }
    assert!(policies.grant("cpu", Kind::Backend).unwrap().allows("gristmill:contract/engine"));
    let family = policies.grant("any", Kind::Family).unwrap();
    assert!(!family.imports.iter().any(|import| import.starts_with("gristmill:")));
    for (name, grant) in policies.grants() {
        for never in ["wasi:sockets/tcp", "wasi:http/outgoing-handler"] {
            assert!(!grant.allows(never), "{name} is granted {never}");
        }
        // The operator's address is bound to the one upstream that a bridge's grant names.
        let reaches = grant.allows("gristmill:contract/upstream");
        let upstreams: Vec<_> = grant.upstreams.keys().collect();
        assert_eq!(upstreams, if reaches { vec!["primary"] } else { vec![] }, "{name}");
    }
}
