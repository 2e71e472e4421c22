//! Reading a request of the control plane: exactly its fields, each once, and nothing behind them.

use std::fmt;

use axum::{extract::Query, http::Uri};
use gristmill_core::{Error, Result as Domain};
use serde::{
    Deserialize,
    de::{DeserializeOwned, Deserializer, Error as _, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};

/// A body. The type must refuse unknown fields, and so must the types in it.
///
/// # Errors
/// `invalid-request` that names what is wrong.
pub fn json<T: DeserializeOwned>(bytes: &[u8]) -> Domain<T> {
    let Unique(value) = serde_json::from_slice(bytes)
        .map_err(|error| Error::invalid(format!("request body is not sound JSON: {error}")))?;
    serde_json::from_value(value).map_err(|error| Error::invalid(format!("request body: {error}")))
}

/// A query. The type must refuse unknown fields.
///
/// # Errors
/// `invalid-request` that names what is wrong.
pub fn query<T: DeserializeOwned>(uri: &Uri) -> Domain<T> {
    let Query(query) = Query::try_from_uri(uri)
        .map_err(|error| Error::invalid(format!("query: {}", error.body_text())))?;
    Ok(query)
}

/// A JSON value none of whose objects has a field twice. Of two fields of one name, one reader takes
/// the first and another the last.
struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader).map(Self)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("not a number"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Unique(value)) = items.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if map.contains_key(&name) {
                return Err(A::Error::custom(format!("the field {name:?} is there twice")));
            }
            let Unique(value) = fields.next_value()?;
            map.insert(name, value);
        }
        Ok(Value::Object(map))
    }
}
