//! llama.cpp at its best: which build and flags are the fastest for a cell is found by trying each
//! once, and only then is it measured against ours.

use std::path::Path;

use anyhow::{Context, Result};

use super::{
    cells::{Row, Speed, Work},
    engines::{Engine, Variant},
};

/// The best variant for each of a cell's rows.
#[derive(Debug)]
pub(super) struct Best(Vec<(Speed, Variant)>);

impl Best {
    /// Tries every variant once.
    pub(super) fn find(
        variants: &[Variant],
        file: &Path,
        work: Work,
        rows: &[Row],
        threads: usize,
    ) -> Result<Self> {
        let mut tried = Vec::new();
        for variant in variants {
            let rates = Engine::Llama(variant.clone()).measure(file, work, threads)?;
            tried.push((variant, rates));
        }
        let best = rows.iter().map(|row| {
            let fastest = tried
                .iter()
                .max_by(|(_, a), (_, b)| a.of(row.speed).total_cmp(&b.of(row.speed)))
                .context("no build of llama.cpp to try")?;
            Ok((row.speed, fastest.0.clone()))
        });
        Ok(Self(best.collect::<Result<_>>()?))
    }

    /// The best for this speed.
    pub(super) fn of(&self, speed: Speed) -> Option<&Variant> {
        self.0.iter().find(|(of, _)| *of == speed).map(|(_, variant)| variant)
    }

    /// The variants to run in each round, each once.
    pub(super) fn variants(&self) -> Vec<&Variant> {
        let mut variants: Vec<&Variant> = Vec::new();
        for (_, variant) in &self.0 {
            if !variants.contains(&variant) {
                variants.push(variant);
            }
        }
        variants
    }
}
