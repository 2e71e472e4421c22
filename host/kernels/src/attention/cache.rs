//! One layer's keys and values of one session.
//!
//! Keys lie in tiles of 16 positions with the positions of a dimension side by side, so that 16
//! scores form in one vector; values lie position by position. Both are padded to 16 dimensions.
#![allow(clippy::indexing_slicing, reason = "indices are below sizes checked on entry")]

use crate::codec::{f32_to_half, half_to_f32};
use crate::error::{KernelError, expect_len};
use crate::quant::Quant;

/// Positions per tile of keys.
pub(crate) const TILE: usize = 16;

/// Numbers of one of the stored types.
#[derive(Clone)]
pub(crate) enum Store {
    /// Half floats.
    Half(Vec<u16>),
    /// Floats.
    Float(Vec<f32>),
}

impl Store {
    fn zeroed(quant: Quant, len: usize) -> Result<Store, KernelError> {
        match quant {
            Quant::F16 => Ok(Store::Half(vec![0; len])),
            Quant::F32 => Ok(Store::Float(vec![0.0; len])),
            other => Err(KernelError::Unsupported {
                quant: other.name(),
                operation: "hold keys and values; use F16 or F32",
            }),
        }
    }

    fn get(&self, at: usize) -> f32 {
        match self {
            Store::Half(h) => half_to_f32(h[at]),
            Store::Float(f) => f[at],
        }
    }

    fn set(&mut self, at: usize, x: f32) {
        match self {
            Store::Half(h) => h[at] = f32_to_half(x),
            Store::Float(f) => f[at] = x,
        }
    }

    fn copy(&mut self, from: &Store, start: usize, len: usize) {
        match (self, from) {
            (Store::Half(to), Store::Half(from)) => {
                to[start..start + len].copy_from_slice(&from[start..start + len]);
            }
            (Store::Float(to), Store::Float(from)) => {
                to[start..start + len].copy_from_slice(&from[start..start + len]);
            }
            (to, from) => (start..start + len).for_each(|i| to.set(i, from.get(i))),
        }
    }

    fn slice(&self, range: std::ops::Range<usize>) -> Stored<'_> {
        match self {
            Store::Half(h) => Stored::Half(&h[range]),
            Store::Float(f) => Stored::Float(&f[range]),
        }
    }

    fn memory(&self) -> usize {
        match self {
            Store::Half(h) => h.len() * 2,
            Store::Float(f) => f.len() * 4,
        }
    }
}

/// One layer's keys and values of one session, positions `0..len`.
#[derive(Clone)]
pub struct KvLayer {
    kv_heads: usize,
    head_dim: usize,
    /// Dimensions with padding.
    padded: usize,
    /// Positions there is room for, a multiple of [`TILE`].
    room: usize,
    capacity: usize,
    len: usize,
    keys: Store,
    values: Store,
}

impl KvLayer {
    /// An empty layer with room for `capacity` positions. The memory is zeroed pages, which the
    /// operating system provides as they are first written.
    ///
    /// # Errors
    /// A type other than F16 and F32, a zero dimension, or more than fits in memory.
    pub fn new(
        kv_heads: usize,
        head_dim: usize,
        capacity: usize,
        k: Quant,
        v: Quant,
    ) -> Result<KvLayer, KernelError> {
        if kv_heads == 0 || head_dim == 0 {
            return Err(KernelError::Invalid("a cache needs at least one head of one value"));
        }
        let too_large = KernelError::TooLarge("the key and value cache");
        let padded = head_dim.next_multiple_of(16);
        let room =
            capacity.max(1).checked_next_multiple_of(TILE).ok_or_else(|| too_large.clone())?;
        let total = room
            .checked_mul(padded)
            .and_then(|x| x.checked_mul(kv_heads))
            .filter(|x| *x <= isize::MAX as usize / 4)
            .ok_or(too_large)?;
        Ok(KvLayer {
            kv_heads,
            head_dim,
            padded,
            room,
            capacity,
            len: 0,
            keys: Store::zeroed(k, total)?,
            values: Store::zeroed(v, total)?,
        })
    }

    /// Key and value heads.
    pub fn kv_heads(&self) -> usize {
        self.kv_heads
    }

    /// Values per head.
    pub fn head_dim(&self) -> usize {
        self.head_dim
    }

    /// Positions held.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no position is held.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Positions there is room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes reserved.
    pub fn memory(&self) -> usize {
        self.keys.memory() + self.values.memory()
    }

    /// Writes one or more positions from `position` on: `k` and `v` have `kv_heads * head_dim`
    /// values each per position. The layer's length becomes the position after the last.
    ///
    /// # Errors
    /// Lengths do not fit, `position` would leave a gap, or the capacity is exceeded.
    pub fn append(&mut self, position: usize, k: &[f32], v: &[f32]) -> Result<(), KernelError> {
        let width = self.kv_heads * self.head_dim;
        expect_len("values to append", k.len(), v.len())?;
        expect_len("keys to append", k.len() / width * width, k.len())?;
        let count = k.len() / width;
        let gap =
            KernelError::Index { what: "cache position", index: position, limit: self.len + 1 };
        if position > self.len {
            return Err(gap);
        }
        let end = position.checked_add(count).filter(|end| *end <= self.capacity).ok_or(
            KernelError::Index {
                what: "cache position",
                index: position.saturating_add(count),
                limit: self.capacity + 1,
            },
        )?;
        for (i, (k, v)) in k.chunks_exact(width).zip(v.chunks_exact(width)).enumerate() {
            let t = position + i;
            let heads = k.chunks_exact(self.head_dim).zip(v.chunks_exact(self.head_dim));
            for (h, (k, v)) in heads.enumerate() {
                let (key, value) = (self.key_at(h, t), self.value_at(h, t));
                for (d, (&k, &v)) in k.iter().zip(v).enumerate() {
                    self.keys.set(key + d * TILE, k);
                    self.values.set(value + d, v);
                }
            }
        }
        self.len = end;
        Ok(())
    }

    /// Forgets every position from `len` on.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Replaces the contents by the first `len` positions of `other`, a layer of the same shape.
    ///
    /// # Errors
    /// The shapes differ, or `len` is more than `other` holds or this layer has room for.
    pub fn copy_prefix(&mut self, other: &KvLayer, len: usize) -> Result<(), KernelError> {
        expect_len("kv heads of the cache", self.kv_heads, other.kv_heads)?;
        expect_len("head size of the cache", self.head_dim, other.head_dim)?;
        let limit = other.len.min(self.capacity);
        if len > limit {
            return Err(KernelError::Index { what: "prefix", index: len, limit: limit + 1 });
        }
        let whole = len.next_multiple_of(TILE) * self.padded;
        for h in 0..self.kv_heads {
            let (to, from) = (h * self.room * self.padded, h * other.room * other.padded);
            copy_between(&mut self.keys, to, &other.keys, from, whole);
            copy_between(&mut self.values, to, &other.values, from, whole);
        }
        self.len = len;
        Ok(())
    }

    /// Where key `t` of head `h` starts; its dimensions are [`TILE`] apart.
    fn key_at(&self, h: usize, t: usize) -> usize {
        (h * self.room + t / TILE * TILE) * self.padded + t % TILE
    }

    /// Where value `t` of head `h` starts.
    fn value_at(&self, h: usize, t: usize) -> usize {
        (h * self.room + t) * self.padded
    }

    /// Dimensions with padding.
    pub(super) fn padded(&self) -> usize {
        self.padded
    }

    /// Keys from the tile of position `t` of head `h` on, and values from position `t` on. `t` is
    /// below the room there is.
    pub(super) fn stored(&self, h: usize, t: usize) -> (Stored<'_>, Stored<'_>) {
        let end = (h + 1) * self.room * self.padded;
        let key = (h * self.room + t / TILE * TILE) * self.padded;
        (self.keys.slice(key..end), self.values.slice(self.value_at(h, t)..end))
    }
}

/// A run of stored numbers.
#[derive(Clone, Copy)]
pub(super) enum Stored<'a> {
    /// Half floats.
    Half(&'a [u16]),
    /// Floats.
    Float(&'a [f32]),
}

fn copy_between(to: &mut Store, at: usize, from: &Store, start: usize, len: usize) {
    if at == start {
        to.copy(from, at, len);
        return;
    }
    match (to, from) {
        (Store::Half(to), Store::Half(from)) => {
            to[at..at + len].copy_from_slice(&from[start..start + len]);
        }
        (Store::Float(to), Store::Float(from)) => {
            to[at..at + len].copy_from_slice(&from[start..start + len]);
        }
        (to, from) => (0..len).for_each(|i| to.set(at + i, from.get(start + i))),
    }
}
