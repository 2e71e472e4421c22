//! Probe: an answer ends where it was told to end, what does not fit is refused and not cut, and what
//! is counted adds up.
#![cfg_attr(target_arch = "wasm32", no_std)]

mod context;

use gristmill_plugin::prelude::*;
use probe_kit::{
    Bench, Verdict,
    ask::{Answer, ask, ask_by},
    failed, not_applicable, short,
};

probe_kit::suite! {
    "limits.stop" of "conduct.limits" if Generates => stop,
    "limits.max-tokens" of "conduct.limits" if Generates => max_tokens,
    "limits.usage" of "conduct.usage" if Generates => usage,
    "limits.timings" of "conduct.usage" if Generates => timings,
    "limits.context-fits" of "conduct.context" if Generates => context::fits,
    "limits.context-overflow" of "conduct.context" if Generates => context::overflow,
}

const PROMPT: &str = "Write one sentence about rivers, then one about mountains.";

/// The answer again, cut exactly before a string of its own, which is named and not part of it.
fn stop(bench: &Bench) -> Verdict {
    let whole = ask(&bench.request(PROMPT, 32))?;
    if ask(&bench.request(PROMPT, 32))?.text != whole.text {
        return not_applicable("greedy answers do not repeat, so there is nothing to compare with");
    }
    let letters: Vec<(usize, char)> = whole.text.char_indices().collect();
    if letters.len() < 9 {
        return not_applicable(format!("the answer is too short: {:?}", whole.text));
    }
    // From the middle of one word into the next, so that it crosses tokens.
    let blank =
        letters.iter().skip(4).position(|(_, letter)| *letter == ' ').map_or(4, |at| at + 3);
    let string: String = letters.iter().skip(blank).take(4).map(|(_, letter)| *letter).collect();
    let Some(place) = whole.text.find(&*string).filter(|_| !string.trim().is_empty()) else {
        return not_applicable(format!("no string to stop at in {:?}", whole.text));
    };
    let mut request = bench.request(PROMPT, 32);
    request.stop = vec!["\u{1}never\u{1}".to_owned(), string.clone()];
    let cut = ask(&request)?;
    let pieces = ask_by(&request, 1)?;
    let seen = format!("{string:?} in {:?} gave {:?}", whole.text, cut.text);
    if whole.text.get(..place) != Some(&*cut.text) {
        return failed("expected the text before the stop string, and nothing else", seen);
    }
    if cut.finish != "stop" {
        return failed("expected the reason stop", format!("{}; {seen}", cut.finish));
    }
    if cut.stop.as_ref().is_some_and(|named| *named != string) {
        return failed("another stop string was named", format!("{:?}; {seen}", cut.stop));
    }
    if pieces.text != cut.text {
        return failed("another cut when it is streamed", format!("{:?}; {seen}", pieces.text));
    }
    Ok(short(&seen))
}

/// More bytes than three tokens of any vocabulary bear.
const THREE_TOKENS: usize = 160;

fn max_tokens(bench: &Bench) -> Verdict {
    let long = ask(&bench.request(PROMPT, 24))?;
    let short = ask(&bench.request(PROMPT, 3))?;
    let (Some(all), Some(few)) = (&long.usage, &short.usage) else {
        if short.seen() == long.seen() && long.seen().len() > 40 {
            return failed("the limit of 3 tokens was ignored", short.seen());
        }
        return not_applicable("tokens are not told, so they cannot be counted");
    };
    let seen = format!("{} of 24, {} of 3: {:?}", all.completion, few.completion, short.text);
    if all.completion > 24 || few.completion > 3 {
        return failed("more tokens than allowed", seen);
    }
    let much = all.completion > 3 || long.seen().trim().len() > THREE_TOKENS;
    if short.seen() == long.seen() && much {
        return failed("the limit of 3 tokens was ignored", seen);
    }
    if all.completion > 3 && short.finish != "length" {
        return failed("expected the reason length", format!("{}; {seen}", short.finish));
    }
    Ok(seen)
}

fn told(answer: &Answer) -> Result<Usage, probe_kit::Stop> {
    match &answer.usage {
        Some(usage) => Ok(usage.clone()),
        None => not_applicable("the back-end tells no counts"),
    }
}

fn usage(bench: &Bench) -> Verdict {
    let answer = ask(&bench.request(PROMPT, 16))?;
    let usage = told(&answer)?;
    let Usage { prompt, cached, completion, reasoning, .. } = usage;
    let seen =
        format!("prompt {prompt}, cached {cached}, written {completion}, thought {reasoning}");
    let written = !answer.text.is_empty() || !answer.reasoning.is_empty();
    for (wrong, why) in [
        (prompt == 0, "a prompt of no tokens"),
        (cached > prompt, "more of the prompt was cached than it has"),
        (reasoning > completion, "more was thought than written"),
        (completion == 0 && written, "text of no tokens"),
        (completion > 16, "more tokens than allowed"),
        // What was cut at the limit has as many as the limit; the back-end's word is not needed.
        (
            answer.finish == "length" && completion < 16,
            "cut at the limit, and fewer tokens counted",
        ),
        (reasoning > 0 && answer.reasoning.is_empty(), "thought was counted and not shown"),
    ] {
        if wrong {
            return failed(why, seen);
        }
    }
    let longer = ask(&bench.request(&format!("{PROMPT} {PROMPT} {PROMPT}"), 1))?;
    let longer = told(&longer)?.prompt;
    if longer <= prompt {
        return failed("a longer prompt has no more tokens", format!("{prompt}, then {longer}"));
    }
    Ok(seen)
}

/// Each part of the work once, and together no longer than it took.
fn timings(bench: &Bench) -> Verdict {
    let begun = bench.elapsed();
    let answer = ask(&bench.request(PROMPT, 16))?;
    let took = (bench.elapsed() - begun).as_micros();
    let Some(Timings { queue, load, prefill, decode, .. }) = answer.timings else {
        return not_applicable("the back-end tells no times");
    };
    let seen =
        format!("queue {queue}, load {load}, prefill {prefill}, decode {decode} of {took} µs");
    let sum: u128 = [queue, load, prefill, decode].into_iter().map(u128::from).sum();
    // Clocks of two processes; a tenth and 50 ms are not worth an argument.
    if sum > took + took / 10 + 50_000 {
        return failed("the parts are longer than the whole", seen);
    }
    let written = answer.usage.is_some_and(|usage| usage.completion > 1);
    if decode == 0 && (prefill == 0 || written) {
        return failed("work that took no time", seen);
    }
    Ok(seen)
}
