//! One layer's keys and values of one session.
//!
//! Both lie in tiles of 16 positions, padded to whole vectors of dimensions. In a tile of keys the
//! positions of a dimension are side by side, so that 16 scores form in one vector; in a tile of
//! values each position is a row. A layer with a window keeps only the positions it can still be
//! asked for, in a ring of tiles: what the ring has lost it refuses to go back to.
#![allow(clippy::indexing_slicing, reason = "indices are below sizes checked on entry")]

use super::store::{Side, TILE};
use crate::error::{KernelError, expect_len};
use crate::isa::{self, Isa};
use crate::memory::Slab;
use crate::quant::Quant;

/// How far a layer looks back, and how many positions are written before they are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ring {
    /// A query sees keys less than this many positions away.
    pub window: usize,
    /// The most positions appended at once; also how far back [`KvLayer::truncate`] can go.
    pub rows: usize,
}

/// One layer's keys and values of one session, positions `0..len` of which a layer with a window
/// holds the last ones.
#[derive(Clone)]
pub struct KvLayer {
    kv_heads: usize,
    head_dim: usize,
    keys: Side,
    values: Side,
    /// Tiles there is room for.
    tiles: usize,
    capacity: usize,
    ring: Option<Ring>,
    len: usize,
    /// The first position that has not been overwritten.
    first: usize,
    /// All keys, then all values; head by head.
    data: Slab,
}

impl KvLayer {
    /// An empty layer with room for `capacity` positions. The memory is zeroed pages, which the
    /// operating system provides as they are first written.
    ///
    /// # Errors
    /// A type other than F32, F16, BF16, Q8_0 and Q4_0, a zero dimension, or more than fits in
    /// memory.
    pub fn new(
        kv_heads: usize,
        head_dim: usize,
        capacity: usize,
        k: Quant,
        v: Quant,
    ) -> Result<KvLayer, KernelError> {
        KvLayer::windowed(kv_heads, head_dim, capacity, None, k, v)
    }

    /// [`KvLayer::new`] for a layer with a window: it keeps no more positions than `ring` needs.
    ///
    /// # Errors
    /// As for [`KvLayer::new`], or a window or a batch of zero.
    pub fn windowed(
        kv_heads: usize,
        head_dim: usize,
        capacity: usize,
        ring: Option<Ring>,
        k: Quant,
        v: Quant,
    ) -> Result<KvLayer, KernelError> {
        if kv_heads == 0 || head_dim == 0 {
            return Err(KernelError::Invalid("a cache needs at least one head of one value"));
        }
        if ring.is_some_and(|ring| ring.window == 0 || ring.rows == 0) {
            return Err(KernelError::Invalid("a window and a batch need at least one position"));
        }
        let too_large = KernelError::TooLarge("the key and value cache");
        let (keys, values) = (Side::new(k, head_dim)?, Side::new(v, head_dim)?);
        let room = KvLayer::room(capacity, ring);
        let data = room
            .checked_mul(keys.row_bytes() + values.row_bytes())
            .and_then(|x| x.checked_mul(kv_heads))
            .filter(|x| *x <= isize::MAX as usize / 2)
            .and_then(Slab::zeroed)
            .ok_or(too_large)?;
        let ring = ring.filter(|_| room < capacity);
        Ok(KvLayer {
            kv_heads,
            head_dim,
            keys,
            values,
            tiles: room / TILE,
            capacity,
            ring,
            len: 0,
            first: 0,
            data,
        })
    }

    /// Positions a layer with room for `capacity` keeps at most: what its memory is made for.
    pub fn room(capacity: usize, ring: Option<Ring>) -> usize {
        let all =
            capacity.max(1).checked_next_multiple_of(TILE).unwrap_or(usize::MAX / TILE * TILE);
        let some = ring
            .and_then(|ring| ring.window.checked_add(ring.rows)?.checked_next_multiple_of(TILE));
        some.map_or(all, |some| some.min(all))
    }

    /// Bytes one position takes.
    ///
    /// # Errors
    /// The types cannot hold keys and values.
    pub fn position_bytes(
        kv_heads: usize,
        head_dim: usize,
        k: Quant,
        v: Quant,
    ) -> Result<usize, KernelError> {
        let row = Side::new(k, head_dim)?.row_bytes() + Side::new(v, head_dim)?.row_bytes();
        row.checked_mul(kv_heads).ok_or(KernelError::TooLarge("a position of the cache"))
    }

    /// Key and value heads.
    pub fn kv_heads(&self) -> usize {
        self.kv_heads
    }

    /// Values per head.
    pub fn head_dim(&self) -> usize {
        self.head_dim
    }

    /// Positions appended, whether or not all of them are still there.
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
        self.data.len()
    }

    /// The first position that is still there.
    pub fn first(&self) -> usize {
        self.first
    }

    /// Whether the layer can go on from position `len`: whether everything a query there sees is
    /// still there.
    pub fn resumes_at(&self, len: usize) -> bool {
        let seen = self.ring.map_or(0, |ring| (len + 1).saturating_sub(ring.window));
        len <= self.len && (len == 0 || self.first <= seen)
    }

    /// Writes one or more positions from `position` on: `k` and `v` have `kv_heads * head_dim`
    /// values each per position. The layer's length becomes the position after the last.
    ///
    /// # Errors
    /// Lengths do not fit, `position` would leave a gap or follow on what is lost, the capacity is
    /// exceeded, or a layer with a window is given more at once than it was made for.
    pub fn append(&mut self, position: usize, k: &[f32], v: &[f32]) -> Result<(), KernelError> {
        self.append_on(isa::current(), position, k, v)
    }

    /// [`KvLayer::append`] on a given instruction set.
    pub(crate) fn append_on(
        &mut self,
        isa: Isa,
        position: usize,
        k: &[f32],
        v: &[f32],
    ) -> Result<(), KernelError> {
        let width = self.kv_heads * self.head_dim;
        expect_len("values to append", k.len(), v.len())?;
        expect_len("keys to append", k.len() / width * width, k.len())?;
        let count = k.len() / width;
        if position > self.len {
            let limit = self.len + 1;
            return Err(KernelError::Index { what: "cache position", index: position, limit });
        }
        let end = position.checked_add(count).filter(|end| *end <= self.capacity).ok_or(
            KernelError::Index {
                what: "cache position",
                index: position.saturating_add(count),
                limit: self.capacity + 1,
            },
        )?;
        if let Some(ring) = self.ring
            && count > ring.rows
        {
            let limit = ring.rows + 1;
            return Err(KernelError::Index { what: "positions at once", index: count, limit });
        }
        self.truncate(position)?;
        let (keys, values) = (self.keys, self.values);
        for (i, (k, v)) in k.chunks_exact(width).zip(v.chunks_exact(width)).enumerate() {
            let t = position + i;
            let heads = k.chunks_exact(self.head_dim).zip(v.chunks_exact(self.head_dim));
            for (h, (k, v)) in heads.enumerate() {
                let (key, value) = (self.key_tile(h, t), self.value_tile(h, t));
                let data = self.data.as_mut_slice();
                keys.write_key(isa, k, t % TILE, &mut data[key..key + keys.tile_bytes()]);
                values.write_value(isa, v, t % TILE, &mut data[value..value + values.tile_bytes()]);
            }
        }
        self.len = end;
        self.first = self.first.max(end.saturating_sub(self.tiles * TILE));
        Ok(())
    }

    /// Forgets every position from `len` on.
    ///
    /// # Errors
    /// The layer has a window, and what a query at `len` would see is not there any more. Nothing
    /// is changed then; going back to 0 always works.
    pub fn truncate(&mut self, len: usize) -> Result<(), KernelError> {
        if len >= self.len {
            return Ok(());
        }
        if !self.resumes_at(len) {
            return Err(KernelError::Lost { position: len, first: self.first });
        }
        self.len = len;
        if len == 0 {
            self.first = 0;
        }
        Ok(())
    }

    /// Replaces the contents by the first `len` positions of `other`, a layer of the same shape
    /// and types.
    ///
    /// # Errors
    /// The shapes or types differ, `len` is more than `other` holds or this layer has room for, or
    /// `other` cannot go on from `len`.
    pub fn copy_prefix(&mut self, other: &KvLayer, len: usize) -> Result<(), KernelError> {
        expect_len("kv heads of the cache", self.kv_heads, other.kv_heads)?;
        expect_len("head size of the cache", self.head_dim, other.head_dim)?;
        if (self.keys, self.values) != (other.keys, other.values) {
            return Err(KernelError::Invalid("caches of different types do not copy"));
        }
        let limit = other.len.min(self.capacity);
        if len > limit {
            return Err(KernelError::Index { what: "prefix", index: len, limit: limit + 1 });
        }
        if !other.resumes_at(len) {
            return Err(KernelError::Lost { position: len, first: other.first });
        }
        let first = other.first.max(len.saturating_sub(self.tiles * TILE)).min(len);
        for h in 0..self.kv_heads {
            for t in (first / TILE * TILE..len).step_by(TILE) {
                let (key, value) = (self.key_tile(h, t), self.value_tile(h, t));
                let (from_key, from_value) = (other.key_tile(h, t), other.value_tile(h, t));
                let (to, from) = (self.data.as_mut_slice(), other.data.as_slice());
                let (k, v) = (self.keys.tile_bytes(), self.values.tile_bytes());
                to[key..key + k].copy_from_slice(&from[from_key..from_key + k]);
                to[value..value + v].copy_from_slice(&from[from_value..from_value + v]);
            }
        }
        self.len = len;
        self.first = first;
        Ok(())
    }

    /// Where the tile of key `t` of head `h` starts.
    fn key_tile(&self, h: usize, t: usize) -> usize {
        (h * self.tiles + t / TILE % self.tiles) * self.keys.tile_bytes()
    }

    /// Where the tile of value `t` of head `h` starts.
    fn value_tile(&self, h: usize, t: usize) -> usize {
        let keys = self.kv_heads * self.tiles * self.keys.tile_bytes();
        keys + (h * self.tiles + t / TILE % self.tiles) * self.values.tile_bytes()
    }

    /// How keys and values are stored.
    pub(super) fn sides(&self) -> (Side, Side) {
        (self.keys, self.values)
    }

    /// Tiles from position `t` on, a multiple of [`TILE`], before the ring begins again.
    pub(super) fn tiles_from(&self, t: usize) -> usize {
        self.tiles - t / TILE % self.tiles
    }

    /// Keys and values of `tiles` tiles from position `t` of head `h` on, a multiple of [`TILE`];
    /// no more than [`KvLayer::tiles_from`].
    pub(super) fn stored(&self, h: usize, t: usize, tiles: usize) -> (&[u8], &[u8]) {
        let (key, value) = (self.key_tile(h, t), self.value_tile(h, t));
        let data = self.data.as_slice();
        (
            &data[key..key + tiles * self.keys.tile_bytes()],
            &data[value..value + tiles * self.values.tile_bytes()],
        )
    }
}
