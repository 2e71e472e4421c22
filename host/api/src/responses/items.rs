//! The items of a Responses conversation into messages, and an answer's message out of its blocks.
//! Pure.
//!
//! Reasoning, a message and function calls that follow each other are one turn of the assistant.

use gristmill_core::{
    Result,
    request::{Message, Part, Role, ToolCall},
};
use serde_json::Value;

use crate::{
    blocks::Blocks,
    fields::{Fields, kind, nothing_left, refused, wrong},
    media,
};

/// What `input` says: a text, or items.
///
/// # Errors
/// `invalid-request` and `unsupported`, each naming the field.
pub fn messages(input: Option<Value>, continues: bool) -> Result<Vec<Message>> {
    let items = match input {
        None if continues => return Ok(Vec::new()),
        None => return Err(wrong("input", "is required")),
        Some(Value::String(text)) => return Ok(vec![Message::text(Role::User, text)]),
        Some(Value::Array(items)) if items.is_empty() && !continues => {
            return Err(wrong("input", "is empty"));
        }
        Some(Value::Array(items)) => items,
        Some(other) => {
            return Err(wrong(
                "input",
                format!("must be a string or an array, got {}", kind(&other)),
            ));
        }
    };
    let mut turns = Turns::default();
    for (place, item) in items.into_iter().enumerate() {
        turns.add(Fields::at(&format!("input[{place}]"), item)?)?;
    }
    Ok(turns.0)
}

/// What was answered, as the message a next turn begins with.
#[must_use]
pub fn answer(blocks: &Blocks) -> Message {
    let mut message = Message::text(Role::Assistant, blocks.text());
    message.reasoning = Some(blocks.reasoning()).filter(|text| !text.is_empty());
    let call = |call: &crate::collect::Call| ToolCall {
        id: call.id.clone(),
        name: call.name.clone(),
        arguments: call.arguments.clone(),
    };
    message.tool_calls = blocks.calls().map(call).collect();
    message
}

/// Messages so far.
#[derive(Default)]
struct Turns(Vec<Message>);

impl Turns {
    fn add(&mut self, mut fields: Fields) -> Result<()> {
        // Ids and states of items are the server's own words.
        for field in ["id", "status", "phase"] {
            fields.string(field)?;
        }
        let what = fields.string("type")?;
        match what.as_deref() {
            None | Some("message") => self.message(&mut fields)?,
            Some("reasoning") => self.reasoning(&mut fields)?,
            Some("function_call") => self.call(&mut fields)?,
            Some("function_call_output") => self.output(&mut fields)?,
            Some(_) => {
                return Err(refused(
                    &fields.name("type"),
                    "must be message, reasoning, function_call or function_call_output",
                ));
            }
        }
        nothing_left(&fields)
    }

    fn message(&mut self, fields: &mut Fields) -> Result<()> {
        let role = match fields.required("role")?.as_str() {
            "system" | "developer" => Role::System,
            "user" => Role::User,
            "assistant" => Role::Assistant,
            _ => {
                return Err(wrong(
                    &fields.name("role"),
                    "must be developer, system, user or assistant",
                ));
            }
        };
        let content = content(fields, "content")?;
        if role == Role::Assistant {
            let fits = |turn: &Message| turn.content.is_empty() && turn.tool_calls.is_empty();
            self.turn(fits, |turn| turn.content = content);
        } else {
            self.0.push(Message { role, content, ..Message::text(Role::User, "") });
        }
        Ok(())
    }

    fn reasoning(&mut self, fields: &mut Fields) -> Result<()> {
        let mut text = String::new();
        for (field, word) in [("content", "reasoning_text"), ("summary", "summary_text")] {
            for mut part in fields.objects(field)?.unwrap_or_default() {
                if part.required("type")? != word {
                    return Err(refused(&part.name("type"), format!("must be \"{word}\"")));
                }
                let piece = part.string("text")?.unwrap_or_default();
                // A summary repeats what the content says; it counts where there is no content.
                if field == "content" || text.is_empty() {
                    text.push_str(&piece);
                }
            }
        }
        let sealed = fields.string("encrypted_content")?.is_some_and(|text| !text.is_empty());
        if sealed && text.is_empty() {
            let what = "was made by another server and cannot be read here; leave out the item";
            return Err(refused(&fields.name("encrypted_content"), what));
        }
        if !text.is_empty() {
            let fresh = |turn: &Message| {
                turn.content.is_empty() && turn.tool_calls.is_empty() && turn.reasoning.is_none()
            };
            self.turn(fresh, |turn| turn.reasoning = Some(text));
        }
        Ok(())
    }

    fn call(&mut self, fields: &mut Fields) -> Result<()> {
        let call = ToolCall {
            id: fields.required("call_id")?,
            name: fields.required("name")?,
            // What the model once said stays as it said it, well-formed or not.
            arguments: fields
                .string("arguments")?
                .filter(|text| !text.trim().is_empty())
                .unwrap_or_else(|| "{}".to_owned()),
        };
        self.turn(|_| true, |turn| turn.tool_calls.push(call));
        Ok(())
    }

    fn output(&mut self, fields: &mut Fields) -> Result<()> {
        let id = fields.required("call_id")?;
        let content = content(fields, "output")?;
        self.0.push(Message {
            role: Role::Tool,
            content,
            tool_call_id: Some(id),
            ..Message::text(Role::Tool, "")
        });
        Ok(())
    }

    /// Changes the assistant's turn at the end, if it fits, or a new one.
    fn turn(&mut self, fits: impl Fn(&Message) -> bool, change: impl FnOnce(&mut Message)) {
        let mut last = match self.0.pop() {
            Some(last) if last.role == Role::Assistant && fits(&last) => last,
            other => {
                self.0.extend(other);
                Message { content: Vec::new(), ..Message::text(Role::Assistant, "") }
            }
        };
        change(&mut last);
        self.0.push(last);
    }
}

/// A text or parts.
fn content(fields: &mut Fields, field: &str) -> Result<Vec<Part>> {
    let path = fields.name(field);
    match fields.take(field) {
        None => Err(wrong(&path, "is required")),
        Some(Value::String(text)) => Ok(vec![Part::Text(text)]),
        Some(Value::Array(items)) => items
            .into_iter()
            .enumerate()
            .map(|(place, item)| part(Fields::at(&format!("{path}[{place}]"), item)?))
            .collect(),
        Some(other) => {
            Err(wrong(&path, format!("must be a string or an array, got {}", kind(&other))))
        }
    }
}

fn part(mut fields: Fields) -> Result<Part> {
    let required = |fields: &mut Fields, field: &str| {
        let path = fields.name(field);
        fields.string(field)?.ok_or_else(|| wrong(&path, "is required"))
    };
    let part = match fields.required("type")?.as_str() {
        "input_text" | "output_text" | "text" => {
            // What the server once added to its own text.
            for field in ["annotations", "logprobs"] {
                fields.array(field)?;
            }
            Part::Text(required(&mut fields, "text")?)
        }
        "refusal" => Part::Text(required(&mut fields, "refusal")?),
        "input_image" => {
            let path = fields.name("image_url");
            // Which resolution to look at is the model's business here.
            fields.string("detail")?;
            if fields.take("file_id").is_some() {
                return Err(refused(&fields.name("file_id"), "is not offered; send the picture"));
            }
            let url = fields.string("image_url")?.ok_or_else(|| wrong(&path, "is required"))?;
            Part::Image(media::data_url(&path, &url)?)
        }
        _ => {
            let what = "must be input_text, output_text, refusal or input_image";
            return Err(refused(&fields.name("type"), what));
        }
    };
    nothing_left(&fields)?;
    Ok(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn items_of_one_turn_become_one_message() {
        let input = json!([
            { "role": "developer", "content": "d" },
            { "role": "user", "content": [{ "type": "input_text", "text": "u" },
                { "type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,iVBORw0KGgo=" }] },
            { "type": "reasoning", "id": "rs_1", "summary": [],
                "content": [{ "type": "reasoning_text", "text": "hm" }], "encrypted_content": null },
            { "type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
                "content": [{ "type": "output_text", "text": "a", "annotations": [], "logprobs": [] }] },
            { "type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f",
                "arguments": "{\"b\": 1,  broken", "status": "completed" },
            { "type": "function_call", "call_id": "c2", "name": "g", "arguments": "" },
            { "type": "function_call_output", "call_id": "c1", "output": "1" },
            { "type": "function_call_output", "call_id": "c2",
                "output": [{ "type": "input_text", "text": "2" }] },
            { "type": "message", "role": "assistant", "content": "b" },
            { "type": "message", "role": "assistant", "content": "c" },
        ]);
        let messages = messages(Some(input), false).unwrap();
        let roles: Vec<_> = messages.iter().map(|message| message.role.as_str()).collect();
        assert_eq!(
            roles,
            ["system", "user", "assistant", "tool", "tool", "assistant", "assistant"]
        );
        let turn = &messages[2];
        assert_eq!(turn.reasoning.as_deref(), Some("hm"));
        assert_eq!(turn.content, [Part::Text("a".into())]);
        assert_eq!(turn.tool_calls[0].arguments, "{\"b\": 1,  broken");
        assert_eq!(turn.tool_calls[1].arguments, "{}");
        assert_eq!(messages[4].tool_call_id.as_deref(), Some("c2"));
    }

    #[test]
    fn bad_items_name_their_place() {
        for (item, field) in [
            (json!("x"), "input[0]"),
            (json!({ "content": "x" }), "input[0].role"),
            (json!({ "role": "tool", "content": "x" }), "input[0].role"),
            (json!({ "role": "user" }), "input[0].content"),
            (json!({ "role": "user", "content": 5 }), "input[0].content"),
            (
                json!({ "role": "user", "content": [{ "type": "input_file" }] }),
                "input[0].content[0].type",
            ),
            (
                json!({ "role": "user", "content": [{ "type": "input_image", "image_url": "http://x" }] }),
                "input[0].content[0].image_url",
            ),
            (
                json!({ "role": "user", "content": [{ "type": "input_image", "file_id": "f" }] }),
                "input[0].content[0].file_id",
            ),
            (json!({ "type": "item_reference", "id": "x" }), "input[0].type"),
            (json!({ "type": "web_search_call" }), "input[0].type"),
            (json!({ "type": "function_call", "name": "f" }), "input[0].call_id"),
            (json!({ "type": "function_call_output", "output": "x" }), "input[0].call_id"),
            (
                json!({ "type": "reasoning", "encrypted_content": "x" }),
                "input[0].encrypted_content",
            ),
            (
                json!({ "type": "reasoning", "content": [{ "type": "x" }] }),
                "input[0].content[0].type",
            ),
            (json!({ "role": "user", "content": "x", "more": 1 }), "input[0].more"),
        ] {
            let error = messages(Some(json!([item])), false).unwrap_err();
            assert_eq!(error.detail("field"), Some(field), "{item}");
        }
    }
}
