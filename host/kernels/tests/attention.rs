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
use gristmill_kernels::{
    AttentionSpec, Isa, KernelError, KvLayer, Pool, Quant, Ring, attention, decode_row, encode_row,
    isa,
};

/// One cache and its contents.
struct Session {
    layer: KvLayer,
    k: Vec<f32>,
    v: Vec<f32>,
}

/// What a cache of this type gives back of some heads' values.
fn stored(quant: Quant, dim: usize, x: &[f32]) -> Vec<f32> {
    let mut out = Vec::new();
    for head in x.chunks(dim) {
        let mut padded = head.to_vec();
        padded.resize(dim.next_multiple_of(32), 0.0);
        let mut bytes = vec![0; quant.row_bytes(padded.len()).unwrap()];
        encode_row(quant, &padded, &mut bytes).unwrap();
        decode_row(quant, &bytes, &mut padded).unwrap();
        out.extend(&padded[..dim]);
    }
    out
}

fn session_of(
    kv_heads: usize,
    dim: usize,
    len: usize,
    (k_type, v_type): (Quant, Quant),
    ring: Option<Ring>,
    rng: &mut Rng,
) -> Session {
    let width = kv_heads * dim;
    let (k, v) = (rng.normals(len * width), rng.normals(len * width));
    let mut layer = KvLayer::windowed(kv_heads, dim, len + 5, ring, k_type, v_type).unwrap();
    // In pieces, as a prompt and its continuation.
    let piece = ring.map_or(len / 3, |ring| ring.rows).max(1);
    for from in (0..len).step_by(piece) {
        let range = from * width..(from + piece).min(len) * width;
        layer.append(from, &k[range.clone()], &v[range]).unwrap();
    }
    assert_eq!(layer.len(), len);
    Session { layer, k: stored(k_type, dim, &k), v: stored(v_type, dim, &v) }
}

fn session(kv_heads: usize, dim: usize, len: usize, quant: Quant, rng: &mut Rng) -> Session {
    session_of(kv_heads, dim, len, (quant, quant), None, rng)
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
            attention(&pool, spec, &q, rows, &[], &caches, &mut out).unwrap();
            let error = relative_error(&out, &want);
            assert!(error < 2e-6, "{name} on {isa}: {error:e}");
            // Not a bit depends on the number of threads.
            assert_eq!(first.get_or_insert(out.clone()), &out, "{name} on {isa}, {threads}");
        }
    }
    in_bulk(name, spec, (&q, rows), &caches, &want);
}

/// Rows that come in bulk: nearly as exact, and not a bit depends on threads or on neighbours.
fn in_bulk(
    name: &str,
    spec: &AttentionSpec,
    (q, rows): (&[f32], &[(usize, usize)]),
    caches: &[&KvLayer],
    want: &[f64],
) {
    if isa::offered() < Isa::Amx {
        return;
    }
    let width = spec.heads * spec.head_dim;
    let attend = |threads: usize, from: usize, rows: &[(usize, usize)]| {
        let pool = Pool::with_isa(threads, false, Isa::Amx);
        let q = &q[from * width..(from + rows.len()) * width];
        let mut out = vec![f32::NAN; q.len()];
        let marks = vec![true; rows.len()];
        attention(&pool, spec, q, rows, &marks, caches, &mut out).unwrap();
        out
    };
    let out = attend(1, 0, rows);
    let error = relative_error(&out, want);
    assert!(error < 2e-5, "{name} in bulk: {error:e}");
    assert_eq!(attend(3, 0, rows), out, "{name} in bulk, threads");
    let middle = rows.len() / 2;
    let alone = attend(1, middle, &rows[middle..=middle]);
    assert_eq!(alone, out[middle * width..][..width], "{name} in bulk, alone");
}

#[test]
fn every_rule_and_shape_agrees_with_a_naive_softmax() {
    let mut rng = Rng::new(1);
    // Keys and values of every type, the same and different.
    for types in [
        (Quant::F16, Quant::F16),
        (Quant::F32, Quant::F32),
        (Quant::BF16, Quant::F16),
        (Quant::Q8_0, Quant::BF16),
        (Quant::Q4_0, Quant::Q8_0),
        (Quant::F16, Quant::Q4_0),
    ] {
        for (heads, kv_heads, dim) in [(9, 3, 64), (4, 1, 256), (2, 2, 40), (8, 1, 16), (14, 2, 80)]
        {
            let len = 150;
            let sessions = [session_of(kv_heads, dim, len, types, None, &mut rng)];
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
                        &format!("{name} {types:?} {heads}/{kv_heads} d{dim} {from}+{n}"),
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
    for types in [(Quant::F16, Quant::F16), (Quant::Q8_0, Quant::Q4_0)] {
        let sessions = [session_of(2, 32, 1700, types, None, &mut rng)];
        check("quantised", &spec(6, 2, 32), &[(0, 1699), (0, 600)], &sessions);
    }
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

/// Prompts of several tasks and blocks of keys, and the end of one whose layer keeps a ring.
#[test]
fn long_prompts_come_in_bulk() {
    let mut rng = Rng::new(7);
    let ring = Ring { window: 300, rows: 200 };
    for (ring, from) in [(None, 0), (None, 550), (Some(ring), 620)] {
        let types = (Quant::F16, Quant::F16);
        let sessions = [session_of(2, 48, 700, types, ring, &mut rng)];
        let base = AttentionSpec { window: ring.map(|ring| ring.window), ..spec(6, 2, 48) };
        let rows: Vec<_> = (from..700).map(|p| (0, p)).collect();
        check(&format!("{ring:?} from {from}"), &base, &rows, &sessions);
    }
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
        attention(&pool, &spec, &q, &[(0, 39)], &[], &[layer], &mut out).unwrap();
        out
    };
    assert_eq!(run(&copy), run(&s.layer));
    copy.truncate(30).unwrap();
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
    assert!(
        attention(&pool, &spec, &q, &[(1, 0)], &[], &[&copy], &mut out).is_err(),
        "no such cache"
    );
}

/// A layer with a window keeps a ring, and nobody sees a difference until it is asked for more
/// than the ring holds: that it refuses.
#[test]
fn a_window_keeps_a_ring() {
    let mut rng = Rng::new(5);
    for (window, rows, types) in [
        (37, 20, (Quant::F16, Quant::F16)),
        (64, 64, (Quant::Q8_0, Quant::Q4_0)),
        (5, 1, (Quant::F32, Quant::BF16)),
        (600, 100, (Quant::F16, Quant::F16)),
    ] {
        let ring = Ring { window, rows };
        let (len, width) = (1300, 48);
        let session = session_of(2, 24, len, types, Some(ring), &mut rng);
        let plain = KvLayer::new(2, 24, len + 5, types.0, types.1).unwrap();
        let room = KvLayer::room(len + 5, Some(ring));
        assert!(room < window + rows + 16 && session.layer.memory() < plain.memory());
        let bytes = KvLayer::position_bytes(2, 24, types.0, types.1).unwrap();
        assert_eq!(session.layer.memory(), room * bytes);
        assert_eq!(session.layer.first(), len - room);
        let mut spec = spec(4, 2, 24);
        spec.window = Some(window);
        let rows_at = |from: usize, n: usize| (from..from + n).map(|p| (0, p)).collect::<Vec<_>>();
        let sessions = [session];
        check("the last", &spec, &rows_at(len - 1, 1), &sessions);
        check("a batch", &spec, &rows_at(len - rows, rows), &sessions);
        let [Session { mut layer, k, v }] = sessions;
        // Too far back: refused, and nothing has changed.
        let lost = len - room;
        let error = layer.truncate(lost + window - 2).unwrap_err();
        assert!(matches!(error, KernelError::Lost { first, .. } if first == lost), "{error}");
        assert!(!layer.resumes_at(lost + window - 2) && layer.resumes_at(lost + window - 1));
        assert_eq!(layer.len(), len);
        let q = rng.normals(96);
        let pool = Pool::new(1, false);
        let mut out = vec![0.0; 96];
        let error =
            attention(&pool, &spec, &q, &[(0, lost)], &[], &[&layer], &mut out).unwrap_err();
        assert!(matches!(error, KernelError::Lost { .. }), "{error}");
        // More at once than the ring is made for.
        let many = vec![0.0; (rows + 1) * width];
        assert!(layer.append(len - rows, &many, &many).is_err());
        // Back as far as it goes, into a copy with more room, and on again.
        let back = lost + window - 1;
        let mut copy = KvLayer::windowed(2, 24, len + 90, Some(ring), types.0, types.1).unwrap();
        copy.copy_prefix(&layer, back).unwrap();
        layer.truncate(back).unwrap();
        for layer in [&mut layer, &mut copy] {
            for t in (back..len).step_by(rows) {
                let range = t * width..(t + rows).min(len) * width;
                layer.append(t, &k[range.clone()], &v[range]).unwrap();
            }
        }
        // Encoding what was stored gives the same again, up to the rounding of the scale.
        let sessions = [layer, copy].map(|layer| Session {
            layer,
            k: stored(types.0, 24, &k),
            v: stored(types.1, 24, &v),
        });
        let run = |layer: &KvLayer| {
            let mut out = vec![0.0; 96];
            attention(&pool, &spec, &q, &[(0, len - 1)], &[], &[layer], &mut out).unwrap();
            out
        };
        assert_eq!(run(&sessions[0].layer), run(&sessions[1].layer));
        if types == (Quant::F16, Quant::F16) {
            check("after going back", &spec, &rows_at(len - 1, 1), &sessions);
        }
        // From nothing it always begins again.
        let [Session { mut layer, .. }, _] = sessions;
        layer.truncate(0).unwrap();
        layer.append(0, &k[..width], &v[..width]).unwrap();
        assert_eq!((layer.len(), layer.first()), (1, 0));
    }
    let nothing = Some(Ring { window: 0, rows: 4 });
    assert!(KvLayer::windowed(1, 16, 100, nothing, Quant::F16, Quant::F16).is_err());
}

/// What quantised keys and values cost in exactness against half floats: the bounds are twice what
/// was measured with these numbers (in the order below).
#[test]
fn quantised_caches_cost_what_they_cost() {
    let mut rng = Rng::new(6);
    let (len, dim) = (900, 64);
    let (k, v) = (rng.normals(len * 2 * dim), rng.normals(len * 2 * dim));
    let spec = spec(6, 2, dim);
    let q = rng.normals(6 * dim);
    let run = |k_type, v_type| {
        let mut layer = KvLayer::new(2, dim, len, k_type, v_type).unwrap();
        layer.append(0, &k, &v).unwrap();
        let mut out = vec![0.0; 6 * dim];
        let rows = [(0, len - 1)];
        attention(&Pool::new(1, false), &spec, &q, &rows, &[], &[&layer], &mut out).unwrap();
        out
    };
    let want: Vec<f64> = run(Quant::F16, Quant::F16).into_iter().map(f64::from).collect();
    let cost = |k_type, v_type| relative_error(&run(k_type, v_type), &want);
    for (k_type, v_type, measured) in [
        (Quant::Q8_0, Quant::Q8_0, 0.0074),
        (Quant::Q4_0, Quant::Q4_0, 0.1156),
        (Quant::Q8_0, Quant::F16, 0.0054),
        (Quant::F16, Quant::Q4_0, 0.0851),
    ] {
        let error = cost(k_type, v_type);
        assert!(error > 0.0 && error < 2.0 * measured, "{k_type} {v_type}: {error}");
    }
}
