//! What a tool's schema says a parameter is: in tags all values are bare text, and only the schema
//! tells a number from a word.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    literal,
    scan::Json,
    shape::{DSML, GLM, XML},
};

/// Subschemas of one tool that are looked at.
const LOOKS: u32 = 4000;
/// Subschemas inside each other.
const NESTED: u32 = 16;

/// Types a value may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Kinds(u8);

const NAMES: [(&str, Kinds); 7] = [
    ("string", Kinds::STRING),
    ("null", Kinds::NULL),
    ("boolean", Kinds::BOOLEAN),
    ("integer", Kinds::INTEGER),
    ("number", Kinds::NUMBER),
    ("array", Kinds::ARRAY),
    ("object", Kinds::OBJECT),
];

impl Kinds {
    const STRING: Self = Self(1);
    const NULL: Self = Self(2);
    const BOOLEAN: Self = Self(4);
    const INTEGER: Self = Self(8);
    const NUMBER: Self = Self(16);
    const ARRAY: Self = Self(32);
    const OBJECT: Self = Self(64);
    /// A string in quotes.
    const QUOTED: Self = Self(128);

    /// Text, whatever it reads like.
    pub(super) const TEXT: Self = Self::STRING;
    /// JSON of any type.
    pub(crate) const JSON: Self = Self(
        Self::NULL.0
            | Self::BOOLEAN.0
            | Self::INTEGER.0
            | Self::NUMBER.0
            | Self::ARRAY.0
            | Self::OBJECT.0
            | Self::QUOTED.0,
    );

    fn named(name: &str) -> Self {
        let known = NAMES.iter().find(|(known, _)| *known == name);
        known.map_or(Self(0), |(_, kind)| *kind)
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

    /// Whether a text is JSON of one of these types.
    fn admits(self, text: &str) -> bool {
        if !Json::whole(text) {
            return false;
        }
        let kind = match text.bytes().next() {
            Some(b'"') => Self::STRING.or(Self::QUOTED),
            Some(b'[') => Self::ARRAY,
            Some(b'{') => Self::OBJECT,
            Some(b'n') => Self::NULL,
            Some(b't' | b'f') => Self::BOOLEAN,
            _ if text.parse::<f64>().is_ok_and(|number| number.fract() == 0.0) => Self::INTEGER,
            _ => Self::NUMBER,
        };
        self.has(kind) || (kind == Self::INTEGER && self.has(Self::NUMBER))
    }

    /// Their names in a schema.
    pub(crate) fn names(self) -> Vec<&'static str> {
        NAMES.iter().filter(|(_, kind)| self.has(*kind)).map(|(name, _)| *name).collect()
    }

    /// Whether a value is text as it stands, unless it is null.
    pub(crate) fn text(self) -> bool {
        self.0 == 0 || self.has(Self::STRING)
    }

    /// Whether it may be null.
    pub(crate) fn nullable(self) -> bool {
        self.has(Self::NULL)
    }

    /// The text as JSON of one of these types, if it is any: JSON as it was written, or Python's
    /// spelling of the same.
    pub(super) fn convert(self, text: &str) -> Option<String> {
        let text = text.trim();
        if self.admits(text) {
            return Some(text.to_owned());
        }
        literal::convert(text).filter(|json| self.admits(json))
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
        if !matches!(shape, XML | GLM | DSML) {
            return Self { name: name.to_owned(), kinds: BTreeMap::new() };
        }
        let root: Value = serde_json::from_str(schema).unwrap_or_default();
        let mut looks = LOOKS;
        // The whole may be a reference to what has the properties.
        let mut object = &root;
        while let Some(target) = target(&root, object).filter(|_| looks > 0) {
            (object, looks) = (target, looks - 1);
        }
        let kinds = object
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .map(|(name, schema)| (name.clone(), kinds(&root, schema, NESTED, &mut looks)))
            .collect();
        Self { name: name.to_owned(), kinds }
    }

    /// What a parameter is; none of the types for one that the schema does not name.
    pub(crate) fn kinds(&self, parameter: &str) -> Kinds {
        self.kinds.get(parameter).copied().unwrap_or_default()
    }
}

/// What a schema refers to.
fn target<'a>(root: &'a Value, schema: &Value) -> Option<&'a Value> {
    let reference = schema.get("$ref")?.as_str()?;
    root.pointer(reference.strip_prefix('#')?)
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
    if schema.get("$ref").is_some() {
        return target(root, schema).map_or(none, |target| kinds(root, target, depth - 1, looks));
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
