//! A Responses request into a domain request. Pure, and as strict as the older OpenAI dialect: a
//! field is honoured, refused by name, or named as having no effect.

use gristmill_core::{
    Result,
    request::{Constraint, Message, Prompt, Reasoning, Request, Role, Tool, ToolChoice},
};
use serde_json::{Map, Value, json};

use super::items;
use crate::{
    fields::{Fields, kind, nothing_left, refused, wrong},
    openai::decode::{HARMLESS, LEVELS, sampling, settled},
};

/// A decoded generation.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The model, as the client spells it.
    pub model: String,
    /// What to generate. Its conversation begins after the previous response's.
    pub request: Request,
    /// The response whose conversation goes before.
    pub previous: Option<String>,
    /// Text that goes before the whole conversation.
    pub instructions: Option<String>,
    /// Whether to stream.
    pub stream: bool,
    /// Whether the response may be continued and fetched later.
    pub store: bool,
    /// What the answer repeats of the request.
    pub echo: Map<String, Value>,
    /// Fields that were taken and change nothing.
    pub unused: Vec<String>,
}

/// Fields without effect besides OpenAI's common ones: they speak of tools that run on the server,
/// and there are none.
const HOSTED: [&str; 1] = ["max_tool_calls"];

/// `POST /v1/responses`.
///
/// # Errors
/// `invalid-request` and `unsupported`, each naming the field.
pub fn create(body: Value, id: &str) -> Result<Call> {
    let mut fields = Fields::body(body)?;
    let mut echo = Map::new();
    let model = fields.required("model")?;
    let previous = fields.string("previous_response_id")?.filter(|id| !id.is_empty());
    let instructions = fields.string("instructions")?.filter(|text| !text.is_empty());
    let messages = items::messages(fields.take("input"), previous.is_some())?;
    let mut request = Request::new(id, model.clone(), Prompt::Chat(messages));
    request.tools = tools(&mut fields, &mut echo)?;
    request.tool_choice = tool_choice(&mut fields, &request.tools, &mut echo)?;
    request.parallel_tool_calls = fields.flag("parallel_tool_calls")?;
    request.constraint = text(&mut fields, &mut echo)?;
    let mut unused = Vec::new();
    request.reasoning = reasoning(&mut fields, &mut echo, &mut unused)?;
    request.max_tokens = fields.count("max_output_tokens", 1..=u32::MAX)?;
    request.logprobs = logprobs(&mut fields, &mut unused)?;
    sampling(&mut fields, &mut request)?;

    let store = fields.flag("store")?.unwrap_or(true);
    let stream = fields.flag("stream")?.unwrap_or(false);
    if let Some(mut options) = fields.object("stream_options")? {
        if !stream {
            return Err(wrong("stream_options", "needs stream to be true"));
        }
        options.flag("include_obfuscation")?;
        nothing_left(&options)?;
    }
    if fields.flag("background")? == Some(true) {
        return Err(refused("background", "is not offered; wait for the answer, or stream it"));
    }
    match fields.string("truncation")?.as_deref() {
        None | Some("disabled") => {}
        Some("auto") => {
            return Err(refused("truncation", "must be \"disabled\": nothing is cut silently"));
        }
        Some(_) => return Err(wrong("truncation", "must be \"auto\" or \"disabled\"")),
    }
    let metadata = fields.object("metadata")?;
    unused.extend(metadata.as_ref().map(|_| "metadata".to_owned()));
    unused.extend(fields.without_effect(&HARMLESS));
    unused.extend(fields.without_effect(&HOSTED));
    nothing_left(&fields)?;

    let settings = json!({
        "instructions": instructions,
        "max_output_tokens": request.max_tokens,
        "metadata": metadata.map(Fields::into_value).unwrap_or_else(|| json!({})),
        "parallel_tool_calls": request.parallel_tool_calls.unwrap_or(true),
        "previous_response_id": previous,
        "temperature": request.sampling.temperature,
        "top_p": request.sampling.top_p,
        "top_logprobs": request.logprobs.unwrap_or(0),
        "truncation": "disabled",
    });
    if let Value::Object(settings) = settings {
        echo.extend(settings);
    }
    Ok(Call { model, request, previous, instructions, stream, store, echo, unused })
}

impl Call {
    /// Puts the instructions and the conversation of the previous response before the new input.
    pub fn join(&mut self, before: &[Message]) {
        let Prompt::Chat(input) = &mut self.request.prompt else { return };
        let instructions = self.instructions.iter().map(|text| Message::text(Role::System, text));
        let head: Vec<Message> = instructions.chain(before.iter().cloned()).collect();
        input.splice(0..0, head);
    }

    /// What has been said since the instructions.
    #[must_use]
    pub fn said(&self) -> Vec<Message> {
        let Prompt::Chat(messages) = &self.request.prompt else { return Vec::new() };
        messages.iter().skip(usize::from(self.instructions.is_some())).cloned().collect()
    }
}

fn tools(fields: &mut Fields, echo: &mut Map<String, Value>) -> Result<Vec<Tool>> {
    let mut tools = Vec::new();
    let mut shown = Vec::new();
    for mut fields in fields.objects("tools")?.unwrap_or_default() {
        if fields.required("type")? != "function" {
            let what = "must be \"function\": no tool runs on this server";
            return Err(refused(&fields.name("type"), what));
        }
        let tool = Tool {
            name: fields.required("name")?,
            description: fields.string("description")?,
            parameters: fields
                .schema("parameters")?
                .unwrap_or_else(|| r#"{"type":"object","properties":{}}"#.to_owned()),
            strict: fields.flag("strict")?,
            extras: Vec::new(),
        };
        nothing_left(&fields)?;
        shown.push(json!({
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": serde_json::from_str::<Value>(&tool.parameters).ok(),
            "strict": tool.strict,
        }));
        tools.push(tool);
    }
    echo.insert("tools".to_owned(), Value::Array(shown));
    Ok(tools)
}

fn tool_choice(
    fields: &mut Fields,
    tools: &[Tool],
    echo: &mut Map<String, Value>,
) -> Result<ToolChoice> {
    const EXPECTED: &str =
        "must be \"auto\", \"none\", \"required\" or {\"type\":\"function\",\"name\":…}";
    let (choice, shown) = match fields.take("tool_choice") {
        None => (ToolChoice::Auto, json!("auto")),
        Some(Value::String(word)) => {
            let choice = match word.as_str() {
                "auto" => ToolChoice::Auto,
                "none" => ToolChoice::None,
                "required" => ToolChoice::Required,
                _ => return Err(wrong("tool_choice", EXPECTED)),
            };
            (choice, json!(word))
        }
        Some(value) => {
            let mut choice = Fields::at("tool_choice", value)?;
            if choice.required("type")? != "function" {
                return Err(refused("tool_choice", EXPECTED));
            }
            let name = choice.required("name")?;
            nothing_left(&choice)?;
            let shown = json!({ "type": "function", "name": name });
            (ToolChoice::Named(name), shown)
        }
    };
    echo.insert("tool_choice".to_owned(), shown);
    settled(choice, tools)
}

/// `text.format`.
fn text(fields: &mut Fields, echo: &mut Map<String, Value>) -> Result<Option<Constraint>> {
    let mut shown = json!({ "type": "text" });
    let mut constraint = None;
    if let Some(mut text) = fields.object("text")? {
        if let Some(mut format) = text.object("format")? {
            match format.required("type")?.as_str() {
                "text" => {}
                "json_object" => {
                    shown = json!({ "type": "json_object" });
                    constraint = Some(Constraint::JsonObject);
                }
                "json_schema" => {
                    let missing = wrong(&format.name("schema"), "is required");
                    let schema = format.schema("schema")?.ok_or(missing)?;
                    shown = json!({
                        "type": "json_schema",
                        "name": format.string("name")?,
                        "description": format.string("description")?,
                        "schema": serde_json::from_str::<Value>(&schema).ok(),
                        "strict": format.flag("strict")?,
                    });
                    constraint = Some(Constraint::JsonSchema(schema));
                }
                _ => {
                    let what = "must be \"text\", \"json_object\" or \"json_schema\"";
                    return Err(wrong(&format.name("type"), what));
                }
            }
            nothing_left(&format)?;
        }
        nothing_left(&text)?;
    }
    echo.insert("text".to_owned(), json!({ "format": shown }));
    Ok(constraint)
}

/// `reasoning.effort`. A summary is nothing that can be asked for: the reasoning itself is given, so
/// the words that leave the choice to the server have no effect, and the others are refused.
fn reasoning(
    fields: &mut Fields,
    echo: &mut Map<String, Value>,
    unused: &mut Vec<String>,
) -> Result<Reasoning> {
    let mut effort = None;
    if let Some(mut reasoning) = fields.object("reasoning")? {
        effort = reasoning.string("effort")?;
        for field in ["summary", "generate_summary"] {
            match reasoning.string(field)?.as_deref() {
                None => {}
                Some("auto" | "detailed") => unused.push(reasoning.name(field)),
                Some(_) => {
                    let what = "must be \"auto\" or \"detailed\": reasoning is given whole";
                    return Err(refused(&reasoning.name(field), what));
                }
            }
        }
        nothing_left(&reasoning)?;
    }
    echo.insert("reasoning".to_owned(), json!({ "effort": effort, "summary": null }));
    match effort.as_deref() {
        None => Ok(Reasoning::Unset),
        Some("none") => Ok(Reasoning::Off),
        Some(word) if LEVELS.contains(&word) => Ok(Reasoning::Effort(word.to_owned())),
        Some(_) => {
            Err(wrong("reasoning.effort", format!("must be none or one of {}", LEVELS.join(", "))))
        }
    }
}

/// `include` and `top_logprobs`.
fn logprobs(fields: &mut Fields, unused: &mut Vec<String>) -> Result<Option<u32>> {
    let mut wanted = false;
    let path = fields.name("include");
    for (place, item) in fields.array("include")?.unwrap_or_default().into_iter().enumerate() {
        match item.as_str() {
            Some("message.output_text.logprobs") => wanted = true,
            // Reasoning is given in the clear.
            Some("reasoning.encrypted_content") => unused.push(format!("{path}[{place}]")),
            Some(_) => return Err(refused(&format!("{path}[{place}]"), "is not offered here")),
            None => {
                let what = format!("must be a string, got {}", kind(&item));
                return Err(wrong(&format!("{path}[{place}]"), what));
            }
        }
    }
    match (wanted, fields.count("top_logprobs", 0..=20)?) {
        (true, top) => Ok(Some(top.unwrap_or(0))),
        (false, None | Some(0)) => Ok(None),
        (false, Some(_)) => {
            Err(wrong("top_logprobs", "needs message.output_text.logprobs in include"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(extra: Value) -> Result<Call> {
        let mut body = json!({ "model": "m", "input": "hi" });
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        create(body, "r")
    }

    #[test]
    fn nothing_set_is_nothing_injected() {
        let call = with(json!({})).unwrap();
        let expected = Request::new("r", "m", Prompt::Chat(vec![Message::text(Role::User, "hi")]));
        assert_eq!(call.request, expected);
        assert!(call.store && !call.stream && call.unused.is_empty());
    }

    #[test]
    fn every_field_arrives() {
        let mut call = with(json!({
            "instructions": "be brief", "max_output_tokens": 9, "temperature": 0.5, "top_p": 0.9,
            "parallel_tool_calls": false, "stream": true, "store": false, "metadata": { "a": "b" },
            "reasoning": { "effort": "low", "summary": "auto" }, "top_logprobs": 3,
            "include": ["message.output_text.logprobs", "reasoning.encrypted_content"],
            "text": { "format": { "type": "json_schema", "name": "n", "strict": true,
                "schema": { "z": 1, "a": 2 } } },
            "tools": [{ "type": "function", "name": "f", "description": "d", "strict": true,
                "parameters": { "type": "object", "properties": { "b": {}, "a": {} } } }],
            "tool_choice": { "type": "function", "name": "f" }, "stop": ["x"], "top_k": 5, "seed": 3,
            "stream_options": { "include_obfuscation": false }, "truncation": "disabled",
            "background": false, "user": "u", "max_tool_calls": 3,
        }))
        .unwrap();
        let request = call.request.clone();
        assert_eq!((request.max_tokens, request.logprobs), (Some(9), Some(3)));
        assert_eq!(request.reasoning, Reasoning::Effort("low".into()));
        assert_eq!(request.constraint, Some(Constraint::JsonSchema(r#"{"z":1,"a":2}"#.into())));
        assert_eq!(request.tool_choice, ToolChoice::Named("f".into()));
        assert_eq!(
            request.tools[0].parameters,
            r#"{"type":"object","properties":{"b":{},"a":{}}}"#
        );
        assert_eq!((request.stop.len(), request.sampling.top_k), (1, Some(5)));
        assert_eq!(
            call.unused,
            ["reasoning.summary", "include[1]", "metadata", "user", "max_tool_calls"]
        );
        assert_eq!(call.echo["tool_choice"]["name"], "f");
        assert!(call.stream && !call.store);
        call.join(&[Message::text(Role::User, "before")]);
        assert_eq!(call.said().len(), 2);
        let Prompt::Chat(messages) = call.request.prompt else { panic!() };
        let roles: Vec<_> = messages.iter().map(|message| message.role.as_str()).collect();
        assert_eq!(roles, ["system", "user", "user"]);
    }

    #[test]
    fn what_cannot_be_honoured_is_refused_by_name() {
        for (extra, field) in [
            (json!({ "input": [] }), "input"),
            (json!({ "input": 5 }), "input"),
            (json!({ "max_output_tokens": 0 }), "max_output_tokens"),
            (json!({ "max_tokens": 5 }), "max_tokens"),
            (json!({ "temperature": 2.5 }), "temperature"),
            (json!({ "background": true }), "background"),
            (json!({ "truncation": "auto" }), "truncation"),
            (json!({ "conversation": "c" }), "conversation"),
            (json!({ "prompt": { "id": "p" } }), "prompt"),
            (json!({ "tools": [{ "type": "web_search" }] }), "tools[0].type"),
            (json!({ "tools": [{ "type": "function" }] }), "tools[0].name"),
            (
                json!({ "tools": [{ "type": "function", "name": "f", "parameters": 1 }] }),
                "tools[0].parameters",
            ),
            (json!({ "tool_choice": "required" }), "tool_choice"),
            (json!({ "tool_choice": { "type": "file_search" } }), "tool_choice"),
            (json!({ "text": { "verbosity": "low" } }), "text.verbosity"),
            (json!({ "text": { "format": { "type": "grammar" } } }), "text.format.type"),
            (json!({ "text": { "format": { "type": "json_schema" } } }), "text.format.schema"),
            (json!({ "reasoning": { "effort": "huge" } }), "reasoning.effort"),
            (json!({ "reasoning": { "summary": "concise" } }), "reasoning.summary"),
            (json!({ "include": ["file_search_call.results"] }), "include[0]"),
            (json!({ "include": [5] }), "include[0]"),
            (json!({ "top_logprobs": 2 }), "top_logprobs"),
            (json!({ "stream_options": {} }), "stream_options"),
            (json!({ "an_invention": 1 }), "an_invention"),
        ] {
            let error = with(extra.clone()).unwrap_err();
            assert_eq!(error.detail("field"), Some(field), "{extra}: {error}");
        }
    }
}
