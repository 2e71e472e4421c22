//! An Anthropic request into a domain request. Pure and strict: a field is honoured, refused by
//! name, or named as having no effect.

use gristmill_core::{
    Result,
    request::{Constraint, Message, Prompt, Reasoning, Request, Role, Tool, ToolChoice},
};
use serde_json::Value;

use super::messages::{self, Marks};
use crate::{
    fields::{Fields, nothing_left, refused, wrong},
    openai::decode::{LEVELS, settled},
};

/// A decoded generation.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The model, as the client spells it.
    pub model: String,
    /// What to generate.
    pub request: Request,
    /// Whether to stream.
    pub stream: bool,
    /// Fields that were taken and change nothing.
    pub unused: Vec<String>,
}

/// Fields of account keeping and transport: the answer is the same with or without them.
const HARMLESS: [&str; 3] = ["metadata", "service_tier", "inference_geo"];
/// Most stop strings.
const MOST_STOPS: usize = 64;
/// The dialect's own smallest budget for thinking, tokens.
const LEAST_BUDGET: u32 = 1024;

/// `POST /v1/messages`.
///
/// # Errors
/// `invalid-request` and `unsupported`, each naming the field.
pub fn create(body: Value, id: &str) -> Result<Call> {
    let mut fields = Fields::body(body)?;
    let most = fields.count("max_tokens", 1..=u32::MAX)?;
    let most = most.ok_or_else(|| wrong("max_tokens", "is required"))?;
    let stream = fields.flag("stream")?.unwrap_or(false);
    let mut request = Request::new(id, "", Prompt::Chat(Vec::new()));
    request.max_tokens = Some(most);
    request.stop = fields.stops("stop_sequences", MOST_STOPS)?;
    let sampling = &mut request.sampling;
    sampling.temperature = fields.number("temperature", 0.0..=1.0)?;
    sampling.top_p = fields.number("top_p", 0.0..=1.0)?;
    sampling.top_k = fields.count("top_k", 0..=u32::MAX)?;
    finish(fields, request, stream)
}

/// `POST /v1/messages/count_tokens`: what is read, without what governs the answer.
///
/// # Errors
/// As [`create`].
pub fn count(body: Value, id: &str) -> Result<Call> {
    let request = Request::new(id, "", Prompt::Chat(Vec::new()));
    finish(Fields::body(body)?, request, false)
}

/// Reads what both routes share.
fn finish(mut fields: Fields, mut request: Request, stream: bool) -> Result<Call> {
    let model = fields.required("model")?;
    request.model.clone_from(&model);
    let mut marks = Marks::default();
    let system = messages::system(&mut fields, &mut marks)?;
    let list = fields.objects("messages")?.ok_or_else(|| wrong("messages", "is required"))?;
    let mut said = messages::messages(list, &mut marks)?;
    let last = said.len().saturating_sub(1);
    match said.last() {
        None => return Err(wrong("messages", "is empty")),
        Some(Message { role: Role::Assistant, .. }) => {
            let what = "is the assistant's: an answer cannot be begun for it here";
            return Err(refused(&format!("messages[{last}]"), what));
        }
        Some(_) => {}
    }
    said.splice(0..0, system);
    request.prompt = Prompt::Chat(said);
    request.tools = tools(&mut fields, &mut marks)?;
    tool_choice(&mut fields, &mut request)?;
    let mut unused = Vec::new();
    request.reasoning = thinking(&mut fields, request.max_tokens, &mut unused)?;
    output(&mut fields, &mut request)?;
    marks.take(&mut fields)?;
    unused.extend(fields.without_effect(&HARMLESS));
    unused.extend(marks.names());
    nothing_left(&fields)?;
    Ok(Call { model, request, stream, unused })
}

fn tools(fields: &mut Fields, marks: &mut Marks) -> Result<Vec<Tool>> {
    let mut tools = Vec::new();
    for mut fields in fields.objects("tools")?.unwrap_or_default() {
        if fields.string("type")?.is_some_and(|kind| kind != "custom") {
            let what = "must be \"custom\": tools of a server are not offered";
            return Err(refused(&fields.name("type"), what));
        }
        marks.take(&mut fields)?;
        // Arguments always arrive as they are generated.
        fields.flag("eager_input_streaming")?;
        let missing = wrong(&fields.name("input_schema"), "is required");
        tools.push(Tool {
            name: fields.required("name")?,
            description: fields.string("description")?,
            parameters: fields.schema("input_schema")?.ok_or(missing)?,
            strict: fields.flag("strict")?,
            extras: Vec::new(),
        });
        nothing_left(&fields)?;
    }
    Ok(tools)
}

fn tool_choice(fields: &mut Fields, request: &mut Request) -> Result<()> {
    let Some(mut choice) = fields.object("tool_choice")? else { return Ok(()) };
    let chosen = match choice.required("type")?.as_str() {
        "auto" => ToolChoice::Auto,
        "any" => ToolChoice::Required,
        "tool" => ToolChoice::Named(choice.required("name")?),
        "none" => ToolChoice::None,
        _ => return Err(wrong("tool_choice.type", "must be auto, any, tool or none")),
    };
    let alone = choice.flag("disable_parallel_tool_use")?;
    nothing_left(&choice)?;
    request.parallel_tool_calls = alone.map(|alone| !alone);
    request.tool_choice = settled(chosen, &request.tools)?;
    Ok(())
}

/// `thinking`. The budget is a target in this dialect, not a bound, and is checked as such.
fn thinking(fields: &mut Fields, most: Option<u32>, unused: &mut Vec<String>) -> Result<Reasoning> {
    let Some(mut thinking) = fields.object("thinking")? else { return Ok(Reasoning::Unset) };
    let reasoning = match thinking.required("type")?.as_str() {
        "enabled" => {
            let path = thinking.name("budget_tokens");
            let budget = thinking.count("budget_tokens", LEAST_BUDGET..=u32::MAX)?;
            let budget = budget.ok_or_else(|| wrong(&path, "is required"))?;
            if most.is_some_and(|most| budget >= most) {
                return Err(wrong(&path, "must be smaller than max_tokens"));
            }
            unused.push(path);
            Reasoning::On
        }
        "adaptive" => Reasoning::Unset,
        "disabled" => Reasoning::Off,
        _ => return Err(wrong("thinking.type", "must be enabled, adaptive or disabled")),
    };
    nothing_left(&thinking)?;
    Ok(reasoning)
}

/// `output_config`.
fn output(fields: &mut Fields, request: &mut Request) -> Result<()> {
    let Some(mut output) = fields.object("output_config")? else { return Ok(()) };
    if let Some(effort) = output.string("effort")? {
        if !LEVELS.contains(&effort.as_str()) {
            let what = format!("must be one of {}", LEVELS.join(", "));
            return Err(wrong(&output.name("effort"), what));
        }
        if request.reasoning == Reasoning::Off {
            return Err(wrong(&output.name("effort"), "contradicts thinking, which is disabled"));
        }
        request.reasoning = Reasoning::Effort(effort);
    }
    if let Some(mut format) = output.object("format")? {
        if format.required("type")? != "json_schema" {
            return Err(wrong(&format.name("type"), "must be \"json_schema\""));
        }
        let missing = wrong(&format.name("schema"), "is required");
        let schema = format.schema("schema")?.ok_or(missing)?;
        request.constraint = Some(Constraint::JsonSchema(schema));
        nothing_left(&format)?;
    }
    nothing_left(&output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn with(extra: Value) -> Result<Call> {
        let mut body = json!({ "model": "m", "max_tokens": 2048,
            "messages": [{ "role": "user", "content": "hi" }] });
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        create(body, "r")
    }

    #[test]
    fn nothing_set_is_nothing_injected() {
        let call = with(json!({})).unwrap();
        let mut expected =
            Request::new("r", "m", Prompt::Chat(vec![Message::text(Role::User, "hi")]));
        expected.max_tokens = Some(2048);
        assert_eq!(call.request, expected);
        assert!(!call.stream && call.unused.is_empty());
    }

    #[test]
    fn every_field_arrives() {
        let call = with(json!({
            "system": [{ "type": "text", "text": "s", "cache_control": { "type": "ephemeral" } }],
            "stop_sequences": ["x"], "temperature": 0.5, "top_p": 0.9, "top_k": 5, "stream": true,
            "metadata": { "user_id": "u" }, "thinking": { "type": "enabled", "budget_tokens": 1024 },
            "output_config": { "format": { "type": "json_schema", "schema": { "z": 1, "a": 2 } } },
            "tools": [{ "name": "f", "description": "d", "strict": true,
                "input_schema": { "type": "object", "properties": { "b": {}, "a": {} } } }],
            "tool_choice": { "type": "tool", "name": "f", "disable_parallel_tool_use": true },
        }))
        .unwrap();
        let request = call.request;
        let Prompt::Chat(messages) = &request.prompt else { panic!() };
        assert_eq!(messages[0], Message::text(Role::System, "s"));
        assert_eq!((request.stop.len(), request.sampling.top_k), (1, Some(5)));
        assert_eq!(request.reasoning, Reasoning::On);
        assert_eq!(request.constraint, Some(Constraint::JsonSchema(r#"{"z":1,"a":2}"#.into())));
        assert_eq!(request.tool_choice, ToolChoice::Named("f".into()));
        assert_eq!(request.parallel_tool_calls, Some(false));
        assert_eq!(
            request.tools[0].parameters,
            r#"{"type":"object","properties":{"b":{},"a":{}}}"#
        );
        assert_eq!(call.unused, ["thinking.budget_tokens", "metadata", "cache_control"]);
        let call = with(json!({ "thinking": { "type": "adaptive" },
            "output_config": { "effort": "low" } }))
        .unwrap();
        assert_eq!(call.request.reasoning, Reasoning::Effort("low".into()));
    }

    #[test]
    fn what_cannot_be_honoured_is_refused_by_name() {
        let tool = json!([{ "name": "f", "input_schema": {} }]);
        for (extra, field) in [
            (json!({ "max_tokens": null }), "max_tokens"),
            (json!({ "max_tokens": 0 }), "max_tokens"),
            (json!({ "messages": [] }), "messages"),
            (json!({ "messages": "hi" }), "messages"),
            (
                json!({ "messages": [{ "role": "user", "content": "a" },
                    { "role": "assistant", "content": "b" }] }),
                "messages[1]",
            ),
            (json!({ "temperature": 1.5 }), "temperature"),
            (json!({ "top_k": -1 }), "top_k"),
            (json!({ "stop_sequences": [""] }), "stop_sequences"),
            (json!({ "system": 5 }), "system"),
            (json!({ "system": [{ "type": "image" }] }), "system[0].type"),
            (json!({ "tools": [{ "type": "web_search_20250305" }] }), "tools[0].type"),
            (json!({ "tools": [{ "name": "f" }] }), "tools[0].input_schema"),
            (json!({ "tools": tool, "tool_choice": "any" }), "tool_choice"),
            (json!({ "tools": tool, "tool_choice": { "type": "x" } }), "tool_choice.type"),
            (
                json!({ "tools": tool, "tool_choice": { "type": "tool", "name": "g" } }),
                "tool_choice",
            ),
            (json!({ "tool_choice": { "type": "any" } }), "tool_choice"),
            (json!({ "thinking": { "type": "enabled" } }), "thinking.budget_tokens"),
            (
                json!({ "thinking": { "type": "enabled", "budget_tokens": 100 } }),
                "thinking.budget_tokens",
            ),
            (
                json!({ "thinking": { "type": "enabled", "budget_tokens": 2048 } }),
                "thinking.budget_tokens",
            ),
            (json!({ "thinking": { "type": "x" } }), "thinking.type"),
            (json!({ "output_config": { "effort": "x" } }), "output_config.effort"),
            (
                json!({ "thinking": { "type": "disabled" }, "output_config": { "effort": "low" } }),
                "output_config.effort",
            ),
            (
                json!({ "output_config": { "format": { "type": "json_schema" } } }),
                "output_config.format.schema",
            ),
            (json!({ "container": "c" }), "container"),
            (json!({ "mcp_servers": [] }), "mcp_servers"),
            (json!({ "an_invention": 1 }), "an_invention"),
        ] {
            let error = with(extra.clone()).unwrap_err();
            assert_eq!(error.detail("field"), Some(field), "{extra}: {error}");
        }
    }

    #[test]
    fn counting_takes_what_is_read_and_nothing_else() {
        let body = json!({ "model": "m", "messages": [{ "role": "user", "content": "hi" }] });
        assert!(count(body.clone(), "r").is_ok());
        for field in ["max_tokens", "stream", "temperature"] {
            let mut body = body.clone();
            body[field] = json!(1);
            assert_eq!(count(body, "r").unwrap_err().detail("field"), Some(field));
        }
    }
}
