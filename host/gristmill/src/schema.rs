//! The JSON Schema of every file that an operator or this program writes, from whichever room reads it.

use gristmill_api::keys::file as keys;
use gristmill_ledger::schema as ledger;
use gristmill_policies::schema as policies;
use serde_json::{Map, Value, json};

use crate::{
    backends,
    settings::{self, Kind, SETTINGS, Setting},
};

/// The kinds that are no room's alone.
const OWN: [(&str, &str); 2] = [
    ("key", "keys.toml of the host: who may come in over HTTP"),
    ("settings", "gristmill.toml: the configuration"),
];

/// Every kind of file, with what is in it.
pub(crate) fn kinds() -> impl Iterator<Item = (&'static str, &'static str)> {
    policies::KINDS.into_iter().chain(ledger::KINDS).chain(OWN)
}

/// The schema of a kind of file; `None` for a word that is no kind.
pub(crate) fn of(kind: &str) -> Option<Value> {
    policies::of(kind).or_else(|| ledger::of(kind)).or_else(|| match kind {
        "key" => Some(keys::schema()),
        "settings" => Some(settings()),
        _ => None,
    })
}

/// Made from the table that the configuration is read by.
fn settings() -> Value {
    let mut sections = Map::new();
    for section in SETTINGS.iter().map(|setting| setting.section) {
        if sections.contains_key(section) {
            continue;
        }
        let of_it = SETTINGS.iter().filter(|setting| setting.section == section);
        let properties: Map<String, Value> =
            of_it.map(|setting| (setting.key.to_owned(), property(setting))).collect();
        sections.insert(
            section.to_owned(),
            json!({ "type": "object", "properties": properties, "additionalProperties": false }),
        );
    }
    sections.insert("backends".to_owned(), backends::schema());
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "configuration",
        "type": "object",
        "properties": sections,
        "additionalProperties": false,
    })
}

fn property(setting: &Setting) -> Value {
    let (kind, more) = match setting.kind {
        Kind::Text => ("string", None),
        Kind::Count => ("integer", Some(("minimum", json!(0)))),
        Kind::Flag => ("boolean", None),
        Kind::List => ("array", Some(("items", json!({ "type": "string" })))),
    };
    let default = settings::default(setting).map(|default| ("default", default));
    let fields = [("type", json!(kind)), ("description", json!(setting.help))];
    let fields = fields.into_iter().chain(more).chain(default);
    fields.map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs};

    use super::*;

    fn value(text: &str) -> Value {
        serde_json::to_value(text.parse::<toml::Table>().unwrap()).unwrap()
    }

    #[test]
    fn every_kind_has_one_schema_that_is_one() {
        let mut names = BTreeSet::new();
        for (kind, what) in kinds() {
            assert!(names.insert(kind) && !what.is_empty(), "{kind}");
            let schema = of(kind).unwrap();
            assert!(jsonschema::meta::is_valid(&schema), "{kind}");
            assert!(schema["title"].is_string(), "{kind}");
        }
        assert!(of("kinds").is_none());
    }

    #[test]
    fn the_configuration_and_its_schema_take_the_same() {
        let schema = jsonschema::validator_for(&settings()).unwrap();
        let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../../gristmill.toml");
        assert!(schema.is_valid(&value(&fs::read_to_string(shipped).unwrap())));
        let server = "plugin = 'vllm'\nurl = 'http://h:1'\nhead-ms = 5\nkey-env = 'KEY'\n";
        for (text, fine) in [
            ("[server]\nlisten = '127.0.0.1:1'", true),
            ("[server]\nlistn = '127.0.0.1:1'", false),
            ("[server]\nlisten = 5", false),
            ("[engine]\nthreads = -1", false),
            ("[engine]\npin = 'yes'", false),
            ("[server]\ntokens = [1]", false),
            ("server = 1", false),
            ("[sever]", false),
            (&*format!("[backends.a]\n{server}"), true),
            (&*format!("[backends.'a b']\n{server}"), false),
            (&*format!("[backends.a]\n{}", server.replace("head-ms = 5", "head-ms = 0")), false),
            (&*format!("[backends.a]\n{}", server.replace("head-ms", "head_ms")), false),
            (&*format!("[backends.a]\n{}", server.replace("'vllm'", "''")), false),
            (&*format!("[backends.a]\n{}", server.replace("plugin", "#")), false),
            (&*format!("[backends.a]\n{server}key-file = 'k'"), false),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("gristmill.toml");
            fs::write(&file, text).unwrap();
            let read = settings::Settings::merge(Some(&file), |_| None, |_| None);
            assert_eq!(read.is_ok(), fine, "the reader: {text}");
            assert_eq!(schema.is_valid(&value(text)), fine, "the schema: {text}");
        }
    }
}
