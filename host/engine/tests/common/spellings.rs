//! How families spell calls: their marks, tools to call, and answers read back.

use std::sync::Arc;

use gristmill_core::{
    event::Event,
    program::{Dialect, Span, ToolFormat},
    request::{Prompt, Request, Tool, ToolChoice},
};
use gristmill_engine::{
    constraint::Rule,
    text::{Assembler, Offer, Reading},
};
use gristmill_models::{Gguf, Tokenizer};
use gristmill_testing::{
    gguf::{File, Value as Gg},
    models::{Family, Random, Shape, write_marked},
};
use serde_json::{Value, json};

#[path = "suite.rs"]
mod suite;

/// Marks of Mistral, DeepSeek, Kimi and harmony.
const MARKS: [&str; 20] = [
    "[TOOL_CALLS]",
    "[CALL_ID]",
    "[ARGS]",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "<|start|>",
    "<|channel|>",
    "<|constrain|>",
    "<|message|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
];

/// A made-up vocabulary with all marks.
pub fn small() -> Arc<Tokenizer> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("words.gguf");
    let shape = Shape { layers: 1, vocabulary: 900, ..Shape::tiny(Family::Llama) };
    write_marked(&shape, "q8_0", 1, &MARKS, &path).unwrap();
    Arc::new(Tokenizer::from_gguf(&Gguf::open(&path).unwrap()).unwrap())
}

/// The 151,936 tokens of Qwen 2.
pub fn large() -> Arc<Tokenizer> {
    let models = gristmill_testing::fetch::llama_cpp_models().unwrap();
    let vocabulary = Gguf::open(models.join("ggml-vocab-qwen2.gguf")).unwrap();
    Arc::new(Tokenizer::from_gguf(&vocabulary).unwrap())
}

/// Every spelling that is known here.
pub const SHAPES: [&str; 10] = [
    "qwen-coder",
    "seed",
    "glm",
    "dsml",
    "mistral",
    "pythonic",
    "deepseek",
    "deepseek-old",
    "kimi",
    "harmony",
];

/// The family's way.
pub fn dialect(spelling: &str) -> Dialect {
    let (open, close, shape, name, arguments) = match spelling {
        "qwen-coder" => ("<tool_call>", "</tool_call>", "xml", "function", "parameter"),
        "seed" => ("<seed:tool_call>", "</seed:tool_call>", "xml", "function", "parameter"),
        "glm" => ("<tool_call>", "</tool_call>", "glm", "", "arg_key"),
        "dsml" => (
            "<｜DSML｜function_calls>",
            "</｜DSML｜function_calls>",
            "dsml",
            "｜DSML｜invoke",
            "｜DSML｜parameter",
        ),
        "kimi" => ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "kimi", "", ""),
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

/// Calls of these tools are required, to the letter.
pub fn request(tools: &[(&str, Value)], parallel: bool) -> Request {
    let mut request = Request::new("test", "model", Prompt::Text(String::new()));
    request.tools = tools.iter().map(|(name, schema)| tool(name, schema, true)).collect();
    request.tool_choice = ToolChoice::Required;
    request.parallel_tool_calls = Some(parallel);
    request
}

/// Tools with what schemas of tools are made of.
pub fn tools() -> Vec<(&'static str, Value)> {
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
pub fn read(
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
pub fn walk(rule: &Rule, tokenizer: &Tokenizer, seed: u64) -> Option<String> {
    let endings: Vec<Vec<u32>> = [
        "\n</parameter>",
        "</parameter>",
        "</arg_value>",
        "</｜DSML｜parameter>",
        "<|end|>",
        "\"",
        "'",
    ]
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

/// Reads a text back: nothing but calls, whole, that satisfy their schemas.
pub fn check(spelling: &str, request: &Request, tools: &[(&str, Value)], text: &str) {
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

/// The 201,088 tokens of gpt-oss.
pub fn channels() -> Arc<Tokenizer> {
    let source = std::fs::read(gristmill_testing::fetch::gpt_oss_tokenizer().unwrap()).unwrap();
    let source: Value = serde_json::from_slice(&source).unwrap();
    let own = source["model"]["vocab"].as_object().unwrap();
    let added = source["added_tokens"].as_array().unwrap();
    let added = added.iter().map(|token| (token["content"].as_str().unwrap(), &token["id"], 3));
    let all = own.iter().map(|(text, id)| (text.as_str(), id, 1)).chain(added);
    let mut tokens: Vec<(String, i32)> =
        (0..201_088).map(|id| (format!("<|unused_{id}|>"), 5)).collect();
    for (text, id, kind) in all {
        tokens[usize::try_from(id.as_u64().unwrap()).unwrap()] = (text.to_owned(), kind);
    }
    let end = tokens.iter().position(|(text, _)| text == "<|return|>").unwrap();
    let merges = source["model"]["merges"].as_array().unwrap().iter().map(|pair| match pair {
        Value::Array(pair) => {
            format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap())
        }
        pair => pair.as_str().unwrap().to_owned(),
    });
    let mut file = File::new("gpt-oss");
    file.set("tokenizer.ggml.model", Gg::text("gpt2"));
    file.set("tokenizer.ggml.pre", Gg::text("gpt-4o"));
    file.set("tokenizer.ggml.merges", Gg::texts(merges));
    file.set("tokenizer.ggml.token_type", Gg::ints(tokens.iter().map(|(_, kind)| *kind)));
    file.set("tokenizer.ggml.tokens", Gg::texts(tokens.into_iter().map(|(text, _)| text)));
    file.set("tokenizer.ggml.eos_token_id", Gg::U32(u32::try_from(end).unwrap()));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gpt-oss.gguf");
    file.write(&path).unwrap();
    Arc::new(Tokenizer::from_gguf(&Gguf::open(&path).unwrap()).unwrap())
}
