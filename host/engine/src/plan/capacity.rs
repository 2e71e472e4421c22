//! What a plan costs in bytes: exact for weights, caches and buffers, as they are allocated.

use gristmill_kernels::KvLayer;

use super::{Plan, Work};
use crate::{
    cache::{KvTypes, ring},
    program::{self, TensorId},
};

/// Byte costs of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Weights, as stored in the file.
    pub weights: u64,
    /// Keys and values of one token.
    pub kv_token: u64,
    /// Of those, what layers with a window hold, and the tokens they hold at most.
    pub kv_window: u64,
    /// See `kv_window`; a multiple of the kernels' tile.
    pub window_room: usize,
    /// Recurrent states of one context, with the copies it can go back to.
    pub states: u64,
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
        let (mut kv_token, mut kv_window, mut window_room) = (0, 0, 0);
        for kv in &self.program.kv {
            let bytes = KvLayer::position_bytes(kv.kv_heads, kv.head_dim, types.k, types.v)
                .unwrap_or(0) as u64;
            kv_token += bytes;
            if let Some(ring) = ring(self, kv) {
                kv_window += bytes;
                window_room = KvLayer::room(usize::MAX, Some(ring)).max(window_room);
            }
        }
        let row =
            self.slots.iter().map(|width| *width as u64 * 4).sum::<u64>() + self.mixture_row();
        let wanted = match self.program.result {
            program::Result::Logits => {
                let vocabulary = self.program.vocabulary;
                (vocabulary + crate::logits::peaks(vocabulary)) as u64 * 4
            }
            program::Result::Pooled => 0,
        };
        let floats: u64 = self.program.recurrent.iter().map(|state| state.size() as u64).sum();
        let states = floats * 4 * (1 + crate::cache::CHECKPOINTS as u64);
        Capacity { weights, kv_token, kv_window, window_room, states, row, wanted }
    }

    /// Multiplications with addition that a token of a prompt costs in products with weights. Neither
    /// the head's, which only the last token has, nor attention's, which grow with the context.
    #[must_use]
    pub fn products_per_token(&self) -> u64 {
        let size = |id: TensorId| {
            let tensor = self.program.tensors.get(id);
            tensor.map_or(0, |tensor| tensor.rows() as u64 * tensor.cols() as u64)
        };
        let of = |phase: &super::Phase| match &phase.work {
            Work::Linear { products, .. } => {
                products.iter().map(|product| size(product.weight)).sum()
            }
            &Work::GluLinear { gate, up, .. } => size(gate) + size(up),
            &Work::HeadLinear { weight, .. } => size(weight),
            Work::Moe { moe, .. } => {
                let all = size(moe.gate) + size(moe.up) + size(moe.down);
                size(moe.router) + all * moe.active as u64 / (moe.experts as u64).max(1)
            }
            _ => 0,
        };
        self.phases.iter().map(of).sum()
    }

    /// Bytes that the largest mixture of experts keeps for a row: its scores, and for each expert
    /// asked what it reads and what it makes.
    pub(crate) fn mixture_row(&self) -> u64 {
        let of = |phase: &super::Phase| match &phase.work {
            Work::Moe { width, moe, .. } => moe.experts + moe.active * 2 * width,
            _ => 0,
        };
        self.phases.iter().map(of).max().unwrap_or(0) as u64 * 4
    }
}

impl Capacity {
    /// Bytes of a cache with room for so many tokens.
    #[must_use]
    pub fn cache(&self, tokens: usize) -> u64 {
        let all = KvLayer::room(tokens, None);
        let windowed = all.min(self.window_room);
        let whole = (self.kv_token - self.kv_window) * all as u64;
        self.states + whole + self.kv_window * windowed as u64
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
