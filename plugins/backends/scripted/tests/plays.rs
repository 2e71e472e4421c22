//! What the scripted back-end plays, line by line and batch by batch.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

use gristmill_backend_scripted::Scripted;
use gristmill_plugin::prelude::*;

fn request(prompt: &str) -> Request {
    let user = Message::text(Role::User, prompt);
    Request::new("scripted", Prompt::Chat(vec![Message::text(Role::System, "be brief"), user]))
}

/// Every batch of an answer, and the error that ended it.
fn batches(request: Request, max: u32) -> (Vec<Vec<Event>>, Option<Error>) {
    let mut answer = Scripted::generate(request).expect("the answer starts");
    let mut batches = Vec::new();
    loop {
        match answer.next(max) {
            Ok(Some(batch)) => batches.push(batch),
            Ok(None) => return (batches, None),
            Err(error) => return (batches, Some(error)),
        }
    }
}

fn events(prompt: &str) -> Vec<Event> {
    let (batches, error) = batches(request(prompt), 1000);
    assert_eq!(error, None);
    batches.concat()
}

fn text(events: &[Event]) -> String {
    let texts = events.iter().filter_map(|event| match event {
        Event::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

#[test]
fn a_script_plays_every_event() {
    let played = events(
        "reasoning let me see\ntext Hello \ntext world\\n\ntoken 7 -0.5 !\n\
         tool call_1 weather {\"city\":\"Rome\"}\ntool-start call_2 clock\ntool-arguments {\n\
         tool-arguments }\ntool-end\nother mood fine\ntimings 1 2 3 4\nusage 9 8 7 6\nfinish stop END",
    );
    let usage = Usage { prompt: 9, cached: 7, completion: 8, reasoning: 6, extras: vec![] };
    let timings = Timings { queue: 1, load: 2, prefill: 3, decode: 4, extras: vec![] };
    let token = TokenInfo { id: 7, bytes: b"!".to_vec(), logprob: -0.5, alternatives: vec![] };
    let start = |index, id: &str, name: &str| {
        Event::ToolStart(ToolStart { index, id: id.into(), name: name.into() })
    };
    assert_eq!(
        played,
        [
            Event::Reasoning("let me see".into()),
            Event::Text("Hello ".into()),
            Event::Text("world\n".into()),
            Event::Text("!".into()),
            Event::Tokens(vec![token]),
            start(0, "call_1", "weather"),
            Event::ToolArguments((0, "{\"city\":\"Rome\"}".into())),
            Event::ToolEnd(0),
            start(1, "call_2", "clock"),
            Event::ToolArguments((1, "{".into())),
            Event::ToolArguments((1, "}".into())),
            Event::ToolEnd(1),
            Event::Other(("mood".into(), "fine".into())),
            Event::Timings(timings),
            Event::Usage(usage),
            Event::Finish(Finish { reason: "stop".into(), stop: Some("END".into()) }),
        ]
    );
}

#[test]
fn an_open_script_is_closed() {
    assert_eq!(events("text a").last(), Some(&Event::finish("stop")));
    let called = events("tool a b {}");
    assert_eq!(called.last(), Some(&Event::finish("tool-calls")));
    let usages = |events: &[Event]| events.iter().filter(|e| matches!(e, Event::Usage(_))).count();
    assert_eq!(usages(&called), 1);
    assert_eq!(usages(&events("text a\nusage 1 1")), 1);
}

#[test]
fn what_breaks_the_contract_is_played_too() {
    assert_eq!(events("text a\nend"), [Event::Text("a".into())]);
    let late = events("finish stop\ntext late");
    assert_eq!(late.first(), Some(&Event::finish("stop")));
    assert_eq!(late.get(1), Some(&Event::Text("late".into())));
}

#[test]
fn bytes_become_text_when_a_character_is_whole() {
    let played = events("bytes 61 c3\nbytes a9e2 82\nbytes ac ff 62");
    let texts: Vec<&Event> = played.iter().filter(|e| matches!(e, Event::Text(_))).collect();
    assert_eq!(
        texts,
        [&Event::Text("a".into()), &Event::Text("é".into()), &Event::Text("€\u{fffd}b".into())]
    );
}

#[test]
fn batches_are_as_large_as_asked_for_and_end_at_a_flush() {
    let sizes = |prompt: &str, max| -> Vec<usize> {
        batches(request(prompt), max).0.iter().map(Vec::len).collect()
    };
    let script = "text a\ntext b\nflush\ntext c\nusage 1 1\nfinish stop";
    assert_eq!(sizes(script, 100), [2, 3]);
    assert_eq!(sizes(script, 1), [1, 1, 1, 1, 1]);
    assert_eq!(sizes("repeat 5 text x\nusage 1 5\nfinish stop", 2), [2, 2, 2, 1]);
    assert_eq!(sizes("flush\nflush\nend", 2), [0; 0]);
    assert_eq!(sizes("repeat 0 text x\nfinish stop", 9), [1]);
}

#[test]
fn errors_come_before_or_inside_the_stream() {
    let busy = Scripted::generate(request("error busy retry=250 try later")).err().unwrap();
    assert_eq!(
        (&*busy.code, &*busy.message, busy.retry_after_ms),
        ("busy", "try later", Some(250))
    );

    let (seen, error) = batches(request("text a\nerror upstream-error it broke"), 100);
    assert_eq!(seen, [[Event::Text("a".into())]]);
    assert_eq!(error.unwrap().code, "upstream-error");

    let (seen, error) = batches(request("flush\nerror internal at once"), 100);
    assert_eq!((seen.len(), error.unwrap().code), (0, "internal".into()));

    let wrong = Scripted::generate(request("text a\nwrite b")).err().unwrap();
    assert_eq!(wrong.message, "line 2 of the script: write is no command");
}

#[test]
fn a_prompt_that_is_no_script_is_echoed_under_the_limits() {
    let played = events("The sky is blue.");
    assert_eq!(text(&played), "The sky is blue.");
    assert_eq!(played.len(), 6);

    let mut short = request("one two three");
    short.max_tokens = Some(2);
    let short = batches(short, 100).0.concat();
    assert_eq!((text(&short).as_str(), short.last()), ("one two ", Some(&Event::finish("length"))));

    let mut stopped = request("one two three");
    stopped.stop = vec!["three".into(), "o th".into(), String::new()];
    let stopped = batches(stopped, 100).0.concat();
    assert_eq!(text(&stopped), "one tw");
    let finish = Finish { reason: "stop".into(), stop: Some("o th".into()) };
    assert_eq!(stopped.last(), Some(&Event::Finish(finish)));
}

#[test]
fn every_kind_of_prompt_carries_a_script() {
    let tokens = Scripted::tokenize("scripted", "text é", false).unwrap();
    assert_eq!(Scripted::detokenize("scripted", &tokens).unwrap(), "text é".as_bytes());
    for prompt in [
        Prompt::Text("text é".into()),
        Prompt::Infill(("text é".into(), "after".into())),
        Prompt::Tokens(tokens),
    ] {
        let played = batches(Request::new("scripted:latest", prompt), 100).0.concat();
        assert_eq!(text(&played), "é");
    }
    assert_eq!(Scripted::detokenize("scripted", &[256]).unwrap_err().code, "invalid-request");
}

#[test]
fn a_test_sees_the_request() {
    let mut asked = request("request");
    asked.sampling.temperature = Some(0.7);
    asked.sampling.seed = Some(u64::MAX);
    asked.stop = vec!["a\"b".into()];
    asked.reasoning = Reasoning::Effort("low".into());
    let played = batches(asked, 100).0.concat();
    assert_eq!(
        text(&played),
        "{\"id\":\"\",\"model\":\"scripted\",\"chat\":[{\"role\":\"system\",\"content\":\"be brief\"},\
         {\"role\":\"user\",\"content\":\"request\"}],\"reasoning\":\"effort low\",\
         \"sampling\":{\"temperature\":0.7,\"seed\":18446744073709551615},\"stop\":[\"a\\\"b\"]}"
    );
}

#[test]
fn vectors_have_length_one_and_know_words() {
    let embed = |inputs: &[&str], dimensions, truncate| {
        Scripted::embed(EmbedRequest {
            model: "scripted".into(),
            inputs: inputs.iter().map(|&text| text.into()).collect(),
            dimensions,
            truncate,
            extras: vec![],
        })
    };
    let three = embed(&["the red house", "House red the", ""], None, false).unwrap();
    assert_eq!((three.dim, three.rows, three.data.len(), three.prompt_tokens), (8, 3, 24, 6));
    let rows: Vec<&[f32]> = three.data.chunks(8).collect();
    for row in &rows {
        assert!((row.iter().map(|x| x * x).sum::<f32>() - 1.0).abs() < 1e-5);
    }
    let close = rows[0].iter().zip(rows[1]).all(|(a, b)| (a - b).abs() < 1e-6);
    assert!(close, "the same words in another order and case");

    let long = "word ".repeat(513);
    let error = embed(&[&long], None, false).unwrap_err();
    assert_eq!(
        (&*error.code, gristmill_plugin::extra(&error.details, "limit")),
        ("context-overflow", Some("512"))
    );
    assert_eq!(embed(&[&long], Some(3), true).unwrap().prompt_tokens, 512);
    assert_eq!(embed(&["a"], Some(0), true).unwrap_err().code, "invalid-request");
}

#[test]
fn documents_are_ranked_by_shared_words() {
    let ranked = Scripted::rerank(RerankRequest {
        model: "scripted".into(),
        query: "red house".into(),
        documents: ["a tree", "a Red House", "red"].map(Into::into).into(),
        top_n: Some(2),
        extras: vec![],
    })
    .unwrap();
    let order: Vec<(u32, f32)> = ranked.iter().map(|r| (r.index, r.score)).collect();
    assert_eq!(order, [(1, 1.0), (2, 0.5)]);
}

#[test]
fn another_model_is_not_found() {
    let error = Scripted::generate(Request::new("llama", Prompt::Text("hi".into()))).err().unwrap();
    assert_eq!(error.code, "not-found");
}
