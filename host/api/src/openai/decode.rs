//! OpenAI JSON into domain requests. Pure.
//!
//! Strict: a field that would change the answer is honoured or refused by name. Fields that cannot
//! change it are taken and reported as unused; everything else that is unknown is refused.

use base64::{Engine, engine::general_purpose::STANDARD};
use gristmill_core::{
    Error, Result,
    request::{Constraint, Prompt, Reasoning, Request, Tool, ToolChoice},
};
use gristmill_router::policy::Control;
use serde_json::Value;

use super::{constraint, messages};
use crate::{
    fields::{Fields, kind, nothing_left, refused, wrong},
    ollama::decode::tools,
    policy::named,
};

/// Fields of account keeping, caching and transport: the answer is the same with or without them.
pub const HARMLESS: [&str; 9] = [
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "prediction",
];

/// How much to think, besides not at all.
pub const LEVELS: [&str; 6] = ["minimal", "low", "medium", "high", "xhigh", "max"];
/// The newer name of `max_tokens`.
const NEWER: &str = "max_completion_tokens";
/// Most choices of one request, over all its prompts.
const MOST_CHOICES: usize = 128;
/// Most stop strings.
const MOST_STOPS: usize = 4;
/// Most inputs of one embedding request.
const MOST_INPUTS: usize = 2048;

/// A decoded generation: one request for each choice.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The model, as the client spells it.
    pub model: String,
    /// What to generate, choice by choice.
    pub requests: Vec<Request>,
    /// Prompts to put before the answers, choice by choice; empty when they are not echoed.
    pub echo: Vec<Prompt>,
    /// Whether to stream.
    pub stream: bool,
    /// Whether the stream ends with the token counts.
    pub include_usage: bool,
    /// How many choices share one prompt.
    pub per_prompt: usize,
    /// Fields that were taken and change nothing.
    pub unused: Vec<String>,
}

/// What an embedding request embeds.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A text.
    Text(String),
    /// Tokens of this very model.
    Tokens(Vec<u32>),
}

/// A decoded embedding request.
#[derive(Debug, Clone, PartialEq)]
pub struct EmbedCall {
    /// The model, as the client spells it.
    pub model: String,
    /// What to embed, in order.
    pub inputs: Vec<Input>,
    /// Cut to so many dimensions.
    pub dimensions: Option<u32>,
    /// Vectors as base64 of little-endian f32.
    pub base64: bool,
    /// Fields that were taken and change nothing.
    pub unused: Vec<String>,
}

/// `POST /v1/chat/completions`.
///
/// # Errors
/// `invalid-request` and `unsupported`, each naming the field.
pub fn chat(body: Value, id: &str) -> Result<Call> {
    let mut fields = Fields::body(body)?;
    let model = fields.required("model")?;
    let list = fields.array("messages")?.ok_or_else(|| wrong("messages", "is required"))?;
    if list.is_empty() {
        return Err(wrong("messages", "is empty"));
    }
    let mut unused = Vec::new();
    let messages = messages::messages(list, &mut unused)?;
    let mut request = Request::new(id, model.clone(), Prompt::Chat(messages));
    request.tools = tools(fields.array("tools")?.unwrap_or_default(), Some(&mut unused))?;
    request.tool_choice = tool_choice(&mut fields, &request)?;
    request.parallel_tool_calls = fields.flag("parallel_tool_calls")?;
    request.constraint = response_format(&mut fields)?;
    request.reasoning = reasoning(&mut fields)?;
    if fields.has(NEWER) {
        request.extras.push(named(Control::NumPredict, NEWER));
    }
    request.max_tokens = max_tokens(&mut fields)?;
    let top = fields.count("top_logprobs", 0..=20)?;
    request.logprobs = match (fields.flag("logprobs")?.unwrap_or(false), top) {
        (true, top) => Some(top.unwrap_or(0)),
        (false, None | Some(0)) => None,
        (false, Some(_)) => return Err(wrong("top_logprobs", "needs logprobs to be true")),
    };
    for (older, newer) in [("functions", "tools"), ("function_call", "tool_choice")] {
        if fields.take(older).is_some() {
            return Err(refused(older, format!("is the older form of {newer}; use {newer}")));
        }
    }
    if let Some(kinds) = fields.strings("modalities")?
        && kinds != ["text"]
    {
        return Err(refused("modalities", "must be [\"text\"]"));
    }
    let count = fields.count("n", 1..=128)?.unwrap_or(1) as usize;
    let mut call = finish(fields, model, request)?;
    call.requests = choices(call.requests, count);
    call.per_prompt = count;
    call.unused.append(&mut unused);
    Ok(call)
}

/// `POST /v1/completions`.
///
/// # Errors
/// `invalid-request` and `unsupported`, each naming the field.
pub fn completion(body: Value, id: &str) -> Result<Call> {
    let mut fields = Fields::body(body)?;
    let model = fields.required("model")?;
    let prompts = prompts(fields.take("prompt"))?;
    let suffix = fields.string("suffix")?.filter(|suffix| !suffix.is_empty());
    let echo = fields.flag("echo")?.unwrap_or(false);
    let logprobs = fields.count("logprobs", 0..=5)?;
    if echo && logprobs.is_some() {
        return Err(refused("logprobs", "of an echoed prompt are not offered; leave out echo"));
    }
    let count = fields.count("n", 1..=128)?.unwrap_or(1) as usize;
    if let Some(best) = fields.count("best_of", 1..=128)?
        && best as usize != count
    {
        return Err(refused("best_of", "must equal n: answers are not ranked"));
    }
    if prompts.len().saturating_mul(count) > MOST_CHOICES {
        return Err(wrong(
            "prompt",
            format!(
                "makes {} × {count} choices, at most {MOST_CHOICES} are allowed",
                prompts.len()
            ),
        ));
    }
    let mut request = Request::new(id, model.clone(), Prompt::Text(String::new()));
    request.max_tokens = fields.count("max_tokens", 1..=u32::MAX)?;
    request.logprobs = logprobs;
    let mut call = finish(fields, model, request)?;
    let Some(request) = call.requests.pop() else { return Err(Error::internal("no request")) };
    for prompt in prompts {
        let mut request = request.clone();
        request.prompt = match (prompt, &suffix) {
            (Prompt::Text(text), Some(suffix)) => Prompt::Infill(text, suffix.clone()),
            (_, Some(_)) => return Err(refused("suffix", "does not go with a prompt of tokens")),
            (prompt, None) => prompt,
        };
        call.requests.extend(choices(vec![request], count));
    }
    if echo {
        call.echo = call.requests.iter().map(|request| request.prompt.clone()).collect();
    }
    call.per_prompt = count;
    Ok(call)
}

/// `POST /v1/embeddings`.
///
/// # Errors
/// `invalid-request` and `unsupported`, each naming the field.
pub fn embeddings(body: Value) -> Result<EmbedCall> {
    let mut fields = Fields::body(body)?;
    let model = fields.required("model")?;
    let inputs: Vec<_> = prompts(fields.take("input"))
        .map_err(|error| rename(error, "prompt", "input"))?
        .into_iter()
        .map(|prompt| match prompt {
            Prompt::Tokens(tokens) => Input::Tokens(tokens),
            Prompt::Text(text) => Input::Text(text),
            Prompt::Chat(_) | Prompt::Infill(..) => Input::Text(String::new()),
        })
        .collect();
    if inputs.len() > MOST_INPUTS {
        return Err(wrong(
            "input",
            format!("has {} items, at most {MOST_INPUTS} are allowed", inputs.len()),
        ));
    }
    let base64 = match fields.string("encoding_format")?.as_deref() {
        None | Some("float") => false,
        Some("base64") => true,
        Some(_) => return Err(wrong("encoding_format", "must be \"float\" or \"base64\"")),
    };
    let dimensions = fields.count("dimensions", 1..=u32::MAX)?;
    let unused = fields.without_effect(&HARMLESS);
    nothing_left(&fields)?;
    Ok(EmbedCall { model, inputs, dimensions, base64, unused })
}

fn rename(error: Error, from: &str, to: &str) -> Error {
    let field = error.detail("field").unwrap_or(from).replacen(from, to, 1);
    Error::new(error.code.clone(), error.message.replacen(from, to, 1)).with("field", field)
}

/// A vector as base64 of little-endian f32.
#[must_use]
pub fn packed(row: &[f32]) -> String {
    let bytes: Vec<u8> = row.iter().flat_map(|value| value.to_le_bytes()).collect();
    STANDARD.encode(bytes)
}

/// Reads how tokens are chosen, and what stops them.
///
/// # Errors
/// `invalid-request` naming the field.
pub fn sampling(fields: &mut Fields, request: &mut Request) -> Result<()> {
    let sampling = &mut request.sampling;
    sampling.temperature = fields.number("temperature", 0.0..=2.0)?;
    sampling.top_p = fields.number("top_p", 0.0..=1.0)?;
    sampling.presence_penalty = fields.number("presence_penalty", -2.0..=2.0)?;
    sampling.frequency_penalty = fields.number("frequency_penalty", -2.0..=2.0)?;
    sampling.seed = fields.integer("seed", i64::MIN..=i64::MAX)?.map(i64::cast_unsigned);
    sampling.logit_bias = logit_bias(fields)?;
    // Not OpenAI's, but sent by clients of other local servers.
    sampling.top_k = fields
        .integer("top_k", -1..=i64::from(u32::MAX))?
        .map(|count| u32::try_from(count).unwrap_or(0));
    sampling.min_p = fields.number("min_p", 0.0..=1.0)?;
    sampling.repeat_penalty = fields.number("repetition_penalty", 0.0..=f32::MAX)?;
    request.stop = fields.stops("stop", MOST_STOPS)?;
    Ok(())
}

/// Reads what both generating routes share.
fn finish(mut fields: Fields, model: String, mut request: Request) -> Result<Call> {
    sampling(&mut fields, &mut request)?;
    let stream = fields.flag("stream")?.unwrap_or(false);
    let mut include_usage = false;
    if let Some(mut options) = fields.object("stream_options")? {
        if !stream {
            return Err(wrong("stream_options", "needs stream to be true"));
        }
        include_usage = options.flag("include_usage")?.unwrap_or(false);
        options.flag("include_obfuscation")?;
        nothing_left(&options)?;
    }
    request.constraint = constraint::decode(&mut fields, request.constraint.take())?;
    let unused = fields.without_effect(&HARMLESS);
    nothing_left(&fields)?;
    Ok(Call {
        model,
        requests: vec![request],
        echo: Vec::new(),
        stream,
        include_usage,
        per_prompt: 1,
        unused,
    })
}

/// `count` choices of each request. A seed is counted up, so that they differ and can be repeated.
fn choices(requests: Vec<Request>, count: usize) -> Vec<Request> {
    let choice = |request: &Request, place: usize| {
        let mut request = request.clone();
        request.sampling.seed = request.sampling.seed.map(|seed| seed.wrapping_add(place as u64));
        request
    };
    requests
        .iter()
        .flat_map(|request| (0..count).map(move |place| choice(request, place)))
        .collect()
}

fn max_tokens(fields: &mut Fields) -> Result<Option<u32>> {
    let newer = fields.count(NEWER, 1..=u32::MAX)?;
    let older = fields.count("max_tokens", 1..=u32::MAX)?;
    match (newer, older) {
        (Some(newer), Some(older)) if newer != older => {
            Err(wrong("max_tokens", "contradicts max_completion_tokens; send one of them"))
        }
        (newer, older) => Ok(newer.or(older)),
    }
}

fn logit_bias(fields: &mut Fields) -> Result<Vec<(u32, f32)>> {
    let Some(value) = fields.take("logit_bias") else { return Ok(Vec::new()) };
    let Value::Object(map) = value else {
        return Err(wrong("logit_bias", format!("must be an object, got {}", kind(&value))));
    };
    map.into_iter()
        .map(|(token, bias)| {
            let id = token
                .parse::<u32>()
                .map_err(|_| wrong("logit_bias", "must have token ids as keys"))?;
            match bias.as_f64().map(|bias| bias as f32) {
                Some(bias) if (-100.0..=100.0).contains(&bias) => Ok((id, bias)),
                _ => Err(wrong("logit_bias", "must have numbers between -100 and 100 as values")),
            }
        })
        .collect()
}

fn tool_choice(fields: &mut Fields, request: &Request) -> Result<ToolChoice> {
    const EXPECTED: &str = "must be \"auto\", \"none\", \"required\" or {\"type\":\"function\",\"function\":{\"name\":…}}";
    let choice = match fields.take("tool_choice") {
        None => return Ok(ToolChoice::Auto),
        Some(Value::String(word)) => match word.as_str() {
            "auto" => ToolChoice::Auto,
            "none" => ToolChoice::None,
            "required" => ToolChoice::Required,
            _ => return Err(wrong("tool_choice", EXPECTED)),
        },
        Some(value) => {
            let mut choice = Fields::at("tool_choice", value)?;
            match choice.string("type")?.as_deref() {
                Some("function") => {}
                Some(_) => return Err(refused("tool_choice", EXPECTED)),
                None => return Err(wrong("tool_choice", EXPECTED)),
            }
            let mut function = choice
                .object("function")?
                .ok_or_else(|| wrong("tool_choice.function", "is required"))?;
            let name = function.required("name")?;
            nothing_left(&function)?;
            nothing_left(&choice)?;
            ToolChoice::Named(name)
        }
    };
    settled(choice, &request.tools)
}

/// A choice that the tools on offer allow.
///
/// # Errors
/// `invalid-request` for a forced call without tools, or of a tool that is not there.
pub fn settled(choice: ToolChoice, tools: &[Tool]) -> Result<ToolChoice> {
    match &choice {
        ToolChoice::Required | ToolChoice::Named(_) if tools.is_empty() => {
            Err(wrong("tool_choice", "needs tools"))
        }
        ToolChoice::Named(name) if !tools.iter().any(|tool| tool.name == *name) => {
            Err(wrong("tool_choice", "names a tool that is not in tools"))
        }
        _ => Ok(choice),
    }
}

fn response_format(fields: &mut Fields) -> Result<Option<Constraint>> {
    let Some(mut format) = fields.object("response_format")? else { return Ok(None) };
    let constraint = match format.required("type")?.as_str() {
        "text" => None,
        "json_object" => Some(Constraint::JsonObject),
        "json_schema" => {
            let mut schema = format
                .object("json_schema")?
                .ok_or_else(|| wrong("response_format.json_schema", "is required"))?;
            let field = schema.name("schema");
            let constraint = match schema.take("schema") {
                Some(schema @ Value::Object(_)) => Constraint::JsonSchema(schema.to_string()),
                Some(other) => {
                    return Err(wrong(&field, format!("must be an object, got {}", kind(&other))));
                }
                None => return Err(wrong(&field, "is required")),
            };
            // What is enforced is enforced whatever they say.
            schema.without_effect(&["name", "description", "strict"]);
            nothing_left(&schema)?;
            Some(constraint)
        }
        _ => {
            return Err(wrong(
                "response_format.type",
                "must be \"text\", \"json_object\" or \"json_schema\"",
            ));
        }
    };
    nothing_left(&format)?;
    Ok(constraint)
}

/// `reasoning_effort`, `reasoning.effort`, or the switch that local servers have in
/// `chat_template_kwargs.enable_thinking`.
fn reasoning(fields: &mut Fields) -> Result<Reasoning> {
    let mut effort = fields.string("reasoning_effort")?.map(|effort| ("reasoning_effort", effort));
    if let Some(mut object) = fields.object("reasoning")? {
        if let Some(inner) = object.string("effort")? {
            effort = effort.or(Some(("reasoning.effort", inner)));
        }
        nothing_left(&object)?;
    }
    let mut switch = None;
    if let Some(mut object) = fields.object("chat_template_kwargs")? {
        switch = object.flag("enable_thinking")?;
        nothing_left(&object)?;
    }
    match (effort, switch) {
        (None, None) => Ok(Reasoning::Unset),
        (None, Some(true)) => Ok(Reasoning::On),
        (None, Some(false)) => Ok(Reasoning::Off),
        (Some((_, word)), None | Some(false)) if word == "none" => Ok(Reasoning::Off),
        (Some((_, word)), None | Some(true)) if LEVELS.contains(&word.as_str()) => {
            Ok(Reasoning::Effort(word))
        }
        (Some((field, _)), Some(_)) => {
            Err(wrong(field, "contradicts chat_template_kwargs.enable_thinking"))
        }
        (Some((field, _)), None) => {
            Err(wrong(field, format!("must be none or one of {}", LEVELS.join(", "))))
        }
    }
}

/// A prompt: a string, strings, tokens, or lists of tokens.
fn prompts(value: Option<Value>) -> Result<Vec<Prompt>> {
    let items = match value {
        None => return Err(wrong("prompt", "is required")),
        Some(Value::String(text)) => return Ok(vec![Prompt::Text(text)]),
        Some(Value::Array(items)) => items,
        Some(other) => {
            return Err(wrong(
                "prompt",
                format!("must be a string or an array, got {}", kind(&other)),
            ));
        }
    };
    match items.first() {
        None => Err(wrong("prompt", "is empty")),
        Some(Value::Number(_)) => Ok(vec![Prompt::Tokens(tokens("prompt", items)?)]),
        Some(_) => items
            .into_iter()
            .enumerate()
            .map(|(place, item)| match item {
                Value::String(text) => Ok(Prompt::Text(text)),
                Value::Array(items) => {
                    tokens(&format!("prompt[{place}]"), items).map(Prompt::Tokens)
                }
                other => Err(wrong(
                    &format!("prompt[{place}]"),
                    format!("must be a string or an array of tokens, got {}", kind(&other)),
                )),
            })
            .collect(),
    }
}

/// Token ids, at least one.
///
/// # Errors
/// `invalid-request` naming `path`.
pub fn tokens(path: &str, items: Vec<Value>) -> Result<Vec<u32>> {
    if items.is_empty() {
        return Err(wrong(path, "is empty"));
    }
    let one = |item: Value| item.as_u64().and_then(|token| u32::try_from(token).ok());
    items
        .into_iter()
        .map(|item| one(item).ok_or_else(|| wrong(path, "must hold token ids")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_core::request::{Message, Role};
    use serde_json::json;

    fn with(extra: Value) -> Result<Call> {
        let mut body = json!({ "model": "m", "messages": [{ "role": "user", "content": "hi" }] });
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        chat(body, "r")
    }

    #[test]
    fn nothing_set_is_nothing_injected() {
        let expected = Request::new("r", "m", Prompt::Chat(vec![Message::text(Role::User, "hi")]));
        assert_eq!(with(json!({})).unwrap().requests, [expected]);
        let call = completion(json!({ "model": "m", "prompt": "p" }), "r").unwrap();
        assert_eq!(call.requests, [Request::new("r", "m", Prompt::Text("p".into()))]);
    }

    #[test]
    fn every_field_arrives() {
        let call = with(json!({
            "temperature": 0, "top_p": 1, "n": 2, "seed": -7, "presence_penalty": 1.5,
            "frequency_penalty": -1.5, "logit_bias": { "7": -100, "9": 1.5 }, "logprobs": true,
            "top_logprobs": 20, "max_completion_tokens": 9, "stop": ["x"], "stream": true,
            "stream_options": { "include_usage": true, "include_obfuscation": false },
            "reasoning_effort": "low", "parallel_tool_calls": false, "top_k": 5, "min_p": 0.1,
            "response_format": { "type": "json_schema", "json_schema": {
                "name": "n", "strict": true, "schema": { "z": 1, "a": 2 } } },
            "tools": [{ "type": "function", "function": { "name": "f", "strict": true,
                "parameters": { "type": "object", "$id": "x", "properties": { "b": {}, "a": {} } } } }],
            "tool_choice": { "type": "function", "function": { "name": "f" } },
            "user": "u", "metadata": { "a": "b" }, "unknown": null,
        }))
        .unwrap();
        assert_eq!(call.requests.len(), 2);
        let request = &call.requests[0];
        assert_eq!(request.sampling.logit_bias, [(7, -100.0), (9, 1.5)]);
        assert_eq!(request.sampling.seed, Some((-7_i64).cast_unsigned()));
        assert_eq!(call.requests[1].sampling.seed, Some((-6_i64).cast_unsigned()));
        assert_eq!((request.logprobs, request.max_tokens), (Some(20), Some(9)));
        assert_eq!(request.reasoning, Reasoning::Effort("low".into()));
        assert_eq!(request.constraint, Some(Constraint::JsonSchema(r#"{"z":1,"a":2}"#.into())));
        assert_eq!(request.tool_choice, ToolChoice::Named("f".into()));
        let schema = r#"{"type":"object","$id":"x","properties":{"b":{},"a":{}}}"#;
        assert_eq!(request.tools[0].parameters, schema);
        assert!(call.stream && call.include_usage);
        assert_eq!(call.unused, ["user", "metadata"]);
    }

    #[test]
    fn what_cannot_be_honoured_is_refused_by_name() {
        for (extra, field) in [
            (json!({ "n": 0 }), "n"),
            (json!({ "n": 129 }), "n"),
            (json!({ "temperature": 2.1 }), "temperature"),
            (json!({ "temperature": "hot" }), "temperature"),
            (json!({ "max_tokens": -1 }), "max_tokens"),
            (json!({ "max_tokens": 1, "max_completion_tokens": 2 }), "max_tokens"),
            (json!({ "logit_bias": { "foo": 0 } }), "logit_bias"),
            (json!({ "logit_bias": { "1": 101 } }), "logit_bias"),
            (json!({ "top_logprobs": 3 }), "top_logprobs"),
            (json!({ "logprobs": true, "top_logprobs": 21 }), "top_logprobs"),
            (json!({ "stop": ["a", "b", "c", "d", "e"] }), "stop"),
            (json!({ "stop": "" }), "stop"),
            (json!({ "stream_options": {} }), "stream_options"),
            (json!({ "tool_choice": "required" }), "tool_choice"),
            (json!({ "tool_choice": { "type": "allowed_tools" } }), "tool_choice"),
            (json!({ "functions": [] }), "functions"),
            (json!({ "modalities": ["text", "audio"] }), "modalities"),
            (json!({ "audio": {} }), "audio"),
            (json!({ "verbosity": "low" }), "verbosity"),
            (json!({ "web_search_options": {} }), "web_search_options"),
            (json!({ "reasoning_effort": "huge" }), "reasoning_effort"),
            (json!({ "chat_template_kwargs": { "x": 1 } }), "chat_template_kwargs.x"),
            (
                json!({ "response_format": { "type": "json_schema" } }),
                "response_format.json_schema",
            ),
            (json!({ "response_format": { "type": "grammar" } }), "response_format.type"),
            (json!({ "tools": [{ "type": "custom" }] }), "tools[0].type"),
            (json!({ "options": {} }), "options"),
        ] {
            let error = with(extra.clone()).unwrap_err();
            assert_eq!(error.detail("field"), Some(field), "{extra}: {error}");
        }
    }

    #[test]
    fn prompts_take_four_forms() {
        let prompts = |value| completion(json!({ "model": "m", "prompt": value, "n": 2 }), "r");
        let kinds = |value| -> Vec<Prompt> {
            prompts(value).unwrap().requests.into_iter().map(|r| r.prompt).collect()
        };
        let text = |text: &str| Prompt::Text(text.into());
        assert_eq!(kinds(json!("a")), [text("a"), text("a")]);
        assert_eq!(kinds(json!(["a", "b"])), [text("a"), text("a"), text("b"), text("b")]);
        assert_eq!(kinds(json!([1, 2]))[0], Prompt::Tokens(vec![1, 2]));
        assert_eq!(kinds(json!([[1], [2, 3]]))[2], Prompt::Tokens(vec![2, 3]));
        for bad in [
            json!([]),
            json!([[]]),
            json!([1, "a"]),
            json!([-1]),
            json!([1.5]),
            json!(7),
            json!([null]),
        ] {
            assert!(prompts(bad.clone()).is_err(), "{bad}");
        }
        let error = embeddings(json!({ "model": "m", "input": [] })).unwrap_err();
        assert_eq!(
            (error.message.as_str(), error.detail("field")),
            ("input is empty", Some("input"))
        );
    }
}
