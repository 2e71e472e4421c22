//! The checked form of a program: what the planner, the executor and the reference read.

use gristmill_kernels::Quant;

/// Index into [`Checked::tensors`].
pub type TensorId = usize;
/// Number of a value.
pub type ValueId = usize;

/// A tensor some step reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Its name in the file.
    pub name: String,
    /// Fastest-varying dimension first.
    pub shape: Vec<usize>,
    /// How its numbers are stored.
    pub quant: Quant,
}

impl Tensor {
    /// Rows of the tensor seen as a matrix: all dimensions but the first.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.shape.iter().skip(1).product()
    }

    /// Columns: the first dimension.
    #[must_use]
    pub fn cols(&self) -> usize {
        self.shape.first().copied().unwrap_or(1)
    }
}

/// A pointwise function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// `x · sigmoid(x)`.
    Silu,
    /// The tanh approximation of the Gaussian error linear unit.
    GeluTanh,
    /// The Gaussian error linear unit, with the error function.
    Gelu,
    /// `max(x, 0)`.
    Relu,
    /// `max(x, 0)²`.
    ReluSquared,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// `x`: a plain product of gate and up.
    Identity,
    /// `min(x, 7) · sigmoid(1.702 · min(x, 7))`, and one is added to up, which is held within ±7.
    SwigluOai,
}

impl Activation {
    /// The word of the step vocabulary.
    #[must_use]
    pub const fn name(self) -> &'static str {
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

/// Which numbers of a head turn together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Neighbours: `(0, 1), (2, 3), …`.
    Interleaved,
    /// Halves: `(0, dims/2), (1, dims/2 + 1), …`.
    Half,
}

/// How positions beyond the trained context are mapped into it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scaling {
    /// Not at all.
    None {
        /// Multiplies the result (LongRoPE's magnitude); 1 otherwise.
        attention_factor: f64,
    },
    /// Positions divided by a factor.
    Linear {
        /// The factor.
        factor: f64,
    },
    /// `YaRN`: low frequencies interpolated, high ones kept, with a ramp between.
    Yarn {
        /// Context extension factor.
        factor: f64,
        /// Context the model was trained for.
        original_context: usize,
        /// Turns above which a frequency is kept.
        beta_fast: f64,
        /// Turns below which a frequency is interpolated.
        beta_slow: f64,
        /// Multiplies the result, on top of `1 + 0.1 ln(factor)`.
        attention_factor: f64,
    },
}

/// A rotary position embedding.
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    /// Heads in a row.
    pub heads: usize,
    /// Numbers in a head.
    pub head_dim: usize,
    /// First number of a head that turns.
    pub offset: usize,
    /// Numbers of a head that turn, from `offset` on.
    pub dims: usize,
    /// Which turn together.
    pub layout: Layout,
    /// Base of the frequencies.
    pub base: f64,
    /// Position scaling.
    pub scaling: Scaling,
    /// Divisors of the frequencies, `[dims / 2]`.
    pub factors: Option<TensorId>,
    /// What stands in for `factors` where the context is longer than the trained one.
    pub long: Option<Long>,
}

/// Frequencies for contexts longer than a model was trained for (LongRoPE).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Long {
    /// Divisors of the frequencies, `[dims / 2]`.
    pub factors: TensorId,
    /// Longest context that does without them.
    pub original_context: usize,
}

/// Softmax attention over one layer's cache.
#[derive(Debug, Clone, PartialEq)]
pub struct Attention {
    /// Index into [`Checked::kv`].
    pub state: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Numbers in a head.
    pub head_dim: usize,
    /// Factor on the scores.
    pub scale: f32,
    /// Whether a token sees only what came before.
    pub causal: bool,
    /// Tokens seen, itself included.
    pub window: Option<usize>,
    /// `cap · tanh(score / cap)`.
    pub softcap: Option<f32>,
    /// A logit per head that takes part in the softmax without a value.
    pub sinks: Option<TensorId>,
}

/// A causal convolution of each channel over the last tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct Conv {
    /// Index into [`Checked::recurrent`].
    pub state: usize,
    /// `[kernel, width]`.
    pub weight: TensorId,
    /// `[width]`.
    pub bias: Option<TensorId>,
    /// Tokens looked at, the newest included.
    pub kernel: usize,
    /// Of the sum.
    pub activation: Activation,
}

/// The gated delta rule; inputs q, k, v, decay, strength.
#[derive(Debug, Clone, PartialEq)]
pub struct DeltaRule {
    /// Index into [`Checked::recurrent`].
    pub state: usize,
    /// Heads of values, decay and strength.
    pub heads: usize,
    /// Heads of queries and keys.
    pub key_heads: usize,
    /// Numbers in a head of queries and keys.
    pub key_dim: usize,
    /// Numbers in a head of values.
    pub value_dim: usize,
    /// `[heads]`: the state is multiplied by `e^(rate · softplus(decay + bias))`.
    pub rate: TensorId,
    /// `[heads]`.
    pub bias: Option<TensorId>,
    /// Factor on what is recalled.
    pub scale: f32,
    /// Whether heads share keys in turns (0, 1, 0, 1) and not in runs (0, 0, 1, 1).
    pub tiled: bool,
}

/// What a recurrent state is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// The last `kernel - 1` rows.
    Conv {
        /// Width of a row.
        width: usize,
        /// Tokens looked at.
        kernel: usize,
    },
    /// A matrix for each head.
    Delta {
        /// Heads.
        heads: usize,
        /// Columns.
        key_dim: usize,
        /// Rows.
        value_dim: usize,
    },
}

impl Memory {
    /// The kind of state, as the program says it.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Conv { .. } => "conv",
            Self::Delta { .. } => "recurrent",
        }
    }
}

impl std::fmt::Display for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Conv { width, kernel } => write!(f, "width {width}, kernel {kernel}"),
            Self::Delta { heads, key_dim, value_dim } => {
                write!(f, "heads {heads}, key-dim {key_dim}, value-dim {value_dim}")
            }
        }
    }
}

/// One layer's recurrent state. It is what it has become: it cannot be cut back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recurrent {
    /// The layer.
    pub layer: usize,
    /// What it is made of.
    pub memory: Memory,
}

impl Recurrent {
    /// Numbers.
    #[must_use]
    pub const fn size(&self) -> usize {
        match self.memory {
            Memory::Conv { width, kernel } => (kernel - 1).saturating_mul(width),
            Memory::Delta { heads, key_dim, value_dim } => {
                heads.saturating_mul(key_dim).saturating_mul(value_dim)
            }
        }
    }
}

/// How a router's numbers become weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scoring {
    /// Softmax over all experts.
    Softmax,
    /// Each expert by itself.
    Sigmoid,
    /// Softmax over the chosen experts alone.
    Chosen,
}

/// A mixture of experts.
#[derive(Debug, Clone, PartialEq)]
pub struct Moe {
    /// `[width, experts]`.
    pub router: TensorId,
    /// Added to the router's numbers, `[experts]`.
    pub router_bias: Option<TensorId>,
    /// Added to the scores while experts are chosen, and not to their weights, `[experts]`.
    pub selection_bias: Option<TensorId>,
    /// `[width, ff, experts]`.
    pub gate: TensorId,
    /// `[ff, experts]`.
    pub gate_bias: Option<TensorId>,
    /// `[width, ff, experts]`.
    pub up: TensorId,
    /// `[ff, experts]`.
    pub up_bias: Option<TensorId>,
    /// `[ff, width, experts]`.
    pub down: TensorId,
    /// `[width, experts]`.
    pub down_bias: Option<TensorId>,
    /// Width between gate and down.
    pub ff: usize,
    /// Experts.
    pub experts: usize,
    /// Experts asked per token.
    pub active: usize,
    /// Equal groups the experts stand in; 1 is none.
    pub groups: usize,
    /// Groups from which experts are chosen: those with the greatest sums of their two best scores.
    pub active_groups: usize,
    /// Between gate and up.
    pub activation: Activation,
    /// Router scores.
    pub scoring: Scoring,
    /// Whether the chosen weights are made to sum to one.
    pub normalize: bool,
    /// Factor on the weights.
    pub scale: f32,
}

/// The projection to the vocabulary.
#[derive(Debug, Clone, PartialEq)]
pub struct Head {
    /// `[width, vocabulary]`.
    pub weight: TensorId,
    /// `[vocabulary]`.
    pub bias: Option<TensorId>,
    /// Factor on the logits.
    pub scale: f32,
    /// `cap · tanh(logit / cap)`.
    pub softcap: Option<f32>,
}

/// How rows become one vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pooling {
    /// Their mean.
    Mean,
    /// The first.
    Cls,
    /// The last.
    Last,
}

impl Pooling {
    /// The word of the step vocabulary.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Cls => "cls",
            Self::Last => "last",
        }
    }
}

/// An operation with its operands checked. Inputs are in [`Step::inputs`].
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// A token's row of `weight`, times `scale`.
    Embed {
        /// `[width, vocabulary]`.
        weight: TensorId,
        /// Factor.
        scale: f32,
    },
    /// Adds the row of the position.
    PositionEmbed {
        /// `[width, positions]`.
        weight: TensorId,
    },
    /// Adds the row of the segment: the first.
    SegmentEmbed {
        /// `[width, segments]`.
        weight: TensorId,
    },
    /// Root-mean-square norm of `heads` equal parts.
    RmsNorm {
        /// `[width / heads]`.
        weight: Option<TensorId>,
        /// Added to the mean square.
        eps: f32,
        /// Parts of a row.
        heads: usize,
    },
    /// Mean removed, divided by the standard deviation.
    LayerNorm {
        /// `[width]`.
        weight: TensorId,
        /// `[width]`.
        bias: Option<TensorId>,
        /// Added to the variance.
        eps: f32,
    },
    /// `scale · W x + b`.
    Linear {
        /// `[in, out]`.
        weight: TensorId,
        /// `[out]`.
        bias: Option<TensorId>,
        /// Factor on the product.
        scale: f32,
    },
    /// Rotary position embedding.
    Rope(Rope),
    /// Attention; inputs q, k, v.
    Attention(Attention),
    /// `activation(gate) · up`; a narrower gate has one number for each of its width's parts of up.
    Glu(Activation),
    /// Element by element.
    Activation(Activation),
    /// Sum of two.
    Add,
    /// Product with a number.
    Scale(f32),
    /// Product with `1 + factor · ln(1 + ⌊position / length⌋)`.
    PositionScale {
        /// Growth.
        factor: f32,
        /// Tokens of a stretch that is scaled alike.
        length: usize,
    },
    /// Columns `start .. start + length` of each of `heads` equal parts.
    Slice {
        /// First column.
        start: usize,
        /// Columns.
        length: usize,
        /// Parts of a row.
        heads: usize,
    },
    /// Two values side by side, part by part.
    Concat {
        /// Parts of a row.
        heads: usize,
    },
    /// Each of `heads` equal parts times a matrix of its own.
    HeadLinear {
        /// `[in, out, heads]`.
        weight: TensorId,
        /// Parts of a row.
        heads: usize,
    },
    /// Causal convolution.
    Conv(Conv),
    /// Gated delta rule; inputs q, k, v, decay, strength.
    DeltaRule(DeltaRule),
    /// Mixture of experts.
    Moe(Moe),
    /// Logits.
    Head(Head),
    /// One vector per sequence.
    Pool {
        /// How.
        kind: Pooling,
        /// Whether the vector is given length one.
        normalize: bool,
    },
}

impl Op {
    /// The operation's name in the step vocabulary.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Embed { .. } => "embed",
            Self::PositionEmbed { .. } => "position-embed",
            Self::SegmentEmbed { .. } => "segment-embed",
            Self::RmsNorm { .. } => "rms-norm",
            Self::LayerNorm { .. } => "layer-norm",
            Self::Linear { .. } => "linear",
            Self::Rope(_) => "rope",
            Self::Attention(_) => "attention",
            Self::Glu(_) => "glu",
            Self::Activation(_) => "activation",
            Self::Add => "add",
            Self::Scale(_) => "scale",
            Self::PositionScale { .. } => "position-scale",
            Self::Slice { .. } => "slice",
            Self::Concat { .. } => "concat",
            Self::HeadLinear { .. } => "head-linear",
            Self::Conv(_) => "conv",
            Self::DeltaRule(_) => "delta-rule",
            Self::Moe(_) => "moe",
            Self::Head(_) => "head",
            Self::Pool { .. } => "pool",
        }
    }
}

/// A checked step; it writes the value of its own number.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// What is done.
    pub op: Op,
    /// The layer it belongs to.
    pub layer: Option<usize>,
    /// Values read.
    pub inputs: Vec<ValueId>,
    /// Width of the value written.
    pub width: usize,
}

/// One layer's key-value state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kv {
    /// The layer.
    pub layer: usize,
    /// Heads.
    pub kv_heads: usize,
    /// Numbers in a head.
    pub head_dim: usize,
    /// Tokens it must keep, if not all.
    pub window: Option<usize>,
}

/// What the last value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Result {
    /// Logits: the model generates.
    Logits,
    /// One vector per sequence: the model encodes.
    Pooled,
}

/// A program whose every name, shape and number has been checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    /// Tokens in the vocabulary.
    pub vocabulary: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Layers.
    pub layers: usize,
    /// Longest context the model was trained for.
    pub context_native: usize,
    /// Tensors that are read, in the order of the file.
    pub tensors: Vec<Tensor>,
    /// States, in the order of their attention steps.
    pub kv: Vec<Kv>,
    /// States that are carried from token to token.
    pub recurrent: Vec<Recurrent>,
    /// Steps; step `i` writes value `i`.
    pub steps: Vec<Step>,
    /// What the result is; it is the last step's value.
    pub result: Result,
    /// The value an embedding of a generating model is made from: the input of `head`.
    pub hidden: ValueId,
    /// How.
    pub pooling: Pooling,
    /// `sha256:…` of the program as it was given.
    pub digest: String,
}
