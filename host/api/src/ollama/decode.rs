//! Ollama JSON into domain requests. Pure.
//!
//! Ollama's rule for unknown top-level fields holds: they are ignored. Unknown keys of `options` are
//! refused by name, because an option that does nothing changes answers unseen; options that only
//! say how to compute, never what, are taken and reported as unused.

use gristmill_core::{
    Error, Result,
    request::{
        Constraint, EmbedRequest, Message, Part, Prompt, Reasoning, Request, Role, Tool, ToolCall,
    },
};
use gristmill_router::{KeepAlive, policy};
use serde_json::Value;

use crate::{
    fields::{Fields, closed, kind, refused, wrong},
    media,
};

/// A decoded generation.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The model, as the client spells it.
    pub model: String,
    /// What to generate.
    pub request: Request,
    /// Whether to stream; the dialect's default is yes.
    pub stream: bool,
    /// How long the model should stay afterwards.
    pub keep: Option<KeepAlive>,
    /// Nothing to generate: the client wants the model loaded, or unloaded when `keep` is zero.
    pub load: bool,
    /// Fields that were taken and change nothing.
    pub unused: Vec<String>,
}

/// A decoded embedding request.
#[derive(Debug, Clone, PartialEq)]
pub struct EmbedCall {
    /// The model, as the client spells it.
    pub model: String,
    /// What to embed.
    pub request: EmbedRequest,
    /// How long the model should stay afterwards.
    pub keep: Option<KeepAlive>,
    /// Fields that were taken and change nothing.
    pub unused: Vec<String>,
}

/// Options that say how to compute; placement is decided elsewhere.
const HOW: [&str; 11] = [
    "num_keep",
    "num_batch",
    "num_gpu",
    "main_gpu",
    "num_thread",
    "use_mmap",
    "use_mlock",
    "low_vram",
    "numa",
    "f16_kv",
    "draft_num_predict",
];

/// `POST /api/chat`.
///
/// # Errors
/// `invalid-request` and `unsupported`, each naming the field.
pub fn chat(body: Value, id: &str) -> Result<Call> {
    let mut fields = Fields::body(body)?;
    let model = model(&mut fields)?;
    let messages = messages(fields.array("messages")?.unwrap_or_default())?;
    let load = messages.is_empty();
    let mut request = Request::new(id, model.clone(), Prompt::Chat(messages));
    request.tools = tools(fields.array("tools")?.unwrap_or_default(), None)?;
    finish(fields, model, request, load)
}

/// `POST /api/generate`.
///
/// # Errors
/// `invalid-request` and `unsupported`, each naming the field.
pub fn generate(body: Value, id: &str) -> Result<Call> {
    let mut fields = Fields::body(body)?;
    let model = model(&mut fields)?;
    let prompt = fields.string("prompt")?.unwrap_or_default();
    let suffix = fields.string("suffix")?.filter(|suffix| !suffix.is_empty());
    let system = fields.string("system")?.filter(|system| !system.is_empty());
    let template = fields.string("template")?.filter(|template| !template.is_empty());
    let context = fields.array("context")?.filter(|context| !context.is_empty());
    let raw = fields.flag("raw")?.unwrap_or(false);
    let images = images("images", fields.array("images")?.unwrap_or_default())?;
    if raw && (template.is_some() || system.is_some() || context.is_some()) {
        return Err(wrong("raw", "does not go with template, system or context"));
    }
    if template.is_some() {
        return Err(refused(
            "template",
            "cannot be replaced for one request; use raw with a prompt of your own",
        ));
    }
    if context.is_some() {
        return Err(refused(
            "context",
            "is not kept between requests; use /api/chat with messages",
        ));
    }
    if !images.is_empty() && (raw || suffix.is_some()) {
        return Err(wrong("images", "do not go with raw or suffix"));
    }
    let load = prompt.is_empty() && suffix.is_none();
    let prompt = match suffix {
        Some(suffix) => Prompt::Infill(prompt, suffix),
        None if raw => Prompt::Text(prompt),
        None => {
            let mut user = Message::text(Role::User, prompt);
            user.content.extend(images);
            let system = system.map(|system| Message::text(Role::System, system));
            Prompt::Chat(system.into_iter().chain([user]).collect())
        }
    };
    let request = Request::new(id, model.clone(), prompt);
    finish(fields, model, request, load)
}

/// `POST /api/embed`.
///
/// # Errors
/// `invalid-request` and `unsupported`, each naming the field.
pub fn embed(body: Value) -> Result<EmbedCall> {
    let mut fields = Fields::body(body)?;
    let model = model(&mut fields)?;
    let inputs = fields.strings("input")?.unwrap_or_default();
    let dimensions = fields.count("dimensions", 0..=u32::MAX)?.filter(|&count| count > 0);
    let truncate = fields.flag("truncate")?.unwrap_or(true);
    embed_call(fields, model, inputs, dimensions, truncate)
}

/// `POST /api/embeddings`, the older form: one text.
///
/// # Errors
/// `invalid-request` and `unsupported`, each naming the field.
pub fn embeddings(body: Value) -> Result<EmbedCall> {
    let mut fields = Fields::body(body)?;
    let model = model(&mut fields)?;
    let prompt = fields.string("prompt")?.filter(|prompt| !prompt.is_empty());
    embed_call(fields, model, prompt.into_iter().collect(), None, true)
}

fn embed_call(
    mut fields: Fields,
    model: String,
    inputs: Vec<String>,
    dimensions: Option<u32>,
    truncate: bool,
) -> Result<EmbedCall> {
    let keep = keep_alive(&mut fields)?;
    // Sampling means nothing here, but an unknown option is still a mistake.
    let mut scratch = Request::new("", "", Prompt::Text(String::new()));
    let mut unused = options(&mut fields, &mut scratch)?;
    if scratch.context.is_some() {
        unused.push("options.num_ctx".to_owned());
    }
    let request =
        EmbedRequest { model: model.clone(), inputs, dimensions, truncate, extras: Vec::new() };
    Ok(EmbedCall { model, request, keep, unused })
}

/// `model`, or `name` as older clients have it.
///
/// # Errors
/// `invalid-request` when neither is there.
pub fn model(fields: &mut Fields) -> Result<String> {
    let older = fields.string("name")?;
    fields
        .string("model")?
        .filter(|model| !model.is_empty())
        .or(older)
        .filter(|model| !model.is_empty())
        .ok_or_else(|| wrong("model", "is required"))
}

fn finish(mut fields: Fields, model: String, mut request: Request, load: bool) -> Result<Call> {
    let stream = fields.flag("stream")?.unwrap_or(true);
    let keep = keep_alive(&mut fields)?;
    request.constraint = format(&mut fields)?;
    request.reasoning = think(&mut fields)?;
    let top = fields.count("top_logprobs", 0..=20)?;
    request.logprobs = match (fields.flag("logprobs")?.unwrap_or(false), top) {
        (true, top) => Some(top.unwrap_or(0)),
        (false, None | Some(0)) => None,
        (false, Some(_)) => return Err(wrong("top_logprobs", "needs logprobs to be true")),
    };
    let mut unused = options(&mut fields, &mut request)?;
    // A prompt that does not fit is an error, and an answer that does not fit ends with `length`.
    for field in ["truncate", "shift"] {
        if fields.flag(field)? == Some(true) {
            unused.push(field.to_owned());
        }
    }
    if fields.flag("_debug_render_only")? == Some(true) {
        return Err(refused("_debug_render_only", "is not offered"));
    }
    Ok(Call { model, request, stream, keep, load, unused })
}

fn keep_alive(fields: &mut Fields) -> Result<Option<KeepAlive>> {
    let keep = match fields.take("keep_alive") {
        None => return Ok(None),
        Some(Value::String(text)) if text.is_empty() => return Ok(None),
        Some(Value::String(text)) => KeepAlive::parse(&text),
        Some(Value::Number(number)) => KeepAlive::from_seconds(number.as_f64().unwrap_or(f64::NAN)),
        Some(other) => {
            return Err(wrong(
                "keep_alive",
                format!("must be a number of seconds or a duration, got {}", kind(&other)),
            ));
        }
    };
    keep.map(Some).map_err(|error| error.with("field", "keep_alive"))
}

fn format(fields: &mut Fields) -> Result<Option<Constraint>> {
    match fields.take("format") {
        None => Ok(None),
        Some(Value::String(word)) => match word.as_str() {
            "" => Ok(None),
            "json" => Ok(Some(Constraint::JsonObject)),
            _ => Err(wrong("format", "must be \"json\" or a JSON schema object")),
        },
        Some(schema @ Value::Object(_)) => Ok(Some(Constraint::JsonSchema(schema.to_string()))),
        Some(other) => Err(wrong(
            "format",
            format!("must be \"json\" or a JSON schema object, got {}", kind(&other)),
        )),
    }
}

fn think(fields: &mut Fields) -> Result<Reasoning> {
    const LEVELS: [&str; 4] = ["low", "medium", "high", "max"];
    match fields.take("think") {
        None => Ok(Reasoning::Unset),
        Some(Value::Bool(true)) => Ok(Reasoning::On),
        Some(Value::Bool(false)) => Ok(Reasoning::Off),
        Some(Value::String(level)) if LEVELS.contains(&level.as_str()) => {
            Ok(Reasoning::Effort(level))
        }
        Some(_) => {
            Err(wrong("think", "must be true, false, \"low\", \"medium\", \"high\" or \"max\""))
        }
    }
}

/// Reads `options` into a request; the names of those that change nothing.
fn options(fields: &mut Fields, request: &mut Request) -> Result<Vec<String>> {
    let Some(mut options) = fields.object("options")? else { return Ok(Vec::new()) };
    const ANY: std::ops::RangeInclusive<f32> = f32::MIN..=f32::MAX;
    let sampling = &mut request.sampling;
    sampling.temperature = options.number("temperature", 0.0..=f32::MAX)?;
    sampling.top_p = options.number("top_p", 0.0..=1.0)?;
    sampling.top_k = options
        .integer("top_k", -1..=i64::from(u32::MAX))?
        .map(|count| u32::try_from(count).unwrap_or(0));
    sampling.min_p = options.number("min_p", 0.0..=1.0)?;
    sampling.typical_p = options.number("typical_p", 0.0..=1.0)?;
    sampling.repeat_penalty = options.number("repeat_penalty", 0.0..=f32::MAX)?;
    sampling.repeat_last_n = options
        .integer("repeat_last_n", -1..=i64::from(i32::MAX))?
        .and_then(|count| i32::try_from(count).ok());
    sampling.presence_penalty = options.number("presence_penalty", ANY)?;
    sampling.frequency_penalty = options.number("frequency_penalty", ANY)?;
    // -1 is "another seed every time".
    sampling.seed = options
        .integer("seed", i64::MIN..=i64::MAX)?
        .filter(|&seed| seed != -1)
        .map(i64::cast_unsigned);
    // -1 and 0 are "no bound", -2 "until the context is full": both end with the context.
    request.max_tokens = options
        .integer("num_predict", -2..=i64::from(u32::MAX))?
        .and_then(|count| u32::try_from(count).ok())
        .filter(|&count| count > 0);
    request.context = options.count("num_ctx", 0..=u32::MAX)?.filter(|&context| context > 0);
    request.stop = options.stops("stop", 64)?;
    // A policy may have something against them all the same.
    let how = HOW.iter().filter(|option| options.has(option));
    request.extras.extend(how.map(|option| (format!("{}{option}", policy::OPTION), String::new())));
    let unused = options.without_effect(&HOW);
    let left = options.left();
    if let Some(first) = left.first() {
        return Err(Error::unsupported(format!("unknown options: {}", left.join(", ")))
            .with("field", first));
    }
    Ok(unused)
}

fn images(path: &str, items: Vec<Value>) -> Result<Vec<Part>> {
    let one = |(place, item): (usize, Value)| {
        let path = format!("{path}[{place}]");
        match item {
            Value::String(text) => media::image(&path, &text).map(Part::Image),
            other => Err(wrong(&path, format!("must be a base64 string, got {}", kind(&other)))),
        }
    };
    items.into_iter().enumerate().map(one).collect()
}

fn messages(items: Vec<Value>) -> Result<Vec<Message>> {
    let mut messages = Vec::with_capacity(items.len());
    for (place, item) in items.into_iter().enumerate() {
        let message = message(&format!("messages[{place}]"), item, &messages)?;
        messages.push(message);
    }
    Ok(messages)
}

fn message(path: &str, item: Value, before: &[Message]) -> Result<Message> {
    let mut fields = Fields::at(path, item)?;
    let role = match fields.required("role")?.to_lowercase().as_str() {
        "system" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" => Role::Tool,
        _ => {
            return Err(wrong(&fields.name("role"), "must be system, user, assistant or tool"));
        }
    };
    let text = fields.string("content")?.unwrap_or_default();
    let mut message = Message::text(role, text);
    let path = fields.name("images");
    message.content.extend(images(&path, fields.array("images")?.unwrap_or_default())?);
    let names = [
        fields.string("thinking")?,
        fields.string("reasoning")?,
        fields.string("reasoning_content")?,
    ];
    message.reasoning = names.into_iter().flatten().find(|text| !text.is_empty());
    let path = fields.name("tool_calls");
    for (place, call) in fields.array("tool_calls")?.unwrap_or_default().into_iter().enumerate() {
        message.tool_calls.push(tool_call(&format!("{path}[{place}]"), place, call)?);
    }
    message.name = fields.string("tool_name")?.or(fields.string("name")?);
    message.tool_call_id = fields.string("tool_call_id")?.filter(|id| !id.is_empty());
    if message.role == Role::Tool && message.tool_call_id.is_none() {
        message.tool_call_id = open_call(before, message.name.as_deref());
    }
    Ok(message)
}

/// The earliest call that no result answers yet, of this tool if it is named: some clients lose ids.
fn open_call(before: &[Message], name: Option<&str>) -> Option<String> {
    let answered: Vec<_> = before.iter().filter_map(|m| m.tool_call_id.as_deref()).collect();
    let mut calls = before.iter().flat_map(|message| &message.tool_calls);
    calls
        .find(|call| {
            !answered.contains(&call.id.as_str()) && name.is_none_or(|name| name == call.name)
        })
        .map(|call| call.id.clone())
}

fn tool_call(path: &str, place: usize, item: Value) -> Result<ToolCall> {
    let mut fields = Fields::at(path, item)?;
    let id = fields.string("id")?.filter(|id| !id.is_empty());
    let mut function =
        fields.object("function")?.ok_or_else(|| wrong(&fields.name("function"), "is required"))?;
    let name = function.required("name")?;
    let arguments = match function.take("arguments") {
        None => "{}".to_owned(),
        Some(Value::String(text)) => text,
        Some(object @ Value::Object(_)) => object.to_string(),
        Some(other) => {
            return Err(wrong(
                &function.name("arguments"),
                format!("must be an object, got {}", kind(&other)),
            ));
        }
    };
    // Unique within a conversation as long as its path is.
    let id = id.unwrap_or_else(|| {
        let digits: String = path.chars().filter(char::is_ascii_digit).collect();
        format!("call_{digits}_{place}")
    });
    Ok(ToolCall { id, name, arguments })
}

/// `tools`, the same in both dialects; the schema stays as the client wrote it. `strict`: fields that
/// are not a tool's are refused, and those that change nothing go there.
///
/// # Errors
/// `invalid-request` and `unsupported`, each naming the field.
pub fn tools(items: Vec<Value>, mut strict: Option<&mut Vec<String>>) -> Result<Vec<Tool>> {
    let one = |(place, item): (usize, Value)| {
        let mut fields = Fields::at(&format!("tools[{place}]"), item)?;
        match fields.string("type")?.as_deref() {
            None | Some("function") => {}
            Some(_) => return Err(refused(&fields.name("type"), "must be \"function\"")),
        }
        let mut function = fields
            .object("function")?
            .ok_or_else(|| wrong(&fields.name("function"), "is required"))?;
        let parameters = match function.take("parameters") {
            None => r#"{"type":"object","properties":{}}"#.to_owned(),
            Some(schema @ Value::Object(_)) => schema.to_string(),
            Some(other) => {
                return Err(wrong(
                    &function.name("parameters"),
                    format!("must be a JSON schema object, got {}", kind(&other)),
                ));
            }
        };
        let tool = Tool {
            name: function.required("name")?,
            description: function.string("description")?,
            parameters,
            strict: function.flag("strict")?,
            extras: Vec::new(),
        };
        if let Some(unused) = &mut strict {
            closed(function, &[], unused)?;
            closed(fields, &[], unused)?;
        }
        Ok(tool)
    };
    items.into_iter().enumerate().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn good(body: Value) -> Call {
        chat(body, "r").unwrap()
    }

    #[test]
    fn nothing_set_is_nothing_injected() {
        let call = good(json!({ "model": "m", "messages": [{ "role": "user", "content": "hi" }] }));
        let expected = Request::new("r", "m", Prompt::Chat(vec![Message::text(Role::User, "hi")]));
        assert_eq!(call.request, expected);
        assert!(call.stream && !call.load && call.keep.is_none() && call.unused.is_empty());
    }

    #[test]
    fn every_option_arrives() {
        let call = good(json!({
            "model": "m", "messages": [{ "role": "USER", "content": "hi" }], "stream": false,
            "keep_alive": "-1", "think": "high", "logprobs": true, "top_logprobs": 3,
            "format": { "type": "object", "properties": { "z": {}, "a": {}, "m": {} } },
            "unknown_field": 1, "truncate": true,
            "options": {
                "temperature": 0.5, "top_p": 0.9, "top_k": -1, "min_p": 0.1, "typical_p": 0.7,
                "repeat_penalty": 1.1, "repeat_last_n": -1, "presence_penalty": -2,
                "frequency_penalty": 2, "seed": 42, "num_predict": 7, "num_ctx": 4096,
                "stop": ["a", "b"], "num_gpu": 99, "num_thread": 4,
            },
        }));
        let request = call.request;
        assert_eq!(request.sampling.temperature, Some(0.5));
        assert_eq!(request.sampling.top_k, Some(0));
        assert_eq!(request.sampling.repeat_last_n, Some(-1));
        assert_eq!(request.sampling.seed, Some(42));
        assert_eq!((request.max_tokens, request.context), (Some(7), Some(4096)));
        assert_eq!(request.stop, ["a", "b"]);
        assert_eq!(request.logprobs, Some(3));
        assert_eq!(request.reasoning, Reasoning::Effort("high".into()));
        let schema = r#"{"type":"object","properties":{"z":{},"a":{},"m":{}}}"#;
        assert_eq!(request.constraint, Some(Constraint::JsonSchema(schema.into())));
        assert_eq!(call.keep, Some(KeepAlive::Forever));
        assert_eq!(call.unused, ["options.num_gpu", "options.num_thread", "truncate"]);
    }

    #[test]
    fn sentinels_mean_unset() {
        let body = json!({ "model": "m", "prompt": "x",
            "options": { "seed": -1, "num_predict": -1, "num_ctx": 0 } });
        let request = generate(body, "r").unwrap().request;
        assert_eq!(
            (request.sampling.seed, request.max_tokens, request.context),
            (None, None, None)
        );
    }

    #[test]
    fn a_tool_result_without_id_answers_the_open_call_of_its_tool() {
        let call =
            |name: &str| json!({ "function": { "name": name, "arguments": { "b": 1, "a": 2 } } });
        let messages = json!([
            { "role": "user", "content": "?" },
            { "role": "assistant", "tool_calls": [call("f"), call("g")], "thinking": "hm" },
            { "role": "tool", "tool_name": "g", "content": "2" },
            { "role": "tool", "content": "1" },
        ]);
        let call = good(json!({ "model": "m", "messages": messages }));
        let Prompt::Chat(messages) = call.request.prompt else { panic!() };
        let ids: Vec<_> = messages[1].tool_calls.iter().map(|call| call.id.clone()).collect();
        assert_ne!(ids[0], ids[1]);
        assert_eq!(messages[1].tool_calls[0].arguments, r#"{"b":1,"a":2}"#);
        assert_eq!(messages[1].reasoning.as_deref(), Some("hm"));
        assert_eq!(messages[2].tool_call_id.as_ref(), Some(&ids[1]));
        assert_eq!(messages[3].tool_call_id.as_ref(), Some(&ids[0]));
    }

    #[test]
    fn prompts_become_what_they_are() {
        let prompt = |body: Value| generate(body, "r").map(|call| call.request.prompt);
        assert_eq!(
            prompt(json!({ "model": "m", "prompt": "p", "system": "s" })).unwrap(),
            Prompt::Chat(vec![Message::text(Role::System, "s"), Message::text(Role::User, "p")])
        );
        assert_eq!(
            prompt(json!({ "model": "m", "prompt": "p", "raw": true })).unwrap(),
            Prompt::Text("p".into())
        );
        assert_eq!(
            prompt(json!({ "model": "m", "prompt": "p", "suffix": "s" })).unwrap(),
            Prompt::Infill("p".into(), "s".into())
        );
        let png = "iVBORw0KGgo=";
        let with_image = prompt(json!({ "model": "m", "prompt": "p", "images": [png] })).unwrap();
        let Prompt::Chat(messages) = with_image else { panic!() };
        assert!(matches!(&messages[0].content[1], Part::Image(media) if media.mime == "image/png"));
        for body in [
            json!({ "model": "m", "prompt": "p", "raw": true, "system": "s" }),
            json!({ "model": "m", "prompt": "p", "template": "{{ .Prompt }}" }),
            json!({ "model": "m", "prompt": "p", "context": [1, 2] }),
            json!({ "model": "m", "prompt": "p", "images": ["!!"] }),
            json!({ "model": "m", "prompt": "p", "images": ["aGVsbG8="] }),
        ] {
            assert!(prompt(body.clone()).is_err(), "{body}");
        }
        assert!(generate(json!({ "model": "m" }), "r").unwrap().load);
    }
}
