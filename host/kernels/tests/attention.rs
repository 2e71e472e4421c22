//! Attention against a naive softmax in doubles: windows, caps, sinks, groups, splits, tiles.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use common::{Rng, relative_error};
use gristmill_kernels::{AttentionSpec, KvLayer, Pool, Quant, attention, isa};

/// One cache and its contents.
struct Session {
    layer: KvLayer,
    k: Vec<f32>,
    v: Vec<f32>,
}

fn session(kv_heads: usize, dim: usize, len: usize, quant: Quant, rng: &mut Rng) -> Session {
    let width = kv_heads * dim;
    // Values that half floats hold exactly, so that the reference sees the same.
    let mut exact = |n: usize| -> Vec<f32> {
        rng.normals(n).iter().map(|x| (x * 64.0).round() / 64.0).collect()
    };
    let (k, v) = (exact(len * width), exact(len * width));
    let mut layer = KvLayer::new(kv_heads, dim, len + 5, quant, quant).unwrap();
    // In two pieces, as a prompt and its continuation.
    let cut = len / 3 * width;
    layer.append(0, &k[..cut], &v[..cut]).unwrap();
    layer.append(len / 3, &k[cut..], &v[cut..]).unwrap();
    assert_eq!(layer.len(), len);
    Session { layer, k, v }
}

fn spec(heads: usize, kv_heads: usize, head_dim: usize) -> AttentionSpec {
    AttentionSpec {
        heads,
        kv_heads,
        head_dim,
        scale: 1.0 / (head_dim as f32).sqrt(),
        causal: true,
        window: None,
        softcap: None,
        sinks: None,
    }
}

fn naive(
    spec: &AttentionSpec,
    q: &[f32],
    rows: &[(usize, usize)],
    sessions: &[Session],
) -> Vec<f64> {
    let (dim, width) = (spec.head_dim, spec.kv_heads * spec.head_dim);
    let mut out = Vec::new();
    for (i, &(cache, position)) in rows.iter().enumerate() {
        let s = &sessions[cache];
        for h in 0..spec.heads {
            let q = &q[(i * spec.heads + h) * dim..][..dim];
            let at = h / (spec.heads / spec.kv_heads) * dim;
            let mut scores = Vec::new();
            for t in 0..s.layer.len() {
                let distance = position as i64 - t as i64;
                let seen = (!spec.causal || distance >= 0)
                    && spec.window.is_none_or(|w| distance.unsigned_abs() < w as u64);
                if !seen {
                    continue;
                }
                let k = &s.k[t * width + at..][..dim];
                let dot: f64 = q.iter().zip(k).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum();
                let mut score = dot * f64::from(spec.scale);
                if let Some(cap) = spec.softcap {
                    score = f64::from(cap) * (score / f64::from(cap)).tanh();
                }
                scores.push((t, score));
            }
            let sink = spec.sinks.as_ref().map(|s| f64::from(s[h]));
            let most = scores.iter().map(|s| s.1).chain(sink).fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = scores.iter().map(|s| s.1).chain(sink).map(|s| (s - most).exp()).sum();
            for d in 0..dim {
                let sum: f64 = scores
                    .iter()
                    .map(|(t, s)| {
                        (s - most).exp() * f64::from(sessions[cache].v[t * width + at + d])
                    })
                    .sum();
                out.push(if total > 0.0 { sum / total } else { 0.0 });
            }
        }
    }
    out
}

fn check(name: &str, spec: &AttentionSpec, rows: &[(usize, usize)], sessions: &[Session]) {
    let mut rng = Rng::new(99);
    let q = rng.normals(rows.len() * spec.heads * spec.head_dim);
    let want = naive(spec, &q, rows, sessions);
    let caches: Vec<&KvLayer> = sessions.iter().map(|s| &s.layer).collect();
    for isa in isa::offered().up_to() {
        let mut first: Option<Vec<f32>> = None;
        for threads in [1, 2, 3] {
            let pool = Pool::with_isa(threads, false, isa);
            let mut out = vec![f32::NAN; q.len()];
            attention(&pool, spec, &q, rows, &caches, &mut out).unwrap();
            let error = relative_error(&out, &want);
            assert!(error < 2e-6, "{name} on {isa}: {error:e}");
            // Not a bit depends on the number of threads.
            assert_eq!(first.get_or_insert(out.clone()), &out, "{name} on {isa}, {threads}");
        }
    }
}

#[test]
fn every_rule_and_shape_agrees_with_a_naive_softmax() {
    let mut rng = Rng::new(1);
    for quant in [Quant::F16, Quant::F32] {
        for (heads, kv_heads, dim) in [(9, 3, 64), (4, 1, 256), (2, 2, 40), (8, 1, 16), (14, 2, 80)]
        {
            let len = 150;
            let sessions = [session(kv_heads, dim, len, quant, &mut rng)];
            let base = spec(heads, kv_heads, dim);
            let rules = [
                ("plain", base.clone()),
                ("window", AttentionSpec { window: Some(37), ..base.clone() }),
                ("window of one", AttentionSpec { window: Some(1), ..base.clone() }),
                ("softcap", AttentionSpec { softcap: Some(2.0), ..base.clone() }),
                (
                    "sinks",
                    AttentionSpec {
                        sinks: Some((0..heads).map(|h| h as f32 - 2.0).collect()),
                        ..base.clone()
                    },
                ),
                ("both ways", AttentionSpec { causal: false, ..base.clone() }),
                (
                    "both ways in a window",
                    AttentionSpec { causal: false, window: Some(20), ..base.clone() },
                ),
            ];
            for (name, spec) in rules {
                for (from, n) in [(0, 1), (0, 17), (149, 1), (63, 2), (60, 90)] {
                    let rows: Vec<_> = (from..from + n).map(|p| (0, p)).collect();
                    check(
                        &format!("{name} {heads}/{kv_heads} d{dim} {from}+{n}"),
                        &spec,
                        &rows,
                        &sessions,
                    );
                }
            }
        }
    }
}

#[test]
fn long_contexts_are_split_and_merged() {
    let mut rng = Rng::new(2);
    let sessions = [session(2, 32, 1700, Quant::F16, &mut rng)];
    let mut spec = spec(6, 2, 32);
    check("long", &spec, &[(0, 1699)], &sessions);
    check("at a cut", &spec, &[(0, 511)], &sessions);
    check("after a cut", &spec, &[(0, 512)], &sessions);
    spec.window = Some(700);
    check("long window", &spec, &[(0, 1650)], &sessions);
    spec.sinks = Some(vec![1.0; 6]);
    check("with sinks", &spec, &[(0, 1650)], &sessions);
}

#[test]
fn rows_of_several_sessions_mix() {
    let mut rng = Rng::new(3);
    let sessions: Vec<Session> =
        [5, 600, 33].map(|len| session(1, 64, len, Quant::F16, &mut rng)).into();
    let rows = [(1, 599), (0, 4), (2, 30), (2, 31), (2, 32), (0, 2), (1, 10)];
    check("mixed", &spec(3, 1, 64), &rows, &sessions);
}

#[test]
fn a_cache_forgets_copies_and_refuses() {
    let mut rng = Rng::new(4);
    let s = session(2, 24, 40, Quant::F16, &mut rng);
    let width = 48;
    let mut copy = KvLayer::new(2, 24, 100, Quant::F16, Quant::F16).unwrap();
    copy.copy_prefix(&s.layer, 21).unwrap();
    assert_eq!(copy.len(), 21);
    copy.append(21, &s.k[21 * width..], &s.v[21 * width..]).unwrap();
    let q = rng.normals(2 * 24);
    let pool = Pool::new(1, false);
    let spec = spec(2, 2, 24);
    let run = |layer: &KvLayer| {
        let mut out = vec![0.0; q.len()];
        attention(&pool, &spec, &q, &[(0, 39)], &[layer], &mut out).unwrap();
        out
    };
    assert_eq!(run(&copy), run(&s.layer));
    copy.truncate(30);
    copy.append(30, &s.k[30 * width..], &s.v[30 * width..]).unwrap();
    assert_eq!(run(&copy), run(&s.layer));
    assert!(copy.append(41, &s.k[..width], &s.v[..width]).is_err(), "a gap");
    assert!(copy.append(40, &vec![0.0; 61 * width], &vec![0.0; 61 * width]).is_err(), "too many");
    assert!(copy.append(40, &[0.0; 47], &[0.0; 47]).is_err(), "not whole positions");
    assert!(copy.copy_prefix(&s.layer, 41).is_err());
    assert!(KvLayer::new(0, 64, 10, Quant::F16, Quant::F16).is_err());
    assert!(KvLayer::new(1, 64, 10, Quant::Q2_K, Quant::F16).is_err());
    assert!(KvLayer::new(1, 64, usize::MAX, Quant::F16, Quant::F16).is_err());
    let mut out = vec![0.0; q.len()];
    assert!(attention(&pool, &spec, &q, &[(1, 0)], &[&copy], &mut out).is_err(), "no such cache");
}
