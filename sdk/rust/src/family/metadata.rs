//! Reading a model's metadata. Every getter names the key it misses. In keys, `{arch}` stands for
//! the model's architecture, as it does in GGUF's own documentation.

use alloc::{
    borrow::{Cow, ToOwned},
    format,
    string::{String, ToString},
    vec::Vec,
};

use super::{Metadata, TensorInfo, Value};
use crate::{Error, Result};

impl Metadata {
    /// Metadata of a made-up model, for tests.
    pub fn new(architecture: impl Into<String>) -> Self {
        let architecture = architecture.into();
        let name = Value::Text(architecture.clone());
        Self {
            architecture,
            keys: alloc::vec![("general.architecture".to_owned(), name)],
            tensors: Vec::new(),
        }
    }

    /// The same metadata with one more key, or another value for it.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        let key = self.spelled(key).into_owned();
        self.keys.retain(|(known, _)| *known != key);
        self.keys.push((key, value.into()));
        self
    }

    /// The same metadata with one more tensor; `shape` as in GGUF, inputs first.
    #[must_use]
    pub fn with_tensor(mut self, name: impl Into<String>, shape: &[u64]) -> Self {
        let element = "F32".to_owned();
        self.tensors.push(TensorInfo { name: name.into(), shape: shape.to_owned(), element });
        self
    }

    /// The value of a key, whatever its type.
    #[must_use]
    pub fn find(&self, key: &str) -> Option<&Value> {
        let key = self.spelled(key);
        self.keys.iter().find(|(known, _)| *known == key).map(|(_, value)| value)
    }

    /// A whole number that must be there.
    ///
    /// # Errors
    /// `invalid-request` naming the key: it is missing, no whole number, or too large.
    pub fn u32(&self, key: &str) -> Result<u32> {
        self.find_u32(key)?.ok_or_else(|| self.missing(key))
    }

    /// A whole number that may be there.
    ///
    /// # Errors
    /// `invalid-request` naming the key: it is no whole number, or too large.
    pub fn find_u32(&self, key: &str) -> Result<Option<u32>> {
        match self.find(key) {
            None => Ok(None),
            Some(Value::Int(number)) => match u32::try_from(*number) {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(self.unfit(key, "a number from 0 to 4294967295", number)),
            },
            Some(other) => Err(self.unfit(key, "a whole number", kind(other))),
        }
    }

    /// A whole number of one layer: the key has one number for all layers, or a list.
    ///
    /// # Errors
    /// `invalid-request` naming the key: it is no list of whole numbers, or it ends before the layer.
    pub fn find_u32_at(&self, key: &str, layer: u32) -> Result<Option<u32>> {
        let Some(Value::Ints(list)) = self.find(key) else { return self.find_u32(key) };
        let number = usize::try_from(layer).ok().and_then(|layer| list.get(layer));
        match number.and_then(|number| u32::try_from(*number).ok()) {
            Some(number) => Ok(Some(number)),
            None => {
                let wanted = format!("a number from 0 to 4294967295 for layer {layer}");
                Err(self.unfit(key, &wanted, format!("a list of {} whole numbers", list.len())))
            }
        }
    }

    /// A number that must be there.
    ///
    /// # Errors
    /// `invalid-request` naming the key: it is missing or no finite number.
    pub fn f64(&self, key: &str) -> Result<f64> {
        self.find_f64(key)?.ok_or_else(|| self.missing(key))
    }

    /// A number that may be there.
    ///
    /// # Errors
    /// `invalid-request` naming the key: it is no finite number.
    pub fn find_f64(&self, key: &str) -> Result<Option<f64>> {
        match self.find(key) {
            None => Ok(None),
            Some(Value::Float(number)) if number.is_finite() => Ok(Some(*number)),
            #[allow(clippy::cast_precision_loss, reason = "settings are small numbers")]
            Some(Value::Int(number)) => Ok(Some(*number as f64)),
            Some(other) => Err(self.unfit(key, "a finite number", kind(other))),
        }
    }

    /// A text that may be there.
    ///
    /// # Errors
    /// `invalid-request` naming the key: it is no text.
    pub fn find_text(&self, key: &str) -> Result<Option<&str>> {
        match self.find(key) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(other) => Err(self.unfit(key, "a text", kind(other))),
        }
    }

    /// A truth value that may be there.
    ///
    /// # Errors
    /// `invalid-request` naming the key: it is no truth value.
    pub fn find_flag(&self, key: &str) -> Result<Option<bool>> {
        match self.find(key) {
            None => Ok(None),
            Some(Value::Flag(flag)) => Ok(Some(*flag)),
            Some(other) => Err(self.unfit(key, "true or false", kind(other))),
        }
    }

    /// The chat template in the file; empty if there is none.
    ///
    /// # Errors
    /// `invalid-request` if the key is no text.
    pub fn template(&self) -> Result<&str> {
        Ok(self.find_text("tokenizer.chat_template")?.unwrap_or_default())
    }

    /// A tensor by its whole name.
    #[must_use]
    pub fn find_tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.iter().find(|tensor| tensor.name == name)
    }

    /// A tensor that must be there.
    ///
    /// # Errors
    /// `invalid-request` naming the tensor.
    pub fn tensor(&self, name: &str) -> Result<&TensorInfo> {
        self.find_tensor(name).ok_or_else(|| {
            Error::invalid_request(format!(
                "the model has no tensor {name}, which architecture {} needs",
                self.architecture
            ))
            .with("tensor", name)
        })
    }

    fn spelled<'k>(&self, key: &'k str) -> Cow<'k, str> {
        if key.contains("{arch}") {
            Cow::Owned(key.replace("{arch}", &self.architecture))
        } else {
            Cow::Borrowed(key)
        }
    }

    fn missing(&self, key: &str) -> Error {
        let key = self.spelled(key);
        Error::invalid_request(format!("the model's metadata lacks {key}")).with("field", key)
    }

    fn unfit(&self, key: &str, wanted: &str, found: impl ToString) -> Error {
        let (key, found) = (self.spelled(key), found.to_string());
        Error::invalid_request(format!("{key} should be {wanted}, found {found}"))
            .with("field", key)
    }
}

fn kind(value: &Value) -> String {
    match value {
        Value::Int(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Flag(flag) => flag.to_string(),
        Value::Text(_) => "a text".to_owned(),
        Value::Ints(list) => format!("a list of {} whole numbers", list.len()),
        Value::Floats(list) => format!("a list of {} numbers", list.len()),
        Value::Texts(list) => format!("a list of {} texts", list.len()),
        Value::Long(length) => format!("a list of {length}"),
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Int(i64::from(number))
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Float(number)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}
