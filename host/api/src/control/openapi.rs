//! The document of the API, OpenAPI 3.1, made of the table of routes and of the types they read and
//! write. Only the envelopes of failures are written by hand, here and in [`crate::error`].
//!
//! The bodies of the dialects are their inventors' and read field by field; the document says of them
//! where they are described.

use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use crate::{
    endpoint::{Access, Endpoint, endpoints},
    error::Dialect,
};

/// The document, for this version of the host.
#[must_use]
pub fn document(version: &str) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = SchemaGenerator::new(settings);
    let mut paths = Map::new();
    for endpoint in endpoints() {
        let (path, variables) = path(endpoint.path);
        let name = operation_id(&endpoint);
        let operation = operation(&mut generator, &endpoint, name, &variables);
        let method = endpoint.method.as_str().to_ascii_lowercase();
        let item = paths.entry(path).or_insert_with(|| json!({}));
        if let Some(item) = item.as_object_mut() {
            item.insert(method, operation);
        }
    }
    let mut schemas = generator.take_definitions(true);
    for dialect in [Dialect::Ollama, Dialect::OpenAi, Dialect::Anthropic, Dialect::Control] {
        schemas.insert(envelope_name(dialect).to_owned(), envelope(dialect));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Gristmill",
            "version": version,
            "description": "Four dialects and a control plane on one port. docs/api.md describes the dialects, docs/control.md the control plane and the keys.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer" },
                "x-api-key": { "type": "apiKey", "in": "header", "name": "x-api-key" },
            },
        },
    })
}

/// The path as OpenAPI has it, and what varies in it.
fn path(route: &str) -> (String, Vec<String>) {
    let variable = |part: &str| {
        let inner = part.strip_prefix('{')?.strip_suffix('}')?;
        Some(inner.trim_start_matches('*').to_owned())
    };
    let parts = route.split('/').map(|part| match variable(part) {
        Some(name) => (format!("{{{name}}}"), Some(name)),
        None => (part.to_owned(), None),
    });
    let (parts, variables): (Vec<_>, Vec<_>) = parts.unzip();
    (parts.join("/"), variables.into_iter().flatten().collect())
}

/// `get_v1_ledger_log`
fn operation_id(endpoint: &Endpoint) -> String {
    let words = endpoint.path.split(|c: char| !c.is_ascii_alphanumeric());
    let words = words.filter(|word| !word.is_empty());
    let method = endpoint.method.as_str().to_ascii_lowercase();
    std::iter::once(&*method).chain(words).collect::<Vec<_>>().join("_")
}

fn operation(
    generator: &mut SchemaGenerator,
    endpoint: &Endpoint,
    name: String,
    variables: &[String],
) -> Value {
    let dialect = Dialect::of(endpoint.path);
    let mut parameters: Vec<Value> = variables
        .iter()
        .map(|name| {
            json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } })
        })
        .collect();
    if let Some(query) = endpoint.query {
        parameters.extend(query_parameters(generator, query));
    }
    let mut operation = Map::new();
    operation.insert("operationId".into(), json!(name));
    operation.insert("summary".into(), json!(endpoint.summary));
    operation.insert("tags".into(), json!([tag(dialect)]));
    operation.insert("x-gristmill-access".into(), json!(endpoint.access.as_str()));
    operation.insert("security".into(), security(endpoint.access));
    if !parameters.is_empty() {
        operation.insert("parameters".into(), json!(parameters));
    }
    if let Some(takes) = endpoint.takes {
        operation.insert("requestBody".into(), body(takes(generator).to_value()));
    } else if endpoint.method != axum::http::Method::GET && variables.is_empty() {
        let described = "See docs/api.md: unknown fields are refused there by name, or ignored.";
        operation.insert(
            "requestBody".into(),
            body(json!({ "type": "object", "description": described })),
        );
    }
    let answer = match endpoint.gives {
        Some(gives) => json!({
            "description": "Done.",
            "content": { "application/json": { "schema": gives(generator).to_value() } },
        }),
        None => json!({ "description": "As in the dialect: see docs/api.md." }),
    };
    let reference = format!("#/components/schemas/{}", envelope_name(dialect));
    operation.insert(
        "responses".into(),
        json!({
            "200": answer,
            "default": {
                "description": "Refused or failed.",
                "content": { "application/json": { "schema": { "$ref": reference } } },
            },
        }),
    );
    Value::Object(operation)
}

fn body(schema: Value) -> Value {
    json!({ "required": true, "content": { "application/json": { "schema": schema } } })
}

/// The fields of a query's type, one by one.
fn query_parameters(generator: &mut SchemaGenerator, query: crate::endpoint::Shape) -> Vec<Value> {
    let reference = query(generator).to_value();
    let name =
        reference.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next());
    let schema = match name {
        // Its fields are written out, so the type itself need not be in the document.
        Some(name) => generator.definitions_mut().remove(name).unwrap_or_default(),
        None => reference,
    };
    let required = |name: &String| {
        let names = schema.get("required").and_then(Value::as_array);
        names.is_some_and(|names| names.iter().any(|one| one == name))
    };
    let fields = schema.get("properties").and_then(Value::as_object);
    fields
        .into_iter()
        .flatten()
        .map(|(name, schema)| {
            json!({ "name": name, "in": "query", "required": required(name), "schema": schema })
        })
        .collect()
}

fn security(access: Access) -> Value {
    match access {
        Access::Open => json!([]),
        Access::Verb => json!([{ "bearer": [] }, { "x-api-key": [] }]),
        // Where the host has no keys, none is asked for.
        _ => json!([{ "bearer": [] }, { "x-api-key": [] }, {}]),
    }
}

fn tag(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Ollama => "ollama",
        Dialect::OpenAi => "openai",
        Dialect::Anthropic => "anthropic",
        Dialect::Control => "control",
    }
}

fn envelope_name(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Ollama => "OllamaError",
        Dialect::OpenAi => "OpenAiError",
        Dialect::Anthropic => "AnthropicError",
        Dialect::Control => "ControlError",
    }
}

/// What a failure looks like in a dialect.
fn envelope(dialect: Dialect) -> Value {
    let object = |fields: Value, required: &[&str]| json!({ "type": "object", "properties": fields, "required": required });
    let text = || json!({ "type": "string" });
    match dialect {
        Dialect::Ollama => object(json!({ "error": text() }), &["error"]),
        Dialect::Control => {
            let fields = json!({ "code": text(), "message": text(), "request_id": text() });
            let mut inner = object(fields, &["code", "message", "request_id"]);
            if let Some(inner) = inner.as_object_mut() {
                inner.insert("additionalProperties".into(), json!(false));
            }
            object(json!({ "error": inner }), &["error"])
        }
        Dialect::OpenAi => {
            let fields = json!({
                "message": text(), "type": text(), "code": text(),
                "param": { "type": ["string", "null"] }, "details": { "type": "object" },
            });
            object(
                json!({ "error": object(fields, &["message", "type", "param", "code"]) }),
                &["error"],
            )
        }
        Dialect::Anthropic => {
            let fields =
                json!({ "type": text(), "message": text(), "details": { "type": "object" } });
            let error = object(fields, &["type", "message"]);
            let fields =
                json!({ "type": { "const": "error" }, "error": error, "request_id": text() });
            object(fields, &["type", "error", "request_id"])
        }
    }
}
