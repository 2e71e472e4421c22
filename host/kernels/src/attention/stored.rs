//! How the stored numbers of keys and values become floats, sixteen at a time.
#![allow(unsafe_code, reason = "vector loads from pointers whose ranges the caller has checked")]

use super::store::TILE;
use crate::simd::{Element, Lanes};

/// How a type's numbers become floats.
pub(super) trait Stored {
    /// Dimensions that share a scale; 0 for plain numbers.
    const BLOCK: usize;
    /// Bytes of `dims` dimensions of one position; `dims` is a multiple of 16, of 32 for blocks.
    fn bytes(dims: usize) -> usize;
    /// Dimension `d` of a tile of keys, without the block's scales.
    ///
    /// # Safety
    /// The instruction set is there; the tile has more than `d` dimensions.
    unsafe fn key<V: Lanes>(tile: *const u8, d: usize) -> V;
    /// The scales of block `b` of a tile of keys.
    ///
    /// # Safety
    /// The instruction set is there; the tile has this block.
    unsafe fn scales<V: Lanes>(tile: *const u8, b: usize) -> V;
    /// Dimensions `d..d + 16` of a value of `padded` dimensions.
    ///
    /// # Safety
    /// The instruction set is there; the row has these dimensions.
    unsafe fn value<V: Lanes>(row: *const u8, padded: usize, d: usize) -> V;
}

/// Plain numbers of a kind.
pub(super) struct Numbers<E>(std::marker::PhantomData<E>);

impl<E: Element> Stored for Numbers<E> {
    const BLOCK: usize = 0;

    #[inline(always)]
    fn bytes(dims: usize) -> usize {
        dims * size_of::<E>()
    }

    #[inline(always)]
    unsafe fn key<V: Lanes>(tile: *const u8, d: usize) -> V {
        // SAFETY: the caller's promise.
        unsafe { E::load::<V>(tile.cast::<E>().add(d * TILE)) }
    }

    #[inline(always)]
    unsafe fn scales<V: Lanes>(_: *const u8, _: usize) -> V {
        // SAFETY: the caller's promise.
        unsafe { V::splat(1.0) }
    }

    #[inline(always)]
    unsafe fn value<V: Lanes>(row: *const u8, _: usize, d: usize) -> V {
        // SAFETY: the caller's promise.
        unsafe { E::load::<V>(row.cast::<E>().add(d)) }
    }
}

/// Q8_0 (or, with `FOUR`, Q4_0) taken apart.
pub(super) struct Blocks<const FOUR: bool>;

impl<const FOUR: bool> Blocks<FOUR> {
    /// Bytes of codes of 32 dimensions.
    const CODES: usize = if FOUR { 16 } else { 32 };
}

impl<const FOUR: bool> Stored for Blocks<FOUR> {
    const BLOCK: usize = 32;

    #[inline(always)]
    fn bytes(dims: usize) -> usize {
        dims / 32 * (2 + Self::CODES)
    }

    #[inline(always)]
    unsafe fn key<V: Lanes>(tile: *const u8, d: usize) -> V {
        // SAFETY: the caller's promise.
        unsafe {
            let codes = tile.add(d / 32 * (2 + Self::CODES) * TILE + 2 * TILE);
            if !FOUR {
                V::load_bytes(codes.add(d % 32 * TILE).cast())
            } else if d % 32 < 16 {
                V::load_nibbles::<false>(codes.add(d % 16 * TILE))
            } else {
                V::load_nibbles::<true>(codes.add(d % 16 * TILE))
            }
        }
    }

    #[inline(always)]
    unsafe fn scales<V: Lanes>(tile: *const u8, b: usize) -> V {
        // SAFETY: the caller's promise.
        unsafe { V::load_half(tile.add(b * (2 + Self::CODES) * TILE).cast()) }
    }

    #[inline(always)]
    unsafe fn value<V: Lanes>(row: *const u8, padded: usize, d: usize) -> V {
        // SAFETY: the caller's promise.
        unsafe {
            let scale = V::splat_half(row.cast::<u16>().add(d / 32));
            let codes = row.add(padded / 32 * 2 + d / 32 * Self::CODES);
            let codes = if !FOUR {
                V::load_bytes(codes.add(d % 32).cast())
            } else if d % 32 < 16 {
                V::load_nibbles::<false>(codes)
            } else {
                V::load_nibbles::<true>(codes)
            };
            codes.mul(scale)
        }
    }
}
