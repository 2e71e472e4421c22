//! A JSON object being written: fields in the order in which they are set, and JSON of the caller
//! (schemas, arguments) taken over byte for byte.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use gristmill_plugin::prelude::*;
use serde::Serialize;
use serde_json::value::RawValue;

/// The object.
#[derive(Debug, Default, Clone)]
pub struct Fields(String);

impl Fields {
    /// An object without fields.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a field to JSON text.
    pub fn raw(&mut self, name: &str, json: &str) {
        self.name(name);
        self.0.push_str(json);
    }

    fn name(&mut self, name: &str) {
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        self.0.push_str(&json(&name));
        self.0.push(':');
    }

    /// Sets a field.
    pub fn set(&mut self, name: &str, value: impl Serialize) {
        self.raw(name, &json(&value));
    }

    /// Sets a field that has a value; one without is not sent.
    pub fn maybe(&mut self, name: &str, value: Option<impl Serialize>) {
        if let Some(value) = value {
            self.set(name, value);
        }
    }

    /// Sets a field to another object.
    pub fn object(&mut self, name: &str, fields: Self) {
        self.raw(name, &fields.into_json());
    }

    /// Sets a field to a list of objects.
    pub fn objects(&mut self, name: &str, items: impl IntoIterator<Item = Self>) {
        self.name(name);
        self.0.push('[');
        for (at, item) in items.into_iter().enumerate() {
            if at > 0 {
                self.0.push(',');
            }
            self.0.push_str(&item.into_json());
        }
        self.0.push(']');
    }

    /// Sets a field to bytes in base64, after a text.
    pub fn base64(&mut self, name: &str, before: &str, bytes: &[u8]) {
        self.name(name);
        self.0.push_str(&json(&before));
        self.0.pop();
        STANDARD.encode_string(bytes, &mut self.0);
        self.0.push('"');
    }

    /// Whether no field is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The JSON text.
    #[must_use]
    pub fn into_json(mut self) -> String {
        if self.0.is_empty() {
            self.0.push('{');
        }
        self.0.push('}');
        self.0
    }
}

/// A value as JSON text.
pub fn json(value: &impl Serialize) -> String {
    // Only maps with keys that are no texts fail, and nobody writes one.
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned())
}

/// JSON text of the caller, byte for byte.
///
/// # Errors
/// `invalid-request` naming the field, when it is no JSON.
pub fn checked<'t>(text: &'t str, field: &str) -> Result<&'t str> {
    match serde_json::from_str::<&RawValue>(text) {
        Ok(raw) => Ok(raw.get()),
        Err(error) => Err(Error::invalid_request(format!("{field}: expected JSON, found {error}"))
            .with("field", field)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_their_order_and_callers_json_its_bytes() {
        let mut fields = Fields::new();
        assert_eq!(fields.clone().into_json(), "{}");
        fields.set("z", 0.7_f32);
        fields.maybe("unset", None::<u32>);
        fields.raw("a", checked(" {\"y\" : 1e3, \"x\":[ ]} ", "tools").unwrap());
        fields.set("t", "é\n\"");
        fields.base64("b", "data:\";", b"png");
        let inner = |n: u32| {
            let mut inner = Fields::new();
            inner.set("n", n);
            inner
        };
        fields.objects("l", [inner(1), Fields::new(), inner(2)]);
        assert_eq!(
            fields.into_json(),
            "{\"z\":0.7,\"a\":{\"y\" : 1e3, \"x\":[ ]},\"t\":\"é\\n\\\"\",\
             \"b\":\"data:\\\";cG5n\",\"l\":[{\"n\":1},{},{\"n\":2}]}"
        );
        let error = checked("{", "tools[0].parameters").unwrap_err();
        assert_eq!(error.code, "invalid-request");
        assert!(error.message.starts_with("tools[0].parameters: expected JSON"), "{error:?}");
    }
}
