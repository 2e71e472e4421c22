//! The keywords, one group at a time.

use serde_json::{Map, Value, json};

use super::{
    Draft, Fault, Place, Rewritten, Walk, fault, join, unenforced,
    values::{constant, count, literal, number},
};
use crate::constraint::{formats, pattern};

/// Keywords that depend on other members of an object; each doubles the cases.
const DEPENDENT: usize = 4;

/// The largest multiple that is written.
const MULTIPLES: i64 = 999_999_999_999_999;

const TYPES: [&str; 6] = ["null", "boolean", "number", "string", "array", "object"];

/// In-place applicators: with one of these beside it, `unevaluated…` depends on what they saw.
const APPLICATORS: [&str; 12] = [
    "$ref",
    "$dynamicRef",
    "$recursiveRef",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "dependentSchemas",
    "dependencies",
];

type Object = Map<String, Value>;

impl<'a> Walk<'a> {
    pub(super) fn object(
        &mut self,
        object: &'a Object,
        path: &str,
        place: Place,
    ) -> Rewritten<Value> {
        let mut place = place;
        if !path.is_empty() {
            let id = if self.draft == Draft::Four { "id" } else { "$id" };
            place.foreign |=
                object.get(id).and_then(Value::as_str).is_some_and(|id| !id.starts_with('#'));
            if let Some(uri) = object.get("$schema")
                && uri.as_str().and_then(Draft::named) != Some(self.draft)
            {
                return fault(&join(path, "$schema"), "another dialect than the document's");
            }
        }
        // Before 2019-09 a reference hides whatever stands beside it.
        if self.draft <= Draft::Seven
            && let Some(reference) = object.get("$ref")
        {
            let name = self.reference(reference, &join(path, "$ref"), place)?;
            return Ok(json!({ "$ref": name }));
        }
        let mut plain = Object::new();
        let mut extra = Vec::new();
        self.types(object, path, &mut plain)?;
        self.numbers(object, path, &mut plain)?;
        self.strings(object, path, &mut plain, &mut extra)?;
        self.arrays(object, path, place, &mut plain)?;
        self.members(object, path, place, &mut plain)?;
        self.dependent(object, path, place, &mut extra)?;
        // What stands before `properties` decides the order of members before they do.
        let split = object.keys().position(|key| key == "properties").unwrap_or(0);
        let mut out = Object::new();
        for (n, (key, value)) in object.iter().enumerate() {
            if n == split {
                out.append(&mut plain);
            }
            if let Some(value) = self.applicator(key, value, object, path, place, &mut extra)? {
                out.insert(key.clone(), value);
            }
        }
        out.append(&mut plain);
        if !extra.is_empty() {
            match out.get_mut("allOf").and_then(Value::as_array_mut) {
                Some(all) => all.append(&mut extra),
                None => drop(out.insert("allOf".to_owned(), Value::Array(extra))),
            }
        }
        Ok(Value::Object(out))
    }

    /// In-place applicators and constants; none for everything else.
    fn applicator(
        &mut self,
        key: &str,
        value: &'a Value,
        object: &'a Object,
        path: &str,
        place: Place,
        extra: &mut Vec<Value>,
    ) -> Rewritten<Option<Value>> {
        let here = join(path, key);
        Ok(Some(match key {
            "$ref" => self.reference(value, &here, place)?,
            "const" => {
                constant(value, &here)?;
                value.clone()
            }
            "enum" => {
                let Some(values) = value.as_array() else { return fault(&here, "expected a list") };
                if values.is_empty() {
                    return fault(&here, "expected at least one value");
                }
                for (n, value) in values.iter().enumerate() {
                    constant(value, &join(&here, &n.to_string()))?;
                }
                value.clone()
            }
            "allOf" | "anyOf" | "oneOf" => {
                let all = self.list(value, &here, place)?;
                if all.is_empty() {
                    return fault(&here, "expected at least one schema");
                }
                Value::Array(all)
            }
            "not" => {
                match self.complement(value, &here)? {
                    Some(allowed) => extra.push(allowed),
                    None => return Ok(None),
                }
                return Ok(None);
            }
            "if" if object.contains_key("then") || object.contains_key("else") => {
                return unenforced(&here);
            }
            "$dynamicRef" | "$recursiveRef" => return unenforced(&here),
            _ => return Ok(None),
        }))
    }

    fn list(&mut self, value: &'a Value, path: &str, place: Place) -> Rewritten<Vec<Value>> {
        let Some(values) = value.as_array() else { return fault(path, "expected a list") };
        values
            .iter()
            .enumerate()
            .map(|(n, value)| self.schema(value, &join(path, &n.to_string()), place))
            .collect()
    }

    fn map(
        &mut self,
        value: &'a Value,
        path: &str,
        place: Place,
    ) -> Rewritten<Vec<(&'a String, Value)>> {
        let Some(map) = value.as_object() else { return fault(path, "expected an object") };
        map.iter()
            .map(|(key, value)| Ok((key, self.schema(value, &join(path, key), place)?)))
            .collect()
    }

    /// `not`, as far as it is another way to name types.
    fn complement(&mut self, value: &Value, path: &str) -> Rewritten<Option<Value>> {
        let object = match value {
            Value::Bool(true) => return Ok(Some(json!(false))),
            Value::Bool(false) => return Ok(None),
            Value::Object(object) => object,
            _ => return fault(path, "expected a schema: an object, true or false"),
        };
        if object.is_empty() {
            return Ok(Some(json!(false)));
        }
        let mut plain = Object::new();
        self.types(object, path, &mut plain)?;
        if object.len() > 1 {
            return unenforced(path);
        }
        let named = plain.get("type").map(|types| match types {
            Value::Array(types) => types.clone(),
            one => vec![one.clone()],
        });
        match named {
            Some(named) if !named.contains(&json!("integer")) => {
                let left: Vec<&str> =
                    TYPES.into_iter().filter(|name| !named.contains(&json!(name))).collect();
                Ok(Some(if left.is_empty() { json!(false) } else { json!({ "type": left }) }))
            }
            _ => unenforced(path),
        }
    }

    fn types(&mut self, object: &Object, path: &str, out: &mut Object) -> Rewritten<()> {
        let Some(types) = object.get("type") else { return Ok(()) };
        let path = join(path, "type");
        let known = |name: &Value| {
            name.as_str().is_some_and(|name| TYPES.contains(&name) || name == "integer")
        };
        match types {
            Value::String(_) if known(types) => {}
            Value::Array(names) if !names.is_empty() && names.iter().all(known) => {}
            _ => return fault(&path, "expected names of JSON types"),
        }
        out.insert("type".to_owned(), types.clone());
        Ok(())
    }

    fn numbers(&mut self, object: &Object, path: &str, out: &mut Object) -> Rewritten<()> {
        for (plain, exclusive) in [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")]
        {
            let bound = object.get(plain);
            if let Some(bound) = bound {
                number(bound, &join(path, plain))?;
            }
            match (object.get(exclusive), bound) {
                (None | Some(Value::Bool(false)), Some(bound)) => {
                    out.insert(plain.to_owned(), bound.clone());
                }
                (None | Some(Value::Bool(false) | Value::Bool(true)), None) => {}
                (Some(Value::Bool(true)), Some(bound)) => {
                    out.insert(exclusive.to_owned(), bound.clone());
                }
                (Some(edge), bound) => {
                    number(edge, &join(path, exclusive))?;
                    out.insert(exclusive.to_owned(), edge.clone());
                    if let Some(bound) = bound {
                        out.insert(plain.to_owned(), bound.clone());
                    }
                }
            }
        }
        if let Some(step) = object.get("multipleOf") {
            let path = join(path, "multipleOf");
            number(step, &path)?;
            if step.as_f64().is_none_or(|step| step <= 0.0) {
                return fault(&path, "expected a number above 0");
            }
            out.insert("multipleOf".to_owned(), step.clone());
            // Beyond this a reader of floats no longer sees a multiple.
            for (plain, exclusive, edge) in [
                ("minimum", "exclusiveMinimum", -MULTIPLES),
                ("maximum", "exclusiveMaximum", MULTIPLES),
            ] {
                if !out.contains_key(plain) && !out.contains_key(exclusive) {
                    out.insert(plain.to_owned(), edge.into());
                }
            }
        }
        Ok(())
    }

    fn strings(
        &mut self,
        object: &Object,
        path: &str,
        out: &mut Object,
        extra: &mut Vec<Value>,
    ) -> Rewritten<()> {
        for key in ["minLength", "maxLength"] {
            if let Some(value) = object.get(key) {
                out.insert(key.to_owned(), count(value, &join(path, key))?.into());
            }
        }
        let mut patterns = Vec::new();
        if let Some(value) = object.get("pattern") {
            patterns.push(expression(value, &join(path, "pattern"))?);
        }
        if let Some(value) = object.get("format") {
            let path = join(path, "format");
            let Some(format) = value.as_str() else { return fault(&path, "expected a string") };
            let may_be = |name: &str| match out.get("type") {
                None => true,
                Some(Value::Array(types)) => types.contains(&json!(name)),
                Some(one) => one == name,
            };
            match format {
                "int32" | "int64" if !may_be("string") => {
                    let most: i64 =
                        if format == "int32" { i32::MAX.into() } else { 9 * 10_i64.pow(18) };
                    extra.push(json!({ "minimum": -most, "maximum": most }));
                }
                "float" | "double" if !may_be("string") => {}
                _ if !may_be("string") => {}
                _ => {
                    let Some(expressions) = formats::expressions(format) else {
                        return fault(&path, format!("the format `{format}` cannot be enforced"));
                    };
                    for expression in &expressions {
                        let rewritten = pattern::translate(expression, false)
                            .map_err(|message| Fault { path: path.clone(), message })?;
                        patterns.push(rewritten);
                    }
                }
            }
        }
        let mut patterns = patterns.into_iter();
        if let Some(first) = patterns.next() {
            out.insert("pattern".to_owned(), first.into());
        }
        extra.extend(patterns.map(|pattern| json!({ "pattern": pattern })));
        Ok(())
    }

    fn arrays(
        &mut self,
        object: &'a Object,
        path: &str,
        place: Place,
        out: &mut Object,
    ) -> Rewritten<()> {
        for key in ["minItems", "maxItems"] {
            if let Some(value) = object.get(key) {
                out.insert(key.to_owned(), count(value, &join(path, key))?.into());
            }
        }
        let items = object.get("items");
        let tuple = matches!(items, Some(Value::Array(_)));
        if tuple && self.draft > Draft::Nineteen && object.contains_key("prefixItems") {
            let path = join(path, "items");
            return fault(&path, "expected a schema beside `prefixItems`, found a list");
        }
        let (prefix, rest) = match (tuple, self.draft <= Draft::Nineteen) {
            (true, _) => ("items", "additionalItems"),
            (false, true) => ("", "items"),
            (false, false) => ("prefixItems", "items"),
        };
        if let Some(value) = object.get(prefix) {
            let prefix = self.list(value, &join(path, prefix), place)?;
            if !prefix.is_empty() {
                out.insert("prefixItems".to_owned(), Value::Array(prefix));
            }
        }
        if let Some(rest) = self.rest(object, rest, "unevaluatedItems", path, place)? {
            out.insert("items".to_owned(), rest);
        }
        match object.get("uniqueItems") {
            None | Some(Value::Bool(false)) => {}
            Some(Value::Bool(true)) => {
                if out.get("maxItems").and_then(Value::as_u64).is_none_or(|most| most > 1) {
                    return unenforced(&join(path, "uniqueItems"));
                }
            }
            Some(_) => return fault(&join(path, "uniqueItems"), "expected true or false"),
        }
        if object.contains_key("contains") {
            let optional = object.get("minContains").and_then(Value::as_f64) == Some(0.0)
                && !object.contains_key("maxContains");
            if !optional {
                return unenforced(&join(path, "contains"));
            }
        }
        Ok(())
    }

    /// The schema of what is not listed, which `unevaluated…` may give too.
    fn rest(
        &mut self,
        object: &'a Object,
        key: &str,
        unevaluated: &str,
        path: &str,
        place: Place,
    ) -> Rewritten<Option<Value>> {
        let later = object.get(unevaluated).filter(|later| **later != Value::Bool(true));
        if later.is_some() && APPLICATORS.iter().any(|name| object.contains_key(*name)) {
            return unenforced(&join(path, unevaluated));
        }
        match (object.get(key), later) {
            (Some(value), _) => self.schema(value, &join(path, key), place).map(Some),
            (None, Some(value)) => self.schema(value, &join(path, unevaluated), place).map(Some),
            (None, None) => Ok(None),
        }
    }

    fn members(
        &mut self,
        object: &'a Object,
        path: &str,
        place: Place,
        out: &mut Object,
    ) -> Rewritten<()> {
        let mut properties = Object::new();
        if let Some(value) = object.get("properties") {
            for (name, schema) in self.map(value, &join(path, "properties"), place)? {
                properties.insert(name.clone(), schema);
            }
        }
        let mut patterns = Object::new();
        if let Some(value) = object.get("patternProperties") {
            let path = join(path, "patternProperties");
            for (name, schema) in self.map(value, &path, place)? {
                let pattern = pattern::translate(name, false)
                    .map_err(|message| Fault { path: join(&path, name), message })?;
                if patterns.insert(pattern, schema).is_some() {
                    return fault(&join(&path, name), "the same pattern twice");
                }
            }
        }
        let mut rest =
            self.rest(object, "additionalProperties", "unevaluatedProperties", path, place)?;
        let mut required: Vec<Value> = Vec::new();
        if let Some(value) = object.get("required") {
            let path = join(path, "required");
            let Some(names) = value.as_array() else { return fault(&path, "expected a list") };
            for name in names {
                if !name.is_string() {
                    return fault(&path, "expected names");
                }
                if !required.contains(name) {
                    required.push(name.clone());
                }
            }
        }
        if let Some(value) = object.get("propertyNames") {
            let path = join(path, "propertyNames");
            match self.names(value, &path, place)? {
                Names::Any => {}
                Names::None => drop(out.insert("maxProperties".to_owned(), 0.into())),
                Names::Listed(names) if patterns.is_empty() => {
                    for (name, schema) in &mut properties {
                        if !names.contains(name) {
                            *schema = json!(false);
                        }
                    }
                    let others: Vec<String> = names
                        .iter()
                        .filter(|name| !properties.contains_key(*name))
                        .map(|name| literal(name))
                        .collect();
                    let schema = rest.replace(json!(false)).unwrap_or(json!(true));
                    if !others.is_empty() {
                        patterns.insert(format!("^(?:{})$", others.join("|")), schema);
                    }
                }
                Names::Like(pattern) if patterns.is_empty() && properties.is_empty() => {
                    let schema = rest.replace(json!(false)).unwrap_or(json!(true));
                    patterns.insert(pattern, schema);
                }
                _ => return unenforced(&path),
            }
        }
        for key in ["minProperties", "maxProperties"] {
            let Some(value) = object.get(key) else { continue };
            let path = join(path, key);
            let bound = count(value, &path)?;
            let open = !patterns.is_empty() || rest != Some(json!(false));
            if key == "minProperties" && open && bound > required.len() as u64 + 1 {
                // A name can be said twice, which is one member for whoever reads it.
                return unenforced(&path);
            }
            let least = out.get(key).and_then(Value::as_u64).map_or(bound, |old| old.min(bound));
            out.insert(key.to_owned(), least.into());
        }
        for (key, map) in [("properties", properties), ("patternProperties", patterns)] {
            if !map.is_empty() {
                out.insert(key.to_owned(), Value::Object(map));
            }
        }
        if let Some(rest) = rest {
            out.insert("additionalProperties".to_owned(), rest);
        }
        if !required.is_empty() {
            out.insert("required".to_owned(), Value::Array(required));
        }
        Ok(())
    }

    /// What `propertyNames` says, as far as it is one list or one pattern.
    fn names(&mut self, value: &'a Value, path: &str, place: Place) -> Rewritten<Names> {
        let object = match value {
            Value::Bool(true) => return Ok(Names::Any),
            Value::Bool(false) => return Ok(Names::None),
            Value::Object(object) => object,
            _ => return fault(path, "expected a schema: an object, true or false"),
        };
        // Whatever else is wrong in it is said first.
        self.schema(value, path, place)?;
        let told: Vec<&String> = object
            .keys()
            .filter(|key| !matches!(key.as_str(), "type" | "title" | "description" | "$comment"))
            .collect();
        if object.get("type").is_some_and(|kind| kind != "string") {
            return unenforced(path);
        }
        let strings = |values: &[Value]| {
            values.iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
        };
        match told.iter().map(|key| key.as_str()).collect::<Vec<_>>().as_slice() {
            [] => Ok(Names::Any),
            ["enum"] => Ok(Names::Listed(strings(
                object.get("enum").and_then(Value::as_array).map_or(&[], Vec::as_slice),
            ))),
            ["const"] => {
                let value = object.get("const").cloned().unwrap_or_default();
                Ok(Names::Listed(strings(&[value])))
            }
            ["pattern"] => {
                let value = object.get("pattern").unwrap_or(&Value::Null);
                Ok(Names::Like(expression(value, &join(path, "pattern"))?))
            }
            _ if told.iter().all(|key| matches!(key.as_str(), "minLength" | "maxLength")) => {
                let bound = |key: &str| match object.get(key) {
                    Some(value) => count(value, &join(path, key)).map(|n| n.to_string()),
                    None => Ok(String::new()),
                };
                let (least, most) = (bound("minLength")?, bound("maxLength")?);
                let least = if least.is_empty() { "0" } else { &least };
                Ok(Names::Like(format!("^[\\x{{0}}-\\x{{10ffff}}]{{{least},{most}}}$")))
            }
            _ => unenforced(path),
        }
    }

    /// Members that ask for other members: without the one, or with the others.
    fn dependent(
        &mut self,
        object: &'a Object,
        path: &str,
        place: Place,
        extra: &mut Vec<Value>,
    ) -> Rewritten<()> {
        let mut found = 0;
        for key in ["dependentRequired", "dependentSchemas", "dependencies"] {
            let Some(value) = object.get(key) else { continue };
            let path = join(path, key);
            let Some(map) = value.as_object() else { return fault(&path, "expected an object") };
            for (name, wanted) in map {
                let here = join(&path, name);
                found += 1;
                if found > DEPENDENT {
                    return fault(&here, format!("at most {DEPENDENT} of these can be enforced"));
                }
                let with = match wanted {
                    Value::Array(names) if names.iter().all(Value::is_string) => {
                        let mut all = vec![json!(name)];
                        all.extend(names.iter().filter(|other| *other != name).cloned());
                        json!({ "required": all })
                    }
                    Value::Array(_) => return fault(&here, "expected names"),
                    schema => {
                        let schema = self.schema(schema, &here, place)?;
                        json!({ "required": [name], "allOf": [schema] })
                    }
                };
                let mut without = Object::new();
                without.insert(name.clone(), json!(false));
                extra.push(json!({ "anyOf": [{ "properties": without }, with] }));
            }
        }
        Ok(())
    }
}

/// Names that members may have.
enum Names {
    Any,
    None,
    Listed(Vec<String>),
    Like(String),
}

fn expression(value: &Value, path: &str) -> Rewritten<String> {
    let Some(text) = value.as_str() else { return fault(path, "expected a regular expression") };
    pattern::translate(text, false).map_err(|message| Fault { path: path.to_owned(), message })
}
