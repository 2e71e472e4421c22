//! The document of the API: it has every route, it is sound, and what it says is what comes.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests may fail loudly"
)]

mod support;

use std::collections::HashSet;

use axum::http::Method;
use gristmill_api::{control::openapi::document, endpoint::endpoints};
use serde_json::{Value, json};
use support::{Keyed, bench, hello};

fn operations(document: &Value) -> Vec<(String, String, &Value)> {
    let paths = document["paths"].as_object().unwrap();
    let each = paths.iter().flat_map(|(path, item)| {
        let item = item.as_object().unwrap();
        item.iter().map(|(method, operation)| (method.to_uppercase(), path.clone(), operation))
    });
    each.collect()
}

/// Every `$ref` in a value.
fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(reference)) = map.get("$ref") {
                found.push(reference.clone());
            }
            map.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn every_route_is_in_it_and_nothing_else() {
    let document = document("1");
    let said: HashSet<_> =
        operations(&document).into_iter().map(|(method, path, _)| (method, path)).collect();
    let there: HashSet<_> = endpoints()
        .into_iter()
        .map(|endpoint| (endpoint.method.to_string(), endpoint.path.replace("{*", "{")))
        .collect();
    assert_eq!(said, there);
    assert!(there.len() >= 45, "{}", there.len());
}

#[test]
fn it_is_a_sound_document() {
    let document = document("1.2.3");
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["info"]["version"], "1.2.3");
    let mut references_found = Vec::new();
    references(&document, &mut references_found);
    assert!(references_found.len() > 50);
    for reference in references_found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
    let mut ids = HashSet::new();
    for (method, path, operation) in operations(&document) {
        assert!(ids.insert(operation["operationId"].as_str().unwrap()), "{method} {path}");
        assert!(!operation["summary"].as_str().unwrap().is_empty(), "{method} {path}");
        assert!(operation["responses"]["200"]["description"].is_string());
        assert!(operation["responses"]["default"]["content"].is_object());
        let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
        let variables =
            path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let declared = parameters.iter().filter(|parameter| parameter["in"] == "path");
        assert_eq!(
            variables.collect::<Vec<_>>(),
            declared.map(|parameter| parameter["name"].as_str().unwrap()).collect::<Vec<_>>()
        );
        assert!(operation.get("requestBody").is_none() || method != "GET", "{path}");
        for scheme in operation["security"].as_array().unwrap() {
            for name in scheme.as_object().unwrap().keys() {
                assert!(document["components"]["securitySchemes"].get(name).is_some());
            }
        }
    }
    for name in document["components"]["schemas"].as_object().unwrap().keys() {
        schema(&document, &format!("#/components/schemas/{name}"));
    }
}

/// A schema of the document, ready to judge.
fn schema(document: &Value, reference: &str) -> jsonschema::Validator {
    let whole = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$ref": reference,
        "components": document["components"],
    });
    jsonschema::validator_for(&whole).unwrap_or_else(|error| panic!("{reference}: {error}"))
}

#[tokio::test]
async fn what_comes_is_what_it_says() {
    let bench = bench(support::Double::playing(hello())).await;
    let served = bench.get("/v1/openapi.json").await.json();
    assert_eq!(served, document(&bench.state.config.version));
    let mut judged = 0;
    for (method, path, operation) in operations(&served) {
        let body = match (method.as_str(), path.as_str()) {
            ("GET", _) => String::new(),
            ("POST", "/v1/route") => json!({ "model": "tiny" }).to_string(),
            ("POST", "/v1/ledger/verify") => "{}".to_owned(),
            _ => continue,
        };
        let reply = bench.raw(Method::from_bytes(method.as_bytes()).unwrap(), &path, body).await;
        let content = if reply.status.is_success() {
            &operation["responses"]["200"]["content"]
        } else {
            &operation["responses"]["default"]["content"]
        };
        let Some(reference) = content["application/json"]["schema"]["$ref"].as_str() else {
            continue;
        };
        judged += 1;
        let answer = reply.json();
        let validator = schema(&served, reference);
        if let Err(error) = validator.validate(&answer) {
            panic!("{path}: {error} at {}: {answer}", error.instance_path());
        }
    }
    assert!(judged >= 15, "{judged}");
}

#[tokio::test]
async fn what_it_forbids_is_refused_and_what_it_allows_is_read() {
    let keyed = Keyed::new();
    let key = keyed.add("boss", |key| key.operator = true);
    let bench = keyed.bench().await;
    let document = document("1");
    for (path, body, good) in [
        ("/v1/route", json!({ "model": "tiny" }), true),
        ("/v1/route", json!({ "model": "tiny", "capabilities": ["tools.calling"] }), true),
        ("/v1/route", json!({ "model": "tiny", "x": 1 }), false),
        ("/v1/route", json!({}), false),
        ("/v1/ledger/promote", json!({ "name": "x" }), true),
        (
            "/v1/ledger/promote",
            json!({ "name": "x", "trial": { "kind": "canary", "share": 0.1, "requests": 5 } }),
            true,
        ),
        ("/v1/ledger/promote", json!({ "name": "x", "trial": { "kind": "canary" } }), false),
        ("/v1/ledger/rollback", json!({ "name": 5 }), false),
        (
            "/v1/ledger/pin",
            json!({ "name": "x", "source": { "kind": "bytes", "component": "AAAA" } }),
            true,
        ),
        (
            "/v1/ledger/pin",
            json!({ "name": "x", "source": { "kind": "registry", "component": "AAAA" } }),
            false,
        ),
        ("/v1/ledger/sign", json!({ "name": "x", "public": "p", "signature": "s" }), true),
        ("/v1/ledger/sign", json!({ "name": "x", "public": "p" }), false),
        ("/v1/ledger/qualify", json!({ "name": "x", "model": "m", "rounds": 4 }), true),
        ("/v1/ledger/qualify", json!({ "name": "x", "model": "m", "rounds": 0 }), false),
        ("/v1/ledger/revoke", json!({ "kind": "digest", "digest": "d", "reason": "r" }), true),
        ("/v1/ledger/revoke", json!({ "kind": "digest", "digest": "d" }), false),
        ("/v1/ledger/release", json!({ "kind": "name", "name": "x" }), true),
        ("/v1/ledger/release", json!({ "kind": "digest", "name": "x" }), false),
    ] {
        let content = &document["paths"][path]["post"]["requestBody"]["content"];
        let reference = content["application/json"]["schema"]["$ref"].as_str().unwrap();
        assert_eq!(schema(&document, reference).is_valid(&body), good, "{path} {body}");
        let reply = bench.by(Some(&key), Method::POST, path, &body.to_string()).await;
        assert_eq!(reply.status != 400, good, "{path} {body}: {}", reply.text());
    }
}
