//! The keys and values of one sequence, and the tokens they belong to.
//!
//! A cache belongs to one sequence at a time; nothing in it is shared. It grows in steps outside
//! the forward pass and is counted in bytes exactly as it is allocated.

use arrayvec::ArrayVec;
use gristmill_core::{Code, Error, Result};
use gristmill_kernels::{KvLayer, Quant};

use crate::{plan::Plan, program::Kv};

/// Recurrent states a cache keeps besides the newest: those before and behind the last pass of
/// several rows, which is where an answer is tried again and where the next turn begins.
pub const CHECKPOINTS: usize = 2;

/// Caches grow to multiples of this many tokens.
pub const STEP: usize = 256;

/// How keys and values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvTypes {
    /// Keys.
    pub k: Quant,
    /// Values.
    pub v: Quant,
}

impl Default for KvTypes {
    fn default() -> Self {
        Self { k: Quant::F16, v: Quant::F16 }
    }
}

/// One sequence's context.
#[derive(Clone)]
pub struct Cache {
    shapes: Vec<Kv>,
    types: KvTypes,
    layers: Vec<KvLayer>,
    /// One for each recurrent state of the program.
    states: Vec<Vec<f32>>,
    /// Earlier states with the number of tokens they belong to, oldest first.
    checkpoints: ArrayVec<(usize, Vec<Vec<f32>>), CHECKPOINTS>,
    /// Whether the last pass had several rows.
    several: bool,
    tokens: Vec<u32>,
    capacity: usize,
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cache({} of {} tokens)", self.tokens.len(), self.capacity)
    }
}

impl Cache {
    /// An empty cache with room for `tokens`.
    ///
    /// # Errors
    /// `insufficient-memory` or `unsupported` types.
    pub fn new(plan: &Plan, types: KvTypes, tokens: usize) -> Result<Self> {
        let shapes = plan.program.kv.clone();
        let capacity = tokens.next_multiple_of(STEP);
        let layers = layers(&shapes, types, capacity)?;
        let states = plan.program.recurrent.iter().map(|state| vec![0.0; state.size()]).collect();
        Ok(Self {
            shapes,
            types,
            layers,
            states,
            checkpoints: ArrayVec::new(),
            several: false,
            tokens: Vec::new(),
            capacity,
        })
    }

    /// Tokens whose keys and values are here.
    #[must_use]
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Tokens there is room for.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes reserved.
    #[must_use]
    pub fn memory(&self) -> u64 {
        let states: usize = self.states.iter().map(Vec::len).sum();
        let states = states * 4 * (1 + CHECKPOINTS);
        states as u64 + self.layers.iter().map(|layer| layer.memory() as u64).sum::<u64>()
    }

    /// Tokens at the beginning that are the same as these, and behind which it can go on: with
    /// recurrent states, those of the newest state that is not too far.
    #[must_use]
    pub fn common(&self, tokens: &[u32]) -> usize {
        self.reachable(self.tokens.iter().zip(tokens).take_while(|(a, b)| a == b).count())
    }

    /// The longest beginning of at most `len` tokens that it can be cut back to.
    fn reachable(&self, len: usize) -> usize {
        if self.states.is_empty() || len >= self.tokens.len() {
            return len.min(self.tokens.len());
        }
        let known = self.checkpoints.iter().map(|(tokens, _)| *tokens);
        known.filter(|tokens| *tokens <= len).max().unwrap_or(0)
    }

    /// Forgets everything from token `len` on. With recurrent states, which cannot be undone, it
    /// forgets more: back to the newest state it has kept, or everything.
    pub fn truncate(&mut self, len: usize) {
        if len >= self.tokens.len() {
            return;
        }
        let len = self.reachable(len);
        self.go_back(len);
        self.tokens.truncate(len);
        for layer in &mut self.layers {
            layer.truncate(len);
        }
    }

    /// Takes the states of the first `len` tokens from a checkpoint; there is one, or `len` is 0.
    fn go_back(&mut self, len: usize) {
        self.checkpoints.retain(|(tokens, _)| *tokens <= len);
        match self.checkpoints.iter().find(|(tokens, _)| *tokens == len) {
            Some((_, states)) => self.states.clone_from(states),
            None => self.states.iter_mut().for_each(|state| state.fill(0.0)),
        }
        self.several = false;
    }

    /// A pass with so many rows of this cache begins: what it may have to come back to is kept.
    pub(crate) fn begin(&mut self, rows: usize) {
        let (several, len) = (rows > 1, self.tokens.len());
        let keep = several || self.several;
        self.several = several;
        if self.states.is_empty() || rows == 0 || !keep || len == 0 {
            return;
        }
        if self.checkpoints.iter().any(|(tokens, _)| *tokens == len) {
            return;
        }
        if self.checkpoints.is_full() {
            self.checkpoints.remove(0);
        }
        self.checkpoints.push((len, self.states.clone()));
    }

    /// Capacity after making room for `tokens`: at least half as much again as before.
    #[must_use]
    pub fn grown(&self, tokens: usize, limit: usize) -> usize {
        if tokens <= self.capacity {
            return self.capacity;
        }
        let ample = (self.capacity + self.capacity / 2).min(limit.max(tokens));
        tokens.max(ample).next_multiple_of(STEP)
    }

    /// Makes room, keeping what is there.
    ///
    /// # Errors
    /// `insufficient-memory`.
    pub fn grow(&mut self, capacity: usize) -> Result<()> {
        if capacity <= self.capacity {
            return Ok(());
        }
        *self = self.copy(self.len(), capacity)?;
        Ok(())
    }

    /// Another cache with the first `len` tokens of this one, or as many as [`Cache::truncate`]
    /// would leave, and room for `capacity`.
    ///
    /// # Errors
    /// `insufficient-memory`.
    pub fn copy(&self, len: usize, capacity: usize) -> Result<Self> {
        let len = self.reachable(len);
        let capacity = capacity.max(len).next_multiple_of(STEP);
        let mut layers = layers(&self.shapes, self.types, capacity)?;
        for (to, from) in layers.iter_mut().zip(&self.layers) {
            to.copy_prefix(from, len).map_err(kernel)?;
        }
        let tokens = self.tokens.get(..len).unwrap_or(&self.tokens).to_vec();
        let mut copy = Self {
            shapes: self.shapes.clone(),
            types: self.types,
            layers,
            states: self.states.clone(),
            checkpoints: self.checkpoints.clone(),
            several: self.several,
            tokens,
            capacity,
        };
        if len < self.tokens.len() {
            copy.go_back(len);
        }
        Ok(copy)
    }

    pub(crate) fn state_mut(&mut self, index: usize) -> Result<&mut [f32]> {
        let state = self.states.get_mut(index).map(Vec::as_mut_slice);
        state.ok_or_else(|| Error::internal("no such state in the cache"))
    }

    pub(crate) fn layer(&self, index: usize) -> Result<&KvLayer> {
        self.layers.get(index).ok_or_else(|| Error::internal("no such layer in the cache"))
    }

    pub(crate) fn layer_mut(&mut self, index: usize) -> Result<&mut KvLayer> {
        self.layers.get_mut(index).ok_or_else(|| Error::internal("no such layer in the cache"))
    }

    /// Forgets what an abandoned pass has written. Recurrent states may have gone on: the cache goes
    /// back to those it has kept, and may be shorter than before the pass.
    pub(crate) fn roll_back(&mut self) {
        if !self.states.is_empty() {
            let known = self.checkpoints.iter().map(|(tokens, _)| *tokens).max().unwrap_or(0);
            self.go_back(known);
            self.tokens.truncate(known);
        }
        for layer in &mut self.layers {
            layer.truncate(self.tokens.len());
        }
    }

    /// The pass that wrote these tokens' keys and values is complete.
    pub(crate) fn accept(&mut self, token: u32) {
        self.tokens.push(token);
    }
}

fn layers(shapes: &[Kv], types: KvTypes, capacity: usize) -> Result<Vec<KvLayer>> {
    shapes
        .iter()
        .map(|kv| KvLayer::new(kv.kv_heads, kv.head_dim, capacity, types.k, types.v))
        .collect::<std::result::Result<_, _>>()
        .map_err(kernel)
}

/// A kernel's refusal of memory or of a type, as a domain error.
fn kernel(error: gristmill_kernels::KernelError) -> Error {
    use gristmill_kernels::KernelError;
    match error {
        KernelError::Unsupported { .. } => Error::unsupported(error.to_string()),
        _ => Error::new(Code::InsufficientMemory, error.to_string()),
    }
}
