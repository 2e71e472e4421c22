//! Harmony's answers as the engine reads them, cut at every place.

use gristmill_core::{event::Event, program::ToolFormat};

use super::super::{Assembler, Offer, Reading};

/// What an answer became: reasoning, text with `⟨i⟩` where call i stood, and the calls.
fn read(text: &str, chunks: &[usize], tools: bool, cut: bool) -> (String, String, Vec<String>) {
    let mut assembler = Assembler::new(Reading {
        channels: true,
        tools: tools.then(|| ToolFormat {
            open: "<|channel|>commentary to=functions.".into(),
            close: "<|call|>".into(),
            shape: "harmony".into(),
            name_key: String::new(),
            arguments_key: String::new(),
            extras: Vec::new(),
        }),
        offers: ["sum", "now"].map(|name| Offer::new(crate::text::HARMONY, name, "{}")).to_vec(),
        parallel: true,
        id: "call-".into(),
        ..Reading::default()
    });
    let mut events = Vec::new();
    let mut rest = text.as_bytes();
    for chunk in chunks.iter().cycle() {
        let (now, later) = rest.split_at((*chunk).clamp(1, rest.len().max(1)).min(rest.len()));
        assembler.push(now, false, &mut events);
        rest = later;
        if rest.is_empty() {
            break;
        }
    }
    if cut {
        assembler.cut();
    }
    assembler.finish(&mut events);
    let (mut thought, mut said, mut calls) = (String::new(), String::new(), Vec::new());
    for event in events {
        match event {
            Event::Reasoning(text) => thought.push_str(&text),
            Event::Text(text) => said.push_str(&text),
            Event::ToolStart(start) => {
                assert_eq!(start.index as usize, calls.len());
                assert_eq!(start.id, format!("call-{}", start.index));
                said.push_str(&format!("⟨{}⟩", start.index));
                calls.push(format!("{} ", start.name));
            }
            Event::ToolArguments(index, text) => calls[index as usize].push_str(&text),
            Event::ToolEnd(index) => calls[index as usize].push_str(" end"),
            other => panic!("unexpected {other:?}"),
        }
    }
    (thought, said, calls)
}

/// Every split into two, and small pieces of one size.
fn everywhere(text: &str, tools: bool, cut: bool) -> (String, String, Vec<String>) {
    let whole = read(text, &[text.len()], tools, cut);
    for at in 1..text.len() {
        let got = read(text, &[at, text.len()], tools, cut);
        assert_eq!(got, whole, "{text:?} split at {at}");
    }
    for size in 1..9 {
        assert_eq!(read(text, &[size], tools, cut), whole, "{text:?} in pieces of {size}");
    }
    whole
}

#[test]
fn messages_are_told_apart_however_they_are_cut() {
    type Case = (&'static str, &'static str, &'static str, &'static [&'static str]);
    let cases: &[Case] = &[
        (
            "<|channel|>analysis<|message|> why? \n<|end|><|start|>assistant<|channel|>final<|message|>Köln.",
            "why?",
            "Köln.",
            &[],
        ),
        (
            "<|channel|>analysis<|message|>add<|end|><|start|>assistant<|channel|>commentary to=functions.sum <|constrain|>json<|message|>{\"a\": [1, \"}\"]}<|call|>",
            "add",
            "⟨0⟩",
            &["sum {\"a\": [1, \"}\"]} end"],
        ),
        // The recipient before the channel, as the first words after the prompt; and no space.
        (
            " to=functions.sum<|channel|>commentary json<|message|>{}<|end|><|start|>assistant<|channel|>commentary to=functions.now<|constrain|>json<|message|>{\"b\":2}",
            "",
            "⟨0⟩⟨1⟩",
            &["sum {} end", "now {\"b\":2} end"],
        ),
        (
            "<|channel|>commentary<|message|>First.<|end|><|start|>assistant to=functions.now<|channel|>analysis code<|message|> <|call|>",
            "",
            "First.⟨0⟩",
            &["now {} end"],
        ),
        // Not on offer, no object, no header: text as it was written.
        (
            "<|channel|>commentary to=functions.sun <|constrain|>json<|message|>{\"a\":1}<|call|>",
            "",
            "<|channel|>commentary to=functions.sun <|constrain|>json<|message|>{\"a\":1}<|call|>",
            &[],
        ),
        (
            "<|channel|>commentary to=functions.sum<|message|>oh no<|call|>",
            "",
            "<|channel|>commentary to=functions.sum<|message|>oh no<|call|>",
            &[],
        ),
        (
            "<|channel|>commentary to=functions.sum<|message|>{\"a\" oh<|call|>",
            "",
            "⟨0⟩oh<|call|>",
            &["sum {\"a\"  end"],
        ),
        ("<|channel|>poem<|message|>a<|end|>", "", "<|channel|>poem<|message|>a", &[]),
        ("<|start|>user<|message|>a", "", "<|start|>user<|message|>a", &[]),
        ("<|start|>not\na header", "", "<|start|>not\na header", &[]),
        ("<|channel|>fin", "", "<|channel|>fin", &[]),
        (" plain to=functions.sum <b", "", " plain to=functions.sum <b", &[]),
        ("{\"bound\": 1}", "", "{\"bound\": 1}", &[]),
        ("to", "", "to", &[]),
        // An end that was left out.
        (
            "<|channel|>analysis<|message|>a<|start|>assistant<|channel|>final<|message|>b",
            "a",
            "b",
            &[],
        ),
        // The model ends within its call.
        (
            "<|channel|>commentary to=functions.sum<|message|>{\"a\": 1",
            "",
            "⟨0⟩",
            &["sum {\"a\": 1 end"],
        ),
        ("<|channel|>commentary to=functions.sum<|message|>", "", "⟨0⟩", &["sum {} end"]),
    ];
    for (text, thought, said, calls) in cases {
        let calls: Vec<String> = calls.iter().map(|call| (*call).to_owned()).collect();
        let wanted = ((*thought).to_owned(), (*said).to_owned(), calls);
        assert_eq!(everywhere(text, true, false), wanted, "{text:?}");
    }
    let long = format!("<|start|>assistant {}<|message|>b", "a".repeat(1100));
    assert_eq!(read(&long, &[7], true, false).1, long);
}

#[test]
fn without_tools_a_call_is_text_and_the_rest_is_not() {
    let text = "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary to=functions.sum<|message|>{}<|call|>";
    let said = "<|start|>assistant<|channel|>commentary to=functions.sum<|message|>{}<|call|>";
    assert_eq!(everywhere(text, false, false), ("a".into(), said.into(), Vec::new()));
}

#[test]
fn an_answer_that_is_cut_shows_no_marks() {
    let text = "<|channel|>commentary<|message|>Well.<|end|><|start|>assistant<|channel|>commentary to=functions.sum<|message|>{\"a\": 1}";
    for end in text.find("<|start|>").unwrap()..=text.len() {
        let (_, said, calls) = everywhere(&text[..end], true, true);
        let called = text[..end].contains('{');
        assert_eq!(said, if called { "Well.⟨0⟩" } else { "Well." }, "{:?}", &text[..end]);
        let ended = calls.iter().any(|call| call.ends_with("end"));
        assert_eq!(ended, text[..end].ends_with('}'));
    }
}
