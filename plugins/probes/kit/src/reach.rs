//! Whether a part of a prompt reaches the model. A count of tokens is the back-end's word; that another
//! part makes another answer is not. Where two answers have the same text, log probabilities tell: two
//! prompts that give the same numbers to the last bit were one prompt.

use gristmill_plugin::prelude::*;

use crate::{
    Bench, Stop,
    ask::{Answer, ask},
    failed, not_applicable, short,
};

/// How far numbers of one prompt may lie apart before a change counts as one, as a factor.
const NOISE: f32 = 4.0;

/// The answer to `request`, after seeing that each of the others, which differ from it in what is
/// named, is read as another prompt.
///
/// # Errors
/// Where one is not; "not applicable" where nothing tells.
pub fn reaches(
    bench: &Bench,
    request: &Request,
    others: &[(Request, &str)],
) -> Result<Answer, Stop> {
    let first = traced(bench, request)?;
    let again = traced(bench, request)?;
    for (other, what) in others {
        judge(&first, &again, &traced(bench, other)?, what)?;
    }
    Ok(first)
}

/// The answer, with log probabilities where they can be had.
fn traced(bench: &Bench, request: &Request) -> Result<Answer, Stop> {
    if bench.claims("logprobs") {
        let mut request = request.clone();
        request.logprobs = Some(3);
        match ask(&request) {
            Err(error) if error.code == "unsupported" => {}
            other => return Ok(other?),
        }
    }
    Ok(ask(request)?)
}

fn judge(first: &Answer, again: &Answer, other: &Answer, what: &str) -> Result<(), Stop> {
    if first.seen() != again.seen() {
        return not_applicable("greedy answers do not repeat, so there is nothing to compare with");
    }
    if first.seen() != other.seen() {
        return Ok(());
    }
    if first.tokens.is_empty() || other.tokens.is_empty() {
        return not_applicable(format!(
            "the answer is the same with another {what}, and no log probabilities tell more"
        ));
    }
    let (noise, change) = (distance(first, again), distance(first, other));
    if change > noise * NOISE {
        return Ok(());
    }
    if noise > 0.0 {
        return not_applicable(format!("another {what} changes no more than asking again does"));
    }
    let seen = format!("{}, and the same log probabilities", short(&first.seen()));
    failed(format!("another {what} changes nothing"), seen)
}

/// The largest difference of two log probabilities; endless where the tokens differ.
fn distance(one: &Answer, other: &Answer) -> f32 {
    let numbers = |answer: &Answer| -> Vec<(u32, f32)> {
        let of = |token: &TokenInfo| {
            let others = token.alternatives.iter().map(|(id, _, logprob)| (*id, *logprob));
            core::iter::once((token.id, token.logprob)).chain(others).collect::<Vec<_>>()
        };
        answer.tokens.iter().flat_map(of).collect()
    };
    let (one, other) = (numbers(one), numbers(other));
    if one.len() != other.len() {
        return f32::INFINITY;
    }
    let apart = one.iter().zip(&other).map(|((id, a), (as_well, b))| match id == as_well {
        // Two of the same infinity are no difference.
        true if a == b => 0.0,
        true => (a - b).abs(),
        false => f32::INFINITY,
    });
    apart.fold(0.0, f32::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str, logprobs: &[f32]) -> Answer {
        let token = |logprob: &f32| TokenInfo {
            id: 1,
            bytes: Vec::new(),
            logprob: *logprob,
            alternatives: vec![(1, Vec::new(), *logprob), (2, Vec::new(), f32::NEG_INFINITY)],
        };
        Answer {
            text: text.to_owned(),
            tokens: logprobs.iter().map(token).collect(),
            ..Answer::default()
        }
    }

    #[test]
    fn a_part_that_changes_nothing_does_not_reach_the_model() {
        let told = |first: &Answer, again: &Answer, other: &Answer| match judge(
            first, again, other, "turn",
        ) {
            Ok(()) => "reaches",
            Err(Stop::Failed(..)) => "does not",
            Err(Stop::NotApplicable(_)) => "nobody knows",
        };
        let (a, near, far) = (answer("a", &[-0.5]), answer("a", &[-0.50001]), answer("a", &[-0.7]));
        let (b, bare) = (answer("b", &[-0.5]), answer("a", &[]));
        for (first, again, other, expected) in [
            (&a, &a, &b, "reaches"),
            (&a, &a, &near, "reaches"),
            (&a, &a, &a, "does not"),
            (&a, &near, &far, "reaches"),
            (&a, &near, &near, "nobody knows"),
            (&a, &b, &b, "nobody knows"),
            (&bare, &bare, &bare, "nobody knows"),
            (&bare, &bare, &b, "reaches"),
        ] {
            assert_eq!(told(first, again, other), expected, "{first:?} {again:?} {other:?}");
        }
    }
}
