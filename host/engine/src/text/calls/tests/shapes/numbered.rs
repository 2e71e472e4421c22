//! Calls between Kimi's marks, their names between a word and a number.

use super::{check, everywhere};

const OPEN: &str = "<|tool_calls_section_begin|>";
const CLOSE: &str = "<|tool_calls_section_end|>";
const BEGIN: &str = "<|tool_call_begin|>";
const ARGUMENTS: &str = "<|tool_call_argument_begin|>";
const END: &str = "<|tool_call_end|>";

fn one(head: &str, json: &str) -> String {
    format!("{BEGIN}{head}{ARGUMENTS}{json}{END}")
}

/// A list of one call of `sum`.
pub(super) fn list(arguments: &str) -> String {
    format!("{OPEN}{}{CLOSE}", one("functions.sum:0", arguments))
}

#[test]
fn a_name_and_a_number_before_an_object_are_a_call() {
    let cases: &[(String, &str, &[&str])] = &[
        (
            format!(
                "So.{OPEN}{}{}{CLOSE}",
                one("functions.sum:0", "{\"a\":  \"<|tool_call_end|>}\"}"),
                one("functions.now:1", "{}")
            ),
            "So.⟨0⟩⟨1⟩",
            &["sum {\"a\":  \"<|tool_call_end|>}\"} end", "now {} end"],
        ),
        // The number goes on counting from the calls before, and lines may end between the marks.
        (
            format!(
                "{OPEN}\n{}\n{}\n{CLOSE}\n",
                one(" functions.now:17 ", "\n{ }\n"),
                one("functions.sum:18", "{\"n\": 1}")
            ),
            "⟨0⟩⟨1⟩",
            &["now { } end", "sum {\"n\": 1} end"],
        ),
        // Without the word or the number.
        (format!("{OPEN}{}{CLOSE}", one("now:0", "{}")), "⟨0⟩", &["now {} end"]),
        (format!("{OPEN}{}{CLOSE}", one("functions.now", "{}")), "⟨0⟩", &["now {} end"]),
        (format!("{OPEN}{CLOSE}"), "", &[]),
        // The model ends within its call, or without the closing marks.
        (
            format!("{OPEN}{BEGIN}functions.sum:0{ARGUMENTS}{{\"a\": 1"),
            "⟨0⟩",
            &["sum {\"a\": 1 end"],
        ),
        (format!("{OPEN}{}", one("functions.now:0", "{}")), "⟨0⟩", &["now {} end"]),
        // The fault shows only inside the arguments, or behind them.
        (
            format!("{OPEN}{BEGIN}functions.sum:0{ARGUMENTS}{{\"a\": x}}"),
            "⟨0⟩}",
            &["sum {\"a\": x end"],
        ),
        (
            format!("{OPEN}{BEGIN}functions.now:0{ARGUMENTS}{{}}```{END}"),
            "⟨0⟩```<|tool_call_end|>",
            &["now {} end"],
        ),
    ];
    check("kimi", cases);
    // What only looks like a call is text as it was written.
    for text in [
        format!("{OPEN}text"),
        format!("{OPEN}{}", one("functions.sun:0", "{}")),
        format!("{OPEN}{}", one("functions.:0", "{}")),
        format!("{OPEN}{}", one("functions.sum:a", "{}")),
        format!("{OPEN}{}", one("functions.sum:0", "[1]")),
        format!("{OPEN}{BEGIN}functions.sum:0{ARGUMENTS}now\n{{}}"),
        format!("{OPEN}{BEGIN}functions.sum:0{ARGUMENTS}```json\n{{}}"),
        one("functions.sum:0", "{}"),
    ] {
        assert_eq!(everywhere("kimi", &text, false), (text.clone(), Vec::new()));
    }
}
