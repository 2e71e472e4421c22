//! Tool calls in every shape, whole and cut at every place.

use super::*;

mod shapes;

/// What an answer became: text with `⟨i⟩` where call i stood, and the calls.
fn read(
    shape: &str,
    open: &str,
    close: &str,
    parallel: bool,
    text: &str,
    cuts: usize,
) -> (String, Vec<String>) {
    let format = ToolFormat {
        open: open.into(),
        close: close.into(),
        shape: shape.into(),
        name_key: "name".into(),
        arguments_key: "arguments".into(),
        extras: Vec::new(),
    };
    let offers = ["weather", "sum"].map(|name| Offer::new(shape, name, "{}")).to_vec();
    let characters: Vec<char> = text.chars().collect();
    let chunks = characters.chunks(cuts).map(|chunk| chunk.iter().collect());
    gather(Calls::new(format, offers, parallel, "call-".into()), chunks, false)
}

/// The same of any pieces.
fn gather(
    mut calls: Calls,
    chunks: impl Iterator<Item = String>,
    cut: bool,
) -> (String, Vec<String>) {
    let mut events = Vec::new();
    for chunk in chunks {
        if calls.ended() {
            break;
        }
        calls.push(&chunk, &mut events);
    }
    calls.finish(cut, &mut events);
    let (mut seen, mut found) = (String::new(), Vec::new());
    for event in events {
        match event {
            Event::Text(text) => seen.push_str(&text),
            Event::ToolStart(start) => {
                assert_eq!(start.index as usize, found.len());
                assert_eq!(start.id, format!("call-{}", start.index));
                seen.push_str(&format!("⟨{}⟩", start.index));
                found.push(format!("{} ", start.name));
            }
            Event::ToolArguments(index, text) => found[index as usize].push_str(&text),
            Event::ToolEnd(index) => found[index as usize].push_str(" end"),
            other => panic!("unexpected {other:?}"),
        }
    }
    (seen, found)
}

#[test]
fn calls_are_read_however_the_text_is_cut() {
    let hermes = ("json", "<tool_call>", "</tool_call>");
    let mistral = ("json-list", "[TOOL_CALLS]", "");
    let bare = ("json", "", "");
    type Case = (
        (&'static str, &'static str, &'static str),
        &'static str,
        &'static str,
        &'static [&'static str],
    );
    let cases: &[Case] = &[
        (
            hermes,
            "Let me see.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Köln }\\\" {\", \"n\": [1, {\"a\": null}]}}\n</tool_call>",
            "Let me see.\n⟨0⟩",
            &["weather {\"city\": \"Köln }\\\" {\", \"n\": [1, {\"a\": null}]} end"],
        ),
        (
            hermes,
            "<tool_call>{\"arguments\": {  \"a\":1 }, \"name\": \"sum\"}</tool_call>\n<tool_call>{\"name\":\"sum\",\"arguments\":{}}</tool_call>\n",
            "⟨0⟩⟨1⟩",
            &["sum {  \"a\":1 } end", "sum {} end"],
        ),
        (hermes, "a < b <tool_cal> c", "a < b <tool_cal> c", &[]),
        (hermes, "<tool_call>not json</tool_call>!", "<tool_call>not json</tool_call>!", &[]),
        (
            hermes,
            "<tool_call>{\"name\": \"unknown\", \"arguments\": {}}</tool_call>",
            "<tool_call>{\"name\": \"unknown\", \"arguments\": {}}</tool_call>",
            &[],
        ),
        (
            hermes,
            "<tool_call>{\"name\": \"sum\", \"arguments\": [1]}</tool_call>",
            "<tool_call>{\"name\": \"sum\", \"arguments\": [1]}</tool_call>",
            &[],
        ),
        (hermes, "<tool_call>{\"name\": \"sum\"}</tool_call>", "⟨0⟩", &["sum {} end"]),
        (hermes, "<tool_call>\n{\"name\": \"sum\"}\n</tool_call>", "⟨0⟩", &["sum {} end"]),
        // The fault shows only inside the arguments: the call ends there, and the rest is text.
        (
            hermes,
            "<tool_call>{\"name\": \"sum\", \"arguments\": {\"a\": nonsense}} more",
            "⟨0⟩}} more",
            &["sum {\"a\": nonsense end"],
        ),
        (
            hermes,
            "<tool_call>{\"name\": \"sum\", \"arguments\": {\"a\" 1}} <tool_call>{\"name\": \"sum\"}</tool_call>",
            "⟨0⟩1}}⟨1⟩",
            &["sum {\"a\"  end", "sum {} end"],
        ),
        (
            mistral,
            "[TOOL_CALLS] [{\"name\": \"sum\"}, {\"name\": \"sum\", \"arguments\": {\"a\": 1], x",
            "⟨0⟩⟨1⟩], x",
            &["sum {} end", "sum {\"a\": 1 end"],
        ),
        // So is what was read of the closing mark, or of a call that is not on offer.
        (
            hermes,
            "<tool_call>{\"name\": \"sum\", \"arguments\": {}} </tool_cat>",
            "⟨0⟩</tool_cat>",
            &["sum {} end"],
        ),
        (
            mistral,
            "[TOOL_CALLS] [{\"name\": \"sum\"}, {\"name\": \"sun\", \"arguments\": {\"a\": 1}}]",
            "⟨0⟩, {\"name\": \"sun\", \"arguments\": {\"a\": 1}}]",
            &["sum {} end"],
        ),
        // The model ends within its call.
        (
            hermes,
            "<tool_call>{\"name\": \"sum\", \"arguments\": {\"a\": 1",
            "⟨0⟩",
            &["sum {\"a\": 1 end"],
        ),
        (hermes, "<tool_call>{\"na", "<tool_call>{\"na", &[]),
        (
            mistral,
            "[TOOL_CALLS] [{\"name\": \"sum\", \"arguments\": {\"a\": 1}}, {\"name\": \"weather\", \"arguments\": {}}]",
            "⟨0⟩⟨1⟩",
            &["sum {\"a\": 1} end", "weather {} end"],
        ),
        (mistral, "[TOOL_CALLS] []", "", &[]),
        (bare, "{\"name\": \"sum\", \"arguments\": {}}", "⟨0⟩", &["sum {} end"]),
        (
            bare,
            "The object {\"name\": \"sum\", \"arguments\": {}}",
            "The object {\"name\": \"sum\", \"arguments\": {}}",
            &[],
        ),
    ];
    for ((shape, open, close), text, seen, found) in cases {
        for cuts in [1, 2, 3, 5, 7, 1000] {
            let got = read(shape, open, close, true, text, cuts);
            let found: Vec<String> = found.iter().map(|call| (*call).to_owned()).collect();
            assert_eq!(got, ((*seen).to_owned(), found), "{text:?} cut by {cuts}");
        }
    }
}

#[test]
fn without_parallel_calls_the_first_ends_the_answer() {
    let call = "<tool_call>{\"name\":\"sum\",\"arguments\":{}}</tool_call>";
    let (seen, found) =
        read("json", "<tool_call>", "</tool_call>", false, &format!("{call}{call} x"), 3);
    assert_eq!((seen.as_str(), found.len()), ("⟨0⟩", 1));
    // One that went wrong was the one.
    let wrong = "<tool_call>{\"name\":\"sum\",\"arguments\":{oh";
    let (seen, found) =
        read("json", "<tool_call>", "</tool_call>", false, &format!("{wrong}{call}"), 3);
    assert_eq!((seen.as_str(), found), ("⟨0⟩", vec!["sum { end".to_owned()]));
}

#[test]
fn an_answer_that_is_cut_shows_no_marks() {
    let format = || ToolFormat {
        open: "<tool_call>".into(),
        close: "</tool_call>".into(),
        shape: "json".into(),
        name_key: "name".into(),
        arguments_key: "arguments".into(),
        extras: Vec::new(),
    };
    let whole = "Well. <tool_call>\n{\"name\": \"sum\", \"arguments\": {\"a\": 1}}\n</tool_call>";
    let begun = whole.find("call>").unwrap() + 5;
    for end in begun..=whole.len() {
        let mut calls =
            Calls::new(format(), vec![Offer::new("json", "sum", "{}")], true, "id".into());
        let mut events = Vec::new();
        calls.push(&whole[..end], &mut events);
        calls.finish(true, &mut events);
        let text: String = events
            .iter()
            .filter_map(|event| match event {
                Event::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(text, "Well. ", "cut after {:?}", &whole[..end]);
        let ended = events.iter().any(|event| matches!(event, Event::ToolEnd(0)));
        assert_eq!(ended, whole[..end].contains("}}"), "a call whose object is complete is a call");
    }
}
