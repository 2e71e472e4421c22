//! Tool choice on random models: forced calls are calls in the family's spelling, strict arguments
//! satisfy their schema, and a cut call leaves no marks behind.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests may fail loudly"
)]

mod common;

use common::{
    random::{MARK, Noise, noise, noise_marked, wild},
    serve::{Answer, ask},
};
use gristmill_core::{
    Code,
    capability::Support,
    program::{Dialect, Span, ToolFormat},
    request::{Constraint, Reasoning, Request, Tool, ToolChoice},
};
use serde_json::{Value, json};

/// The marks of messages on channels.
const CHANNELS: [&str; 5] = ["<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>"];

fn dialect(open: &str, close: &str, shape: &str) -> Dialect {
    let (name, arguments) = match shape {
        "xml" => ("function", "parameter"),
        "glm" => ("", "arg_key"),
        "deepseek" => ("function", ""),
        "mistral" => ("", "[ARGS]"),
        "dsml" => ("｜DSML｜invoke", "｜DSML｜parameter"),
        _ => ("name", "arguments"),
    };
    Dialect {
        tools: Some(ToolFormat {
            open: open.into(),
            close: close.into(),
            shape: shape.into(),
            name_key: name.into(),
            arguments_key: arguments.into(),
            extras: Vec::new(),
        }),
        ..Dialect::default()
    }
}

fn tool(name: &str, parameters: &Value, strict: bool) -> Tool {
    Tool {
        name: name.into(),
        description: Some("quotes \" braces } and <tool_call> marks ```".into()),
        parameters: parameters.to_string(),
        strict: Some(strict),
        extras: Vec::new(),
    }
}

fn weather() -> Value {
    json!({"$schema": "http://json-schema.org/draft-07/schema#", "$id": "urn:weather", "type": "object",
        "description": "\"}]</tool_call>", "properties": {
            "city": {"enum": ["Köln", "Łódź"]}, "days": {"$ref": "#/definitions/days"}},
        "required": ["city"], "additionalProperties": false,
        "definitions": {"days": {"type": "integer", "minimum": 1, "maximum": 7}}})
}

fn request(seed: u64, choice: ToolChoice) -> Request {
    let mut request = wild(seed, 1500);
    request.tools = vec![
        tool("weather", &weather(), true),
        tool(
            "now",
            &json!({"type": "object", "properties": {}, "additionalProperties": false}),
            true,
        ),
    ];
    request.tool_choice = choice;
    request
}

async fn answers(noise: &Noise, bound: impl Fn(u64) -> Request) -> Vec<Answer> {
    let mut out = Vec::new();
    for seed in 0..12 {
        out.push(ask(&noise.model, bound(seed)).await);
    }
    out
}

fn check(answer: &Answer) {
    for (name, arguments, ended) in &answer.calls {
        if !ended {
            assert_eq!(answer.reason(), "length", "{answer:?}");
            continue;
        }
        let value: Value = serde_json::from_str(arguments).unwrap();
        match name.as_str() {
            "weather" => assert!(jsonschema::is_valid(&weather(), &value), "{value}"),
            "now" => assert_eq!(value, json!({})),
            other => panic!("no tool {other}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forced_call_is_a_call_in_every_spelling() {
    for (open, close, shape) in [
        ("<tool_call>", "</tool_call>", "json"),
        (MARK, "", "json-list"),
        (MARK, MARK, "json"),
        ("<tool_call>", "</tool_call>", "json-list"),
        ("", "", "json"),
        ("<tool_call>", "</tool_call>", "xml"),
        (MARK, MARK, "xml"),
        ("<tool_call>", "</tool_call>", "glm"),
        (MARK, "", "mistral"),
        (MARK, "<|tool_call_end|>", "pythonic"),
        ("<|list|>", "<|list_end|>", "deepseek"),
        ("<|list|>", "<|list_end|>", "kimi"),
        ("<｜DSML｜tool_calls>", MARK, "dsml"),
        ("", "", "harmony"),
    ] {
        let marks = if shape == "harmony" { &CHANNELS[..] } else { &[] };
        let mut dialect = dialect(open, close, shape);
        if shape == "harmony" {
            dialect.reasoning = Some(Span {
                open: "<|channel|>analysis<|message|>".into(),
                close: "<|end|>".into(),
                open_at_start: false,
            });
        }
        let noise = noise_marked(dialect, marks).await;
        for (choice, parallel) in [
            (ToolChoice::Required, None),
            (ToolChoice::Required, Some(false)),
            (ToolChoice::Named("now".into()), Some(false)),
        ] {
            // Noise would hardly ever end a thought.
            let all = answers(&noise, |seed| Request {
                parallel_tool_calls: parallel,
                reasoning: Reasoning::Off,
                ..request(seed, choice.clone())
            })
            .await;
            for answer in &all {
                check(answer);
                // Where the answer was cut inside a mark, the mark's beginning is text.
                let begun = answer.text.trim_start();
                assert!(open.starts_with(begun), "{answer:?}");
                assert!(answer.text.is_empty() || answer.reason() == "length", "{answer:?}");
                assert!(!answer.calls.is_empty(), "{answer:?}");
                let named = matches!(choice, ToolChoice::Named(_));
                assert!(!named || answer.calls.iter().all(|call| call.0 == "now"), "{answer:?}");
                if parallel == Some(false) {
                    assert_eq!(
                        (answer.reason(), answer.calls.len()),
                        ("tool-calls", 1),
                        "{answer:?}"
                    );
                }
            }
            if parallel.is_none() && !open.is_empty() {
                assert!(
                    all.iter().any(|answer| answer.calls.len() > 1),
                    "{shape}: never two calls"
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_the_model_begins_by_itself_is_bound_when_the_tool_is_strict() {
    // The mark as a token of its own; as letters that tokens can write past; and none.
    for (open, close, shape) in [
        (MARK, "</call>", "json"),
        ("ta", "</call>", "json"),
        ("", "", "json"),
        (MARK, "</call>", "xml"),
        (MARK, "</call>", "glm"),
        (MARK, "", "mistral"),
        (MARK, "</call>", "pythonic"),
        (MARK, "</call>", "deepseek"),
        (MARK, "</call>", "kimi"),
        (MARK, "</call>", "dsml"),
    ] {
        let noise = noise(dialect(open, close, shape)).await;
        let all = answers(&noise, |seed| {
            let mut request = request(seed, ToolChoice::Auto);
            request.parallel_tool_calls = Some(false);
            // A mark every dozen tokens; without marks, a brace as the first token now and then.
            let wanted = if open.is_empty() { "{" } else { open };
            let mark = noise.model.tokenize(wanted, true).unwrap();
            assert_eq!(mark.len(), 1);
            request.sampling.logit_bias = vec![(mark[0], if open.is_empty() { 12.0 } else { 6.0 })];
            request.max_tokens = Some(600);
            request
        })
        .await;
        for answer in &all {
            check(answer);
            let opened = answer.text.matches(open).count();
            assert!(open.is_empty() || opened == 0, "{answer:?}");
        }
        let called = all.iter().filter(|answer| answer.calls.iter().any(|call| call.2)).count();
        assert!(called >= 4, "{shape} {open:?}: {called} of 12 called");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_and_tools_give_one_or_the_other() {
    let noise = noise(dialect("<tool_call>", "</tool_call>", "json")).await;
    let schema = json!({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": false});
    let all = answers(&noise, |seed| {
        let mut request = request(seed, ToolChoice::Auto);
        request.constraint = Some(Constraint::JsonSchema(schema.to_string()));
        request
    })
    .await;
    let mut kinds = [0, 0];
    for answer in &all {
        check(answer);
        if answer.calls.is_empty() && answer.reason() == "stop" {
            assert!(jsonschema::is_valid(&schema, &serde_json::from_str(&answer.text).unwrap()));
            kinds[0] += 1;
        } else {
            assert_eq!(answer.text, "", "{answer:?}");
            kinds[1] += 1;
        }
    }
    assert!(kinds[0] > 0 && kinds[1] > 0, "{kinds:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_call_ends_with_length_and_without_marks() {
    let noise = noise(dialect("<tool_call>", "</tool_call>", "json")).await;
    for most in 11..60 {
        let mut request = request(u64::from(most), ToolChoice::Required);
        request.max_tokens = Some(most);
        let answer = ask(&noise.model, request).await;
        // Until the mark is whole, it is text that may be anything.
        if answer.reason() == "length" && !answer.calls.is_empty() {
            assert_eq!(answer.text, "", "{answer:?}");
        }
        assert!(
            answer.text.len() < "<tool_call>".len() && "<tool_call>".starts_with(&answer.text),
            "{answer:?}"
        );
        assert!(matches!(answer.reason(), "length" | "tool-calls"), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn none_is_free_and_what_cannot_be_forced_is_refused_by_name() {
    let mut thinks = dialect("<tool_call>", "</tool_call>", "json");
    thinks.reasoning =
        Some(Span { open: "<think>".into(), close: "</think>".into(), open_at_start: false });
    let noise = noise(thinks).await;
    let answer =
        ask(&noise.model, Request { max_tokens: Some(8), ..request(1, ToolChoice::None) }).await;
    assert!(answer.calls.is_empty() && answer.usage.completion > 0);

    let unique = json!({"type": "object", "properties": {"a": {"uniqueItems": true}}});
    let mut strict = request(1, ToolChoice::Auto);
    strict.tools.push(tool("odd", &unique, true));
    let error = noise.model.generate(strict.clone()).await.err().unwrap();
    assert_eq!(error.code, Code::InvalidRequest, "{error}");
    assert_eq!(error.detail("field"), Some("tools/2/parameters/properties/a/uniqueItems"));
    assert_eq!(error.detail("path"), Some("/properties/a/uniqueItems"));
    // Not strict: some object is enough, and a call the model may leave is not bound at all.
    strict.tools[2].strict = None;
    strict.tool_choice = ToolChoice::Named("odd".into());
    strict.parallel_tool_calls = Some(false);
    let answer = ask(&noise.model, strict).await;
    assert!(
        answer.calls.iter().all(|call| call.0 == "odd") && !answer.calls.is_empty(),
        "{answer:?}"
    );

    let error =
        noise.model.generate(request(1, ToolChoice::Named("sun".into()))).await.err().unwrap();
    assert_eq!((&error.code, error.detail("field")), (&Code::InvalidRequest, Some("tool_choice")));
    let mut both = request(1, ToolChoice::Auto);
    both.constraint = Some(Constraint::Regex("a+".into()));
    let error = noise.model.generate(both).await.err().unwrap();
    assert_eq!((&error.code, error.detail("field")), (&Code::Unsupported, Some("constraint")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shape_that_is_not_known_is_refused_by_name_and_what_is_read_can_be_bound() {
    for (shape, read) in [
        ("json", true),
        ("json-list", true),
        ("xml", true),
        ("glm", true),
        ("mistral", true),
        ("pythonic", true),
        ("deepseek", true),
        ("kimi", true),
        ("dsml", true),
        ("harmony", true),
        ("smoke", false),
        ("", false),
    ] {
        let noise = noise(dialect("<tool_call>", "</tool_call>", shape)).await;
        let claims = noise.model.info().claims;
        for name in ["tools.calling", "tools.required"] {
            let claim = claims.iter().find(|claim| claim.name == name).unwrap();
            match &claim.support {
                Support::Supported => assert!(read, "{shape}: {name}"),
                Support::Unsupported(reason) => {
                    assert!(!read && reason.detail.contains(&format!("`{shape}`")), "{reason:?}");
                }
                other => panic!("{shape}: {other:?}"),
            }
        }
        let mut loose = request(1, ToolChoice::Auto);
        loose.tools.iter_mut().for_each(|tool| tool.strict = None);
        loose.max_tokens = Some(8);
        match noise.model.generate(loose.clone()).await {
            Ok(_) => assert!(read, "{shape}"),
            Err(error) => {
                assert!(!read && error.message.contains(&format!("`{shape}`")), "{error}");
                assert_eq!(
                    (&error.code, error.detail("field")),
                    (&Code::Unsupported, Some("tools"))
                );
            }
        }
        let none = ask(&noise.model, Request { tool_choice: ToolChoice::None, ..loose }).await;
        assert!(none.calls.is_empty() && none.usage.completion > 0, "{shape}");
    }
}
