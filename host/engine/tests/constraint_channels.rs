//! Answers that are messages on channels: thoughts come first, and what is bound is bound there.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    dead_code,
    unreachable_pub,
    reason = "tests may fail loudly"
)]

use std::sync::Arc;

use gristmill_core::request::{Constraint, Prompt, Reasoning, Request, ToolChoice};
use gristmill_engine::constraint::Checker;
use serde_json::json;

#[path = "common/spellings.rs"]
mod spellings;

use spellings::{channels, check, dialect, read, request, small, tools, walk};

#[test]
fn an_answer_on_channels_thinks_first_and_is_bound_then() {
    let tokenizer = small();
    let checker = Checker::new(Arc::clone(&tokenizer)).unwrap();
    let harmony = dialect("harmony");
    let thought = "<|channel|>analysis<|message|>Hm {\"a\": 2}.<|end|><|start|>assistant";
    let answer = "<|channel|>final <|constrain|>json<|message|>{\"a\": 1}";
    let schema =
        json!({ "type": "object", "properties": { "a": { "const": 1 } }, "required": ["a"] });
    let mut bound = Request::new("test", "model", Prompt::Text(String::new()));
    bound.constraint = Some(Constraint::JsonSchema(schema.to_string()));
    let rule = checker.request(&bound, &harmony).unwrap().unwrap();
    for (text, taken) in [
        (answer.to_owned(), true),
        (format!("{thought}{answer}"), true),
        (format!("{thought}{thought}<|channel|>final<|message|>{{\"a\":1}}"), true),
        (thought.to_owned(), false),
        ("{\"a\": 1}".to_owned(), false),
        (answer.replace('1', "2"), false),
    ] {
        assert_eq!(rule.accepts_marked(&text).unwrap(), taken, "{text}");
    }
    let (said, thoughts, _) = read(&harmony, &bound, &format!("{thought}{answer}"));
    assert_eq!((said.as_str(), thoughts.as_str()), ("{\"a\": 1}", "Hm {\"a\": 2}."));
    // A thought that is switched off, and other kinds of answers.
    bound.reasoning = Reasoning::Off;
    let rule = checker.request(&bound, &harmony).unwrap().unwrap();
    assert!(rule.accepts_marked(answer).unwrap());
    assert!(!rule.accepts_marked(&format!("{thought}{answer}")).unwrap());
    bound.constraint = Some(Constraint::Regex("[0-9]{2}".into()));
    let rule = checker.request(&bound, &harmony).unwrap().unwrap();
    assert!(rule.accepts_marked("<|channel|>final<|message|>12").unwrap());
    assert!(!rule.accepts_marked("<|channel|>final<|message|>1").unwrap());
    // The model decides: text is free, a call is bound when the tool is strict.
    let mut auto = request(&tools(), true);
    auto.tool_choice = ToolChoice::Auto;
    let rule = checker.request(&auto, &harmony).unwrap().unwrap();
    let call = |city: &str| {
        format!("<|channel|>commentary to=functions.weather<|message|>{{\"city\":\"{city}\"}}")
    };
    let note = "<|channel|>commentary<|message|>Let me see.<|end|><|start|>assistant";
    for (text, taken) in [
        ("<|channel|>final<|message|>No.".to_owned(), true),
        (format!("{thought}{note}{}", call("Köln")), true),
        (format!("{thought}{note}{}", call("Bonn")), false),
        (format!("{thought}<|channel|>analysis to=functions.weather<|message|>{{}}"), false),
    ] {
        assert_eq!(rule.accepts_marked(&text).unwrap(), taken, "{text}");
    }
    auto.constraint = Some(Constraint::JsonSchema(schema.to_string()));
    let rule = checker.request(&auto, &harmony).unwrap().unwrap();
    for text in [format!("{thought}{answer}"), call("Köln")] {
        assert!(rule.accepts_marked(&text).unwrap(), "{text}");
    }
    assert!(!rule.accepts_marked("<|channel|>final<|message|>No.").unwrap());
    // Nothing is strict: nothing is bound.
    auto.constraint = None;
    auto.tools.iter_mut().for_each(|tool| tool.strict = None);
    assert!(checker.request(&auto, &harmony).unwrap().is_none());
}

/// The vocabulary that gpt-oss was published with.
#[test]
fn calls_on_channels_hold_over_the_vocabulary_they_were_made_for() {
    let tokenizer = channels();
    // The marks are tokens, and what a model writes is let through.
    let call = "<|channel|>analysis<|message|>Köln?<|end|><|start|>assistant<|channel|>commentary \
        to=functions.weather <|constrain|>json<|message|>{\"city\":\"Köln\",\"days\":3}";
    let marks = tokenizer.encode(call, true).unwrap();
    assert_eq!(marks.iter().filter(|token| tokenizer.is_special(**token)).count(), 7, "{marks:?}");
    let checker = Checker::new(Arc::clone(&tokenizer)).unwrap();
    let tools = tools();
    for parallel in [true, false] {
        let request = request(&tools, parallel);
        let rule = checker.request(&request, &dialect("harmony")).unwrap().unwrap();
        assert!(rule.accepts_marked(call).unwrap());
        assert!(!rule.accepts_marked(&call.replace("Köln\",", "Bonn\",")).unwrap());
        let mut whole = 0;
        for seed in 0..12 {
            let Some(text) = walk(&rule, &tokenizer, seed) else { continue };
            check("harmony", &request, &tools, &text);
            whole += 1;
        }
        assert!(whole >= 4, "{whole}");
    }
}
