//! What a tool's schema says a parameter is: in tags all values are bare text, and only the schema
//! tells a number from a word.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{literal, shape::XML};

/// Subschemas of one tool that are looked at.
const LOOKS: u32 = 4000;
/// Subschemas inside each other.
const NESTED: u32 = 16;

/// Types a value may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Kinds(u8);

impl Kinds {
    const STRING: Self = Self(1);
    const NULL: Self = Self(2);
    const BOOLEAN: Self = Self(4);
    const INTEGER: Self = Self(8);
    const NUMBER: Self = Self(16);
    const ARRAY: Self = Self(32);
    const OBJECT: Self = Self(64);

    fn named(name: &str) -> Self {
        match name {
            "string" => Self::STRING,
            "null" => Self::NULL,
            "boolean" => Self::BOOLEAN,
            "integer" => Self::INTEGER,
            "number" => Self::NUMBER,
            "array" => Self::ARRAY,
            "object" => Self::OBJECT,
            _ => Self(0),
        }
    }

    fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::NULL,
            Value::Bool(_) => Self::BOOLEAN,
            Value::Number(number) => {
                let whole = number.as_f64().is_some_and(|number| number.fract() == 0.0);
                if whole { Self::INTEGER } else { Self::NUMBER }
            }
            Value::String(_) => Self::STRING,
            Value::Array(_) => Self::ARRAY,
            Value::Object(_) => Self::OBJECT,
        }
    }

    fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    fn admits(self, value: &Value) -> bool {
        let kind = Self::of(value);
        self.has(kind) || (kind == Self::INTEGER && self.has(Self::NUMBER))
    }

    /// Whether a value is text as it stands, unless it is null.
    pub(super) fn text(self) -> bool {
        self.0 == 0 || self.has(Self::STRING)
    }

    /// Whether it may be null.
    pub(super) fn nullable(self) -> bool {
        self.has(Self::NULL)
    }

    /// The text as JSON of one of these types, if it is any: JSON as it was written, or Python's
    /// spelling of the same.
    pub(super) fn convert(self, text: &str) -> Option<String> {
        let text = text.trim();
        let fits =
            |json: &str| serde_json::from_str::<Value>(json).is_ok_and(|value| self.admits(&value));
        if fits(text) {
            return Some(text.to_owned());
        }
        literal::convert(text).filter(|json| fits(json))
    }
}

/// A tool that may be called.
#[derive(Debug, Clone)]
pub struct Offer {
    /// Its name.
    pub name: String,
    /// Its parameters' types, as far as its schema tells.
    kinds: BTreeMap<String, Kinds>,
}

impl Offer {
    /// A tool and the JSON schema of its parameters, which is read where calls of this shape need it.
    #[must_use]
    pub fn new(shape: &str, name: &str, schema: &str) -> Self {
        if shape != XML {
            return Self { name: name.to_owned(), kinds: BTreeMap::new() };
        }
        let root: Value = serde_json::from_str(schema).unwrap_or_default();
        let mut looks = LOOKS;
        let kinds = root
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .map(|(name, schema)| (name.clone(), kinds(&root, schema, NESTED, &mut looks)))
            .collect();
        Self { name: name.to_owned(), kinds }
    }

    /// What a parameter is; none of the types for one that the schema does not name.
    pub(super) fn kinds(&self, parameter: &str) -> Kinds {
        self.kinds.get(parameter).copied().unwrap_or_default()
    }
}

/// The types a schema leaves; none of them where it does not speak of types.
fn kinds(root: &Value, schema: &Value, depth: u32, looks: &mut u32) -> Kinds {
    if depth == 0 || *looks == 0 {
        return Kinds::default();
    }
    *looks -= 1;
    let none = Kinds::default();
    let named = match schema.get("type") {
        Some(Value::String(name)) => Kinds::named(name),
        Some(Value::Array(names)) => names
            .iter()
            .filter_map(Value::as_str)
            .fold(none, |all, name| all.or(Kinds::named(name))),
        _ => none,
    };
    if named != none {
        return named;
    }
    if let Some(value) = schema.get("const") {
        return Kinds::of(value);
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return values.iter().fold(none, |all, value| all.or(Kinds::of(value)));
    }
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        let target = reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
        return target.map_or(none, |target| kinds(root, target, depth - 1, looks));
    }
    for several in ["anyOf", "oneOf"] {
        if let Some(schemas) = schema.get(several).and_then(Value::as_array) {
            return schemas
                .iter()
                .fold(none, |all, schema| all.or(kinds(root, schema, depth - 1, looks)));
        }
    }
    let all = schema.get("allOf").and_then(Value::as_array).into_iter().flatten();
    all.map(|schema| kinds(root, schema, depth - 1, looks))
        .find(|kinds| *kinds != none)
        .unwrap_or_default()
}
