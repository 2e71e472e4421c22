//! Thinking on and off, and kept apart from the answer.

use gristmill_plugin::prelude::*;
use probe_kit::{Bench, Verdict, ask::ask, failed, not_applicable, short};

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
        return not_applicable("the model did not think");
    }
    match answer.usage {
        Some(usage) if usage.reasoning > usage.completion => {
            let seen = format!("{} of {}", usage.reasoning, usage.completion);
            failed("more tokens of thought than tokens", seen)
        }
        _ => Ok(short(&answer.reasoning)),
    }
}
