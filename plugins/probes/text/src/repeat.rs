//! The same request gives the same answer: fetched in one piece or event by event, greedy, and with
//! a seed.

use gristmill_plugin::prelude::*;
use probe_kit::{
    Bench, Stop, Verdict,
    ask::{Answer, ask, ask_by},
    failed, not_applicable, short,
};

const PROMPT: &str = "List the days of the week and say a word about each of them.";

fn same(kind: &str, first: &str, second: &str) -> Result<(), Stop> {
    if first == second {
        return Ok(());
    }
    failed(kind, format!("{} | {}", short(first), short(second)))
}

/// An answer that has something to compare.
fn written(request: &Request) -> Result<Answer, Stop> {
    let answer = ask(request)?;
    if answer.text.is_empty() && answer.reasoning.is_empty() {
        return not_applicable("the answer is empty, so there is nothing to compare");
    }
    Ok(answer)
}

/// Event by event or all at once.
pub(crate) fn streaming(bench: &Bench) -> Verdict {
    let request = bench.request(PROMPT, 32);
    let whole = written(&request)?;
    for most in [1, 3] {
        let pieces = ask_by(&request, most)?;
        same("another answer when it is streamed", &whole.seen(), &pieces.seen())?;
        if whole.finish != pieces.finish {
            let seen = format!("{} and {}", whole.finish, pieces.finish);
            return failed("another reason to finish when it is streamed", seen);
        }
        let tokens = |answer: &Answer| answer.usage.as_ref().map(|usage| usage.completion);
        if tokens(&whole) != tokens(&pieces) {
            let seen = format!("{:?} and {:?}", tokens(&whole), tokens(&pieces));
            return failed("another count of tokens when it is streamed", seen);
        }
        let long = pieces.text.chars().count() > 60;
        if long && pieces.pieces == 1 && bench.claims("streaming.content") {
            return failed("text as it is made comes in pieces", short(&pieces.text));
        }
    }
    Ok(short(&whole.seen()))
}

/// A prompt that no other check reads, so that the first answer is to a new one and the others are to
/// one that may be cached.
pub(crate) fn greedy(bench: &Bench) -> Verdict {
    let request = bench.request("Name the colours of the rainbow, and a thing of each colour.", 24);
    let first = written(&request)?;
    for _ in 0..2 {
        let again = ask(&request)?;
        same("two greedy answers differ", &first.seen(), &again.seen())?;
    }
    Ok(short(&first.seen()))
}

/// The same seed repeats. That another seed differs is not owed, but somewhere chance must show.
pub(crate) fn seed(bench: &Bench) -> Verdict {
    let mut request = bench.request(PROMPT, 24);
    request.sampling.temperature = Some(1.0);
    request.sampling.seed = Some(20_261_129);
    let first = written(&request)?;
    for _ in 0..2 {
        let again = ask(&request)?;
        same("two answers with one seed differ", &first.seen(), &again.seen())?;
    }
    // Nothing was drawn where the seed was never asked: the greedy answer repeats without one.
    let mut other = request.clone();
    other.sampling.seed = Some(7);
    let greedy = bench.request(PROMPT, 24);
    if ask(&other)?.seen() == first.seen() && ask(&greedy)?.seen() == first.seen() {
        return not_applicable(
            "every seed gives the greedy answer, so nothing was drawn by chance",
        );
    }
    Ok(short(&first.seen()))
}
