//! The longest context: what fits is taken whole, one token more is refused by name, and nothing is
//! ever cut in silence.

use gristmill_plugin::{prelude::*, probe::serving};
use probe_kit::{Bench, Stop, Verdict, ask::ask, failed, not_applicable, reach::reaches};

/// A prompt of exactly so many tokens: the tokens of a text, over and over.
fn prompt(bench: &Bench, length: u32) -> Result<Request, Stop> {
    let some = serving::tokenize(&bench.model, " one two three four five six seven", false)?;
    let tokens: Vec<u32> = some.iter().copied().cycle().take(length as usize).collect();
    if tokens.len() != length as usize {
        return failed("a text of no tokens", "tokenize");
    }
    let mut request = bench.plain("", 1);
    request.prompt = Prompt::Tokens(tokens);
    Ok(request)
}

fn limit(bench: &Bench) -> Result<u32, Stop> {
    match bench.context() {
        Some(limit) if limit > 8 => Ok(limit),
        _ => not_applicable("nobody says how long the context is"),
    }
}

/// One token less than the limit is read whole.
pub(crate) fn fits(bench: &Bench) -> Verdict {
    let limit = limit(bench)?;
    if !bench.claims("tokenize") {
        return not_applicable("without tokens no prompt can be made to measure");
    }
    let pace = 128.min(limit / 2);
    let begun = bench.elapsed();
    match ask(&prompt(bench, pace)?) {
        Err(error) if error.code == "unsupported" => {
            return not_applicable(format!("no prompts of tokens: {}", error.message));
        }
        other => drop(other?),
    }
    // Reading grows faster than the prompt does; twice the straight line is near enough.
    let estimate = (bench.elapsed() - begun) * (limit / pace) * 2;
    if estimate > bench.budget() / 2 {
        return not_applicable(format!(
            "{limit} tokens would take about {} s of a budget of {} s",
            estimate.as_secs(),
            bench.budget().as_secs()
        ));
    }
    let longest = prompt(bench, limit - 1)?;
    let Some(usage) = ask(&longest)?.usage else {
        return not_applicable("how many tokens were read is not told");
    };
    if usage.prompt != limit - 1 {
        let seen = format!("{} of {}", usage.prompt, limit - 1);
        return failed("a prompt that fits was not read whole", seen);
    }
    let counted = format!("{} of {limit} tokens were counted", limit - 1);
    if estimate > bench.budget() / 6 {
        return Ok(format!("{counted}; to see that they were read would take too long"));
    }
    // A count is the back-end's word; that another first half makes another answer is not.
    let mut other = longest.clone();
    if let Prompt::Tokens(tokens) = &mut other.prompt
        && let Some(half) = tokens.get_mut(..(limit / 2) as usize - 1)
    {
        half.rotate_left(3);
    }
    match reaches(bench, &longest, &[(other, "first half")]) {
        Ok(_) => Ok(format!("{counted}, and another first half makes another answer")),
        Err(Stop::NotApplicable(why)) => Ok(format!("{counted}; {why}")),
        Err(failed) => Err(failed),
    }
}

/// One token more is `context-overflow`.
pub(crate) fn overflow(bench: &Bench) -> Verdict {
    let limit = limit(bench)?;
    let made = if bench.claims("tokenize") { Some(prompt(bench, limit + 1)?) } else { None };
    let answered = match made {
        Some(request) => match ask(&request) {
            Err(error) if error.code == "unsupported" => ask(&words(bench, limit)),
            other => other,
        },
        None => ask(&words(bench, limit)),
    };
    match answered {
        Err(error) if error.code == "context-overflow" => Ok(error.message),
        Err(error) => {
            failed("expected context-overflow", format!("{}: {}", error.code, error.message))
        }
        Ok(answer) => {
            let read = answer.usage.map(|usage| format!(", {} tokens read", usage.prompt));
            let seen = format!("limit {limit}{}", read.unwrap_or_default());
            failed("more than fits was answered instead of refused", seen)
        }
    }
}

/// Too many words, each at least one token.
fn words(bench: &Bench, limit: u32) -> Request {
    bench.plain(&"one two ".repeat(limit as usize / 2 + 1), 1)
}
