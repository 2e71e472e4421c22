//! Bounds on a program's numbers. They are far above any published model and far below anything
//! that could overflow an address computation or exhaust memory before the first token.

/// Tokens in a vocabulary.
pub const VOCABULARY: u64 = 1 << 22;
/// Numbers in a row of any value.
pub const WIDTH: u64 = 1 << 20;
/// Layers.
pub const LAYERS: u64 = 1 << 10;
/// Tokens of context.
pub const CONTEXT: u64 = 1 << 24;
/// Steps of a program.
pub const STEPS: usize = 1 << 16;
/// Tensors of a file.
pub const TENSORS: usize = 1 << 17;
/// Attributes of one step or state.
pub const ATTRIBUTES: usize = 32;
/// Attention heads.
pub const HEADS: u64 = 1 << 10;
/// Numbers in a head.
pub const HEAD_DIM: u64 = 1 << 12;
/// Tokens a convolution looks at.
pub const KERNEL: u64 = 64;
/// Experts of a mixture.
pub const EXPERTS: u64 = 1 << 12;
/// Extras of a program.
pub const EXTRAS: usize = 64;
