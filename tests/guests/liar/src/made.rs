//! A value for a JSON Schema, for the keywords that the suite uses.

use serde_json::{Map, Value, json};

/// The first value that comes to mind; none where the schema is none.
pub(crate) fn value(schema: &Value) -> Option<Value> {
    let schema = schema.as_object()?;
    if let Some(all) = schema.get("enum") {
        return all.as_array()?.first().cloned();
    }
    if let Some(constant) = schema.get("const") {
        return Some(constant.clone());
    }
    match schema.get("type")?.as_str()? {
        "object" => {
            let mut object = Map::new();
            for (name, schema) in schema.get("properties").and_then(Value::as_object)? {
                object.insert(name.clone(), value(schema)?);
            }
            Some(Value::Object(object))
        }
        "array" => {
            let count = schema.get("minItems").and_then(Value::as_u64).unwrap_or(0);
            (0..count).map(|_| value(schema.get("items")?)).collect::<Option<_>>().map(Value::Array)
        }
        "string" => Some(json!("s")),
        "boolean" => Some(json!(true)),
        "integer" | "number" => Some(json!(1)),
        "null" => Some(Value::Null),
        _ => None,
    }
}

/// The same without what a careless "if it is there" takes for nothing.
pub(crate) fn without_falsy(value: &Value) -> Value {
    let kept = |value: &Value| match value {
        Value::Bool(yes) => *yes,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
        Value::Null => true,
    };
    match value {
        Value::Object(object) => {
            Value::Object(object.clone().into_iter().filter(|(_, member)| kept(member)).collect())
        }
        other => other.clone(),
    }
}

/// The same with every value in it a string, as a careless template makes it.
pub(crate) fn stringly(value: &Value) -> Value {
    match value {
        Value::Object(object) => Value::Object(
            object.iter().map(|(name, member)| (name.clone(), as_string(member))).collect(),
        ),
        other => other.clone(),
    }
}

fn as_string(value: &Value) -> Value {
    match value {
        Value::String(_) => value.clone(),
        other => Value::String(other.to_string()),
    }
}
