//! The same request gives the same answer: fetched in one piece or event by event, greedy, and with
//! a seed.

use gristmill_plugin::prelude::*;
use probe_kit::{
    Bench, Stop, Verdict,
    ask::{ask, ask_by},
    failed, short,
};

const PROMPT: &str = "List the days of the week and say a word about each of them.";

fn same(kind: &str, first: &str, second: &str) -> Result<(), Stop> {
    if first == second {
        return Ok(());
    }
    failed(kind, format!("{} | {}", short(first), short(second)))
}

/// Event by event or all at once.
pub(crate) fn streaming(bench: &Bench) -> Verdict {
    let request = bench.request(PROMPT, 32);
    let whole = ask(&request)?;
    for most in [1, 3] {
        let pieces = ask_by(&request, most)?;
        same("another answer when it is streamed", &whole.seen(), &pieces.seen())?;
        if whole.finish != pieces.finish {
            let seen = format!("{} and {}", whole.finish, pieces.finish);
            return failed("another reason to finish when it is streamed", seen);
        }
    }
    Ok(short(&whole.seen()))
}

pub(crate) fn greedy(bench: &Bench) -> Verdict {
    let request = bench.request(PROMPT, 24);
    let first = ask(&request)?;
    for _ in 0..2 {
        let again = ask(&request)?;
        same("two greedy answers differ", &first.seen(), &again.seen())?;
    }
    Ok(short(&first.seen()))
}

/// The same seed repeats. That another seed differs is not owed.
pub(crate) fn seed(bench: &Bench) -> Verdict {
    let mut request = bench.request(PROMPT, 24);
    request.sampling.temperature = Some(1.0);
    request.sampling.seed = Some(20_261_129);
    let first = ask(&request)?;
    for _ in 0..2 {
        let again = ask(&request)?;
        same("two answers with one seed differ", &first.seen(), &again.seen())?;
    }
    Ok(short(&first.seen()))
}
