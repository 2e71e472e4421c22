//! Fields by which clients of other local servers bind an answer: vLLM's `structured_outputs` and
//! the older `guided_…`, llama-server's `grammar` and `json_schema`. Pure.

use std::fmt::Write;

use gristmill_core::{Result, request::Constraint};
use serde_json::Value;

use crate::fields::{Fields, kind, refused, wrong};

/// The answer's constraint: what `response_format` said, or one of the other servers' fields.
///
/// # Errors
/// `invalid-request` naming the field; two constraints are one too many.
pub fn decode(fields: &mut Fields, format: Option<Constraint>) -> Result<Option<Constraint>> {
    let mut found = format.map(|constraint| ("response_format".to_owned(), constraint));
    let mut add = |field: String, constraint: Option<Constraint>| match (&found, constraint) {
        (_, None) => Ok(()),
        (Some((other, _)), Some(_)) => {
            Err(wrong(&field, format!("contradicts {other}; send one of them")))
        }
        (None, Some(constraint)) => {
            found = Some((field, constraint));
            Ok(())
        }
    };
    if let Some(mut outputs) = fields.object("structured_outputs")? {
        let mut some = false;
        for word in ["json", "json_object", "regex", "choice", "grammar"] {
            let field = outputs.name(word);
            let constraint = read(&field, word, outputs.take(word))?;
            some |= constraint.is_some();
            add(field, constraint)?;
        }
        if let Some(left) = outputs.left().first() {
            return Err(refused(left, "is not supported here"));
        }
        if !some {
            return Err(wrong(
                "structured_outputs",
                "must have one of json, json_object, regex, choice, grammar",
            ));
        }
    }
    for (field, word) in [
        ("guided_json", "json"),
        ("guided_regex", "regex"),
        ("guided_choice", "choice"),
        ("guided_grammar", "grammar"),
        ("json_schema", "json"),
        ("grammar", "grammar"),
    ] {
        add(field.to_owned(), read(field, word, fields.take(field))?)?;
    }
    Ok(found.map(|(_, constraint)| constraint))
}

fn read(field: &str, word: &str, value: Option<Value>) -> Result<Option<Constraint>> {
    let expected = |what: &str, found: &Value| {
        Err(wrong(field, format!("must be {what}, got {}", kind(found))))
    };
    Ok(match (word, value) {
        (_, None) => None,
        // Clients write it in full when they do not use it.
        ("grammar", Some(Value::String(text))) if text.is_empty() => None,
        ("json_object", Some(Value::Bool(on))) => on.then_some(Constraint::JsonObject),
        ("json_object", Some(other)) => return expected("true or false", &other),
        ("json", Some(Value::String(text))) => Some(Constraint::JsonSchema(text)),
        ("json", Some(schema @ (Value::Object(_) | Value::Bool(_)))) => {
            Some(Constraint::JsonSchema(schema.to_string()))
        }
        ("json", Some(other)) => return expected("a JSON schema", &other),
        ("regex", Some(Value::String(text))) => Some(Constraint::Regex(text)),
        ("grammar", Some(Value::String(text))) => Some(Constraint::Grammar(text)),
        ("choice", Some(Value::Array(choices))) if !choices.is_empty() => {
            let mut either = Vec::with_capacity(choices.len());
            for choice in &choices {
                let Some(text) = choice.as_str() else {
                    return expected("a list of strings", choice);
                };
                either.push(text.chars().fold(String::new(), |mut out, c| {
                    // Writing to a string does not fail.
                    let _ = write!(out, "\\u{{{:x}}}", c as u32);
                    out
                }));
            }
            Some(Constraint::Regex(either.join("|")))
        }
        ("choice", Some(other)) => return expected("a list of strings that is not empty", &other),
        (_, Some(other)) => return expected("a string", &other),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_spelling_becomes_a_constraint_and_two_are_refused() {
        let schema = Constraint::JsonSchema(r#"{"z":1,"a":2}"#.into());
        for (body, expected) in [
            (json!({"structured_outputs": {"json": {"z": 1, "a": 2}}}), schema.clone()),
            (json!({"guided_json": {"z": 1, "a": 2}}), schema.clone()),
            (json!({"json_schema": {"z": 1, "a": 2}, "grammar": ""}), schema.clone()),
            (json!({"guided_json": "{\"z\":1,\"a\":2}"}), schema),
            (json!({"structured_outputs": {"json_object": true}}), Constraint::JsonObject),
            (json!({"structured_outputs": {"regex": "a+"}}), Constraint::Regex("a+".into())),
            (json!({"guided_regex": "a+"}), Constraint::Regex("a+".into())),
            (
                json!({"guided_choice": ["ä", "b."]}),
                Constraint::Regex(r"\u{e4}|\u{62}\u{2e}".into()),
            ),
            (json!({"grammar": "root ::= \"a\""}), Constraint::Grammar("root ::= \"a\"".into())),
            (json!({"guided_grammar": "start: \"a\""}), Constraint::Grammar("start: \"a\"".into())),
        ] {
            let mut fields = Fields::body(body.clone()).unwrap();
            assert_eq!(decode(&mut fields, None).unwrap(), Some(expected), "{body}");
            assert!(fields.left().is_empty(), "{body}");
        }
        for (body, field) in [
            (json!({"guided_json": 3}), "guided_json"),
            (json!({"guided_choice": []}), "guided_choice"),
            (json!({"guided_choice": [1]}), "guided_choice"),
            (json!({"grammar": "x", "guided_regex": "a"}), "grammar"),
            (json!({"structured_outputs": {}}), "structured_outputs"),
            (json!({"structured_outputs": {"regex": "a", "json": {}}}), "structured_outputs.regex"),
            (json!({"structured_outputs": {"regex": "a", "odd": 1}}), "structured_outputs.odd"),
        ] {
            let error = decode(&mut Fields::body(body.clone()).unwrap(), None).unwrap_err();
            assert!(error.details.contains(&("field".into(), field.into())), "{body}: {error:?}");
        }
        let mut fields = Fields::body(json!({"guided_regex": "a"})).unwrap();
        assert!(decode(&mut fields, Some(Constraint::JsonObject)).is_err());
        assert_eq!(
            decode(&mut Fields::body(json!({})).unwrap(), Some(Constraint::JsonObject)).unwrap(),
            Some(Constraint::JsonObject)
        );
    }
}
