//! What a request asks, checked and turned into tokens. Whatever this engine cannot honour is
//! refused by name; nothing is dropped.

use gristmill_core::{
    Error, Extras, Result,
    program::{Span, ToolFormat},
    request::{Constraint, Message, Part, Prompt, Reasoning, Request, Tool, ToolChoice},
};
use gristmill_models::{ChatTemplate, template::fold_system};

use crate::{
    core::{Core, hex},
    sampler::Settings,
    text::{Calls, Offer, Reading},
};
use sha2::{Digest, Sha256};

/// Extras of a request this engine knows. `truncate` and `keep-alive` are the caller's business.
const EXTRAS: [&str; 4] = ["raw", "template", "truncate", "keep-alive"];
/// Stop strings of a request, and bytes of each.
const STOPS: (usize, usize) = (64, 1024);
/// Alternatives per token.
const ALTERNATIVES: u32 = 100;

/// Refuses what is not offered.
pub(crate) fn refuse(core: &Core, request: &Request) -> Result<()> {
    let unsupported =
        |field: &str, message: String| Err(Error::unsupported(message).with("field", field));
    if core.encodes() {
        return unsupported("model", format!("`{}` makes embeddings and no text", core.located.id));
    }
    if let Some(Constraint::Other(kind, _)) = &request.constraint {
        let message = format!("constrained output (`{kind}`) is not known to this engine");
        return unsupported("constraint", message);
    }
    if let Some((name, _)) =
        request.extras.iter().find(|(name, _)| !EXTRAS.contains(&name.as_str()))
    {
        return unsupported(
            name,
            format!("the request extra `{name}` is not known to this engine"),
        );
    }
    if request.stop.len() > STOPS.0 || request.stop.iter().any(|stop| stop.len() > STOPS.1) {
        let message = format!("`stop`: expected at most {} strings of {} bytes", STOPS.0, STOPS.1);
        return Err(Error::invalid(message).with("field", "stop"));
    }
    if request.stop.iter().any(String::is_empty) {
        let message = "`stop`: expected strings that are not empty, found an empty one";
        return Err(Error::invalid(message).with("field", "stop"));
    }
    if let Some(count) = request.logprobs.filter(|count| *count > ALTERNATIVES) {
        let message = format!("`logprobs`: expected at most {ALTERNATIVES}, found {count}");
        return Err(Error::invalid(message).with("field", "logprobs"));
    }
    if let (Reasoning::On | Reasoning::Effort(_), None) =
        (&request.reasoning, &core.dialect.reasoning)
    {
        let message = format!("`{}` does not reason", core.located.id);
        return unsupported("reasoning", message);
    }
    if calls(request) {
        format(core)?;
    }
    Ok(())
}

/// Whether tools are on offer.
fn calls(request: &Request) -> bool {
    !request.tools.is_empty() && request.tool_choice != ToolChoice::None
}

fn format(core: &Core) -> Result<&ToolFormat> {
    let Some(format) = &core.dialect.tools else {
        return Err(Error::unsupported(format!(
            "the family `{}` does not say how `{}` calls tools",
            core.family, core.located.id
        ))
        .with("field", "tools"));
    };
    if !Calls::knows(&format.shape) {
        let message = format!("tool calls of shape `{}` are not read by this engine", format.shape);
        return Err(Error::unsupported(message).with("field", "tools"));
    }
    Ok(format)
}

/// Whether a prompt ends with a thought that is over.
pub(crate) fn closed(core: &Core, prompt: &str) -> bool {
    let close = core.dialect.reasoning.as_ref().map_or("", |span| span.close.trim());
    !close.is_empty() && prompt.trim_end().ends_with(close)
}

/// How the answer's text is to be read.
pub(crate) fn reading(core: &Core, request: &Request, prompt: &str) -> Result<Reading> {
    let tools = calls(request).then(|| format(core).cloned()).transpose()?;
    let reasoning = core.dialect.reasoning.as_ref().map(|span| {
        // The template may have opened the reasoning, whatever the family expects, or closed it.
        let end = prompt.trim_end();
        let open_at_start = match (&request.prompt, span.open_at_start) {
            (Prompt::Chat(_), _) if end.ends_with(span.open.trim()) && !span.open.is_empty() => {
                true
            }
            (Prompt::Chat(_), open) => open && !end.ends_with(span.close.trim()),
            _ => false,
        };
        Span { open_at_start, ..span.clone() }
    });
    let shape = tools.as_ref().map_or("", |tools| tools.shape.as_str());
    let offers = request.tools.iter();
    let offers = offers.map(|tool| Offer::new(shape, &tool.name, &tool.parameters)).collect();
    Ok(Reading {
        stops: request.stop.clone(),
        ends: core.end_texts.clone(),
        reasoning,
        offers,
        tools,
        channels: Reading::on_channels(&core.dialect),
        parallel: request.parallel_tool_calls.unwrap_or(true),
        id: format!("call_{}_", hex(Sha256::digest(&request.id).get(..6).unwrap_or_default())),
    })
}

/// How tokens are to be chosen.
pub(crate) fn settings(core: &Core, request: &Request) -> Result<Settings> {
    Settings::new(&request.sampling, &core.dialect.defaults, core.plan.program.vocabulary)
}

/// A request's prompt as tokens, and the text they stand for.
pub(crate) fn tokens(core: &Core, request: &Request) -> Result<(Vec<u32>, String)> {
    match &request.prompt {
        Prompt::Chat(messages) => {
            let mut options: Extras =
                request.extras.iter().filter(|(name, _)| name == "template").cloned().collect();
            match &request.reasoning {
                Reasoning::Unset => {}
                Reasoning::Off => options.push(("enable_thinking".into(), "false".into())),
                Reasoning::On => options.push(("enable_thinking".into(), "true".into())),
                Reasoning::Effort(effort) => {
                    options.push(("enable_thinking".into(), "true".into()));
                    // Quoted, so that a word like `high` stays a word and `3` does too.
                    options
                        .push(("reasoning_effort".into(), serde_json::json!(effort).to_string()));
                }
            }
            let tools: &[Tool] = if calls(request) { &request.tools } else { &[] };
            render(core, messages, tools, &options)
        }
        Prompt::Text(text) => {
            let raw = request.extra("raw").is_some_and(|raw| raw == "true");
            Ok((with_bos(core, core.tokenizer.encode(text, true)?, raw), text.clone()))
        }
        Prompt::Tokens(tokens) => {
            let vocabulary = core.plan.program.vocabulary;
            if let Some(token) = tokens.iter().find(|token| **token as usize >= vocabulary) {
                let message = format!("token {token}: expected one below {vocabulary}");
                return Err(Error::invalid(message).with("field", "prompt"));
            }
            Ok((tokens.clone(), String::new()))
        }
        Prompt::Infill(..) => {
            Err(Error::unsupported("infill is not implemented by this engine")
                .with("field", "prompt"))
        }
    }
}

/// The family's chat format. Options: `template` is a Jinja template instead of the family's,
/// `add-generation-prompt` (`true` unless `false`); all others are variables of the template.
pub(crate) fn render(
    core: &Core,
    messages: &[Message],
    tools: &[Tool],
    options: &Extras,
) -> Result<(Vec<u32>, String)> {
    for part in messages.iter().flat_map(|message| &message.content) {
        let kind = match part {
            Part::Text(_) => continue,
            Part::Image(_) => "image",
            Part::Audio(_) => "audio",
            Part::Other(kind, _) => kind,
        };
        return Err(Error::unsupported(format!(
            "`{kind}` input is not implemented by this engine"
        ))
        .with("field", "messages"));
    }
    let own;
    let option = |name: &str| options.iter().find(|(key, _)| key == name).map(|(_, v)| v.as_str());
    let template = match option("template") {
        Some(source) => {
            let word =
                |id: Option<u32>| id.and_then(|id| core.tokenizer.token_text(id)).unwrap_or("");
            let (bos, eos) = (word(core.tokenizer.bos()), word(core.tokenizer.eos()));
            own = ChatTemplate::compile(source, bos, eos)?;
            &own
        }
        None => core.template.as_ref().ok_or_else(|| {
            Error::unsupported(format!(
                "`{}` has no chat template: send a text prompt, or the option `template`",
                core.located.id
            ))
        })?,
    };
    let add = option("add-generation-prompt") != Some("false");
    let variables: Extras = options
        .iter()
        .filter(|(name, _)| !matches!(name.as_str(), "template" | "add-generation-prompt"))
        .cloned()
        .collect();
    let text = if core.dialect.system_role {
        template.render(messages, tools, add, &variables)?
    } else {
        template.render(&fold_system(messages), tools, add, &variables)?
    };
    Ok((with_bos(core, core.tokenizer.encode(&text, true)?, false), text))
}

/// Exactly one beginning of text where the file asks for it; `raw` adds none.
fn with_bos(core: &Core, mut tokens: Vec<u32>, raw: bool) -> Vec<u32> {
    let Some(bos) = core.tokenizer.bos().filter(|_| core.tokenizer.add_bos() && !raw) else {
        return tokens;
    };
    let there = tokens.iter().take_while(|token| **token == bos).count();
    match there {
        0 => tokens.insert(0, bos),
        1 => {}
        more => drop(tokens.drain(1..more)),
    }
    tokens
}
