//! Embeddings, ranks and tokens that are the same every time and that stand in a relation to the
//! text: equal words bring vectors together, shared words make a document relevant.

use gristmill_plugin::{prelude::*, sqrt};

use crate::CONTEXT;

/// Length of a vector unless the request says otherwise.
const WIDTH: u32 = 8;
/// The longest vector.
const MOST: u32 = 4096;

/// One vector of length 1 per text: the sum of a vector for each of its words.
pub(crate) fn embed(request: &EmbedRequest) -> Result<Embeddings> {
    let dim = request.dimensions.unwrap_or(WIDTH);
    if dim == 0 || dim > MOST {
        return Err(Error::invalid_request(format!(
            "dimensions should be 1 to {MOST}, found {dim}"
        ))
        .with("field", "dimensions"));
    }
    let mut embeddings = Embeddings { dim, rows: 0, data: Vec::new(), prompt_tokens: 0 };
    for input in &request.inputs {
        let words: Vec<&str> = input.split_whitespace().collect();
        let length = u32::try_from(words.len()).unwrap_or(u32::MAX);
        if length > CONTEXT && !request.truncate {
            return Err(Error::new(
                "context-overflow",
                format!("a text of {length} words, at most {CONTEXT} may be embedded"),
            )
            .with("additional", length)
            .with("limit", CONTEXT));
        }
        let taken = length.min(CONTEXT);
        embeddings.data.extend(vector(words.into_iter().take(taken as usize), dim));
        embeddings.prompt_tokens += taken;
        embeddings.rows += 1;
    }
    Ok(embeddings)
}

fn vector<'w>(words: impl Iterator<Item = &'w str>, dim: u32) -> Vec<f32> {
    let mut sum = vec![0.0_f64; dim as usize];
    for word in words {
        let mut state = hash(word);
        for place in &mut sum {
            // An xorshift step: a number in -1..1 from its top 32 bits.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *place += (state >> 32) as f64 / f64::from(1_u32 << 31) - 1.0;
        }
    }
    let length = sqrt(sum.iter().map(|number| number * number).sum());
    if length == 0.0 {
        // No words: the first axis, so that every vector has length 1.
        return (0..dim).map(|place| if place == 0 { 1.0 } else { 0.0 }).collect();
    }
    sum.into_iter().map(|number| (number / length) as f32).collect()
}

/// FNV-1a over lower-case letters, never 0.
fn hash(word: &str) -> u64 {
    let letters = word.chars().flat_map(char::to_lowercase);
    letters.fold(0xcbf2_9ce4_8422_2325, |hash: u64, letter| {
        (hash ^ u64::from(u32::from(letter))).wrapping_mul(0x0100_0000_01b3)
    }) | 1
}

/// The share of the query's words that a document has, best first, earlier documents first.
pub(crate) fn rerank(request: &RerankRequest) -> Vec<Ranked> {
    let query: Vec<u64> = request.query.split_whitespace().map(hash).collect();
    let mut ranked: Vec<Ranked> = (0..)
        .zip(&request.documents)
        .map(|(index, document)| {
            let words: Vec<u64> = document.split_whitespace().map(hash).collect();
            let found = query.iter().filter(|word| words.contains(word)).count();
            Ranked { index, score: found as f32 / query.len().max(1) as f32 }
        })
        .collect();
    ranked.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.index.cmp(&b.index)));
    ranked.truncate(request.top_n.map_or(usize::MAX, |most| most as usize));
    ranked
}

/// One byte per token.
///
/// # Errors
/// `invalid-request` for a token that is no byte.
pub(crate) fn detokenize(tokens: &[u32]) -> Result<Vec<u8>> {
    let byte = |token: &u32| {
        u8::try_from(*token).map_err(|_| {
            Error::invalid_request(format!("token {token} is outside the vocabulary of 256"))
        })
    };
    tokens.iter().map(byte).collect()
}
