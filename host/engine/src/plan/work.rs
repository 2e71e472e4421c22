//! What a phase does: a step or several, over the buffers their values have been given.

use crate::program::{Activation, Attention, Conv, DeltaRule, Head, Moe, Pooling, Rope, TensorId};

/// Index of a buffer of the arena.
pub type Slot = usize;

/// One matrix of a linear phase.
#[derive(Debug, Clone, PartialEq)]
pub struct Product {
    /// `[in, out]`.
    pub weight: TensorId,
    /// `[out]`.
    pub bias: Option<TensorId>,
    /// Factor on the product.
    pub scale: f32,
    /// Where it goes.
    pub out: Slot,
    /// Whether it is added to what is there.
    pub accumulate: bool,
}

/// What a phase does. Slots are read before they are written.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// Token rows.
    Embed {
        /// The table.
        weight: TensorId,
        /// Factor.
        scale: f32,
        /// Where to.
        out: Slot,
    },
    /// Adds position rows in place.
    PositionEmbed {
        /// The table.
        weight: TensorId,
        /// Read.
        x: Slot,
        /// Written; may be `x`.
        out: Slot,
    },
    /// Adds the first row of a table in place.
    SegmentEmbed {
        /// The table.
        weight: TensorId,
        /// Read.
        x: Slot,
        /// Written; may be `x`.
        out: Slot,
    },
    /// Root-mean-square norm.
    RmsNorm {
        /// Read.
        x: Slot,
        /// Weight of a part.
        weight: Option<TensorId>,
        /// Epsilon.
        eps: f32,
        /// Parts of a row.
        heads: usize,
        /// Width of a row.
        width: usize,
        /// Written; may be `x`.
        out: Slot,
    },
    /// Layer norm.
    LayerNorm {
        /// Read.
        x: Slot,
        /// Weight.
        weight: TensorId,
        /// Bias.
        bias: Option<TensorId>,
        /// Epsilon.
        eps: f32,
        /// Width of a row.
        width: usize,
        /// Written; may be `x`.
        out: Slot,
    },
    /// One or several products of the same input.
    Linear {
        /// Read.
        x: Slot,
        /// Width of a row of it.
        width: usize,
        /// The products.
        products: Vec<Product>,
    },
    /// `activation(gate x) · up x`.
    GluLinear {
        /// Read.
        x: Slot,
        /// Width of a row of it.
        width: usize,
        /// Gate matrix.
        gate: TensorId,
        /// Up matrix.
        up: TensorId,
        /// Between them.
        activation: Activation,
        /// Written.
        out: Slot,
    },
    /// Rotary embedding.
    Rope {
        /// Read.
        x: Slot,
        /// How.
        rope: Rope,
        /// Whose angles: index into [`Plan::ropes`].
        table: usize,
        /// Written; may be `x`.
        out: Slot,
    },
    /// Appends k and v to the state, then attends.
    Attention {
        /// Queries.
        q: Slot,
        /// Keys.
        k: Slot,
        /// Values.
        v: Slot,
        /// How.
        attention: Attention,
        /// Written.
        out: Slot,
    },
    /// `activation(gate) · up`.
    Glu {
        /// Read.
        gate: Slot,
        /// Read.
        up: Slot,
        /// The function.
        activation: Activation,
        /// Width of a row.
        width: usize,
        /// Written; may be `gate`.
        out: Slot,
    },
    /// The same with a gate that has one number for each part of `up`.
    GluParts {
        /// Read.
        gate: Slot,
        /// Width of a row of it.
        gate_width: usize,
        /// Read.
        up: Slot,
        /// The function.
        activation: Activation,
        /// Width of a row of `up`.
        width: usize,
        /// Written; may be `up`.
        out: Slot,
    },
    /// Pointwise function.
    Activation {
        /// Read.
        x: Slot,
        /// The function.
        kind: Activation,
        /// Width of a row.
        width: usize,
        /// Written; may be `x`.
        out: Slot,
    },
    /// Sum.
    Add {
        /// Read.
        a: Slot,
        /// Read.
        b: Slot,
        /// Width of a row.
        width: usize,
        /// Written; may be `a`.
        out: Slot,
    },
    /// Product with a number.
    Scale {
        /// Read.
        x: Slot,
        /// The number.
        factor: f32,
        /// Width of a row.
        width: usize,
        /// Written; may be `x`.
        out: Slot,
    },
    /// Product with a number that grows with the position.
    PositionScale {
        /// Read.
        x: Slot,
        /// Growth.
        factor: f32,
        /// Tokens scaled alike.
        length: usize,
        /// Width of a row.
        width: usize,
        /// Written; may be `x`.
        out: Slot,
    },
    /// Columns.
    Slice {
        /// Read.
        x: Slot,
        /// Width of a row of it.
        width: usize,
        /// First column of a part.
        start: usize,
        /// Columns of a part.
        length: usize,
        /// Parts of a row.
        heads: usize,
        /// Written.
        out: Slot,
    },
    /// Two values side by side.
    Concat {
        /// Read.
        a: Slot,
        /// Width of a row of it.
        a_width: usize,
        /// Read.
        b: Slot,
        /// Width of a row of it.
        b_width: usize,
        /// Parts of a row.
        heads: usize,
        /// Written.
        out: Slot,
    },
    /// Parts of a row, each times a matrix of its own.
    HeadLinear {
        /// Read.
        x: Slot,
        /// Width of a row of it.
        width: usize,
        /// `[in, out, heads]`.
        weight: TensorId,
        /// Width of a row of the result.
        out_width: usize,
        /// Written.
        out: Slot,
    },
    /// Causal convolution.
    Conv {
        /// Read.
        x: Slot,
        /// Width of a row.
        width: usize,
        /// How.
        conv: Conv,
        /// Written.
        out: Slot,
    },
    /// Gated delta rule.
    DeltaRule {
        /// Read: q, k, v, decay, strength.
        inputs: [Slot; 5],
        /// How.
        rule: DeltaRule,
        /// Written.
        out: Slot,
    },
    /// Mixture of experts.
    Moe {
        /// Read.
        x: Slot,
        /// Width of a row.
        width: usize,
        /// The mixture.
        moe: Moe,
        /// Written.
        out: Slot,
    },
    /// Keeps only wanted rows of what is still needed: slot and width.
    Narrow {
        /// Slots and widths of their rows.
        live: Vec<(Slot, usize)>,
    },
    /// Logits of the rows that are left.
    Head {
        /// Read.
        x: Slot,
        /// Width of a row.
        width: usize,
        /// The head.
        head: Head,
    },
    /// One vector per sequence.
    Pool {
        /// Read.
        x: Slot,
        /// Width of a row.
        width: usize,
        /// How.
        kind: Pooling,
        /// To length one.
        normalize: bool,
    },
}

/// One phase.
#[derive(Debug, Clone, PartialEq)]
pub struct Phase {
    /// Layer of its last step.
    pub layer: Option<usize>,
    /// Steps of the program it does, in order.
    pub steps: Vec<usize>,
    /// What is done.
    pub work: Work,
}
