//! The control plane reads exactly the fields of a request, each once, and nothing behind them.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests may fail loudly")]

mod support;

use axum::http::Method;
use gristmill_api::endpoint::endpoints;
use support::Keyed;

#[tokio::test]
async fn a_body_is_read_to_the_letter() {
    let keyed = Keyed::new();
    let key = keyed.add("boss", |key| key.operator = true);
    let bench = keyed.bench().await;
    let route = "/v1/route";
    let promote = "/v1/ledger/promote";
    let pin = "/v1/ledger/pin";
    for (path, body, words) in [
        (route, "", "missing request body"),
        (route, "{", "JSON"),
        (route, "[]", "request body"),
        (route, "{}", "missing field `model`"),
        (route, r#"{"model": 5}"#, "expected a string"),
        (route, r#"{"model": "tiny", "modle": 1}"#, "unknown field `modle`"),
        (route, r#"{"model": "tiny", "model": "tiny"}"#, "\"model\" is there twice"),
        (route, r#"{"model": "tiny"} x"#, "trailing"),
        (route, r#"{"model": "tiny"}{}"#, "trailing"),
        (route, r#"{"model": "tiny", "capabilities": ["x"]}"#, "unknown variant `x`"),
        (
            route,
            r#"{"model": "tiny", "capabilities": ["logprobs", "logprobs"]}"#,
            "capabilities[1] is there twice",
        ),
        (route, r#"{"model": "tiny", "capabilities": null}"#, "null"),
        (route, r#"{"model": "tiny", "capabilities": [{"a": 1, "a": 2}]}"#, "\"a\" is there twice"),
        (route, r#"{"model": "a b"}"#, "white space"),
        (promote, r#"{"name": "x", "force": true}"#, "unknown field `force`"),
        (
            promote,
            r#"{"name": "x", "trial": {"kind": "canary", "share": 0.5, "requests": 9, "more": 1}}"#,
            "unknown field `more`",
        ),
        (promote, r#"{"name": "x", "trial": {"kind": "canary", "share": 0.5}}"#, "requests"),
        (promote, r#"{"name": "x", "trial": {"kind": "all"}}"#, "unknown variant `all`"),
        (
            promote,
            r#"{"name": "x", "trial": {"kind": "shadow", "share": 1, "share": 0, "requests": 9}}"#,
            "\"share\" is there twice",
        ),
        (pin, r#"{"name": "x"}"#, "missing field `source`"),
        (pin, r#"{"name": "x", "source": "/etc/passwd"}"#, "invalid type: string"),
        (
            pin,
            r#"{"name": "x", "source": {"kind": "file", "path": "/x"}}"#,
            "unknown variant `file`",
        ),
        (pin, r#"{"name": "x", "source": {"kind": "bytes", "component": "A"}}"#, "expected base64"),
        (
            pin,
            r#"{"name": "x", "source": {"kind": "registry", "reference": "r", "path": "/x"}}"#,
            "unknown field `path`",
        ),
        (pin, r#"{"name": "x", "source": {"kind": "registry"}}"#, "reference"),
        ("/v1/ledger/sign", r#"{"name": "x", "signature": "s"}"#, "missing field `public`"),
        (
            "/v1/ledger/sign",
            r#"{"name": "x", "public": "p", "signature": "s", "secret": "k"}"#,
            "unknown field `secret`",
        ),
        ("/v1/ledger/qualify", r#"{"name": "x"}"#, "missing field `model`"),
        ("/v1/ledger/qualify", r#"{"name": "x", "model": "m", "key": "f"}"#, "unknown field `key`"),
        ("/v1/ledger/rollback", r#"{"name": "x", "until": 1}"#, "unknown field `until`"),
        ("/v1/ledger/rollback", r#"{"name": "x", "to": -1}"#, "invalid value"),
        ("/v1/ledger/verify", r#"{"deep": true}"#, "unknown field `deep`"),
        ("/v1/ledger/verify", "null", "null"),
        ("/v1/ledger/revoke", r#"{"kind": "digest", "digest": "x"}"#, "reason"),
        ("/v1/ledger/revoke", r#"{"digest": "x", "reason": "y"}"#, "kind"),
        (
            "/v1/ledger/revoke",
            r#"{"kind": "key", "key": "x", "reason": "y", "digest": "z"}"#,
            "unknown field `digest`",
        ),
        ("/v1/ledger/release", r#"{"name": "x"}"#, "kind"),
        ("/v1/ledger/release", r#"{"kind": "name", "digest": "x"}"#, "unknown field `digest`"),
    ] {
        let reply = bench.by(Some(&key), Method::POST, path, body).await;
        assert_eq!(reply.status, 400, "{path} {body}: {}", reply.text());
        let error = reply.json();
        assert_eq!(error["error"]["code"], "invalid-request", "{body}");
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains(words), "{path} {body}: {message}");
    }
}

#[tokio::test]
async fn a_query_is_too() {
    let keyed = Keyed::new();
    let key = keyed.add("boss", |key| key.operator = true);
    let bench = keyed.bench().await;
    let control = endpoints().into_iter().filter(|endpoint| {
        endpoint.path.starts_with("/v1/") && (endpoint.query.is_some() || endpoint.takes.is_some())
    });
    let mut seen = 0;
    for endpoint in control {
        seen += 1;
        let path = format!("{}?surplus=1", endpoint.path);
        let reply = bench.by(Some(&key), endpoint.method, &path, "{}").await;
        assert_eq!(reply.status, 400, "{path}: {}", reply.text());
        let text = reply.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(text.contains("surplus"), "{path}: {text}");
    }
    assert!(seen >= 15, "{seen}");
    for (query, word) in [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=x", "limit"),
        ("after=-1", "after"),
        ("after=1&after=2", "duplicate field"),
    ] {
        let reply = bench.by(Some(&key), Method::GET, &format!("/v1/ledger/log?{query}"), "").await;
        assert_eq!(reply.status, 400, "{query}: {}", reply.text());
        assert!(reply.text().contains(word), "{query}: {}", reply.text());
    }
}
