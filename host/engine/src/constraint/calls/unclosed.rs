//! Schemas whose values never spell a closing tag: where JSON stands between tags, the first closing
//! tag ends it, inside a string too.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{super::schema::literal, sets::allows};

/// The definition of any value.
const ANY: &str = "any";

/// What was asked and cannot be.
pub(super) type Why = &'static str;

/// Rewrites schemas.
#[derive(Debug)]
pub(super) struct Unclosed {
    tag: String,
    /// Texts without the tag.
    pattern: String,
}

impl Unclosed {
    /// `tag` begins with `<` and has no other.
    pub(super) fn new(tag: &str) -> Self {
        let characters: Vec<char> = tag.chars().collect();
        let class = |out: &[char]| {
            let text: String = out.iter().collect();
            format!("[^{}]", literal(&text))
        };
        // What may follow a `<`: a part of the tag, and then something else than goes on with it.
        let (mut broken, mut partial) = (String::new(), String::new());
        for (n, next) in characters.iter().enumerate().skip(1).rev() {
            let next_text = literal(&next.to_string());
            let other = class(&['<', *next]);
            let last = n + 1 == characters.len();
            broken = if last { other } else { format!("(?:{other}|{next_text}{broken})") };
            partial = if last { String::new() } else { format!("(?:{next_text}{partial})?") };
        }
        let open = literal("<");
        let pattern = format!(
            "^(?:{}|(?:{open}{partial})*{open}{broken})*(?:{open}{partial})*$",
            class(&['<'])
        );
        Self { tag: tag.to_owned(), pattern }
    }

    /// A schema and its definitions.
    pub(super) fn rewrite(
        &self,
        schema: &Value,
        definitions: &Map<String, Value>,
    ) -> Result<(Value, Map<String, Value>), Why> {
        // Only what is referred to: the others may be what cannot be written between tags.
        let whole = self.schema(schema)?;
        let (mut all, mut due) = (Map::new(), referred(&whole));
        while let Some(name) = due.pop() {
            if all.contains_key(&name) || name == ANY {
                continue;
            }
            let schema = self.schema(definitions.get(&name).unwrap_or(&Value::Bool(false)))?;
            due.extend(referred(&schema));
            all.insert(name, schema);
        }
        let any = json!({ "$ref": format!("#/$defs/{ANY}") });
        all.insert(
            ANY.to_owned(),
            json!({ "anyOf": [
                { "type": ["null", "boolean", "number"] },
                { "type": "string", "pattern": self.pattern },
                { "type": "array", "items": any },
                { "type": "object", "patternProperties": { (self.pattern.as_str()): any },
                  "additionalProperties": false },
            ] }),
        );
        Ok((whole, all))
    }

    fn any() -> Value {
        json!({ "$ref": format!("#/$defs/{ANY}") })
    }

    fn schema(&self, schema: &Value) -> Result<Value, Why> {
        let object = match schema {
            Value::Bool(true) => return Ok(Self::any()),
            Value::Object(object) if object.is_empty() => return Ok(Self::any()),
            Value::Object(object) => object,
            other => return Ok(other.clone()),
        };
        if super::members::reference(schema).is_some() {
            return Ok(schema.clone());
        }
        let mut out = Map::new();
        for (key, value) in object {
            let rewritten = match key.as_str() {
                "const" | "enum" => {
                    if value.to_string().contains(&self.tag) {
                        return Err("a value spells the closing tag");
                    }
                    value.clone()
                }
                "properties" => {
                    let mut all = Map::new();
                    for (name, schema) in value.as_object().into_iter().flatten() {
                        if name.contains(&self.tag) {
                            return Err("a name spells the closing tag");
                        }
                        all.insert(name.clone(), self.schema(schema)?);
                    }
                    Value::Object(all)
                }
                "patternProperties" => return Err("patterns of names inside tags"),
                "items" | "additionalProperties" => self.schema(value)?,
                "prefixItems" | "allOf" | "anyOf" | "oneOf" => value
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|schema| self.schema(schema))
                    .collect::<Result<Vec<_>, _>>()?
                    .into(),
                _ => value.clone(),
            };
            out.insert(key.clone(), rewritten);
        }
        let kind = object.get("type");
        let told = object.contains_key("const") || object.contains_key("enum");
        if !told && allows(kind, "string") {
            if object.contains_key("pattern") {
                let all = out.entry("allOf").or_insert_with(|| json!([]));
                if let Some(all) = all.as_array_mut() {
                    all.push(json!({ "pattern": self.pattern }));
                }
            } else {
                out.insert("pattern".to_owned(), self.pattern.clone().into());
            }
        }
        if !told && allows(kind, "array") && !object.contains_key("items") {
            out.insert("items".to_owned(), Self::any());
        }
        if !told
            && allows(kind, "object")
            && object.get("additionalProperties") != Some(&json!(false))
        {
            let rest = match object.get("additionalProperties") {
                None | Some(Value::Bool(true)) => Self::any(),
                Some(schema) => self.schema(schema)?,
            };
            // A pattern that held for declared names would hold their values to it too.
            let declared = object.get("properties").and_then(Value::as_object);
            let names = match declared.filter(|declared| !declared.is_empty()) {
                Some(declared) => others(declared.keys().map(String::as_str)),
                None => self.pattern.clone(),
            };
            out.insert("patternProperties".to_owned(), json!({ names: rest }));
            out.insert("additionalProperties".to_owned(), json!(false));
        }
        Ok(Value::Object(out))
    }
}

/// Plain names but these.
fn others<'a>(names: impl Iterator<Item = &'a str>) -> String {
    /// What names are made of that nobody declared.
    const PLAIN: &str = "0-9A-Za-z_.$-";
    fn after(names: &[&str]) -> String {
        let mut next: BTreeMap<char, Vec<&str>> = BTreeMap::new();
        for name in names {
            let mut rest = name.chars();
            if let Some(first) = rest.next() {
                next.entry(first).or_default().push(rest.as_str());
            }
        }
        let first: String = next.keys().map(|c| literal(&c.to_string())).collect();
        let mut ways = vec![match first.is_empty() {
            true => format!("[{PLAIN}][{PLAIN}]*"),
            false => format!("[[{PLAIN}]--[{first}]][{PLAIN}]*"),
        }];
        ways.extend(next.iter().map(|(c, rest)| literal(&c.to_string()) + &after(rest)));
        let end = if names.contains(&"") { "" } else { "?" };
        format!("(?:{}){end}", ways.join("|"))
    }
    format!("^{}$", after(&names.collect::<Vec<_>>()))
}

/// The definitions that a schema refers to.
fn referred(schema: &Value) -> Vec<String> {
    match schema {
        Value::Object(object) => object
            .iter()
            .flat_map(|(key, value)| match (key.as_str(), value) {
                ("$ref", Value::String(name)) => {
                    name.strip_prefix("#/$defs/").map(str::to_owned).into_iter().collect()
                }
                ("const" | "enum", _) => Vec::new(),
                _ => referred(value),
            })
            .collect(),
        Value::Array(all) => all.iter().flat_map(referred).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use gristmill_models::{Gguf, Tokenizer};
    use gristmill_testing::models::{Family, Shape};
    use llguidance::{Matcher, api::TopLevelGrammar};

    use super::*;
    use crate::constraint::trie::Words;

    #[test]
    fn the_pattern_is_every_text_without_the_tag() {
        let unclosed = Unclosed::new("</a>");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("words.gguf");
        let shape = Shape { layers: 1, vocabulary: 400, ..Shape::tiny(Family::Llama) };
        gristmill_testing::models::write(&shape, "q8_0", 1, &path).unwrap();
        let tokenizer = Tokenizer::from_gguf(&Gguf::open(&path).unwrap()).unwrap();
        let words = Words::new(&tokenizer, tokenizer.ends()).unwrap();
        let pattern = unclosed.pattern.trim_start_matches('^').trim_end_matches('$');
        let grammar = TopLevelGrammar::from_lark(format!("start: /{pattern}/"));
        let whole = Matcher::new(words.factory().create_parser(grammar));
        // Every text of up to five characters over the tag's own and another.
        let mut texts = vec![String::new()];
        for _ in 0..=5 {
            for text in &texts {
                let mut matcher = whole.deep_clone();
                let tokens = tokenizer.encode(text, false).unwrap();
                let read = matcher.try_consume_tokens(&tokens).unwrap() == tokens.len();
                let taken = read && matcher.is_accepting().unwrap();
                assert_eq!(taken, !text.contains("</a>"), "{text}");
            }
            texts = texts
                .iter()
                .flat_map(|text| "</a>x".chars().map(move |c| format!("{text}{c}")))
                .collect();
        }
    }
}
