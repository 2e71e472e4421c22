//! Embeddings and ranks by letters and words.

use crate::{
    CONTEXT, error,
    gristmill::contract::types::{EmbedRequest, Embeddings, Error, Ranked, RerankRequest},
};

/// Dimensions of a vector.
const WIDTH: u32 = 16;

/// The leading dimensions, of length 1 again.
fn cut(vector: &[f32], dim: u32) -> Vec<f32> {
    let kept = &vector[..dim as usize];
    let length = kept.iter().map(|x| x * x).sum::<f32>().sqrt().max(1e-9);
    kept.iter().map(|x| x / length).collect()
}

fn vector(text: &str, dim: u32) -> Vec<f32> {
    let mut sum = vec![0.0_f32; dim as usize];
    for (place, letter) in text.chars().enumerate() {
        sum[(u32::from(letter) as usize * 31 + place) % dim as usize] += 1.0;
    }
    let length = sum.iter().map(|x| x * x).sum::<f32>().sqrt().max(1e-9);
    sum.iter().map(|x| x / length).collect()
}

pub(crate) fn embed(request: &EmbedRequest) -> Result<Embeddings, Error> {
    let lie = &*request.model;
    if lie.starts_with("modest") && lie != "modest-takes-all" {
        return Err(error("unsupported", "no embeddings"));
    }
    let mut dim = request.dimensions.unwrap_or(WIDTH).clamp(1, WIDTH);
    if lie == "too-long" {
        dim = WIDTH;
    }
    let mut data = Vec::new();
    let mut prompt_tokens = 0;
    for input in &request.inputs {
        let length = input.chars().count() as u32;
        if length > CONTEXT && !request.truncate && lie != "embeds-all" {
            return Err(error("context-overflow", &format!("{length} tokens, {CONTEXT} fit")));
        }
        prompt_tokens += length.min(CONTEXT);
        data.push(match lie {
            "other-dimensions" => vector(input, dim),
            _ => cut(&vector(input, WIDTH), dim),
        });
    }
    if lie == "shuffles" {
        data.rotate_left(1);
    }
    if lie == "reverses" {
        data.reverse();
    }
    Ok(Embeddings { dim, rows: data.len() as u32, data: data.concat(), prompt_tokens })
}

pub(crate) fn rerank(request: &RerankRequest) -> Result<Vec<Ranked>, Error> {
    let lie = &*request.model;
    if lie.starts_with("modest") && lie != "modest-takes-all" {
        return Err(error("unsupported", "no ranks"));
    }
    let words: Vec<&str> = request.query.split(' ').collect();
    let score = |document: &String| {
        let shared = words.iter().filter(|word| document.split(' ').any(|own| own == **word));
        shared.count() as f32 / words.len() as f32
    };
    let documents = request.documents.iter().zip(0..);
    let mut ranked: Vec<Ranked> =
        documents.map(|(text, index)| Ranked { index, score: score(text) }).collect();
    for one in &mut ranked {
        match lie {
            "ranks-by-place" => one.score = 1.0 / (1.0 + one.index as f32),
            "one-score" => one.score = 0.5,
            _ => {}
        }
    }
    ranked.sort_by(|a, b| b.score.total_cmp(&a.score));
    if request.model == "worst-first" {
        ranked.reverse();
    }
    if request.model != "all-ranks" {
        ranked.truncate(request.top_n.map_or(usize::MAX, |most| most as usize));
    }
    Ok(ranked)
}
