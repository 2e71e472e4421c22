//! Random-weight models of each family's shape, written as GGUF files that this engine and
//! llama.cpp both load: tiny ones for comparing numbers, real shapes for measuring speed.
//!
//! Weights are seeded and scaled so that activations stay near one and logits spread by about
//! three: text they make is noise, but every number on the way matters to the result.

use std::{
    cell::RefCell,
    collections::{BTreeMap, btree_map::Entry},
    path::Path,
};

use anyhow::{Context, Result, ensure};
use gristmill_kernels::{Quant, encode_row};

use crate::{
    blocks,
    gguf::{File, Value},
    vocabulary::Vocabulary,
};

/// The families whose shapes are known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Llama, SmolLM, Mistral.
    Llama,
    /// Qwen 2 and 2.5: biases on q, k and v.
    Qwen2,
    /// Qwen 3: norms on each head's q and k.
    Qwen3,
    /// Gemma 2: soft caps, every second layer slides, norms before and after.
    Gemma2,
    /// Gemma 3: five of six layers slide and turn at another base.
    Gemma3,
}

/// A dense model's sizes.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// Whose tensors and metadata keys.
    pub family: Family,
    /// Layers.
    pub layers: u32,
    /// Width of the residual stream.
    pub width: u32,
    /// Query heads.
    pub heads: u32,
    /// Key/value heads.
    pub kv_heads: u32,
    /// Width of a head.
    pub head_dim: u32,
    /// Width between gate/up and down.
    pub feed_forward: u32,
    /// Tokens.
    pub vocabulary: u32,
    /// Longest context.
    pub context: u32,
    /// The embedding is the head too.
    pub tied: bool,
    /// Rotary base.
    pub rope_base: f32,
    /// Sliding window of the layers that slide.
    pub window: u32,
}

impl Shape {
    /// A model of a few megabytes in which every feature of the family changes the result within
    /// 256 tokens. Rows are multiples of 256, so any quantization fits.
    #[must_use]
    pub const fn tiny(family: Family) -> Self {
        Self {
            family,
            layers: if matches!(family, Family::Gemma3) { 7 } else { 4 },
            width: 256,
            heads: 4,
            kv_heads: 2,
            head_dim: 64,
            feed_forward: 512,
            vocabulary: 1536,
            context: 1024,
            tied: true,
            rope_base: 10_000.0,
            window: 48,
        }
    }

    /// A published model's shape by name: `smollm2-135m`, `qwen2.5-0.5b`, `qwen2.5-1.5b`,
    /// `qwen2.5-3b`, `qwen3-0.6b`, `llama-3.2-1b`; or [`Shape::tiny`] as `tiny-llama`, `tiny-qwen2`, ….
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let dense = |family, sizes: [u32; 8], tied, rope_base| {
            let [layers, width, heads, kv_heads, head_dim, feed_forward, vocabulary, context] =
                sizes;
            let window = context;
            Self {
                family,
                layers,
                width,
                heads,
                kv_heads,
                head_dim,
                feed_forward,
                vocabulary,
                context,
                tied,
                rope_base,
                window,
            }
        };
        if let Some(family) = name.strip_prefix("tiny-") {
            return Family::ALL
                .into_iter()
                .find(|known| known.architecture() == family)
                .map(Self::tiny);
        }
        let shape = match name {
            "smollm2-135m" => {
                dense(Family::Llama, [30, 576, 9, 3, 64, 1536, 49_152, 8192], true, 1e5)
            }
            "llama-3.2-1b" => {
                dense(Family::Llama, [16, 2048, 32, 8, 64, 8192, 128_256, 131_072], true, 5e5)
            }
            "qwen2.5-0.5b" => {
                dense(Family::Qwen2, [24, 896, 14, 2, 64, 4864, 151_936, 32_768], true, 1e6)
            }
            "qwen2.5-1.5b" => {
                dense(Family::Qwen2, [28, 1536, 12, 2, 128, 8960, 151_936, 32_768], true, 1e6)
            }
            "qwen2.5-3b" => {
                dense(Family::Qwen2, [36, 2048, 16, 2, 128, 11_008, 151_936, 32_768], true, 1e6)
            }
            "qwen3-0.6b" => {
                dense(Family::Qwen3, [28, 1024, 16, 8, 128, 3072, 151_936, 40_960], true, 1e6)
            }
            _ => return None,
        };
        Some(shape)
    }

    /// Every tensor of the model, in file order, with the quantization that `mix` gives it.
    ///
    /// # Errors
    /// When there is no such mix, or no quantization fits a row.
    pub fn tensors(&self, mix: &str) -> Result<Vec<Tensor>> {
        ensure!(MIXES.contains(&mix), "unknown mix {mix}: one of {}", MIXES.join(", "));
        let mut tensors = Vec::new();
        let (width, ff) = (self.width, self.feed_forward);
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let spread = |inputs: u32, by: f32| by / (inputs as f32).sqrt();
        let sandwich = matches!(self.family, Family::Gemma2 | Family::Gemma3);
        // A tied embedding is the head too, and Gemma multiplies it by √width on the way in: kept
        // small, lest every token predict itself, and made up for by the last norm.
        let (embedding, last) = match (self.tied, sandwich) {
            (true, true) => (spread(width, 0.5), 6.0),
            (true, false) => (spread(width, 3.0), 1.0),
            (false, _) => (1.0, 1.0),
        };
        let mut add = |name: String, shape: &[u32], fill: Fill, layer: Option<u32>| -> Result<()> {
            let quant =
                quant_of(mix, &name, shape, layer.map(|layer| (layer, self.layers)), self.tied)?;
            tensors.push(Tensor { name, shape: shape.to_vec(), quant, fill });
            Ok(())
        };
        let weight = |spread| Fill { mean: 0.0, spread };
        let norm = Fill { mean: 1.0, spread: 0.1 };
        add("token_embd.weight".to_owned(), &[width, self.vocabulary], weight(embedding), None)?;
        for layer in 0..self.layers {
            let name = |part: &str| format!("blk.{layer}.{part}");
            let at = Some(layer);
            add(name("attn_norm.weight"), &[width], norm, at)?;
            for (part, rows, by) in [("attn_q", q, 2.0), ("attn_k", kv, 2.0), ("attn_v", kv, 1.0)] {
                add(
                    name(&format!("{part}.weight")),
                    &[width, rows],
                    weight(spread(width, by)),
                    at,
                )?;
                if self.family == Family::Qwen2 {
                    add(name(&format!("{part}.bias")), &[rows], weight(0.3), at)?;
                }
            }
            if matches!(self.family, Family::Qwen3 | Family::Gemma3) {
                let norm = Fill { mean: 1.5, spread: 0.2 };
                add(name("attn_q_norm.weight"), &[self.head_dim], norm, at)?;
                add(name("attn_k_norm.weight"), &[self.head_dim], norm, at)?;
            }
            add(name("attn_output.weight"), &[q, width], weight(spread(q, 1.0)), at)?;
            if sandwich {
                add(name("post_attention_norm.weight"), &[width], norm, at)?;
            }
            add(name("ffn_norm.weight"), &[width], norm, at)?;
            add(name("ffn_gate.weight"), &[width, ff], weight(spread(width, 1.0)), at)?;
            add(name("ffn_up.weight"), &[width, ff], weight(spread(width, 1.0)), at)?;
            add(name("ffn_down.weight"), &[ff, width], weight(spread(ff, 2.0)), at)?;
            if sandwich {
                add(name("post_ffw_norm.weight"), &[width], norm, at)?;
            }
        }
        let norm = Fill { mean: last, spread: 0.1 * last };
        add("output_norm.weight".to_owned(), &[width], norm, None)?;
        if !self.tied {
            add(
                "output.weight".to_owned(),
                &[width, self.vocabulary],
                weight(spread(width, 3.0)),
                None,
            )?;
        }
        Ok(tensors)
    }

    fn describe(&self, name: &str, file: &mut File<'_>) -> Result<()> {
        let architecture = self.family.architecture();
        file.set("general.type", Value::text("model"));
        file.set("general.name", Value::text(name));
        file.set("general.quantization_version", Value::U32(2));
        let mut set = |key: &str, value| file.set(format!("{architecture}.{key}"), value);
        set("block_count", Value::U32(self.layers));
        set("context_length", Value::U32(self.context));
        set("embedding_length", Value::U32(self.width));
        set("feed_forward_length", Value::U32(self.feed_forward));
        set("attention.head_count", Value::U32(self.heads));
        set("attention.head_count_kv", Value::U32(self.kv_heads));
        set("attention.key_length", Value::U32(self.head_dim));
        set("attention.value_length", Value::U32(self.head_dim));
        set("attention.layer_norm_rms_epsilon", Value::F32(1e-6));
        set("rope.freq_base", Value::F32(self.rope_base));
        match self.family {
            Family::Llama => {
                set("rope.dimension_count", Value::U32(self.head_dim));
                set("vocab_size", Value::U32(self.vocabulary));
            }
            Family::Gemma2 => {
                set("attention.sliding_window", Value::U32(self.window));
                set("attn_logit_softcapping", Value::F32(10.0));
                set("final_logit_softcapping", Value::F32(8.0));
            }
            Family::Gemma3 => set("attention.sliding_window", Value::U32(self.window)),
            Family::Qwen2 | Family::Qwen3 => {}
        }
        self.family.vocabulary().describe(file, self.vocabulary as usize)
    }
}

impl Family {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Llama, Self::Qwen2, Self::Qwen3, Self::Gemma2, Self::Gemma3];

    /// `general.architecture`.
    #[must_use]
    pub const fn architecture(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Gemma2 => "gemma2",
            Self::Gemma3 => "gemma3",
        }
    }

    const fn vocabulary(self) -> Vocabulary {
        match self {
            Self::Llama => Vocabulary::ByteLevel("llama-bpe"),
            Self::Qwen2 | Self::Qwen3 => Vocabulary::ByteLevel("qwen2"),
            Self::Gemma2 | Self::Gemma3 => Vocabulary::SentencePiece,
        }
    }
}

/// A tensor that will be made.
#[derive(Debug, Clone)]
pub struct Tensor {
    /// Its name.
    pub name: String,
    /// Columns first.
    pub shape: Vec<u32>,
    /// How it is stored.
    pub quant: Quant,
    fill: Fill,
}

impl Tensor {
    fn columns(&self) -> usize {
        self.shape.first().map_or(0, |columns| *columns as usize)
    }

    fn rows(&self) -> usize {
        self.shape.iter().skip(1).map(|extent| *extent as usize).product()
    }

    /// Bytes in the file.
    ///
    /// # Errors
    /// When a row is not a whole number of blocks.
    pub fn bytes(&self) -> Result<u64> {
        Ok((self.quant.row_bytes(self.columns())? * self.rows()) as u64)
    }
}

/// Normally distributed numbers.
#[derive(Debug, Clone, Copy)]
struct Fill {
    mean: f32,
    spread: f32,
}

/// Quantization mixes by llama-quantize's names.
pub const MIXES: [&str; 26] = [
    "f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q4_k_s", "q4_k_m", "q5_k_m",
    "q6_k", "q2_k", "q3_k", "iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s",
    "iq4_nl", "iq4_xs", "tq1_0", "tq2_0", "mxfp4",
];

/// The quantization that llama-quantize would choose: the mix's own, better ones where the mix says
/// so, and one of 32-wide blocks where a row is not a multiple of 256.
fn quant_of(
    mix: &str,
    name: &str,
    shape: &[u32],
    layer: Option<(u32, u32)>,
    tied: bool,
) -> Result<Quant> {
    if shape.len() < 2 {
        return Ok(Quant::F32);
    }
    // The layers to which the `_m` mixes give more bits: an eighth at each end, every third between.
    let important = layer.is_some_and(|(layer, layers)| {
        layer < layers / 8 || layer >= 7 * layers / 8 || layer.saturating_sub(layers / 8) % 3 == 2
    });
    let head = name == "output.weight" || (tied && name == "token_embd.weight");
    let sensitive = name.contains("attn_v.") || name.contains("ffn_down.");
    let wanted = match mix {
        "f32" | "f16" | "bf16" | "q8_0" => mix,
        _ if head => "q6_k",
        "q4_k_m" | "q5_k_m" if sensitive && important => "q6_k",
        "q4_k_s" | "q4_k_m" => "q4_k",
        "q5_k_m" => "q5_k",
        _ => mix,
    };
    let wanted = match wanted {
        _ if shape.first().is_some_and(|columns| columns % 256 == 0) => wanted,
        "q4_k" => "q5_0",
        "q5_k" => "q5_1",
        "q6_k" => "q8_0",
        "q2_k" | "q3_k" => "iq4_nl",
        _ if wanted.starts_with("iq") => "iq4_nl",
        _ if wanted.starts_with("tq") => "q4_0",
        _ => wanted,
    };
    Quant::from_name(&wanted.to_uppercase()).with_context(|| format!("no quantization {wanted}"))
}

/// Writes a model whose every row is its own: for comparing numbers.
///
/// # Errors
/// When there is no such mix, a row does not fit it, or the file cannot be written.
pub fn write(shape: &Shape, mix: &str, seed: u64, path: &Path) -> Result<()> {
    save(shape, mix, seed, usize::MAX, path)
}

/// Writes a model in which few rows of a tensor differ, so that gigabytes are made at the speed of
/// the disk: for measuring speed only.
///
/// # Errors
/// As [`write()`].
pub fn write_for_speed(shape: &Shape, mix: &str, seed: u64, path: &Path) -> Result<()> {
    save(shape, mix, seed, 61, path)
}

fn save(shape: &Shape, mix: &str, seed: u64, distinct: usize, path: &Path) -> Result<()> {
    let stock = RefCell::new(Stock::default());
    let mut file = File::new(shape.family.architecture());
    let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("model");
    shape.describe(name, &mut file)?;
    for (index, tensor) in shape.tensors(mix)?.into_iter().enumerate() {
        let extents: Vec<u64> = tensor.shape.iter().map(|extent| u64::from(*extent)).collect();
        let mut random = Random::new(seed ^ ((index as u64) << 32));
        let (name, length, stock) = (tensor.name.clone(), tensor.bytes()?, &stock);
        file.stream(name, &extents, tensor.quant.id(), length, move |out| {
            if tensor.rows() <= distinct {
                for _ in 0..tensor.rows() {
                    out.write_all(&random_row(&tensor, &mut random)?)?;
                }
                return Ok(());
            }
            let mut stock = stock.borrow_mut();
            let rows = stock.rows(&tensor, distinct, &mut random)?;
            for _ in 0..tensor.rows() {
                let row = rows.get(random.next() as usize % distinct).context("an empty stock")?;
                out.write_all(row)?;
            }
            Ok(())
        });
    }
    file.write(path).with_context(|| format!("cannot write {}", path.display()))
}

/// Rows that repeat, by quantization, width and spread.
#[derive(Default)]
struct Stock(BTreeMap<(u32, usize, u32), Vec<Vec<u8>>>);

impl Stock {
    fn rows(&mut self, tensor: &Tensor, count: usize, random: &mut Random) -> Result<&[Vec<u8>]> {
        let kind = (tensor.quant.id(), tensor.columns(), tensor.fill.spread.to_bits());
        match self.0.entry(kind) {
            Entry::Occupied(rows) => Ok(rows.into_mut()),
            Entry::Vacant(none) => {
                let rows = (0..count).map(|_| random_row(tensor, random)).collect::<Result<_>>()?;
                Ok(none.insert(rows))
            }
        }
    }
}

fn random_row(tensor: &Tensor, random: &mut Random) -> Result<Vec<u8>> {
    let Fill { mean, spread } = tensor.fill;
    if blocks::knows(tensor.quant) {
        return blocks::random_row(tensor.quant, tensor.columns(), spread, random);
    }
    let row: Vec<f32> = (0..tensor.columns()).map(|_| mean + spread * random.normal()).collect();
    let mut bytes = vec![0; tensor.quant.row_bytes(row.len())?];
    encode_row(tensor.quant, &row, &mut bytes)?;
    Ok(bytes)
}

/// Seeded numbers (SplitMix64), the same on every machine.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A sequence by its seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 random bits.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Near enough a standard normal: the sum of four uniform numbers.
    pub fn normal(&mut self) -> f32 {
        let bits = self.next();
        let sum: u64 = (0..4).map(|part| bits >> (16 * part) & 0xffff).sum();
        (sum as f32 / 65_536.0 - 2.0) * 3.0_f32.sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::{Family, MIXES, Quant, Random, Shape, quant_of};

    #[test]
    fn mixes_choose_as_llama_quantize_does() {
        let name = |tensor: &str, columns, layer| {
            quant_of("q4_k_m", tensor, &[columns, 8], layer, true).unwrap()
        };
        // The published Q4_K_M files of SmolLM2 (576 wide), Gemma 3 270M (640) and a 2048-wide model.
        assert_eq!(name("token_embd.weight", 2048, None), Quant::Q6_K);
        assert_eq!(name("token_embd.weight", 640, None), Quant::Q8_0);
        assert_eq!(name("blk.0.attn_q.weight", 640, Some((0, 18))), Quant::Q5_0);
        assert_eq!(name("blk.0.attn_v.weight", 640, Some((0, 18))), Quant::Q8_0);
        assert_eq!(name("blk.0.attn_output.weight", 1024, Some((0, 18))), Quant::Q4_K);
        assert_eq!(name("blk.0.ffn_down.weight", 2048, Some((0, 18))), Quant::Q6_K);
        assert_eq!(name("blk.3.ffn_down.weight", 2048, Some((3, 36))), Quant::Q6_K);
        assert_eq!(name("blk.5.ffn_down.weight", 2048, Some((5, 36))), Quant::Q4_K);
    }

    #[test]
    fn every_family_can_be_written_in_every_mix() {
        let folder = tempfile::tempdir().unwrap();
        for family in Family::ALL {
            for mix in MIXES {
                let mut shape = Shape::tiny(family);
                (shape.layers, shape.vocabulary, shape.tied) = (1, 320, mix == "q8_0");
                let path = folder.path().join(format!("{family:?}-{mix}.gguf"));
                super::write(&shape, mix, 1, &path).unwrap();
                let payload: u64 =
                    shape.tensors(mix).unwrap().iter().map(|tensor| tensor.bytes().unwrap()).sum();
                let size = std::fs::metadata(&path).unwrap().len();
                assert!(
                    size > payload && size < payload + 64_000,
                    "{family:?} {mix}: {size} for {payload}"
                );
            }
        }
    }

    #[test]
    fn random_numbers_are_normal_and_repeatable() {
        let draw = || {
            let mut random = Random::new(5);
            (0..10_000).map(|_| random.normal()).collect::<Vec<_>>()
        };
        let numbers = draw();
        assert_eq!(numbers, draw());
        let mean = numbers.iter().sum::<f32>() / 1e4;
        let variance = numbers.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / 1e4;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
    }
}
