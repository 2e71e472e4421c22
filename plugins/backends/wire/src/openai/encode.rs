//! A request as the server's JSON. What the caller left unset is not there; what cannot be expressed
//! is refused by its name.

use gristmill_plugin::{extra, prelude::*};

use super::{Choice, Constraints, Infill, Profile, messages, refused, sampling};
use crate::{
    Fields,
    fields::{checked, json},
};

/// What is sent.
pub(super) struct Encoded {
    pub(super) path: &'static str,
    pub(super) body: Fields,
    /// Stop strings beyond the server's number.
    pub(super) local_stops: Vec<String>,
}

/// Encodes a request.
///
/// # Errors
/// `unsupported` or `invalid-request` with the field's name.
pub(super) fn encode(profile: &Profile, request: &Request) -> Result<Encoded> {
    if request.context.is_some() {
        return Err(refused(profile, "context", "the server was started with its own"));
    }
    let mut body = Fields::new();
    body.set("model", &request.model);
    let path = match &request.prompt {
        Prompt::Chat(conversation) => {
            body.objects("messages", messages::write(profile, conversation)?);
            "/v1/chat/completions"
        }
        Prompt::Text(text) => {
            body.set("prompt", text);
            "/v1/completions"
        }
        Prompt::Tokens(tokens) => {
            if !profile.token_prompt {
                return Err(refused(profile, "prompt", "token ids are no prompt there"));
            }
            body.set("prompt", tokens);
            "/v1/completions"
        }
        Prompt::Infill((before, after)) => match profile.infill {
            Infill::Unread => {
                return Err(refused(profile, "suffix", "the server fills no gaps"));
            }
            Infill::Suffix => {
                body.set("prompt", before);
                body.set("suffix", after);
                "/v1/completions"
            }
            Infill::Native => {
                body.set("input_prefix", before);
                body.set("input_suffix", after);
                "/infill"
            }
        },
    };
    let chat = path == "/v1/chat/completions";
    let tools = tools(profile, request, chat, &mut body)?;
    thinking(profile, request, chat, &mut body)?;
    if let Some(constraint) = &request.constraint {
        constrain(profile, constraint, chat, tools, &mut body)?;
    }
    sampling::write(profile, &request.sampling, &mut body)?;
    match (path, request.max_tokens) {
        ("/infill", most) => body.maybe("n_predict", most),
        (_, most) => body.maybe("max_tokens", most),
    }
    let local_stops = stops(profile, &request.stop, &mut body);
    logprobs(profile, request, path, &mut body)?;
    for known in profile.extras {
        if let Some(value) = extra(&request.extras, known.name) {
            match checked(value, known.name) {
                Ok(value) => body.raw(known.field, value),
                Err(_) => body.set(known.field, value),
            }
        }
    }
    if !(tools && request.logprobs.is_some() && profile.logprobs_unstreamed_with_tools) {
        body.set("stream", true);
        if path != "/infill" {
            let mut options = Fields::new();
            options.set("include_usage", true);
            body.object("stream_options", options);
        }
    }
    Ok(Encoded { path, body, local_stops })
}

/// Writes the tools; whether there are any.
fn tools(profile: &Profile, request: &Request, chat: bool, body: &mut Fields) -> Result<bool> {
    if request.tools.is_empty() {
        return Ok(false);
    }
    if !chat {
        return Err(refused(profile, "tools", "a raw prompt has none"));
    }
    let named = match &request.tool_choice {
        ToolChoice::Named(name) => {
            if !request.tools.iter().any(|tool| tool.name == *name) {
                let what = format!("tool_choice: there is no tool {name} in the request");
                return Err(Error::invalid_request(what).with("field", "tool_choice"));
            }
            Some(name)
        }
        _ => None,
    };
    match (profile.choice, &request.tool_choice) {
        (_, ToolChoice::Auto) => {}
        (Choice::Unread, ToolChoice::None) => return Ok(false),
        (Choice::Unread, _) => {
            return Err(refused(profile, "tool_choice", "the server leaves it to the model"));
        }
        (_, ToolChoice::None) => body.set("tool_choice", "none"),
        (_, ToolChoice::Required) | (Choice::Words, ToolChoice::Named(_)) => {
            body.set("tool_choice", "required");
        }
        (Choice::Full, ToolChoice::Named(name)) => {
            let mut function = Fields::new();
            function.set("name", name);
            let mut choice = Fields::new();
            choice.set("type", "function");
            choice.object("function", function);
            body.object("tool_choice", choice);
        }
    }
    let only = named.filter(|_| profile.choice == Choice::Words);
    let mut written = Vec::new();
    for (at, tool) in request.tools.iter().enumerate() {
        if only.is_none_or(|name| tool.name == *name) {
            written.push(function(at, tool)?);
        }
    }
    body.objects("tools", written);
    if profile.parallel_switch {
        body.maybe("parallel_tool_calls", request.parallel_tool_calls);
    }
    Ok(true)
}

/// A tool in the way that OpenAI and Ollama share. The schema goes through byte for byte.
///
/// # Errors
/// `invalid-request` for parameters that are no JSON.
pub fn function(at: usize, tool: &Tool) -> Result<Fields> {
    let mut function = Fields::new();
    function.set("name", &tool.name);
    function.maybe("description", tool.description.as_deref());
    if !tool.parameters.is_empty() {
        let field = format!("tools[{at}].function.parameters");
        function.raw("parameters", checked(&tool.parameters, &field)?);
    }
    function.maybe("strict", tool.strict);
    let mut fields = Fields::new();
    fields.set("type", "function");
    fields.object("function", function);
    Ok(fields)
}

fn thinking(profile: &Profile, request: &Request, chat: bool, body: &mut Fields) -> Result<()> {
    if request.reasoning == Reasoning::Unset {
        return Ok(());
    }
    if !chat {
        return Err(refused(profile, "reasoning", "a raw prompt decides it itself"));
    }
    let ways = &profile.thinking;
    let switch = |body: &mut Fields, on: bool| {
        let mut kwargs = Fields::new();
        kwargs.set("enable_thinking", on);
        body.object("chat_template_kwargs", kwargs);
    };
    match (&request.reasoning, ways.effort_off) {
        (Reasoning::On, _) if ways.kwarg => switch(body, true),
        (Reasoning::Off, _) if ways.kwarg => switch(body, false),
        (Reasoning::Off, Some(off)) => body.set("reasoning_effort", off),
        (Reasoning::Effort(effort), words) => match (effort.parse::<u32>(), ways.budget, words) {
            (Ok(tokens), Some(field), _) => body.set(field, tokens),
            (Ok(_), None, _) => {
                return Err(refused(profile, "reasoning", "no number of tokens can be said"));
            }
            (Err(_), _, Some(_)) => body.set("reasoning_effort", effort),
            (Err(_), _, None) => return Err(refused(profile, "reasoning", "only on or off")),
        },
        _ => return Err(refused(profile, "reasoning", "only efforts can be said, or off")),
    }
    Ok(())
}

fn constrain(
    profile: &Profile,
    constraint: &Constraint,
    chat: bool,
    tools: bool,
    body: &mut Fields,
) -> Result<()> {
    let ways = profile.constraints;
    if ways == Constraints::Unread {
        return Err(refused(profile, "response_format", "the server enforces no format"));
    }
    // A raw prompt has no `response_format` at the server with a field for grammars.
    let raw_schema = ways == Constraints::Grammar && !chat;
    match constraint {
        Constraint::JsonObject if raw_schema => body.raw("json_schema", r#"{"type":"object"}"#),
        Constraint::JsonObject => body.raw("response_format", r#"{"type":"json_object"}"#),
        Constraint::JsonSchema(schema) => {
            let schema = checked(schema, "response_format.json_schema.schema")?;
            if raw_schema {
                body.raw("json_schema", schema);
                return Ok(());
            }
            let mut named = Fields::new();
            named.set("name", "answer");
            named.set("strict", true);
            named.raw("schema", schema);
            let mut format = Fields::new();
            format.set("type", "json_schema");
            format.object("json_schema", named);
            body.object("response_format", format);
        }
        Constraint::Regex(text) | Constraint::Grammar(text) => {
            let regex = matches!(constraint, Constraint::Regex(_));
            let word = if regex { "regex" } else { "grammar" };
            match ways {
                Constraints::Structured => {
                    body.raw("structured_outputs", &format!("{{\"{word}\":{}}}", json(text)));
                }
                Constraints::Grammar if !regex && !tools => body.set("grammar", text),
                Constraints::Grammar if !regex => {
                    return Err(refused(profile, word, "not together with tools"));
                }
                _ => return Err(refused(profile, word, "only JSON formats are enforced")),
            }
        }
        Constraint::Other((kind, _)) => {
            return Err(refused(profile, kind, "this kind of constraint is unknown"));
        }
    }
    Ok(())
}

/// Writes as many stop strings as the server takes; the rest is looked for here.
fn stops(profile: &Profile, stops: &[String], body: &mut Fields) -> Vec<String> {
    let sent = stops.get(..profile.stops.unwrap_or(usize::MAX)).unwrap_or(stops);
    if !sent.is_empty() {
        body.set("stop", sent);
    }
    stops.iter().skip(sent.len()).cloned().collect()
}

fn logprobs(profile: &Profile, request: &Request, path: &str, body: &mut Fields) -> Result<()> {
    let Some(alternatives) = request.logprobs else { return Ok(()) };
    if !profile.logprobs {
        return Err(refused(profile, "logprobs", "the server does not tell them token by token"));
    }
    match path {
        "/v1/chat/completions" => {
            body.set("logprobs", true);
            if alternatives > 0 {
                body.set("top_logprobs", alternatives);
            }
        }
        "/v1/completions" => body.set("logprobs", alternatives),
        _ => return Err(refused(profile, "logprobs", "not when a gap is filled")),
    }
    Ok(())
}
