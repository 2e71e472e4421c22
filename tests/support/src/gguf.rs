//! A GGUF writer for tests: any metadata, any tensor type id, any alignment, split files.
//!
//! It writes what it is told and checks nothing, so that broken files can be made with it as well.
//! Payloads are bytes or a function that streams them, so a file may be larger than memory.

use std::{
    fs,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use anyhow::Result;

/// A metadata value in each of GGUF's types.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Type 0.
    U8(u8),
    /// Type 1.
    I8(i8),
    /// Type 2.
    U16(u16),
    /// Type 3.
    I16(i16),
    /// Type 4.
    U32(u32),
    /// Type 5.
    I32(i32),
    /// Type 6.
    F32(f32),
    /// Type 7.
    Bool(bool),
    /// Type 8.
    Text(String),
    /// Type 9: the elements' type id, and the elements (whose own types are not compared with it).
    Array(u32, Vec<Value>),
    /// Type 10.
    U64(u64),
    /// Type 11.
    I64(i64),
    /// Type 12.
    F64(f64),
}

impl Value {
    /// A text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// An array of texts.
    pub fn texts<T: Into<String>>(items: impl IntoIterator<Item = T>) -> Self {
        Self::Array(8, items.into_iter().map(|item| Self::Text(item.into())).collect())
    }

    /// An array of 32-bit floats.
    pub fn floats(items: impl IntoIterator<Item = f32>) -> Self {
        Self::Array(6, items.into_iter().map(Self::F32).collect())
    }

    /// An array of 32-bit integers.
    pub fn ints(items: impl IntoIterator<Item = i32>) -> Self {
        Self::Array(5, items.into_iter().map(Self::I32).collect())
    }

    /// The type's id in the file.
    #[must_use]
    pub const fn type_id(&self) -> u32 {
        match self {
            Self::U8(_) => 0,
            Self::I8(_) => 1,
            Self::U16(_) => 2,
            Self::I16(_) => 3,
            Self::U32(_) => 4,
            Self::I32(_) => 5,
            Self::F32(_) => 6,
            Self::Bool(_) => 7,
            Self::Text(_) => 8,
            Self::Array(..) => 9,
            Self::U64(_) => 10,
            Self::I64(_) => 11,
            Self::F64(_) => 12,
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::U8(value) => out.push(*value),
            Self::I8(value) => out.extend(value.to_le_bytes()),
            Self::U16(value) => out.extend(value.to_le_bytes()),
            Self::I16(value) => out.extend(value.to_le_bytes()),
            Self::U32(value) => out.extend(value.to_le_bytes()),
            Self::I32(value) => out.extend(value.to_le_bytes()),
            Self::F32(value) => out.extend(value.to_le_bytes()),
            Self::Bool(value) => out.push(u8::from(*value)),
            Self::Text(text) => put_text(out, text),
            Self::Array(element, items) => {
                out.extend(element.to_le_bytes());
                out.extend((items.len() as u64).to_le_bytes());
                items.iter().for_each(|item| item.put(out));
            }
            Self::U64(value) => out.extend(value.to_le_bytes()),
            Self::I64(value) => out.extend(value.to_le_bytes()),
            Self::F64(value) => out.extend(value.to_le_bytes()),
        }
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// Writes a tensor's payload.
type Stream<'a> = Box<dyn FnOnce(&mut dyn Write) -> Result<()> + 'a>;

enum Payload<'a> {
    Bytes(Vec<u8>),
    Stream(Stream<'a>),
}

struct Tensor<'a> {
    name: String,
    shape: Vec<u64>,
    type_id: u32,
    length: u64,
    payload: Payload<'a>,
}

/// A GGUF file that is being put together.
pub struct File<'a> {
    /// The format's version: 3 unless changed.
    pub version: u32,
    /// Keys in file order.
    pub metadata: Vec<(String, Value)>,
    alignment: u64,
    tensors: Vec<Tensor<'a>>,
}

impl<'a> File<'a> {
    /// A file whose first key is `general.architecture`.
    #[must_use]
    pub fn new(architecture: &str) -> Self {
        let metadata = vec![("general.architecture".to_owned(), Value::text(architecture))];
        Self { version: 3, metadata, alignment: 32, tensors: Vec::new() }
    }

    /// Adds a key; nothing stops it from being a second one of that name.
    pub fn set(&mut self, key: impl Into<String>, value: Value) {
        self.metadata.push((key.into(), value));
    }

    /// Sets a key in the place of the one of that name.
    pub fn replace(&mut self, key: &str, value: Value) {
        self.metadata.retain(|(name, _)| name != key);
        self.set(key, value);
    }

    /// Places payloads at multiples of `alignment` bytes and says so in `general.alignment`.
    pub fn align(&mut self, alignment: u32) {
        self.alignment = u64::from(alignment.max(1));
        self.set("general.alignment", Value::U32(alignment));
    }

    /// Adds a tensor; `shape` has the fastest-varying dimension first.
    pub fn tensor(&mut self, name: impl Into<String>, shape: &[u64], type_id: u32, bytes: Vec<u8>) {
        self.tensors.push(Tensor {
            name: name.into(),
            shape: shape.to_vec(),
            type_id,
            length: bytes.len() as u64,
            payload: Payload::Bytes(bytes),
        });
    }

    /// Adds a tensor of `length` bytes that `fill` writes when the file is written.
    pub fn stream(
        &mut self,
        name: impl Into<String>,
        shape: &[u64],
        type_id: u32,
        length: u64,
        fill: impl FnOnce(&mut dyn Write) -> Result<()> + 'a,
    ) {
        self.tensors.push(Tensor {
            name: name.into(),
            shape: shape.to_vec(),
            type_id,
            length,
            payload: Payload::Stream(Box::new(fill)),
        });
    }

    /// Writes the file.
    ///
    /// # Errors
    /// When writing fails, or a streamed tensor wrote another number of bytes than announced.
    pub fn write(self, path: &Path) -> Result<()> {
        let mut out = BufWriter::with_capacity(1 << 20, fs::File::create(path)?);
        self.write_to(&mut out)?;
        out.flush()?;
        Ok(())
    }

    /// The file's bytes.
    ///
    /// # Errors
    /// As [`File::write`].
    pub fn bytes(self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        self.write_to(&mut out)?;
        Ok(out)
    }

    /// Writes the file in parts of at most `per_part` tensors, named as llama.cpp names them:
    /// `STEM-00001-of-00003.gguf`. The first part carries the metadata.
    ///
    /// # Errors
    /// As [`File::write`].
    pub fn write_split(
        mut self,
        folder: &Path,
        stem: &str,
        per_part: usize,
    ) -> Result<Vec<PathBuf>> {
        let total = self.tensors.len();
        let parts = total.div_ceil(per_part.max(1)).max(1);
        let mut tensors = std::mem::take(&mut self.tensors).into_iter();
        let mut paths = Vec::new();
        for part in 0..parts {
            let mut file = File {
                version: self.version,
                metadata: if part == 0 { std::mem::take(&mut self.metadata) } else { Vec::new() },
                alignment: self.alignment,
                tensors: tensors.by_ref().take(per_part.max(1)).collect(),
            };
            if part > 0 && self.alignment != 32 {
                file.set("general.alignment", Value::U32(u32::try_from(self.alignment)?));
            }
            file.set("split.no", Value::U16(u16::try_from(part)?));
            file.set("split.count", Value::U16(u16::try_from(parts)?));
            file.set("split.tensors.count", Value::I32(i32::try_from(total)?));
            let path = folder.join(format!("{stem}-{:05}-of-{parts:05}.gguf", part + 1));
            file.write(&path)?;
            paths.push(path);
        }
        Ok(paths)
    }

    fn write_to(self, out: &mut dyn Write) -> Result<()> {
        let mut header = Vec::new();
        header.extend(b"GGUF");
        header.extend(self.version.to_le_bytes());
        header.extend((self.tensors.len() as u64).to_le_bytes());
        header.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            put_text(&mut header, key);
            header.extend(value.type_id().to_le_bytes());
            value.put(&mut header);
        }
        let mut offset = 0_u64;
        for tensor in &self.tensors {
            put_text(&mut header, &tensor.name);
            header.extend(u32::try_from(tensor.shape.len())?.to_le_bytes());
            tensor.shape.iter().for_each(|extent| header.extend(extent.to_le_bytes()));
            header.extend(tensor.type_id.to_le_bytes());
            header.extend(offset.to_le_bytes());
            offset += tensor.length.next_multiple_of(self.alignment);
        }
        out.write_all(&header)?;
        pad(out, header.len() as u64, self.alignment)?;
        for tensor in self.tensors {
            let mut counted = Counted { inner: out, written: 0 };
            match tensor.payload {
                Payload::Bytes(bytes) => counted.write_all(&bytes)?,
                Payload::Stream(fill) => fill(&mut counted)?,
            }
            anyhow::ensure!(
                counted.written == tensor.length,
                "{} was announced with {} bytes and wrote {}",
                tensor.name,
                tensor.length,
                counted.written
            );
            pad(out, tensor.length, self.alignment)?;
        }
        Ok(())
    }
}

fn pad(out: &mut dyn Write, length: u64, alignment: u64) -> Result<()> {
    let missing = length.next_multiple_of(alignment) - length;
    out.write_all(&vec![0; usize::try_from(missing)?])?;
    Ok(())
}

struct Counted<'a> {
    inner: &'a mut dyn Write,
    written: u64,
}

impl Write for Counted<'_> {
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
    use super::{File, Value};

    #[test]
    fn header_and_payload_are_where_the_format_puts_them() {
        let mut file = File::new("x");
        file.align(64);
        file.set("list", Value::ints([1, 2]));
        file.tensor("a", &[3], 0, vec![1; 12]);
        file.stream("b", &[4], 24, 4, |out| Ok(out.write_all(&[2; 4])?));
        let bytes = file.bytes().unwrap();
        assert_eq!(&bytes[..8], b"GGUF\x03\0\0\0");
        assert_eq!(bytes.len() % 64, 0);
        let data = bytes.len() - 128;
        assert_eq!(&bytes[data..data + 13], [&[1; 12][..], &[0]].concat());
        assert_eq!(&bytes[data + 64..data + 69], [2, 2, 2, 2, 0]);
    }

    #[test]
    fn a_stream_that_writes_too_little_is_told() {
        let mut file = File::new("x");
        file.stream("a", &[3], 0, 12, |out| Ok(out.write_all(&[0; 11])?));
        assert!(file.bytes().unwrap_err().to_string().contains("announced with 12 bytes"));
    }
}
