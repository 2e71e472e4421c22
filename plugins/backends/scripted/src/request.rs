//! A request as JSON, so that a test can see what reached the back-end. Only what is set is
//! written; keys are the contract's names.

use gristmill_plugin::prelude::*;

/// The request as one JSON object.
pub(crate) fn as_json(request: &Request) -> String {
    let mut json = Object::default();
    json.text("id", &request.id);
    json.text("model", &request.model);
    match &request.prompt {
        Prompt::Chat(messages) => json.raw("chat", &list(messages.iter().map(message))),
        Prompt::Text(text) => json.text("text", text),
        Prompt::Tokens(tokens) => json.raw("tokens", &list(tokens.iter().map(u32::to_string))),
        Prompt::Infill((before, after)) => {
            json.raw("infill", &list([quoted(before), quoted(after)].into_iter()));
        }
    }
    if !request.tools.is_empty() {
        json.raw("tools", &list(request.tools.iter().map(tool)));
    }
    match &request.tool_choice {
        ToolChoice::Auto => {}
        ToolChoice::None => json.text("tool-choice", "none"),
        ToolChoice::Required => json.text("tool-choice", "required"),
        ToolChoice::Named(name) => json.text("tool-choice", &format!("named {name}")),
    }
    json.set("parallel-tool-calls", request.parallel_tool_calls);
    match &request.constraint {
        None => {}
        Some(Constraint::JsonObject) => json.text("json-object", ""),
        Some(Constraint::JsonSchema(schema)) => json.text("json-schema", schema),
        Some(Constraint::Regex(regex)) => json.text("regex", regex),
        Some(Constraint::Grammar(grammar)) => json.text("grammar", grammar),
        Some(Constraint::Other((name, source))) => json.text(name, source),
    }
    match &request.reasoning {
        Reasoning::Unset => {}
        Reasoning::Off => json.text("reasoning", "off"),
        Reasoning::On => json.text("reasoning", "on"),
        Reasoning::Effort(effort) => json.text("reasoning", &format!("effort {effort}")),
    }
    let sampling = sampling(&request.sampling);
    if sampling != "{}" {
        json.raw("sampling", &sampling);
    }
    json.set("max-tokens", request.max_tokens);
    if !request.stop.is_empty() {
        json.raw("stop", &list(request.stop.iter().map(|stop| quoted(stop))));
    }
    json.set("logprobs", request.logprobs);
    json.set("context", request.context);
    for (name, value) in &request.extras {
        json.text(name, value);
    }
    json.close()
}

fn message(message: &Message) -> String {
    let mut json = Object::default();
    json.text(
        "role",
        match &message.role {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
            Role::Other(word) => word,
        },
    );
    json.text("content", &message.whole_text());
    for part in &message.content {
        match part {
            Part::Text(_) => {}
            Part::Image(media) => {
                json.text("image", &format!("{} {}", media.mime, media.data.len()));
            }
            Part::Audio(media) => {
                json.text("audio", &format!("{} {}", media.mime, media.data.len()));
            }
            Part::Other((name, value)) => json.text(name, value),
        }
    }
    if let Some(reasoning) = &message.reasoning {
        json.text("reasoning", reasoning);
    }
    if !message.tool_calls.is_empty() {
        json.raw("tool-calls", &list(message.tool_calls.iter().map(call)));
    }
    if let Some(id) = &message.tool_call_id {
        json.text("tool-call-id", id);
    }
    if let Some(name) = &message.name {
        json.text("name", name);
    }
    json.close()
}

fn call(call: &ToolCall) -> String {
    let mut json = Object::default();
    json.text("id", &call.id);
    json.text("name", &call.name);
    json.text("arguments", &call.arguments);
    json.close()
}

fn tool(tool: &Tool) -> String {
    let mut json = Object::default();
    json.text("name", &tool.name);
    if let Some(description) = &tool.description {
        json.text("description", description);
    }
    json.text("parameters", &tool.parameters);
    json.set("strict", tool.strict);
    json.close()
}

fn sampling(sampling: &Sampling) -> String {
    let mut json = Object::default();
    json.set("temperature", sampling.temperature);
    json.set("top-p", sampling.top_p);
    json.set("top-k", sampling.top_k);
    json.set("min-p", sampling.min_p);
    json.set("typical-p", sampling.typical_p);
    json.set("repeat-penalty", sampling.repeat_penalty);
    json.set("repeat-last-n", sampling.repeat_last_n);
    json.set("presence-penalty", sampling.presence_penalty);
    json.set("frequency-penalty", sampling.frequency_penalty);
    json.set("seed", sampling.seed);
    if !sampling.logit_bias.is_empty() {
        let pairs = sampling.logit_bias.iter().map(|(id, bias)| format!("[{id},{bias}]"));
        json.raw("logit-bias", &list(pairs));
    }
    for (name, value) in &sampling.extras {
        json.text(name, value);
    }
    json.close()
}

/// A JSON object being written.
#[derive(Default)]
struct Object(String);

impl Object {
    fn raw(&mut self, name: &str, value: &str) {
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        self.0.push_str(&quoted(name));
        self.0.push(':');
        self.0.push_str(value);
    }

    fn text(&mut self, name: &str, value: &str) {
        self.raw(name, &quoted(value));
    }

    fn set(&mut self, name: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.raw(name, &value.to_string());
        }
    }

    fn close(mut self) -> String {
        self.0.push_str(if self.0.is_empty() { "{}" } else { "}" });
        self.0
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

fn quoted(text: &str) -> String {
    let mut json = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            letter if letter < ' ' => json.push_str(&format!("\\u{:04x}", u32::from(letter))),
            letter => json.push(letter),
        }
    }
    json.push('"');
    json
}
