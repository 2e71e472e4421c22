//! The rounds of one cell, and what came out.

use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use super::{
    cells::{Cell, Goal, PREFILL_AMX, PREFILL_PLAIN, Row, Speed},
    engines::{Engine, Rates, Variant},
    reference::Best,
    stats::Series,
};

/// What the machine can do at most.
#[derive(Debug, Clone, Copy)]
pub(super) struct Machine {
    /// GB/s read from memory.
    pub(super) bandwidth: f64,
    /// Billions of products of 8-bit integers per second, in registers.
    pub(super) products: f64,
}

/// A cell's measurements.
#[derive(Debug)]
pub(super) struct Outcome {
    cell: Cell,
    ours: Vec<Rates>,
    best: Option<Best>,
    theirs: Vec<(Variant, Vec<Rates>)>,
    /// Whether there is a build with AMX, and so AMX.
    amx: bool,
}

/// Measures a cell in rounds of the order A B, B A, A B, …: a machine that slows down slows both.
pub(super) fn run(
    cell: Cell,
    file: &Path,
    binary: &Path,
    variants: &[Variant],
    rounds: usize,
    threads: usize,
) -> Result<Outcome> {
    let gristmill = Engine::Gristmill(binary.to_path_buf());
    let best = match variants {
        [] => None,
        _ => Some(Best::find(variants, file, cell.work, &cell.rows, threads)?),
    };
    let mut ours = Vec::new();
    let mut theirs: Vec<(Variant, Vec<Rates>)> =
        best.iter().flat_map(Best::variants).map(|variant| (variant.clone(), Vec::new())).collect();
    for round in 0..rounds {
        let mine = |ours: &mut Vec<Rates>| -> Result<()> {
            ours.push(gristmill.measure(file, cell.work, threads)?);
            Ok(())
        };
        if round % 2 == 0 {
            mine(&mut ours)?;
        }
        for (variant, rates) in &mut theirs {
            rates.push(Engine::Llama(variant.clone()).measure(file, cell.work, threads)?);
        }
        if round % 2 == 1 {
            mine(&mut ours)?;
        }
    }
    let amx = variants.iter().any(Variant::is_amx);
    Ok(Outcome { cell, ours, best, theirs, amx })
}

impl Outcome {
    /// The rows of the table.
    pub(super) fn print(&self, machine: Machine) {
        for row in &self.cell.rows {
            let mine = series(&self.ours, row.speed);
            let (name, other) = self.reference(row.speed);
            let ratio = mine.over(&other);
            let goal = self.goal(*row);
            let verdict = match ratio.median() {
                ratio if ratio.is_nan() => "–",
                ratio if ratio >= goal.aim => "aim",
                ratio if ratio >= goal.must => "reached",
                _ => "MISSED",
            };
            let share = self.share(*row, machine).map(|share| format!("{:.0} %", share * 100.0));
            println!(
                "{:<20} {:<14} {:>22} {:>20} {:>20} {:>9}  {verdict:<7} {:>4} {:>4}  {name}",
                self.cell.model,
                self.cell.label(*row),
                mine.show(1),
                other.show(1),
                ratio.show(2),
                share.as_deref().unwrap_or("–"),
                goal.must,
                goal.aim,
            );
        }
    }

    pub(super) fn json(&self, machine: Machine) -> Value {
        let rows = self.cell.rows.iter().map(|row| {
            let (name, other) = self.reference(row.speed);
            let mine = series(&self.ours, row.speed);
            let goal = self.goal(*row);
            json!({
                "model": self.cell.model, "what": self.cell.label(*row),
                "ours": mine.values(), "llama_cpp": other.values(), "llama_cpp_variant": name,
                "ratio": mine.over(&other).median(), "share": self.share(*row, machine),
                "must": goal.must, "aim": goal.aim,
            })
        });
        Value::Array(rows.collect())
    }

    fn reference(&self, speed: Speed) -> (String, Series) {
        let best = self.best.as_ref().and_then(|best| best.of(speed));
        let rates = best.and_then(|best| self.theirs.iter().find(|(variant, _)| variant == best));
        match rates {
            Some((variant, rates)) => (variant.to_string(), series(rates, speed)),
            None => ("–".to_owned(), series(&[], speed)),
        }
    }

    fn goal(&self, row: Row) -> Goal {
        let best = self.best.as_ref().and_then(|best| best.of(row.speed));
        match row.speed {
            Speed::Prefill if self.amx && !self.cell.amx => PREFILL_PLAIN,
            Speed::Prefill if best.is_some_and(Variant::is_amx) => PREFILL_AMX,
            _ => row.goal,
        }
    }

    /// The share of what the machine can do at most: of its bandwidth when writing, where a step reads
    /// all weights once for all streams together (a long cache is read as well, so no share is given
    /// there); of its multiplications when reading.
    fn share(&self, row: Row, machine: Machine) -> Option<f64> {
        let work = self.cell.work;
        let last = self.ours.last()?;
        let speed = series(&self.ours, row.speed).median();
        match row.speed {
            Speed::Decode if work.depth > 0 => None,
            Speed::Decode => {
                let steps = speed / f64::from(work.streams);
                Some(last.weights? * steps / 1e9 / machine.bandwidth)
            }
            Speed::Prefill => Some(last.products? * speed / 1e9 / machine.products),
        }
    }
}

fn series(rates: &[Rates], speed: Speed) -> Series {
    rates.iter().map(|rates| rates.of(speed)).collect()
}
