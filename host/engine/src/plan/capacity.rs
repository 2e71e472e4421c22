//! What a plan costs in bytes: exact for weights, caches and buffers, as they are allocated.

use gristmill_kernels::Quant;

use super::Plan;
use crate::{cache::KvTypes, program};

/// Positions a layer's cache is padded to, and numbers a head is padded to (the kernels' tiles).
const TILE: u64 = 16;

/// Byte costs of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Weights, as stored in the file.
    pub weights: u64,
    /// Keys and values of one token.
    pub kv_token: u64,
    /// Buffers per row of a batch.
    pub row: u64,
    /// Buffers per row that wants logits.
    pub wanted: u64,
}

/// A sum of costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Weights.
    pub weights: u64,
    /// Caches.
    pub caches: u64,
    /// Buffers.
    pub buffers: u64,
}

impl Cost {
    /// All together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.weights + self.caches + self.buffers
    }
}

fn element(quant: Quant) -> u64 {
    (quant.block_bytes() / quant.block_len().max(1)) as u64
}

impl Plan {
    /// What this plan costs with caches of these types.
    #[must_use]
    pub fn capacity(&self, types: KvTypes) -> Capacity {
        let weights = self
            .program
            .tensors
            .iter()
            .map(|t| t.quant.row_bytes(t.cols()).unwrap_or(0) as u64 * t.rows() as u64)
            .sum();
        let each = element(types.k) + element(types.v);
        let kv_token = self
            .program
            .kv
            .iter()
            .map(|kv| kv.kv_heads as u64 * (kv.head_dim as u64).next_multiple_of(TILE) * each)
            .sum();
        let row = self.slots.iter().map(|width| *width as u64 * 4).sum();
        let wanted = match self.program.result {
            program::Result::Logits => self.program.vocabulary as u64 * 4,
            program::Result::Pooled => 0,
        };
        Capacity { weights, kv_token, row, wanted }
    }
}

impl Capacity {
    /// Bytes of a cache with room for so many tokens.
    #[must_use]
    pub fn cache(&self, tokens: usize) -> u64 {
        self.kv_token * (tokens as u64).next_multiple_of(TILE)
    }

    /// The cost of serving `sequences` contexts of `tokens` each in passes of `rows` rows.
    #[must_use]
    pub fn cost(&self, sequences: usize, tokens: usize, rows: usize) -> Cost {
        Cost {
            weights: self.weights,
            caches: self.cache(tokens) * sequences as u64,
            buffers: self.row * rows as u64 + self.wanted * sequences as u64,
        }
    }
}
