//! What a schema says of strings, as a set of texts: for values that are written without quotes.

use std::{cell::Cell, collections::BTreeSet};

use serde_json::{Map, Value};

use super::lark::{ANY, spelled};

/// Schemas inside each other, references followed.
const NESTED: usize = 64;
/// Schemas that are looked at to answer one question: references make more ways through a document than
/// it has parts, and circles without end.
const LOOKS: usize = 4096;

/// A way into a schema.
#[derive(Clone, Copy)]
struct Walk<'a> {
    definitions: &'a Map<String, Value>,
    depth: usize,
    /// Schemas that may still be looked at, on all ways together.
    left: &'a Cell<usize>,
}

impl<'a> Walk<'a> {
    /// Answers a question about a schema.
    fn begin<T>(definitions: &Map<String, Value>, question: impl FnOnce(Walk<'_>) -> T) -> T {
        question(Walk { definitions, depth: NESTED, left: &Cell::new(LOOKS) })
    }

    /// One schema further; none where that is too far.
    fn deeper(self) -> Option<Self> {
        let (depth, left) = (self.depth.checked_sub(1)?, self.left.get().checked_sub(1)?);
        self.left.set(left);
        Some(Self { depth, ..self })
    }

    /// What a reference refers to.
    fn target(self, reference: &Value) -> Option<&'a Value> {
        self.definitions.get(reference.as_str()?.strip_prefix("#/$defs/")?)
    }
}

/// A set of texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Set {
    None,
    All,
    /// These.
    Words(BTreeSet<String>),
    /// As an expression of terminals.
    Some(String),
}

impl Set {
    pub(super) fn words<'a>(words: impl IntoIterator<Item = &'a str>) -> Self {
        let words: BTreeSet<String> = words.into_iter().map(str::to_owned).collect();
        if words.is_empty() { Self::None } else { Self::Words(words) }
    }

    /// The same without these.
    pub(super) fn without(self, words: &[&str]) -> Self {
        match self {
            Self::Words(all) => {
                Self::words(all.iter().map(String::as_str).filter(|word| !words.contains(word)))
            }
            set => set.and(Self::words(words.iter().copied()).not()),
        }
    }

    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::None, _) | (_, Self::None) => Self::None,
            (Self::All, set) | (set, Self::All) => set,
            (Self::Words(a), Self::Words(b)) => Self::words(a.intersection(&b).map(String::as_str)),
            (a, b) => Self::Some(format!("({} & {})", a.terminal(), b.terminal())),
        }
    }

    pub(super) fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::All, _) | (_, Self::All) => Self::All,
            (Self::None, set) | (set, Self::None) => set,
            (Self::Words(a), Self::Words(b)) => Self::words(a.union(&b).map(String::as_str)),
            (a, b) => Self::Some(format!("({} | {})", a.terminal(), b.terminal())),
        }
    }

    pub(super) fn not(self) -> Self {
        match self {
            Self::None => Self::All,
            Self::All => Self::None,
            set => Self::Some(format!("~({})", set.terminal())),
        }
    }

    fn terminal(&self) -> String {
        match self {
            Self::None => format!("~({ANY})"),
            Self::All => ANY.to_owned(),
            Self::Words(words) => {
                let words: Vec<String> = words.iter().map(|word| spelled(word)).collect();
                format!("({})", words.join(" | "))
            }
            Self::Some(expression) => expression.clone(),
        }
    }

    /// As an expression of valid text; none for no text.
    pub(super) fn expression(&self) -> Option<String> {
        match self {
            Self::None => None,
            Self::All | Self::Words(_) => Some(self.terminal()),
            Self::Some(expression) => Some(format!("({ANY} & {expression})")),
        }
    }
}

/// The strings that satisfy a rewritten schema, or the keyword that stands in the way.
pub(super) fn strings(
    schema: &Value,
    definitions: &Map<String, Value>,
) -> Result<Set, &'static str> {
    Walk::begin(definitions, |walk| within(schema, walk))
}

fn within(schema: &Value, walk: Walk<'_>) -> Result<Set, &'static str> {
    let Some(walk) = walk.deeper() else { return Err("$ref") };
    let object = match schema {
        Value::Object(object) => object,
        Value::Bool(false) => return Ok(Set::None),
        _ => return Ok(Set::All),
    };
    if !allows(object.get("type"), "string") {
        return Ok(Set::None);
    }
    let several = |key: &str| -> Result<Vec<Set>, &'static str> {
        let all = object.get(key).and_then(Value::as_array).into_iter().flatten();
        all.map(|schema| within(schema, walk)).collect()
    };
    let mut set = Set::All;
    if let Some(value) = object.get("const") {
        set = set.and(Set::words(value.as_str()));
    }
    if let Some(values) = object.get("enum").and_then(Value::as_array) {
        set = set.and(Set::words(values.iter().filter_map(Value::as_str)));
    }
    let bound = |key: &str| object.get(key).and_then(Value::as_u64);
    let (least, most) = (bound("minLength").unwrap_or(0), bound("maxLength"));
    if most.is_some_and(|most| most < least) {
        return Ok(Set::None);
    }
    if least > 0 || most.is_some() {
        let most = most.map_or_else(String::new, |most| most.to_string());
        set = set.and(Set::Some(format!("/(?s:.{{{least},{most}}})/")));
    }
    if let Some(pattern) = object.get("pattern").and_then(Value::as_str) {
        set = set.and(Set::Some(format!("/{}/", found(pattern).ok_or("pattern")?)));
    }
    if let Some(reference) = object.get("$ref") {
        set = set.and(within(walk.target(reference).ok_or("$ref")?, walk)?);
    }
    set = several("allOf")?.into_iter().fold(set, Set::and);
    if object.contains_key("anyOf") {
        set = set.and(several("anyOf")?.into_iter().fold(Set::None, Set::or));
    }
    if object.contains_key("oneOf") {
        let all = several("oneOf")?;
        let mut one = Set::None;
        for (n, own) in all.iter().enumerate() {
            let others = all.iter().enumerate().filter(|(other, _)| *other != n);
            let others = others.fold(Set::None, |any, (_, set)| any.or(set.clone()));
            one = one.or(own.clone().and(others.not()));
        }
        set = set.and(one);
    }
    Ok(set)
}

/// Whether null satisfies a rewritten schema.
pub(super) fn null(schema: &Value, definitions: &Map<String, Value>) -> bool {
    may(schema, definitions, "null")
}

/// Whether a rewritten schema itself says that values have one of these types.
pub(super) fn typed(schema: &Value, definitions: &Map<String, Value>, names: &[&str]) -> bool {
    Walk::begin(definitions, |walk| says(schema, names, walk))
}

fn says(schema: &Value, names: &[&str], walk: Walk<'_>) -> bool {
    let (Some(walk), Value::Object(object)) = (walk.deeper(), schema) else { return false };
    let named = |kind: &Value| {
        let name = kind.as_str().unwrap_or_default();
        names.contains(&name) || (name == "integer" && names.contains(&"number"))
    };
    let each = |schema: &Value| says(schema, names, walk);
    let all = |key: &str| object.get(key).and_then(Value::as_array).filter(|all| !all.is_empty());
    match object.get("type") {
        Some(Value::Array(kinds)) => return kinds.iter().all(named),
        Some(kind) => return named(kind),
        None => {}
    }
    if let Some(reference) = object.get("$ref") {
        return walk.target(reference).is_some_and(each);
    }
    ["anyOf", "oneOf"].iter().any(|key| all(key).is_some_and(|all| all.iter().all(each)))
        || all("allOf").is_some_and(|all| all.iter().any(each))
}

/// Whether a rewritten schema may let a value of this type be. There is one null, so of that it does.
pub(super) fn may(schema: &Value, definitions: &Map<String, Value>, name: &str) -> bool {
    Walk::begin(definitions, |walk| possible(schema, name, walk))
}

fn possible(schema: &Value, name: &str, walk: Walk<'_>) -> bool {
    let Some(walk) = walk.deeper() else { return false };
    let object = match schema {
        Value::Object(object) => object,
        other => return *other == Value::Bool(true),
    };
    let each = |schema: &Value| possible(schema, name, walk);
    let one = |schemas: &Vec<Value>| match schemas.iter().filter(|schema| each(schema)).count() {
        0 => false,
        // Of several each may take another value, but for null.
        count => count == 1 || name != "null",
    };
    let all = |key: &str| object.get(key).and_then(Value::as_array);
    let listed = |value: &Value| match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => value.is_number(),
    };
    let kind = object.get("type");
    (allows(kind, name) || (name == "integer" && allows(kind, "number")))
        && object.get("const").is_none_or(listed)
        && all("enum").is_none_or(|values| values.iter().any(listed))
        && all("allOf").is_none_or(|schemas| schemas.iter().all(each))
        && all("anyOf").is_none_or(|schemas| schemas.iter().any(each))
        && all("oneOf").is_none_or(one)
        && object.get("$ref").is_none_or(|it| walk.target(it).is_some_and(each))
}

/// Whether `type` lets a value be of this type.
pub(super) fn allows(types: Option<&Value>, name: &str) -> bool {
    match types {
        None => true,
        Some(Value::Array(types)) => types.iter().any(|kind| kind == name),
        Some(kind) => kind == name,
    }
}

/// A translated pattern, which is searched for, as an expression of the whole text; none where an
/// anchor stands inside it.
fn found(pattern: &str) -> Option<String> {
    let mut alternatives = vec![String::new()];
    let (mut groups, mut classes) = (0_usize, 0_usize);
    let characters: Vec<char> = pattern.chars().collect();
    for (n, c) in characters.iter().copied().enumerate() {
        match c {
            '[' => classes += 1,
            ']' => classes = classes.saturating_sub(1),
            _ if classes > 0 => {}
            '(' => groups += 1,
            ')' => groups = groups.saturating_sub(1),
            '|' if groups == 0 => {
                alternatives.push(String::new());
                continue;
            }
            '^' | '$' => {
                let before = n.checked_sub(1).and_then(|n| characters.get(n)).copied();
                let after = characters.get(n + 1).copied();
                let edge = if c == '^' { before } else { after };
                if groups > 0 || !matches!(edge, None | Some('|')) {
                    return None;
                }
            }
            _ => {}
        }
        alternatives.last_mut()?.push(c);
    }
    let whole: Vec<String> = alternatives
        .iter()
        .map(|text| {
            let (text, first) =
                text.strip_prefix('^').map_or((text.as_str(), true), |t| (t, false));
            let (text, last) = text.strip_suffix('$').map_or((text, true), |t| (t, false));
            let free = |is: bool| if is { "(?s:.*)" } else { "" };
            format!("{}(?:{text}){}", free(first), free(last))
        })
        .collect();
    Some(format!("(?:{})", whole.join("|")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pattern_is_found_anywhere_but_at_its_anchors() {
        for (pattern, whole) in [
            ("ab", Some("(?:(?s:.*)(?:ab)(?s:.*))")),
            ("^a|b$", Some("(?:(?:a)(?s:.*)|(?s:.*)(?:b))")),
            ("^(?:a|b)$", Some("(?:(?:(?:a|b)))")),
            ("^[^a-z|(]$", Some("(?:(?:[^a-z|(]))")),
            ("", Some("(?:(?s:.*)(?:)(?s:.*))")),
            ("(?:^a|b)", None),
            ("a^b", None),
            ("a$b", None),
        ] {
            assert_eq!(found(pattern).as_deref(), whole, "{pattern}");
        }
    }

    #[test]
    fn types_and_constants_decide_what_is_left_of_strings() {
        let definitions = json!({ "word": { "type": "string" } });
        let definitions = definitions.as_object().unwrap();
        let one = |text: &str| Set::words([text]);
        for (schema, set, nulls) in [
            (json!(true), Set::All, true),
            (json!(false), Set::None, false),
            (json!({ "type": ["string", "null"] }), Set::All, true),
            (json!({ "type": "integer" }), Set::None, false),
            (json!({ "enum": ["a", 1, null] }), one("a"), true),
            (json!({ "const": "a" }), one("a"), false),
            (json!({ "$ref": "#/$defs/word" }), Set::All, false),
            (json!({ "anyOf": [{ "const": "a" }, { "type": "null" }] }), one("a"), true),
            (json!({ "allOf": [{ "const": "a" }, { "type": "null" }] }), Set::None, false),
            (json!({ "oneOf": [{ "type": "string" }, {}] }), Set::None, true),
            (json!({ "oneOf": [{ "type": "null" }, {}] }), Set::All, false),
            (json!({ "maxLength": 1, "minLength": 2 }), Set::None, true),
        ] {
            assert_eq!(strings(&schema, definitions), Ok(set), "{schema}");
            assert_eq!(null(&schema, definitions), nulls, "{schema}");
        }
        for (schema, name, possible) in [
            (json!({ "type": "number" }), "integer", true),
            (json!({ "type": "integer" }), "number", false),
            (json!({ "enum": ["a", 1.5] }), "number", true),
            (json!({ "enum": ["a", "b"] }), "array", false),
            (json!({ "$ref": "#/$defs/word" }), "object", false),
            (json!({ "anyOf": [{ "const": "a" }, { "type": "array" }] }), "array", true),
            (json!({ "allOf": [{ "type": "array" }, { "maxLength": 1 }] }), "object", false),
            (json!({ "oneOf": [{ "minimum": 2 }, { "maximum": 1 }] }), "number", true),
        ] {
            assert_eq!(may(&schema, definitions, name), possible, "{schema} {name}");
        }
        let circle = json!({ "a": { "anyOf": [{ "$ref": "#/$defs/a" }] } });
        let circle = circle.as_object().unwrap();
        assert_eq!(strings(&json!({ "$ref": "#/$defs/a" }), circle), Err("$ref"));
        assert!(!null(&json!({ "$ref": "#/$defs/a" }), circle));
    }

    /// Eight ways at every step, in a circle or forty steps long: an answer all the same, and at once.
    #[test]
    fn a_question_ends_however_many_ways_there_are() {
        let all = |key: &str, to: &str| {
            let one = json!({ "$ref": format!("#/$defs/{to}") });
            json!({ key: vec![one; 8] })
        };
        for key in ["anyOf", "oneOf", "allOf"] {
            let mut circle = all(key, "0");
            circle["type"] = json!(["string", "null", "array"]);
            let circle = Map::from_iter([("0".to_owned(), circle)]);
            let long = (0..40).map(|n| (n.to_string(), all(key, &(n + 1).to_string())));
            let long: Map<String, Value> =
                long.chain([("40".to_owned(), json!({ "type": "integer" }))]).collect();
            for definitions in [&circle, &long] {
                let schema = json!({ "$ref": "#/$defs/0" });
                assert!(!null(&schema, definitions));
                assert!(!may(&schema, definitions, "array"));
                typed(&schema, definitions, &["integer"]);
                let strings = strings(&schema, definitions);
                assert!(matches!(strings, Err("$ref") | Ok(Set::None)), "{key}: {strings:?}");
            }
        }
    }
}
