//! Rotary positions.

use super::math::fma;
use super::multiversion;

/// Which two dimensions of a head rotate together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopeStyle {
    /// Neighbours: (0, 1), (2, 3), …
    Interleaved,
    /// The two halves of the rotated part: (0, n/2), (1, n/2 + 1), …
    Halves,
}

/// Rotation frequencies of one kind of layer.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeTable {
    frequencies: Vec<f32>,
    magnitude: f32,
}

impl RopeTable {
    /// The usual table: frequency `i` of `rotated / 2` is `scale * base^(-2i / rotated)`, divided
    /// by `factors[i]` where given.
    pub fn new(rotated: usize, base: f32, scale: f32, factors: Option<&[f32]>) -> RopeTable {
        let frequencies = (0..rotated / 2)
            .map(|i| {
                let f = f64::from(base).powf(-2.0 * i as f64 / rotated as f64);
                let factor = factors.and_then(|f| f.get(i)).copied().unwrap_or(1.0);
                (f * f64::from(scale) / f64::from(factor)) as f32
            })
            .collect();
        RopeTable { frequencies, magnitude: 1.0 }
    }

    /// A table of given frequencies (radians per position); `magnitude` multiplies sine and
    /// cosine, as YaRN and LongRoPE want.
    pub fn from_frequencies(frequencies: Vec<f32>, magnitude: f32) -> RopeTable {
        RopeTable { frequencies, magnitude }
    }

    /// Number of dimensions that rotate.
    pub fn rotated(&self) -> usize {
        self.frequencies.len() * 2
    }

    /// Sine and cosine for these positions; compute them once for all layers that share a table.
    pub fn rotations(&self, positions: &[usize], into: &mut Rotations) {
        into.pairs = self.frequencies.len();
        into.cos.clear();
        into.sin.clear();
        for &position in positions {
            for &frequency in &self.frequencies {
                // The angle in f32, as every trained implementation has it; its sine in f64.
                let angle = f64::from(position as f32 * frequency);
                into.cos.push(angle.cos() as f32 * self.magnitude);
                into.sin.push(angle.sin() as f32 * self.magnitude);
            }
        }
    }
}

/// Sines and cosines of some positions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rotations {
    pairs: usize,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

multiversion! {
    /// Rotates `x` in place: tokens of `heads` heads of `head_dim` values, one token for each of
    /// the rotations' positions, starting at `offset` inside each head.
    pub fn rope / rope_on = rope_body(x: &mut [f32], heads: usize, head_dim: usize, offset: usize, style: RopeStyle, rotations: &Rotations)
}

#[inline(always)]
fn rope_body<const FMA: bool>(
    x: &mut [f32],
    heads: usize,
    head_dim: usize,
    offset: usize,
    style: RopeStyle,
    rotations: &Rotations,
) {
    let pairs = rotations.pairs;
    let width = (heads * head_dim).max(1);
    if pairs == 0 || head_dim == 0 {
        return;
    }
    let angles = rotations.cos.chunks_exact(pairs).zip(rotations.sin.chunks_exact(pairs));
    for (token, (cos, sin)) in x.chunks_exact_mut(width).zip(angles) {
        for head in token.chunks_exact_mut(head_dim) {
            let Some(part) = head.get_mut(offset..offset + 2 * pairs) else { return };
            match style {
                RopeStyle::Halves => {
                    let (low, high) = part.split_at_mut(pairs);
                    for (((a, b), &c), &s) in low.iter_mut().zip(high).zip(cos).zip(sin) {
                        let (x, y) = (*a, *b);
                        *a = fma::<FMA>(x, c, -(y * s));
                        *b = fma::<FMA>(y, c, x * s);
                    }
                }
                RopeStyle::Interleaved => {
                    for ((pair, &c), &s) in part.as_chunks_mut::<2>().0.iter_mut().zip(cos).zip(sin)
                    {
                        let [x, y] = *pair;
                        *pair = [fma::<FMA>(x, c, -(y * s)), fma::<FMA>(y, c, x * s)];
                    }
                }
            }
        }
    }
}
