//! Thinking on and off, and kept apart from the answer.

use gristmill_plugin::prelude::*;
use probe_kit::{
    Bench, Verdict,
    ask::{Answer, ask},
    failed, not_applicable, short,
};

/// Marks of thought that families use; none belongs into an answer.
const MARKS: [&str; 6] =
    ["<think>", "</think>", "<|channel|>", "[THINK]", "<reasoning>", "<seed:think>"];

fn leaked(text: &str) -> Option<&'static str> {
    MARKS.into_iter().find(|mark| text.contains(mark))
}

pub(crate) fn off(bench: &Bench) -> Verdict {
    let mut request = bench.request("What is 17 + 25?", 64);
    request.reasoning = Reasoning::Off;
    let answer = ask(&request)?;
    if !answer.reasoning.is_empty() {
        return failed("thought that was switched off", short(&answer.reasoning));
    }
    if let Some(mark) = leaked(&answer.text) {
        return failed(format!("{mark} in the answer"), short(&answer.text));
    }
    if let Some(usage) = answer.usage.filter(|usage| usage.reasoning > 0) {
        let seen = format!("{} tokens of thought, none shown", usage.reasoning);
        return failed("thought that was switched off", seen);
    }
    if answer.text.is_empty() && answer.calls.is_empty() {
        return failed("an empty answer when thinking is off", answer.finish);
    }
    Ok(short(&answer.text))
}

pub(crate) fn on(bench: &Bench) -> Verdict {
    let mut request = bench.request("What is 17 + 25?", 128);
    request.reasoning = Reasoning::On;
    let answer = ask(&request)?;
    if let Some(mark) = leaked(&answer.text) {
        return failed(format!("{mark} in the answer"), short(&answer.text));
    }
    if answer.late_reasoning {
        return failed("thought after the answer had begun", short(&answer.seen()));
    }
    if answer.reasoning.is_empty() {
        return no_thought(bench, &request, &answer);
    }
    if answer.text.is_empty() && answer.calls.is_empty() {
        if answer.finish == "length" {
            return not_applicable(
                "thought to the last token allowed, so no answer was seen after it",
            );
        }
        return failed("thought and no answer", short(&answer.seen()));
    }
    match answer.usage {
        Some(usage) if usage.reasoning > usage.completion => {
            let seen = format!("{} of {}", usage.reasoning, usage.completion);
            failed("more tokens of thought than tokens", seen)
        }
        _ => Ok(short(&answer.reasoning)),
    }
}

/// A model may see nothing to think about; but where "on" and "off" give one prompt and one answer,
/// nothing is switched.
fn no_thought(bench: &Bench, on: &Request, answer: &Answer) -> Verdict {
    let mut off = on.clone();
    off.reasoning = Reasoning::Off;
    let told = |answer: &Answer| answer.usage.as_ref().map(|usage| usage.prompt);
    let quiet = ask(&off)?;
    let repeats = ask(on)?.seen() == answer.seen();
    let same = quiet.seen() == answer.seen() && told(&quiet) == told(answer);
    if repeats && same && told(answer).is_some() && bench.claims("reasoning.control") {
        return failed(
            "thinking on is thinking off: one prompt, one answer",
            short(&answer.seen()),
        );
    }
    not_applicable("the model did not think")
}
