//! Angles of rotary position embeddings: frequencies with their scaling, computed once per model.

use std::f64::consts::PI;

use crate::program::{Rope, Scaling, TensorId};

/// Angle per position of each turning pair, and the factor on the turned numbers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Angles {
    /// Radians per position, one per pair.
    pub(crate) frequencies: Vec<f64>,
    /// `YaRN`'s magnitude; 1 otherwise.
    pub(crate) magnitude: f64,
}

impl Angles {
    /// The tensor that divides a rope's frequencies in contexts of at most `context` tokens.
    pub(crate) fn factors(rope: &Rope, context: usize) -> Option<TensorId> {
        match rope.long {
            Some(long) if context > long.original_context => Some(long.factors),
            _ => rope.factors,
        }
    }

    /// The angles of a rope; `factors` are the numbers of its [`Angles::factors`].
    #[must_use]
    pub(crate) fn new(rope: &Rope, factors: Option<&[f32]>) -> Self {
        let dims = rope.dims as f64;
        let plain = |pair: usize| {
            let divisor = factors.and_then(|factors| factors.get(pair)).copied().unwrap_or(1.0);
            rope.base.powf(-2.0 * pair as f64 / dims) / f64::from(divisor)
        };
        let pairs = 0..rope.dims / 2;
        match rope.scaling {
            Scaling::None { attention_factor } => {
                Self { frequencies: pairs.map(plain).collect(), magnitude: attention_factor }
            }
            Scaling::Linear { factor } => Self {
                frequencies: pairs.map(|pair| plain(pair) / factor).collect(),
                magnitude: 1.0,
            },
            Scaling::Yarn { factor, original_context, beta_fast, beta_slow, attention_factor } => {
                // The pair that turns `turns` times within the trained context.
                let pair_of = |turns: f64| {
                    dims * (original_context as f64 / (turns * 2.0 * PI)).ln()
                        / (2.0 * rope.base.ln())
                };
                let low = pair_of(beta_fast).floor().max(0.0);
                let high = pair_of(beta_slow).ceil().min(dims - 1.0);
                let frequencies = pairs
                    .map(|pair| {
                        let ramp = (pair as f64 - low) / (high - low).max(0.001);
                        let kept = 1.0 - ramp.clamp(0.0, 1.0);
                        plain(pair) * (kept + (1.0 - kept) / factor)
                    })
                    .collect();
                Self { frequencies, magnitude: attention_factor * (1.0 + 0.1 * factor.ln()) }
            }
        }
    }

    /// Cosine and sine of every pair at a position, times the magnitude.
    pub(crate) fn at(&self, position: usize, cos: &mut [f32], sin: &mut [f32]) {
        for ((frequency, cos), sin) in self.frequencies.iter().zip(cos).zip(sin) {
            let (s, c) = (position as f64 * frequency).sin_cos();
            *cos = (c * self.magnitude) as f32;
            *sin = (s * self.magnitude) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Layout;

    fn rope(scaling: Scaling) -> Rope {
        Rope {
            heads: 1,
            head_dim: 64,
            offset: 0,
            dims: 64,
            layout: Layout::Half,
            base: 10_000.0,
            scaling,
            factors: None,
            long: None,
        }
    }

    #[test]
    fn yarn_keeps_the_fast_pairs_and_interpolates_the_slow_ones() {
        let plain = Angles::new(&rope(Scaling::None { attention_factor: 1.0 }), None);
        let yarn = Angles::new(
            &rope(Scaling::Yarn {
                factor: 4.0,
                original_context: 4096,
                beta_fast: 32.0,
                beta_slow: 1.0,
                attention_factor: 1.0,
            }),
            None,
        );
        assert_eq!(yarn.frequencies[0], plain.frequencies[0]);
        assert_eq!(yarn.frequencies[31], plain.frequencies[31] / 4.0);
        let ratio = yarn.frequencies[16] / plain.frequencies[16];
        assert!(ratio < 1.0 && ratio > 0.25, "the ramp lies between: {ratio}");
        assert!((yarn.magnitude - 1.138_629_436).abs() < 1e-9);
    }

    #[test]
    fn factors_and_linear_scaling_divide() {
        let rope = rope(Scaling::Linear { factor: 2.0 });
        let angles = Angles::new(&rope, Some(&[8.0; 32]));
        assert_eq!(angles.frequencies[0], 1.0 / 16.0);
    }
}
