//! Small random models, ready to compute with.

use std::sync::Arc;

use gristmill_engine::{plan::Plan, program::check, weights::Weights};
use gristmill_kernels::Quant;

use super::{families, tiny::Tiny};

pub struct Ready {
    pub plan: Plan,
    pub weights: Weights,
    pub tiny: Tiny,
}

pub fn ready(architecture: &str, quant: Quant) -> Ready {
    let tiny = Tiny::family(architecture, quant);
    let program = families::program(&tiny.metadata).unwrap();
    let checked = check(&program, &tiny.metadata).unwrap_or_else(|fault| panic!("{fault}"));
    let plan = Plan::new(Arc::new(checked));
    let weights = Weights::load(&plan, &tiny, true).unwrap();
    Ready { plan, weights, tiny }
}

pub fn tokens(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| (i * 37 + 11) % 200).collect()
}

/// Root mean square of the difference over that of the reference.
pub fn distance(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let square = |x: f64| x * x;
    let error: f64 = a.iter().zip(b).map(|(a, b)| square(f64::from(a - b))).sum();
    let size: f64 = b.iter().map(|b| square(f64::from(*b))).sum();
    (error / size).sqrt()
}
