//! Grammars of calls in Python's spelling (`pythonic`).
//!
//! A value is written in Python's way where its schema is plain, and as JSON, which the same models
//! write too and the parser reads, where it is not.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{
    Callable, Spelling,
    lark::{Lark, spelled},
    members::{Members, Refused, reference},
};
use crate::text::letter;

/// One character of a string in either quote.
const DOUBLE: &str = r#"(?:[^\x22\x5c\x00-\x1f]|\x5c[nrtbf\x22\x27\x5c])"#;
const SINGLE: &str = r#"(?:[^\x27\x5c\x00-\x1f]|\x5c[nrtbf\x22\x27\x5c])"#;

/// The rule of one list of calls.
pub(super) fn rules(
    tools: &[Callable<'_>],
    parallel: bool,
    spelling: &Spelling<'_>,
) -> gristmill_core::Result<Lark> {
    let mut lark = Lark::default();
    lark.rule("SEP", r"/,[ \n\t]{0,4}/");
    lark.rule("COLON", r"/:[ ]?/");
    let mut all = Vec::new();
    for tool in tools {
        tool.named(|name| !name.is_empty() && name.chars().all(letter))?;
        all.push(tool.held(&mut lark, |lark, members| call(lark, tool, members))?);
    }
    let call = all.join(" | ");
    let more = if parallel { format!("(SEP ({call}))*") } else { String::new() };
    lark.rule("one", &format!("(WS)? /\\[/ ({call}) {more} /\\]/ {}", spelling.close()));
    Ok(lark)
}

fn call(lark: &mut Lark, tool: &Callable<'_>, members: &Members) -> Result<String, Refused> {
    let mut items = Vec::new();
    for member in &members.declared {
        if member.name.is_empty() || !member.name.chars().all(letter) {
            let path = format!("/properties/{}", member.name.replace('~', "~0").replace('/', "~1"));
            return Err((path, "the name cannot be a keyword of a call".to_owned()));
        }
        let value = value(lark, &member.schema, &members.definitions);
        items.push((format!("{} {value}", spelled(&format!("{}=", member.name))), member.required));
    }
    let more = members.rest.as_ref().map(|rest| {
        let value = value(lark, rest, &members.definitions);
        let own: Vec<String> = members.declared.iter().map(|m| spelled(&m.name)).collect();
        let other =
            if own.is_empty() { String::new() } else { format!(" & ~({})", own.join(" | ")) };
        let name = lark.name("KEY");
        lark.rule(&name, &format!("(/[A-Za-z_][0-9A-Za-z_]{{0,63}}/{other}) /=/"));
        format!("{name} {value}")
    });
    let arguments = lark.sequence(&items, more.as_deref(), "SEP");
    Ok(lark.add("call", &format!("{} {arguments} /\\)/", spelled(&format!("{}(", tool.name)))))
}

fn value(lark: &mut Lark, schema: &Value, definitions: &Map<String, Value>) -> String {
    let mut writer = Writer { lark: lark.clone(), definitions, names: BTreeMap::new(), any: None };
    if let Some(rule) = writer.value(schema) {
        *lark = writer.lark;
        return rule;
    }
    lark.json(schema, definitions)
}

/// Writes a schema as rules, as long as it is plain.
struct Writer<'a> {
    lark: Lark,
    definitions: &'a Map<String, Value>,
    /// The rules of definitions.
    names: BTreeMap<String, String>,
    any: Option<String>,
}

impl Writer<'_> {
    /// A rule or terminal; none: it is not plain.
    fn value(&mut self, schema: &Value) -> Option<String> {
        let object = match schema {
            Value::Bool(true) => return Some(self.any()),
            Value::Object(object) if object.is_empty() => return Some(self.any()),
            Value::Object(object) => object,
            _ => return None,
        };
        if let Some(name) = reference(schema) {
            if let Some(rule) = self.names.get(name) {
                return Some(rule.clone());
            }
            let rule = self.lark.name("value");
            self.names.insert(name.to_owned(), rule.clone());
            let body = self.value(self.definitions.get(name)?)?;
            self.lark.rule(&rule, &body);
            return Some(rule);
        }
        let only = |keys: &[&str]| object.keys().all(|key| keys.contains(&key.as_str()));
        if let Some(all) =
            object.get("anyOf").and_then(Value::as_array).filter(|_| only(&["anyOf"]))
        {
            let all: Option<Vec<String>> = all.iter().map(|schema| self.value(schema)).collect();
            return Some(format!("({})", all?.join(" | ")));
        }
        if let Some(one) = object.get("const") {
            return constant(one).filter(|_| only(&["const", "type"]) && fits(object, one));
        }
        if let Some(all) = object.get("enum").and_then(Value::as_array) {
            let all = all.iter().filter(|value| fits(object, value)).map(constant);
            let all: Option<Vec<String>> = all.collect();
            let all = all.filter(|all| only(&["enum", "type"]) && !all.is_empty())?;
            return Some(format!("({})", all.join(" | ")));
        }
        match object.get("type")? {
            Value::String(kind) => self.typed(kind, object),
            Value::Array(kinds) => {
                let kinds = kinds.iter().filter_map(Value::as_str);
                let all: Option<Vec<String>> = kinds.map(|kind| self.typed(kind, object)).collect();
                Some(format!("({})", all?.join(" | ")))
            }
            _ => None,
        }
    }

    fn typed(&mut self, kind: &str, object: &Map<String, Value>) -> Option<String> {
        let without = |keys: &[&str]| !keys.iter().any(|key| object.contains_key(*key));
        if !without(&["allOf", "anyOf", "oneOf", "$ref"]) {
            return None;
        }
        let bound = |key: &str| object.get(key).and_then(Value::as_u64);
        match kind {
            "null" => Some("(/None/ | /null/)".to_owned()),
            "boolean" => Some("(/[tT]rue/ | /[fF]alse/)".to_owned()),
            "integer" | "number" => {
                let free = without(&[
                    "minimum",
                    "maximum",
                    "exclusiveMinimum",
                    "exclusiveMaximum",
                    "multipleOf",
                ]);
                let whole = "-?(?:0|[1-9][0-9]*)";
                let number = match kind {
                    "integer" => format!("/{whole}/"),
                    _ => format!(r"/{whole}(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/"),
                };
                free.then_some(number)
            }
            "string" => {
                if !without(&["pattern"]) {
                    return None;
                }
                let (least, most) = (bound("minLength").unwrap_or(0), bound("maxLength"));
                if most.is_some_and(|most| most < least) {
                    return None;
                }
                let most = most.map_or_else(String::new, |most| most.to_string());
                let count = format!("{{{least},{most}}}");
                Some(format!(r"(/\x22{DOUBLE}{count}\x22/ | /\x27{SINGLE}{count}\x27/)"))
            }
            "array" => self.array(object),
            "object" => self.object(object),
            _ => None,
        }
    }

    fn array(&mut self, object: &Map<String, Value>) -> Option<String> {
        if object.contains_key("prefixItems") {
            return None;
        }
        let item = match object.get("items") {
            Some(Value::Bool(false)) => return None,
            Some(items) => self.value(items)?,
            None => self.any(),
        };
        let bound = |key: &str| object.get(key).and_then(Value::as_u64);
        let (least, most) = (bound("minItems").unwrap_or(0), bound("maxItems"));
        let more = match most {
            Some(0) => return (least == 0).then(|| r"/\[\]/".to_owned()),
            Some(most) if most < least => return None,
            Some(1) => String::new(),
            Some(most) => format!("(SEP {item}){{{},{}}}", least.saturating_sub(1), most - 1),
            None => format!("(SEP {item}){{{},}}", least.saturating_sub(1)),
        };
        let items = format!("{item} {more}");
        let items = if least == 0 { format!("({items})?") } else { items };
        Some(self.lark.add("array", &format!(r"/\[/ {items} /\]/")))
    }

    fn object(&mut self, object: &Map<String, Value>) -> Option<String> {
        if ["patternProperties", "minProperties", "maxProperties"]
            .iter()
            .any(|key| object.contains_key(*key))
        {
            return None;
        }
        let required = object.get("required").and_then(Value::as_array);
        let required: Vec<&str> =
            required.into_iter().flatten().filter_map(Value::as_str).collect();
        let empty = Map::new();
        let declared = object.get("properties").and_then(Value::as_object).unwrap_or(&empty);
        if required.iter().any(|name| !declared.contains_key(*name)) {
            return None;
        }
        let mut items = Vec::new();
        for (name, schema) in declared {
            let value = self.value(schema)?;
            let key = constant(&json!(name))?;
            items.push((format!("{key} COLON {value}"), required.contains(&name.as_str())));
        }
        let more = match object.get("additionalProperties") {
            Some(Value::Bool(false)) => None,
            Some(schema) => Some(self.value(schema)?),
            None => Some(self.any()),
        };
        let more = more.map(|value| {
            let own: Vec<String> = declared.keys().map(|name| spelled(name)).collect();
            let other =
                if own.is_empty() { String::new() } else { format!(" & ~({})", own.join(" | ")) };
            let key = self.lark.name("KEY");
            // One spelling each, so that no declared name can be said in another.
            let plain = r"/[^\x22\x27\x5c\x00-\x1f]{0,64}/";
            let body =
                format!(r"(/\x22/ ({plain}{other}) /\x22/) | (/\x27/ ({plain}{other}) /\x27/)");
            self.lark.rule(&key, &body);
            format!("{key} COLON {value}")
        });
        let members = self.lark.sequence(&items, more.as_deref(), "SEP");
        Some(self.lark.add("object", &format!(r"/\{{/ {members} /\}}/")))
    }

    /// Any value.
    fn any(&mut self) -> String {
        if let Some(rule) = &self.any {
            return rule.clone();
        }
        let rule = self.lark.name("any");
        self.any = Some(rule.clone());
        let mut of = |kind: &str| {
            let schema = json!({ "type": kind });
            let object = schema.as_object().cloned().unwrap_or_default();
            self.typed(kind, &object)
        };
        let kinds = ["null", "boolean", "number", "string", "array", "object"];
        let all: Vec<String> = kinds.iter().filter_map(|kind| of(kind)).collect();
        self.lark.rule(&rule, &all.join(" | "));
        rule
    }
}

/// A constant that is no list and no object, in every spelling; a string in either quote.
fn constant(value: &Value) -> Option<String> {
    Some(match value {
        Value::Null => "(/None/ | /null/)".to_owned(),
        Value::Bool(true) => "/[tT]rue/".to_owned(),
        Value::Bool(false) => "/[fF]alse/".to_owned(),
        Value::Number(number) => spelled(&number.to_string()),
        Value::String(text) => {
            let double = Value::from(text.as_str()).to_string();
            let inner = double.get(1..double.len() - 1).unwrap_or_default();
            let single = inner.replace("\\\"", "\"").replace('\'', "\\'");
            format!("({} | {})", spelled(&double), spelled(&format!("'{single}'")))
        }
        Value::Array(_) | Value::Object(_) => return None,
    })
}

/// Whether a constant has one of the types its schema names.
fn fits(object: &Map<String, Value>, value: &Value) -> bool {
    let name = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let whole = value.as_f64().is_some_and(|number| number.fract() == 0.0);
    super::sets::allows(object.get("type"), name)
        || (whole && super::sets::allows(object.get("type"), "integer"))
}
