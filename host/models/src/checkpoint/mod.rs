//! Hugging Face checkpoints (SafeTensors, `config.json`, `tokenizer.json`) become GGUF files on the
//! way in: one format behind the reader, one set of families before it.
//!
//! Owns the translation of names, settings and vocabularies, and quantisation to a chosen type.
//! Refuses by name what it does not translate: an architecture, a setting, a tensor, a vocabulary.
//! Memory: a stretch of one tensor at a time.

mod config;
mod names;
mod shards;
mod vocabulary;

use std::{
    collections::BTreeSet,
    io::Write,
    path::{Path, PathBuf},
};

use gristmill_kernels::{Quant, encode_row};

use self::{
    config::Config,
    names::{Role, role},
    shards::{Float, Shards, Weight},
};
use crate::{
    ModelError, Result,
    gguf::write::{Entry, Value, write},
};

/// Rows that are read and written at once, in numbers: 4 MiB of floats.
const STRETCH: usize = 1 << 20;

/// Whether a folder is a checkpoint.
#[must_use]
pub fn is_checkpoint(folder: &Path) -> bool {
    folder.join("config.json").is_file()
        && ["model.safetensors", "model.safetensors.index.json"]
            .iter()
            .any(|name| folder.join(name).is_file())
}

/// The quantizations that a checkpoint can be written in.
pub const QUANTIZATIONS: [Quant; 11] = [
    Quant::F32,
    Quant::F16,
    Quant::BF16,
    Quant::Q4_0,
    Quant::Q4_1,
    Quant::Q5_0,
    Quant::Q5_1,
    Quant::Q8_0,
    Quant::Q4_K,
    Quant::Q5_K,
    Quant::Q6_K,
];

/// A checkpoint that has been read and can be written as GGUF.
pub struct Checkpoint {
    folder: PathBuf,
    shards: Shards,
    keys: Vec<(String, Value)>,
    tensors: Vec<Planned>,
}

struct Planned {
    entry: Entry,
    quant: Quant,
    /// Numbers in a row.
    cols: usize,
    from: Content,
}

enum Content {
    /// A tensor as it is, or with rows of each head in another order: so many heads.
    Weight {
        weight: usize,
        interleave: Option<usize>,
    },
    Numbers(Vec<f32>),
}

impl Checkpoint {
    /// Reads everything but the weights themselves, and decides how each is written:
    /// matrices in `quantization` (none: as they are), the embedding and the head in no less than
    /// six bits, all else as 32-bit floats; `title` is the model's name in words. A row that the quantization's block does not divide gets
    /// the nearest one of 32 numbers a block.
    ///
    /// # Errors
    /// What is missing, contradicts itself, or is not translated, by name.
    pub fn open(folder: &Path, title: &str, quantization: Option<Quant>) -> Result<Self> {
        if let Some(quant) = quantization.filter(|quant| !QUANTIZATIONS.contains(quant)) {
            let known: Vec<&str> = QUANTIZATIONS.iter().map(|quant| quant.name()).collect();
            let what = format!("writing {quant}; {} can be written", known.join(", "));
            return Err(ModelError::Unsupported { file: folder.to_owned(), what });
        }
        let config = Config::read(folder)?;
        let shards = Shards::open(folder)?;
        let mut keys = vec![
            ("general.architecture".to_owned(), Value::Text(config.family.architecture.to_owned())),
            ("general.type".to_owned(), Value::Text("model".to_owned())),
            ("general.name".to_owned(), Value::Text(title.to_owned())),
        ];
        keys.extend(config.keys.iter().cloned());
        keys.extend(vocabulary::keys(folder, &config.family, config.vocabulary)?);

        let mut tensors = Vec::new();
        let mut names = BTreeSet::new();
        for (index, weight) in shards.weights().iter().enumerate() {
            let unknown = || {
                let what = format!(
                    "tensor {}, which {} does not have here",
                    weight.name, config.family.architecture
                );
                ModelError::Unsupported { file: shards.path(weight), what }
            };
            let (name, interleave) = match role(&config.family, &weight.name).ok_or_else(unknown)? {
                Role::Drop => continue,
                Role::Keep(name) => (name, None),
                Role::Interleave(name, heads) => (name, Some(heads)),
            };
            if !names.insert(name.clone()) {
                let found = format!("a second one, {}", weight.name);
                return Err(ModelError::malformed(shards.path(weight), name, "one tensor", found));
            }
            let planned = plan(&shards, weight, name, quantization)?;
            if let Some(heads) = interleave {
                let rows = weight.shape.first().copied().unwrap_or_default();
                if heads == 0 || !rows.is_multiple_of(2 * heads) {
                    let expected = format!("rows in {heads} heads of even size");
                    let path = shards.path(weight);
                    return Err(ModelError::malformed(path, &weight.name, expected, rows));
                }
            }
            let from = Content::Weight { weight: index, interleave };
            tensors.push(Planned { from, ..planned });
        }
        let embedding = tensors.iter().find(|tensor| tensor.entry.name == "token_embd.weight");
        let rows = embedding.and_then(|tensor| tensor.entry.shape.get(1).copied());
        if rows != Some(config.vocabulary as u64) {
            let expected = format!("an embedding of {} tokens", config.vocabulary);
            let found = rows.map_or("none".to_owned(), |rows| format!("one of {rows}"));
            return Err(ModelError::malformed(folder, "vocab_size", expected, found));
        }
        if let Some(factors) = config.rope_factors {
            let length = factors.len();
            tensors.push(Planned {
                entry: entry("rope_freqs.weight".to_owned(), &[length], Quant::F32)?,
                quant: Quant::F32,
                cols: length,
                from: Content::Numbers(factors),
            });
        }
        let file_type = file_type(quantization.unwrap_or_else(|| most(&tensors)));
        keys.push(("general.file_type".to_owned(), Value::U32(file_type)));
        Ok(Self { folder: folder.to_owned(), shards, keys, tensors })
    }

    /// Bytes that [`Checkpoint::write`] will write for tensors.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.tensors.iter().map(|tensor| tensor.entry.length).sum()
    }

    /// Writes the GGUF file. `progress` gets the bytes of tensors written so far, and stops the
    /// work with an error.
    ///
    /// # Errors
    /// The writer's, `progress`'s, or a weight that is not a finite number, by its tensor's name.
    pub fn write<W: Write, E: From<ModelError>>(
        &self,
        to: &Path,
        out: W,
        mut progress: impl FnMut(u64) -> std::result::Result<(), E>,
    ) -> std::result::Result<W, E> {
        let entries: Vec<Entry> = self.tensors.iter().map(|tensor| tensor.entry.clone()).collect();
        let mut done = 0;
        let mut stopped = None;
        let written = write(to, out, &self.keys, &entries, |index, out| {
            let Some(tensor) = self.tensors.get(index) else { return Ok(()) };
            self.put(to, tensor, out, &mut |bytes| {
                done += bytes;
                progress(done).map_err(|error| {
                    stopped = Some(error);
                    ModelError::NotAModel { file: to.to_owned(), what: "stopped".to_owned() }
                })
            })
        });
        match (stopped, written) {
            (Some(error), _) => Err(error),
            (None, written) => Ok(written?),
        }
    }

    fn put(
        &self,
        to: &Path,
        tensor: &Planned,
        out: &mut dyn Write,
        wrote: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let failed = |source| ModelError::Io { file: to.to_owned(), source };
        let (weight, interleave) = match &tensor.from {
            Content::Numbers(numbers) => {
                let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
                out.write_all(&bytes).map_err(failed)?;
                return wrote(bytes.len() as u64);
            }
            Content::Weight { weight, interleave } => (*weight, *interleave),
        };
        let Some(weight) = self.shards.weights().get(weight) else { return Ok(()) };
        let float = self.shards.float(weight)?;
        let bytes = self.shards.bytes(weight);
        let row_bytes = tensor.cols * float.bytes();
        let rows = bytes.len().checked_div(row_bytes).unwrap_or_default();
        let stretch = (STRETCH / tensor.cols.max(1)).max(1);
        let mut numbers = vec![0.0; tensor.cols];
        let coded = tensor.quant.row_bytes(tensor.cols).map_err(|error| self.refused(&error))?;
        let mut buffer = Vec::with_capacity(stretch * coded);
        let mut row_out = vec![0; coded];
        for first in (0..rows).step_by(stretch) {
            buffer.clear();
            for row in first..rows.min(first + stretch) {
                let from = interleave.map_or(row, |heads| interleaved(row, rows / heads));
                let bytes = bytes.get(from * row_bytes..(from + 1) * row_bytes);
                float.decode(bytes.unwrap_or_default(), &mut numbers);
                if let Some(bad) = numbers.iter().find(|x| !x.is_finite()) {
                    let path = self.shards.path(weight);
                    return Err(ModelError::malformed(
                        path,
                        format!("tensor {}, row {from}", weight.name),
                        "finite numbers",
                        bad,
                    ));
                }
                encode_row(tensor.quant, &numbers, &mut row_out)
                    .map_err(|error| self.refused(&error))?;
                buffer.extend_from_slice(&row_out);
            }
            out.write_all(&buffer).map_err(failed)?;
            wrote(buffer.len() as u64)?;
        }
        Ok(())
    }

    fn refused(&self, error: &gristmill_kernels::KernelError) -> ModelError {
        ModelError::Unsupported { file: self.folder.clone(), what: error.to_string() }
    }
}

/// Where the interleaved order finds its row: pairs of neighbours there are, here, a number and the
/// one half a head further.
fn interleaved(row: usize, head: usize) -> usize {
    let (start, within) = (row / head * head, row % head);
    start + (within % 2) * (head / 2) + within / 2
}

fn entry(name: String, shape: &[usize], quant: Quant) -> Result<Entry> {
    // GGUF puts the fastest-varying length first.
    let extents: Vec<u64> = shape.iter().rev().map(|extent| *extent as u64).collect();
    let cols = shape.last().copied().unwrap_or(1);
    let rows: usize = shape.iter().rev().skip(1).product();
    let row = quant.row_bytes(cols).map_err(|error| ModelError::Unsupported {
        file: PathBuf::from(&name),
        what: error.to_string(),
    })?;
    let length = (row as u64)
        .checked_mul(rows as u64)
        .ok_or_else(|| ModelError::malformed(&name, "shape", "a size below 2^64 bytes", rows))?;
    Ok(Entry { name, shape: extents, ggml_type: quant.id(), length })
}

fn plan(
    shards: &Shards,
    weight: &Weight,
    name: String,
    quantization: Option<Quant>,
) -> Result<Planned> {
    let own = match shards.float(weight)? {
        Float::F32 => Quant::F32,
        Float::F16 => Quant::F16,
        Float::BF16 => Quant::BF16,
    };
    let cols = weight.shape.last().copied().unwrap_or(1);
    let embeds = matches!(&*name, "token_embd.weight" | "output.weight");
    let matrix = weight.shape.len() == 2
        && name.ends_with(".weight")
        && !matches!(&*name, "position_embd.weight" | "token_types.weight");
    let quant = match quantization {
        _ if !matrix => Quant::F32,
        None => own,
        Some(quant) if embeds && bits(quant) < 6 => fitting(Quant::Q6_K, cols),
        Some(quant) => fitting(quant, cols),
    };
    Ok(Planned {
        entry: entry(name, &weight.shape, quant)?,
        quant,
        cols,
        from: Content::Numbers(Vec::new()),
    })
}

const fn bits(quant: Quant) -> usize {
    quant.block_bytes() * 8 / quant.block_len()
}

/// The quantization itself where its block divides a row, else a coarser-blocked one of no fewer
/// bits, else 16-bit floats.
fn fitting(quant: Quant, cols: usize) -> Quant {
    let smaller = match quant {
        Quant::Q4_K => Quant::Q5_0,
        Quant::Q5_K => Quant::Q5_1,
        Quant::Q6_K => Quant::Q8_0,
        _ => Quant::F16,
    };
    [quant, smaller]
        .into_iter()
        .find(|quant| cols.is_multiple_of(quant.block_len()))
        .unwrap_or(Quant::F16)
}

/// The quantization of most bytes.
fn most(tensors: &[Planned]) -> Quant {
    let of = |quant: Quant| -> u64 {
        tensors.iter().filter(|t| t.quant == quant).map(|t| t.entry.length).sum()
    };
    QUANTIZATIONS.into_iter().max_by_key(|quant| of(*quant)).unwrap_or(Quant::F32)
}

/// `general.file_type` (enumeration `llama_ftype` of llama.cpp, MIT).
const fn file_type(quant: Quant) -> u32 {
    match quant {
        Quant::F16 => 1,
        Quant::Q4_0 => 2,
        Quant::Q4_1 => 3,
        Quant::Q8_0 => 7,
        Quant::Q5_0 => 8,
        Quant::Q5_1 => 9,
        Quant::Q4_K => 14,
        Quant::Q5_K => 16,
        Quant::Q6_K => 18,
        Quant::BF16 => 32,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::interleaved;

    #[test]
    fn interleaving_brings_halves_of_each_head_together() {
        let order: Vec<usize> = (0..8).map(|row| interleaved(row, 4)).collect();
        assert_eq!(order, [0, 2, 1, 3, 4, 6, 5, 7]);
    }
}
