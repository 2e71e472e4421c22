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

use gristmill_core::{
    Code, Error,
    event::Event,
    program::{Dialect, Span, ToolFormat},
    request::{Constraint, Prompt, Reasoning, Request, Tool, ToolChoice},
};
use gristmill_engine::{
    constraint::{Checker, Rule},
    text::{Assembler, Offer, Reading},
};
use gristmill_models::{Gguf, Tokenizer};
use gristmill_testing::models::{Family, Random, Shape, write_marked};
use serde_json::{Value, json};

#[path = "common/suite.rs"]
mod suite;

/// Marks of Mistral, DeepSeek and harmony.
const MARKS: [&str; 15] = [
    "[TOOL_CALLS]",
    "[CALL_ID]",
    "[ARGS]",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>",
    "<|start|>",
    "<|channel|>",
    "<|constrain|>",
    "<|message|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
];

fn small() -> Arc<Tokenizer> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("words.gguf");
    let shape = Shape { layers: 1, vocabulary: 900, ..Shape::tiny(Family::Llama) };
    write_marked(&shape, "q8_0", 1, &MARKS, &path).unwrap();
    Arc::new(Tokenizer::from_gguf(&Gguf::open(&path).unwrap()).unwrap())
}

/// The 151,936 tokens of Qwen 2.
fn large() -> Arc<Tokenizer> {
    let models = gristmill_testing::fetch::llama_cpp_models().unwrap();
    let vocabulary = Gguf::open(models.join("ggml-vocab-qwen2.gguf")).unwrap();
    Arc::new(Tokenizer::from_gguf(&vocabulary).unwrap())
}

const SHAPES: [&str; 8] =
    ["qwen-coder", "seed", "glm", "mistral", "pythonic", "deepseek", "deepseek-old", "harmony"];

fn dialect(spelling: &str) -> Dialect {
    let (open, close, shape, name, arguments) = match spelling {
        "qwen-coder" => ("<tool_call>", "</tool_call>", "xml", "function", "parameter"),
        "seed" => ("<seed:tool_call>", "</seed:tool_call>", "xml", "function", "parameter"),
        "glm" => ("<tool_call>", "</tool_call>", "glm", "", "arg_key"),
        "pythonic" => ("<|tool_call_start|>", "<|tool_call_end|>", "pythonic", "", ""),
        "mistral" => ("[TOOL_CALLS]", "", "mistral", "[CALL_ID]", "[ARGS]"),
        "deepseek" => ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "deepseek", "", ""),
        "deepseek-old" => {
            ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "deepseek", "function", "")
        }
        _ => ("<|channel|>commentary to=functions.", "<|call|>", "harmony", "", ""),
    };
    let reasoning = (spelling == "harmony").then(|| Span {
        open: "<|channel|>analysis<|message|>".into(),
        close: "<|end|>".into(),
        open_at_start: false,
    });
    Dialect {
        tools: Some(ToolFormat {
            open: open.into(),
            close: close.into(),
            shape: shape.into(),
            name_key: name.into(),
            arguments_key: arguments.into(),
            extras: Vec::new(),
        }),
        reasoning,
        ..Dialect::default()
    }
}

fn tool(name: &str, parameters: &Value, strict: bool) -> Tool {
    Tool {
        name: name.into(),
        description: None,
        parameters: parameters.to_string(),
        strict: Some(strict),
        extras: Vec::new(),
    }
}

fn request(tools: &[(&str, Value)], parallel: bool) -> Request {
    let mut request = Request::new("test", "model", Prompt::Text(String::new()));
    request.tools = tools.iter().map(|(name, schema)| tool(name, schema, true)).collect();
    request.tool_choice = ToolChoice::Required;
    request.parallel_tool_calls = Some(parallel);
    request
}

/// Tools with what schemas of tools are made of.
fn tools() -> Vec<(&'static str, Value)> {
    let closed = |properties: Value, required: Value| json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false });
    vec![
        ("now", closed(json!({}), json!([]))),
        (
            "weather",
            closed(
                json!({
                    "city": { "enum": ["Köln", "Łódź", "a \"b\" 'c' \\ </p>\n"] },
                    "days": { "type": "integer", "minimum": 1, "maximum": 7 },
                    "exact": { "type": "boolean" },
                    "none": { "type": "null" },
                }),
                json!(["city"]),
            ),
        ),
        (
            "texts",
            closed(
                json!({
                    "free": { "type": "string" },
                    "short": { "type": "string", "minLength": 1, "maxLength": 3 },
                    "like": { "type": "string", "pattern": "^[a-c]+(-[0-9]{2})?$|[x-z]" },
                    "day": { "type": "string", "format": "date" },
                    "maybe": { "anyOf": [{ "type": "string", "maxLength": 5 }, { "type": "null" }] },
                    "null": { "type": ["string", "null"], "enum": ["null", "a", null] },
                    "word": { "enum": ["null", "nil"], "type": ["string", "null"] },
                    "one": { "oneOf": [{ "const": "a" }, { "enum": ["c", "b"] }, { "type": "integer" }] },
                    "any": {},
                    "both": { "type": ["string", "integer"], "maxLength": 2 },
                }),
                json!(["free", "like", "word", "one"]),
            ),
        ),
        (
            "values",
            json!({ "type": "object",
                "$defs": { "tree": { "type": "object", "properties": {
                    "name": { "type": "string" },
                    "below": { "type": "array", "items": { "$ref": "#/$defs/tree" }, "maxItems": 2 } },
                    "required": ["name"] } },
                "properties": {
                    "list": { "type": "array", "items": { "type": "string" }, "minItems": 1, "maxItems": 3 },
                    "pair": { "type": "array", "prefixItems": [{ "type": "number" }, { "type": "boolean" }], "items": false },
                    "tree": { "$ref": "#/$defs/tree" },
                    "map": { "type": "object", "additionalProperties": { "type": "integer" } },
                    "free": { "type": "object" },
                    "more": { "type": "object", "properties": { "a": { "type": "boolean" }, "ab": {} }, "additionalProperties": { "type": "null" } },
                    "level": { "enum": [1, 2.5, null] },
                    "x": { "type": "number" },
                    "step": { "type": "integer", "multipleOf": 5 },
                    "deep": { "type": "object", "properties": {
                        "on": { "type": "boolean" }, "of": { "type": ["array", "null"], "items": { "type": "null" } } },
                        "required": ["of"], "additionalProperties": false },
                },
                "required": ["list", "deep"] }),
        ),
        (
            "open",
            json!({ "$ref": "#/$defs/all", "$defs": { "all": { "type": "object",
                "properties": { "n": { "type": "integer" } }, "required": ["n", "m"],
                "additionalProperties": { "type": "string", "maxLength": 4 } } } }),
        ),
    ]
}

/// What an answer is read as: its text and its calls, with whether each has ended.
fn read(
    dialect: &Dialect,
    request: &Request,
    text: &str,
) -> (String, String, Vec<(String, String, bool)>) {
    let format = dialect.tools.clone().unwrap();
    let offers = request.tools.iter();
    let offers = offers.map(|tool| Offer::new(&format.shape, &tool.name, &tool.parameters));
    let mut assembler = Assembler::new(Reading {
        offers: offers.collect(),
        tools: Some(format),
        reasoning: dialect.reasoning.clone(),
        channels: Reading::on_channels(dialect),
        parallel: request.parallel_tool_calls != Some(false),
        ..Reading::default()
    });
    let mut events = Vec::new();
    assembler.push(text.as_bytes(), true, &mut events);
    assembler.finish(&mut events);
    let (mut said, mut thought, mut calls) = (String::new(), String::new(), Vec::new());
    for event in events {
        match event {
            Event::Text(text) => said.push_str(&text),
            Event::Reasoning(text) => thought.push_str(&text),
            Event::ToolStart(start) => calls.push((start.name, String::new(), false)),
            Event::ToolArguments(n, text) => calls[n as usize].1.push_str(&text),
            Event::ToolEnd(n) => calls[n as usize].2 = true,
            other => panic!("unexpected {other:?}"),
        }
    }
    (said, thought, calls)
}

/// A random text that a rule lets through, unless it grows too long. Text between tags would hardly
/// ever end by chance, so what ends it is tried now and then.
fn walk(rule: &Rule, tokenizer: &Tokenizer, seed: u64) -> Option<String> {
    let endings: Vec<Vec<u32>> =
        ["\n</parameter>", "</parameter>", "</arg_value>", "<|end|>", "\"", "'"]
            .iter()
            .map(|text| tokenizer.encode(text, true).unwrap())
            .collect();
    let closers: Vec<u32> =
        ["\"", "}", "]", "<", ")"].iter().filter_map(|text| tokenizer.id_of(text)).collect();
    let mut random = Random::new(seed);
    let mut draw = |n: usize| (random.next() % n.max(1) as u64) as usize;
    let mut walk = rule.walk();
    let mut bytes = Vec::new();
    let mut due: Vec<u32> = Vec::new();
    for _ in 0..1500 {
        let allowed = walk.allowed().unwrap();
        assert!(!allowed.is_empty(), "nothing may follow {:?}", String::from_utf8_lossy(&bytes));
        let may = |token: &u32| allowed.binary_search(token).is_ok();
        let ends = tokenizer.ends().iter().any(may);
        if ends && draw(3) > 0 {
            return Some(String::from_utf8(bytes).unwrap());
        }
        if due.is_empty() && draw(6) == 0 {
            due = endings[draw(endings.len())].iter().rev().copied().collect();
        }
        let closing: Vec<u32> = closers.iter().copied().filter(may).collect();
        let wanted = due.pop().filter(may);
        if wanted.is_none() {
            due.clear();
        }
        let token = match (wanted, draw(4)) {
            (Some(token), _) => token,
            (None, 0) if !closing.is_empty() => closing[draw(closing.len())],
            _ => allowed[draw(allowed.len())],
        };
        if tokenizer.is_end(token) {
            return Some(String::from_utf8(bytes).unwrap());
        }
        assert!(walk.accept(token), "a token of the mask is refused");
        bytes.extend(tokenizer.token_bytes(token).unwrap());
        if walk.over() {
            return Some(String::from_utf8(bytes).unwrap());
        }
    }
    None
}

fn check(spelling: &str, request: &Request, tools: &[(&str, Value)], text: &str) {
    let dialect = dialect(spelling);
    let (said, _, calls) = read(&dialect, request, text);
    assert_eq!(said.trim(), "", "{spelling}: {text}\n{calls:?}");
    assert!(!calls.is_empty(), "{spelling}: no call in {text}");
    assert!(request.parallel_tool_calls == Some(true) || calls.len() == 1, "{spelling}: {text}");
    for (name, arguments, ended) in &calls {
        assert!(ended, "{spelling}: {text}");
        let value = suite::parse(arguments);
        let value = value.unwrap_or_else(|| panic!("{spelling}: {arguments} in {text}"));
        let schema = &tools.iter().find(|(known, _)| known == name).unwrap().1;
        let validator = jsonschema::options().should_validate_formats(true).build(schema).unwrap();
        assert!(validator.is_valid(&value), "{spelling}: {name} {arguments} in {text}");
    }
}

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
            &["xml", "glm"][..],
            object(json!({ "a": { "type": "string", "pattern": "x(^a|b)" } })),
            "/properties/a/pattern",
        ),
        (
            &["xml", "glm"],
            object(json!({ "a": { "type": ["string", "null"], "enum": ["null"] } })),
            "/properties/a",
        ),
        (&["xml", "glm"], object(json!({ "a": { "not": { "type": "string" } } })), "/properties/a"),
        (&["xml"], object(json!({ "a<b": {} })), "/properties/a<b"),
        (
            &["xml"],
            object(json!({ "a": { "type": "array", "items": { "const": "</parameter>" } } })),
            "/properties/a",
        ),
        (&["glm"], object(json!({ "</arg_key>": {} })), "/properties/<~1arg_key>"),
        (&["pythonic"], object(json!({ "a b": {} })), "/properties/a b"),
        (
            &["xml", "glm", "pythonic"],
            json!({ "type": "object", "anyOf": [{ "required": ["a"] }, {}] }),
            "/anyOf",
        ),
        (
            &["xml", "glm", "pythonic"],
            json!({ "type": "object", "patternProperties": { "^a": {} } }),
            "/patternProperties",
        ),
        (
            &["xml", "glm", "pythonic"],
            json!({ "type": "object", "minProperties": 1 }),
            "/minProperties",
        ),
        (
            &["xml", "glm", "pythonic"],
            json!({ "$ref": "#/$defs/a", "$defs": { "a": { "type": "object", "propertyNames": { "enum": ["b"] } } } }),
            "/$defs/a/propertyNames",
        ),
        (
            &["xml", "glm", "pythonic"],
            json!({ "type": "object", "dependentRequired": { "a": ["b"] } }),
            "/dependentRequired",
        ),
        (
            &["xml", "glm", "pythonic"],
            json!({ "type": "object", "required": ["a"], "additionalProperties": false }),
            "/required",
        ),
        (&["xml", "glm", "pythonic"], json!({ "type": "array" }), "/type"),
        (
            &["xml", "glm", "pythonic", "deepseek", "harmony"],
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
