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
    vocabulary::add_marks,
};

mod family;
mod keys;
mod tensors;

pub use family::Family;

/// A model's sizes.
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
    /// Experts of a layer; 0 is a dense model.
    pub experts: u32,
    /// Experts a token asks.
    pub active: u32,
    /// Width between an expert's gate/up and down.
    pub expert_feed_forward: u32,
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
            // llama.cpp reads OLMoE with as many.
            kv_heads: if matches!(family, Family::Olmoe) { 4 } else { 2 },
            head_dim: 64,
            feed_forward: 512,
            vocabulary: 1536,
            context: 1024,
            tied: true,
            rope_base: 10_000.0,
            window: 48,
            experts: if family.mixes() { 8 } else { 0 },
            active: 2,
            expert_feed_forward: 256,
        }
    }

    /// Every tensor of the model, in file order, with the quantization that `mix` gives it.
    ///
    /// # Errors
    /// When there is no such mix, or no quantization fits a row.
    pub fn tensors(&self, mix: &str) -> Result<Vec<Tensor>> {
        ensure!(MIXES.contains(&mix), "unknown mix {mix}: one of {}", MIXES.join(", "));
        let made = |(name, shape, fill, layer): (String, Vec<u32>, Fill, Option<u32>)| {
            let layer = layer.map(|layer| (layer, self.layers));
            let quant = quant_of(mix, &name, &shape, layer, self.tied)?;
            Ok(Tensor { name, shape, quant, fill })
        };
        tensors::tensors(self).into_iter().map(made).collect()
    }

    /// A published model's shape by name: `smollm2-135m`, `qwen2.5-0.5b`, `qwen2.5-1.5b`,
    /// `qwen2.5-3b`, `qwen3-0.6b`, `llama-3.2-1b`, `olmoe-1b-7b`; eight experts of TinyLlama's size of
    /// which two are asked as `moe-8x1b`; or [`Shape::tiny`] as `tiny-llama`, `tiny-qwen2`, ….
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
                experts: 0,
                active: 0,
                expert_feed_forward: 0,
            }
        };
        let mixture = |shape: Self, experts, active| Self {
            experts,
            active,
            expert_feed_forward: shape.feed_forward,
            ..shape
        };
        if let Some(family) = name.strip_prefix("tiny-") {
            return Family::ALL.into_iter().find(|known| known.name() == family).map(Self::tiny);
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
            "moe-8x1b" => {
                let sizes = [22, 2048, 32, 4, 64, 5632, 32_000, 8192];
                mixture(dense(Family::Mixtral, sizes, false, 1e6), 8, 2)
            }
            "olmoe-1b-7b" => {
                let sizes = [16, 2048, 16, 16, 128, 1024, 50_304, 4096];
                mixture(dense(Family::Olmoe, sizes, false, 1e4), 64, 8)
            }
            _ => return None,
        };
        Some(shape)
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
pub(crate) struct Fill {
    mean: f32,
    spread: f32,
}

/// Quantization mixes by llama-quantize's names.
pub const MIXES: [&str; 27] = [
    "f32",
    "f16",
    "bf16",
    "q8_0",
    "q4_0",
    "q4_1",
    "q5_0",
    "q5_1",
    "q4_k_s",
    "q4_k_m",
    "q5_k_m",
    "q6_k",
    "q2_k",
    "q3_k",
    "iq1_s",
    "iq1_m",
    "iq2_xxs",
    "iq2_xs",
    "iq2_s",
    "iq3_xxs",
    "iq3_s",
    "iq4_nl",
    "iq4_xs",
    "tq1_0",
    "tq2_0",
    "mxfp4",
    "mxfp4_moe",
];

/// Matrices that llama-quantize leaves in F32.
const FLOATS: [&str; 4] =
    ["ffn_gate_inp.", "ffn_gate_inp_shexp.", "shortconv.conv.", "ssm_conv1d."];

/// The quantization that llama-quantize would choose: the mix's own, better ones where the mix says
/// so, and one of 32-wide blocks where a row is not a multiple of 256.
fn quant_of(
    mix: &str,
    name: &str,
    shape: &[u32],
    layer: Option<(u32, u32)>,
    tied: bool,
) -> Result<Quant> {
    if shape.len() < 2 || name.ends_with(".bias") || FLOATS.iter().any(|part| name.contains(part)) {
        return Ok(Quant::F32);
    }
    // The layers to which the `_m` mixes give more bits: an eighth at each end, every third between.
    let important = layer.is_some_and(|(layer, layers)| {
        layer < layers / 8 || layer >= 7 * layers / 8 || layer.saturating_sub(layers / 8) % 3 == 2
    });
    let head = name == "output.weight" || (tied && name == "token_embd.weight");
    let sensitive =
        ["attn_v.", "ffn_down.", "ffn_down_exps."].iter().any(|part| name.contains(part));
    let wanted = match mix {
        "f32" | "f16" | "bf16" | "q8_0" => mix,
        "mxfp4_moe" if name.contains("_exps.") => "mxfp4",
        "mxfp4_moe" => "q8_0",
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
    save(shape, mix, seed, usize::MAX, None, &[], path)
}

/// The same with another chat template (Jinja) than its vocabulary's.
///
/// # Errors
/// As [`write()`].
pub fn write_chatty(
    shape: &Shape,
    mix: &str,
    seed: u64,
    template: &str,
    path: &Path,
) -> Result<()> {
    save(shape, mix, seed, usize::MAX, Some(template), &[], path)
}

/// The same with these control tokens as the last of its vocabulary, which is byte-level.
///
/// # Errors
/// As [`write()`].
pub fn write_marked(
    shape: &Shape,
    mix: &str,
    seed: u64,
    marks: &[&str],
    path: &Path,
) -> Result<()> {
    save(shape, mix, seed, usize::MAX, None, marks, path)
}

/// Writes a model in which few rows of a tensor differ, so that gigabytes are made at the speed of
/// the disk: for measuring speed only.
///
/// # Errors
/// As [`write()`].
pub fn write_for_speed(shape: &Shape, mix: &str, seed: u64, path: &Path) -> Result<()> {
    save(shape, mix, seed, 61, None, &[], path)
}

fn save(
    shape: &Shape,
    mix: &str,
    seed: u64,
    distinct: usize,
    template: Option<&str>,
    marks: &[&str],
    path: &Path,
) -> Result<()> {
    let stock = RefCell::new(Stock::default());
    let mut file = File::new(shape.family.architecture());
    let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("model");
    let unmarked = Shape { vocabulary: shape.vocabulary - marks.len() as u32, ..shape.clone() };
    keys::describe(&unmarked, name, &mut file)?;
    add_marks(&mut file, marks);
    if let Some(template) = template {
        file.replace("tokenizer.chat_template", Value::text(template));
    }
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
