//! SafeTensors files: one, or shards by an index. Read through a mapping, tensor by tensor.
//!
//! The header's own rules (offsets that meet, lengths that agree, no tensor twice) are checked by
//! the format's own crate; what is checked here is that index and shards say the same.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fs::{self, File},
    ops::Range,
    path::{Path, PathBuf},
};

use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;

use crate::{ModelError, Result, gguf::Bytes};

/// An element type that weights come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Float {
    F32,
    F16,
    BF16,
}

impl Float {
    pub(super) const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
        }
    }

    /// The numbers behind the bytes.
    pub(super) fn decode(self, bytes: &[u8], out: &mut [f32]) {
        match self {
            Self::F32 => {
                let (values, _) = bytes.as_chunks::<4>();
                out.iter_mut().zip(values).for_each(|(x, b)| *x = f32::from_le_bytes(*b));
            }
            Self::F16 => {
                let (values, _) = bytes.as_chunks::<2>();
                let half = |b: [u8; 2]| half::f16::from_le_bytes(b).to_f32();
                out.iter_mut().zip(values).for_each(|(x, b)| *x = half(*b));
            }
            Self::BF16 => {
                let (values, _) = bytes.as_chunks::<2>();
                let half = |b: [u8; 2]| half::bf16::from_le_bytes(b).to_f32();
                out.iter_mut().zip(values).for_each(|(x, b)| *x = half(*b));
            }
        }
    }
}

/// A tensor of the checkpoint.
#[derive(Debug, Clone)]
pub(super) struct Weight {
    pub(super) name: String,
    /// Slowest-varying first, as the format has it.
    pub(super) shape: Vec<usize>,
    dtype: Dtype,
    shard: usize,
    range: Range<usize>,
}

/// An open checkpoint's tensors.
pub(super) struct Shards {
    files: Vec<(PathBuf, Bytes)>,
    weights: Vec<Weight>,
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Shards {
    /// Opens `model.safetensors`, or the shards that `model.safetensors.index.json` names.
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let index = folder.join("model.safetensors.index.json");
        let mut shards = Self { files: Vec::new(), weights: Vec::new() };
        if !index.is_file() {
            shards.add(&folder.join("model.safetensors"))?;
            return Ok(shards);
        }
        let text = fs::read_to_string(&index)
            .map_err(|source| ModelError::Io { file: index.clone(), source })?;
        let Index { weight_map } = serde_json::from_str(&text)
            .map_err(|error| ModelError::malformed(&index, "index", "a weight_map", error))?;
        let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
        for file in weight_map.values() {
            if Path::new(file).file_name().is_none_or(|name| name != file.as_str()) {
                let expected = "a file beside the index";
                return Err(ModelError::malformed(&index, "weight_map", expected, file));
            }
            let next = numbers.len();
            if let Entry::Vacant(new) = numbers.entry(file) {
                new.insert(next);
                shards.add(&folder.join(file))?;
            }
        }
        for weight in &shards.weights {
            let found = weight_map.get(&weight.name).and_then(|file| numbers.get(file.as_str()));
            if found != Some(&weight.shard) {
                let expected = format!("tensor {} where the shards have it", weight.name);
                let found = weight_map.get(&weight.name).map_or("nothing", String::as_str);
                return Err(ModelError::malformed(&index, "weight_map", expected, found));
            }
        }
        if let Some(missing) = weight_map
            .keys()
            .find(|name| !shards.weights.iter().any(|weight| weight.name == **name))
        {
            let expected = format!("tensor {missing} in its shard");
            return Err(ModelError::malformed(&index, "weight_map", expected, "none"));
        }
        Ok(shards)
    }

    fn add(&mut self, path: &Path) -> Result<()> {
        let io = |source| ModelError::Io { file: path.to_owned(), source };
        let file = File::open(path).map_err(io)?;
        if file.metadata().map_err(io)?.len() < 8 {
            let what = "this is no SafeTensors file; fetch it again".to_owned();
            return Err(ModelError::NotAModel { file: path.to_owned(), what });
        }
        let bytes = Bytes::map(path, &file)?;
        let (length, metadata) = SafeTensors::read_metadata(bytes.as_slice()).map_err(|error| {
            ModelError::malformed(path, "header", "a sound SafeTensors header", error)
        })?;
        let start = 8 + length;
        // The header is sound in itself; that the file holds all of it is another matter.
        let end = start + metadata.data_len();
        if end != bytes.as_slice().len() {
            let found = format!("{} bytes", bytes.as_slice().len());
            return Err(ModelError::malformed(path, "file", format!("{end} bytes"), found));
        }
        for (name, info) in metadata.tensors() {
            if self.weights.iter().any(|other| other.name == name) {
                return Err(ModelError::malformed(path, "header", "each tensor once", name));
            }
            self.weights.push(Weight {
                name,
                shape: info.shape.clone(),
                dtype: info.dtype,
                shard: self.files.len(),
                range: start + info.data_offsets.0..start + info.data_offsets.1,
            });
        }
        self.weights.sort_by(|a, b| a.name.cmp(&b.name));
        self.files.push((path.to_owned(), bytes));
        Ok(())
    }

    /// All tensors, by name.
    pub(super) fn weights(&self) -> &[Weight] {
        &self.weights
    }

    /// A tensor's element type. Refused: integers and what else is no weight.
    pub(super) fn float(&self, weight: &Weight) -> Result<Float> {
        Ok(match weight.dtype {
            Dtype::F32 => Float::F32,
            Dtype::F16 => Float::F16,
            Dtype::BF16 => Float::BF16,
            other => {
                let what =
                    format!("tensor {} is {other:?}; F32, F16 and BF16 are read", weight.name);
                return Err(ModelError::Unsupported { file: self.path(weight), what });
            }
        })
    }

    /// A tensor's bytes.
    pub(super) fn bytes(&self, weight: &Weight) -> &[u8] {
        let file = self.files.get(weight.shard).map(|(_, bytes)| bytes.as_slice());
        file.and_then(|bytes| bytes.get(weight.range.clone())).unwrap_or_default()
    }

    /// The file a tensor is in.
    pub(super) fn path(&self, weight: &Weight) -> PathBuf {
        self.files.get(weight.shard).map(|(path, _)| path.clone()).unwrap_or_default()
    }
}
