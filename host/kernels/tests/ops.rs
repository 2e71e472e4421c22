//! Vector operations against their definitions in doubles, at lengths that fill no vector.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use common::{Rng, relative_error};
use gristmill_kernels::Activation;
use gristmill_kernels::ops::{self, RopeStyle, RopeTable, Rotations};
use proptest::prelude::*;

type Function = Box<dyn Fn(f64) -> f64>;

const LENGTHS: [usize; 8] = [1, 3, 16, 31, 64, 100, 576, 1000];

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|x| f64::from(*x)).collect()
}

fn close(got: &[f32], want: &[f64], what: &str) {
    let error = relative_error(got, want);
    assert!(error < 2e-6, "{what}: {error:e}");
}

#[test]
fn norms() {
    let mut rng = Rng::new(1);
    for n in LENGTHS {
        let (x, w, b) = (rng.normals(3 * n), rng.normals(n), rng.normals(n));
        let mut out = vec![0.0; 3 * n];
        let mut want = Vec::new();
        let mut layer = Vec::new();
        let mut unit = Vec::new();
        for x in wide(&x).chunks(n) {
            let square = x.iter().map(|x| x * x).sum::<f64>();
            let rms = (square / n as f64 + 1e-5).sqrt();
            want.extend(x.iter().zip(&w).map(|(x, w)| x / rms * f64::from(*w)));
            unit.extend(x.iter().map(|x| x / square.sqrt().max(1e-6)));
            let mean = x.iter().sum::<f64>() / n as f64;
            let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64;
            let deviation = (variance + 1e-2).sqrt();
            layer.extend(
                x.iter()
                    .zip(w.iter().zip(&b))
                    .map(|(x, (w, b))| (x - mean) / deviation * f64::from(*w) + f64::from(*b)),
            );
        }
        ops::rms_norm(&x, n, Some(&w), 1e-5, &mut out);
        close(&out, &want, "rms norm");
        let mut same = x.clone();
        ops::rms_norm_in_place(&mut same, n, Some(&w), 1e-5);
        assert_eq!(same, out);
        ops::layer_norm(&x, n, Some(&w), Some(&b), 1e-2, &mut out);
        close(&out, &layer, "layer norm");
        let mut x = x;
        ops::l2_norm(&mut x, n, 1e-6);
        close(&x, &unit, "l2 norm");
    }
}

#[test]
fn activations_and_gates() {
    let mut rng = Rng::new(2);
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let tanh_gelu =
        |x: f64| 0.5 * x * (1.0 + (0.797_884_560_802_865_4 * (x + 0.044715 * x * x * x)).tanh());
    let cases: [(Activation, Function); 6] = [
        (Activation::Identity, Box::new(|x| x)),
        (Activation::Silu, Box::new(move |x| x * sigmoid(x))),
        (Activation::GeluTanh, Box::new(tanh_gelu)),
        (Activation::GeluQuick, Box::new(move |x| x * sigmoid(1.702 * x))),
        (Activation::Relu, Box::new(|x| x.max(0.0))),
        (Activation::ReluSquared, Box::new(|x| x.max(0.0).powi(2))),
    ];
    for n in LENGTHS {
        let (gate, up) = (rng.normals(n), rng.normals(n));
        for (activation, f) in &cases {
            let mut got = gate.clone();
            ops::activate(*activation, &mut got);
            close(&got, &wide(&gate).iter().map(|x| f(*x)).collect::<Vec<_>>(), "activation");
            let mut got = vec![0.0; n];
            ops::glu(*activation, &gate, &up, &mut got);
            let want: Vec<f64> =
                gate.iter().zip(&up).map(|(g, u)| f(f64::from(*g)) * f64::from(*u)).collect();
            close(&got, &want, "gate");
        }
        // erf has no double in std: known values at 1 and -2.
        let mut x = [1.0, -2.0];
        ops::activate(Activation::GeluErf, &mut x);
        close(&x, &[0.841_344_746, -0.045_500_264], "gelu erf");
        let mut got = gate.clone();
        ops::glu_in_place(Activation::SwigluOai { alpha: 1.702, limit: 1.0 }, &mut got, &up);
        let want: Vec<f64> = wide(&gate)
            .iter()
            .zip(wide(&up))
            .map(|(g, u)| {
                let g = g.min(1.0);
                g * sigmoid(1.702 * g) * (u.clamp(-1.0, 1.0) + 1.0)
            })
            .collect();
        close(&got, &want, "swiglu of gpt-oss");
    }
}

#[test]
fn softmax_and_its_logarithm() {
    let mut rng = Rng::new(3);
    for n in LENGTHS {
        let x: Vec<f32> = rng.normals(n).iter().map(|x| x * 20.0).collect();
        let most = wide(&x).iter().fold(f64::NEG_INFINITY, |m, x| m.max(*x));
        let total: f64 = wide(&x).iter().map(|x| (x - most).exp()).sum();
        assert!((f64::from(ops::log_sum_exp(&x)) - (most + total.ln())).abs() < 1e-4);
        let want: Vec<f64> = wide(&x).iter().map(|x| (x * 0.5 - most * 0.5).exp()).collect();
        let sum: f64 = want.iter().sum();
        let mut got = x.clone();
        ops::softmax(&mut got, 0.5);
        close(&got, &want.iter().map(|w| w / sum).collect::<Vec<_>>(), "softmax");
    }
    let mut nothing = [f32::NEG_INFINITY; 3];
    ops::softmax(&mut nothing, 1.0);
    assert_eq!(nothing, [0.0; 3]);
    let mut masked = [f32::NEG_INFINITY, 0.0, f32::NEG_INFINITY];
    ops::softmax(&mut masked, 1.0);
    assert_eq!(masked, [0.0, 1.0, 0.0]);
    assert_eq!(ops::log_sum_exp(&[]), f32::NEG_INFINITY);
    let mut capped = [-1e6, 0.0, 1e6, 1.0];
    ops::softcap(&mut capped, 30.0);
    close(&capped, &[-30.0, 0.0, 30.0, 30.0 * (1.0f64 / 30.0).tanh()], "softcap");
}

#[test]
fn rotations_turn_pairs() {
    let mut rng = Rng::new(4);
    for style in [RopeStyle::Halves, RopeStyle::Interleaved] {
        let (heads, dim, rotated, offset) = (3, 40, 24, 8);
        let positions = [0, 1, 777];
        let x = rng.normals(positions.len() * heads * dim);
        let factors: Vec<f32> = (0..rotated / 2).map(|i| 1.0 + i as f32).collect();
        let table = RopeTable::new(rotated, 10_000.0, 0.5, Some(&factors));
        assert_eq!(table.rotated(), rotated);
        let mut rotations = Rotations::default();
        table.rotations(&positions, &mut rotations);
        let mut got = x.clone();
        ops::rope(&mut got, heads, dim, offset, style, &rotations);
        let mut want = wide(&x);
        for (t, position) in positions.iter().enumerate() {
            for h in 0..heads {
                let base = (t * heads + h) * dim + offset;
                for (i, factor) in factors.iter().enumerate() {
                    let frequency = (10_000f64.powf(-2.0 * i as f64 / rotated as f64) * 0.5
                        / f64::from(*factor)) as f32;
                    let angle = f64::from(*position as f32 * frequency);
                    let (a, b) = match style {
                        RopeStyle::Halves => (base + i, base + i + rotated / 2),
                        RopeStyle::Interleaved => (base + 2 * i, base + 2 * i + 1),
                    };
                    let (x, y) = (want[a], want[b]);
                    want[a] = x * angle.cos() - y * angle.sin();
                    want[b] = y * angle.cos() + x * angle.sin();
                }
            }
        }
        close(&got, &want, "rope");
    }
}

proptest! {
    #[test]
    fn scans_find_what_sorting_finds(
        values in proptest::collection::vec(-50i32..50, 0..700),
        k in 0usize..80,
        threshold in -50i32..50,
    ) {
        // Few distinct values, so that equals are common.
        let x: Vec<f32> = values.iter().map(|v| *v as f32).collect();
        let mut sorted: Vec<(u32, f32)> = (0..).zip(x.iter().copied()).collect();
        let mut found = Vec::new();
        ops::above(&x, threshold as f32, &mut found);
        let above: Vec<_> = sorted.iter().copied().filter(|v| v.1 > threshold as f32).collect();
        prop_assert_eq!(&found, &above);
        sorted.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let mut peaks = vec![0.0; x.len().div_ceil(100)];
        ops::peaks(&x, 100, &mut peaks);
        let blocks = x.chunks(100).map(|block| block.iter().copied().fold(f32::MIN, f32::max));
        prop_assert!(blocks.eq(peaks.iter().copied()));
        prop_assert_eq!(ops::argmax(&x), sorted.first().map(|v| v.0 as usize));
        sorted.truncate(k);
        ops::top_k(&x, k, &mut found);
        prop_assert_eq!(&found, &sorted);
    }
}

#[test]
fn scans_pass_over_what_is_not_a_number() {
    let mut x = vec![f32::NAN; 200];
    assert_eq!(ops::argmax(&x), None);
    x[150] = f32::NEG_INFINITY;
    assert_eq!(ops::argmax(&x), Some(150));
    x[3] = -7.0;
    assert_eq!(ops::argmax(&x), Some(3));
    let mut found = Vec::new();
    ops::top_k(&x, 5, &mut found);
    assert_eq!(found, [(3, -7.0)]);
}

#[test]
fn a_peak_shows_that_its_block_holds_no_number() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for place in [0, 63, 64, 200, 250] {
            let mut x = vec![1.0; 251];
            x[place] = bad;
            let mut peaks = [0.0; 3];
            ops::peaks(&x, 100, &mut peaks);
            let sound = |block: usize| {
                if block == place / 100 { peaks[block].is_nan() } else { peaks[block] == 1.0 }
            };
            assert!((0..3).all(sound), "{bad} at {place}: {peaks:?}");
        }
    }
}
