//! What steps are set to: attention, rotary embedding, experts. Each reads GGUF's usual keys, and
//! its fields are public for a family that knows better.

use alloc::{borrow::ToOwned, format, string::String};

use super::Metadata;
use crate::{Error, Result};

/// An activation function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// `x · sigmoid(x)`
    Silu,
    /// GELU by its tanh approximation.
    GeluTanh,
    /// GELU by the error function.
    Gelu,
    /// `max(x, 0)`
    Relu,
    /// `max(x, 0)²`
    ReluSquared,
    /// `1 / (1 + e^-x)`
    Sigmoid,
    /// `x`: a gate that multiplies as it is.
    Identity,
    /// gpt-oss: a gate of at most 7 times its sigmoid by 1.702, times up within ±7 plus 1.
    SwigluOai,
}

impl Activation {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Silu => "silu",
            Self::GeluTanh => "gelu-tanh",
            Self::Gelu => "gelu",
            Self::Relu => "relu",
            Self::ReluSquared => "relu-squared",
            Self::Sigmoid => "sigmoid",
            Self::Identity => "identity",
            Self::SwigluOai => "swiglu-oai",
        }
    }
}

/// Attention of one layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Attention {
    /// Query heads.
    pub heads: u32,
    /// Key and value heads.
    pub kv_heads: u32,
    /// Numbers per head.
    pub head_dim: u32,
    /// What scores are multiplied by; `1 / sqrt(head_dim)` unless the family says otherwise.
    pub scale: f64,
    /// Whether a token sees only what came before it.
    pub causal: bool,
    /// A token sees the last so many, itself included; none: all.
    pub window: Option<u32>,
    /// Scores become `cap · tanh(score / cap)`.
    pub softcap: Option<f64>,
    /// Stem of a tensor with one sink per head.
    pub sinks: Option<String>,
}

impl Attention {
    /// Causal attention over everything, by `{arch}.attention.head_count`, `.head_count_kv`
    /// (default: as many), `.key_length` (default: width / heads).
    ///
    /// # Errors
    /// `invalid-request` when a key is missing, 0, or the numbers do not divide; `unsupported` when
    /// keys and values differ in length.
    pub fn of(model: &Metadata) -> Result<Self> {
        Self::at(model, 0)
    }

    /// The same for a layer of a model whose layers differ in `.head_count_kv`.
    ///
    /// # Errors
    /// As [`Attention::of`].
    pub fn at(model: &Metadata, layer: u32) -> Result<Self> {
        let heads = model.u32("{arch}.attention.head_count")?;
        let kv_heads = model.find_u32_at("{arch}.attention.head_count_kv", layer)?.unwrap_or(heads);
        let width = model.u32("{arch}.embedding_length")?;
        if heads == 0 || kv_heads == 0 || heads % kv_heads != 0 {
            return Err(Error::invalid_request(format!(
                "{heads} attention heads cannot share {kv_heads} key and value heads"
            )));
        }
        let head_dim = model.find_u32("{arch}.attention.key_length")?.unwrap_or(width / heads);
        let value_dim = model.find_u32("{arch}.attention.value_length")?.unwrap_or(head_dim);
        if head_dim == 0 || head_dim != value_dim {
            return Err(Error::unsupported(format!(
                "attention with keys of {head_dim} and values of {value_dim} numbers: \
                 they must be equal and not 0"
            )));
        }
        Ok(Self {
            heads,
            kv_heads,
            head_dim,
            scale: 1.0 / crate::sqrt(f64::from(head_dim)),
            causal: true,
            window: None,
            softcap: None,
            sinks: None,
        })
    }

    /// The same attention through a sliding window; `None` or 0: over everything.
    #[must_use]
    pub fn windowed(mut self, window: Option<u32>) -> Self {
        self.window = window.filter(|tokens| *tokens > 0);
        self
    }
}

/// Which numbers of a head rotate together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// `(0, 1), (2, 3), …`: Llama in GGUF.
    Interleaved,
    /// `(0, n/2), (1, n/2 + 1), …`: Qwen, Gemma, NEOX.
    Half,
}

/// How positions beyond the trained context are brought back into it.
#[derive(Debug, Clone, PartialEq)]
pub enum Scaling {
    /// They are not.
    None,
    /// Positions are divided by the factor.
    Linear {
        /// At least 1.
        factor: f64,
    },
    /// YaRN.
    Yarn {
        /// At least 1.
        factor: f64,
        /// Context length before scaling.
        original_context: u32,
        /// Rotations above which a dimension is not scaled.
        beta_fast: f64,
        /// Rotations below which it is scaled fully.
        beta_slow: f64,
        /// What sine and cosine are multiplied by besides YaRN's own `1 + 0.1 ln factor`.
        attention_factor: f64,
    },
}

/// Rotary position embedding.
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    /// Numbers per head.
    pub head_dim: u32,
    /// The first of them that rotates.
    pub offset: u32,
    /// How many rotate from there on.
    pub dims: u32,
    /// Which rotate together.
    pub layout: Layout,
    /// Base of the frequencies.
    pub base: f64,
    /// Scaling of positions.
    pub scaling: Scaling,
    /// What sine and cosine are multiplied by without a scaling (LongRoPE).
    pub attention_factor: f64,
    /// Whole name of a tensor of `dims / 2` numbers that divide the frequencies.
    pub factors: Option<String>,
    /// The same for models opened with more context than this.
    pub long_factors: Option<(String, u32)>,
}

impl Rope {
    /// By `{arch}.rope.freq_base` (default 10000), `.rope.dimension_count` (default: the whole
    /// head), `.rope.scaling.*` and the older `.rope.scale_linear`; with the factors of
    /// `rope_freqs.weight` (Llama 3.1) or `rope_factors_short.weight` and `rope_factors_long.weight`
    /// (LongRoPE) if the file has them.
    ///
    /// # Errors
    /// `invalid-request` for numbers that cannot be; `unsupported` for a scaling by another name.
    pub fn of(model: &Metadata, layout: Layout, head_dim: u32) -> Result<Self> {
        let dims = model.find_u32("{arch}.rope.dimension_count")?.unwrap_or(head_dim);
        if dims == 0 || dims % 2 != 0 || dims > head_dim {
            return Err(Error::invalid_request(format!(
                "{}.rope.dimension_count should be even and at most {head_dim}, found {dims}",
                model.architecture
            )));
        }
        let named = |name: &str| model.find_tensor(name).map(|tensor| tensor.name.clone());
        let long = match named("rope_factors_long.weight") {
            Some(name) => Some((name, model.u32("{arch}.rope.scaling.original_context_length")?)),
            None => None,
        };
        let magnitude = match long {
            Some(_) => model.find_f64("{arch}.rope.scaling.attn_factor")?,
            None => None,
        };
        let factors = named("rope_freqs.weight").or_else(|| named("rope_factors_short.weight"));
        Ok(Self {
            head_dim,
            offset: 0,
            dims,
            layout,
            base: model.find_f64("{arch}.rope.freq_base")?.unwrap_or(10_000.0),
            scaling: Scaling::of(model)?,
            attention_factor: magnitude.unwrap_or(1.0),
            factors,
            long_factors: long,
        })
    }

    /// The same embedding with another base and without scaling (local layers of Gemma 3).
    #[must_use]
    pub fn local(&self, base: f64) -> Self {
        Self { base, scaling: Scaling::None, ..self.clone() }
    }
}

impl Scaling {
    fn of(model: &Metadata) -> Result<Self> {
        let older = model.find_f64("{arch}.rope.scale_linear")?;
        let factor = model.find_f64("{arch}.rope.scaling.factor")?.or(older).unwrap_or(1.0);
        let unsaid = if factor == 1.0 { "none" } else { "linear" };
        let kind = model.find_text("{arch}.rope.scaling.type")?.unwrap_or(unsaid);
        if kind != "none" && factor <= 0.0 {
            return Err(Error::invalid_request(format!(
                "{}.rope.scaling.factor should be above 0, found {factor}",
                model.architecture
            )));
        }
        match kind {
            // LongRoPE is in the factors; its magnitude is the rope's.
            "none" | "longrope" => Ok(Self::None),
            "linear" if factor == 1.0 => Ok(Self::None),
            "linear" => Ok(Self::Linear { factor }),
            "yarn" => {
                let own = model.find_f64("{arch}.rope.scaling.attn_factor")?.unwrap_or(1.0);
                let set = |key: &str, usual: f64| -> Result<f64> {
                    Ok(model.find_f64(key)?.unwrap_or(usual))
                };
                Ok(Self::Yarn {
                    factor,
                    original_context: model.u32("{arch}.rope.scaling.original_context_length")?,
                    beta_fast: set("{arch}.rope.scaling.yarn_beta_fast", 32.0)?,
                    beta_slow: set("{arch}.rope.scaling.yarn_beta_slow", 1.0)?,
                    attention_factor: own,
                })
            }
            other => Err(Error::unsupported(format!(
                "rope scaling {other} of architecture {}: known are none, linear, yarn and longrope",
                model.architecture
            ))),
        }
    }
}

/// How experts are scored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scoring {
    /// A probability over all experts.
    Softmax,
    /// Each expert on its own.
    Sigmoid,
    /// A probability over the chosen experts.
    Chosen,
}

/// A mixture of experts.
#[derive(Debug, Clone, PartialEq)]
pub struct Moe {
    /// All experts.
    pub experts: u32,
    /// Experts per token.
    pub active: u32,
    /// Equal groups of experts; 1 is none.
    pub groups: u32,
    /// Groups from which experts are chosen.
    pub active_groups: u32,
    /// The experts' activation.
    pub activation: Activation,
    /// How they are chosen.
    pub scoring: Scoring,
    /// Whether the chosen weights are made to sum to 1.
    pub normalize: bool,
    /// What the sum is multiplied by.
    pub scale: f64,
}

impl Moe {
    /// By `{arch}.expert_count`, `.expert_used_count`, `.expert_weights_scale`,
    /// `.expert_weights_norm` (default: yes), `.expert_gating_func` (default: softmax),
    /// `.expert_group_count` and `.expert_group_used_count`: SwiGLU experts. `None`: the model is
    /// dense.
    ///
    /// # Errors
    /// `invalid-request` when more experts are active than there are; `unsupported` for another
    /// gating function.
    pub fn of(model: &Metadata) -> Result<Option<Self>> {
        let experts = model.find_u32("{arch}.expert_count")?.unwrap_or(0);
        if experts == 0 {
            return Ok(None);
        }
        let active = model.u32("{arch}.expert_used_count")?;
        if active == 0 || active > experts {
            return Err(Error::invalid_request(format!(
                "{active} of {experts} experts cannot be active"
            ))
            .with("field", model.architecture.to_owned() + ".expert_used_count"));
        }
        let scale = model.find_f64("{arch}.expert_weights_scale")?.filter(|scale| *scale != 0.0);
        let scoring = match model.find_u32("{arch}.expert_gating_func")? {
            None | Some(0 | 1) => Scoring::Softmax,
            Some(2) => Scoring::Sigmoid,
            Some(3) => Scoring::Chosen,
            Some(other) => {
                return Err(Error::unsupported(format!(
                    "{}.expert_gating_func {other}: known are 1 (softmax), 2 (sigmoid) and 3 \
                     (softmax of the chosen)",
                    model.architecture
                )));
            }
        };
        let groups = model.find_u32("{arch}.expert_group_count")?.unwrap_or(1).max(1);
        let used = model.find_u32("{arch}.expert_group_used_count")?.filter(|used| *used > 0);
        Ok(Some(Self {
            experts,
            active,
            groups,
            active_groups: used.unwrap_or(groups),
            activation: Activation::Silu,
            scoring,
            normalize: model.find_flag("{arch}.expert_weights_norm")?.unwrap_or(true),
            scale: scale.unwrap_or(1.0),
        }))
    }
}
