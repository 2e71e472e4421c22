//! Messages and tools as the objects that templates expect: the shapes of the OpenAI chat format,
//! with arguments decoded and the order of keys kept.

use std::collections::HashMap;

use gristmill_core::request::{Message, Part, Tool, ToolCall};
use minijinja::Value;

use super::json::{self, map};

/// What a model saw as ids of tool calls when it was trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Ids {
    #[default]
    Any,
    /// Nine letters and digits (Mistral).
    Short,
    /// `functions.NAME:0`, counted through the conversation (Kimi K2): its templates write a call as
    /// its id and its arguments, so that the name is nowhere else.
    Numbered,
}

/// What a template expects of its objects.
#[derive(Debug, Clone, Default)]
pub(super) struct Shape {
    /// Content as a list of parts even where it is only text.
    pub content_as_list: bool,
    /// Arguments of tool calls as JSON text.
    pub arguments_as_text: bool,
    /// What ids of tool calls look like.
    pub ids: Ids,
    /// The key for what was thought.
    pub reasoning: &'static str,
}

impl Shape {
    /// What the template's text gives away.
    pub(super) fn of(source: &str) -> Self {
        let reasoning = ["reasoning_content", "thinking", "reasoning"].into_iter().find(|key| {
            [format!(".{key}"), format!("'{key}'"), format!("\"{key}\"")]
                .iter()
                .any(|use_| source.contains(use_))
        });
        Self {
            ids: if source.contains("alphanumeric strings with length 9") {
                Ids::Short
            } else if source.contains("<|tool_call_argument_begin|>") {
                Ids::Numbered
            } else {
                Ids::Any
            },
            reasoning: reasoning.unwrap_or("reasoning_content"),
            ..Self::default()
        }
    }
}

fn pair(key: &str, value: impl Into<Value>) -> (String, Value) {
    (key.to_owned(), value.into())
}

pub(super) fn messages(messages: &[Message], shape: &Shape) -> Value {
    let mut names = Names { form: shape.ids, numbered: HashMap::new(), count: 0 };
    messages.iter().map(|message| self::message(message, shape, &mut names)).collect()
}

/// What ids are called in one conversation.
struct Names<'a> {
    form: Ids,
    numbered: HashMap<&'a str, String>,
    count: usize,
}

impl<'a> Names<'a> {
    /// Of a call.
    fn call(&mut self, call: &'a ToolCall) -> String {
        if self.form == Ids::Numbered {
            let name = format!("functions.{}:{}", call.name, self.count);
            self.numbered.insert(&call.id, name);
            self.count += 1;
        }
        self.of(&call.id)
    }

    /// The same in a call and in its result.
    fn of(&self, id: &str) -> String {
        match self.form {
            Ids::Any => id.to_owned(),
            Ids::Short => short(id),
            Ids::Numbered => self.numbered.get(id).map_or(id, String::as_str).to_owned(),
        }
    }
}

fn message<'a>(message: &'a Message, shape: &Shape, names: &mut Names<'a>) -> Value {
    let mut pairs = vec![
        pair("role", message.role.as_str()),
        pair("content", content(&message.content, shape.content_as_list)),
    ];
    if let Some(reasoning) = &message.reasoning {
        pairs.push(pair(shape.reasoning, reasoning.as_str()));
    }
    if !message.tool_calls.is_empty() {
        let calls: Value =
            message.tool_calls.iter().map(|call| tool_call(call, shape, names)).collect();
        pairs.push(pair("tool_calls", calls));
    }
    if let Some(id) = &message.tool_call_id {
        pairs.push(pair("tool_call_id", names.of(id)));
    }
    if let Some(name) = &message.name {
        pairs.push(pair("name", name.as_str()));
    }
    for (key, text) in &message.extras {
        pairs.push((key.clone(), json::parse_or_text(text)));
    }
    map(pairs)
}

/// Text where all of it is text; otherwise a list of parts, whose media are only mentioned.
fn content(parts: &[Part], as_list: bool) -> Value {
    let texts: Option<Vec<&str>> = parts
        .iter()
        .map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            _ => None,
        })
        .collect();
    match texts {
        Some(texts) if !as_list => Value::from(texts.concat()),
        _ => parts
            .iter()
            .map(|part| match part {
                Part::Text(text) => map(vec![pair("type", "text"), pair("text", text.as_str())]),
                Part::Image(_) => map(vec![pair("type", "image")]),
                Part::Audio(_) => map(vec![pair("type", "audio")]),
                Part::Other(kind, text) => {
                    let kind = kind.as_str();
                    map(vec![pair("type", kind), (kind.to_owned(), json::parse_or_text(text))])
                }
            })
            .collect(),
    }
}

fn tool_call<'a>(call: &'a ToolCall, shape: &Shape, names: &mut Names<'a>) -> Value {
    let arguments = match serde_json::from_str::<serde_json::Value>(&call.arguments) {
        Ok(value) if value.is_object() && !shape.arguments_as_text => json::from_json(&value),
        // No arguments at all are an empty object to every template.
        _ if call.arguments.trim().is_empty() && !shape.arguments_as_text => map(Vec::new()),
        _ => Value::from(call.arguments.as_str()),
    };
    let function = map(vec![pair("name", call.name.as_str()), pair("arguments", arguments)]);
    map(vec![pair("id", names.call(call)), pair("type", "function"), pair("function", function)])
}

/// The id, or nine letters and digits that stand for it.
fn short(id: &str) -> String {
    const DIGITS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    if id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return id.to_owned();
    }
    // FNV-1a, 64 bits.
    let mut hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut short = String::with_capacity(9);
    for _ in 0..9 {
        let digit = DIGITS.get((hash % DIGITS.len() as u64) as usize).copied().unwrap_or(b'0');
        short.push(char::from(digit));
        hash /= DIGITS.len() as u64;
    }
    short
}

/// The tools, or none where there is none.
pub(super) fn tools(tools: &[Tool]) -> Value {
    if tools.is_empty() {
        return Value::from(());
    }
    tools
        .iter()
        .map(|tool| {
            let mut function = vec![pair("name", tool.name.as_str())];
            if let Some(description) = &tool.description {
                function.push(pair("description", description.as_str()));
            }
            if !tool.parameters.trim().is_empty() {
                function.push(pair("parameters", json::parse_or_text(&tool.parameters)));
            }
            if let Some(strict) = tool.strict {
                function.push(pair("strict", strict));
            }
            for (key, text) in &tool.extras {
                function.push((key.clone(), json::parse_or_text(text)));
            }
            map(vec![pair("type", "function"), pair("function", map(function))])
        })
        .collect()
}
