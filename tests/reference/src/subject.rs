//! A model as the product runs it, and what is held against it.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use gristmill_core::program::Families;
use gristmill_engine::{cache::KvTypes, measure::Bare, reference::reference_logits};
use gristmill_kernels::{Pool, Quant, decode_row};
use gristmill_models::{
    Tokenizer,
    gguf::{Array, Kind, Raw},
};
use gristmill_testing::gguf::{File, Value};

/// An opened model.
pub struct Subject {
    bare: Bare,
}

impl Subject {
    /// Opens a file, asks the families, checks, plans and packs.
    ///
    /// # Errors
    /// Whatever the product would say.
    pub fn open(path: &Path, families: &dyn Families) -> Result<Self> {
        Ok(Self { bare: Bare::open(path, families)? })
    }

    /// Tokens in the vocabulary.
    #[must_use]
    pub fn vocabulary(&self) -> usize {
        self.bare.plan.program.vocabulary
    }

    /// The first `count` tokens of a text, with the token that begins one if the model wants it.
    ///
    /// # Errors
    /// When the text is shorter.
    pub fn tokens(&self, text: &str, count: usize) -> Result<Vec<u32>> {
        let mut tokens = Tokenizer::from_gguf(&self.bare.file)?.encode_prompt(text)?;
        ensure!(tokens.len() >= count, "the text has {} tokens, not {count}", tokens.len());
        tokens.truncate(count);
        Ok(tokens)
    }

    /// Logits by the fast path after every token, `step` tokens at once: rows of the vocabulary.
    ///
    /// # Errors
    /// When a pass fails.
    pub fn logits(&self, tokens: &[u32], step: usize) -> Result<Vec<f32>> {
        Ok(self.bare.logits(&Pool::new(2, false), KvTypes::default(), tokens, step)?)
    }

    /// Logits by the plain f32 pass.
    ///
    /// # Errors
    /// When a tensor cannot be read.
    pub fn plain_logits(&self, tokens: &[u32]) -> Result<Vec<f32>> {
        Ok(reference_logits(&self.bare.plan.program, &self.bare.file, tokens)?)
    }

    /// Writes the same model with every weight decoded to F32.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_f32(&self, path: &Path) -> Result<()> {
        let architecture =
            self.bare.file.text("general.architecture")?.context("no architecture")?;
        let mut file = File::new(architecture);
        for (key, value) in self.bare.file.keys() {
            let own = ["general.architecture", "general.alignment", "general.file_type"];
            if !own.contains(&key) && !key.starts_with("split.") {
                file.set(key, copied(value));
            }
        }
        for tensor in self.bare.file.tensors() {
            let quant = Quant::from_id(tensor.ggml_type)?;
            let columns =
                usize::try_from(*tensor.shape.first().context("a tensor without shape")?)?;
            let count: u64 = tensor.shape.iter().product();
            let bytes =
                self.bare.file.tensor_bytes(&tensor.name).context("a listed tensor is there")?;
            file.stream(&tensor.name, &tensor.shape, Quant::F32.id(), count * 4, move |out| {
                let mut row = vec![0.0; columns];
                for block in bytes.as_slice().chunks_exact(quant.row_bytes(columns)?) {
                    decode_row(quant, block, &mut row)?;
                    let coded: Vec<u8> = row.iter().flat_map(|x| x.to_le_bytes()).collect();
                    out.write_all(&coded)?;
                }
                Ok(())
            });
        }
        file.write(path)
    }
}

/// A metadata value as llama.cpp wants it: 32 bits wide where the reader forgot the width.
fn copied(value: Raw<'_>) -> Value {
    match value {
        Raw::Unsigned(value) => u32::try_from(value).map_or(Value::U64(value), Value::U32),
        Raw::Signed(value) => i32::try_from(value).map_or(Value::I64(value), Value::I32),
        Raw::Float(value) => Value::F32(value as f32),
        Raw::Flag(value) => Value::Bool(value),
        Raw::Text(text) => Value::text(text),
        Raw::Array(array) => copied_array(array),
    }
}

fn copied_array(array: Array<'_>) -> Value {
    match array.kind() {
        Kind::Text => Value::texts(array.texts()),
        Kind::F32 | Kind::F64 => Value::floats(array.floats().map(|x| x as f32)),
        _ => Value::ints(array.ints().filter_map(|x| i32::try_from(x).ok())),
    }
}
