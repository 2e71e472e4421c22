//! The GGUF reader: versions 2 and 3, little endian, in one file or split into parts.
//!
//! Owns the mapping of the file(s) and the checked tables. Refuses whatever is not exactly what the
//! format says, before any of it is used. Weights are never copied: a tensor is a
//! range of the mapping.

mod element;
mod map;
mod read;
mod split;
mod value;
pub mod write;

use std::{
    fs::File,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use gristmill_core::program::{Metadata, TensorInfo};

pub(crate) use self::map::Bytes;
use self::read::Header;
pub use self::{
    element::Element,
    map::Shared,
    value::{Array, Kind, Raw},
};
use crate::{ModelError, Result};

/// A tensor of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Its name.
    pub name: String,
    /// Lengths, fastest-varying first: a matrix is `[columns, rows]`.
    pub shape: Vec<u64>,
    /// The element type's id, one of those this build knows.
    pub ggml_type: u32,
    /// The element type.
    pub element: Element,
    /// Which part of a split file holds it, from 0.
    pub part: usize,
    /// Where in that part its bytes are.
    pub range: Range<usize>,
}

/// A tensor's bytes: an owner that keeps them alive, and where in it they are.
#[derive(Clone)]
pub struct TensorBytes {
    /// The mapping.
    pub owner: Shared,
    /// The tensor's place in it.
    pub range: Range<usize>,
}

impl TensorBytes {
    /// The bytes themselves.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        (*self.owner).as_ref().get(self.range.clone()).unwrap_or_default()
    }
}

/// An open model file. Everything in it has been checked.
pub struct Gguf {
    path: PathBuf,
    parts: Vec<Bytes>,
    header: Header,
    tensors: Vec<Tensor>,
    /// Indices into `tensors`, sorted by name.
    by_name: Vec<u32>,
}

impl std::fmt::Debug for Gguf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gguf")
            .field("path", &self.path)
            .field("keys", &self.header.entries.len())
            .field("tensors", &self.tensors.len())
            .finish_non_exhaustive()
    }
}

impl Gguf {
    /// Opens a file, or all parts of a split one when given its first part.
    ///
    /// # Errors
    /// When the operating system refuses, when it is not a model file, or when any of it is not as
    /// the format demands. The message names the file, the field, and what was found.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let first = map_file(path)?;
        let header = header(path, first.as_slice())?;
        let mut parts = vec![(path.to_owned(), first, header)];
        let others = match parts.first() {
            Some((_, bytes, header)) => split::others(path, header, bytes.as_slice())?,
            None => Vec::new(),
        };
        for other in others {
            let bytes = map_file(&other)?;
            let header = self::header(&other, bytes.as_slice())?;
            parts.push((other, bytes, header));
        }
        Self::assemble(path, parts)
    }

    /// Reads a file that is already in memory.
    ///
    /// # Errors
    /// As [`Gguf::open`]; a part of a split file is refused.
    pub fn parse(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Result<Self> {
        Self::parse_shared(Arc::new(bytes))
    }

    /// Reads a file that is already in memory and shared.
    ///
    /// # Errors
    /// As [`Gguf::parse`].
    pub fn parse_shared(bytes: Shared) -> Result<Self> {
        let path = Path::new("(memory)");
        let bytes = Bytes::Owned(bytes);
        not_something_else(path, bytes.as_slice())?;
        let header = header(path, bytes.as_slice())?;
        if !split::others(path, &header, bytes.as_slice())?.is_empty() {
            return Err(ModelError::Unsupported {
                file: path.to_owned(),
                what: "a part of a split file; open it from disk".to_owned(),
            });
        }
        Self::assemble(path, vec![(path.to_owned(), bytes, header)])
    }

    fn assemble(path: &Path, parts: Vec<(PathBuf, Bytes, Header)>) -> Result<Self> {
        split::check(path, &parts)?;
        let mut tensors = Vec::new();
        let mut first = None;
        let mut mappings = Vec::with_capacity(parts.len());
        for (part, (_, bytes, header)) in parts.into_iter().enumerate() {
            for row in &header.rows {
                tensors.push(Tensor {
                    name: read::name(bytes.as_slice(), &row.name).to_owned(),
                    shape: row.shape.clone(),
                    ggml_type: row.element.id,
                    element: row.element,
                    part,
                    range: row.range.clone(),
                });
            }
            mappings.push(bytes);
            first.get_or_insert(header);
        }
        let Some(mut header) = first else {
            return Err(ModelError::malformed(path, "parts", "at least one", 0));
        };
        header.rows = Vec::new();
        let count = u32::try_from(tensors.len()).map_err(|_| {
            ModelError::malformed(path, "tensor count", "below 2^32", tensors.len())
        })?;
        let name = |index: &u32| tensors.get(*index as usize).map(|tensor: &Tensor| &tensor.name);
        let mut by_name: Vec<u32> = (0..count).collect();
        by_name.sort_unstable_by(|a, b| name(a).cmp(&name(b)));
        let twice = by_name.windows(2).find_map(|pair| match pair {
            [a, b] if name(a) == name(b) => name(a).cloned(),
            _ => None,
        });
        if let Some(twice) = twice {
            return Err(ModelError::malformed(
                path,
                format!("tensor {twice}"),
                "each name in one part",
                "it in two",
            ));
        }
        Ok(Self { path: path.to_owned(), parts: mappings, header, tensors, by_name })
    }

    /// The file, or the first part.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The format's version, 2 or 3.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.header.version
    }

    /// Bytes of all parts together.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.parts.iter().map(|part| part.as_slice().len() as u64).sum()
    }

    /// All tensors, in file order, part after part.
    #[must_use]
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// A tensor by name.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        let at = |index: &u32| self.tensors.get(*index as usize);
        let found = self
            .by_name
            .binary_search_by(|index| at(index).map(|tensor| tensor.name.as_str()).cmp(&Some(name)))
            .ok()?;
        at(self.by_name.get(found)?)
    }

    /// A tensor's bytes by name.
    #[must_use]
    pub fn tensor_bytes(&self, name: &str) -> Option<TensorBytes> {
        let tensor = self.tensor(name)?;
        let owner = self.parts.get(tensor.part)?.shared();
        Some(TensorBytes { owner, range: tensor.range.clone() })
    }

    /// Asks the kernel to read a tensor ahead; only advice.
    pub fn will_need(&self, tensor: &Tensor) {
        if let Some(part) = self.parts.get(tensor.part) {
            part.will_need(tensor.range.clone());
        }
    }

    /// Gives a tensor's pages back to the kernel, for instance once it has been packed. Its bytes
    /// stay valid: they are read from the file again when touched again.
    pub fn release(&self, tensor: &Tensor) {
        if let Some(part) = self.parts.get(tensor.part) {
            part.release(tensor.range.clone());
        }
    }

    /// All keys in file order, each with its value.
    pub fn keys(&self) -> impl Iterator<Item = (&str, Raw<'_>)> {
        let bytes = self.first();
        self.header.entries.iter().filter_map(move |entry| {
            let value = Raw::decode(entry.kind, bytes.get(entry.value..)?)?;
            Some((read::name(bytes, &entry.name), value))
        })
    }

    /// The value of a key as it lies in the file, however long.
    #[must_use]
    pub fn raw(&self, key: &str) -> Option<Raw<'_>> {
        self.header.get(self.first(), key)
    }

    /// A text.
    ///
    /// # Errors
    /// When the key is there with another type.
    pub fn text(&self, key: &str) -> Result<Option<&str>> {
        match self.raw(key) {
            None => Ok(None),
            Some(Raw::Text(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(key, "a string", other)),
        }
    }

    /// An integer of any type that fits 32 bits without a sign.
    ///
    /// # Errors
    /// When the key is there with another type or a value that does not fit.
    pub fn u32(&self, key: &str) -> Result<Option<u32>> {
        match self.raw(key) {
            None => Ok(None),
            Some(value) => match value.int().and_then(|value| u32::try_from(value).ok()) {
                Some(value) => Ok(Some(value)),
                None => Err(self.wrong(key, "an integer from 0 to 2^32-1", value)),
            },
        }
    }

    /// A floating-point number.
    ///
    /// # Errors
    /// When the key is there with another type.
    pub fn f32(&self, key: &str) -> Result<Option<f32>> {
        match self.raw(key) {
            None => Ok(None),
            Some(Raw::Float(value)) => Ok(Some(value as f32)),
            Some(other) => Err(self.wrong(key, "a float", other)),
        }
    }

    /// A truth value.
    ///
    /// # Errors
    /// When the key is there with another type.
    pub fn flag(&self, key: &str) -> Result<Option<bool>> {
        match self.raw(key) {
            None => Ok(None),
            Some(Raw::Flag(value)) => Ok(Some(value)),
            Some(other) => Err(self.wrong(key, "a bool", other)),
        }
    }

    /// An array.
    ///
    /// # Errors
    /// When the key is there with another type.
    pub fn array(&self, key: &str) -> Result<Option<Array<'_>>> {
        match self.raw(key) {
            None => Ok(None),
            Some(Raw::Array(array)) => Ok(Some(array)),
            Some(other) => Err(self.wrong(key, "an array", other)),
        }
    }

    /// What the file says of itself, as the families get it: long arrays by their length only.
    #[must_use]
    pub fn metadata(&self) -> Metadata {
        let architecture = match self.raw("general.architecture") {
            Some(Raw::Text(text)) => text.to_owned(),
            _ => String::new(),
        };
        Metadata {
            architecture,
            keys: self.keys().map(|(key, value)| (key.to_owned(), value.to_value())).collect(),
            tensors: self
                .tensors
                .iter()
                .map(|tensor| TensorInfo {
                    name: tensor.name.clone(),
                    shape: tensor.shape.clone(),
                    element: tensor.element.name.to_owned(),
                })
                .collect(),
        }
    }

    fn first(&self) -> &[u8] {
        self.parts.first().map_or(&[], Bytes::as_slice)
    }

    pub(crate) fn wrong(&self, key: &str, expected: &str, found: Raw<'_>) -> ModelError {
        let found = match found {
            Raw::Unsigned(value) => format!("{} ({value})", found.name()),
            Raw::Signed(value) => format!("{} ({value})", found.name()),
            Raw::Array(array) => format!("an array of {} {}", array.len(), array.kind().name()),
            _ => found.name().to_owned(),
        };
        ModelError::malformed(&self.path, key, expected, found)
    }
}

fn header(path: &Path, bytes: &[u8]) -> Result<Header> {
    read::header(bytes).map_err(|problem| {
        ModelError::malformed(path, problem.field, problem.expected, problem.found)
    })
}

fn map_file(path: &Path) -> Result<Bytes> {
    let io = |source| ModelError::Io { file: path.to_owned(), source };
    let file = File::open(path).map_err(io)?;
    let about = file.metadata().map_err(io)?;
    let not_a_model =
        |what: &str| ModelError::NotAModel { file: path.to_owned(), what: what.to_owned() };
    if about.is_dir() {
        return Err(not_a_model("this is a directory; name the .gguf file in it"));
    }
    if !about.is_file() {
        return Err(not_a_model("this is not a regular file"));
    }
    if about.len() == 0 {
        return Err(not_a_model("this file is empty; fetch it again"));
    }
    let bytes = Bytes::map(path, &file)?;
    not_something_else(path, bytes.as_slice())?;
    Ok(bytes)
}

/// Says by name what a file is that is not GGUF.
fn not_something_else(path: &Path, bytes: &[u8]) -> Result<()> {
    let what = match bytes {
        [b'G', b'G', b'U', b'F', ..] => return Ok(()),
        [] => "this file is empty; fetch it again".to_owned(),
        [b'F', b'U', b'G', b'G', ..] => {
            "this GGUF file is big endian; convert the model again, little endian".to_owned()
        }
        [b'v', ..] if bytes.starts_with(b"version https://git-lfs") => {
            "this is a Git LFS pointer, not the model; run `git lfs pull` or download the file itself"
                .to_owned()
        }
        [b'P', b'K', 3, 4, ..] => "this is a zip archive, not GGUF".to_owned(),
        [b'<', ..] => "this is a web page or XML, not GGUF; the download went wrong".to_owned(),
        [b'l' | b't', b'm' | b'j', b'g', b'g', ..] => {
            "this is an old GGML file; convert the model to GGUF".to_owned()
        }
        _ => {
            let start: Vec<String> =
                bytes.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
            format!("this is not GGUF: it should start with `GGUF` and starts with bytes {}", start.join(" "))
        }
    };
    Err(ModelError::NotAModel { file: path.to_owned(), what })
}
