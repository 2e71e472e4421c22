//! The keys and values of one sequence, and the tokens they belong to.
//!
//! A cache belongs to one sequence at a time; nothing in it is shared. It grows in steps outside
//! the forward pass and is counted in bytes exactly as it is allocated. Layers with a window keep
//! only what they can still be asked for; where they have lost it, the context is read again.

use arrayvec::ArrayVec;
use gristmill_core::{Code, Error, Result};
use gristmill_kernels::{KvLayer, Quant, Ring};

use crate::{
    core::PREFILL_ROWS,
    plan::Plan,
    program::{self, Kv},
};

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

impl KvTypes {
    /// Types keys and values can have.
    pub const ALL: [Quant; 5] = [Quant::F16, Quant::BF16, Quant::Q8_0, Quant::Q4_0, Quant::F32];

    /// The type with this name, if keys and values can have it.
    #[must_use]
    pub fn named(name: &str) -> Option<Quant> {
        Self::ALL.into_iter().find(|quant| quant.name().eq_ignore_ascii_case(name))
    }
}

/// What a layer with a window keeps: the window, and the rows of a pass, which are written before
/// any of them looks back. Encoders see a whole batch in both directions and keep everything.
#[must_use]
pub(crate) fn ring(plan: &Plan, kv: &Kv) -> Option<Ring> {
    let encoder = plan.program.result == program::Result::Pooled;
    // One size for all layers: the largest window's.
    let widest = plan.program.kv.iter().filter_map(|kv| kv.window).max()?;
    (kv.window.is_some() && !encoder).then_some(Ring { window: widest, rows: PREFILL_ROWS })
}

/// One layer's shape.
#[derive(Clone, Copy)]
struct Shape {
    kv: Kv,
    ring: Option<Ring>,
}

/// One sequence's context.
pub struct Cache {
    shapes: Vec<Shape>,
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
        let shapes: Vec<Shape> =
            plan.program.kv.iter().map(|kv| Shape { kv: *kv, ring: ring(plan, kv) }).collect();
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

    /// Tokens at the beginning that are the same as these and that can be built on.
    #[must_use]
    pub fn common(&self, tokens: &[u32]) -> usize {
        self.usable(self.tokens.iter().zip(tokens).take_while(|(a, b)| a == b).count())
    }

    /// The longest beginning of at most `len` tokens that a context can go on from. Where a layer
    /// with a window has lost what it would see there is none, and everything must be read again;
    /// recurrent states, which cannot be undone, go back to the newest that was kept.
    #[must_use]
    pub fn usable(&self, len: usize) -> usize {
        let len = len.min(self.tokens.len());
        if self.states.is_empty() || len == self.tokens.len() {
            return if self.resumes_at(len) { len } else { 0 };
        }
        self.kept(len)
    }

    fn resumes_at(&self, len: usize) -> bool {
        self.layers.iter().all(|layer| layer.resumes_at(len))
    }

    /// The newest kept state of at most `len` tokens from which all layers can go on.
    fn kept(&self, len: usize) -> usize {
        let known = self.checkpoints.iter().map(|(tokens, _)| *tokens);
        known.filter(|at| *at <= len && self.resumes_at(*at)).max().unwrap_or(0)
    }

    /// Forgets everything from token `len` on, and more where [`Cache::usable`] says so. Tokens
    /// that are left.
    pub fn truncate(&mut self, len: usize) -> usize {
        if len < self.tokens.len() {
            let len = self.usable(len);
            self.go_back(len);
            self.tokens.truncate(len);
            self.shorten(len);
        }
        self.tokens.len()
    }

    fn shorten(&mut self, len: usize) {
        if self.layers.iter_mut().any(|layer| layer.truncate(len).is_err()) {
            // Nothing to go on from: going back to nothing always works.
            self.tokens.clear();
            self.go_back(0);
            for layer in &mut self.layers {
                let _ = layer.truncate(0);
            }
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

    /// Another cache with the first `len` tokens of this one, which must be [`Cache::usable`], and
    /// room for `capacity`.
    ///
    /// # Errors
    /// `insufficient-memory`.
    pub fn copy(&self, len: usize, capacity: usize) -> Result<Self> {
        let len = self.usable(len);
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
            let kept = self.kept(self.tokens.len());
            self.go_back(kept);
            self.tokens.truncate(kept);
        }
        self.shorten(self.tokens.len());
    }

    /// The pass that wrote these tokens' keys and values is complete.
    pub(crate) fn accept(&mut self, token: u32) {
        self.tokens.push(token);
    }
}

fn layers(shapes: &[Shape], types: KvTypes, capacity: usize) -> Result<Vec<KvLayer>> {
    shapes
        .iter()
        .map(|Shape { kv, ring }| {
            KvLayer::windowed(kv.kv_heads, kv.head_dim, capacity, *ring, types.k, types.v)
        })
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
