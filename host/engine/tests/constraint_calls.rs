//! Calls in every shape: whatever a grammar lets through is read back as calls that satisfy their
//! schemas, what models of the families write is let through, and what cannot be held is refused.
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

use gristmill_core::{Code, Error};
use gristmill_engine::constraint::Checker;
use serde_json::{Value, json};

#[path = "common/spellings.rs"]
mod spellings;

use spellings::{SHAPES, check, dialect, large, read, request, small, tools, walk};

#[test]
fn what_a_grammar_lets_through_is_read_as_calls_that_satisfy_their_schemas() {
    let tokenizer = small();
    let checker = Checker::new(Arc::clone(&tokenizer)).unwrap();
    let tools = tools();
    for spelling in SHAPES {
        for parallel in [true, false] {
            let (mut whole, mut several) = (0, 0);
            let all = tools.iter().map(std::slice::from_ref).chain([&tools[..]]);
            for some in all {
                let request = request(some, parallel);
                let rule = checker.request(&request, &dialect(spelling)).unwrap().unwrap();
                for seed in 0..25 {
                    let Some(text) = walk(&rule, &tokenizer, seed) else { continue };
                    check(spelling, &request, some, &text);
                    whole += 1;
                    several += usize::from(read(&dialect(spelling), &request, &text).2.len() > 1);
                }
            }
            println!(
                "{spelling}, parallel {parallel}: {whole} answers, {several} with several calls"
            );
            assert!(whole >= 75, "{spelling}: {whole}");
            assert_eq!(several > 0, parallel, "{spelling}");
        }
    }
}

#[test]
fn the_same_holds_over_a_real_vocabulary() {
    let tokenizer = large();
    let checker = Checker::new(Arc::clone(&tokenizer)).unwrap();
    let tools = tools();
    // Its vocabulary has no marks of channels: harmony needs them.
    for spelling in SHAPES.into_iter().filter(|spelling| *spelling != "harmony") {
        let request = request(&tools, true);
        let rule = checker.request(&request, &dialect(spelling)).unwrap().unwrap();
        let mut whole = 0;
        for seed in 0..12 {
            let Some(text) = walk(&rule, &tokenizer, seed) else { continue };
            check(spelling, &request, &tools, &text);
            whole += 1;
        }
        assert!(whole >= 4, "{spelling}: {whole}");
    }
    let error = checker.request(&request(&tools, true), &dialect("harmony")).err().unwrap();
    assert_eq!((&error.code, error.detail("field")), (&Code::Unsupported, Some("tools")));
}

#[test]
fn what_models_write_is_let_through_and_what_breaks_the_schema_is_not() {
    let tokenizer = small();
    let checker = Checker::new(Arc::clone(&tokenizer)).unwrap();
    let (v, d) = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>");
    let (b, s, e) = ("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>");
    let kimi =
        |calls: &str| format!("<|tool_calls_section_begin|>{calls}<|tool_calls_section_end|>");
    let k = |head: &str, json: &str| {
        format!("<|tool_call_begin|>{head}<|tool_call_argument_begin|>{json}<|tool_call_end|>")
    };
    let dsml =
        |calls: &str| format!("<｜DSML｜function_calls>\n{calls}\n</｜DSML｜function_calls>");
    let i = |name: &str, inside: &str| {
        format!("<｜DSML｜invoke name=\"{name}\">\n{inside}\n</｜DSML｜invoke>")
    };
    let p = |name: &str, string: bool, value: &str| {
        format!(
            "<｜DSML｜parameter name=\"{name}\" string=\"{string}\">{value}</｜DSML｜parameter>"
        )
    };
    let cases: Vec<(&str, String, bool)> = vec![
        // As the templates of the families write calls into the history.
        ("qwen-coder", "<tool_call>\n<function=weather>\n<parameter=city>\nKöln\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>".into(), true),
        ("qwen-coder", "<tool_call>\n<function=weather>\n<parameter=city>\nKöln\n</parameter>\n<parameter=exact>\nTrue\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>".into(), true),
        ("seed", "<seed:tool_call>\n<function=weather>\n<parameter=city>Köln</parameter>\n<parameter=days>3</parameter>\n</function>\n</seed:tool_call>".into(), true),
        ("qwen-coder", "<tool_call>\n<function=texts>\n<parameter=free>\n<b>\n\n  </para> \"q\"\n</parameter>\n<parameter=like>\nab-12\n</parameter>\n<parameter=maybe>\nnull\n</parameter>\n<parameter=word>\nnil\n</parameter>\n<parameter=one>\nb\n</parameter>\n</function>\n</tool_call>".into(), true),
        ("qwen-coder", "<tool_call>\n<function=values>\n<parameter=list>\n[\"a\", \"</p>\"]\n</parameter>\n<parameter=deep>\n{\"of\": [null]}\n</parameter>\n</function>\n</tool_call>".into(), true),
        ("glm", "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Köln</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>".into(), true),
        ("glm", "<tool_call>weather<arg_key>city</arg_key><arg_value>Łódź</arg_value></tool_call><tool_call>now</tool_call>".into(), true),
        ("pythonic", "<|tool_call_start|>[weather(city=\"Köln\", days=3, exact=True, none=None), now()]<|tool_call_end|>".into(), true),
        ("pythonic", "<|tool_call_start|>[weather(city='Köln')]<|tool_call_end|>".into(), true),
        ("pythonic", "<|tool_call_start|>[values(list=['a', \"b\"], map={'x': 1}, deep={\"of\": [None]})]<|tool_call_end|>".into(), true),
        ("deepseek-old", format!("{v}{b}function{s}weather\n```json\n{{\"city\": \"Köln\"}}\n```{e}\n{b}function{s}now\n```json\n{{}}\n```{e}{d}"), true),
        ("deepseek", format!("{v}{b}weather{s}{{\"city\": \"Köln\", \"days\": 3}}{e}{b}now{s}{{}}{e}{d}"), true),
        ("kimi", kimi(&(k("functions.weather:0", "{\"city\": \"Köln\", \"days\": 3}") + &k("functions.now:1", "{}"))), true),
        ("kimi", kimi(&k("functions.now:41", "{}")), true),
        ("dsml", dsml(&i("weather", &format!("{}\n{}\n{}", p("city", true, "Köln"), p("days", false, "3"), p("none", false, "null")))), true),
        ("dsml", dsml(&format!("{}\n{}", i("now", ""), i("weather", &p("city", true, "a \"b\" 'c' \\ </p>\n")))), true),
        ("dsml", dsml(&i("texts", &[p("free", true, ""), p("like", true, "ab-12"), p("maybe", false, "null"), p("null", true, "null"), p("word", true, "null"), p("one", false, "7"), p("any", false, "[\"a\"]"), p("both", true, "12")].concat())), true),
        ("dsml", dsml(&i("open", &[p("n", false, "1"), p("m", true, "abcd"), p("other", true, "x")].concat())), true),
        ("harmony", "<|channel|>analysis<|message|>The user wants it.<|end|><|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\":\"Köln\"}".into(), true),
        ("harmony", " to=functions.weather<|channel|>commentary json<|message|>{\"city\": \"Köln\", \"days\": 3}".into(), true),
        ("harmony", "<|channel|>commentary to=functions.now<|message|>{}<|end|><|start|>assistant<|channel|>commentary to=functions.now<|message|>{}".into(), true),
        // Values, names and places that the schemas do not have.
        ("qwen-coder", "<tool_call>\n<function=weather>\n<parameter=city>\nBonn\n</parameter>\n</function>\n</tool_call>".into(), false),
        ("qwen-coder", "<tool_call>\n<function=weather>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>".into(), false),
        ("qwen-coder", "<tool_call>\n<function=weather>\n<parameter=city>\nKöln\n</parameter>\n<parameter=days>\n9\n</parameter>\n</function>\n</tool_call>".into(), false),
        ("qwen-coder", "<tool_call>\n<function=sun>\n</function>\n</tool_call>".into(), false),
        ("qwen-coder", "I will call it.".into(), false),
        ("qwen-coder", "<tool_call>\n<function=now>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>".into(), false),
        ("qwen-coder", "<tool_call>\n<function=texts>\n<parameter=free>\n\n</parameter>\n<parameter=like>\nab-1\n</parameter>\n<parameter=word>\nnil\n</parameter>\n<parameter=one>\nb\n</parameter>\n</function>\n</tool_call>".into(), false),
        // `d` satisfies no alternative of `oneOf`, and `null` is not among the texts.
        ("glm", "<tool_call>texts<arg_key>free</arg_key><arg_value></arg_value><arg_key>like</arg_key><arg_value>a</arg_value><arg_key>word</arg_key><arg_value>nil</arg_value><arg_key>one</arg_key><arg_value>d</arg_value></tool_call>".into(), false),
        ("glm", "<tool_call>texts<arg_key>free</arg_key><arg_value></arg_value><arg_key>like</arg_key><arg_value>a</arg_value><arg_key>word</arg_key><arg_value>null</arg_value><arg_key>one</arg_key><arg_value>b</arg_value></tool_call>".into(), false),
        ("glm", "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>\nKöln</arg_value>\n</tool_call>".into(), false),
        ("glm", "<tool_call>values<arg_key>list</arg_key><arg_value>[\"</arg_value>\"]</arg_value><arg_key>deep</arg_key><arg_value>{\"of\": null}</arg_value></tool_call>".into(), false),
        ("pythonic", "<|tool_call_start|>[weather(city=\"Bonn\")]<|tool_call_end|>".into(), false),
        ("pythonic", "<|tool_call_start|>[weather(\"Köln\")]<|tool_call_end|>".into(), false),
        ("pythonic", "<|tool_call_start|>[]<|tool_call_end|>".into(), false),
        ("deepseek", format!("{v}{b}weather{s}{{\"city\": \"Bonn\"}}{e}{d}"), false),
        ("deepseek", format!("{v}{d}"), false),
        ("kimi", kimi(&k("functions.weather:0", "{\"city\": \"Bonn\"}")), false),
        ("kimi", kimi(&k("weather:0", "{\"city\": \"Köln\"}")), false),
        ("kimi", kimi(""), false),
        ("dsml", dsml(&i("weather", &p("city", true, "Bonn"))), false),
        ("dsml", dsml(&i("weather", &p("city", false, "\"Köln\""))), false),
        ("dsml", dsml(&i("weather", &(p("city", true, "Köln") + &p("days", true, "3")))), false),
        ("dsml", dsml(&i("weather", &p("days", false, "3"))), false),
        ("dsml", dsml(&i("texts", &[p("free", true, ""), p("like", true, "a"), p("word", false, "null"), p("one", true, "a")].concat())), false),
        ("dsml", dsml(&i("values", &(p("list", false, "[\"</｜DSML｜parameter>\"]") + &p("deep", false, "{\"of\": null}")))), false),
        ("dsml", dsml(""), false),
        ("harmony", "<|channel|>analysis<|message|>I will not.<|end|>".into(), false),
        ("harmony", "<|channel|>final<|message|>No.".into(), false),
        ("harmony", "<|channel|>commentary to=functions.weather<|message|>{}".into(), false),
    ];
    let tools = tools();
    for (spelling, text, taken) in cases {
        let request = request(&tools, true);
        let rule = checker.request(&request, &dialect(spelling)).unwrap().unwrap();
        assert_eq!(rule.accepts_marked(&text).unwrap(), taken, "{spelling}: {text}");
        if taken {
            check(spelling, &request, &tools, &text);
        }
    }
}

#[test]
fn what_a_shape_cannot_hold_is_refused_with_its_path() {
    let checker = Checker::new(small()).unwrap();
    let object = |properties: Value| json!({ "type": "object", "properties": properties });
    let cases = [
        (
            &["xml", "glm", "dsml"][..],
            object(json!({ "a": { "type": "string", "pattern": "x(^a|b)" } })),
            "/properties/a/pattern",
        ),
        (
            &["xml", "glm"],
            object(json!({ "a": { "type": ["string", "null"], "enum": ["null"] } })),
            "/properties/a",
        ),
        (&["xml", "glm"], object(json!({ "a": { "not": { "type": "string" } } })), "/properties/a"),
        (&["xml", "dsml"], object(json!({ "a<b": {} })), "/properties/a<b"),
        (&["dsml"], object(json!({ "a\"b": {} })), "/properties/a\"b"),
        (
            &["dsml"],
            object(json!({ "a": { "items": { "const": "</｜DSML｜parameter>" } } })),
            "/properties/a",
        ),
        (
            &["xml"],
            object(json!({ "a": { "type": "array", "items": { "const": "</parameter>" } } })),
            "/properties/a",
        ),
        (&["glm"], object(json!({ "</arg_key>": {} })), "/properties/<~1arg_key>"),
        (&["pythonic"], object(json!({ "a b": {} })), "/properties/a b"),
        (
            &["xml", "glm", "dsml", "pythonic"],
            json!({ "type": "object", "anyOf": [{ "required": ["a"] }, {}] }),
            "/anyOf",
        ),
        (
            &["xml", "glm", "dsml", "pythonic"],
            json!({ "type": "object", "patternProperties": { "^a": {} } }),
            "/patternProperties",
        ),
        (
            &["xml", "glm", "dsml", "pythonic"],
            json!({ "type": "object", "minProperties": 1 }),
            "/minProperties",
        ),
        (
            &["xml", "glm", "dsml", "pythonic"],
            json!({ "$ref": "#/$defs/a", "$defs": { "a": { "type": "object", "propertyNames": { "enum": ["b"] } } } }),
            "/$defs/a/propertyNames",
        ),
        (
            &["xml", "glm", "dsml", "pythonic"],
            json!({ "type": "object", "dependentRequired": { "a": ["b"] } }),
            "/dependentRequired",
        ),
        (
            &["xml", "glm", "dsml", "pythonic"],
            json!({ "type": "object", "required": ["a"], "additionalProperties": false }),
            "/required",
        ),
        (&["xml", "glm", "dsml", "pythonic"], json!({ "type": "array" }), "/type"),
        (
            &["xml", "glm", "dsml", "pythonic", "deepseek", "kimi", "harmony"],
            object(json!({ "a": { "uniqueItems": true } })),
            "/properties/a/uniqueItems",
        ),
    ];
    let spelling =
        |shape: &str| if shape == "xml" { "qwen-coder".to_owned() } else { shape.to_owned() };
    for (shapes, schema, path) in &cases {
        for shape in *shapes {
            let strict = request(&[("f", schema.clone())], true);
            let error = checker.request(&strict, &dialect(&spelling(shape))).err();
            let error: Error = error.unwrap_or_else(|| panic!("{shape} takes {schema}"));
            assert_eq!(error.code, Code::InvalidRequest, "{error}");
            assert_eq!(error.detail("path"), Some(*path), "{shape}: {error}");
            let field = format!("tools/0/parameters{path}");
            assert_eq!(error.detail("field"), Some(field.as_str()));
        }
    }
    // Not strict: some arguments of the declared names are enough.
    let schema = object(
        json!({ "a": { "type": "string", "pattern": "x(^a|b)" }, "n": { "type": "integer" } }),
    );
    let mut loose = request(&[("f", schema)], true);
    loose.tools[0].strict = None;
    let rule = checker.request(&loose, &dialect("qwen-coder")).unwrap().unwrap();
    let call = |n: &str| {
        format!(
            "<tool_call><function=f><parameter=a>any</parameter><parameter=n>{n}</parameter></function></tool_call>"
        )
    };
    assert!(rule.accepts(&call("1")).unwrap() && !rule.accepts(&call("[]")).unwrap());
    // A name that no call could be read back with.
    for (shape, name) in [
        ("qwen-coder", "a>b"),
        ("glm", "a\nb"),
        ("pythonic", "a b"),
        ("deepseek", "{a"),
        ("kimi", "a<b"),
        ("dsml", "a\"b"),
        ("harmony", "a b"),
    ] {
        let error = checker.request(&request(&[(name, json!({}))], true), &dialect(shape));
        let error = error.err().unwrap();
        assert_eq!(
            (&error.code, error.detail("field")),
            (&Code::InvalidRequest, Some("tools/0/name"))
        );
    }
}
