//! Writing GGUF, version 3: what an import of another format becomes.
//!
//! Sizes and order are known before the first byte, so tensors stream through. Refused: a tensor
//! whose writer does not give exactly the bytes it announced.

use std::{
    io::{self, Write},
    path::Path,
};

use crate::{ModelError, Result};

const ALIGNMENT: u64 = 32;

/// A metadata value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A 32-bit count.
    U32(u32),
    /// A 32-bit float.
    F32(f32),
    /// A truth value.
    Bool(bool),
    /// A text.
    Text(String),
    /// Texts.
    Texts(Vec<String>),
    /// 32-bit integers.
    Ints(Vec<i32>),
}

/// A tensor to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Fastest-varying first.
    pub shape: Vec<u64>,
    /// The element type's id.
    pub ggml_type: u32,
    /// Bytes.
    pub length: u64,
}

/// Everything before the first tensor's bytes.
#[must_use]
pub fn header(keys: &[(String, Value)], tensors: &[Entry]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(b"GGUF");
    out.extend(3_u32.to_le_bytes());
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((keys.len() as u64).to_le_bytes());
    for (key, value) in keys {
        text(&mut out, key);
        put(&mut out, value);
    }
    let mut offset = 0_u64;
    for tensor in tensors {
        text(&mut out, &tensor.name);
        out.extend((tensor.shape.len() as u32).to_le_bytes());
        tensor.shape.iter().for_each(|extent| out.extend(extent.to_le_bytes()));
        out.extend(tensor.ggml_type.to_le_bytes());
        out.extend(offset.to_le_bytes());
        offset += tensor.length.next_multiple_of(ALIGNMENT);
    }
    out.resize(out.len().next_multiple_of(ALIGNMENT as usize), 0);
    out
}

fn put(out: &mut Vec<u8>, value: &Value) {
    let array = |out: &mut Vec<u8>, kind: u32, length: usize| {
        out.extend(9_u32.to_le_bytes());
        out.extend(kind.to_le_bytes());
        out.extend((length as u64).to_le_bytes());
    };
    match value {
        Value::U32(value) => {
            out.extend(4_u32.to_le_bytes());
            out.extend(value.to_le_bytes());
        }
        Value::F32(value) => {
            out.extend(6_u32.to_le_bytes());
            out.extend(value.to_le_bytes());
        }
        Value::Bool(value) => {
            out.extend(7_u32.to_le_bytes());
            out.push(u8::from(*value));
        }
        Value::Text(value) => {
            out.extend(8_u32.to_le_bytes());
            text(out, value);
        }
        Value::Texts(values) => {
            array(out, 8, values.len());
            values.iter().for_each(|value| text(out, value));
        }
        Value::Ints(values) => {
            array(out, 5, values.len());
            values.iter().for_each(|value| out.extend(value.to_le_bytes()));
        }
    }
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// Writes a whole file. `payload` is asked for each tensor in order and writes its bytes.
///
/// # Errors
/// The writer's, `payload`'s, or that a tensor has another length than announced.
pub fn write<W: Write>(
    to: &Path,
    mut out: W,
    keys: &[(String, Value)],
    tensors: &[Entry],
    mut payload: impl FnMut(usize, &mut dyn Write) -> Result<()>,
) -> Result<W> {
    let failed = |source: io::Error| ModelError::Io { file: to.to_owned(), source };
    out.write_all(&header(keys, tensors)).map_err(failed)?;
    for (index, tensor) in tensors.iter().enumerate() {
        let mut counted = Counted { inner: &mut out, written: 0 };
        payload(index, &mut counted)?;
        if counted.written != tensor.length {
            return Err(ModelError::malformed(
                to,
                format!("tensor {}", tensor.name),
                format!("{} bytes", tensor.length),
                counted.written,
            ));
        }
        let padding = tensor.length.next_multiple_of(ALIGNMENT) - tensor.length;
        out.write_all(&vec![0; padding as usize]).map_err(failed)?;
    }
    out.flush().map_err(failed)?;
    Ok(out)
}

struct Counted<W> {
    inner: W,
    written: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.written += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::{Entry, Value, write};
    use crate::Gguf;

    #[test]
    fn what_is_written_is_read() {
        let keys = [
            ("general.architecture".to_owned(), Value::Text("test".to_owned())),
            ("a.count".to_owned(), Value::U32(7)),
            ("a.share".to_owned(), Value::F32(0.5)),
            ("a.flag".to_owned(), Value::Bool(true)),
            ("a.texts".to_owned(), Value::Texts(vec!["ä".to_owned(), String::new()])),
            ("a.ints".to_owned(), Value::Ints(vec![-1, 2])),
        ];
        let entry = |name: &str, shape: &[u64], length| Entry {
            name: name.to_owned(),
            shape: shape.to_vec(),
            ggml_type: 0,
            length,
        };
        let tensors = [entry("x", &[3], 12), entry("y", &[2, 2], 16)];
        let bytes = write("(test)".as_ref(), Vec::new(), &keys, &tensors, |index, out| {
            let count = if index == 0 { 3 } else { 4 };
            for n in 0..count {
                out.write_all(&(n as f32 + index as f32 * 10.0).to_le_bytes()).unwrap();
            }
            Ok(())
        })
        .unwrap();
        let read = Gguf::parse(bytes).unwrap();
        assert_eq!(read.u32("a.count").unwrap(), Some(7));
        assert_eq!(read.flag("a.flag").unwrap(), Some(true));
        assert_eq!(read.array("a.texts").unwrap().unwrap().texts().collect::<Vec<_>>(), ["ä", ""]);
        assert_eq!(read.array("a.ints").unwrap().unwrap().ints().collect::<Vec<_>>(), [-1, 2]);
        let y = read.tensor_bytes("y").unwrap();
        assert_eq!(y.as_slice().get(12..16).unwrap(), 13.0_f32.to_le_bytes());
        let short = write("(test)".as_ref(), Vec::new(), &keys, &tensors, |_, _| Ok(()));
        assert!(short.unwrap_err().to_string().contains("expected 12 bytes, found 0"));
    }
}
