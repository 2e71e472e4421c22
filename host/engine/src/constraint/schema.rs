//! JSON Schema, checked and rewritten: what comes out says only what the grammar engine enforces
//! exactly, and what cannot be enforced is refused with the path of the keyword.
//!
//! The engine ignores some keywords and reads others loosely (an escaped spelling of a declared
//! name, a member said twice, constants beyond the precision of its numbers, `additionalItems` apart
//! from `items`). So it never sees the caller's schema, only this one: references resolved, tuples
//! and bounds in one form, annotations gone, the keywords of one type beside each other, the order
//! of `properties` kept.
//!
//! Bounds: `BYTES`, `NODES`, `NESTED`.

mod keywords;
mod values;

pub(super) use values::literal;

use gristmill_core::{Error, Result};
use indexmap::IndexMap;
use serde_json::{Map, Value, json};

/// Bytes of a schema.
const BYTES: usize = 256 * 1024;
/// Subschemas, each counted once.
const NODES: usize = 4000;
/// Subschemas inside each other, references followed once.
const NESTED: usize = 64;

/// How a document wants to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Draft {
    Four,
    Six,
    Seven,
    Nineteen,
    Twenty,
}

impl Draft {
    fn named(uri: &str) -> Option<Self> {
        let bare = uri.trim_end_matches('#').trim_end_matches('/');
        let bare = bare.strip_prefix("https://").or_else(|| bare.strip_prefix("http://"))?;
        Some(match bare.strip_prefix("json-schema.org/")? {
            "draft-04/schema" => Self::Four,
            "draft-06/schema" => Self::Six,
            "draft-07/schema" => Self::Seven,
            "draft/2019-09/schema" => Self::Nineteen,
            "draft/2020-12/schema" | "schema" => Self::Twenty,
            _ => return None,
        })
    }
}

/// A schema the engine enforces exactly.
#[derive(Debug, Clone)]
pub(super) struct Exact {
    /// Without its definitions.
    pub(super) schema: Value,
    /// What it refers to as `#/$defs/<name>`.
    pub(super) definitions: Map<String, Value>,
    /// Where each subschema came from, children before parents: to say which one the engine refuses.
    pub(super) nodes: Vec<(String, Value)>,
}

/// Checks and rewrites a schema. `field` names it in errors, `prefix` its definitions.
///
/// # Errors
/// `invalid-request` with `field` and `path`.
pub(super) fn exact(text: &str, field: &str, prefix: &str) -> Result<Exact> {
    if text.len() > BYTES {
        let message = format!("expected at most {BYTES} bytes, found {}", text.len());
        return Err(refusal(field, "", &message));
    }
    let root: Value = serde_json::from_str(text)
        .map_err(|error| refusal(field, "", &format!("expected JSON: {error}")))?;
    let mut walk = Walk {
        root: &root,
        draft: Draft::Twenty,
        id: None,
        prefix,
        names: IndexMap::new(),
        definitions: Map::new(),
        nodes: Vec::new(),
        count: 0,
    };
    let done = walk.document();
    let (definitions, nodes) = (walk.definitions, walk.nodes);
    match done {
        Ok(schema) => Ok(Exact { schema, definitions, nodes }),
        Err(fault) => Err(refusal(field, &fault.path, &fault.message)),
    }
}

/// The error for something at a path.
pub(super) fn refusal(field: &str, path: &str, message: &str) -> Error {
    let place = if path.is_empty() { "the schema" } else { path };
    Error::invalid(format!("{field}: {place}: {message}"))
        .with("field", format!("{field}{path}"))
        .with("path", path)
}

/// What is wrong, and where.
struct Fault {
    path: String,
    message: String,
}

type Rewritten<T> = std::result::Result<T, Fault>;

fn fault<T>(path: &str, message: impl Into<String>) -> Rewritten<T> {
    Err(Fault { path: path.to_owned(), message: message.into() })
}

fn unenforced<T>(path: &str) -> Rewritten<T> {
    fault(path, "cannot be enforced: leave it out, or check the answer instead")
}

/// A path one step further.
fn join(path: &str, key: &str) -> String {
    format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"))
}

struct Walk<'a> {
    root: &'a Value,
    draft: Draft,
    /// The document's own address.
    id: Option<&'a str>,
    prefix: &'a str,
    /// Definitions by the pointer they stand at.
    names: IndexMap<String, String>,
    definitions: Map<String, Value>,
    nodes: Vec<(String, Value)>,
    count: usize,
}

/// Where a subschema stands.
#[derive(Clone, Copy)]
struct Place {
    depth: usize,
    /// Under an address of its own, which references would be relative to.
    foreign: bool,
}

impl<'a> Walk<'a> {
    fn document(&mut self) -> Rewritten<Value> {
        if let Some(uri) = self.root.get("$schema") {
            match uri.as_str().and_then(Draft::named) {
                Some(draft) => self.draft = draft,
                None => return fault("/$schema", "a dialect of JSON Schema that is not known"),
            }
        }
        let id = if self.draft == Draft::Four { "id" } else { "$id" };
        self.id = self.root.get(id).and_then(Value::as_str);
        self.schema(self.root, "", Place { depth: 0, foreign: false })
    }

    fn schema(&mut self, schema: &'a Value, path: &str, place: Place) -> Rewritten<Value> {
        self.count += 1;
        if self.count > NODES {
            return fault(path, format!("expected at most {NODES} subschemas"));
        }
        if place.depth > NESTED {
            return fault(path, format!("expected at most {NESTED} subschemas inside each other"));
        }
        let object = match schema {
            Value::Bool(_) => return Ok(schema.clone()),
            Value::Object(object) => object,
            _ => return fault(path, "expected a schema: an object, true or false"),
        };
        let place = Place { depth: place.depth + 1, ..place };
        let rewritten = self.object(object, path, place)?;
        self.nodes.push((path.to_owned(), rewritten.clone()));
        Ok(rewritten)
    }

    /// The name of the definition a reference leads to.
    fn reference(&mut self, reference: &Value, path: &str, place: Place) -> Rewritten<Value> {
        let Some(text) = reference.as_str() else { return fault(path, "expected a string") };
        if place.foreign {
            return fault(path, "a reference relative to another `$id` cannot be resolved");
        }
        let own = self.id.and_then(|id| text.strip_prefix(id.trim_end_matches('#')));
        let fragment = match own.unwrap_or(text) {
            "" => "",
            rest => match rest.strip_prefix('#') {
                Some(fragment) => fragment,
                None => return fault(path, "references lead into the same document (`#/…`)"),
            },
        };
        let Some(pointer) = decoded(fragment) else {
            return fault(path, "a fragment that is no UTF-8");
        };
        if !pointer.is_empty() && !pointer.starts_with('/') {
            return fault(path, "anchors cannot be resolved: use a pointer (`#/…`)");
        }
        let Some(target) = self.root.pointer(&pointer) else {
            return fault(path, format!("nothing at `{pointer}`"));
        };
        let name = match self.names.get(&pointer) {
            Some(name) => name.clone(),
            None => {
                let name = format!("{}{}", self.prefix, self.names.len());
                self.names.insert(pointer.clone(), name.clone());
                let rewritten = self.schema(target, &pointer, place)?;
                self.definitions.insert(name.clone(), rewritten);
                name
            }
        };
        Ok(json!(format!("#/$defs/{name}")))
    }
}

/// Percent-decoding.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|d| u8::try_from(d).ok());
            bytes.push(digit(rest.next()?)? * 16 + digit(rest.next()?)?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests;
