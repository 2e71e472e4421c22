//! Anthropic's conversation into the domain's. Pure.
//!
//! One turn of the user may hold results of tools and words: the results become messages of the
//! tool, in their place.

use gristmill_core::{
    Result,
    request::{Message, Part, Role, ToolCall},
};
use serde_json::Value;

use super::encode::BROKEN;
use crate::{
    fields::{Fields, kind, nothing_left, refused, wrong},
    media,
};

/// Marks on blocks that change nothing here, seen so far.
#[derive(Debug, Default)]
pub struct Marks {
    cache: bool,
    failed: bool,
}

impl Marks {
    /// Takes the mark that may stand on anything: prompts are cached without being told.
    ///
    /// # Errors
    /// `invalid-request` when it is no object.
    pub fn take(&mut self, fields: &mut Fields) -> Result<()> {
        self.cache |= fields.object("cache_control")?.is_some();
        Ok(())
    }

    /// The names of those that were there.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let names = [("cache_control", self.cache), ("is_error", self.failed)];
        names.iter().filter(|(_, seen)| *seen).map(|(name, _)| (*name).to_owned()).collect()
    }
}

/// `system`: a text or blocks of text.
///
/// # Errors
/// `invalid-request` and `unsupported`, each naming the field.
pub fn system(fields: &mut Fields, marks: &mut Marks) -> Result<Option<Message>> {
    let content = content(fields, "system", marks, &["text"])?;
    let blocks = content.unwrap_or_default();
    let parts: Vec<Part> = blocks.into_iter().filter_map(Block::part).collect();
    Ok((!parts.is_empty()).then(|| Message { content: parts, ..Message::text(Role::System, "") }))
}

/// `messages`.
///
/// # Errors
/// `invalid-request` and `unsupported`, each naming the field.
pub fn messages(list: Vec<Fields>, marks: &mut Marks) -> Result<Vec<Message>> {
    let mut messages = Vec::with_capacity(list.len());
    for mut fields in list {
        let path = fields.name("content");
        let missing = || wrong(&path, "is required");
        match fields.required("role")?.as_str() {
            "user" => {
                let kinds = ["text", "image", "tool_result"];
                let blocks = content(&mut fields, "content", marks, &kinds)?;
                user(blocks.ok_or_else(missing)?, &mut messages);
            }
            "assistant" => {
                let kinds = ["text", "thinking", "tool_use"];
                let blocks = content(&mut fields, "content", marks, &kinds)?;
                messages.push(assistant(blocks.ok_or_else(missing)?));
            }
            _ => return Err(wrong(&fields.name("role"), "must be user or assistant")),
        }
        nothing_left(&fields)?;
    }
    Ok(messages)
}

/// One block of a turn.
enum Block {
    Part(Part),
    Thinking(String),
    Use(ToolCall),
    Result(Message),
}

impl Block {
    fn part(self) -> Option<Part> {
        match self {
            Self::Part(part) => Some(part),
            _ => None,
        }
    }
}

fn user(blocks: Vec<Block>, messages: &mut Vec<Message>) {
    let mut words: Option<Message> = None;
    for block in blocks {
        match block {
            Block::Result(result) => {
                messages.extend(words.take());
                messages.push(result);
            }
            Block::Part(part) => {
                let empty = || Message { content: Vec::new(), ..Message::text(Role::User, "") };
                words.get_or_insert_with(empty).content.push(part);
            }
            Block::Thinking(_) | Block::Use(_) => {}
        }
    }
    messages.extend(words);
}

fn assistant(blocks: Vec<Block>) -> Message {
    let mut message = Message { content: Vec::new(), ..Message::text(Role::Assistant, "") };
    for block in blocks {
        match block {
            Block::Part(part) => message.content.push(part),
            Block::Thinking(text) => {
                message.reasoning.get_or_insert_default().push_str(&text);
            }
            Block::Use(call) => message.tool_calls.push(call),
            Block::Result(_) => {}
        }
    }
    message
}

/// A text, or blocks of some kinds; none where the field is absent.
fn content(
    fields: &mut Fields,
    field: &str,
    marks: &mut Marks,
    kinds: &[&str],
) -> Result<Option<Vec<Block>>> {
    let path = fields.name(field);
    match fields.take(field) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(vec![Block::Part(Part::Text(text))])),
        Some(Value::Array(items)) => {
            let mut blocks = Vec::with_capacity(items.len());
            for (place, item) in items.into_iter().enumerate() {
                let fields = Fields::at(&format!("{path}[{place}]"), item)?;
                blocks.push(block(fields, marks, kinds)?);
            }
            Ok(Some(blocks))
        }
        Some(other) => {
            Err(wrong(&path, format!("must be a string or an array, got {}", kind(&other))))
        }
    }
}

fn block(mut fields: Fields, marks: &mut Marks, kinds: &[&str]) -> Result<Block> {
    let what = fields.required("type")?;
    if !kinds.contains(&what.as_str()) {
        return Err(refused(&fields.name("type"), format!("must be {}", kinds.join(" or "))));
    }
    marks.take(&mut fields)?;
    let block = match what.as_str() {
        "text" => {
            // What a server once added to its own text.
            fields.array("citations")?;
            Block::Part(Part::Text(text(&mut fields, "text")?))
        }
        "image" => {
            let path = fields.name("source");
            let mut source = fields.object("source")?.ok_or_else(|| wrong(&path, "is required"))?;
            if source.required("type")? != "base64" {
                let what = "must be base64; pictures are not fetched";
                return Err(refused(&source.name("type"), what));
            }
            // The picture's own first bytes say what it is.
            source.string("media_type")?;
            let image = media::image(&source.name("data"), &source.required("data")?)?;
            nothing_left(&source)?;
            Block::Part(Part::Image(image))
        }
        "thinking" => {
            // Any signature is taken: nothing here depends on one.
            fields.string("signature")?;
            Block::Thinking(text(&mut fields, "thinking")?)
        }
        "tool_use" => {
            fields.object("caller")?;
            Block::Use(ToolCall {
                id: fields.required("id")?,
                name: fields.required("name")?,
                arguments: input(&mut fields)?,
            })
        }
        _ => {
            let id = fields.required("tool_use_id")?;
            marks.failed |= fields.flag("is_error")? == Some(true);
            let blocks = content(&mut fields, "content", marks, &["text", "image"])?;
            let mut parts: Vec<Part> =
                blocks.unwrap_or_default().into_iter().filter_map(Block::part).collect();
            if parts.is_empty() {
                parts.push(Part::Text(String::new()));
            }
            Block::Result(Message {
                content: parts,
                tool_call_id: Some(id),
                ..Message::text(Role::Tool, "")
            })
        }
    };
    nothing_left(&fields)?;
    Ok(block)
}

fn text(fields: &mut Fields, field: &str) -> Result<String> {
    let path = fields.name(field);
    fields.string(field)?.ok_or_else(|| wrong(&path, "is required"))
}

/// A call's arguments; those that once were no JSON are as they were.
fn input(fields: &mut Fields) -> Result<String> {
    let path = fields.name("input");
    match fields.take("input") {
        None => Ok("{}".to_owned()),
        Some(Value::Object(map)) => match (map.len(), map.get(BROKEN)) {
            (1, Some(Value::String(text))) => Ok(text.clone()),
            _ => Ok(Value::Object(map).to_string()),
        },
        Some(other) => Err(wrong(&path, format!("must be an object, got {}", kind(&other)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(list: Value) -> Result<Vec<Message>> {
        let mut fields = Fields::body(json!({ "messages": list })).unwrap();
        messages(fields.objects("messages")?.unwrap(), &mut Marks::default())
    }

    #[test]
    fn turns_become_messages_with_everything_in_its_place() {
        let messages = read(json!([
            { "role": "user", "content": [{ "type": "text", "text": "a" },
                { "type": "image", "source": { "type": "base64", "media_type": "image/png",
                    "data": "iVBORw0KGgo=" } }] },
            { "role": "assistant", "content": [
                { "type": "thinking", "thinking": "hm", "signature": "any" },
                { "type": "text", "text": "b", "citations": null },
                { "type": "tool_use", "id": "c1", "name": "f", "input": { "b": 1.0, "a": [2] } },
                { "type": "tool_use", "id": "c2", "name": "g", "input": { "INVALID_JSON": "{\"x" } },
                { "type": "tool_use", "id": "c3", "name": "h", "input": {} }] },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "c1", "content": "1" },
                { "type": "tool_result", "tool_use_id": "c2", "is_error": true,
                    "content": [{ "type": "text", "text": "2" }] },
                { "type": "tool_result", "tool_use_id": "c3" },
                { "type": "text", "text": "and?" }] },
        ]))
        .unwrap();
        let roles: Vec<_> = messages.iter().map(|message| message.role.as_str()).collect();
        assert_eq!(roles, ["user", "assistant", "tool", "tool", "tool", "user"]);
        assert!(matches!(&messages[0].content[1], Part::Image(media) if media.mime == "image/png"));
        let turn = &messages[1];
        assert_eq!(turn.reasoning.as_deref(), Some("hm"));
        assert_eq!(turn.content, [Part::Text("b".into())]);
        let arguments: Vec<_> = turn.tool_calls.iter().map(|call| &*call.arguments).collect();
        assert_eq!(arguments, [r#"{"b":1.0,"a":[2]}"#, "{\"x", "{}"]);
        assert_eq!(messages[3].tool_call_id.as_deref(), Some("c2"));
        assert_eq!(messages[5].content, [Part::Text("and?".into())]);
    }

    #[test]
    fn bad_turns_name_their_place() {
        let user = |block: Value| json!({ "role": "user", "content": [block] });
        let image = |source: Value| user(json!({ "type": "image", "source": source }));
        for (item, field) in [
            (json!("x"), "messages[0]"),
            (json!({ "content": "x" }), "messages[0].role"),
            (json!({ "role": "system", "content": "x" }), "messages[0].role"),
            (json!({ "role": "user" }), "messages[0].content"),
            (json!({ "role": "user", "content": 5 }), "messages[0].content"),
            (user(json!({ "type": "document" })), "messages[0].content[0].type"),
            (
                user(json!({ "type": "tool_use", "id": "c", "name": "f" })),
                "messages[0].content[0].type",
            ),
            (user(json!({ "type": "tool_result" })), "messages[0].content[0].tool_use_id"),
            (user(json!({ "type": "text" })), "messages[0].content[0].text"),
            (
                user(json!({ "type": "text", "text": "x", "more": 1 })),
                "messages[0].content[0].more",
            ),
            (
                image(json!({ "type": "url", "url": "http://x" })),
                "messages[0].content[0].source.type",
            ),
            (
                image(json!({ "type": "base64", "data": "aGVsbG8=" })),
                "messages[0].content[0].source.data",
            ),
            (
                json!({ "role": "assistant", "content": [{ "type": "redacted_thinking", "data": "x" }] }),
                "messages[0].content[0].type",
            ),
            (
                json!({ "role": "assistant", "content": [{ "type": "tool_use", "id": "c",
                    "name": "f", "input": "{}" }] }),
                "messages[0].content[0].input",
            ),
        ] {
            let error = read(json!([item])).unwrap_err();
            assert_eq!(error.detail("field"), Some(field), "{item}");
        }
    }
}
