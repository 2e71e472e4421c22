//! JSON Schemas of a ledger's files: what an editor completes and checks, and what a reviewer's tools can
//! hold a diff against. Made from the types that read the files; what needs the whole file (a seal, a
//! signature, a sorted list, two fields that contradict each other) is left to the reader.

use schemars::JsonSchema;
use serde_json::{Map, Value, json};

use crate::{
    Pin, Seen,
    digest::PATTERN,
    evidence::{Envelope, Statement},
    keys::Keys,
    log::Entry,
    performance::Record,
    revoked::Revoked,
    upstream::Upstream,
};

/// Every kind of file, with what is in it.
pub const KINDS: [(&str, &str); 8] = [
    ("pin", "pins/, candidates/ and history/ of a ledger: which bytes run under a name"),
    ("upstream", "upstreams/PROJECT….toml: what is known of a server behind a bridge"),
    ("trust", "keys.toml of a ledger: whose signatures count"),
    ("revoked", "revoked.toml of a ledger: what must not run any more"),
    ("performance", "performance/*.json: how fast a component was"),
    ("evidence", "evidence/*.json: what probes found out, plain or in an envelope"),
    ("log", "a line of log.jsonl: what happened"),
    ("seen", "ledger-seen.toml: what a host remembers outside the ledger"),
];

/// The schema of a kind of file; `None` for a word that is no kind.
#[must_use]
pub fn of(kind: &str) -> Option<Value> {
    let mut schema = match kind {
        "pin" => schema::<Pin>(),
        "upstream" => sealed(schema::<Upstream>()),
        "trust" => sealed(schema::<Keys>()),
        "revoked" => sealed(schema::<Revoked>()),
        "performance" => schema::<Record>(),
        "evidence" => evidence(),
        "log" => schema::<Entry>(),
        "seen" => sealed(seen()),
        _ => return None,
    };
    plain(&mut schema);
    Some(schema)
}

fn schema<T: JsonSchema>() -> Value {
    schemars::schema_for!(T).to_value()
}

/// With the line in front by which a file's reader knows that nobody changed it by accident.
fn sealed(mut schema: Value) -> Value {
    let seal = json!({
        "type": "string",
        "pattern": PATTERN,
        "description": "SHA-256 of all that follows this line, which is the first. `cargo xtask ledger seal` and the ledger's own commands write it.",
    });
    if let Some(schema) = schema.as_object_mut() {
        let properties = schema.entry("properties").or_insert_with(|| json!({}));
        if let Some(properties) = properties.as_object_mut() {
            let others = std::mem::take(properties);
            *properties = Map::from_iter([("seal".to_owned(), seal)]);
            properties.extend(others);
        }
        let required = schema.entry("required").or_insert_with(|| json!([]));
        if let Some(required) = required.as_array_mut() {
            required.insert(0, json!("seal"));
        }
    }
    schema
}

/// A report is a statement, or an envelope around one.
fn evidence() -> Value {
    let mut generator = schemars::SchemaGenerator::default();
    let plain = generator.subschema_for::<Statement>();
    let signed = generator.subschema_for::<Envelope>();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "report",
        "anyOf": [plain, signed],
        "$defs": generator.take_definitions(true),
    })
}

/// What is remembered of each name.
fn seen() -> Value {
    let mut generator = schemars::SchemaGenerator::default();
    let one = generator.subschema_for::<Seen>();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "what a host remembers of its ledger",
        "type": "object",
        "additionalProperties": one,
        "$defs": generator.take_definitions(true),
    })
}

/// Descriptions are for people who do not read the code: its links lead nowhere for them.
fn plain(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::String(text)) = fields.get_mut("description") {
                *text = text.replace("[`", "`").replace("`]", "`");
            }
            fields.values_mut().for_each(plain);
        }
        Value::Array(items) => items.iter_mut().for_each(plain),
        _ => {}
    }
}
