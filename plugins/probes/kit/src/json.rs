//! Whether a JSON text satisfies a JSON Schema, for the keywords that the suite's schemas use. An
//! unknown keyword is an error: a check never passes because its schema was not understood.

use gristmill_plugin::prelude::*;
use serde_json::{Map, Value};

/// The text as JSON.
///
/// # Errors
/// Where it is none.
pub fn parse(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("{error}"))
}

/// The text as JSON that satisfies this schema.
///
/// # Errors
/// What is wrong, with its path.
pub fn check(text: &str, schema: &str) -> Result<Value, String> {
    let value = parse(text)?;
    satisfies(&value, &parse(schema)?, "$")?;
    Ok(value)
}

/// Whether a text that was cut may have been on its way to satisfy this schema, as far as its first
/// letter tells.
#[must_use]
pub fn begins(text: &str, schema: &str) -> bool {
    let Some(letter) = text.trim_start().chars().next() else { return true };
    let Ok(Value::Object(schema)) = parse(schema) else { return false };
    let spelled = |value: &Value| value.to_string().starts_with(letter);
    match (schema.get("enum").and_then(Value::as_array), schema.get("const")) {
        (Some(all), _) => all.iter().any(spelled),
        (None, Some(value)) => spelled(value),
        (None, None) => match schema.get("type").and_then(Value::as_str) {
            Some("object") => letter == '{',
            Some("array") => letter == '[',
            Some("string") => letter == '"',
            Some("boolean") => matches!(letter, 't' | 'f'),
            Some("null") => letter == 'n',
            Some("integer" | "number") => letter == '-' || letter.is_ascii_digit(),
            _ => false,
        },
    }
}

fn satisfies(value: &Value, schema: &Value, path: &str) -> Result<(), String> {
    let Value::Object(schema) = schema else {
        return Err(format!("the schema at {path} is no object"));
    };
    for (keyword, wanted) in schema {
        let fits = match &**keyword {
            "type" => wanted.as_str().is_some_and(|name| is(value, name)),
            "enum" => wanted.as_array().is_some_and(|all| all.contains(value)),
            "const" => wanted == value,
            "properties" | "required" | "additionalProperties" => {
                members(value, schema, path)?;
                true
            }
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    satisfies(item, wanted, &format!("{path}[{index}]"))?;
                }
                true
            }
            "minItems" => size(value.as_array().map(Vec::len), wanted, |found, most| found >= most),
            "maxItems" => size(value.as_array().map(Vec::len), wanted, |found, most| found <= most),
            "maxLength" => {
                let letters = value.as_str().map(|text| text.chars().count());
                size(letters, wanted, |found, most| found <= most)
            }
            "minimum" => number(value, wanted, |found, least| found >= least),
            "maximum" => number(value, wanted, |found, most| found <= most),
            other => return Err(format!("the suite does not know the keyword {other}")),
        };
        if !fits {
            return Err(format!("{path} is {value}, against {keyword} {wanted}"));
        }
    }
    Ok(())
}

fn is(value: &Value, name: &str) -> bool {
    match name {
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        // 2.0 is an integer in JSON Schema.
        "integer" => value.as_f64().is_some_and(|number| number % 1.0 == 0.0),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        _ => false,
    }
}

fn members(value: &Value, schema: &Map<String, Value>, path: &str) -> Result<(), String> {
    let Value::Object(object) = value else { return Ok(()) };
    let known = schema.get("properties").and_then(Value::as_object);
    for required in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
        let name = required.as_str().unwrap_or_default();
        if !object.contains_key(name) {
            return Err(format!("{path} lacks {name}"));
        }
    }
    for (name, member) in object {
        match known.and_then(|known| known.get(name)) {
            Some(schema) => satisfies(member, schema, &format!("{path}.{name}"))?,
            None if schema.get("additionalProperties") == Some(&Value::Bool(false)) => {
                return Err(format!("{path} has {name}, which the schema does not allow"));
            }
            None => {}
        }
    }
    Ok(())
}

/// Sizes bind values of their type only.
fn size(found: Option<usize>, wanted: &Value, holds: fn(u64, u64) -> bool) -> bool {
    match (found, wanted.as_u64()) {
        (Some(found), Some(wanted)) => holds(found as u64, wanted),
        (None, Some(_)) => true,
        (_, None) => false,
    }
}

fn number(value: &Value, wanted: &Value, holds: fn(f64, f64) -> bool) -> bool {
    match (value.as_f64(), wanted.as_f64()) {
        (Some(found), Some(wanted)) => holds(found, wanted),
        (None, Some(_)) => true,
        (_, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_takes_what_it_means_and_names_what_it_does_not() {
        let schema = r#"{"type":"object","properties":{"a":{"type":"integer","minimum":1,"maximum":3},
            "b":{"type":"array","items":{"enum":["x",null]},"minItems":1,"maxItems":2},
            "c":{"type":"string","maxLength":2}},"required":["a"],"additionalProperties":false}"#;
        for good in [r#"{"a":1}"#, r#"{"a":2.0,"b":["x",null],"c":"éé"}"#] {
            assert!(check(good, schema).is_ok(), "{good}");
        }
        for (bad, why) in [
            (r#"{"a":1"#, "EOF"),
            (r#"{"a":1} {}"#, "trailing"),
            ("[]", "$ is []"),
            ("{}", "lacks a"),
            (r#"{"a":1.5}"#, "$.a is 1.5"),
            (r#"{"a":4}"#, "maximum"),
            (r#"{"a":1,"b":[]}"#, "minItems"),
            (r#"{"a":1,"b":["x","x","x"]}"#, "maxItems"),
            (r#"{"a":1,"b":["y"]}"#, "$.b[0]"),
            (r#"{"a":1,"c":"abc"}"#, "maxLength"),
            (r#"{"a":1,"d":1}"#, "has d"),
        ] {
            let error = check(bad, schema).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
        for (text, schema, may) in [
            ("", r#"{"type":"object"}"#, true),
            (" {\"a", r#"{"type":"object"}"#, true),
            ("Sure, here is", r#"{"type":"object"}"#, false),
            ("[1", r#"{"type":"array"}"#, true),
            ("The", r#"{"type":"boolean"}"#, false),
            ("\"gr", r#"{"enum":["grün"]}"#, true),
            ("gr", r#"{"enum":["grün"]}"#, false),
            ("-", r#"{"enum":[-1,0]}"#, true),
            ("{", r#"{"const":{"a":1}}"#, true),
            ("[", r#"{"const":{"a":1}}"#, false),
            ("1", r#"{"type":"number"}"#, true),
            ("1", r#"{"minimum":1}"#, false),
            ("1", "{", false),
        ] {
            assert_eq!(begins(text, schema), may, "{text} {schema}");
        }
        assert!(check("1", r#"{"multipleOf":2}"#).is_err(), "an unknown keyword is no pass");
    }
}
