//! OpenAI's conversation into the domain's. Pure.

use gristmill_core::{
    Result,
    request::{Media, Message, Part, Role, ToolCall},
};
use serde_json::Value;

use crate::{
    fields::{Fields, closed, kind, refused, wrong},
    media,
};

/// The array `messages`.
///
/// # Errors
/// `invalid-request` and `unsupported`, each naming the field.
pub fn messages(items: Vec<Value>, unused: &mut Vec<String>) -> Result<Vec<Message>> {
    items
        .into_iter()
        .enumerate()
        .map(|(place, item)| message(Fields::at(&format!("messages[{place}]"), item)?, unused))
        .collect()
}

fn message(mut fields: Fields, unused: &mut Vec<String>) -> Result<Message> {
    let role = match fields.required("role")?.as_str() {
        // The newer name of the same thing.
        "system" | "developer" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" => Role::Tool,
        "function" => {
            return Err(refused(
                &fields.name("role"),
                "\"function\" is the older form of \"tool\"",
            ));
        }
        _ => {
            return Err(wrong(
                &fields.name("role"),
                "must be developer, system, user, assistant or tool",
            ));
        }
    };
    let path = fields.name("content");
    let content = fields.take("content");
    let refusal = fields.string("refusal")?;
    let mut message = Message::text(role, "");
    message.content = match content {
        None => refusal.map(Part::Text).into_iter().collect(),
        Some(Value::String(text)) => vec![Part::Text(text)],
        Some(Value::Array(items)) => items
            .into_iter()
            .enumerate()
            .map(|(place, item)| part(Fields::at(&format!("{path}[{place}]"), item)?, unused))
            .collect::<Result<_>>()?,
        Some(other) => {
            return Err(wrong(
                &path,
                format!("must be a string or an array, got {}", kind(&other)),
            ));
        }
    };
    // Servers disagree on the name; all of them come back.
    let names = ["reasoning_content", "reasoning", "thinking"].map(|name| fields.string(name));
    for reasoning in names {
        message.reasoning = message.reasoning.or(reasoning?.filter(|text| !text.is_empty()));
    }
    let calls = fields.name("tool_calls");
    for (place, call) in fields.array("tool_calls")?.unwrap_or_default().into_iter().enumerate() {
        let call = Fields::at(&format!("{calls}[{place}]"), call)?;
        message.tool_calls.push(tool_call(call, place, unused)?);
    }
    message.tool_call_id = fields.string("tool_call_id")?;
    message.name = fields.string("name")?;
    if message.content.is_empty() && message.tool_calls.is_empty() {
        if message.role != Role::Assistant {
            return Err(wrong(&path, "is required"));
        }
        message.content.push(Part::Text(String::new()));
    }
    if message.role == Role::Tool && message.tool_call_id.is_none() {
        return Err(wrong(&fields.name("tool_call_id"), "is required"));
    }
    closed(fields, &[], unused)?;
    Ok(message)
}

fn part(mut fields: Fields, unused: &mut Vec<String>) -> Result<Part> {
    let part = match fields.required("type")?.as_str() {
        "text" => {
            let path = fields.name("text");
            fields.string("text")?.map(Part::Text).ok_or_else(|| wrong(&path, "is required"))?
        }
        "refusal" => Part::Text(fields.string("refusal")?.unwrap_or_default()),
        "image_url" => {
            let path = fields.name("image_url");
            // Some clients send the URL itself.
            let url = match fields.take("image_url") {
                Some(Value::String(url)) => url,
                Some(value) => {
                    let mut image = Fields::at(&path, value)?;
                    let url = image.required("url")?;
                    // Pictures are read as the model reads them.
                    closed(image, &["detail"], unused)?;
                    url
                }
                None => return Err(wrong(&path, "is required")),
            };
            media::data_url(&format!("{path}.url"), &url).map(Part::Image)?
        }
        "input_audio" => {
            let path = fields.name("input_audio");
            let mut audio =
                fields.object("input_audio")?.ok_or_else(|| wrong(&path, "is required"))?;
            let mime = match audio.required("format")?.as_str() {
                "wav" => "audio/wav",
                "mp3" => "audio/mpeg",
                _ => return Err(wrong(&audio.name("format"), "must be wav or mp3")),
            };
            let data = media::decode(&audio.name("data"), &audio.required("data")?)?;
            closed(audio, &[], unused)?;
            Part::Audio(Media { mime: mime.to_owned(), data })
        }
        _ => return Err(refused(&fields.name("type"), "must be text, image_url or input_audio")),
    };
    closed(fields, &[], unused)?;
    Ok(part)
}

fn tool_call(mut fields: Fields, place: usize, unused: &mut Vec<String>) -> Result<ToolCall> {
    if fields.string("type")?.is_some_and(|kind| kind != "function") {
        return Err(refused(&fields.name("type"), "must be \"function\""));
    }
    let id = fields.string("id")?.filter(|id| !id.is_empty());
    let mut function =
        fields.object("function")?.ok_or_else(|| wrong(&fields.name("function"), "is required"))?;
    let name = function.required("name")?;
    // What the model once said stays as it said it, well-formed or not.
    let arguments = match function.take("arguments") {
        None => "{}".to_owned(),
        Some(Value::String(text)) if text.trim().is_empty() => "{}".to_owned(),
        Some(Value::String(text)) => text,
        Some(object @ Value::Object(_)) => object.to_string(),
        Some(other) => {
            return Err(wrong(
                &function.name("arguments"),
                format!("must be a JSON string, got {}", kind(&other)),
            ));
        }
    };
    closed(function, &[], unused)?;
    // Clients that put a stream together keep its numbers.
    closed(fields, &["index"], unused)?;
    Ok(ToolCall { id: id.unwrap_or_else(|| format!("call_{place}")), name, arguments })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(items: Vec<Value>) -> Result<Vec<Message>> {
        messages(items, &mut Vec::new())
    }

    #[test]
    fn what_changes_nothing_is_told_and_the_rest_is_refused() {
        let list = json!([
            { "role": "assistant", "content": null, "annotations": [], "audio": null,
              "tool_calls": [{ "index": 0, "id": "c", "type": "function",
                "function": { "name": "f", "arguments": "{}" } }] },
            { "role": "user", "content": [{ "type": "text", "text": "x",
                "cache_control": { "type": "ephemeral" } }] },
        ]);
        let Value::Array(list) = list else { panic!() };
        let mut unused = Vec::new();
        messages(list, &mut unused).unwrap();
        assert_eq!(
            unused,
            [
                "messages[0].tool_calls[0].index",
                "messages[0].annotations",
                "messages[1].content[0].cache_control",
            ]
        );
        let call = |more: Value| json!({ "role": "assistant", "tool_calls": [{ "id": "c", "function": more }] });
        for (item, field) in [
            (json!({ "role": "user", "content": "x", "weight": 0 }), "messages[0].weight"),
            (
                json!({ "role": "assistant", "function_call": { "name": "f" } }),
                "messages[0].function_call",
            ),
            (
                json!({ "role": "user", "content": [{ "type": "text", "text": "x", "tone": 1 }] }),
                "messages[0].content[0].tone",
            ),
            (
                call(json!({ "name": "f", "arguments": "{}", "result": 1 })),
                "messages[0].tool_calls[0].function.result",
            ),
        ] {
            let error = read(vec![item.clone()]).unwrap_err();
            assert_eq!(error.detail("field"), Some(field), "{item}");
        }
    }

    #[test]
    fn reasoning_comes_back_under_every_name() {
        for name in ["reasoning_content", "reasoning", "thinking"] {
            let list = vec![json!({ "role": "assistant", "content": "a", name: "hm" })];
            assert_eq!(read(list).unwrap()[0].reasoning.as_deref(), Some("hm"));
        }
    }

    #[test]
    fn parts_and_calls_arrive_as_they_are() {
        let list = json!([
            { "role": "developer", "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] },
            { "role": "user", "content": [{ "type": "image_url",
                "image_url": { "url": "data:image/png;base64,iVBORw0KGgo=" } }] },
            { "role": "assistant", "content": null, "tool_calls": [{ "id": "c1", "type": "function",
                "function": { "name": "f", "arguments": "{\"b\": 1,  broken" } }] },
            { "role": "tool", "tool_call_id": "c1", "content": "ok" },
            { "role": "assistant" },
        ]);
        let Value::Array(list) = list else { panic!() };
        let messages = read(list).unwrap();
        assert_eq!(messages[0].role, Role::System);
        assert_eq!(messages[0].content.len(), 2);
        assert!(matches!(&messages[1].content[0], Part::Image(media) if media.mime == "image/png"));
        assert_eq!(messages[2].tool_calls[0].arguments, "{\"b\": 1,  broken");
        assert_eq!(messages[3].tool_call_id.as_deref(), Some("c1"));
    }

    #[test]
    fn bad_messages_name_their_place() {
        for (item, field) in [
            (json!({ "content": "x" }), "messages[0].role"),
            (json!({ "role": "alien", "content": "x" }), "messages[0].role"),
            (json!({ "role": "user" }), "messages[0].content"),
            (json!({ "role": "user", "content": 5 }), "messages[0].content"),
            (json!({ "role": "tool", "content": "x" }), "messages[0].tool_call_id"),
            (
                json!({ "role": "user", "content": [{ "type": "file" }] }),
                "messages[0].content[0].type",
            ),
            (
                json!({ "role": "user", "content": [{ "type": "image_url", "image_url": { "url": "http://x/y.png" } }] }),
                "messages[0].content[0].image_url.url",
            ),
            (json!("x"), "messages[0]"),
        ] {
            let error = read(vec![item.clone()]).unwrap_err();
            assert_eq!(error.detail("field"), Some(field), "{item}");
        }
    }
}
