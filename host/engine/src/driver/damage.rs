//! Where a pass lost its numbers: the tokens are computed again, looking.

use std::sync::Arc;

use gristmill_core::Error;
use gristmill_kernels::Pool;

use super::{models::Slot, sequence::Sequence};
use crate::{
    cache::Cache,
    core::PREFILL_ROWS,
    execute::{Model, Row},
    nonfinite,
    packing::Placement,
};

impl Slot {
    /// Ends an answer with an error, which names a tensor if its logits were no numbers.
    pub(super) fn damaged(&mut self, pool: &Pool, mut sequence: Sequence, mut error: Error) {
        if error.code.as_str() == nonfinite::CODE {
            let tokens = sequence.context();
            error = self.diagnose(pool, &tokens, &mut sequence.held.cache);
        }
        self.end_with(sequence, error);
    }

    /// Computes a context from its beginning until a buffer has a number that is none. Afterwards
    /// the cache is of no use.
    pub(super) fn diagnose(&mut self, pool: &Pool, tokens: &[u32], cache: &mut Cache) -> Error {
        let core = Arc::clone(&self.core);
        let weights = match core.weights() {
            Ok(weights) => weights,
            Err(error) => return error,
        };
        let model = Model { plan: &core.plan, weights: &weights, pool };
        let width = if core.encodes() { tokens.len().max(1) } else { PREFILL_ROWS };
        cache.truncate(0);
        let mut first = 0;
        for part in tokens.chunks(width) {
            let rows: Vec<Row> = part
                .iter()
                .enumerate()
                .map(|(n, &token)| Row {
                    cache: 0,
                    position: first + n,
                    token,
                    wanted: first + n + 1 == tokens.len(),
                    bulk: self.bulk && first + n + 1 < tokens.len(),
                })
                .collect();
            first += part.len();
            if let Err(error) = model.search(&mut self.arena, &rows, &mut [&mut *cache]) {
                // Weights that are no numbers are so for everybody.
                if error.detail("row").is_some() {
                    let reason = Some(error.message.clone());
                    core.replace(Err(error.clone()), Placement { reason, ..core.placement() });
                }
                return error;
            }
        }
        nonfinite::vanished()
    }
}
