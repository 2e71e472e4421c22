//! The sampler against a naive one that sorts everything, and its refusals.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use std::collections::BTreeMap;

use gristmill_core::{Code, Result, request::Sampling};
use gristmill_engine::{
    logits::{BLOCK, Logits},
    sampler::{Sampler, Settings, log_probabilities},
};
use gristmill_kernels::ops;
use proptest::prelude::*;

fn settings(sampling: &Sampling, vocabulary: usize) -> Settings {
    Settings::new(sampling, &Sampling::default(), vocabulary).unwrap()
}

/// Nothing but the draw.
fn open() -> Sampling {
    Sampling {
        temperature: Some(1.0),
        top_k: Some(0),
        top_p: Some(1.0),
        min_p: Some(0.0),
        typical_p: Some(1.0),
        seed: Some(1),
        ..Sampling::default()
    }
}

/// Logits with many ties and a long tail.
fn logits(seed: u64, n: usize) -> Vec<f32> {
    let mut state = seed;
    (0..n)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let unit = (state >> 40) as f32 / (1 << 24) as f32;
            ((unit * unit * unit * 12.0) * 8.0).round() / 8.0
        })
        .collect()
}

/// What each filter keeps, computed by sorting everything, in the documented order.
fn naive(logits: &[f32], s: &Sampling) -> BTreeMap<u32, f64> {
    let mut all: Vec<(u32, f64)> =
        logits.iter().enumerate().map(|(i, l)| (i as u32, f64::from(*l))).collect();
    let softmax = |all: &[(u32, f64)], t: f64| -> Vec<f64> {
        let weights: Vec<f64> = all.iter().map(|(_, l)| (l / t).exp()).collect();
        let total: f64 = weights.iter().sum();
        weights.iter().map(|w| w / total).collect()
    };
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let k = s.top_k.unwrap() as usize;
    if k > 0 {
        all.truncate(k);
    }
    let typical = f64::from(s.typical_p.unwrap());
    if typical < 1.0 {
        let p = softmax(&all, 1.0);
        let entropy: f64 = p.iter().map(|p| -p * p.ln()).sum();
        let mut order: Vec<usize> = (0..all.len()).collect();
        order.sort_by(|&a, &b| {
            let key = |i: usize| (-p[i].ln() - entropy).abs();
            key(a).total_cmp(&key(b)).then(a.cmp(&b))
        });
        let mut sum = 0.0;
        let mut kept = Vec::new();
        for i in order {
            kept.push(all[i]);
            sum += p[i];
            if sum >= typical {
                break;
            }
        }
        kept.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        all = kept;
    }
    let top_p = f64::from(s.top_p.unwrap());
    if top_p < 1.0 {
        let p = softmax(&all, 1.0);
        let mut sum = 0.0;
        let keep = p
            .iter()
            .position(|p| {
                sum += p;
                sum >= top_p
            })
            .map_or(all.len(), |n| n + 1);
        all.truncate(keep);
    }
    let min_p = f64::from(s.min_p.unwrap());
    if min_p > 0.0 {
        let p = softmax(&all, 1.0);
        let least = p[0] * min_p;
        let keep = p.iter().filter(|p| **p >= least).count();
        all.truncate(keep);
    }
    let p = softmax(&all, f64::from(s.temperature.unwrap()));
    all.iter().zip(p).map(|((token, _), p)| (*token, p)).collect()
}

fn chosen(sampler: &mut Sampler, logits: &[f32]) -> Result<u32> {
    sampler.choose(&mut Logits::new(&mut logits.to_vec(), &mut Vec::new()))
}

proptest! {
    /// What is found by peaks is what is found by reading everything, before and after changes.
    #[test]
    fn peaks_hide_nothing(
        // Few distinct values, so that equals are common.
        mut values in prop::collection::vec((-40..40_i8).prop_map(f32::from), 1..5 * BLOCK),
        changes in prop::collection::vec((0..6 * BLOCK as u32, -60..60_i8), 0..8),
        k in 0..12_usize,
        least in -40..40_i8,
    ) {
        let mut plain = values.clone();
        let mut room = Vec::new();
        let mut logits = Logits::new(&mut values, &mut room);
        for (token, to) in changes {
            logits.change(token, |_| f32::from(to));
            if let Some(value) = plain.get_mut(token as usize) {
                *value = f32::from(to);
            }
        }
        prop_assert_eq!(logits.values(), plain.as_slice());
        let (token, largest) = logits.largest().unwrap();
        prop_assert_eq!(ops::argmax(&plain), Some(token as usize));
        prop_assert_eq!(plain[token as usize], largest);
        let (mut found, mut expected) = (Vec::new(), Vec::new());
        logits.top_k(k, &mut found);
        ops::top_k(&plain, k, &mut expected);
        prop_assert_eq!(&found, &expected);
        let least = f32::from(least);
        let expected = (0..).zip(plain.iter().copied()).filter(|(_, value)| *value >= least);
        prop_assert!(logits.at_least(least).eq(expected));
    }
}

#[test]
fn filters_keep_what_sorting_everything_would_keep() {
    let cases = [
        Sampling { top_k: Some(5), ..open() },
        Sampling { top_k: Some(40), top_p: Some(0.7), ..open() },
        Sampling { top_p: Some(0.5), ..open() },
        Sampling { top_p: Some(0.93), temperature: Some(0.7), ..open() },
        Sampling { min_p: Some(0.2), ..open() },
        Sampling { typical_p: Some(0.4), ..open() },
        Sampling { typical_p: Some(0.6), top_k: Some(50), ..open() },
        Sampling { typical_p: Some(0.8), top_p: Some(0.6), min_p: Some(0.05), ..open() },
        Sampling { temperature: Some(2.0), ..open() },
        Sampling { top_p: Some(0.0), ..open() },
    ];
    const DRAWS: usize = 6000;
    for (number, sampling) in cases.iter().enumerate() {
        let logits = logits(number as u64 + 3, 700);
        let expected = naive(&logits, sampling);
        let mut sampler = Sampler::new(settings(sampling, logits.len()));
        let mut seen: BTreeMap<u32, usize> = BTreeMap::new();
        for _ in 0..DRAWS {
            *seen.entry(chosen(&mut sampler, &logits).unwrap()).or_default() += 1;
        }
        for (token, count) in &seen {
            assert!(expected.contains_key(token), "case {number}: drew {token}, seen {count}");
        }
        for (token, p) in &expected {
            let found = seen.get(token).copied().unwrap_or(0) as f64 / DRAWS as f64;
            let bound = 5.0 * (p * (1.0 - p) / DRAWS as f64).sqrt() + 1e-3;
            assert!((found - p).abs() < bound, "case {number}: token {token}: {found} for {p}");
        }
    }
}

#[test]
fn greedy_takes_the_lowest_of_equals_and_the_same_seed_gives_the_same_draws() {
    let mut values = vec![0.5; 40];
    values[17] = 3.0;
    values[33] = 3.0;
    let greedy = Sampling { temperature: Some(0.0), ..Sampling::default() };
    assert_eq!(chosen(&mut Sampler::new(settings(&greedy, 40)), &values).unwrap(), 17);
    let draws = |seed| {
        let sampling = Sampling { seed: Some(seed), ..Sampling::default() };
        let mut sampler = Sampler::new(settings(&sampling, 700));
        (0..50).map(|_| chosen(&mut sampler, &logits(9, 700)).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(draws(5), draws(5));
    assert_ne!(draws(5), draws(6));
}

#[test]
fn bias_and_penalties_change_the_choice() {
    let greedy = Sampling { temperature: Some(0.0), ..Sampling::default() };
    let choose = |sampling: &Sampling, history: &[u32]| {
        let mut sampler = Sampler::new(settings(sampling, 4));
        history.iter().for_each(|token| sampler.accept(*token));
        chosen(&mut sampler, &[4.0, 3.0, -1.0, -2.0]).unwrap()
    };
    assert_eq!(choose(&greedy, &[0, 0]), 0);
    let biased = Sampling { logit_bias: vec![(0, -100.0)], ..greedy.clone() };
    assert_eq!(choose(&biased, &[]), 1);
    let repeat = Sampling { repeat_penalty: Some(2.0), ..greedy.clone() };
    assert_eq!(choose(&repeat, &[0]), 1);
    // Negative logits are multiplied, not divided.
    let low = Sampling {
        repeat_penalty: Some(3.0),
        logit_bias: vec![(0, -9.0), (1, -9.0)],
        ..greedy.clone()
    };
    assert_eq!(choose(&low, &[2]), 3);
    let frequency = Sampling { frequency_penalty: Some(0.6), ..greedy.clone() };
    assert_eq!([choose(&frequency, &[0]), choose(&frequency, &[0, 0])], [0, 1]);
    let presence = Sampling { presence_penalty: Some(0.6), ..greedy.clone() };
    assert_eq!(choose(&presence, &[0, 0, 0]), 0);
    let short = Sampling { repeat_penalty: Some(2.0), repeat_last_n: Some(2), ..greedy.clone() };
    assert_eq!([choose(&short, &[0, 2, 3]), choose(&short, &[2, 0, 3])], [0, 1]);
    let off = Sampling { repeat_penalty: Some(2.0), repeat_last_n: Some(0), ..greedy };
    assert_eq!(choose(&off, &[0]), 0);
}

#[test]
fn log_probabilities_are_those_of_the_whole_softmax() {
    let values = logits(4, 300);
    let total: f64 = values.iter().map(|l| f64::from(*l).exp()).sum();
    let (own, likeliest) = log_probabilities(&values, 7, 5);
    assert!((f64::from(own) - (f64::from(values[7]) - total.ln())).abs() < 1e-5);
    let mut order: Vec<u32> = (0..300).collect();
    order.sort_by(|a, b| values[*b as usize].total_cmp(&values[*a as usize]).then(a.cmp(b)));
    assert_eq!(likeliest.iter().map(|(token, _)| *token).collect::<Vec<_>>(), order[..5]);
    assert!(likeliest.windows(2).all(|pair| pair[0].1 >= pair[1].1));
}

#[test]
fn nonsense_is_refused_by_name() {
    let cases: Vec<(&str, Sampling)> = vec![
        ("temperature", Sampling { temperature: Some(-0.1), ..Sampling::default() }),
        ("temperature", Sampling { temperature: Some(f32::NAN), ..Sampling::default() }),
        ("temperature", Sampling { temperature: Some(f32::INFINITY), ..Sampling::default() }),
        ("top_p", Sampling { top_p: Some(1.5), ..Sampling::default() }),
        ("top_p", Sampling { top_p: Some(-0.5), ..Sampling::default() }),
        ("min_p", Sampling { min_p: Some(2.0), ..Sampling::default() }),
        ("typical_p", Sampling { typical_p: Some(-1.0), ..Sampling::default() }),
        ("repeat_penalty", Sampling { repeat_penalty: Some(0.0), ..Sampling::default() }),
        ("repeat_last_n", Sampling { repeat_last_n: Some(-2), ..Sampling::default() }),
        ("presence_penalty", Sampling { presence_penalty: Some(f32::NAN), ..Sampling::default() }),
        (
            "frequency_penalty",
            Sampling { frequency_penalty: Some(f32::INFINITY), ..Sampling::default() },
        ),
        ("logit_bias", Sampling { logit_bias: vec![(100, 1.0)], ..Sampling::default() }),
        ("logit_bias", Sampling { logit_bias: vec![(3, f32::NAN)], ..Sampling::default() }),
    ];
    for (field, sampling) in cases {
        let error = Settings::new(&sampling, &Sampling::default(), 100).unwrap_err();
        assert_eq!(error.code, Code::InvalidRequest, "{error}");
        assert_eq!(error.detail("field"), Some(field), "{error}");
        assert!(error.message.contains(field), "{error}");
    }
    let unknown = Sampling { extras: vec![("mirostat".into(), "2".into())], ..Sampling::default() };
    let error = Settings::new(&unknown, &Sampling::default(), 100).unwrap_err();
    assert_eq!((error.code, error.message.contains("mirostat")), (Code::Unsupported, true));
}

#[test]
fn logits_that_are_no_numbers_are_an_error_not_a_token() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for place in [0, 37, 99] {
            let mut values = vec![1.0; 100];
            values[place] = bad;
            let error = chosen(&mut Sampler::new(settings(&open(), 100)), &values).unwrap_err();
            assert_eq!(error.code.as_str(), "non-finite");
            assert!(error.message.contains(&format!("token {place}")), "{error}");
        }
    }
}

#[test]
fn the_request_outranks_the_family_and_the_family_the_plain_values() {
    let family = Sampling { temperature: Some(0.6), top_k: Some(20), ..Sampling::default() };
    let request = Sampling { top_k: Some(3), ..Sampling::default() };
    let both = Settings::new(&request, &family, 10).unwrap();
    assert_eq!((both.temperature, both.top_k, both.top_p), (0.6, 3, 0.9));
    let plain = Settings::new(&Sampling::default(), &Sampling::default(), 10).unwrap();
    assert_eq!((plain.temperature, plain.top_k, plain.repeat_last_n), (0.8, 40, 64));
}
