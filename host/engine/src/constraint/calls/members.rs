//! A tool's parameters one by one, for the shapes that write them so and not as one object.

use serde_json::{Map, Value, json};

use super::Callable;

/// One parameter.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) required: bool,
    /// Rewritten, without its definitions.
    pub(super) schema: Value,
}

/// All of them.
#[derive(Debug, Clone, Default)]
pub(super) struct Members {
    /// In the order they are written.
    pub(super) declared: Vec<Member>,
    /// What parameters that are not declared must be; none: there are no others.
    pub(super) rest: Option<Value>,
    pub(super) definitions: Map<String, Value>,
}

/// What is wrong, and where in the tool's schema.
pub(super) type Refused = (String, String);

/// Keywords of objects that only one object as a whole can be held to.
const WHOLE: [&str; 14] = [
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "enum",
    "const",
    "$ref",
    "patternProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "dependentRequired",
    "dependentSchemas",
];

impl Members {
    /// A tool's parameters, held to its schema.
    pub(super) fn of(tool: &Callable<'_>) -> Result<Self, Refused> {
        let Some(exact) = &tool.exact else { return Ok(Self::loose(tool)) };
        let mut at = String::new();
        let mut source = &tool.source;
        let mut root = &exact.schema;
        // The whole may be a reference to what has the properties.
        for _ in 0..=exact.definitions.len() {
            let Some(name) = reference(root) else { break };
            root = exact.definitions.get(name).unwrap_or(&Value::Null);
            let pointer = source.get("$ref").and_then(Value::as_str).unwrap_or_default();
            at = pointer.trim_start_matches('#').to_owned();
            source = tool.source.pointer(&at).unwrap_or(&Value::Null);
        }
        let empty = Map::new();
        let object = match root {
            Value::Object(object) => object,
            Value::Bool(true) => &empty,
            _ => return Err((at, "no call can satisfy it".to_owned())),
        };
        let kind = object.get("type");
        let is = |kind: &Value| kind == "object";
        if kind
            .is_some_and(|kind| !is(kind) && !kind.as_array().is_some_and(|all| all.iter().any(is)))
        {
            return Err((format!("{at}/type"), "arguments are an object".to_owned()));
        }
        let required: Vec<&str> = object
            .get("required")
            .and_then(Value::as_array)
            .map_or_else(Vec::new, |names| names.iter().filter_map(Value::as_str).collect());
        let rest = match object.get("additionalProperties") {
            Some(Value::Bool(false)) => None,
            Some(schema) => Some(schema.clone()),
            None => Some(json!(true)),
        };
        let mut declared = Vec::new();
        for (name, schema) in object.get("properties").and_then(Value::as_object).unwrap_or(&empty)
        {
            let required = required.contains(&name.as_str());
            match schema {
                Value::Bool(false) if required => {
                    return Err((format!("{at}/required"), format!("`{name}` may not be there")));
                }
                Value::Bool(false) => {}
                _ => declared.push(Member { name: name.clone(), required, schema: schema.clone() }),
            }
        }
        for name in &required {
            if declared.iter().any(|member| member.name == *name) {
                continue;
            }
            let Some(schema) = rest.clone() else {
                return Err((format!("{at}/required"), format!("`{name}` may not be there")));
            };
            declared.push(Member { name: (*name).to_owned(), required: true, schema });
        }
        let bound = |key: &str| object.get(key).and_then(Value::as_u64);
        let least = bound("minProperties").is_none_or(|least| least <= required.len() as u64);
        let most = bound("maxProperties")
            .is_none_or(|most| rest.is_none() && most >= declared.len() as u64);
        let bounds = |key: &&str| match *key {
            "minProperties" => !least,
            "maxProperties" => !most,
            _ => true,
        };
        if let Some(key) = WHOLE.iter().filter(|key| object.contains_key(**key)).find(|k| bounds(k))
        {
            // The rewritten schema may say with another keyword what the tool's own says.
            let own = WHOLE.iter().chain(&["dependencies", "format"]);
            let own = own.filter(|own| source.get(**own).is_some()).find(|k| bounds(k));
            let path = format!("{at}/{}", own.unwrap_or(key));
            let message = "cannot be enforced where arguments are written one by one";
            return Err((path, message.to_owned()));
        }
        Ok(Self { declared, rest, definitions: exact.definitions.clone() })
    }

    /// Some arguments: the declared ones, with any values.
    pub(super) fn loose(tool: &Callable<'_>) -> Self {
        let named = tool.source.get("properties").and_then(Value::as_object);
        let required = tool.source.get("required").and_then(Value::as_array);
        let declared = named
            .into_iter()
            .flatten()
            .map(|(name, _)| Member {
                name: name.clone(),
                required: required.is_some_and(|all| all.iter().any(|other| other == name)),
                schema: json!(true),
            })
            .collect();
        Self { declared, rest: None, definitions: Map::new() }
    }
}

/// The definition a schema is nothing but a reference to.
pub(super) fn reference(schema: &Value) -> Option<&str> {
    let object = schema.as_object().filter(|object| object.len() == 1)?;
    object.get("$ref")?.as_str()?.strip_prefix("#/$defs/")
}
