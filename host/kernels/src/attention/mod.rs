//! Attention of query rows over sessions' caches.

mod cache;
mod kernel;
mod run;
mod store;
mod stored;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod tiles;

pub use cache::{KvLayer, Ring};

use crate::error::{KernelError, expect_len};
use crate::pool::Pool;

/// The shape and the rules of one layer's attention.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionSpec {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Values per head.
    pub head_dim: usize,
    /// Multiplies the scores.
    pub scale: f32,
    /// Whether a query sees only keys up to its own position.
    pub causal: bool,
    /// A query sees keys less than this many positions away (its own counts).
    pub window: Option<usize>,
    /// Scores become `cap * tanh(score / cap)`.
    pub softcap: Option<f32>,
    /// One extra score per query head that takes weight and gives nothing.
    pub sinks: Option<Vec<f32>>,
}

impl AttentionSpec {
    /// The keys a query at `position` sees in a cache of `len`.
    fn visible(&self, position: usize, len: usize) -> std::ops::Range<usize> {
        let end = if self.causal {
            len.min(position + 1)
        } else {
            self.window.map_or(len, |w| len.min(position.saturating_add(w)))
        };
        let start = self.window.map_or(0, |w| (position + 1).saturating_sub(w));
        start.min(end)..end
    }

    fn check(&self) -> Result<(), KernelError> {
        if self.kv_heads == 0 || self.head_dim == 0 || !self.heads.is_multiple_of(self.kv_heads) {
            return Err(KernelError::Invalid("attention heads must be a multiple of the kv heads"));
        }
        if self.window == Some(0) {
            return Err(KernelError::Invalid("an attention window needs at least one position"));
        }
        if let Some(sinks) = &self.sinks {
            expect_len("attention sinks", self.heads, sinks.len())?;
        }
        Ok(())
    }
}

/// Attends: row `i` of `q` (`heads * head_dim` values) belongs to `rows[i]`, a cache and the
/// query's position in it, and its result goes to row `i` of `out`.
///
/// Rows marked in `bulk` (empty: none) come in bulk: where there are tiles (AMX) their products are
/// of sums of two bf16 numbers, which is 16 bits of mantissa. What a row gets does not depend on its
/// neighbours then.
///
/// # Errors
/// Lengths or indices do not fit, a cache has another shape than `spec`, or a query sees keys that
/// a windowed cache has lost.
pub fn attention(
    pool: &Pool,
    spec: &AttentionSpec,
    q: &[f32],
    rows: &[(usize, usize)],
    bulk: &[bool],
    caches: &[&KvLayer],
    out: &mut [f32],
) -> Result<(), KernelError> {
    if !bulk.is_empty() {
        expect_len("marks of rows in bulk", rows.len(), bulk.len())?;
    }
    spec.check()?;
    let width = spec.heads * spec.head_dim;
    expect_len("queries", rows.len() * width, q.len())?;
    expect_len("attention output", rows.len() * width, out.len())?;
    for &(cache, position) in rows {
        let limit = caches.len();
        let layer =
            caches.get(cache).ok_or(KernelError::Index { what: "cache", index: cache, limit })?;
        expect_len("kv heads of the cache", spec.kv_heads, layer.kv_heads())?;
        expect_len("head size of the cache", spec.head_dim, layer.head_dim())?;
        let seen = spec.visible(position, layer.len());
        if !seen.is_empty() && seen.start < layer.first() {
            return Err(KernelError::Lost { position, first: layer.first() });
        }
    }
    run::attend(pool, spec, q, rows, bulk, caches, out);
    Ok(())
}
