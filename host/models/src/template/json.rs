//! JSON as Python's `json.dumps` writes it, because that is what models have seen: a space after
//! `,` and `:`, no HTML escapes, floats as Python spells them.

use std::fmt::Write as _;

use indexmap::IndexMap;
use minijinja::{Error, ErrorKind, Value, value::Kwargs, value::ValueKind};

/// How deep values may nest.
const DEPTH: usize = 256;

/// How to write.
struct Style {
    ensure_ascii: bool,
    indent: Option<String>,
    item: String,
    key: String,
    sort_keys: bool,
}

/// The `tojson` filter of `transformers`.
pub(super) fn tojson(
    value: &Value,
    ensure_ascii: Option<bool>,
    named: Kwargs,
) -> Result<String, Error> {
    let indent: Option<Value> = named.get("indent")?;
    let indent = match indent {
        None => None,
        Some(value) if value.is_none() => None,
        Some(value) => Some(match value.as_str() {
            Some(text) => text.to_owned(),
            None => " ".repeat(usize::try_from(value)?.min(32)),
        }),
    };
    let separators: Option<Vec<String>> = named.get("separators")?;
    let (item, key) = match separators.as_deref() {
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => return Err(invalid("separators are two texts")),
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    };
    let by_name: Option<bool> = named.get("ensure_ascii")?;
    let style = Style {
        ensure_ascii: by_name.or(ensure_ascii).unwrap_or(false),
        indent,
        item,
        key,
        sort_keys: named.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    named.assert_all_used()?;
    let mut out = String::new();
    write(&mut out, value, &style, 0)?;
    Ok(out)
}

/// A variable's value from text: JSON where it is JSON.
pub(super) fn parse_or_text(text: &str) -> Value {
    serde_json::from_str(text).map_or_else(|_| Value::from(text), |json| from_json(&json))
}

/// The same value for a template, the order of keys kept.
pub(super) fn from_json(json: &serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::from(()),
        serde_json::Value::Bool(flag) => Value::from(*flag),
        serde_json::Value::Number(number) => {
            if let Some(value) = number.as_i64() {
                Value::from(value)
            } else if let Some(value) = number.as_u64() {
                Value::from(value)
            } else {
                Value::from(number.as_f64().unwrap_or(f64::NAN))
            }
        }
        serde_json::Value::String(text) => Value::from(text.as_str()),
        serde_json::Value::Array(items) => items.iter().map(from_json).collect(),
        serde_json::Value::Object(map) => {
            self::map(map.iter().map(|(key, value)| (key.clone(), from_json(value))))
        }
    }
}

/// A map for a template, the order of keys kept.
pub(super) fn map(pairs: impl IntoIterator<Item = (String, Value)>) -> Value {
    let pairs = pairs.into_iter().map(|(key, value)| (Value::from(key), value));
    Value::from_object(pairs.collect::<IndexMap<Value, Value>>())
}

fn invalid(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, what.into())
}

fn write(out: &mut String, value: &Value, style: &Style, depth: usize) -> Result<(), Error> {
    if depth > DEPTH {
        return Err(invalid("a value nests too deep for JSON"));
    }
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => number(out, value),
        ValueKind::String => text(out, value.as_str().unwrap_or_default(), style.ensure_ascii),
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<Value> = value.try_iter()?.collect();
            container(out, ('[', ']'), items.len(), style, depth, |out, index| {
                items.get(index).map_or(Ok(()), |item| write(out, item, style, depth + 1))
            })?;
        }
        ValueKind::Map => {
            let mut keys: Vec<Value> = value.try_iter()?.collect();
            if style.sort_keys {
                keys.sort();
            }
            container(out, ('{', '}'), keys.len(), style, depth, |out, index| {
                let Some(key) = keys.get(index) else { return Ok(()) };
                match key.kind() {
                    ValueKind::String => {
                        text(out, key.as_str().unwrap_or_default(), style.ensure_ascii);
                    }
                    _ => {
                        let mut spelled = String::new();
                        write(&mut spelled, key, style, depth + 1)?;
                        text(out, &spelled, style.ensure_ascii);
                    }
                }
                out.push_str(&style.key);
                write(out, &value.get_item(key)?, style, depth + 1)
            })?;
        }
        kind => return Err(invalid(format!("{kind} cannot be written as JSON"))),
    }
    Ok(())
}

fn container(
    out: &mut String,
    (open, close): (char, char),
    count: usize,
    style: &Style,
    depth: usize,
    mut item: impl FnMut(&mut String, usize) -> Result<(), Error>,
) -> Result<(), Error> {
    let newline = |out: &mut String, depth: usize| {
        if let Some(indent) = &style.indent {
            out.push('\n');
            for _ in 0..depth {
                out.push_str(indent);
            }
        }
    };
    out.push(open);
    for index in 0..count {
        if index > 0 {
            out.push_str(&style.item);
        }
        newline(out, depth + 1);
        item(out, index)?;
    }
    if count > 0 {
        newline(out, depth);
    }
    out.push(close);
    Ok(())
}

fn number(out: &mut String, value: &Value) {
    if value.is_integer() {
        let _ = write!(out, "{value}");
    } else if let Ok(float) = f64::try_from(value.clone()) {
        out.push_str(&python_float(float));
    }
}

/// A float as Python's `repr` spells it.
fn python_float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..16).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", exponent.abs())
        }
        _ => {
            let plain = value.to_string();
            if plain.contains('.') { plain } else { format!("{plain}.0") }
        }
    }
}

fn text(out: &mut String, text: &str, ensure_ascii: bool) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' || (ensure_ascii && !c.is_ascii()) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_spelled_as_python_does() {
        for (value, spelled) in [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (-2.5, "-2.5"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e-5, "1.5e-05"),
            (0.0001, "0.0001"),
            (1e300, "1e+300"),
        ] {
            assert_eq!(python_float(value), spelled);
        }
    }
}
