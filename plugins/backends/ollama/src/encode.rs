//! A request as `/api/chat` and `/api/generate` take it. What the caller left unset is not there, with
//! two exceptions that keep an answer whole: `truncate` and `shift` are switched off, because Ollama
//! would otherwise drop the oldest messages, or half the context, and say nothing.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use gristmill_bridge::{
    Fields,
    fields::checked,
    history::{Turn, linked},
    openai::function,
};
use gristmill_plugin::{extra, prelude::*};

use crate::refused;

/// Path and body.
///
/// # Errors
/// `unsupported` or `invalid-request` with the field's name.
pub(crate) fn encode(request: &Request) -> Result<(&'static str, Fields)> {
    let mut body = Fields::new();
    body.set("model", &request.model);
    let path = match &request.prompt {
        Prompt::Chat(messages) => {
            let turns = linked(messages)?;
            let written: Result<Vec<Fields>> =
                turns.iter().enumerate().map(|(at, turn)| message(at, turn)).collect();
            body.objects("messages", written?);
            tools(request, &mut body)?;
            thinking(&request.reasoning, &mut body)?;
            "/api/chat"
        }
        Prompt::Text(_) | Prompt::Infill(_) => {
            if !request.tools.is_empty() {
                return Err(refused("tools", "a raw prompt has none"));
            }
            if request.reasoning != Reasoning::Unset {
                return Err(refused("reasoning", "a raw prompt decides it itself"));
            }
            match &request.prompt {
                Prompt::Infill((before, after)) => {
                    body.set("prompt", before);
                    body.set("suffix", after);
                }
                Prompt::Text(text) => {
                    body.set("prompt", text);
                    body.set("raw", true);
                }
                Prompt::Chat(_) | Prompt::Tokens(_) => {}
            }
            "/api/generate"
        }
        Prompt::Tokens(_) => return Err(refused("prompt", "token ids are no prompt there")),
    };
    match &request.constraint {
        None => {}
        Some(Constraint::JsonObject) => body.set("format", "json"),
        Some(Constraint::JsonSchema(schema)) => body.raw("format", checked(schema, "format")?),
        Some(Constraint::Regex(_)) => return Err(refused("regex", "only JSON is enforced")),
        Some(Constraint::Grammar(_)) => return Err(refused("grammar", "only JSON is enforced")),
        Some(Constraint::Other((kind, _))) => {
            return Err(refused(kind, "this kind of constraint is unknown"));
        }
    }
    if let Some(alternatives) = request.logprobs {
        body.set("logprobs", true);
        if alternatives > 0 {
            body.set("top_logprobs", alternatives);
        }
    }
    let options = options(request)?;
    if !options.is_empty() {
        body.object("options", options);
    }
    body.set("truncate", false);
    body.set("shift", false);
    body.set("stream", true);
    Ok((path, body))
}

fn message(at: usize, turn: &Turn<'_>) -> Result<Fields> {
    let message = turn.message;
    let mut fields = Fields::new();
    fields.set(
        "role",
        match &message.role {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
            Role::Other(word) => word,
        },
    );
    fields.set("content", message.whole_text());
    let mut images = Vec::new();
    for (n, part) in message.content.iter().enumerate() {
        let field = || format!("messages[{at}].content[{n}]");
        match part {
            Part::Text(_) => {}
            Part::Image(media) => images.push(STANDARD.encode(&media.data)),
            Part::Audio(_) => return Err(refused(&field(), "messages have no field for sounds")),
            Part::Other((kind, _)) => {
                return Err(refused(&field(), &format!("there is no part of kind {kind}")));
            }
        }
    }
    if !images.is_empty() {
        fields.set("images", images);
    }
    fields.maybe("thinking", message.reasoning.as_deref());
    if !message.tool_calls.is_empty() {
        let mut calls = Vec::new();
        for (n, (id, call)) in turn.call_ids.iter().zip(&message.tool_calls).enumerate() {
            calls.push(tool_call(at, n, id, call)?);
        }
        fields.objects("tool_calls", calls);
    }
    match (&turn.answers, &message.name) {
        (Some((id, name)), _) => {
            fields.maybe("tool_name", name.as_deref());
            fields.set("tool_call_id", id);
        }
        (None, Some(_)) => {
            return Err(refused(&format!("messages[{at}].name"), "speakers have no names there"));
        }
        (None, None) => {}
    }
    Ok(fields)
}

/// Arguments are an object there: the caller's bytes, if they are one.
fn tool_call(at: usize, n: usize, id: &str, call: &ToolCall) -> Result<Fields> {
    let field = format!("messages[{at}].tool_calls[{n}].function.arguments");
    let arguments = match call.arguments.trim() {
        "" => "{}",
        text => checked(text, &field)?,
    };
    if !arguments.starts_with('{') {
        let what = format!("{field}: expected a JSON object");
        return Err(Error::invalid_request(what).with("field", field));
    }
    let mut function = Fields::new();
    function.set("index", n);
    function.set("name", &call.name);
    function.raw("arguments", arguments);
    let mut fields = Fields::new();
    fields.set("id", id);
    fields.object("function", function);
    Ok(fields)
}

fn tools(request: &Request, body: &mut Fields) -> Result<()> {
    if request.tools.is_empty() || request.tool_choice == ToolChoice::None {
        return Ok(());
    }
    if request.tool_choice != ToolChoice::Auto {
        return Err(refused("tool_choice", "it leaves the choice to the model"));
    }
    let written: Result<Vec<Fields>> =
        request.tools.iter().enumerate().map(|(at, tool)| function(at, tool)).collect();
    body.objects("tools", written?);
    Ok(())
}

fn thinking(reasoning: &Reasoning, body: &mut Fields) -> Result<()> {
    match reasoning {
        Reasoning::Unset => {}
        Reasoning::Off => body.set("think", false),
        Reasoning::On => body.set("think", true),
        Reasoning::Effort(effort) => match effort.as_str() {
            "low" | "medium" | "high" | "max" => body.set("think", effort),
            other => {
                let why = format!("expected low, medium, high or max, found {other}");
                return Err(refused("reasoning", &why));
            }
        },
    }
    Ok(())
}

fn options(request: &Request) -> Result<Fields> {
    let sampling = &request.sampling;
    let mut options = Fields::new();
    options.maybe("temperature", sampling.temperature);
    options.maybe("top_p", sampling.top_p);
    options.maybe("top_k", sampling.top_k);
    options.maybe("min_p", sampling.min_p);
    options.maybe("typical_p", sampling.typical_p);
    options.maybe("repeat_penalty", sampling.repeat_penalty);
    options.maybe("repeat_last_n", sampling.repeat_last_n);
    options.maybe("presence_penalty", sampling.presence_penalty);
    options.maybe("frequency_penalty", sampling.frequency_penalty);
    if let Some(seed) = sampling.seed {
        if i64::try_from(seed).is_err() {
            return Err(refused("seed", &format!("at most {}", i64::MAX)));
        }
        options.set("seed", seed);
    }
    if !sampling.logit_bias.is_empty() {
        return Err(refused("logit-bias", "single tokens cannot be favoured"));
    }
    options.maybe("num_predict", request.max_tokens);
    if !request.stop.is_empty() {
        options.set("stop", &request.stop);
    }
    if let Some(context) = request.context {
        if extra(&request.extras, "context") != Some("verified") {
            let why = "another context loads the model anew, and no policy has it verified";
            return Err(refused("context", why));
        }
        options.set("num_ctx", context);
    }
    Ok(options)
}
