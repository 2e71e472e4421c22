//! Probe: embeddings have one length, the order of their texts and the same numbers however they are
//! asked for; ranks name documents once, best first.
#![cfg_attr(target_arch = "wasm32", no_std)]

use gristmill_plugin::{prelude::*, probe::serving, sqrt};
use probe_kit::{Bench, Stop, Verdict, failed, not_applicable};

probe_kit::suite! {
    "vectors.order" of "embeddings" if Claimed => order,
    "vectors.dimensions" of "embeddings" if Claimed => dimensions,
    "vectors.overflow" of "embeddings" if Claimed => overflow,
    "ranks.order" of "reranking" if Claimed => ranks,
    "ranks.top" of "reranking" if Claimed => top,
}

fn embed(bench: &Bench, inputs: &[&str], dimensions: Option<u32>) -> Result<Embeddings> {
    serving::embed(&EmbedRequest {
        model: bench.model.clone(),
        inputs: inputs.iter().map(|&text| text.to_owned()).collect(),
        dimensions,
        truncate: false,
        extras: Vec::new(),
    })
}

fn rows(embeddings: &Embeddings, inputs: usize) -> Result<Vec<&[f32]>, Stop> {
    let Embeddings { dim, rows, data, .. } = embeddings;
    let shape = format!("{rows} rows of {dim}, {} numbers", data.len());
    if *dim == 0 || *rows as usize != inputs || data.len() != inputs * *dim as usize {
        return failed(format!("expected {inputs} vectors"), shape);
    }
    Ok(data.chunks(*dim as usize).collect())
}

/// The cosine of the angle between two vectors.
fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |x: &[f32], y: &[f32]| -> f64 {
        x.iter().zip(y).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum()
    };
    dot(a, b) / sqrt(dot(a, a) * dot(b, b)).max(1e-30)
}

/// Texts and vectors are in one order; a text has one vector, alone or among others.
fn order(bench: &Bench) -> Verdict {
    let (river, grün) = ("a river in the mountains", "grün ist die Straße 你好");
    // No turn, swap or sorting by length leaves these where they are.
    let all = embed(bench, &[river, grün, river, "iron"], None)?;
    let [first, second, third, last] = *rows(&all, 4)? else { return not_applicable("no rows") };
    let alone = embed(bench, &[grün], None)?;
    let [single] = *rows(&alone, 1)? else { return not_applicable("no rows") };
    let iron = embed(bench, &["iron"], None)?;
    let [lonely] = *rows(&iron, 1)? else { return not_applicable("no rows") };
    let (same, other) = (cosine(first, third), cosine(first, second));
    let seen = format!("same {same:.5}, other {other:.5}, alone {:.5}", cosine(second, single));
    if same < 0.999 {
        return failed("one text has two vectors", seen);
    }
    if other > 0.9999 {
        return failed("two texts have one vector", seen);
    }
    if cosine(second, single) < 0.999 || cosine(last, lonely) < 0.999 {
        return failed("a text has another vector among others than alone", seen);
    }
    if all.prompt_tokens != 0 && all.prompt_tokens <= alone.prompt_tokens {
        return failed("four texts have no more tokens than one", seen);
    }
    Ok(seen)
}

/// Fewer dimensions are the first ones, as many as asked for, or refused by name.
fn dimensions(bench: &Bench) -> Verdict {
    let all = embed(bench, &["a river"], None)?;
    let whole = all.dim;
    let [full] = *rows(&all, 1)? else { return not_applicable("no rows") };
    if whole < 2 {
        return not_applicable("vectors of one dimension have nothing to cut");
    }
    let half = whole / 2;
    match embed(bench, &["a river"], Some(half)) {
        Ok(cut) if cut.dim == half => {
            let [row] = *rows(&cut, 1)? else { return not_applicable("no rows") };
            let length: f64 = row.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
            let seen = format!("{whole}, cut to {half}, length {:.4}", sqrt(length));
            if (length - 1.0).abs() > 0.02 {
                return failed("a cut vector is of length 1 again", seen);
            }
            let leading = full.get(..half as usize).unwrap_or_default();
            if cosine(row, leading) < 0.999 {
                return failed("expected the leading dimensions", seen);
            }
            Ok(seen)
        }
        Ok(cut) => failed("other dimensions than asked for", format!("{} not {half}", cut.dim)),
        Err(error) if matches!(&*error.code, "unsupported" | "invalid-request") => {
            Ok(format!("{whole}; fewer are refused: {}", error.message))
        }
        Err(error) => Err(error.into()),
    }
}

/// A text that does not fit is refused unless it may be cut.
fn overflow(bench: &Bench) -> Verdict {
    let Some(limit) = bench.context().filter(|limit| *limit <= 16_384) else {
        return not_applicable("no limit is told, or one too long to try");
    };
    let long = "one two ".repeat(limit as usize / 2 + 1);
    match embed(bench, &[&long], None) {
        Err(error) if error.code == "context-overflow" => Ok(error.message),
        Err(error) => {
            failed("expected context-overflow", format!("{}: {}", error.code, error.message))
        }
        Ok(cut) => failed("a text too long was embedded", format!("{} tokens", cut.prompt_tokens)),
    }
}

const DOCUMENTS: [&str; 4] =
    ["bread and butter", "a river in the mountains", "the river is deep", "iron"];

fn rank(bench: &Bench, documents: [&str; 4], top_n: Option<u32>) -> Result<Vec<Ranked>, Stop> {
    let ranked = serving::rerank(&RerankRequest {
        model: bench.model.clone(),
        query: "a deep river".to_owned(),
        documents: documents.map(str::to_owned).into(),
        top_n,
        extras: Vec::new(),
    })?;
    let seen = format!("{:?}", ranked.iter().map(|one| (one.index, one.score)).collect::<Vec<_>>());
    for (place, one) in ranked.iter().enumerate() {
        if one.index as usize >= documents.len() || !(-1e-3..=1.001).contains(&one.score) {
            return failed("expected a document of the request and a score from 0 to 1", seen);
        }
        let rest = || ranked.iter().skip(place + 1);
        if rest().any(|other| other.index == one.index || other.score > one.score) {
            return failed("expected each document once, best first", seen);
        }
    }
    Ok(ranked)
}

fn ranks(bench: &Bench) -> Verdict {
    let ranked = rank(bench, DOCUMENTS, None)?;
    if ranked.len() != 4 {
        return failed("expected every document", format!("{} of 4", ranked.len()));
    }
    let mut turned = DOCUMENTS;
    turned.reverse();
    let again = rank(bench, turned, None)?;
    let seen = |ranked: &[Ranked]| {
        format!("{:?}", ranked.iter().map(|one| (one.index, one.score)).collect::<Vec<_>>())
    };
    // A document's score is its own, wherever it stands.
    let own = |one: &Ranked| {
        let place = DOCUMENTS.len() as u32 - 1 - one.index;
        again.iter().any(|two| two.index == place && (two.score - one.score).abs() < 0.02)
    };
    if !ranked.iter().all(own) {
        let seen = format!("{}, turned {}", seen(&ranked), seen(&again));
        return failed("another score in another place", seen);
    }
    if ranked.iter().zip(ranked.iter().skip(1)).all(|(one, two)| one.score == two.score) {
        return failed("four unlike documents have one score", seen(&ranked));
    }
    Ok(seen(&ranked))
}

/// Only the best, and the same ones.
fn top(bench: &Bench) -> Verdict {
    let (all, best) = (rank(bench, DOCUMENTS, None)?, rank(bench, DOCUMENTS, Some(2))?);
    let index = |ranked: &[Ranked]| ranked.iter().take(2).map(|one| one.index).collect::<Vec<_>>();
    if best.len() != 2 || index(&all) != index(&best) {
        return failed("expected the best two", format!("{:?} of {:?}", index(&best), index(&all)));
    }
    Ok(format!("{:?}", index(&best)))
}
